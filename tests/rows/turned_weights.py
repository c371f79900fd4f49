"""Gradients that are wrong for weights of another sign, size or order: a question, or the spec says.

And gradients for weights and stated values that are wrong where another input is special, or large, or an
index that draws hardly meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tests.rows.stuck import own, slipping
from tests.support.row import Row, marked

Forward = Callable[..., Any]
X = {"shape": [4, 3]}
ONES = np.ones(3)


def _parametric_relu(x: Any, alpha: Any) -> Any:
    return tf.where(x > 0, x, alpha * x)


def _by_output(upstream: Any, x: Any, alpha: Any) -> tuple[Any, Any]:
    """Read the side from the output, as what works in place does: it has the input's sign if alpha > 0."""
    is_above = _parametric_relu(x, alpha) > 0
    by_alpha = tf.reduce_sum(tf.where(x > 0, tf.zeros_like(x), upstream * x), 0)
    return tf.where(is_above, upstream, alpha * upstream), by_alpha


def _norm(x: Any, scale: Any) -> Any:
    return tf.norm(scale * x, axis=-1)


def _norm_of_positive(upstream: Any, x: Any, scale: Any) -> tuple[Any, Any]:
    norm = tf.norm(x, axis=-1)
    return upstream[:, None] * scale * x / norm[:, None], tf.reduce_sum(upstream * norm)


def _normalise(x: Any, variance: Any, gamma: Any) -> Any:
    return tf.tanh(gamma * x * tf.math.rsqrt(variance))


def _settle(x: Any, rate: Any) -> Any:
    state = tf.zeros_like(x)
    for _ in range(40):
        state = tf.tanh(rate * state + x)
    return state


def _settle_back(upstream: Any, x: Any, rate: Any) -> tuple[Any, Any]:
    state = _settle(x, rate)
    slope = upstream * (1 - state**2) / (1 - rate * (1 - state**2))
    return slope, tf.reduce_sum(slope * state)


def _log_density(x: Any, scale: Any) -> Any:
    return -tf.math.log(scale) - tf.square(x / scale) / 2


def _means_of(factor: float) -> Forward:
    """Means of the rows that masks leave, with a gradient times a factor; one isn't finite without any."""

    def shares(x: Any, masks: Any) -> Any:
        is_left = tf.cast(masks, x.dtype)
        return is_left / tf.reduce_sum(is_left, 1, keepdims=True)

    def gradient(upstream: Any, x: Any, scale: Any, masks: Any) -> tuple[Any, Any, None]:
        by_scale = tf.reduce_sum(upstream * (shares(x, masks) @ x), 0)
        return factor * scale * tf.matmul(shares(x, masks), upstream, transpose_a=True), by_scale, None

    return own(lambda x, scale, masks: scale * (shares(x, masks) @ x), gradient)


def _clipped(x: Any, w: Any) -> Any:
    return x @ (w / tf.maximum(tf.norm(w) / 3, 1.0))


def _clipped_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    norm = tf.norm(w)
    by_clipped = tf.matmul(x, upstream, transpose_a=True)
    along = w * tf.reduce_sum(by_clipped * w) / norm**2
    is_clipped = norm > 3
    by_w = tf.where(is_clipped, 3 / norm * (by_clipped - along), by_clipped)
    return tf.matmul(upstream, w / tf.maximum(norm / 3, 1.0), transpose_b=True), by_w


