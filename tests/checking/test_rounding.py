"""What is as small as the rounding of the rest is called neither wrong nor right."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.checking.pairs.rounding import doubt_rounding
from gradcheck_cli.numerics import Reason, Verdict

UNIT = 2.0**-53
RIGHT, WRONG, OPEN = Verdict.PASS, Verdict.MISMATCH, Verdict.INCONCLUSIVE


def sample(analytic, numeric, verdict):
    analytic, numeric = np.array(analytic, float), np.array(numeric, float)
    zero = np.zeros(analytic.shape)
    return PairSample(
        analytic=analytic,
        numeric=numeric,
        uncertainty=zero,
        allowed=zero,
        verdict=np.array(verdict, np.int8),
        reason=zero.astype(np.int8),
        is_connected=True,
        evaluations=4,
        method="central",
        numeric_dtype="float64",
    )


@pytest.mark.parametrize(
    ("analytic", "numeric", "verdict", "expected"),
    [
        ([[1.0, 2.0], [1.5e-15, 0.0]], [[1.0, 2.0], [5e-18, 0.0]], [[RIGHT] * 2, [WRONG, RIGHT]], OPEN),
        ([[1.0, 2.0], [1e-13, 0.0]], [[1.0, 2.0], [5e-18, 0.0]], [[RIGHT] * 2, [WRONG, RIGHT]], WRONG),
        ([[1.0, 2.0], [1.5e-15, 0.0]], [[1.0, 2.0], [1e-3, 0.0]], [[RIGHT] * 2, [WRONG, RIGHT]], WRONG),
        # Twelve decades apart, as scaled outputs may be: still a mismatch.
        ([[1e12, 0.0], [2.0, 0.0]], [[1e12, 0.0], [1.0, 0.0]], [[RIGHT] * 2, [WRONG, RIGHT]], WRONG),
        # A huge element that is wrong itself says nothing of the others' rounding.
        ([[1e20, 0.0], [2.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [[WRONG, RIGHT], [WRONG, RIGHT]], WRONG),
        ([[1.0, 2.0], [np.nan, 0.0]], [[1.0, 2.0], [0.0, 0.0]], [[RIGHT] * 2, [WRONG, RIGHT]], WRONG),
    ],
)
def test_a_table(analytic, numeric, verdict, expected):
    found = doubt_rounding(sample(analytic, numeric, verdict), UNIT)
    assert found.verdict[1, 0] == expected
    assert found.reason[1, 0] == (Reason.LOW_PRECISION if expected == OPEN else Reason.NONE)
    assert found.verdict[0, 1] == RIGHT


@pytest.mark.parametrize(
    ("analytic", "numeric", "uncertainty", "moved", "expected"),
    [
        (-1.01, -1.0, 1e-13, 1e-16, WRONG),  # digits on both sides
        (-1.01, -1.0, 1e-2, 1e-16, OPEN),  # none in the differences
        (-1.01, -1.0, 1e-13, 1e-3, OPEN),  # none in the gradient
        (0.0, -1.0, 1e-13, 0.0, OPEN),  # of a zero nothing can be measured
    ],
)
def test_what_has_digits_isnt_rounding_however_large_the_others_are(
    analytic, numeric, uncertainty, moved, expected
):
    beside = sample(
        [[1e20, 0.0], [analytic, 0.0]], [[1e20, 0.0], [numeric, 0.0]], [[RIGHT] * 2, [WRONG, RIGHT]]
    )
    beside.uncertainty[1, 0] = uncertainty
    found = doubt_rounding(beside, UNIT, lambda where: np.full((2, 2), moved))
    assert found.verdict[1, 0] == expected
