"""Gradients that are wrong behind a condition that few draws meet, and their right twins.

`python -m tests.hidden run` and `search` try all of `tests/hidden`. These are those that a run finds.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.hidden.hidden_faults import ROWS as FAULTS
from tests.hidden.rare_pairs import PAIRS
from tests.support.row import Row, marked

FOUND_BY_RUN = (
    *("above-5", "band-5", "signs-20", "equal-two", "zero-first", "cond-max-4", "numpy-max-5", "loop-band"),
    *("gradient-function-max", "uniform-high", "where-in-where", "cond-in-map", "table", "empty-row"),
    *("near-each-other", "narrow-band-4", "numpy-where", "numpy-choice", "numpy-select-0"),
    *("numpy-piecewise-2", "numpy-digitize-1", "numpy-clip-1", "numpy-match-2", "numpy-except-2"),
    *("numpy-lambda-1", "numpy-comprehension-2", "numpy-dict-0", "numpy-helper-4", "numpy-loop-2"),
    *("scatter-0", "series-0", "flags-0", "code-0", "string-0", "probabilities-0", "loop-3", "draw-1"),
    *("second-order-0", "complex-2", "nan-at-zero-0", "series-1", "series-4", "second-order-1"),
)


def _rows() -> Iterator[Row]:
    for name in FOUND_BY_RUN:
        # Far out, the spec is asked how far its inputs go: that isn't green, either.
        for word, truth in (("wrong", "not green"), ("right", "right")):
            spec = dict((FAULTS | PAIRS)[name].spec(wrong=word == "wrong"))
            op, gradient, inputs = spec.pop("forward"), spec.pop("gradient", None), spec.pop("inputs")
            yield Row(f"{name}-{word}", op, gradient, inputs, truth, keys=spec)


ROWS = marked(
    _rows(),
    "gradient-function-max-*",
    "numpy-except-2-*",
    "probabilities-*-*",
    "second-order-0-*",
)
