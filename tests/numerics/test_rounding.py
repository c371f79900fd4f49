"""Rounding that isn't the value's own: of terms, of inputs, of what stands beside; and jumps that climb."""

import numpy as np
import pytest

from gradcheck_cli.numerics import FLOAT64, Problem, Verdict, judge


def verdicts(function, point, jacobian, **known):
    problem = Problem(function, np.asarray(point, float), FLOAT64, FLOAT64, **known)
    return judge(problem, np.asarray(jacobian, float)).verdict


def log_sum(z):
    most = z.max(-1, keepdims=True)
    return (most + np.log(np.exp(z - most).sum(-1, keepdims=True)))[:, 0]


@pytest.mark.parametrize("gap", [5, 10, 15, 20, 23])
@pytest.mark.parametrize("seed", range(3))
def test_a_difference_is_judged_by_the_size_of_its_terms(gap, seed):
    z = 20 + 3 * np.random.default_rng(seed).standard_normal(4)
    z[0] = z[1:].max() + gap
    p = np.exp(z - log_sum(z[None]))
    right = np.concatenate([[p[1:].sum()], -p[1:]])[None]

    def found(jacobian):
        return verdicts(
            lambda points: (points[:, 0] - log_sum(points))[:, None],
            z,
            jacobian,
            rounded_size=lambda: np.array([2 * z[0]]),
        )

    assert (found(right) == Verdict.PASS).all()
    for wrong in (2 * right, -right):
        assert (found(wrong) == Verdict.MISMATCH).any()


@pytest.mark.parametrize("seed", range(8))
def test_a_box_climbs_nothing(seed):
    generator = np.random.default_rng(seed)
    x, weight = generator.standard_normal((2, 6))

    def within(step):
        return np.where(np.abs(x / step) <= 3, weight * (1 / step) * step, 0.0)

    assert (verdicts(within, [0.4], np.zeros((6, 1))) == Verdict.PASS).all()
    assert (verdicts(within, [0.4], np.full((6, 1), 0.1)) != Verdict.PASS).any()


@pytest.mark.parametrize("seed", range(40))
def test_a_centred_upstream_has_no_fine_stairs(seed):
    generator = np.random.default_rng(seed)
    slope, u = generator.uniform(0, 1, 4), generator.standard_normal(4)
    jacobian = np.diag(slope) - np.outer(slope, slope) / slope.sum()

    def pull(points):
        return slope * (points - ((slope * points).sum(-1) / slope.sum())[:, None])

    assert (verdicts(pull, u, jacobian, may_round=True) == Verdict.PASS).all()
    assert (verdicts(pull, u, 1.001 * jacobian, may_round=True) == Verdict.MISMATCH).any()


def test_fine_stairs_are_seen_all_the_same():
    x = np.random.default_rng(0).uniform(0.5, 2, 4)
    fine = verdicts(lambda points: np.round(1e12 * points) / 1e12, x, np.eye(4), may_round=True)
    assert (fine != Verdict.PASS).any()
