"""Gradients that are zero at the points that the spec states, and may be wrong or right beside them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.row import Row, marked


def own(forward: Any, gradient: Any) -> Any:
    """Return a function with a gradient of its own."""

    @tf.custom_gradient
    def function(*inputs: Any) -> Any:
        return forward(*inputs), lambda upstream: gradient(upstream, *inputs)

    return function


def at(*values: float, dtype: str = "float64") -> dict[str, Any]:
    """Return an input with these values."""
    return {"shape": [len(values)], "value": list(values), "dtype": dtype}


ZEROS, SAME = at(0.0, 0.0), at(1.5, -0.7)
DTYPES = ("float32", "bfloat16", "float16", "complex128")
RIGHT = {
    "squares": (lambda x, y: x * x - y * y, {"x": ZEROS, "y": ZEROS}),
    "squares-times": (lambda x, y, t: (x * x - y * y) * t * t, {"x": SAME, "y": SAME, "t": at(0.3, 2.0)}),
    "squares-times-zero": (lambda x, y, t: (x * x - y * y) * t + t, {"x": SAME, "y": SAME, "t": ZEROS}),
    "distance": (lambda x, y, t: tf.square(x - y) * t, {"x": SAME, "y": SAME, "t": at(0.3, 2.0)}),
    "product": (lambda x, y: x * y, {"x": ZEROS, "y": ZEROS}),
    "cosine": (tf.cos, {"x": ZEROS}),
    "cosine-beside": (lambda x, t: tf.cos(x) * t, {"x": ZEROS, "t": at(1.0, 2.0)}),
    "cube": (lambda x: x**3, {"x": ZEROS}),
    "one-of-two-is-drawn": (lambda x, y: tf.cos(x) * y, {"x": ZEROS, "y": {"shape": [2]}}),
    "in-its-domain": (tf.cos, {"x": {**ZEROS, "domain": {"low": 0}}}),
    "own": (own(tf.cos, lambda u, x: -u * tf.sin(x)), {"x": ZEROS}),
    "power": (lambda x: x**4 - 2 * x**2, {"x": at(1.0, -1.0)}),
}
# Their gradients are zero at the point, as the function's slope is, and wrong beside.
WRONG = {
    "always-zero": (own(tf.cos, lambda u, _: tf.zeros_like(u)), {"x": ZEROS}),
    "other-sign": (own(tf.cos, lambda u, x: u * tf.sin(x)), {"x": ZEROS}),
    "half": (own(tf.cos, lambda u, x: -0.5 * u * tf.sin(x)), {"x": ZEROS}),
    "one-per-cent": (own(tf.cos, lambda u, x: -1.01 * u * tf.sin(x)), {"x": ZEROS}),
    "one-element": (
        own(tf.cos, lambda u, x: -u * tf.sin(x) * tf.constant([1.0, 1.1], x.dtype)),
        {"x": ZEROS},
    ),
    "swapped": (own(lambda x, y: x * y, lambda u, x, y: (u * x, u * y)), {"x": ZEROS, "y": ZEROS}),
    "one-input": (own(lambda x, y: x * y, lambda u, x, y: (u * y, 1.1 * u * x)), {"x": ZEROS, "y": ZEROS}),
    "square-without-two": (own(lambda x: x**2, lambda u, x: u * x), {"x": ZEROS}),
    "cube-without-three": (own(lambda x: x**3, lambda u, x: u * x * x), {"x": ZEROS}),
    "distance-unsigned": (
        own(lambda x, y: tf.square(x - y), lambda u, x, y: (2 * u * (x - y), 2 * u * (x - y))),
        {"x": SAME, "y": SAME},
    ),
    "a-term-left-out": (
        own(lambda x, y: x * x * y, lambda u, x, y: (2 * u * x, u * x * x)),
        {"x": ZEROS, "y": at(1.5, 2.0)},
    ),
    "power": (own(lambda x: x**4 - 2 * x**2, lambda u, x: u * (x**3 - x)), {"x": at(1.0, -1.0)}),
}
EQUAL = at(0.0, 0.0, 0.0)  # the divergence is 0 but for rounding


def divergence(share: float) -> Any:
    """Return the divergence of two softmaxes, whose gradient leaves out a share of the sum over the first."""

    @tf.custom_gradient
    def function(first: Any, second: Any) -> Any:
        apart = tf.nn.log_softmax(first) - tf.nn.log_softmax(second)
        p, q = tf.nn.softmax(first), tf.nn.softmax(second)
        total = tf.reduce_sum(p * apart)
        return total, lambda u: (u * p * (apart - (1 - share) * total), u * (q - p))

    return function


# Nothing beside has a slope either, or nothing may move.
UNTESTED = {
    "dead": (tf.nn.relu, {"x": at(-1.0, -2.0)}),
    "steps": (tf.round, {"x": at(1.2, 2.3)}),
    "far-branch": (lambda x: tf.where(x > 100, x, x * 0 + 1), {"x": at(1.2, 2.3)}),
    "saturated": (tf.tanh, {"x": at(-40.0, 50.0)}),
    "no-room": (tf.cos, {"x": {**ZEROS, "domain": {"low": 0, "high": 1e-9}}}),
    "refused": (
        lambda x: tf.cos(tf.ensure_shape(x[: 2 * tf.cast(tf.reduce_max(abs(x)) < 0.01, tf.int32)], [2])),
        {"x": ZEROS},
    ),
}


def rezero(side: int) -> Any:
    """Return x + a sin(x), whose weight a is 0 and whose gradient of it is 1.5 times too large on a side."""
    weight = tf.Variable(0.0, dtype=tf.float64)

    @tf.custom_gradient
    def function(x: Any, a: Any) -> Any:
        def grad(upstream: Any) -> Any:
            of_a = tf.reduce_sum(upstream * tf.sin(x))
            return upstream * (1 + a * tf.cos(x)), tf.where(side * a > 0, 1.5 * of_a, of_a)

        return x + a * tf.sin(x), grad

    return lambda x: function(x, weight)


def gated(x: Any, gate: Any) -> Any:
    """Weigh two matrices; where the gate is zero, so is its own second derivative, but for rounding."""
    chosen = tf.constant([[[0.3, -1.2], [0.7, 0.4]], [[-0.9, 0.1], [1.3, 0.8]]], tf.float64)
    return tf.einsum("be,eij,bi->bj", tf.nn.softmax(x @ gate), chosen, x)


def less_half(factor: float) -> Any:
    """Return softplus(x w) / 2 - x w / 4; its own slope has another slope, where the factor isn't 1."""
    slope = own(
        lambda z: 0.5 * tf.sigmoid(z) - 0.25,
        lambda u, z: u * factor * 0.5 * tf.sigmoid(z) * tf.sigmoid(-z),
    )

    def gradient(upstream: Any, x: Any, w: Any) -> Any:
        pulled = upstream * slope(x @ w)
        return pulled @ tf.transpose(w), tf.transpose(x) @ pulled

    return own(lambda x, w: 0.5 * tf.nn.softplus(x @ w) - 0.25 * (x @ w), gradient)


