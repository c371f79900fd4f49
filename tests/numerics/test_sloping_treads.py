"""Staircases with sloping treads, such as a rounded input times something smooth; and what isn't one."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.numerics import FLOAT64, Problem, Reason, Verdict, judge

# Near pi / 2, where a cosine's risers vanish, and elsewhere.
POINT = np.array([0.51, 0.93, 1.21, 1.552, 1.5598])
STEP = 1e-4


def rounds(per_unit):
    return lambda x: np.round(per_unit * x) / per_unit


def floors(per_unit):
    return lambda x: np.floor(per_unit * x) / per_unit


def identity(x):
    return x


# Each function takes what rounds; the smooth one that is meant has the identity there.
STAIRS = {
    "times_cos": lambda x, r: r(x) * np.cos(x),
    "plus_sin": lambda x, r: r(x) + np.sin(3 * x),
    "cos_of_it": lambda x, r: np.cos(r(x)) * x,
    "swish": lambda x, r: x * r(1 / (1 + np.exp(-x))),
    "kaiser": lambda x, r: np.i0(4 * np.sqrt(1 - (x - 0.1 * r(x)) ** 2 / 9)) * np.sin(r(x)),
    "polynomial": lambda x, r: 1 + r(x) * (x + 0.3 * x * x),
    "exp": lambda x, r: np.exp(-x) * r(x * x),
    "remainder": lambda x, r: (x - r(x)) * np.cos(x) + r(x),
}
ROUNDINGS = {
    "round": rounds(1024.0),
    "floor": floors(1000.0),
    "coarse": rounds(32.0),
    "int8": rounds(127.0),
}
SMOOTH = {
    "cos": lambda x: x * np.cos(x),
    "wiggle": lambda x: x + 1e-3 * np.sin(500 * x),
    "fast": lambda x: np.sin(60 * x) * np.cos(x),
    "kinks": lambda x: np.maximum(x - 0.5, 0) * np.cos(x) + np.maximum(x - 1, 0) + np.maximum(1.3 - x, 0),
    "triangle": lambda x: np.abs(np.mod(20 * x, 2) - 1) * np.cos(x),
    "one_step": lambda x: np.where(x > 1, x, 0) + x * np.cos(x),
    "small_step": lambda x: np.where(x > 1, 1e-3, 0) + x * np.cos(x),
    "box": lambda x: np.where((x > 0.45) & (x < 1.65), x, 0) * np.cos(x),
    "two_steps": lambda x: (np.where(x > 0.7, 0.1, 0) + np.where(x > 1.1, 0.1, 0)) * np.cos(x) + x * x,
    "large": lambda x: 1e3 + x * np.cos(x),
    "clipped": lambda x: np.clip(x, 0.39, 1.61) * np.cos(x),
    "spline": lambda x: np.where(x < 0.8, x * x, 1.6 * x - 0.64) * np.cos(x),
}


def slope(function):
    """Return the slope by Richardson's extrapolation, far closer than 1e-6."""
    far, near = ((function(POINT + step) - function(POINT - step)) / (2 * step) for step in (STEP, STEP / 2))
    return (4 * near - far) / 3


def judged(function, gradient):
    """Return what is said of the diagonal."""

    def each(points):
        return function(points)

    problem = Problem(each, POINT, FLOAT64, FLOAT64)
    judgement = judge(problem, np.diag(gradient))
    return judgement.verdict.diagonal(), judgement.reason.diagonal()


@pytest.mark.on_change("exp-int8")
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", STAIRS)
def test_stairs_with_sloping_treads_tell_nothing(name, rounding):
    meant = slope(lambda x: STAIRS[name](x, identity))
    verdict, reason = judged(lambda x: STAIRS[name](x, ROUNDINGS[rounding]), meant)
    assert (verdict == Verdict.INCONCLUSIVE).all(), verdict
    assert np.isin(reason, (Reason.STAIRCASE, Reason.JUMP, Reason.NOISE)).all(), reason


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["times_cos", "plus_sin", "remainder", "exp"])
def test_a_gradient_that_no_stairs_explain_is_wrong(name, rounding):
    meant = slope(lambda x: STAIRS[name](x, identity))
    verdict, _ = judged(lambda x: STAIRS[name](x, ROUNDINGS[rounding]), -6 * meant)
    assert (verdict == Verdict.MISMATCH).any(), verdict


@pytest.mark.parametrize("name", SMOOTH)
def test_a_curve_with_kinks_or_a_jump_or_two_is_no_staircase(name):
    right = slope(SMOOTH[name])
    assert (judged(SMOOTH[name], right)[0] == Verdict.PASS).all()
    for factor in (1.01, 0.5, -1.0):
        assert (judged(SMOOTH[name], factor * right)[0] == Verdict.MISMATCH).all(), factor