def _clipped_once(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Forget that the weights are clipped."""
    by_x, _ = _clipped_back(upstream, x, w)
    return by_x, tf.matmul(x, upstream, transpose_a=True)


def _times(x: Any, w: Any) -> Any:
    return w * x


def _times_back(most: float, upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Let `w` feel no more of an input than so much."""
    return w * upstream, tf.reduce_sum(upstream * tf.minimum(x, most), 0)


def _residual(x: Any, gate: Any) -> Any:
    return x + gate * tf.tanh(2 * x)


def _residual_back(most: float, upstream: Any, x: Any, gate: Any) -> tuple[Any, Any]:
    """Let the slope of a branch that is gated saturate where an input is so large."""
    slope = 1 - tf.tanh(2 * tf.minimum(x, most)) ** 2
    return upstream * (1 + 2 * gate * slope), tf.reduce_sum(upstream * tf.tanh(2 * x), 0)


def _look_up(ids: Any, table: Any) -> Any:
    return tf.gather(table, ids)


def _look_up_back(mistake: str, upstream: Any, ids: Any, table: Any) -> tuple[None, Any]:
    flat, flow = tf.reshape(ids, [-1]), tf.reshape(upstream, [-1, table.shape[1]])
    if mistake == "padding":
        flow *= tf.cast(flat != 0, flow.dtype)[:, None]
    if mistake == "last":
        flow *= tf.cast(flat != table.shape[0] - 1, flow.dtype)[:, None]
    put = tf.tensor_scatter_nd_update if mistake == "repeated" else tf.tensor_scatter_nd_add
    return None, put(tf.zeros_like(table), flat[:, None], flow)


GATED, NEVER_SATURATED = (own(_residual, partial(_residual_back, most)) for most in (1.2, np.inf))
CAPPED, UNCAPPED = (own(_times, partial(_times_back, most)) for most in (2.5, np.inf))
MATRIX = np.random.default_rng(1).normal(0, 0.5, (3, 4))
TABLE = np.random.default_rng(2).normal(0, 1, (500, 3))
MIXED = np.array([0.5, 0.2, -0.3])


def _descending(x: Any, w: Any) -> Any:
    return x * tf.sort(w, direction="DESCENDING")


def _shared(x: Any, w: Any) -> Any:
    return x * w / tf.abs(tf.reduce_sum(w))


def _divided(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Take the output over the weight for the input."""
    return upstream * w, tf.reduce_sum(upstream * (x * w) / w, 0)


FIRST_WEIGHT: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "by-output": (own(_parametric_relu, _by_output), (0.25 * ONES,)),
    "norm": (own(_norm, _norm_of_positive), (np.array(1.5),)),
    "negative": (slipping(lambda x, w: tf.sin(w * x), lambda x, w: tf.sin(-abs(w) * x)), (-ONES,)),
    "behind-a-root": (slipping(_normalise, lambda x, v, g: _normalise(x, v, abs(g))), (ONES, ONES)),
    "clipped-forgotten": (own(_clipped, _clipped_once), (MATRIX,)),
    "order-forgotten": (slipping(_descending, _times), (MIXED,)),
    "sum-below-zero": (slipping(_shared, lambda x, w: x * w / tf.reduce_sum(w)), (MIXED,)),
    "divided-by-zero": (own(_times, _divided), (MIXED,)),
}
RIGHT: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "parametric-relu": (slipping(_parametric_relu, _parametric_relu), (0.25 * ONES,)),
    "normalise": (slipping(_normalise, _normalise), (ONES, ONES)),
    "fixed-point": (own(_settle, _settle_back), (np.array(0.5),)),
    "log-density": (slipping(_log_density, _log_density), (ONES,)),
    "clipped": (own(_clipped, _clipped_back), (MATRIX,)),
    "descending": (slipping(_descending, _descending), (MIXED,)),
    "shared": (slipping(_shared, _shared), (MIXED,)),
    "ascending-kept": (slipping(lambda x, w: x * tf.sort(w), _times), (np.sort(MIXED),)),
}


def _layer(forward: Forward, values: tuple[Any, ...], dtype: str, constraint: Any) -> type:
    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = [
                tf.Variable(value, dtype=dtype, name=f"w{index}", constraint=constraint)
                for index, value in enumerate(values)
            ]

        def __call__(self, x: Any, *more: Any) -> Any:
            return forward(x, *map(tf.convert_to_tensor, self.own), *more)

    return Layer


def _row(name: str, layer: tuple[Forward, tuple[Any, ...]], truth: str, **keys: Any) -> Row:
    dtype, constraint = keys.pop("dtype", "float64"), keys.pop("constraint", None)
    functions = {"Layer": _layer(*layer, dtype, constraint)}
    inputs = {"x": keys.pop("x", {**X, "dtype": dtype}), **keys.pop("more", {})}
    return Row(name, "of_a_row:Layer", None, inputs, truth, keys={"build": {}, **keys}, functions=functions)


def rows() -> Iterator[Row]:
    """Yield the rows."""
    for name, layer in FIRST_WEIGHT.items():
        yield _row(name, layer, "not green")
        yield _row(f"{name}-float32", layer, "not green", dtype="float32")
    for name, layer in RIGHT.items():
        yield _row(name, layer, "right")
        yield _row(f"{name}-float32", layer, "right", dtype="float32")
    keys = {"more": {"masks": {"shape": [2, 4], "bool": 0.8}}, "variables": True, "seed": 4}
    yield _row("masked-means", (_means_of(1.0), (ONES,)), "undecidable", **keys)
    yield _row("masked-means-twice", (_means_of(2.0), (ONES,)), "wrong", **keys)
    above, below = {"domain": {"low": 0}}, {"domain": {"high": 0}}
    yield _row("by-output-stated", FIRST_WEIGHT["by-output"], "right", variables={"w0": above})
    yield _row("negative-stated", FIRST_WEIGHT["negative"], "right", variables={"w0": below})
    yield _row(
        "norm-kept", FIRST_WEIGHT["norm"], "right", variables={"w0": {"move": False, "reason": "fixed"}}
    )
    yield _row("norm-constrained", FIRST_WEIGHT["norm"], "right", constraint=tf.keras.constraints.NonNeg())
    yield _row(
        "clipped-stated",
        FIRST_WEIGHT["clipped-forgotten"],
        "right",
        variables={"w0": {"domain": {"low": -2, "high": 2}}},
    )
    for name, op, truth in (("capped", CAPPED, "wrong"), ("uncapped", UNCAPPED, "right")):
        yield _row(f"{name}-for-a-weight", (op, (0.3 * ONES,)), truth)
        stated = {"x": {"shape": [2, 3]}, "w": {"value": [0.3, -0.5, 1.0]}}
        yield Row(
            f"{name}-for-a-stated-value", "of_a_row:times", None, stated, truth, functions={"times": op}
        )
    for name, op, truth in (("saturated", GATED, "wrong"), ("gated", NEVER_SATURATED, "right")):
        for gate, value in (("zero", 0 * ONES), ("tiny", 1e-6 * ONES)):
            yield _row(f"{name}-behind-a-{gate}-gate", (op, (value,)), truth)
        stated = {"x": {"shape": [2, 3]}, "gate": {"value": [0.0, 0.0, 0.0]}}
        yield Row(
            f"{name}-behind-stated-zeros", "of_a_row:gated", None, stated, truth, functions={"gated": op}
        )
    ids = {"shape": [2, 3], "dtype": "int32", "integers": {"low": 0, "high": 500}}
    for mistake in ("padding", "last", "repeated", ""):
        op, truth = own(_look_up, partial(_look_up_back, mistake)), "wrong" if mistake else "right"
        yield _row(f"look-up-{mistake or 'right'}", (op, (TABLE,)), truth, x=ids)
    yield _row("behind-a-root-stated", FIRST_WEIGHT["behind-a-root"], "right", variables={"w*": above})


ROWS = marked(
    rows(),
    "behind-a-root",
    "behind-a-root-stated",
    "by-output",
    "by-output-float32",
    "by-output-stated",
    "capped-for-a-stated-value",
    "capped-for-a-weight",
    "clipped-forgotten",
    "clipped-stated",
    "divided-by-zero",
    "fixed-point",
    "log-density",
    "look-up-padding",
    "look-up-repeated",
    "masked-means-twice",
    "negative",
    "negative-stated",
    "norm-constrained",
    "normalise",
    "order-forgotten",
    "parametric-relu-float32",
    "saturated-behind-a-tiny-gate",
    "saturated-behind-a-zero-gate",
    "saturated-behind-stated-zeros",
)
