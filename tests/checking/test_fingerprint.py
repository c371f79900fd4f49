"""Fingerprints tell what has changed, and nothing else: not the machine, not what stands beside it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.checking.pairs.pair import pair_keys
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.baseline.fingerprint import COUNT, fingerprints
from tests.support.numpy_op import Numpy, check


def cube(x):
    return x**3


SAVED_ANALYTIC = [-12.1799927, 15.6721344, 10.5066376]
SAVED_FORWARD = [-12.1799929, 15.6721386, 10.5066424]


def cube_gradient(u, x):
    return 3 * u * x**2


def of(forward=cube, gradient=cube_gradient, value=(0.5, -2.0, 0.0), dtype="float64", **more):
    op = Numpy(forward, gradient, {"x": np.asarray(value)}, dtypes={"x": dtype}).open(Opening())
    (found,) = fingerprints(op, pair_keys(op), **more).values()
    return found


def moved(one, other):
    return [
        any(abs(a.value - b.value) > a.slack + b.slack for a, b in zip(left, right, strict=True))
        for left, right in ((one.analytic, other.analytic), (one.forward, other.forward))
    ]


def test_it_is_the_same_for_ever():
    """These digits stand in people's lock files: a change here breaks every baseline there is."""
    found = of()
    assert [one.value for one in found.analytic] == SAVED_ANALYTIC
    assert [one.value for one in found.forward] == SAVED_FORWARD


ZEROS, MANY, COMPLEX = [0.0, 0.0], np.linspace(0.1, 2, 1000), np.array([1 + 1j, 0.5j])
OF_COMPLEX = {"value": COMPLEX, "dtype": "complex128"}
SUMS = {"forward": lambda x: np.sum(np.exp(x)) * np.ones(2), "value": [0.5, 2.0]}


def one_wrong(u, x):
    gradient = cube_gradient(u, x)
    gradient[500] *= 1.001
    return gradient


# Two spellings of an op, and whether the gradient and the forward have changed.
PAIRS = {
    "another order of rounding": (
        {},
        {"forward": lambda x: x * x * x, "gradient": lambda u, x: 3 * (u * x * x)},
        [False, False],
    ),
    "a millionth more": ({}, {"gradient": lambda u, x: (1 + 1e-6) * cube_gradient(u, x)}, [True, False]),
    "the other sign": ({}, {"gradient": lambda u, x: -cube_gradient(u, x)}, [True, False]),
    "zeros": ({}, {"gradient": lambda u, x: 0 * u}, [True, False]),
    "one element of many": ({"value": MANY}, {"gradient": one_wrong, "value": MANY}, [True, False]),
    "another forward": ({}, {"forward": lambda x: x**3 + 1e-6 * x}, [False, True]),
    "a slope that the point itself doesn't show": (
        {"forward": lambda x: np.maximum(x, 0.0), "value": ZEROS},
        {"forward": lambda x: np.maximum(x, 0.1 * x), "value": ZEROS},
        [False, True],
    ),
    # The rows of a softmax's sum cancel to rounding, which another machine rounds otherwise.
    "a gradient that cancels": (
        {"gradient": lambda u, x: 1e-17 * u.sum() * x, **SUMS},
        {"gradient": lambda u, x: 0.0 * u.sum() * x, **SUMS},
        [False, False],
    ),
    "within what a spec allows": (
        {"nondeterminism": 1e-3},
        {"gradient": lambda u, x: cube_gradient(u, x) + 1e-4},
        [False, False],
    ),
    "a conjugate": (
        {"gradient": lambda u, z: u * np.conj(3 * z**2), **OF_COMPLEX},
        {"gradient": lambda u, z: u * 3 * z**2, **OF_COMPLEX},
        [True, False],
    ),
}


@pytest.mark.parametrize(("one", "other", "changed"), PAIRS.values(), ids=PAIRS)
def test_what_is_seen_to_have_changed(one, other, changed):
    assert moved(of(**one), of(**other)) == changed


def test_other_outputs_and_inputs_change_nothing():
    alone = of()
    op = Numpy(
        lambda x, k: (cube(x), x + k),
        [lambda u, x, k: (cube_gradient(u, x), None), lambda u, x, k: (u, u)],
        {"x": [0.5, -2.0, 0.0], "k": np.ones(3)},
        outputs=("y", "z"),
    ).open(Opening())
    found = fingerprints(op, pair_keys(op))
    assert found[0, 0] == alone
    assert found[0, 1].analytic == ()  # no path


def test_a_point_beside_zero_stays_on_its_side():
    def logarithm(x):
        assert (x > 0).all()
        return np.log(x)

    found = of(logarithm, lambda u, x: u / x, value=[1e-12, 1e12])
    assert all(np.isfinite(one.value) for one in found.forward)


def test_a_forward_that_can_not_be_evaluated_beside_its_point_has_no_secants():
    op = Numpy(cube, cube_gradient, {"x": np.ones(2)}).open(Opening())

    def fail(_):
        raise CaseFailedError("forward", "an assertion of the user's")

    op = replace(op, evaluate=fail)
    (found,) = fingerprints(op, pair_keys(op)).values()
    assert len(found.analytic) == COUNT
    assert found.forward == ()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_low_precision_has_the_slack_that_it_needs(dtype):
    value = np.array([0.5, -2.0, 0.25, 1.5])
    exact = of(value=value)
    low = of(value=value, dtype=dtype)
    other_order = of(lambda x: x * x * x, lambda u, x: u * x * x * x.dtype.type(3), value=value, dtype=dtype)
    assert moved(low, other_order) == [False, False]
    assert low.analytic[0].slack > exact.analytic[0].slack
    assert moved(
        low, of(lambda x: -cube(x), lambda u, x: -cube_gradient(u, x), value=value, dtype=dtype)
    ) == [True, True]


def test_there_is_nothing_to_know_again_of_what_has_no_elements():
    left = itertools.count()  # in memory, another time

    def total(x):
        return np.asarray(x.sum() + next(left))

    for forward, gradient, value in (
        (cube, cube_gradient, np.zeros((0, 3))),
        (lambda x: x[:0], lambda _, x: x + next(left), [1.0, 2.0]),
        (total, lambda u, x: u * np.ones_like(x), np.zeros((0, 3))),
    ):
        found = of(forward, gradient, value)
        assert (found.analytic, found.forward) == ((), ())


def test_a_case_remembers_them_once_with_its_tolerances():
    op = Numpy(cube, cube_gradient, {"x": [0.5, -2.0]})
    (pair,) = check(op).pairs
    assert len(pair.fingerprint.analytic) == COUNT
    assert (pair.numbers.tolerance.rtol, pair.numbers.tolerance.atol) == (1e-6, None)
