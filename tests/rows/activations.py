"""Piecewise linear activations of many values, whose edges lie among them; and stairs that stay stairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Iterator


def _soft(x):
    return tf.sign(x) * tf.nn.relu(tf.abs(x) - 0.5)


# Each with its slope, and what the slope is where somebody forgets an edge.
ACTIVATIONS = {
    "relu": (tf.nn.relu, lambda x: x > 0),
    "relu6": (tf.nn.relu6, lambda x: (x > 0) & (x < 6)),
    "clip": (lambda x: tf.clip_by_value(x, -1.0, 1.0), lambda x: tf.abs(x) < 1),
    "narrow clip": (lambda x: tf.clip_by_value(x, -0.5, 0.5), lambda x: tf.abs(x) < 0.5),
    "hard sigmoid": (lambda x: tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0), lambda x: tf.abs(x) < 2.5),
    "soft threshold": (_soft, lambda x: tf.abs(x) > 0.5),
    "hinge": (lambda x: tf.nn.relu(1 - x), lambda x: x < 1),
    "minimum": (lambda x: tf.minimum(x, 0.75), lambda x: x < 0.75),
    "leaky": (lambda x: tf.maximum(x, 0.2 * x), None),
    "hard shrink": (lambda x: tf.where(tf.abs(x) > 0.5, x, 0 * x), lambda x: tf.abs(x) > 0.5),
}
SHAPES = ([50, 50], [300, 300], [100, 150])
_SLOPES = {"hard sigmoid": 0.2, "hinge": -1.0}


def _forgotten(name: str, factor: float):
    def gradient(_, upstream):
        return upstream * tf.constant(_SLOPES.get(name, 1.0) * factor, upstream.dtype)

    return gradient


def _masked(name: str, factor: float):
    inside = ACTIVATIONS[name][1]

    def gradient(op, upstream):
        return upstream * tf.cast(inside(op.inputs[0]), upstream.dtype) * (_SLOPES.get(name, 1.0) * factor)

    return gradient


def _rows() -> Iterator[Row]:
    for name, (forward, inside) in ACTIVATIONS.items():
        for shape in SHAPES:
            rows, columns = shape
            inputs = {"x": {"shape": shape}}
            yield Row(f"{name} {rows} x {columns}", forward, None, inputs, "right")
        if inside is None:
            continue
        inputs = {"x": {"shape": [60, 60]}}
        yield Row(f"{name} with its mask", forward, _masked(name, 1.0), inputs, "right")
        yield Row(f"{name} without its mask", forward, _forgotten(name, 1.0), inputs, "wrong")
        yield Row(f"{name} 1 % too large", forward, _masked(name, 1.01), inputs, "wrong")
        yield Row(f"{name} turned round", forward, _masked(name, -1.0), inputs, "wrong")
        slope = {"x": {"shape": [40, 40], "dtype": "float32"}}
        yield Row(f"{name} float32", forward, None, slope, "right")
    for name in ("clip", "narrow clip", "relu6", "hard sigmoid"):
        forward = ACTIVATIONS[name][0]
        for points in ([3.0, -1.5], [7.0, -8.0], [100.0, -40.0, 2.7]):
            inputs = {"x": {"shape": [len(points)], "value": points}}
            # Flat at every step up to the edge, however far that is.
            yield Row(f"{name} at {points} no mask", forward, _forgotten(name, 1.0), inputs, "wrong")
    for name, slope in (("relu", tf.nn.relu), ("hinge", lambda x: tf.nn.relu(1 - x) ** 2), ("abs", tf.abs)):
        inputs = {"x": {"shape": [20, 20]}}
        yield Row(f"{name} at second order", slope, None, inputs, "right", keys={"second_order": True})


def _through(_, upstream):
    return upstream


STAIRS = {
    "round": tf.round,
    "floor": tf.floor,
    "round to eighths": lambda x: tf.round(x * 8) / 8,
    "round to hundredths": lambda x: tf.round(x * 100) / 100,
    "floor to 64ths": lambda x: tf.floor(x * 64) / 64,
    "fake quantisation": lambda x: tf.cast(
        tf.quantization.fake_quant_with_min_max_args(tf.cast(x, tf.float32)), x.dtype
    ),
}


def _stairs() -> Iterator[Row]:
    for name, forward in STAIRS.items():
        for shape in ([5], [40, 40]):
            inputs = {"x": {"shape": shape}}
            yield Row(f"{name} {shape} straight through", forward, _through, inputs, "not green")


def _named(one: Row) -> Row:
    # Names are without spaces and commas.
    return replace(one, name=one.name.replace(" ", "_").replace(",", ""))


ROWS = marked(
    tuple(_named(one) for one in (*_rows(), *_stairs())), "narrow_clip_100_x_150", "narrow_clip_1_%_too_large"
)
