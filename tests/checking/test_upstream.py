from __future__ import annotations

import itertools

import numpy as np
import pytest

from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import PairRule
from tests.support.numpy_op import FIRST, Numpy, check, product, tanh


def slope(x):
    return 1 - np.tanh(x) ** 2


def checks(op, **changes):
    return {found.name: found for found in check(op, **changes).checks}


def failing(op, **changes):
    return {name for name, found in checks(op, **changes).items() if found.status is Status.MISMATCHED}


NOT_LINEAR = {
    "ignored": lambda u, x: slope(x) + 0 * u,
    "squared": lambda u, x: slope(x) * u * u,
    "absolute": lambda u, x: slope(x) * np.abs(u),
    "clipped": lambda u, x: slope(x) * np.clip(u, -1, 1),
    "clipped far out": lambda u, x: slope(x) * np.clip(u, -100, 100),
    "norm clipped": lambda u, x: slope(x) * u / max(1.0, float(np.linalg.norm(u))),
    "replaced by ones": lambda u, x: slope(x) * np.ones_like(u),
    "replaced by its sign": lambda u, x: slope(x) * np.sign(u),
    "rounded": lambda u, x: slope(x) * np.round(u),
    "small ones dropped": lambda u, x: slope(x) * np.where(np.abs(u) < 0.01, 0, u),
    "constant added": lambda u, x: slope(x) * u + 1e-3,
    "normalised": lambda u, x: slope(x) * u / (np.linalg.norm(u) or 1.0),
}


