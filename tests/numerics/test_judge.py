"""The interface: what points are asked for, in which batches, at what cost; and users' own tolerances."""

import time

import numpy as np
import pytest

from gradcheck_cli.numerics import (
    EXPLANATIONS,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Problem,
    Reason,
    Verdict,
    estimate,
    judge,
    precision_of,
    rule_for,
)
from gradcheck_cli.numerics.sampling import FLOATS_AT_ONCE


def problem(evaluate, point, **changes):
    return Problem(evaluate, point, FLOAT64, FLOAT64, **changes)


def test_points_stay_in_the_domain_and_are_representable():
    seen = []

    def evaluate(points):
        seen.append(points)
        return np.sqrt(points)

    point = FLOAT32.round(np.array([1e-6, 0.3, 1.0]))
    judge(Problem(evaluate, point, FLOAT32, FLOAT32, low=0.0, high=1.0), np.diag(2 / np.sqrt(point)))
    points = np.concatenate(seen)
    assert points.min() >= 0
    assert points.max() <= 1
    assert np.array_equal(points.astype(np.float32).astype(np.float64), points)
    assert all((batch[0] == point).all() for batch in seen), "every call carries the base point"


def test_values_of_different_calls_are_never_compared():
    calls = iter(range(10**6))

    def evaluate(points):
        return np.sin(points) * (1 + 1e-9 * next(calls))

    point = np.linspace(0.1, 1, 5)
    assert (judge(problem(evaluate, point), np.diag(np.cos(point))).verdict == Verdict.PASS).all()
    found = judge(problem(evaluate, point), np.diag(np.cos(point)), method="ladder")
    assert (found.verdict == Verdict.PASS).all()


def test_batches_stay_small(monkeypatch):
    monkeypatch.setattr("gradcheck_cli.numerics.sampling.FLOATS_AT_ONCE", 20_000)
    sizes = []

    def evaluate(points):
        sizes.append(points.size)
        return points**2

    point = np.linspace(1, 2, 100)
    found = judge(problem(evaluate, point), np.diag(2 * point) * 1.01)
    assert max(sizes) <= 20_000
    assert (np.diag(found.verdict) == Verdict.MISMATCH).all()
    assert FLOATS_AT_ONCE * 8 == 64 * 2**20


@pytest.mark.parametrize("factor", [1.0, 1.0001])
def test_a_slope_that_rounding_alone_hides_costs_two_more(factor):
    """A weight that is small beside the value, which rounds."""
    weights = np.array([3e-4, 0.7, -0.4, 0.9])
    point = np.array([0.8, -0.3, 0.5, 0.2])
    value = np.tanh(point @ weights)
    analytic = (1 - value**2) * weights[None]
    found = judge(
        problem(lambda points: 30 + np.tanh(points @ weights)[:, None], point), analytic * [factor, 1, 1, 1]
    )
    if factor == 1:
        assert (found.verdict == Verdict.PASS).all()
        assert (found.method, found.evaluations) == ("central", 1 + 2 * 4 + 1 + 2)
    else:
        assert found.verdict.tolist() == [[Verdict.MISMATCH, *[Verdict.PASS] * 3]]


def test_large_jacobian_with_few_doubtful_columns_is_quick():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(1000, 1000))
    wrong = matrix.copy()
    wrong[3, 5] *= 1.01
    wrong[700, 900] *= -1
    spent = 0.0

    def evaluate(points):
        nonlocal spent
        began = time.perf_counter()
        values = points @ matrix.T
        spent += time.perf_counter() - began
        return values

    began = time.perf_counter()
    found = judge(problem(evaluate, rng.normal(size=1000)), wrong)
    assert time.perf_counter() - began - spent < 10
    assert sorted(zip(*np.nonzero(found.verdict == Verdict.MISMATCH), strict=True)) == [(3, 5), (700, 900)]
    assert (found.verdict == Verdict.INCONCLUSIVE).sum() == 0


def test_users_tolerances_replace_the_scaled_ones():
    rule = rule_for(FLOAT64, FLOAT64)
    loose = rule.with_user(atol=0.5)
    assert judge(problem(np.exp, [1.0], tolerance=loose), [[2.9]]).verdict[0, 0] == Verdict.PASS
    assert judge(problem(np.exp, [1.0], tolerance=loose), [[3.9]]).verdict[0, 0] == Verdict.MISMATCH
    relative = rule.with_user(rtol=0.1)
    assert judge(problem(np.exp, [1.0], tolerance=relative), [[2.9]]).verdict[0, 0] == Verdict.PASS
    assert judge(problem(np.exp, [1.0], tolerance=relative), [[3.9]]).verdict[0, 0] == Verdict.MISMATCH
    found = judge(problem(np.exp, [1.0], tolerance=rule.with_user(atol=1e-3, rtol=0.0)), [[np.e]])
    assert found.allowed[0, 0] == 1e-3


def test_estimate_reports_kinks_and_unknowns():
    found = estimate(problem(lambda x: np.concatenate([np.abs(x), np.sqrt(x), x], axis=-1), [0.0]))
    assert (found.verdict[:, 0] == Verdict.KINK).tolist() == [True, False, False]
    assert found.reason[1, 0] == Reason.SINGULAR
    assert found.numeric[2, 0] == 1


def test_empty_jacobians():
    assert judge(problem(np.exp, np.zeros(0)), np.zeros((0, 0))).verdict.shape == (0, 0)
    found = judge(problem(lambda x: np.zeros((len(x), 0)), [1.0]), np.zeros((0, 1)))
    assert found.verdict.shape == (0, 1)
    found = judge(problem(lambda x: np.zeros((len(x), 2)), np.zeros(0)), np.zeros((2, 0)))
    assert found.verdict.shape == (2, 0)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="analytic: expected shape"):
        judge(problem(np.exp, [1.0]), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="evaluate: expected"):
        judge(problem(lambda x: x.sum(), [1.0]), np.zeros((1, 1)))


def test_every_reason_says_what_to_do():
    for reason in Reason:
        assert bool(EXPLANATIONS[reason].remedy) == (reason is not Reason.NONE)


@pytest.mark.parametrize(("precision", "dtype"), [(FLOAT32, np.float32), (FLOAT16, np.float16)])
def test_rounding_agrees_with_numpy(precision, dtype):
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.normal(size=2000) * 10.0 ** rng.integers(-12, 7, 2000), [0, -0.0, 1e300, np.inf]]
    )
    with np.errstate(over="ignore", under="ignore"):
        expected = values.astype(dtype).astype(np.float64)
    assert np.array_equal(precision.round(values), expected)


def test_precision_of_names():
    assert precision_of("complex64") is FLOAT32
    assert precision_of("complex128") is FLOAT64
    with pytest.raises(ValueError, match="floating dtype"):
        precision_of("int32")


def test_a_slope_that_rounding_of_its_value_hides_says_so_and_the_remedy_helps():
    def hidden(points):
        return 1 + 1e-10 * np.sin(points)

    point = np.array([30.3])
    right = 1e-10 * np.cos(point)[None]
    found = judge(problem(hidden, point), right)
    assert (found.verdict[0, 0], found.reason[0, 0]) == (Verdict.INCONCLUSIVE, Reason.NOISE)
    assert "state an atol" in EXPLANATIONS[Reason.NOISE].remedy
    stated = rule_for(FLOAT64, FLOAT64).with_user(atol=float(found.uncertainty[0, 0]))
    assert judge(problem(hidden, point, tolerance=stated), right).verdict[0, 0] == Verdict.PASS
    assert judge(problem(hidden, point, tolerance=stated), 1.01 * right).verdict[0, 0] != Verdict.PASS
