"""Ops of the specs in `tests/planted`, whose descriptions say what must be found: commands run them, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.row import Row, marked

FOLDER = Path(__file__).parents[1] / "planted"
TRUTHS = {
    "passed": "right",
    "mismatched": "wrong",
    "error": "refused",
    "inconclusive": "open",
    "passed|inconclusive": "undecidable",
}


def planted() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield (file, op's name, description, a spec of this op alone) of every planted op."""
    for file in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            defaults = document.get("defaults", {})
            for op in document["ops"]:
                description = op.get("description", defaults.get("description"))
                yield file.stem, op["op"], description, {"defaults": defaults, "ops": [op]}


def _rows() -> Iterator[Row]:
    for file, op, description, document in planted():
        word, _, at = description.partition(" ")
        yield Row(f"{file}-{op}", "", None, {}, TRUTHS[word], at=at, keys=document, folder=str(FOLDER))


ROWS = marked(
    _rows(),
    "blamed-closing_over",
    "blamed-large_inside",
    "blamed-rounding",
    "broken-attribute_missing",
    "broken-forward_raises",
    "broken-forward_raises_numpy",
    "broken-input_nan",
    "broken-module_missing",
    "broken-module_raises",
    "broken-not_callable",
    "broken-op_type_missing",
    "broken-output_dtype",
    "broken-output_shape",
    "broken-outputs_too_many",
    "broken-pair_missing",
    "correct-autograph_for",
    "correct-concat",
    "correct-keras_dense",
    "correct-matmul_dtypes",
    "correct-reduce_max_tie",
    "correct-tanh_dtypes",
    "correct-top_k",
    "correct-zero_size",
    "found_by_readers-clipped_at_ten_thousand",
    "found_by_readers-strings_only",
    "found_by_readers-wrong_in_float32_alone",
    "missed_overrides-other_op_type",
    "missed_overrides-partly_hidden",
    "structures-right_dataclass",
    "structures-unknown_nonzeros",
    "structures-wrong_beside_integers",
    "unseen_gradients-covered_expected",
    "wrong_form-gradient_raises_numpy",
    "wrong_form-wrong_shape_numpy",
    "wrong_in_a_mode-known_batch",
    "wrong_in_a_mode-one_function",
    "wrong_twice-mixed",
    "wrong_values-cached_residual",
    "wrong_values-factor_defun",
    "wrong_values-nan",
    "wrong_values-no_broadcast_sum",
    "wrong_values-real_part",
    "wrong_values-wrong_branch",
)
