"""Whole specs near what makes them hard: fine stairs, near edges, large inputs, domains, second order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Rounding far finer than the first pass steps, at which a slope is no derivative.
FINE = {
    "round": lambda x: tf.round(x * 1e12) / 1e12,
    "floor": lambda x: tf.floor(x * 2.0**40) / 2.0**40,
    "ceil": lambda x: tf.math.ceil(x * 3e12) / 3e12,
    "cast": lambda x: tf.cast(tf.cast(x * 1e12, tf.int64), tf.float64) / 1e12,
    "inside": lambda x: tf.sin(tf.round(x * 1e12) / 1e12),
}
# What rounds, and slopes all the same.
SLOPING = {
    "floormod": lambda x: tf.math.floormod(x, 0.3),
    "fraction": lambda x: x - tf.floor(x),
    "interpolation": lambda x: (x - tf.floor(x)) * 3 + tf.floor(x) ** 2,
    "turns": lambda x: tf.sin(x - 6.25 * tf.round(x / 6.25)),
}
# Teeth with the slope 1, which climb nowhere: a gradient of zero may be meant, but no other.
TEETH = {
    "fraction": lambda x: x - tf.floor(x),
    "remainder": lambda x: tf.math.floormod(x, 3.0),
    "angle": lambda x: tf.math.floormod(x + math.pi, 2 * math.pi) - math.pi,
}
# Gradients of the remainder by its divisor, as people get them wrong; a jump is close to most points.
REMAINDERS = {
    "right": lambda n: -n,
    "turned": lambda n: n,
    "halved": lambda n: -0.5 * n,
    "left out": tf.zeros_like,
}
CLOSE = {
    "log": (lambda x: tf.math.log(1 - x), lambda d: 1 - d),
    "pole": (lambda x: 1 / (x - 1), lambda d: 1 + d),
    "root": (lambda x: tf.sqrt(x - 2), lambda d: 2 + d),
    "relu": (lambda x: tf.nn.relu(x - 1), lambda d: 1 + d),
    "absolute": (lambda x: tf.abs(x - 2), lambda d: 2 - d),
    "tanh": (lambda x: tf.tanh((x - 1) * 1e6), lambda d: 1 + 0.1 * d),
}
# Functions with a pole or a kink at 0, which inputs far below the others are close to.
AT_ZERO = {
    "lgamma": tf.math.lgamma,
    "log": lambda x: tf.math.log(tf.abs(x)),
    "root": lambda x: tf.sqrt(tf.abs(x)),
    "absolute": tf.abs,
    "square": lambda x: 1 / (x * x),
    "waves": lambda x: tf.cos(tf.math.log(tf.abs(x))),
}
TINY = ([1e-13, 3.5], [1.77e-14, 3.5e6, 3.5e-8, 202.1], [1e-25, 3.0, -2e-20])
LARGE = {
    "sine": tf.sin,
    "softmax": tf.nn.softmax,
    "variance": tf.math.reduce_variance,
    "logsumexp": tf.reduce_logsumexp,
}


def _scaled(forward, factor):
    @tf.custom_gradient
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)

        def pull(upstream):
            with tf.GradientTape() as inner:
                inner.watch(x)
                again = forward(x)
            return factor * inner.gradient(again, x, upstream)

        return y, pull

    return function


def _through(_, upstream):
    return upstream


def _too_large(op, upstream):
    return 2.2 * op.inputs[0] * upstream


def _table(x, k):
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.float64, default_value=-1.0, empty_key=-1, deleted_key=-2
    )
    return x * x * table.lookup(k)


def _total(p):
    return tf.reduce_sum(p * p)


def _dropped_where_tiny(forward):
    """A function whose gradient is zero for inputs near 0."""

    @tf.custom_gradient
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
        slope = tape.gradient(y, x)
        return y, lambda u: tf.where(tf.abs(x) < 1e-6, tf.zeros_like(slope), slope) * u

    return function


def _remainder(slope):
    """A remainder, with a gradient by its divisor that is made of the quotient."""

    @tf.custom_gradient
    def remainder(x, y):
        return x - y * tf.floor(x / y), lambda u: (u, slope(tf.floor(x / y)) * u)

    return remainder


def _rows() -> Iterator[Row]:
    for name, forward in FINE.items():
        for shape in ([4], [30, 30]):
            inputs = {"x": {"shape": shape, "uniform": {"low": 0.5, "high": 2}}}
            yield Row(f"fine {name} {shape} through", forward, _through, inputs, "not green")
    for name, forward in SLOPING.items():
        inputs = {"x": {"shape": [20]}}
        yield Row(f"{name}", forward, None, inputs, "right")
        yield Row(f"{name} 1 % off", _scaled(forward, 1.01), None, inputs, "wrong")
    for name, slope in REMAINDERS.items():
        for seed in range(4):
            ranges = {"x": {"low": 1, "high": 3}, "y": {"low": 0.3, "high": 0.9}}
            inputs = {key: {"shape": [4], "uniform": low_high} for key, low_high in ranges.items()}
            truth = "right" if name == "right" else "wrong"
            yield Row(f"remainder {name} {seed}", _remainder(slope), None, inputs, truth, keys={"seed": seed})
    for name, (forward, at) in CLOSE.items():
        for distance in (1e-4, 1e-6, 3e-8):
            inputs = {"x": {"shape": [1], "value": [at(distance)]}}
            yield Row(f"{name} {distance} off", forward, None, inputs, "right")
            yield Row(f"{name} {distance} off and 1 % off", _scaled(forward, 1.01), None, inputs, "wrong")
    for name, forward in LARGE.items():
        for about in (1e5, 3e6):
            inputs = {"x": {"shape": [3], "value": [about + 0.5, about + 1.25, about - 0.25]}}
            yield Row(f"{name} about {about}", forward, None, inputs, "right")
            yield Row(f"{name} about {about} turned", _scaled(forward, -1), None, inputs, "wrong")


def _tiny() -> Iterator[Row]:
    for name, forward in AT_ZERO.items():
        for place, values in enumerate(TINY):
            inputs = {"x": {"shape": [len(values)], "value": values}}
            yield Row(f"{name} of tiny {place}", forward, None, inputs, "right")
            yield Row(f"{name} of tiny {place} dropped", _dropped_where_tiny(forward), None, inputs, "wrong")
    # None of these moves at -1e-30. A relu is level there; the others are computed as exp(x) - 1.
    inputs = {"x": {"shape": [4], "value": [-1e-30, 0.5, 1.0, -1.0]}}
    for name in ("relu", "elu", "selu"):
        yield Row(f"{name} at -1e-30", f"tensorflow:nn.{name}", None, inputs, "right")
    yield Row("relu at -1e-30 passed through", tf.nn.relu, _through, inputs, "wrong")
    for name, forward in (("elu", tf.nn.elu), ("selu", tf.nn.selu)):
        truth = "wrong" if name == "selu" else "not green"  # an elu has one slope on both sides
        yield Row(f"{name} at -1e-30 dropped", _dropped_where_tiny(forward), None, inputs, truth)


def _slope(forward: Callable[[tf.Tensor], tf.Tensor], factor: float) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.custom_gradient
    def op(x):
        return forward(x), lambda u: factor * u

    return op


def _others() -> Iterator[Row]:
    for low in (0.0, 0.1, 0.19):
        inputs = {"p": {"shape": [6], "uniform": {"low": 0.2, "high": 1}, "domain": {"low": low}}}
        yield Row(f"domain from {low}", _total, None, inputs, "right")
        yield Row(f"domain from {low} 10 % off", _total, _too_large, inputs, "wrong")
    for name in ("inv", "det"):
        for seed in range(3):
            inputs = {"x": {"shape": [3, 3], "spd": True, "dtype": "complex128"}}
            yield Row(
                f"{name} {seed}", f"tensorflow:linalg.{name}", None, inputs, "right", keys={"seed": seed}
            )
    for name in ("relu", "relu6", "leaky_relu"):
        keys = {"second_order": True}
        yield Row(f"{name} twice", f"tensorflow:nn.{name}", None, {"x": {"shape": [8]}}, "right", keys=keys)
    for name, forward in TEETH.items():
        for low in (20.0, 100.0):
            inputs = {"x": {"shape": [5], "uniform": {"low": low, "high": 2 * low}}}
            for factor in (-1.0, 0.0, 0.5, 0.98, 1.0, 1.1, 3.0):
                truth = "right" if factor == 1.0 else "not green" if factor == 0.0 else "wrong"
                yield Row(f"{name} from {low} {factor:g}", _slope(forward, factor), None, inputs, truth)
    # Near its minimum, a parabola's two sides differ by more than it moves, as a kink's do.
    at_minima = {"x": {"shape": [200], "value": [1.0, 1e-9] * 100}}
    yield Row("minima probed", tf.square, None, at_minima, "right", keys={"method": "probe"})
    dead = {"x": {"shape": [2], "value": [-1.0, -2.0]}}
    yield Row("dead twice", tf.nn.relu, None, dead, "unchecked", keys={"second_order": True})
    keys = {"value": [1, 2, 5], "dtype": "int64", "shape": [3]}
    yield Row("table", _table, None, {"x": {"shape": [3]}, "k": keys}, "right")


# Names are without spaces and commas.
ROWS = marked(
    tuple(
        replace(one, name=one.name.replace(" ", "_").replace(",", ""))
        for one in (*_rows(), *_tiny(), *_others())
    ),
    "dead_twice",
    "elu_at_-1e-30_dropped",
    "fine_cast_[30_30]_through",
    "logsumexp_about_3000000.0",
    "minima_probed",
    "root_1e-06_off_and_1_%_off",
)
