"""Gradients that are wrong behind one condition, as people write conditions: 32 kinds of five.

Each has a right twin, which is the same with a factor of one. They were written before the code that looks
for them was, and `python -m tests.hidden run` and `search` try them all. The NumPy ones are in `rare_numpy`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.hidden.hidden_kinds import RIGHT, Written, chain, nonzero, own, scaled, share_of_largest, when
from tests.hidden.rare_numpy import NUMPY_PAIRS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Factor = Callable[..., Any]


def _one(x: Any) -> Any:
    return tf.ones([], x.dtype)


def _table(entries: int, index: Callable[[Any], Any], wrong: int) -> Factor:
    """Return a factor that is read from a constant table."""

    def factor_of(x: Any, factor: Any) -> Any:
        table = tf.tensor_scatter_nd_update(tf.ones([entries], x.dtype), [[wrong]], [factor])
        return tf.gather(table, tf.clip_by_value(tf.cast(tf.floor(index(x)), tf.int32), 0, entries - 1))

    return factor_of


def _with(condition: Callable[..., Any]) -> Callable[[float], Any]:
    """Return what makes a sine with further inputs on which only the gradient's factor depends."""

    def pull(dy: Any, x: Any, *rest: Any) -> Any:
        *others, factor = rest
        off = tf.where(condition(*others), tf.cast(factor, x.dtype), _one(x))
        return (dy * tf.cos(x) * off, *([None] * len(others)))

    return own(lambda x, *_: tf.sin(x), pull)


def _pulled(pull: Callable[..., Any], forward: Any) -> Callable[[float], Callable[..., Any]]:
    """Return `forward` with a gradient `pull(x, dy, is_right)`."""
    return own(forward, lambda dy, x, factor: pull(x, dy, is_right=factor == RIGHT))


# Small-argument series beside closed forms, all of f(x) / x with the value 1 at zero.


def _series(near: float, base: Any, slope: Any, right: Any, wrong: Any) -> Callable[[float], Any]:
    """Return what makes base(x) / x, with one series near zero, or another, for its slope."""

    def pull(x: Any, dy: Any, *, is_right: bool) -> Any:
        is_near = tf.abs(x) < near
        safe = tf.where(is_near, tf.ones_like(x), x)
        far = (slope(safe) - base(safe) / safe) / safe
        return dy * tf.where(is_near, (right if is_right else wrong)(x), far)

    def whole(x: Any) -> Any:
        safe = nonzero(x)
        return tf.where(tf.equal(x, 0.0), tf.ones_like(x), base(safe) / safe)

    return _pulled(pull, whole)


# Guards at zero.


def _norm_pull(x: Any, dy: Any, *, is_right: bool) -> Any:
    y = tf.sqrt(tf.reduce_sum(x * x) + 1e-4)
    return dy * x / y if is_right else dy * (x / tf.norm(x)) * (tf.norm(x) / y)


def _square_by_log(x: Any, dy: Any, *, is_right: bool) -> Any:
    return 2.0 * dy * x if is_right else dy * x * x * (2.0 / x)


def _softabs(x: Any, dy: Any, *, is_right: bool) -> Any:
    return dy * 3.0 * x * tf.abs(x) if is_right else dy * 3.0 * x**3 / tf.abs(x)


def _ratio(x: Any, dy: Any, *, is_right: bool) -> Any:
    y = x**4
    return 4.0 * dy * x**3 if is_right else 4.0 * dy * y / x


def _cosine(x: Any, dy: Any, *, is_right: bool) -> Any:
    if is_right:
        return -dy * tf.sin(x)
    nan_at_zero = tf.where(tf.equal(tf.cos(x), 1.0), x / x, tf.ones_like(x))
    return -dy * tf.math.divide_no_nan(tf.sin(x) ** 2, tf.sin(x)) * nan_at_zero


# Scatters and segments.


def _first_alone(dy: Any, ids: Any) -> Any:
    others = tf.cast(ids[1:] != ids[0], dy.dtype)
    rest = tf.math.unsorted_segment_sum(dy[1:] * others, ids[1:], 12)
    return tf.one_hot(ids[0], 12, dtype=dy.dtype) * dy[0] + rest


