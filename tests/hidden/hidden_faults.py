"""Gradients that are wrong behind a condition alone, each with its right twin.

A row is a function `y = base(x)` with a gradient that is 1.5 times too large where its condition holds; its
twin has the same condition, and a factor of one. Conditions hold with a probability from 1e-1 to 1e-6 per
draw, or never by chance.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.hidden.fresh_pairs import FRESH
from tests.hidden.hidden_kinds import RIGHT, WRONG, Written, of_arrays
from tests.hidden.hidden_kinds import WRITTEN as FIRST_WRITTEN
from tests.hidden.rare_pairs import PAIRS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Where a standard normal value is above, with a probability of 1e-1, 1e-2 and so on.
QUANTILES = (1.2816, 2.3263, 3.0902, 3.7190, 4.2649, 4.7534)
VECTOR = {"shape": [6]}
BASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "square": (lambda x: x * x, lambda x: 2.0 * x),
    "sine": (tf.sin, tf.cos),
    "cube": (lambda x: x * x * x / 3.0, lambda x: x * x),
    "softplus": (tf.nn.softplus, tf.sigmoid),
}


def _row(  # noqa: PLR0913, PLR0917 (a line of the table)
    kind: str,
    name: str,
    condition: Callable[[Any], Any],
    inputs: Mapping[str, Any] = MappingProxyType({"x": VECTOR}),
    base: str = "square",
    body: str = "",
) -> Written:
    """Return a planted fault.

    Args:
        kind: what its condition is of.
        name: unique.
        condition: of x, elementwise or one for all.
        inputs: as in a spec.
        base: which function.
        body: in what the function, or its gradient's factor, is called; see `_BODIES` and `_factor`.
    """
    value, slope = BASES[base]

    def make(factor: float) -> Callable[..., Any]:
        @tf.custom_gradient
        def function(x: Any) -> Any:
            return value(x), lambda dy: dy * slope(x) * _factor(kind, body, condition, x, factor)

        called = _BODIES.get(body)
        return function if called is None else lambda x: called(function, x)

    return Written(kind, name, make, inputs)


def function_of(row: str, factor: float) -> Callable[..., Any]:
    """Return the function of a row: what `build` calls."""
    return WRITTEN[row].make(factor)


# What calls a function in a body.
_BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "loop": lambda function, x: tf.while_loop(
        lambda count, _: count < 2, lambda count, value: (count + 1, function(value)), [0, x]
    )[1],
    "branch": lambda function, x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: function(x), lambda: 2.0 * x),
    "function": lambda function, x: tf.function(function)(x),
    "map": tf.map_fn,
}


def _factor(kind: str, body: str, condition: Callable[[Any], Any], x: Any, factor: float) -> Any:
    one = tf.ones([], x.dtype)
    if body == "gradient loop":
        return tf.while_loop(
            lambda count, _: count < 2,
            lambda count, value: (count + 1, value * tf.where(condition(x), factor**0.5 * one, one)),
            [0, tf.ones_like(x)],
        )[1]
    if body == "gradient function":
        return tf.function(lambda x: tf.cond(condition(x), lambda: factor * one, lambda: one))(x)
    if kind == "cond":
        return tf.cond(condition(x), lambda: factor * one, lambda: one)
    if kind == "loop":
        rounds, _ = tf.while_loop(
            lambda count, left: left > 1.0,
            lambda count, left: (count + 1, left / 2.0),
            [tf.constant(0), tf.reduce_sum(tf.abs(x))],
        )
        return tf.where(condition(rounds), factor * one, one)
    return tf.where(condition(x), factor * one, one)


def numpy_square(x: Any) -> Any:
    """The forward of NumPy rows."""
    return x * x


def __getattr__(name: str) -> Any:
    """Return the gradient of a NumPy row: `wrong__NAME` or `right__NAME`."""
    truth, _, row = name.partition("__")
    if truth not in ("wrong", "right") or not row:
        raise AttributeError(name)
    return WRITTEN[row.replace("_", "-")].make(WRONG if truth == "wrong" else RIGHT)


# NumPy rows, each with an `if` of its own, as people write them.


def _largest_above(limit: float) -> Callable[[float], Any]:
    def factor_of(x: Any, factor: float) -> float:
        if x.max() > limit:
            return factor
        return 1.0

    return of_arrays(factor_of)


def _sum_below(limit: float) -> Callable[[float], Any]:
    def factor_of(x: Any, factor: float) -> float:
        total = float(np.sum(x))
        if total < limit:
            return factor
        return 1.0

    return of_arrays(factor_of)


def _all_positive(count: int) -> Callable[[float], Any]:
    def factor_of(x: Any, factor: float) -> float:
        positive = 0
        for value in x[:count]:
            if value > 0:
                positive += 1
        if positive == count:
            return factor
        return 1.0

    return of_arrays(factor_of)


def _has_zero(factor: float) -> Any:
    def gradient(dy: Any, x: Any) -> Any:
        result = 2.0 * dy * x
        if (x == 0).any():
            result = result + (factor - 1.0) * dy
        return result

    return gradient


def _first_between(low: float, high: float) -> Callable[[float], Any]:
    def factor_of(x: Any, factor: float) -> float:
        if low < x[0] < high:
            return factor
        return 1.0

    return of_arrays(factor_of)


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


def _rows() -> list[Written]:
    rows = []
    bases = list(BASES)
    for number, limit in enumerate(QUANTILES):
        base = bases[number % len(bases)]
        rows += [
            _row("threshold", f"above-{number}", _above(limit), base=base),
            _row("threshold", f"below-{number}", _below(limit), {"x": {"shape": [2, 3]}}, "square"),
            _row("index", f"index-{number}", _at(number, limit), base=base),
            _row("cond", f"cond-max-{number}", lambda x, t=limit: tf.reduce_max(x) > t),
            _row("cond", f"cond-sum-{number}", lambda x, t=limit: tf.reduce_sum(x) > t * 6**0.5, base="sine"),
        ]
    for number, (low, width) in enumerate(
        [(0.3, 0.3), (1.0, 4e-2), (-0.7, 3e-3), (0.1, 2.5e-4), (1.5, 8e-5), (0.0, 2.5e-6)]
    ):
        rows.append(_row("band", f"band-{number}", _band(low, width), base="sine"))
    for number, (low, width) in enumerate([(2.5, 0.6), (3.0, 2e-2), (-3.2, 4e-3)]):
        rows.append(_row("band", f"far-band-{number}", _band(low, width)))
    many = {"x": {"shape": [24]}}
    for signs in ("++--", "+-+-+-+", "-" * 10, "+--" * 4 + "+", "+-" * 8, "-+++" * 5):
        rows.append(_row("signs", f"signs-{len(signs)}", _pattern(signs), many))
    rows += [
        _row(
            "signs",
            "signs-matrix",
            lambda x: tf.reduce_all(x > 0.0, axis=1, keepdims=True),
            {"x": {"shape": [3, 12]}},
        ),
        _row("signs", "signs-any", lambda x: ~tf.reduce_any(x > 0.5), many),
        _row("equal", "equal-two", lambda x: x[0] == x[1]),
        _row("equal", "equal-ends", lambda x: x[0] == x[-1], many, "sine"),
        _row("equal", "equal-neighbours", lambda x: tf.reduce_any(x[1:] == x[:-1])),
        _row("equal", "equal-all", lambda x: tf.reduce_max(x) == tf.reduce_min(x)),
        _row("equal", "equal-rows", lambda x: tf.reduce_all(x[0] == x[1]), {"x": {"shape": [2, 4]}}),
        _row("equal", "equal-close", lambda x: tf.abs(x[0] - x[1]) < 1e-6),
        _row("loop", "rounds-none", lambda rounds: rounds == 0),
        _row("loop", "rounds-1", lambda rounds: rounds == 1),
        _row("loop", "rounds-5", lambda rounds: rounds == 5),
        _row("loop", "rounds-6", lambda rounds: rounds > 5, base="sine"),
        _row("loop", "rounds-7", lambda rounds: rounds >= 7, base="sine"),
        _row("loop", "rounds-even", lambda rounds: (rounds % 2 == 0) & (rounds > 3)),
        _row("zero", "zero-any", lambda x: x == 0.0, base="softplus"),
        _row("zero", "zero-first", lambda x: x[0] == 0.0, base="sine"),
        _row("zero", "zero-all", lambda x: tf.reduce_all(x == 0.0), base="softplus"),
        _row("zero", "zero-norm", lambda x: tf.reduce_sum(x * x) == 0.0, base="softplus"),
        _row("zero", "zero-sign", lambda x: tf.sign(x) == 0.0, base="sine"),
        _row("zero", "zero-near", lambda x: tf.abs(x) < 1e-6, base="sine"),
        _row("saturation", "saturated-tanh", lambda x: tf.abs(tf.tanh(x)) > 0.9999, base="softplus"),
        _row("saturation", "saturated-sigmoid", lambda x: tf.sigmoid(x) > 0.9933, base="softplus"),
        _row("saturation", "saturated-low", lambda x: tf.sigmoid(x) < 0.01, base="sine"),
        _row("saturation", "saturated-erf", lambda x: tf.math.erf(x) > 0.99999999, base="sine"),
        _row("saturation", "saturated-clip", lambda x: tf.clip_by_value(x, -4.5, 4.5) == 4.5),
        _row("saturation", "saturated-relu6", lambda x: tf.nn.relu6(x) == 6.0),
        _row("saturation", "saturated-exp", lambda x: tf.exp(-x * x) < 1e-10, base="softplus"),
        _row("saturation", "saturated-softmax", lambda x: tf.reduce_max(tf.nn.softmax(x)) > 0.999),
    ]
    for body in (*_BODIES, "gradient loop"):
        name = body.replace(" ", "-")
        rows += [
            _row("body", f"{name}-above", _above(QUANTILES[3]), base="sine", body=body),
            _row("body", f"{name}-band", _band(1.5, 8e-5), base="sine", body=body),
        ]
    rows += [
        _row("body", "gradient-function-sum", lambda x: tf.reduce_sum(x) > 9.0, body="gradient function"),
        _row("body", "gradient-function-max", lambda x: tf.reduce_max(x) > 4.3, body="gradient function"),
    ]
    rows += [Written("numpy", name, make, {"x": {"shape": [12]}}) for name, make in NUMPY.items()]
    pair = {"x": {"shape": [2, 5]}}
    rows += [
        _row("batch", "batch-of-one", lambda x: tf.equal(tf.shape(x)[0], 1), {"x": {"shape": [4, 3]}}),
        _row("batch", "batch-static", lambda x: x.shape[0] == 1, {"x": {"shape": [3]}}, "sine"),
        _row("two", "two-apart", lambda x: tf.abs(x[0] - x[1]) > 6.0, pair, "sine"),
        _row("two", "two-both", lambda x: (x[0] > 2.5) & (x[1] > 2.5), pair),
        _row("two", "two-product", lambda x: x[0] * x[1] > 12.0, pair),
        _row("two", "two-either", lambda x: (x[0] > 4.5) | (x[1] < -4.5), pair, "sine"),
        _row("two", "two-circle", lambda x: tf.abs(tf.reduce_sum(x * x, 0) - 1.0) < 1e-4, pair),
        _row("two", "two-norm", lambda x: tf.norm(x) < 0.2, pair, "sine"),
        _row(
            "range",
            "uniform-high",
            lambda x: x > 0.99999,
            {"x": {"shape": [5], "uniform": {"low": 0.0, "high": 1.0}}},
        ),
        _row(
            "range",
            "uniform-band",
            lambda x: tf.abs(x - 0.123) < 1e-6,
            {"x": {"shape": [5], "uniform": {"low": 0.0, "high": 1.0}}},
            "sine",
        ),
        _row(
            "range",
            "uniform-low",
            lambda x: x < 1e-4,
            {"x": {"shape": [5], "uniform": {"low": 0.0, "high": 1.0}}},
            "softplus",
        ),
        _row("range", "domain", lambda x: x > 4.9, {"x": {"shape": [5], "domain": {"low": -5, "high": 5}}}),
        _row(
            "range",
            "shifted",
            lambda x: x < 4.5,  # 3.7 standard deviations: no point lies beyond four
            {"x": {"shape": [5], "normal": {"mean": 10, "stddev": 1.5}}},
            "sine",
        ),
        _row("step", "floor-3", lambda x: tf.floor(x) == 3.0, base="sine"),
        _row("step", "round-4", lambda x: tf.round(x) == -4.0),
        _row("step", "ceil-5", lambda x: tf.math.ceil(x) == 5.0),
        _row("step", "modulo", lambda x: tf.math.floormod(x, 1.0) < 1e-5, base="sine"),
    ]
    return rows


ROWS = {row.name: row for row in _rows()} | FIRST_WRITTEN
WRITTEN = ROWS | PAIRS | FRESH
