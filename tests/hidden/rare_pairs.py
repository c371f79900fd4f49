"""Gradients that are wrong behind one condition, as people write conditions: 32 kinds of five.

Each has a right twin, which is the same with a factor of one. They were written before the code that looks
for them was, and `python -m tests.hidden run` and `search` try them all. The NumPy ones are in `rare_numpy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.hidden.hidden_kinds import RIGHT, Written, scaled, when
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


def _with(
    condition: Callable[..., Any], base: Any = tf.sin, slope: Any = tf.cos
) -> Callable[[float], Callable[..., Any]]:
    """Return what makes `base(x)` with further inputs on which only the gradient's factor depends."""

    def make(factor: float) -> Callable[..., Any]:
        @tf.custom_gradient
        def function(x: Any, *others: Any) -> Any:
            def gradient(dy: Any) -> Any:
                own = tf.where(condition(*others), tf.cast(factor, x.dtype), _one(x))
                return (dy * slope(x) * own, *([None] * len(others)))

            return base(x), gradient

        return function

    return make


def _pulled(pull: Callable[..., Any], forward: Any) -> Callable[[float], Callable[..., Any]]:
    """Return `forward` with a gradient `pull(x, dy, is_right)`."""

    def make(factor: float) -> Callable[..., Any]:
        @tf.custom_gradient
        def function(x: Any) -> Any:
            return forward(x), lambda dy: pull(x, dy, is_right=factor == RIGHT)

        return function

    return make


# Small-argument series beside closed forms.


def _series(
    near: float, forward: Any, far: Any, right: Any, wrong: Any
) -> Callable[[float], Callable[..., Any]]:
    def pull(x: Any, dy: Any, *, is_right: bool) -> Any:
        is_near = tf.abs(x) < near
        safe = tf.where(is_near, tf.ones_like(x), x)
        return dy * tf.where(is_near, (right if is_right else wrong)(x), far(safe))

    def whole(x: Any) -> Any:
        is_zero = tf.equal(x, 0.0)
        safe = tf.where(is_zero, tf.ones_like(x), x)
        return tf.where(is_zero, tf.cast(forward[1], x.dtype), forward[0](safe))

    return _pulled(pull, whole)


_SINC = (lambda x: tf.sin(x) / x, 1.0)
_EXPM1 = (lambda x: tf.math.expm1(x) / x, 1.0)
_LOG1P = (lambda x: tf.math.log1p(x) / x, 1.0)
_TANHC = (lambda x: tf.tanh(x) / x, 1.0)
_ATANC = (lambda x: tf.atan(x) / x, 1.0)

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
    return (
        -dy * tf.sin(x)
        if is_right
        else -dy
        * tf.math.divide_no_nan(tf.sin(x) ** 2, tf.sin(x))
        * tf.where(tf.equal(tf.cos(x), 1.0), x / x, tf.ones_like(x))
    )


# Scatters and segments.


def _scatter(factor: float, how: str) -> Callable[..., Any]:
    """A gather whose gradient overwrites where indices repeat, rather than adding."""

    @tf.custom_gradient
    def function(x: Any, ids: Any) -> Any:
        def gradient(dy: Any) -> Any:
            if factor == RIGHT:
                return tf.math.unsorted_segment_sum(dy, ids, 12), None
            if how == "update":
                return tf.tensor_scatter_nd_update(tf.zeros([12], x.dtype), ids[:, None], dy), None
            if how == "max":
                largest = tf.math.unsorted_segment_max(dy, ids, 12)
                return tf.where(largest < -1e300, tf.zeros_like(largest), largest), None
            if how == "first":
                return tf.one_hot(ids[0], 12, dtype=x.dtype) * dy[0] + tf.math.unsorted_segment_sum(
                    dy[1:] * tf.cast(ids[1:] != ids[0], x.dtype), ids[1:], 12
                ), None
            if how == "neighbours":
                same = tf.concat([[False], ids[1:] == ids[:-1]], 0)
                return tf.math.unsorted_segment_sum(tf.where(same, tf.zeros_like(dy), dy), ids, 12), None
            is_all = tf.reduce_all(ids == ids[0])
            return tf.math.unsorted_segment_sum(dy, ids, 12) * tf.where(is_all, 1.5 * _one(x), _one(x)), None

        return tf.gather(tf.sin(x) * 0.0 + x, ids), gradient

    return function