@pytest.mark.parametrize("gradient", NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_a_gradient_that_is_not_linear_in_the_upstream_is_found(gradient):
    assert "linearity" in failing(tanh(gradient))


@pytest.mark.parametrize("gradient", NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_and_for_a_scalar_too(gradient):
    # Under a single upstream of one, most of these are right.
    assert "linearity" in failing(tanh(gradient, points={"x": 0.5}))


@pytest.mark.parametrize("name", ["absolute", "clipped", "clipped far out", "squared"])
def test_a_jacobian_of_one_hot_upstreams_shows_none_of_it(name):
    (pair,) = check(tanh(NOT_LINEAR[name])).pairs
    assert pair.status is Status.PASSED


def test_what_linearity_says():
    found = checks(tanh(NOT_LINEAR["clipped"], points={"x": 0.5}))["linearity"]
    # An upstream of some hundreds is clipped to 1.
    assert found.message.startswith("dy/dx isn't linear in the upstream: for a random upstream of size ")
    assert "e+02 element 0 is " in found.message
    assert found.message.endswith("is the upstream clipped, squared, replaced or ignored?")


def test_what_linearity_says_of_an_upstream_that_is_rounded_to_fewer_bits():
    def cast(u, x):
        with np.errstate(over="ignore"):  # of upstreams of 1e12
            return slope(x) * u.astype(np.float16).astype(u.dtype)

    def split(u, x):  # after Veltkamp; the range stays float32's, as TF32's does
        large = u * np.float32(2**13 + 1)
        return slope(x) * (large - (large - u))

    for use in (cast, split):
        found = checks(tanh(use, dtypes={"x": "float32"}))["linearity"]
        assert found.status is Status.MISMATCHED
        words = "dy/dx rounds its upstream to 11 bits, as float16 and TF32 have: element "
        assert found.message.startswith(words)


def test_what_drops_small_upstreams_is_in_doubt_only_below_what_a_solver_leaves():
    below = {
        limit: checks(
            tanh(
                lambda u, x, limit=limit: slope(x) * np.where(np.abs(u) < limit, 0, u),
                dtypes={"x": "float32"},
            )
        )["linearity"].status
        for limit in (1e-6, 1e-4)
    }
    assert below == {1e-6: Status.INCONCLUSIVE, 1e-4: Status.MISMATCHED}


RIGHT = {
    "float64": tanh(),
    "float32": tanh(dtypes={"x": "float32"}),
    "float16": tanh(dtypes={"x": "float16"}),
    "bfloat16": tanh(dtypes={"x": "bfloat16"}),
    "complex": product(points={"a": np.array([1 + 2j, 3j]), "b": np.array([2.0 - 1j, -0.5])}),
    "wide range": Numpy(lambda x: x**3, lambda u, x: 3 * x**2 * u, {"x": [1e-6, 1.0, 1e6]}),
    "cancelling": Numpy(
        lambda x: np.exp(x) / np.sum(np.exp(x)),
        lambda u, x: (s := np.exp(x) / np.sum(np.exp(x))) * (u - np.sum(u * s)),
        {"x": np.linspace(-3, 3, 20)},
        dtypes={"x": "float32"},
    ),
    "long sum": Numpy(
        np.sum,
        lambda u, x: u * np.ones_like(x),
        {"x": np.linspace(-1, 1, 500)},
        dtypes={"x": "float32"},
    ),
}


@pytest.mark.parametrize("op", RIGHT.values(), ids=RIGHT)
def test_right_gradients_are_left_alone(op):
    assert failing(op) == set()


def test_zero_for_zero():
    op = tanh(lambda u, x: slope(x) * u + 1e-9 * (u == 0).all())
    found = checks(op)["zero_upstream"]
    assert found.status is Status.MISMATCHED
    assert found.message == "dy/dx isn't zero for a zero upstream: element 0 is 1.000000e-09."


def rows_of(count):
    """A function whose output has as many rows as `count`, none for 0: x doubled `count` times over."""
    return lambda x: np.tile(2 * x, (count, 1))


def test_what_has_no_elements_gives_exact_zeros():
    def right(upstream, _):
        return 2 * upstream.sum(axis=0)

    found = checks(Numpy(rows_of(0), right, {"x": [1.0, 2.0]}))["zero_upstream"]
    assert found.status is Status.PASSED


def test_a_gradient_of_nothing_that_is_not_zero_is_found():
    left = itertools.cycle([0.0, 0.0, 0.0, 1234.5])  # memory is zero more often than not

    def unwritten(upstream, _):
        return 2 * upstream.sum(axis=0) + next(left)

    found = checks(Numpy(rows_of(0), unwritten, {"x": [1.0, 2.0]}))["zero_upstream"]
    assert found.status is Status.MISMATCHED
    assert found.message == (
        "dy/dx isn't zero, though y has no elements: element 0 is 1.234500e+03; is its memory left unwritten?"
    )
    off = check(Numpy(rows_of(0), lambda _, x: x, {"x": [1.0, 2.0]}), checks_off=frozenset({"zero_upstream"}))
    assert "zero_upstream" not in {one.name for one in off.checks}


def test_zero_times_infinity_is_the_pairs_own_fault():
    op = tanh(lambda u, x: u * np.where(x > 0, np.inf, slope(x)))
    with np.errstate(invalid="ignore"):
        assert "zero_upstream" not in failing(op)


def test_a_gradient_that_counts_its_calls_differs_when_it_is_repeated():
    calls = []

    def drifting(u, x):
        calls.append(1)
        return slope(x) * u * (1 + 1e-6 * len(calls))

    found = checks(tanh(drifting))["repeat"]
    assert found.status is Status.MISMATCHED
    assert found.message.startswith("dy/dx differs when it is run again: element ")
    assert found.message.endswith("does the gradient draw random numbers, or keep state?")


def test_a_random_upstream_differs_when_it_is_repeated():
    generator = np.random.default_rng(0)
    assert "repeat" in failing(tanh(lambda u, x: slope(x) * u * generator.uniform(0.99, 1.01)))


class RetracedOtherwise(Numpy):
    """Its gradient is right in each trace, and another one in each: a draw at trace time."""

    def operation(self, opening=FIRST):
        factor = 1 + 1e-3 * len(self.opened)
        self.gradients = (lambda u, x: factor * slope(x) * u,)
        return super().operation(opening)


def test_a_gradient_that_differs_from_trace_to_trace_is_found():
    op = RetracedOtherwise(np.tanh, lambda u, x: slope(x) * u, {"x": [0.5, -1.0]})
    found = checks(op)
    assert found["repeat"].status is Status.PASSED
    assert found["retrace"].status is Status.MISMATCHED
    assert found["retrace"].message.startswith("dy/dx differs when it is traced again: element ")


class NoneAtTimes(Numpy):
    """Its gradient is None in every trace but the first, which is opened at two points."""

    def operation(self, opening=FIRST):
        if len(self.opened) >= 2:
            self.gradients = (lambda *_: None,)
        return super().operation(opening)


def test_a_gradient_that_is_none_at_times_is_found():
    found = checks(NoneAtTimes(np.tanh, lambda u, x: slope(x) * u, {"x": [0.5, -1.0]}))["retrace"]
    assert found.status is Status.MISMATCHED
    assert found.message == "dy/dx is None at times: it differs when it is traced again."


def two_outputs(joint=None):
    return Numpy(
        lambda a, b: (a + b, a * b),
        [lambda u, *_: (u, u), lambda u, a, b: (u * b, u * a)],
        {"a": [2.0, 3.0], "b": [0.5, 4.0]},
        outputs=("s", "p"),
        facts={"joint": joint},
    )


def test_outputs_that_share_a_gradient_must_add_up():
    assert failing(two_outputs()) == set()
    mixed = two_outputs(
        lambda flows, a, b: [flows[0] + flows[1] * b + flows[0] * flows[1], flows[0] + flows[1] * a]
    )
    found = checks(mixed)["linearity"]
    assert found.status is Status.MISMATCHED
    assert found.message.startswith(
        "the gradient for a isn't the sum of what each output's upstream gives alone: "
    )
    assert found.message.endswith("does the gradient mix the outputs' upstreams?")


def test_an_input_of_which_every_pair_is_expected_to_be_wrong_is_left_out():
    """Nothing is known then of the sizes by which it is judged, and nothing is wanted to be."""
    wrong = two_outputs()
    wrong.gradients = [lambda u, *_: (2 * u, u), lambda u, a, b: (3 * u * b, u * a)]
    found = check(wrong, pairs=(PairRule("d?/da", "mismatch"),))
    assert [pair.status for pair in found.pairs] == [
        Status.EXPECTED_MISMATCH,
        Status.PASSED,
        Status.EXPECTED_MISMATCH,
        Status.PASSED,
    ]
    assert {one.status for one in found.checks} == {Status.PASSED}


@pytest.mark.parametrize("expect", ["mismatch", "skip"])
def test_an_input_whose_pairs_are_all_excused_needs_not_add_up(expect):
    wrong = Numpy(
        lambda a, b: (a + b, a * b),
        [lambda u, *_: (u, 2 * u), lambda u, a, b: (u * b, 2 * u * a)],
        {"a": [2.0, 3.0], "b": [0.5, 4.0]},
        outputs=("s", "p"),
    )
    found = check(wrong, pairs=(PairRule("*/db", expect),))
    linearity = next(one for one in found.checks if one.name == "linearity")
    assert linearity.status is Status.PASSED


def test_a_fault_in_one_output_is_named():
    op = Numpy(
        lambda x: (2 * x, 3 * x),
        [lambda u, _: 2 * u, lambda u, _: 3 * np.clip(u, -1, 1)],
        {"x": [1.0, 2.0]},
        outputs=("a", "b"),
    )
    assert checks(op)["linearity"].message.startswith("db/dx isn't linear")


def test_checks_that_can_be_turned_off_are_not_made():
    off = ("batched", "linearity", "zero_upstream", "repeat", "retrace", "all_zero")
    left = checks(tanh(NOT_LINEAR["ignored"]), checks_off=off)
    assert set(left) == {"form", "finite", "connected", "second_point"}
