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
from gradcheck_cli.results import Status
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


def test_the_gradients_projections_and_the_forwards_secants_are_about_the_same():
    found = of()
    assert len(found.analytic) == len(found.forward) == COUNT
    for analytic, forward in zip(found.analytic, found.forward, strict=True):
        assert forward.value == pytest.approx(analytic.value, rel=1e-4)


def test_it_is_the_same_for_ever():
    """These digits stand in people's lock files: a change here breaks every baseline there is."""
    found = of()
    assert [one.value for one in found.analytic] == SAVED_ANALYTIC
    assert [one.value for one in found.forward] == SAVED_FORWARD


def test_another_order_of_rounding_is_no_change():
    assert moved(of(), of(lambda x: x * x * x, lambda u, x: u * x * x + u * x * x + u * x * x)) == [
        False,
        False,
    ]


@pytest.mark.parametrize("wrong", [1 + 1e-6, -1, 0])
def test_a_changed_gradient_is_seen_and_its_forward_is_not(wrong):
    assert moved(of(), of(gradient=lambda u, x: wrong * cube_gradient(u, x))) == [True, False]


def test_one_element_of_many_is_seen():
    value = np.linspace(0.1, 2, 1000)

    def one_wrong(u, x):
        gradient = cube_gradient(u, x)
        gradient[500] *= 1.001
        return gradient

    assert moved(of(value=value), of(gradient=one_wrong, value=value)) == [True, False]


def test_a_changed_forward_is_seen():
    assert moved(of(), of(lambda x: x**3 + 1e-6 * x)) == [False, True]


def test_a_slope_that_the_point_itself_does_not_show_is_seen():
    flat = of(lambda x: np.maximum(x, 0.0), value=[0.0, 0.0])
    leaky = of(lambda x: np.maximum(x, 0.1 * x), value=[0.0, 0.0])
    assert moved(flat, leaky)[1]


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


def test_points_stay_within_the_domain():
    seen = []

    def watch(x):
        seen.append(x)
        return x

    of(watch, lambda u, _: u, value=[0.0, 1.0], domains={0: (0.0, 1.0)})
    assert min(map(np.min, seen)) >= 0
    assert max(map(np.max, seen)) <= 1


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
    ) == [
        True,
        True,
    ]


def test_a_gradient_that_cancels_has_the_forwards_slack():
    """The rows of a softmax's sum cancel to rounding, which another machine rounds otherwise."""
    noise = of(lambda x: np.sum(np.exp(x)) * np.ones(2), lambda u, x: 1e-17 * u.sum() * x, value=[0.5, 2.0])
    none = of(lambda x: np.sum(np.exp(x)) * np.ones(2), lambda u, x: 0.0 * u.sum() * x, value=[0.5, 2.0])
    assert moved(noise, none)[0] is False


def test_nondeterminism_is_allowed_for():
    loose = of(nondeterminism=1e-3)
    assert loose.analytic[0].slack > 1e-3
    assert moved(loose, of(gradient=lambda u, x: cube_gradient(u, x) + 1e-4)) == [False, False]


def test_complex_tensors():
    def gradient(u, z):
        return u * np.conj(3 * z**2)

    found = of(cube, gradient, value=np.array([1 + 1j, 0.5j]), dtype="complex128")
    wrong = of(cube, lambda u, z: u * 3 * z**2, value=np.array([1 + 1j, 0.5j]), dtype="complex128")
    assert moved(found, wrong) == [True, False]
    for analytic, forward in zip(found.analytic, found.forward, strict=True):
        assert forward.value == pytest.approx(analytic.value, rel=1e-3)


def test_values_that_are_not_finite_are_kept():
    found = of(gradient=lambda u, x: u * np.full_like(x, np.inf))
    assert not np.isfinite(found.analytic[0].value)


def test_a_scalar():
    assert len(of(value=2.0).analytic) == COUNT


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


def test_there_are_none_where_nobody_will_remember_them():
    op = Numpy(cube, cube_gradient, {"x": [0.5, -2.0]})
    (pair,) = check(op, records_fingerprint=False).pairs
    assert pair.fingerprint is None
    assert pair.status is Status.PASSED
