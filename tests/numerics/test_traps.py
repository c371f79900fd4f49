"""Each trap that numeric derivatives fall into: function, point, gradient, and what must be said of it."""

import numpy as np
import pytest

from gradcheck_cli.numerics import FLOAT32, FLOAT64, Problem, Reason, Verdict, judge
from tests.rows.traps import E, root

PASS, KINK, WRONG, OPEN = Verdict.PASS, Verdict.KINK, Verdict.MISMATCH, Verdict.INCONCLUSIVE
BOTH = (FLOAT64, FLOAT32)


def run(function, point, analytic, precision=FLOAT64, **settings):
    dtype = np.float32 if precision is FLOAT32 else np.float64

    def evaluate(points):
        with np.errstate(all="ignore"):
            values = function(points.astype(dtype))
        assert values.dtype == dtype, "NumPy promoted: the float32 forward would run in float64"
        return values.astype(np.float64)

    point = precision.round(np.atleast_1d(np.asarray(point, dtype=np.float64)))
    analytic = np.asarray(analytic, dtype=np.float64)
    if analytic.ndim < 2:
        analytic = np.diag(np.atleast_1d(analytic))
    method = settings.pop("method", "auto")
    return judge(Problem(evaluate, point, precision, precision, **settings), analytic, method=method)


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


def test_slope_below_the_first_pass_does_not_pass_as_flat():
    assert run(lambda x: 1 + 1e-12 * x, 1.0, 0.0).verdict[0, 0] != PASS


@pytest.mark.parametrize("analytic", [np.nan, 2.0, 0.5])
def test_zero_is_not_given_for_the_slope_of_what_cancels(analytic):
    assert abs(run(root, 0.0, analytic).numeric[0, 0] - 1) < 1e-4


def test_fine_ripple_is_no_noise():
    def ripple(x):
        return x + x.dtype.type(1e-4) * np.sin(x.dtype.type(1e5) * x)

    right = 1 + 10 * np.cos(5e4)
    assert run(ripple, 0.5, right).verdict[0, 0] != WRONG
    assert run(ripple, 0.5, right, FLOAT32).verdict[0, 0] != WRONG
    assert run(ripple, 0.5, 1.0).verdict[0, 0] == WRONG


@pytest.mark.parametrize("precision", BOTH, ids=lambda p: p.name)
@pytest.mark.parametrize("low", [None, 0.0])
def test_input_eighteen_orders_below_another_is_judged_at_its_own_scale(precision, low):
    point = precision.round(np.array([1e-8, 1.0]))
    assert (run(np.log, point, 1 / point, precision, low=low).verdict == PASS).all()
    assert run(np.log, point, [1.02, 1.0] / point, precision, low=low).verdict[0, 0] == WRONG


def test_one_percent_on_inputs_eighteen_orders_apart():
    found = run(lambda x: x * x, [1e-8, 1e8, 2.0], [2.02e-8, 2e8, 4.0])
    assert found.verdict[0, 0] == WRONG
    assert (found.verdict == WRONG).sum() == 1


@pytest.mark.parametrize("precision", BOTH, ids=lambda p: p.name)
def test_smallest_of_twelve_decades_is_seen(precision):
    weights = 10.0 ** -np.arange(13)
    wrong = weights.copy()
    wrong[12] *= 1.01

    def function(x):
        return x * weights.astype(x.dtype)

    assert (run(function, np.ones(13), weights, precision).verdict == PASS).all()
    assert list(zip(*np.nonzero(run(function, np.ones(13), wrong, precision).verdict), strict=True)) == [
        (12, 12)
    ]


def test_error_does_not_hide_behind_a_truncation_error_near_a_pole():
    slope = 1 / np.cos(1.57) ** 2
    assert run(np.tan, 1.57, slope).verdict[0, 0] == PASS
    assert run(np.tan, 1.57, slope * (1 + 1e-4)).verdict[0, 0] == WRONG


def test_max_of_a_tie_shares_its_gradient():
    def maximum(x):
        return x.max(axis=-1, keepdims=True)

    assert run(maximum, [1, 1, 0.5], [[0.5, 0.5, 0]]).verdict.tolist() == [[KINK, KINK, PASS]]
    assert run(maximum, [1, 1, 0.5], [[1.5, 0.5, 0]]).verdict[0, 0] == WRONG


def noisy(size):
    def function(x):
        seeds = [abs(hash(row.tobytes())) % 2**32 for row in x]
        factor = np.array([1 + size * np.random.default_rng(seed).standard_normal() for seed in seeds])
        return (np.sin(x) * factor[:, None]).astype(x.dtype)

    return function


@pytest.mark.parametrize("size", [1e-13, 1e-10, 1e-8])
def test_noise_is_measured_rather_than_called_wrong(size):
    assert run(noisy(size), 1.0, np.cos(1)).verdict[0, 0] == PASS
    assert run(noisy(size), 1.0, 1.05 * np.cos(1)).verdict[0, 0] == WRONG
    assert run(noisy(size), 1.0, -np.cos(1)).verdict[0, 0] == WRONG


@pytest.mark.parametrize("size", [1e-5, 1e-3])
def test_much_noise_is_never_called_wrong(size):
    assert run(noisy(size), 1.0, np.cos(1)).verdict[0, 0] in (PASS, OPEN)
    assert run(noisy(size), 1.0, 1.02 * np.cos(1)).verdict[0, 0] in (WRONG, OPEN)


def test_domain_without_room_says_so():
    assert run(np.square, 0.5, 1.0, low=0.5, high=0.5).reason[0, 0] == Reason.DOMAIN


@pytest.mark.parametrize("precision", BOTH, ids=lambda p: p.name)
def test_one_sided_at_the_domains_end(precision):
    assert run(np.exp, 1.0, E, precision, high=1).verdict[0, 0] == PASS
    assert run(np.exp, 1.0, 1.02 * E, precision, high=1).verdict[0, 0] == WRONG
    assert run(np.sqrt, 1e-6, 500.0, precision, low=0).verdict[0, 0] == PASS


def test_a_row_that_is_not_finite_leaves_the_others_alone():
    found = run(lambda x: np.concatenate([x, x * np.nan], axis=-1), [1.0], [[1.0], [0.0]])
    assert found.verdict.tolist() == [[PASS], [OPEN]]
    assert found.reason[1, 0] == Reason.SINGULAR
