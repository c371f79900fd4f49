"""What is said of gradients that use their upstream wrongly; rows `linearity` say which are found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import PairRule
from tests.support.numpy_op import FIRST, Numpy, check, tanh


def slope(x):
    return 1 - np.tanh(x) ** 2


def checks(op, **changes):
    return {found.name: found for found in check(op, **changes).checks}


def cast(u, x):
    with np.errstate(over="ignore"):  # of upstreams of 1e12
        return slope(x) * u.astype(np.float16).astype(u.dtype)


def split(u, x):  # after Veltkamp; the range stays float32's, as TF32's does
    large = u * np.float32(2**13 + 1)
    return slope(x) * (large - (large - u))


def drifting():
    calls = []

    def gradient(u, x):
        calls.append(1)
        return slope(x) * u * (1 + 1e-6 * len(calls))

    return tanh(gradient)


class InEachTrace(Numpy):
    """Its gradient is the one that `factor` makes of the number of traces before."""

    factor = None

    def operation(self, opening=FIRST):
        factor = self.factor(len(self.opened))
        self.gradients = (lambda u, x: None if factor is None else factor * slope(x) * u,)
        return super().operation(opening)


class RetracedOtherwise(InEachTrace):
    factor = staticmethod(lambda traces: 1 + 1e-3 * traces)


class NoneAtTimes(InEachTrace):
    factor = staticmethod(lambda traces: None if traces >= 2 else 1.0)  # it is opened at two points


def two_outputs(*gradients, joint=None):
    gradients = gradients or (lambda u, *_: (u, u), lambda u, a, b: (u * b, u * a))
    points = {"a": [2.0, 3.0], "b": [0.5, 4.0]}
    return Numpy(lambda a, b: (a + b, a * b), gradients, points, outputs=("s", "p"), facts={"joint": joint})


def mixed(flows, a, b):
    return [flows[0] + flows[1] * b + flows[0] * flows[1], flows[0] + flows[1] * a]


def of_no_rows(gradient):
    """An op whose output has no elements, so that its gradient is zero."""
    return Numpy(lambda x: np.tile(2 * x, (0, 1)), gradient, {"x": [1.0, 2.0]})


LEFT = itertools.cycle([0.0, 0.0, 0.0, 1234.5])  # in memory, which is zero more often than not
ROUNDED = "dy/dx rounds its upstream to 11 bits, as float16 and TF32 have: element "
RETRACED = {"forward": np.tanh, "gradients": None, "points": {"x": [0.5, -1.0]}}
SAID = {
    "clipped": (  # an upstream of some hundreds is clipped to 1
        tanh(lambda u, x: slope(x) * np.clip(u, -1, 1), points={"x": 0.5}),
        "linearity",
        "dy/dx isn't linear in the upstream: for a random upstream of size ",
        "is the upstream clipped, squared, replaced or ignored?",
    ),
    "cast": (tanh(cast, dtypes={"x": "float32"}), "linearity", ROUNDED, ""),
    "split": (tanh(split, dtypes={"x": "float32"}), "linearity", ROUNDED, ""),
    "one of two outputs": (
        two_outputs(lambda u, *_: (u, u), lambda u, a, b: (u * b, np.clip(u, -1, 1) * a)),
        "linearity",
        "dp/db isn't linear",
        "",
    ),
    "mixed": (
        two_outputs(joint=mixed),
        "linearity",
        "the gradient for a isn't the sum of what each output's upstream gives alone: ",
        "does the gradient mix the outputs' upstreams?",
    ),
    "more than zero": (
        tanh(lambda u, x: slope(x) * u + 1e-9 * (u == 0).all()),
        "zero_upstream",
        "dy/dx isn't zero for a zero upstream: element 0 is 1.000000e-09.",
        "",
    ),
    "unwritten": (
        of_no_rows(lambda upstream, _: 2 * upstream.sum(axis=0) + next(LEFT)),
        "zero_upstream",
        "dy/dx isn't zero, though y has no elements: element 0 is 1.234500e+03;",
        "is its memory left unwritten?",
    ),
    "drifting": (
        drifting(),
        "repeat",
        "dy/dx differs when it is run again: element ",
        "does the gradient draw random numbers, or keep state?",
    ),
    "retraced": (
        RetracedOtherwise(**RETRACED),
        "retrace",
        "dy/dx differs when it is traced again: element ",
        "",
    ),
    "None at times": (
        NoneAtTimes(**RETRACED),
        "retrace",
        "dy/dx is None at times: it differs when it is traced again.",
        "",
    ),
}


@pytest.mark.parametrize(("op", "name", "start", "end"), SAID.values(), ids=SAID)
def test_what_is_said_of_an_upstream_that_is_used_wrongly(op, name, start, end):
    found = checks(op)
    assert found[name].status is Status.MISMATCHED
    assert found[name].message.startswith(start)
    assert found[name].message.endswith(end)


def test_what_has_no_elements_gives_exact_zeros():
    op = of_no_rows(lambda upstream, _: 2 * upstream.sum(axis=0))
    assert checks(op)["zero_upstream"].status is Status.PASSED
    off = checks(op, checks_off=frozenset({"zero_upstream"}))
    assert "zero_upstream" not in off


def test_zero_times_infinity_is_the_pairs_own_fault():
    op = tanh(lambda u, x: u * np.where(x > 0, np.inf, slope(x)))
    with np.errstate(invalid="ignore"):
        assert checks(op)["zero_upstream"].status is not Status.MISMATCHED


def test_an_input_of_which_every_pair_is_expected_to_be_wrong_is_left_out():
    """Nothing is known then of the sizes by which it is judged, and nothing is wanted to be."""
    wrong = two_outputs(lambda u, *_: (2 * u, u), lambda u, a, b: (3 * u * b, u * a))
    found = check(wrong, pairs=(PairRule("d?/da", "mismatch"),))
    assert [pair.status for pair in found.pairs] == [Status.EXPECTED_MISMATCH, Status.PASSED] * 2
    assert {one.status for one in found.checks} == {Status.PASSED}


def test_checks_that_can_be_turned_off_are_not_made():
    off = ("batched", "linearity", "zero_upstream", "repeat", "retrace", "all_zero")
    assert set(checks(tanh(), checks_off=off)) == {"form", "finite", "connected", "second_point"}
