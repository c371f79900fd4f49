"""Stated numbers that aren't differentiated, and gradients that are wrong at others: a question, or meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tests.rows.stuck import DRAWN, own, slipping, stated
from tests.support.row import Row, marked

TABLE = {"shape": [5, 2]}
IDS = stated([0, 3, 1], "int32")
SEGMENTS = stated([0, 0, 1, 1], "int32")
LENGTHS = stated([3, 3], "int32")


def _scatter(update: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(upstream: Any, table: Any, ids: Any) -> Any:
        return update(tf.zeros_like(table), ids[:, None], upstream), None

    return gradient


def _masked_mean(x: Any, mask: Any) -> Any:
    own_mask = tf.cast(mask, x.dtype)
    return tf.reduce_sum(tf.sin(x) * own_mask) / tf.reduce_sum(own_mask)


def _power(x: Any, exponent: Any) -> Any:
    return x ** tf.cast(exponent, x.dtype)


def _segment_mean(upstream: Any, _x: Any, ids: Any) -> Any:
    return tf.gather(upstream, ids) / 2, None


def _sum_of_steps(x: Any, lengths: Any) -> Any:
    """Return the sum of the first steps of each row, (2, 3)."""
    return tf.reduce_sum(tf.sin(x) * tf.sequence_mask(lengths, 3, x.dtype), axis=1)


def _at_places(table: Any, places: Any) -> Any:
    return tf.gather_nd(table, places)


def _softened(x: Any, temperature: Any) -> Any:
    return tf.nn.softmax(x / temperature)


def _cross_entropy(x: Any, labels: Any) -> Any:
    return -tf.reduce_sum(labels * tf.nn.log_softmax(x), -1)


def _by_labels(upstream: Any, x: Any, labels: Any) -> Any:
    return upstream[:, None] * (tf.nn.softmax(x) - labels), None


PLACES = stated([[0, 1], [2, 0], [4, 1]], "int32")
SET_PLACES = own(_at_places, lambda u, t, p: (tf.tensor_scatter_nd_update(tf.zeros_like(t), p, u), None))
INVERSE = own(tf.gather, lambda u, _, p: (tf.gather(u, tf.argsort(p)), None))
BACK, TWICE = stated([1, 2, 0], "int32"), {"shape": [2, 3]}


def _gather(x: Any, p: Any, *_: Any) -> Any:
    return tf.gather(x, p, batch_dims=len(p.shape) - 1)


ASSIGN = own(tf.gather, _scatter(tf.tensor_scatter_nd_update))

Case = tuple[Callable[..., Any], dict[str, Any]]  # the op, and its inputs
WRONG: dict[str, Case] = {
    "ids": (ASSIGN, {"x": TABLE, "ids": IDS}),
    "ids-ascend": (ASSIGN, {"x": TABLE, "ids": stated([0, 2, 4], "int64")}),
    "segments": (own(tf.math.segment_mean, _segment_mean), {"x": {"shape": [4, 2]}, "ids": SEGMENTS}),
    "mask": (
        own(_masked_mean, lambda u, x, m: (u * tf.cos(x) / tf.cast(tf.size(m), x.dtype), None)),
        {"x": DRAWN, "mask": stated([True] * 3, "bool")},
    ),
    "exponent": (
        own(_power, lambda u, x, _: (2 * u * x, None)),
        {"x": {"shape": [3], "uniform": {"low": 1, "high": 2}}, "n": stated(2, "int32")},
    ),
    "temperature": (
        slipping(_softened, lambda x, _: tf.nn.softmax(x)),
        {"x": DRAWN, "t": stated(1.0, differentiate=False)},
    ),
    "rate": (
        slipping(lambda x, r: tf.sin(r * x), lambda x, _: tf.sin(0.5 * x)),
        {"x": DRAWN, "r": stated(0.5, differentiate=False)},
    ),
    "weights": (
        slipping(lambda x, w: tf.reduce_sum(w * tf.sin(x)), lambda x, _: tf.reduce_sum(tf.sin(x))),
        {"x": DRAWN, "w": stated([1.0] * 3, differentiate=False)},
    ),
    "mean": (
        own(
            lambda x, g, m: (x - m) * g,
            lambda u, x, g, _: (u * g, tf.reduce_sum(u * x, axis=0), None),
        ),
        {"x": {"shape": [2, 3]}, "g": DRAWN, "m": stated([0.0] * 3, differentiate=False)},
    ),
    "shift": (
        own(lambda x, k: tf.roll(x, k, 0), lambda u, *_: (tf.roll(u, -1, 0), None)),
        {"x": DRAWN, "k": stated(1, "int32")},
    ),
    "flag": (
        own(lambda x, f: tf.where(f, tf.sin(x), tf.exp(x)), lambda u, x, _: (u * tf.cos(x), None)),
        {"x": DRAWN, "flag": stated(value=True, dtype="bool")},
    ),
    "permutation": (
        own(_gather, lambda u, *_: (tf.gather(u, [1, 2, 0]), None, None)),
        {"x": DRAWN, "p": stated([2, 0, 1], "int32"), "back": BACK},
    ),
    "lengths": (
        slipping(_sum_of_steps, lambda x, _: tf.reduce_sum(tf.sin(x), axis=1)),
        {"x": {"shape": [2, 3]}, "lengths": LENGTHS},
    ),
}
RIGHT: dict[str, Case] = {
    "ids": (own(tf.gather, _scatter(tf.tensor_scatter_nd_add)), {"x": TABLE, "ids": IDS}),
    "permutation": (INVERSE, {"x": DRAWN, "p": stated([2, 0, 1], "int32")}),
    "inverse": (
        own(_gather, lambda u, _, p, back: (tf.gather(u, back), None, None)),
        {"x": DRAWN, "p": stated([2, 0, 1], "int32"), "back": BACK},
    ),
    "permutations": (
        own(_gather, lambda u, _, p: (_gather(u, tf.argsort(p)), None)),
        {"x": TWICE, "p": stated([[2, 0, 1], [0, 2, 1]], "int32")},
    ),
    "inverses": (
        own(_gather, lambda u, _, p, back: (_gather(u, back), None, None)),
        {
            "x": TWICE,
            "p": stated([[2, 0, 1], [0, 2, 1]], "int32"),
            "back": stated([[1, 2, 0], [0, 2, 1]], "int32"),
        },
    ),
    "places": (SET_PLACES, {"x": TABLE, "places": PLACES}),
    "lengths": (slipping(_sum_of_steps, _sum_of_steps), {"x": {"shape": [2, 3]}, "lengths": LENGTHS}),
    "mask": (slipping(_masked_mean, _masked_mean), {"x": DRAWN, "mask": stated([True, False, True], "bool")}),
    "labels": (
        own(_cross_entropy, _by_labels),
        {"x": {"shape": [2, 3]}, "labels": stated([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], differentiate=False)},
    ),
    "soft-labels": (
        own(_cross_entropy, _by_labels),
        {"x": {"shape": [2, 3]}, "labels": stated([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], differentiate=False)},
    ),
    "float-mask": (
        own(lambda x, m: m * tf.sin(x), lambda u, x, m: (tf.where(m > 0, u * tf.cos(x), 0), None)),
        {"x": DRAWN, "m": stated([1.0, 0.0, 1.0], differentiate=False)},
    ),
    "adjacency": (
        own(lambda x, a: a @ tf.sin(x), lambda u, x, a: ((a @ u) * tf.cos(x), None)),
        {
            "x": {"shape": [3, 1]},
            "a": stated([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], differentiate=False),
        },
    ),
    "additive-mask": (
        slipping(lambda x, m: tf.nn.softmax(x + m), lambda x, m: tf.nn.softmax(x + m)),
        {"x": {"shape": [2, 3]}, "m": stated([[0.0] * 3] * 2, differentiate=False)},
    ),
    # TensorFlow's own gradient is right for places that all differ, and nobody's fault.
    "assigned": (
        lambda x, places, u: tf.tensor_scatter_nd_update(x, places[:, None], u),
        {"x": {"shape": [5]}, "places": stated([0, 3], "int32"), "updates": {"shape": [2]}},
    ),
}


def rows() -> Iterator[Row]:
    """Yield the rows."""
    kept = {"move": False, "reason": "all that there are"}
    for name, (function, inputs) in WRONG.items():
        yield Row(name, function, None, inputs, "not green")
        fixed = {label: {**tensor, **(kept if "value" in tensor else {})} for label, tensor in inputs.items()}
        yield Row(f"{name}-kept", function, None, fixed, "right")
        float32 = {label: {"dtype": "float32", **tensor} for label, tensor in inputs.items()}
        yield Row(f"{name}-float32", function, None, float32, "not green")
    for name, (function, inputs) in RIGHT.items():
        yield Row(f"{name}-right", function, None, inputs, "right")


ROWS = marked(
    rows(),
    "ids",
    "ids-kept",
    "segments",
    "mask",
    "lengths",
    "permutation-right",
    "inverses-right",
    "places-right",
)