def _largest_alone(dy: Any, ids: Any) -> Any:
    largest = tf.math.unsorted_segment_max(dy, ids, 12)
    return tf.where(largest < -1e300, tf.zeros_like(largest), largest)


def _without_neighbours(dy: Any, ids: Any) -> Any:
    same = tf.concat([[False], ids[1:] == ids[:-1]], 0)
    return tf.math.unsorted_segment_sum(tf.where(same, tf.zeros_like(dy), dy), ids, 12)


def _more_if_equal(dy: Any, ids: Any) -> Any:
    is_all = tf.reduce_all(ids == ids[0])
    return tf.math.unsorted_segment_sum(dy, ids, 12) * tf.where(is_all, 1.5 * _one(dy), _one(dy))


def _scatter(wrong: Callable[[Any, Any], Any]) -> Callable[[float], Any]:
    """A gather whose gradient overwrites where indices repeat, or the like, rather than adding."""

    def pull(dy: Any, _x: Any, ids: Any, factor: float) -> Any:
        return (tf.math.unsorted_segment_sum(dy, ids, 12) if factor == RIGHT else wrong(dy, ids)), None

    return own(lambda x, ids: tf.gather(tf.sin(x) * 0.0 + x, ids), pull)


def _ids(low: int = 0, high: int = 12, count: int = 3) -> Mapping[str, Any]:
    return {
        "x": {"shape": [12]},
        "ids": {"shape": [count], "dtype": "int32", "integers": {"low": low, "high": high}},
    }


# Ties.


def _pairwise(dy: Any, x: Any, factor: float) -> Any:
    """Pull back through squared distances of rows, with a factor where two rows are the same."""
    apart = x[:, None] - x[None]
    zero = tf.reduce_any(tf.reduce_sum(apart**2, -1) + tf.eye(4, dtype=x.dtype) == 0.0)
    flow = 2.0 * (dy + tf.transpose(dy))[..., None] * apart
    return tf.where(zero, tf.cast(factor, x.dtype), _one(x)) * tf.reduce_sum(flow, 1)


# Variables, draws, Python inside a graph, second order.


