"""Smooth functions of arrays: right gradients pass, and those with one error of note don't."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradcheck_cli.numerics import FLOAT32, FLOAT64
from tests.numerics.numerics_table import evaluator, smooth_rows, true_jacobian, wrong_versions
from tests.support.row import Row, marked

# Errors that are promised to be found in each precision, and larger ones.
SIZES = {FLOAT64: (1e-2, 1e-4), FLOAT32: (1e-2,)}


def _rows() -> Iterator[Row]:
    for precision, sizes in SIZES.items():
        for smooth in smooth_rows():
            point = precision.round(np.array(smooth.point))
            op, right = evaluator(smooth.function, precision), true_jacobian(smooth.function, point)
            keys = {"precision": precision}
            name = f"{smooth.name} {precision.name}"
            yield Row(name, op, right, point, "right", keys=keys)
            for error, wrong in wrong_versions(right, sizes).items():
                yield Row(f"{name}: {error}", op, wrong, point, "wrong", keys=keys)


ROWS = marked(
    _rows(),
    "18 orders apart #0 float64: all by 0.01",
    "exp at 0.0 float32: all by 0.01",
    "max #0 float64: not a number",
    "relu away #1 float32: one row",
    "tiny output at 0.5 float64: not a number",
)
