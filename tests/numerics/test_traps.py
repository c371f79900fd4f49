"""Each trap that numeric derivatives fall into: function, point, gradient, and what must be said of it."""

import numpy as np
import pytest

from gradcheck_cli.numerics import FLOAT32, FLOAT64, Problem, Reason, judge
from tests.rows.traps import root
from tests.support.row import in_precision


def run(function, point, analytic, precision=FLOAT64, **settings):
    point = precision.round(np.atleast_1d(np.asarray(point, dtype=np.float64)))
    analytic = np.asarray(analytic, dtype=np.float64)
    if analytic.ndim < 2:
        analytic = np.diag(np.atleast_1d(analytic))
    method = settings.pop("method", "auto")
    return judge(
        Problem(in_precision(function, precision), point, precision, precision, **settings),
        analytic,
        method=method,
    )


@pytest.mark.parametrize(
    ("function", "point", "analytic", "reason"),
    [
        (np.floor, 2.0, 1.0, Reason.JUMP),
        (np.sqrt, 0.0, np.inf, Reason.SINGULAR),
        (lambda x: np.round(x * 100) / 100, 1.2345, 1.0, Reason.STAIRCASE),
        (lambda x: np.round(x * 100) / 100, 1.2345, 0.0, Reason.STAIRCASE),
        # Flat for steps of up to 2^17 x: nothing nearer says that its slope may be 1.
        (lambda x: (x + 2.0**70) - 2.0**70, 1.0, 1.0, Reason.STAIRCASE),
    ],
)
def test_reasons(function, point, analytic, reason):
    assert run(function, point, analytic).reason[0, 0] == reason


@pytest.mark.parametrize("analytic", [1.0, 0.0])
def test_intermediate_much_larger_than_the_output_is_undecided_in_float32(analytic):
    found = run(lambda x: (1 + x) - 1, 1e-6, analytic, FLOAT32)
    assert found.reason[0, 0] == Reason.STAIRCASE


def test_no_steps_are_taken_that_show_no_more_of_stairs():
    found = run(lambda x: np.sin(x) + np.round(x * 100) / 100, 0.71, np.cos(0.71) + 1)
    assert found.reason[0, 0] == Reason.STAIRCASE
    assert found.evaluations < 250  # 357, with three rounds closer to the point and one farther away


@pytest.mark.parametrize("analytic", [np.nan, 2.0, 0.5])
def test_zero_is_not_given_for_the_slope_of_what_cancels(analytic):
    assert abs(run(root, 0.0, analytic).numeric[0, 0] - 1) < 1e-4


def test_domain_without_room_says_so():
    assert run(np.square, 0.5, 1.0, low=0.5, high=0.5).reason[0, 0] == Reason.DOMAIN