def _with_weight(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    def pull(dy: Any, x: Any, w: Any, factor: float) -> Any:
        off = tf.where(condition(w), tf.cast(factor, x.dtype), _one(x))
        return off * dy * tf.cos(x) * w, dy * tf.sin(x)

    def make(factor: float) -> Any:
        weight = tf.Variable([0.5, -0.3, 0.2], dtype=tf.float64, name="weight")
        inner = own(lambda x, w: tf.sin(x) * w, pull)(factor)
        return lambda x: inner(x, weight.read_value())

    return make


def _dropped(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    def make(factor: float) -> Any:
        inner = scaled(when(condition))(factor)
        return lambda x: inner(x) * tf.cast(tf.random.uniform([6], dtype=tf.float64) > 0.2, tf.float64)

    return make


def _noisy(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    def make(factor: float) -> Any:
        inner = scaled(when(condition))(factor)
        return lambda x: inner(x + 0.1 * tf.random.normal([6], dtype=tf.float64))

    return make


def _by_python(condition: Callable[[Any], bool]) -> Callable[[float], Any]:
    """Return a gradient that runs Python eagerly, inside `tf.py_function`."""

    def pull(dy: Any, x: Any, factor: float) -> Any:
        def slope(value: Any) -> Any:
            if condition(value.numpy()):
                return factor * tf.cos(value)
            return tf.cos(value)

        return dy * tf.ensure_shape(tf.py_function(slope, [x], x.dtype), x.shape)

    return own(tf.sin, pull)


def _twice(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    """Return a function whose gradient is right, and whose gradient's gradient is wrong at places."""
    slope = scaled(when(condition), tf.cos, lambda x: -tf.sin(x))
    return own(tf.sin, lambda dy, x, factor: dy * slope(factor)(x))


def _helper(first: Callable[[Any], Any], second: Callable[[Any], Any], limit: float) -> Factor:
    """Return a gradient that calls one helper twice; only the second call's true side is wrong."""

    def large(value: Any, off: Any) -> Any:
        return tf.where(value > limit, off, tf.ones_like(off))

    return scaled(lambda x, factor: large(first(x), _one(x)) * large(second(x), factor))


def _loop_until(limit: float, rounds: int) -> Factor:
    def factor_of(x: Any, factor: Any) -> Any:
        count, _ = tf.while_loop(
            lambda count, value: (value > limit) & (count < 30),
            lambda count, value: (count + 1, value * 0.7),
            [0, tf.reduce_sum(x * x)],
        )
        return tf.where(count == rounds, factor, _one(x))

    return factor_of


def _complex(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    def pull(dy: Any, z: Any, factor: float) -> Any:
        off = tf.where(condition(z), tf.cast(factor, tf.float64), tf.ones([], tf.float64))
        return dy * tf.math.conj(2.0 * z) * tf.cast(off, z.dtype)

    return own(tf.square, pull)


X = {"x": {"shape": [6]}}
ROWS = {"x": {"shape": [4, 3]}}
MANY = {"x": {"shape": [24]}}
Z = {"z": {"shape": [5], "dtype": "complex128"}}


def _flags(count: int) -> Mapping[str, Any]:
    return {"x": {"shape": [4]}, "flags": {"shape": [count], "dtype": "bool"}}


def _code(low: int, high: int, name: str = "code") -> Mapping[str, Any]:
    return {
        "x": {"shape": [4]},
        name: {"shape": [], "dtype": "int32", "integers": {"low": low, "high": high}},
    }


def _choice(values: list[Any], dtype: str) -> Mapping[str, Any]:
    return {"x": {"shape": [4]}, "mode": {"shape": [], "dtype": dtype, "choice": values}}


def _probs(count: int) -> Mapping[str, Any]:
    return {"x": {"shape": [count], "probabilities": True}}


def _uniform(low: float, high: float) -> Mapping[str, Any]:
    return {"x": {"shape": [5], "uniform": {"low": low, "high": high}}}


_PATTERN = np.array([True, False, True, True, False, False])
_DATE = {
    "x": {"shape": [4]},
    "month": {"shape": [], "dtype": "int32", "integers": {"low": 1, "high": 13}},
    "day": {"shape": [], "dtype": "int32", "integers": {"low": 1, "high": 32}},
}
_WORDS = ["linear", "cubic", "nearest", "lanczos", "area", "gaussian"]
_SQUARE: Any = (lambda x: x * x, lambda x: 2.0 * x)
_SECOND = {"second_order": True}

_BY_KIND: dict[str, list[tuple[Any, ...]]] = {
    "table": [
        (scaled(_table(10, lambda x: x + 5.0, 9)), X),
        (scaled(_table(16, lambda x: x * 4.0 + 8.0, 15)), X),
        (scaled(_table(40, lambda x: x * 5.0 + 20.0, 39)), X),
        (scaled(_table(8, lambda x: tf.reduce_sum(x) + 4.0, 0)), MANY),
        (scaled(_table(64, lambda x: x * 64.0, 63)), _uniform(0.0, 1.0)),
    ],
    "scatter": [
        (
            _scatter(lambda dy, ids: tf.tensor_scatter_nd_update(tf.zeros([12], dy.dtype), ids[:, None], dy)),
            _ids(),
        ),
        (_scatter(_largest_alone), _ids(0, 12, 2)),
        (_scatter(_first_alone), _ids()),
        (_scatter(_without_neighbours), _ids()),
        (_scatter(_more_if_equal), _ids(0, 12, 4)),
    ],
    "nan at zero": [
        (_pulled(_norm_pull, lambda x: tf.sqrt(tf.reduce_sum(x * x) + 1e-4)), X),
        (_pulled(_square_by_log, tf.square), X),
        (_pulled(_softabs, lambda x: tf.abs(x) ** 3), X),
        (_pulled(_ratio, lambda x: x**4), MANY),
        (_pulled(_cosine, tf.cos), X),
    ],
    "series": [
        (_series(1e-4, tf.sin, tf.cos, lambda x: -x / 3.0, lambda x: -x / 2.0), X),
        (
            _series(
                1e-3, tf.math.expm1, tf.exp, lambda x: 0.5 + x / 3.0 + x * x / 8.0, lambda x: 0.5 + x / 2.0
            ),
            X,
        ),
        (
            _series(
                1e-3,
                tf.math.log1p,
                lambda x: 1.0 / (1.0 + x),
                lambda x: -0.5 + 2.0 * x / 3.0 - 0.75 * x * x,
                lambda x: -0.5 + x / 3.0,
            ),
            {"x": {"shape": [6], "uniform": {"low": -0.5, "high": 2.0}}},
        ),
        (
            _series(
                1e-2,
                tf.tanh,
                lambda x: 1.0 - tf.tanh(x) ** 2,
                lambda x: -2.0 * x / 3.0 + 8.0 * x**3 / 15.0,
                lambda x: -x / 3.0,
            ),
            X,
        ),
        (
            _series(
                *(1e-5, tf.atan, lambda x: 1.0 / (1.0 + x * x)),
                *(lambda x: -2.0 * x / 3.0, lambda x: 2.0 * x / 3.0),
            ),
            X,
        ),
    ],
    "flags": [
        (_with(lambda flags: tf.reduce_all(flags == _PATTERN)), _flags(6)),
        (_with(tf.reduce_all), _flags(6)),
        (_with(lambda flags: ~tf.reduce_any(flags)), _flags(8)),
        (_with(lambda flags: flags[0] & ~flags[1] & flags[2]), _flags(3)),
        (_with(lambda flags: tf.reduce_sum(tf.cast(flags, tf.int32)) == 5), _flags(6)),
    ],
    "code": [
        (_with(lambda code: code == 404), _code(0, 1000)),
        (_with(lambda n: n % 97 == 0), _code(1, 1000, "n")),
        (_with(lambda month, day: (month == 2) & (day == 29)), _DATE),
        (_with(lambda code: code == 99_999), _code(0, 100_000)),
        (_with(lambda code: (code >= 500) & (code < 504)), _code(100, 600)),
    ],
    "choice": [
        (_with(lambda mode: mode == 7), _choice(list(range(12)), "int32")),
        (_with(lambda mode: mode > 99), _choice([1, 2, 5, 10, 50, 100], "int32")),
        (_with(lambda mode: mode == 3), _choice([0, 1, 2, 3, 4, 5], "int64")),
        (
            _with(lambda mode, axis: (mode == 2) & (axis == 1)),
            {**_choice([0, 1, 2, 3], "int32"), "axis": {"shape": [], "dtype": "int32", "choice": [0, 1, 2]}},
        ),
        (
            _with(lambda mode: tf.reduce_all(mode == 1)),
            {"x": {"shape": [4]}, "mode": {"shape": [4], "dtype": "int32", "choice": [0, 1, 2]}},
        ),
    ],
    "string": [
        (_with(lambda mode: mode == "lanczos"), _choice(_WORDS, "string")),
        (_with(lambda mode: tf.strings.length(mode) == 4), _choice(_WORDS, "string")),
        (_with(lambda mode: tf.strings.regex_full_match(mode, "g.*")), _choice(_WORDS, "string")),
        (_with(lambda mode: mode == ""), _choice(["same", "valid", "full", "causal", ""], "string")),
        (
            _with(lambda mode: tf.reduce_all(mode == "b")),
            {"x": {"shape": [4]}, "mode": {"shape": [3], "dtype": "string", "choice": ["a", "b", "c"]}},
        ),
    ],
    "probabilities": [
        (scaled(when(lambda x: tf.reduce_max(x) > 0.95)), _probs(5)),
        (scaled(when(lambda x: tf.reduce_min(x) > 0.17)), _probs(5)),
        (scaled(when(lambda x: -tf.reduce_sum(x * tf.math.log(x + 1e-300)) < 0.2)), _probs(6)),
        (scaled(when(lambda x: x < 1e-5)), _probs(4)),
        (scaled(when(lambda x: x[0] > 0.9)), _probs(8)),
    ],
    "variable": [
        (_with_weight(lambda w: tf.reduce_max(w) > 1.0), {"x": {"shape": [3]}}, {"variables": True}),
        (_with_weight(lambda w: tf.reduce_sum(w) < 0.0), {"x": {"shape": [3]}}, {"variables": True}),
        (_with_weight(lambda w: tf.reduce_any(w == 0.0)), {"x": {"shape": [3]}}, {"variables": True}),
        (_with_weight(lambda w: tf.norm(w) < 0.05), {"x": {"shape": [3]}}, {"variables": True}),
        (_with_weight(lambda w: w[0] < w[1]), {"x": {"shape": [3]}}, {"variables": True}),
    ],
    "narrow band": [
        (scaled(when(lambda x: (x > 2.0) & (x < 2.0002))), X),
        (scaled(when(lambda x: tf.abs(x - 1.25) < 1e-7)), X),
        (scaled(when(lambda x: tf.abs(tf.reduce_sum(x) - 3.0) < 1e-5)), MANY),
        (scaled(when(lambda x: (x[0] * x[1] > 1.0) & (x[0] * x[1] < 1.00001))), X),
        (scaled(when(lambda x: (tf.exp(x) > 7.0) & (tf.exp(x) < 7.001))), X),
    ],
    "nested": [
        (scaled(chain(lambda x: x[2] > 3.5, lambda x: x[3] > 3.5)), X),
        (scaled(chain(lambda x: tf.reduce_min(x) > 0.0, lambda x: tf.reduce_max(x) > 4.0)), X),
        (scaled(chain(lambda x: x[0] < -3.0, lambda x: x[1] < -3.0, lambda x: tf.abs(x[2]) < 1e-3)), X),
        (scaled(chain(lambda x: tf.norm(x) < 0.3, lambda x: x[0] > x[1])), X),
        (scaled(chain(lambda x: x[0] > 3.0, lambda x: (x[1] > 1.0) & (x[1] < 1.0001))), X),
    ],
    "tie": [
        (own(lambda x: tf.reduce_max(x, -1, keepdims=True), partial(share_of_largest, axis=-1)), ROWS),
        (own(lambda x: tf.reduce_sum((x[:, None] - x[None]) ** 2, -1), _pairwise), ROWS),
        (scaled(when(lambda x: tf.reduce_any(tf.equal(tf.sort(x)[1:], tf.sort(x)[:-1])))), X),
        (scaled(when(lambda x: tf.reduce_any(tf.reduce_max(x, 1) == tf.reduce_min(x, 1)))), ROWS),
        (scaled(when(lambda x: x[0] == -x[1])), X),
    ],
    "order": [
        (scaled(when(lambda x: tf.reduce_all(x[1:] > x[:-1]))), {"x": {"shape": [8]}}),
        (scaled(when(lambda x: tf.reduce_all(tf.argsort(x) == [3, 1, 0, 2, 5, 4]))), X),
        (scaled(when(lambda x: tf.argmax(x) == 23)), MANY),
        (scaled(when(lambda x: tf.reduce_all(tf.argmax(x, 1) == 2))), {"x": {"shape": [5, 3]}}),
        (scaled(when(lambda x: tf.reduce_all(tf.sign(x[1:]) != tf.sign(x[:-1])))), {"x": {"shape": [12]}}),
    ],
    "far": [
        (scaled(when(lambda x: x > 5.5), *_SQUARE), X),
        (scaled(when(lambda x: tf.abs(x) < 1e-8), *_SQUARE), X),
        (scaled(when(lambda x: tf.exp(x) > 1e4), tf.nn.softplus, tf.sigmoid), X),
        (scaled(when(lambda x: (x != 0.0) & (tf.abs(x) < 1e-12))), X),
        (scaled(when(lambda x: x > 88.0), *_SQUARE), X),
    ],
    "draw": [
        (_dropped(lambda x: x > 3.5), X),
        (_dropped(lambda x: tf.reduce_sum(x) > 9.0), X),
        (_dropped(lambda x: x == 0.0), X),
        (_noisy(lambda x: x < -3.5), X),
        (_noisy(lambda x: tf.reduce_min(x) > 0.0), X),
    ],
    "python": [
        (_by_python(lambda x: x.max() > 3.5), X),
        (_by_python(lambda x: bool((x > 0.0).all())), {"x": {"shape": [10]}}),
        (_by_python(lambda x: bool((x == 0.0).any())), X),
        (_by_python(lambda x: 1.0 < float(x[0]) < 1.001), X),
        (_by_python(lambda x: int(np.argmax(x)) == 4 and int(np.argmin(x)) == 1), X),
    ],
    "batch": [
        (scaled(when(lambda x: tf.shape(x)[0] == 1)), {"x": {"shape": [3, 2]}}),
        (scaled(when(lambda x: tf.reduce_all(x[0] == x[1]))), ROWS),
        (scaled(when(lambda x: tf.reduce_any(tf.reduce_all(x == 0.0, 1)))), ROWS),
        (scaled(when(lambda x: tf.reduce_all(x == x[:1]))), ROWS),
        (scaled(when(lambda x: tf.reduce_all(tf.reduce_sum(x, 1) > 0.0))), {"x": {"shape": [10, 2]}}),
    ],
    "second order": [
        (_twice(lambda x: x > 3.5), {"x": {"shape": [3]}}, _SECOND),
        (_twice(lambda x: x == 1.0), {"x": {"shape": [3]}}, _SECOND),
        (_twice(lambda x: tf.reduce_all(x > 0.0)), {"x": {"shape": [6]}}, _SECOND),
        (_twice(lambda x: (x > 1.0) & (x < 1.0005)), {"x": {"shape": [3]}}, _SECOND),
        (_twice(lambda x: tf.abs(x) < 1e-4), {"x": {"shape": [3]}}, _SECOND),
    ],
    "rounding": [
        (scaled(when(lambda x: tf.math.floormod(x, 2.0) > 1.9999)), X),
        (scaled(when(lambda x: tf.cast(tf.floor(x), tf.int32) % 7 == 5)), X),
        (scaled(when(lambda x: tf.round(x * 10.0) == 33.0)), X),
        (scaled(when(lambda x: x == tf.floor(x))), X),
        (scaled(when(lambda x: tf.reduce_sum(tf.cast(x > 0.0, tf.int32)) == 11)), {"x": {"shape": [12]}}),
    ],
    "two": [
        (scaled(when(lambda x: tf.abs(x[0] - x[1]) < 1e-5)), ROWS),
        (scaled(when(lambda x: x[0] > 10.0 * tf.abs(x[1]) + 3.0)), X),
        (scaled(when(lambda x: tf.reduce_sum(x[0] * x[1]) < -6.0)), ROWS),
        (scaled(when(lambda x: (x[0] > 2.2) & (x[1] < -2.2) & (x[2] > 2.2))), X),
        (scaled(when(lambda x: tf.abs(x[0] + x[1] - x[2]) < 1e-9)), X),
    ],
    "helper": [
        (_helper(lambda x: x * 3.0, lambda x: x, 3.5), X),
        (_helper(tf.reduce_sum, lambda x: tf.reduce_sum(x) - 8.0, 0.0), X),
        (_helper(tf.abs, lambda x: -x, 3.2), X),
        (_helper(lambda x: x[0], lambda x: x[0] * x[1], 6.0), X),
        (_helper(tf.reduce_max, tf.reduce_min, 0.0), {"x": {"shape": [9]}}),
    ],
    "loop": [
        (scaled(_loop_until(1.0, 0)), X),
        (scaled(_loop_until(1.0, 1)), X),
        (scaled(_loop_until(2.0, 9)), X),
        (scaled(_loop_until(0.1, 30)), X),
        (scaled(_loop_until(4.0, 3)), MANY),
    ],
    "complex": [
        (_complex(lambda z: tf.math.real(z) > 3.5), Z),
        (_complex(lambda z: tf.math.imag(z) == 0.0), Z),
        (_complex(lambda z: tf.abs(z) < 1e-3), Z),
        (_complex(lambda z: tf.reduce_all(tf.math.real(z) > 0.0)), Z),
        (_complex(lambda z: tf.abs(tf.math.angle(z)) < 1e-4), Z),
    ],
}


def _rows() -> list[Written]:
    rows = list(NUMPY_PAIRS)
    for kind, pairs in _BY_KIND.items():
        for index, (make, inputs, *keys) in enumerate(pairs):
            rows.append(Written(kind, f"{kind.replace(' ', '-')}-{index}", make, inputs, *keys))
    return rows


PAIRS = {row.name: row for row in _rows()}