def _ids(low: int = 0, high: int = 12, count: int = 3) -> Mapping[str, Any]:
    return {
        "x": {"shape": [12]},
        "ids": {"shape": [count], "dtype": "int32", "integers": {"low": low, "high": high}},
    }


# Ties.


def _max_share(factor: float) -> Any:
    @tf.custom_gradient
    def function(x: Any) -> Any:
        y = tf.reduce_max(x, axis=-1, keepdims=True)

        def gradient(dy: Any) -> Any:
            mask = tf.cast(tf.equal(x, y), x.dtype)
            return dy * (mask if factor != RIGHT else mask / tf.reduce_sum(mask, -1, keepdims=True))

        return y, gradient

    return function


def _pairwise(factor: float) -> Any:
    """Squared distances of rows, with a factor where two rows are the same."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        apart = x[:, None] - x[None]

        def gradient(dy: Any) -> Any:
            zero = tf.reduce_any(tf.reduce_sum(apart**2, -1) + tf.eye(4, dtype=x.dtype) == 0.0)
            own = tf.where(zero, tf.cast(factor, x.dtype), _one(x))
            flow = 2.0 * (dy + tf.transpose(dy))[..., None] * apart
            return own * tf.reduce_sum(flow, 1)

        return tf.reduce_sum(apart**2, -1), gradient

    return function


def _distinct(x: Any) -> Any:
    return tf.reduce_any(tf.equal(tf.sort(x)[1:], tf.sort(x)[:-1]))


# Variables, draws, Python inside a graph, second order.


def _with_weight(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    def make(factor: float) -> Any:
        weight = tf.Variable([0.5, -0.3, 0.2], dtype=tf.float64, name="weight")

        @tf.custom_gradient
        def inner(x: Any, w: Any) -> Any:
            def gradient(dy: Any) -> Any:
                own = tf.where(condition(w), tf.cast(factor, x.dtype), _one(x))
                return own * dy * tf.cos(x) * w, dy * tf.sin(x)

            return tf.sin(x) * w, gradient

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

    def make(factor: float) -> Any:
        @tf.custom_gradient
        def function(x: Any) -> Any:
            def slope(value: Any) -> Any:
                if condition(value.numpy()):
                    return factor * tf.cos(value)
                return tf.cos(value)

            def gradient(dy: Any) -> Any:
                own = tf.py_function(slope, [x], x.dtype)
                own.set_shape(x.shape)
                return dy * own

            return tf.sin(x), gradient

        return function

    return make


def _twice(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    """Return a function whose gradient is right, and whose gradient's gradient is wrong at places."""

    def make(factor: float) -> Any:
        @tf.custom_gradient
        def slope(x: Any) -> Any:
            def gradient(dy: Any) -> Any:
                return -dy * tf.sin(x) * tf.where(condition(x), tf.cast(factor, x.dtype), _one(x))

            return tf.cos(x), gradient

        @tf.custom_gradient
        def function(x: Any) -> Any:
            return tf.sin(x), lambda dy: dy * slope(x)

        return function

    return make


def _helper(
    first: Callable[[Any], Any], second: Callable[[Any], Any], limit: float
) -> Callable[[float], Any]:
    """Return a gradient that calls one helper twice; only the second call's true side is wrong."""

    def make(factor: float) -> Any:
        def large(value: Any, own: Any) -> Any:
            return tf.where(value > limit, own, tf.ones_like(own))

        @tf.custom_gradient
        def function(x: Any) -> Any:
            def gradient(dy: Any) -> Any:
                one = _one(x)
                return dy * tf.cos(x) * large(first(x), one) * large(second(x), tf.cast(factor, x.dtype))

            return tf.sin(x), gradient

        return function

    return make


def _cond_chain(*conditions: Callable[[Any], Any]) -> Factor:
    def factor_of(x: Any, factor: Any) -> Any:
        def inner(rest: tuple[Callable[[Any], Any], ...]) -> Any:
            if not rest:
                return factor
            return tf.cond(rest[0](x), lambda: inner(rest[1:]), lambda: _one(x))

        return inner(conditions)

    return factor_of


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
    def make(factor: float) -> Any:
        @tf.custom_gradient
        def function(z: Any) -> Any:
            def gradient(dy: Any) -> Any:
                own = tf.where(condition(z), tf.cast(factor, tf.float64), tf.ones([], tf.float64))
                return dy * tf.math.conj(2.0 * z) * tf.cast(own, z.dtype)

            return z * z, gradient

        return function

    return make


