"""Bounds so wide that they test nothing, by default or as a spec states them, and wide ones that do."""

from __future__ import annotations

import itertools

import tensorflow as tf

from tests.support.row import Row, marked


def _scaled(factor):
    """Return the gradient of `_far` that is off by a factor."""
    return lambda op, upstream: factor * upstream * tf.cos(op.inputs[0])


def _by(*factors):
    """Return a gradient that is the upstream times numbers."""
    return lambda _op, u: u * tf.constant(factors, u.dtype)


def _far(x):
    return 1 + tf.sin(x)


def _of_defaults():
    for factor, x in itertools.product((1.5, 0.0, 2.0, -1.0, 1.0), (1e-14, 3e-14, 1e-13)):
        if x == 1e-13 and factor not in {1.5, 1.0}:
            continue
        truth, inputs = "undecidable" if factor == 1.0 else "not green", {"x": {"value": x, "shape": [1]}}
        yield Row(f"far_from_one_{x:g}_{factor:g}", _far, _scaled(factor), inputs, truth)
    half_as_much_again = lambda op, u: u * tf.where(op.inputs[0] < 0.5, 1.5, 1.0) * tf.cos(op.inputs[0])  # noqa: E731
    inputs = {"x": {"value": [1e-14, 2e-14, 1.0], "shape": [3]}}
    yield Row("two_of_three_elements", _far, half_as_much_again, inputs, "not green")
    inputs = {"x": {"value": [1.0, 1.0, 1.0, 1e13], "shape": [4]}}
    yield Row("small_ones_beside_a_huge_one", tf.reduce_sum, _by(1.5, 1.0, 1.0, 1.0), inputs, "not green")
    inputs = {"x": {"shape": [2]}}
    yield Row("a_huge_constant", lambda x: 1e16 + 3 * x, lambda _op, u: 5 * u, inputs, "not green")


def _of_rights():
    """Right, and tested well enough: no tiny element makes the pair inconclusive."""
    for name, value, forward in (
        ("softmax_tails", [0.0, 40.0, 39.0, -30.0], tf.nn.softmax),
        ("logsumexp_tail", [0.0, 45.0, 44.0], tf.reduce_logsumexp),
        ("saturated_sigmoid", [0.5, 36.0, -40.0], tf.sigmoid),
        ("saturated_tanh", [0.3, 18.0], tf.tanh),
        ("decades", [1e-8, 1e-4, 1.0, 1e4], lambda x: x * x),
        ("sum_of_decades", [1e-3, 1.0, 1e3], tf.reduce_sum),
        ("near_one", [0.1, 0.2], _far),
        ("tiny_and_usual", [1e-14, 0.5, 0.7], _far),
        ("zero_slope_beside_others", [0.0, 1.0, 2.0], lambda x: x * x),
        ("tiny_throughout", [1e-12, 2e-12], tf.sin),
        ("tiny_slopes", [0.3, 0.4], lambda x: 1e-12 * tf.sin(x)),
        ("huge_slopes", [0.3, 0.4], lambda x: 1e12 * tf.sin(x)),
        ("cubes_near_zero", [1e-3, 1.0], lambda x: x**3),
        ("gaussian_tail", [0.5, 6.0], lambda x: tf.exp(-x * x)),
        ("relu_beside_zero", [-1.0, 0.0, 2.0], tf.nn.relu),
        ("sum_of_softmax", [0.1, 0.7, -0.4, 0.3], lambda x: tf.reduce_sum(tf.nn.softmax(x))),
    ):
        inputs = {"x": {"value": value, "shape": [len(value)]}}
        keys = {"dtypes": ["float64", "float32"]} if name in {"softmax_tails", "decades", "near_one"} else {}
        yield Row(name, forward, None, inputs, "right", keys=keys)


def _of_tolerances():
    """`_far` at ordinary points, with a tolerance of the spec's own; the truth is at most 1."""
    inputs = {"x": {"value": [0.1, 0.5], "shape": [2]}}
    for name, tolerance, factor, truth in (
        ("atol_of_a_billion", {"atol": 1e9}, 1.5, "not green"),
        ("atol_of_a_billion_right", {"atol": 1e9}, 1.0, "unchecked"),
        ("atol_of_one", {"atol": 1.0}, 0.0, "not green"),
        ("atol_of_two", {"atol": 2.0}, -1.0, "not green"),
        ("rtol_of_one", {"rtol": 1.0}, 1.5, "not green"),
        ("rtol_of_half", {"rtol": 0.5}, 2.0, "not green"),
        ("rtol_of_two", {"rtol": 2.0}, -1.0, "not green"),
        ("both", {"rtol": 0.3, "atol": 0.8}, 0.0, "not green"),
        ("rtol_of_a_tenth", {"rtol": 0.1}, 1.05, "right"),
        ("atol_of_a_tenth", {"atol": 0.1}, 1.05, "right"),
        ("atol_of_a_tenth_wrong", {"atol": 0.1}, 1.5, "wrong"),
        ("rtol_of_a_fifth_wrong", {"rtol": 0.2}, 1.5, "wrong"),
        ("atol_of_zero", {"atol": 0.0}, 1.0, "right"),
    ):
        yield Row(name, _far, _scaled(factor), inputs, truth, keys={"tolerance": tolerance})
        if tolerance:
            keys = {"pairs": {"dy/dx": tolerance}}
            yield Row(f"{name}_of_the_pair", _far, _scaled(factor), inputs, truth, keys=keys)
    keys, weights = {"tolerance": {"atol": 0.25}}, [1.0, 0.2]
    row, whole = lambda x: x * tf.constant(weights, x.dtype), lambda x: tf.reduce_sum(row(x))
    yield Row("a_row_below_atol", row, _by(1.0, 0.0), inputs, "not green", keys=keys)
    yield Row("an_input_below_atol", whole, _by(1.0, 0.4), inputs, "not green", keys=keys)
    yield Row(
        "none_below_atol",
        lambda x, y: x * x + 0.1 * y,
        lambda op, u: (2 * u * op.inputs[0], None),
        {"x": {"value": 0.5, "shape": []}, "y": {"value": 0.2, "shape": []}},
        "not green",
        keys={"tolerance": {"atol": 0.3}},
    )


def _beside_a_larger_value():
    """A slope that is lost beside its own row's value, in an output with a far larger value elsewhere."""
    for large, factor in itertools.product((1e12, 1e20), (-1.0, 2.0, 1.0)):

        @tf.custom_gradient
        def op(x, large=large, factor=factor):
            value = tf.stack([large + 0 * x, 1e5 + 1e-9 * x])
            return value, lambda u: factor * 1e-9 * u[1]

        truth = "undecidable" if factor == 1.0 else "not green"
        yield Row(f"beside_{large:g}_{factor:g}", op, None, {"x": {"value": 0.7, "shape": []}}, truth)


ROWS = marked((*_of_defaults(), *_of_rights(), *_of_tolerances(), *_beside_a_larger_value()))
