"""Gradients that are wrong behind a condition alone, each with its right twin.

A row is a function `y = base(x)` with a gradient that is 1.5 times too large where its condition holds; its
twin has the same condition, and a factor of one. Conditions hold with a probability from 1e-1 to 1e-6 per
draw, or never by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.hidden.fresh_pairs import FRESH
from tests.hidden.hidden_kinds import WRITTEN as FIRST_WRITTEN
from tests.hidden.rare_pairs import PAIRS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Where a standard normal value is above, with a probability of 1e-1, 1e-2 and so on.
QUANTILES = (1.2816, 2.3263, 3.0902, 3.7190, 4.2649, 4.7534)
WRONG, RIGHT = 1.5, 1.0
WRITTEN = FIRST_WRITTEN | PAIRS | FRESH
VECTOR = {"shape": [6]}
BASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "square": (lambda x: x * x, lambda x: 2.0 * x),
    "sine": (tf.sin, tf.cos),
    "cube": (lambda x: x * x * x / 3.0, lambda x: x * x),
    "softplus": (tf.nn.softplus, tf.sigmoid),
}


@dataclass(frozen=True)
class Row:
    """A planted fault.

    Attributes:
        kind: what its condition is of.
        name: unique.
        condition: of x, elementwise or one for all; of a NumPy row, of an array.
        inputs: as in a spec.
        body: in what the function, or its gradient's factor, is called; see `_BODIES` and `_factor`.
        base: which function.
        keys: what else the spec says.
    """

    kind: str
    name: str
    condition: Callable[[Any], Any]
    inputs: Mapping[str, Any] = field(default_factory=lambda: {"x": VECTOR})
    base: str = "square"
    body: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, *, wrong: bool) -> dict[str, Any]:
        """Return the spec of the fault, or of its twin."""
        spec = {"op": self.name, "inputs": dict(self.inputs), **self.keys}
        if self.kind == "numpy":
            factor = "wrong" if wrong else "right"
            return spec | {
                "forward": "tests.hidden.hidden_faults:numpy_square",
                "gradient": {"numpy": f"tests.hidden.hidden_faults:{factor}__{self.name.replace('-', '_')}"},
                "binding": "py_func",
                "outputs": {"y": {"dtype": "float64"}},
            }
        return spec | {
            "forward": "tests.hidden.hidden_faults:function_of",
            "build": {"row": self.name, "factor": WRONG if wrong else RIGHT},
        }


def function_of(row: str, factor: float) -> Callable[..., Any]:
    """Return the function of a row: what `build` calls."""
    if row in WRITTEN:
        return WRITTEN[row].make(factor)
    found = ROWS[row]
    base, slope = BASES[found.base]

    @tf.custom_gradient
    def function(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return upstream * slope(x) * _factor(found, x, factor)

        return base(x), gradient

    called = _BODIES.get(found.body)
    return function if called is None else lambda x: called(function, x)


# What calls a function in a body.
_BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "loop": lambda function, x: tf.while_loop(
        lambda count, _: count < 2, lambda count, value: (count + 1, function(value)), [0, x]
    )[1],
    "branch": lambda function, x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: function(x), lambda: 2.0 * x),
    "function": lambda function, x: tf.function(function)(x),
    "map": tf.map_fn,
}


def _factor(row: Row, x: Any, factor: float) -> Any:
    one = tf.ones([], x.dtype)
    if row.body == "gradient loop":
        return tf.while_loop(
            lambda count, _: count < 2,
            lambda count, value: (count + 1, value * tf.where(row.condition(x), factor**0.5 * one, one)),
            [0, tf.ones_like(x)],
        )[1]
    if row.body == "gradient function":
        return tf.function(lambda x: tf.cond(row.condition(x), lambda: factor * one, lambda: one))(x)
    if row.kind == "cond":
        return tf.cond(row.condition(x), lambda: factor * one, lambda: one)
    if row.kind == "loop":
        rounds, _ = tf.while_loop(
            lambda count, left: left > 1.0,
            lambda count, left: (count + 1, left / 2.0),
            [tf.constant(0), tf.reduce_sum(tf.abs(x))],
        )
        return tf.where(row.condition(rounds), factor * one, one)
    return tf.where(row.condition(x), factor * one, one)


def numpy_square(x: Any) -> Any:
    """The forward of NumPy rows."""
    return x * x


def __getattr__(name: str) -> Any:
    """Return the gradient of a NumPy row: `wrong__NAME` or `right__NAME`."""
    truth, _, row = name.partition("__")
    if truth not in ("wrong", "right") or not row:
        raise AttributeError(name)
    name = row.replace("_", "-")
    make = WRITTEN[name].make if name in WRITTEN else NUMPY[name]
    return make(WRONG if truth == "wrong" else RIGHT)


# NumPy rows, each with an `if` of its own, as people write them.


def _largest_above(limit: float) -> Callable[[float], Any]:
    def make(factor: float) -> Any:
        def gradient(dy: Any, x: Any) -> Any:
            if x.max() > limit:
                return factor * 2.0 * dy * x
            return 2.0 * dy * x

        return gradient

    return make


def _sum_below(limit: float) -> Callable[[float], Any]:
    def make(factor: float) -> Any:
        def gradient(dy: Any, x: Any) -> Any:
            total = float(np.sum(x))
            if total < limit:
                return factor * 2.0 * dy * x
            return 2.0 * dy * x

        return gradient

    return make


def _all_positive(count: int) -> Callable[[float], Any]:
    def make(factor: float) -> Any:
        def gradient(dy: Any, x: Any) -> Any:
            positive = 0
            for value in x[:count]:
                if value > 0:
                    positive += 1
            if positive == count:
                return factor * 2.0 * dy * x
            return 2.0 * dy * x

        return gradient

    return make


def _has_zero(factor: float) -> Any:
    def gradient(dy: Any, x: Any) -> Any:
        result = 2.0 * dy * x
        if (x == 0).any():
            result = result + (factor - 1.0) * dy
        return result

    return gradient


def _first_between(low: float, high: float) -> Callable[[float], Any]:
    def make(factor: float) -> Any:
        def gradient(dy: Any, x: Any) -> Any:
            if low < x[0] < high:
                return factor * 2.0 * dy * x
            return 2.0 * dy * x

        return gradient

    return make


NUMPY: dict[str, Callable[[float], Any]] = {
    **{f"numpy-max-{number}": _largest_above(QUANTILES[number]) for number in (1, 3, 4, 5)},
    "numpy-sum-3": _sum_below(-7.6),
    "numpy-sum-6": _sum_below(-11.6),
    "numpy-positive": _all_positive(12),
    "numpy-zero": _has_zero,
    "numpy-band-4": _first_between(2.0, 2.002),
    "numpy-band-6": _first_between(3.0, 3.0002),
}


def _pattern(signs: str) -> Callable[[Any], Any]:
    wanted = np.array([1.0 if sign == "+" else -1.0 for sign in signs])
    return lambda x: tf.reduce_all(x[: len(signs)] * wanted > 0.0)


def _above(limit: float) -> Callable[[Any], Any]:
    return lambda x: x > limit


def _below(limit: float) -> Callable[[Any], Any]:
    return lambda x: x < -limit


def _band(low: float, width: float) -> Callable[[Any], Any]:
    return lambda x: (x > low) & (x < low + width)


def _at(index: int, limit: float) -> Callable[[Any], Any]:
    return lambda x: x[index] > limit


def _rows() -> list[Row]:
    rows = []
    bases = list(BASES)
    for number, limit in enumerate(QUANTILES):
        base = bases[number % len(bases)]
        rows += [
            Row("threshold", f"above-{number}", _above(limit), base=base),
            Row("threshold", f"below-{number}", _below(limit), {"x": {"shape": [2, 3]}}, "square"),
            Row("index", f"index-{number}", _at(number, limit), base=base),
            Row("cond", f"cond-max-{number}", lambda x, t=limit: tf.reduce_max(x) > t),
            Row("cond", f"cond-sum-{number}", lambda x, t=limit: tf.reduce_sum(x) > t * 6**0.5, base="sine"),
        ]
    for number, (low, width) in enumerate(
        [(0.3, 0.3), (1.0, 4e-2), (-0.7, 3e-3), (0.1, 2.5e-4), (1.5, 8e-5), (0.0, 2.5e-6)]
    ):
        rows.append(Row("band", f"band-{number}", _band(low, width), base="sine"))
    for number, (low, width) in enumerate([(2.5, 0.6), (3.0, 2e-2), (-3.2, 4e-3)]):
        rows.append(Row("band", f"far-band-{number}", _band(low, width)))
    many = {"x": {"shape": [24]}}
    for signs in ("++--", "+-+-+-+", "-" * 10, "+--" * 4 + "+", "+-" * 8, "-+++" * 5):
        rows.append(Row("signs", f"signs-{len(signs)}", _pattern(signs), many))
    rows += [
        Row(
            "signs",
            "signs-matrix",
            lambda x: tf.reduce_all(x > 0.0, axis=1, keepdims=True),
            {"x": {"shape": [3, 12]}},
        ),
        Row("signs", "signs-any", lambda x: ~tf.reduce_any(x > 0.5), many),
        Row("equal", "equal-two", lambda x: x[0] == x[1]),
        Row("equal", "equal-ends", lambda x: x[0] == x[-1], many, "sine"),
        Row("equal", "equal-neighbours", lambda x: tf.reduce_any(x[1:] == x[:-1])),
        Row("equal", "equal-all", lambda x: tf.reduce_max(x) == tf.reduce_min(x)),
        Row("equal", "equal-rows", lambda x: tf.reduce_all(x[0] == x[1]), {"x": {"shape": [2, 4]}}),
        Row("equal", "equal-close", lambda x: tf.abs(x[0] - x[1]) < 1e-6),
        Row("loop", "rounds-none", lambda rounds: rounds == 0),
        Row("loop", "rounds-1", lambda rounds: rounds == 1),
        Row("loop", "rounds-5", lambda rounds: rounds == 5),
        Row("loop", "rounds-6", lambda rounds: rounds > 5, base="sine"),
        Row("loop", "rounds-7", lambda rounds: rounds >= 7, base="sine"),
        Row("loop", "rounds-even", lambda rounds: (rounds % 2 == 0) & (rounds > 3)),
        Row("zero", "zero-any", lambda x: x == 0.0, base="softplus"),
        Row("zero", "zero-first", lambda x: x[0] == 0.0, base="sine"),
        Row("zero", "zero-all", lambda x: tf.reduce_all(x == 0.0), base="softplus"),
        Row("zero", "zero-norm", lambda x: tf.reduce_sum(x * x) == 0.0, base="softplus"),
        Row("zero", "zero-sign", lambda x: tf.sign(x) == 0.0, base="sine"),
        Row("zero", "zero-near", lambda x: tf.abs(x) < 1e-6, base="sine"),
        Row("saturation", "saturated-tanh", lambda x: tf.abs(tf.tanh(x)) > 0.9999, base="softplus"),
        Row("saturation", "saturated-sigmoid", lambda x: tf.sigmoid(x) > 0.9933, base="softplus"),
        Row("saturation", "saturated-low", lambda x: tf.sigmoid(x) < 0.01, base="sine"),
        Row("saturation", "saturated-erf", lambda x: tf.math.erf(x) > 0.99999999, base="sine"),
        Row("saturation", "saturated-clip", lambda x: tf.clip_by_value(x, -4.5, 4.5) == 4.5),
        Row("saturation", "saturated-relu6", lambda x: tf.nn.relu6(x) == 6.0),
        Row("saturation", "saturated-exp", lambda x: tf.exp(-x * x) < 1e-10, base="softplus"),
        Row("saturation", "saturated-softmax", lambda x: tf.reduce_max(tf.nn.softmax(x)) > 0.999),
    ]
    for body in (*_BODIES, "gradient loop"):
        name = body.replace(" ", "-")
        rows += [
            Row("body", f"{name}-above", _above(QUANTILES[3]), base="sine", body=body),
            Row("body", f"{name}-band", _band(1.5, 8e-5), base="sine", body=body),
        ]
    rows += [
        Row("body", "gradient-function-sum", lambda x: tf.reduce_sum(x) > 9.0, body="gradient function"),
        Row("body", "gradient-function-max", lambda x: tf.reduce_max(x) > 4.3, body="gradient function"),
    ]
    rows += [Row("numpy", name, lambda x: x, {"x": {"shape": [12]}}) for name in NUMPY]
    pair = {"x": {"shape": [2, 5]}}
    rows += [
        Row("batch", "batch-of-one", lambda x: tf.equal(tf.shape(x)[0], 1), {"x": {"shape": [4, 3]}}),
        Row("batch", "batch-static", lambda x: x.shape[0] == 1, {"x": {"shape": [3]}}, "sine"),
        Row("two", "two-apart", lambda x: tf.abs(x[0] - x[1]) > 6.0, pair, "sine"),
        Row("two", "two-both", lambda x: (x[0] > 2.5) & (x[1] > 2.5), pair),
        Row("two", "two-product", lambda x: x[0] * x[1] > 12.0, pair),
        Row("two", "two-either", lambda x: (x[0] > 4.5) | (x[1] < -4.5), pair, "sine"),
        Row("two", "two-circle", lambda x: tf.abs(tf.reduce_sum(x * x, 0) - 1.0) < 1e-4, pair),
        Row("two", "two-norm", lambda x: tf.norm(x) < 0.2, pair, "sine"),
        Row(
            "range",
            "uniform-high",
            lambda x: x > 0.99999,
            {"x": {"shape": [5], "uniform": {"low": 0.0, "high": 1.0}}},
        ),
        Row(
            "range",
            "uniform-band",
            lambda x: tf.abs(x - 0.123) < 1e-6,
            {"x": {"shape": [5], "uniform": {"low": 0.0, "high": 1.0}}},
            "sine",
        ),
        Row(
            "range",
            "uniform-low",
            lambda x: x < 1e-4,
            {"x": {"shape": [5], "uniform": {"low": 0.0, "high": 1.0}}},
            "softplus",
        ),
        Row("range", "domain", lambda x: x > 4.9, {"x": {"shape": [5], "domain": {"low": -5, "high": 5}}}),
        Row(
            "range",
            "shifted",
            lambda x: x < 4.5,  # 3.7 standard deviations: no point lies beyond four
            {"x": {"shape": [5], "normal": {"mean": 10, "stddev": 1.5}}},
            "sine",
        ),
        Row("step", "floor-3", lambda x: tf.floor(x) == 3.0, base="sine"),
        Row("step", "round-4", lambda x: tf.round(x) == -4.0),
        Row("step", "ceil-5", lambda x: tf.math.ceil(x) == 5.0),
        Row("step", "modulo", lambda x: tf.math.floormod(x, 1.0) < 1e-5, base="sine"),
    ]
    return rows


ROWS = {row.name: row for row in _rows()} | FIRST_WRITTEN