def _batch(condition: Callable[[Any], Any]) -> Callable[[float], Any]:
    return scaled(lambda x, factor: tf.where(condition(x), factor, _one(x)))


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
_PY = {"modes": ["graph"]}

_BY_KIND: dict[str, list[tuple[Any, ...]]] = {
    "table": [
        (scaled(_table(10, lambda x: x + 5.0, 9)), X),
        (scaled(_table(16, lambda x: x * 4.0 + 8.0, 15)), X),
        (scaled(_table(40, lambda x: x * 5.0 + 20.0, 39)), X),
        (scaled(_table(8, lambda x: tf.reduce_sum(x) + 4.0, 0)), MANY),
        (scaled(_table(64, lambda x: x * 64.0, 63)), _uniform(0.0, 1.0)),
    ],
    "scatter": [
        (lambda f: _scatter(f, "update"), _ids()),
        (lambda f: _scatter(f, "max"), _ids(0, 12, 2)),
        (lambda f: _scatter(f, "first"), _ids()),
        (lambda f: _scatter(f, "neighbours"), _ids()),
        (lambda f: _scatter(f, "all"), _ids(0, 12, 4)),
    ],
    "nan at zero": [
        (_pulled(_norm_pull, lambda x: tf.sqrt(tf.reduce_sum(x * x) + 1e-4)), X),
        (_pulled(_square_by_log, tf.square), X),
        (_pulled(_softabs, lambda x: tf.abs(x) ** 3), X),
        (_pulled(_ratio, lambda x: x**4), MANY),
        (_pulled(_cosine, tf.cos), X),
    ],
    "series": [
        (
            _series(
                1e-4, _SINC, lambda x: (tf.cos(x) - tf.sin(x) / x) / x, lambda x: -x / 3.0, lambda x: -x / 2.0
            ),
            X,
        ),
        (
            _series(
                1e-3,
                _EXPM1,
                lambda x: (tf.exp(x) - tf.math.expm1(x) / x) / x,
                lambda x: 0.5 + x / 3.0 + x * x / 8.0,
                lambda x: 0.5 + x / 2.0,
            ),
            X,
        ),
        (
            _series(
                1e-3,
                _LOG1P,
                lambda x: (1.0 / (1.0 + x) - tf.math.log1p(x) / x) / x,
                lambda x: -0.5 + 2.0 * x / 3.0 - 0.75 * x * x,
                lambda x: -0.5 + x / 3.0,
            ),
            {"x": {"shape": [6], "uniform": {"low": -0.5, "high": 2.0}}},
        ),
        (
            _series(
                1e-2,
                _TANHC,
                lambda x: (1.0 - tf.tanh(x) ** 2 - tf.tanh(x) / x) / x,
                lambda x: -2.0 * x / 3.0 + 8.0 * x**3 / 15.0,
                lambda x: -x / 3.0,
            ),
            X,
        ),
        (
            _series(
                1e-5,
                _ATANC,
                lambda x: (1.0 / (1.0 + x * x) - tf.atan(x) / x) / x,
                lambda x: -2.0 * x / 3.0,
                lambda x: 2.0 * x / 3.0,
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
        (scaled(_cond_chain(lambda x: x[2] > 3.5, lambda x: x[3] > 3.5)), X),
        (scaled(_cond_chain(lambda x: tf.reduce_min(x) > 0.0, lambda x: tf.reduce_max(x) > 4.0)), X),
        (scaled(_cond_chain(lambda x: x[0] < -3.0, lambda x: x[1] < -3.0, lambda x: tf.abs(x[2]) < 1e-3)), X),
        (scaled(_cond_chain(lambda x: tf.norm(x) < 0.3, lambda x: x[0] > x[1])), X),
        (scaled(_cond_chain(lambda x: x[0] > 3.0, lambda x: (x[1] > 1.0) & (x[1] < 1.0001))), X),
    ],
    "tie": [
        (_max_share, ROWS),
        (_pairwise, ROWS),
        (scaled(when(_distinct)), X),
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
        (_batch(lambda x: tf.shape(x)[0] == 1), {"x": {"shape": [3, 2]}}),
        (_batch(lambda x: tf.reduce_all(x[0] == x[1])), ROWS),
        (_batch(lambda x: tf.reduce_any(tf.reduce_all(x == 0.0, 1))), ROWS),
        (_batch(lambda x: tf.reduce_all(x == x[:1])), ROWS),
        (_batch(lambda x: tf.reduce_all(tf.reduce_sum(x, 1) > 0.0)), {"x": {"shape": [10, 2]}}),
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