def zero_to_rounding() -> Any:
    twice = {"second_order": True}
    points = {"x": {"shape": [4, 2]}}
    for seed in range(4):
        gate = {**points, "gate": {"value": [[0.0, 0.0], [0.0, 0.0]]}}
        yield Row(f"gate-{seed}", gated, None, gate, "right", keys={**twice, "seed": seed})
    for truth, factor in (("right", 1.0), ("wrong", 1.2)):
        weight = {**points, "w": {"value": [[0.0], [0.0]]}}
        yield Row(f"less-half-{truth}", less_half(factor), None, weight, truth, keys=twice)


def rows() -> Any:
    for side, name in ((1, "above"), (-1, "below")):
        for kind, values in (("stated", at(0.3, 1.1)), ("drawn", {"shape": [3]})):
            label = f"weight-{name}-zero-{kind}"
            yield Row(label, rezero(side), None, {"x": values}, "wrong", keys={"variables": True})
    yield Row("weight-zero", rezero(0), None, {"x": at(0.3, 1.1)}, "right", keys={"variables": True})
    for truth, table in (("right", RIGHT), ("not green", WRONG), ("unchecked", UNTESTED)):
        for name, (forward, inputs) in table.items():
            yield Row(f"{name}-{truth.replace(' ', '_')}", forward, None, inputs, truth)
    for truth, share in (("right", 0.0), ("wrong", 1.0)):
        inputs = {"first": EQUAL, "second": EQUAL}
        yield Row(f"divergence-{truth}", divergence(share), None, inputs, truth)
    for dtype in DTYPES:
        for truth, factor in (("right", 1.0), ("not green", 1.2)):
            forward = own(lambda x: x * x, lambda u, x, c=factor: u * 2 * c * tf.math.conj(x))
            name = f"{dtype}-{truth.replace(' ', '_')}"
            yield Row(name, forward, None, {"x": at(0.0, 0.0, dtype=dtype)}, truth)
    for mode in ("dynamic", "eager", "xla"):
        for truth, factor in (("right", 1.0), ("not green", 0.9)):
            forward = own(tf.cos, lambda u, x, c=factor: -u * c * tf.sin(x))
            name = f"{mode}-{truth.replace(' ', '_')}"
            yield Row(name, forward, None, {"x": ZEROS}, truth, keys={"modes": [mode]})
    yield Row("second-order", lambda x: x**3, None, {"x": ZEROS}, "right", keys={"second_order": True})
    expected = {"pairs": {"dy/dx": {"expect": "zero"}}}
    yield Row("expected", tf.cos, None, {"x": ZEROS}, "right", keys=expected)
    yield Row("expected-wrongly", tf.cos, None, {"x": at(0.5, 1.0)}, "wrong", keys=expected)


ROWS = marked(
    (*rows(), *zero_to_rounding()),
    "complex128-not_green",
    "dead-unchecked",
    "divergence-wrong",
    "expected",
    "expected-wrongly",
    "less-half-right",
    "refused-unchecked",
    "weight-above-zero-stated",
)
