"""The comparison of modes, driven by NumPy ops: what it calls different, what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import Status
from tests.support.numpy_op import tanh


def compare(own, *others, **changes):
    case = own.case(**{"modes": ("graph", "eager"), "mode": "eager", **changes})
    makers = {
        f"mode{number}": other if callable(other) else lambda other=other: other
        for number, other in enumerate(others)
    }
    findings = check_case(case, own, range(len(own.points)), makers)
    return {check.name: check for check in findings.checks}.get("modes")


def slope(x):
    return 1 - np.tanh(x) ** 2


def test_one_mode_alone_is_not_compared():
    assert compare(tanh()) is None


@pytest.mark.parametrize("factor", [1.001, 2.0, -1.0, np.nan])
def test_a_different_gradient_is_found(factor):
    check = compare(tanh(), tanh(lambda u, x: factor * slope(x) * u))
    assert check.status is Status.MISMATCHED
    assert check.message.startswith("dy/dx differs: ")
    assert "in mode mode0" in check.message
    assert "in mode eager, at x[0]." in check.message


def test_rounding_is_no_difference():
    assert compare(tanh(), tanh(lambda u, x: (1 + 1e-9) * slope(x) * u)).status is Status.PASSED


def test_the_users_tolerance_holds():
    from gradcheck_cli.spec.case import StatedTolerance

    other = tanh(lambda u, x: 1.001 * slope(x) * u)
    assert compare(tanh(), other, tolerance=StatedTolerance(rtol=1e-2)).status is Status.PASSED


def refused(error):
    def make():
        raise error

    return make


@pytest.mark.parametrize("error", [CaseSkippedError("mode", "no"), CaseFailedError("forward", "no")])
def test_the_first_mode_that_can_be_had_is_compared(error):
    assert compare(tanh(), refused(error)) is None
    assert compare(tanh(), refused(error), tanh(lambda u, x: 2 * slope(x) * u)).status is Status.MISMATCHED


def test_other_shapes_are_told():
    points = {"points": [{"x": [0.5, -1.0, 0.25, 1.0]}, {"x": [1.5, 0.75, -0.5, 1.0]}]}
    assert compare(tanh(), tanh(**points)).message == (
        "the outputs differ in shape between mode mode0 and mode eager."
    )


def large(*gradient):
    """A tanh whose Jacobian is taken to be too large where the method is "probe"."""
    value = np.linspace(-1, 1, 80)
    return tanh(*gradient, points=[{"x": value}, {"x": value / 2}])


@pytest.mark.parametrize("method", ["auto", "probe"])
def test_none_and_zeros_are_no_difference(method):
    # Eagerly, the branch that isn't taken leaves no trace; in a graph, it gets zeros.
    flat = [large(lambda _u, x: np.zeros_like(x)), large(lambda _u, _x: (None,))]
    for one, other in (flat, flat[::-1]):
        assert compare(one, other, method=method).status is Status.PASSED
