"""Functions of arrays close to edges, ties and poles, and at small scales within large numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradcheck_cli.numerics import FLOAT64
from tests.numerics.numerics_near import ERRORS, GROUPS, plant
from tests.numerics.numerics_table import evaluator
from tests.support.row import Row, marked

EVERY = 23  # so many places get all kinds of errors once
FIRST = ("1e-4", "sign", "zero")
# Errors that are smaller than the tolerance of a function that loses so many digits.
WITHIN = (
    "poles: log(1 - x), 1e-06 from its end: one more",
    "mixed scales: (1e+08 + x) - 1e+08: 1e-4",
    "mixed scales: 1e+10 + sin: 1e-4",
    "mixed scales: 1 + sin(x) / 1e+10: 1e-4",
    "mixed scales: 1 + sin(x / 1e+10): 1e-4",
    "mixed scales: cos, 1e-10 from its top: 1e-4",
)


def _rows() -> Iterator[Row]:
    places = [(group, near) for group, rows in GROUPS.items() for near in rows()]
    for number, (group, near) in enumerate(places):
        op, point, right = evaluator(near.function, FLOAT64), np.array(near.point), near.right()
        keys = near.settings or {}
        name = f"{group}: {near.name}"
        yield Row(name, op, right, point, "right", keys=keys)
        for error in FIRST if number % EVERY else ERRORS:
            wrong, place = plant(right, error)
            if wrong[place] != right[place]:
                label = f"{name}: {error}"
                if label in WITHIN:
                    yield Row(label, op, wrong, point, "undecidable", "within the tolerance", keys=keys)
                else:
                    yield Row(label, op, wrong, point, "not green", keys=keys)


ROWS = marked(
    _rows(),
    "mixed scales: (1e+06 + x) - 1e+06: 1e-4",
    "mixed scales: 1 - exp(-1e+10 x): 1e-4",
    "mixed scales: sum of 1 and 1e+06: sign",
    "poles: tanh of width 1e-06, a slope beside: zero",
    "small scales: bell at 100000",
    "ties: soft threshold, -1e-06 from its edge",
    "ties: soft threshold, -1e-07 from its edge: 1e-4",
)
