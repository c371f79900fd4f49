"""More gradients that are wrong in one place alone: nested conditions, ties, indices, masks, NumPy.

Each has a right twin, which is the same with a factor of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WRONG, RIGHT = 1.5, 1.0


@dataclass(frozen=True)
class Written:
    """A planted fault.

    Attributes:
        kind: what its condition is of.
        name: unique.
        make: makes the function, of the factor; of a NumPy row, its gradient.
        inputs: as in a spec.
        keys: what else the spec says.
    """

    kind: str
    name: str
    make: Callable[[float], Any]
    inputs: Mapping[str, Any] = field(default_factory=lambda: {"x": {"shape": [6]}})
    keys: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, *, wrong: bool) -> dict[str, Any]:
        """Return the spec of the fault, or of its twin."""
        spec = {"op": self.name, "inputs": dict(self.inputs), **self.keys}
        if self.kind.startswith("numpy"):
            factor = "wrong" if wrong else "right"
            return spec | {
                "forward": "tests.hidden.hidden_faults:numpy_square",
                "gradient": {"numpy": f"tests.hidden.hidden_faults:{factor}__{self.name.replace('-', '_')}"},
                "binding": "py_func",
                "outputs": {"y": {"dtype": "float64"}},
            }
        build = {"row": self.name, "factor": WRONG if wrong else RIGHT}
        return spec | {"forward": "tests.hidden.hidden_faults:function_of", "build": build}


def own(value: Callable[..., Any], pull: Callable[..., Any]) -> Callable[[float], Any]:
    """Return what makes `value`, with a gradient of the upstream, the inputs and the factor."""

    def make(factor: float) -> Any:
        @tf.custom_gradient
        def function(*inputs: Any) -> Any:
            return value(*inputs), lambda dy: pull(dy, *inputs, factor)

        return function

    return make


def scaled(factor_of: Callable[..., Any], base: Any = tf.sin, slope: Any = tf.cos) -> Callable[[float], Any]:
    """Return what makes `base`, with a gradient that is off by a factor that depends on x."""
    return own(base, lambda dy, x, factor: dy * slope(x) * factor_of(x, tf.cast(factor, x.dtype)))


def when(condition: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a factor for where a condition holds, by `tf.where`."""
    return lambda x, factor: tf.where(condition(x), factor, tf.ones([], x.dtype))


def chain(*conditions: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a factor for where all of some conditions hold, by one `tf.cond` inside the other."""

    def factor_of(x: Any, factor: Any) -> Any:
        def inner(rest: tuple[Callable[[Any], Any], ...]) -> Any:
            if not rest:
                return factor
            return tf.cond(rest[0](x), lambda: inner(rest[1:]), lambda: tf.ones([], x.dtype))

        return inner(conditions)

    return factor_of


# Conditions inside conditions.


def _where_in_where(x: Any, factor: Any) -> Any:
    one = tf.ones([], x.dtype)
    return tf.where(x[0] > 3.0, tf.where(x[1] < -3.0, factor, one), one)


def _where_in_cond(x: Any, factor: Any) -> Any:
    one = tf.ones_like(x)
    return tf.cond(tf.reduce_sum(x) > 9.0, lambda: tf.where(x < -3.5, factor, one), lambda: one)


def _cond_in_loop(x: Any, factor: Any) -> Any:
    def body(count: Any, kept: Any) -> Any:
        found = tf.cond(x[count] > 3.5, lambda: tf.where(x[count + 1] < -3.5, factor, 1.0), lambda: kept)
        return count + 1, found

    return tf.while_loop(lambda count, _: count < 5, body, [0, tf.ones([], x.dtype)])[1]


def _loop_in_cond(x: Any, factor: Any) -> Any:
    def loop() -> Any:
        left = tf.while_loop(lambda left: left > 1.0, lambda left: [left / 2.0], [tf.reduce_sum(x)])[0]
        return tf.where(tf.abs(left - 0.75) < 1e-4, factor, tf.ones([], x.dtype))

    return tf.cond(x[0] > 4.0, loop, lambda: tf.ones([], x.dtype))


def _rounds_then(x: Any, factor: Any) -> Any:
    def body(left: Any, kept: Any) -> Any:
        return left / 2.0, tf.where(x[0] < -3.0, factor, kept)

    start = [tf.reduce_sum(x), tf.ones([], x.dtype)]
    return tf.while_loop(lambda left, _: left > 10.0, body, start)[1]


def _in_function(x: Any, factor: Any) -> Any:
    inner = tf.function(lambda x: tf.where(tf.reduce_min(x) < -4.0, factor, tf.ones([], x.dtype)))
    return tf.cond(tf.reduce_max(x) > 4.0, lambda: inner(x), lambda: tf.ones([], x.dtype))


def _in_branch_of_many(x: Any, factor: Any) -> Any:
    index = tf.cast(tf.clip_by_value(tf.floor(x[0]), 0.0, 4.0), tf.int32)
    one = tf.ones([], x.dtype)
    ones = [lambda: one] * 4
    return tf.switch_case(index, [*ones, lambda: tf.where(x[1] > 3.5, factor, one)])


def _cond_in_map(x: Any, factor: Any) -> Any:
    one = tf.ones([], x.dtype)

    def row(values: Any) -> Any:
        inner = lambda: tf.where(values[1] < -3.5, factor, one)  # noqa: E731 (as people write it)
        return tf.cond(values[0] > 3.5, inner, lambda: one)

    return tf.map_fn(row, x)[:, None]


# Order, ties and indices.


def share_of_largest(dy: Any, x: Any, factor: float, axis: Any = None) -> Any:
    """Pull back through a maximum; wrong, equal elements get the whole upstream each, not their share."""
    mask = tf.cast(tf.equal(x, tf.reduce_max(x, axis, keepdims=True)), x.dtype)
    return dy * (mask if factor != RIGHT else mask / tf.reduce_sum(mask, axis, keepdims=True))


def _is_sorted(x: Any) -> Any:
    return tf.reduce_all(x[1:] >= x[:-1])


def _table(x: Any, factor: Any) -> Any:
    ones = [tf.ones([], x.dtype)] * 9
    table = tf.stack([*ones[:8], factor, *ones[:1]])
    return tf.gather(table, tf.cast(tf.clip_by_value(tf.floor(x), -5.0, 4.0), tf.int32) + 5)


def _one_hot(x: Any, factor: Any) -> Any:
    index = tf.cast(tf.clip_by_value(tf.floor(x), -4.0, 4.0), tf.int32) + 4
    own = tf.one_hot(index, 9, dtype=x.dtype)[..., 8]
    return 1.0 + own * (factor - 1.0)


# Guards against NaN.


def nonzero(x: Any) -> Any:
    """Return x with ones for zeros."""
    return tf.where(tf.equal(x, 0.0), tf.ones_like(x), x)


def near_zero(x: Any, series: Any, far: Callable[[Any], Any]) -> Any:
    """Return a series near zero, and a function elsewhere."""
    is_near = tf.abs(x) < 1e-2
    return tf.where(is_near, series, far(tf.where(is_near, tf.ones_like(x), x)))


def _sinc(dy: Any, x: Any, factor: float) -> Any:
    """Pull back through sin(x)/x; it may be NaN at zero."""
    series = x * (-1.0 / 3.0 + x**2 / 30.0 - x**4 / 840.0)
    slope = near_zero(x, series, lambda far: (tf.cos(far) - tf.sin(far) / far) / far)
    return dy * (slope if factor == RIGHT else slope / x * x)


def _expm1_over_x(dy: Any, x: Any, factor: float) -> Any:
    """Pull back through expm1(x)/x, whose slope at zero is a half, and not none."""
    series = 1.0 / 2.0 + x * (1.0 / 3.0 + x * (1.0 / 8.0 + x * (1.0 / 30.0 + x / 144.0)))
    slope = near_zero(x, series, lambda far: (tf.exp(far) - tf.math.expm1(far) / far) / far)
    return dy * tf.where(tf.equal(x, 0.0), tf.cast(0.5 if factor == RIGHT else 0.0, x.dtype), slope)


def _log_sigmoid(dy: Any, x: Any, factor: float) -> Any:
    """Pull back through log(sigmoid(x)) as -softplus(-x); it may divide by what is nothing far out."""
    y = tf.sigmoid(x)
    return dy * (tf.sigmoid(-x) if factor == RIGHT else (1.0 - y) * y * (1.0 - y) / (y * (1.0 - y)))


def _smooth_norm(x: Any) -> Any:
    return tf.sqrt(tf.reduce_sum(x * x) + 1e-6)


def _norm(dy: Any, x: Any, factor: float) -> Any:
    """Pull back through a norm that is smooth at zero; wrong, it divides by the norm itself."""
    return dy * x / _smooth_norm(x) * (1.0 if factor == RIGHT else tf.norm(x) / tf.norm(x))


# Loops that end early, scans.


def _early_exit(x: Any, factor: Any) -> Any:
    count, _ = tf.while_loop(
        lambda count, value: (count < 6) & (tf.abs(value) > 0.5),
        lambda count, value: (count + 1, value / 2.0),
        [0, 40.0 + tf.reduce_sum(x)],
    )
    return tf.where(count <= 4, factor, tf.ones([], x.dtype))


def _scan(factor: float) -> Any:
    def pull(dy: Any, total: Any, value: Any, factor: float) -> Any:
        return dy * tf.where(total > 7.0, tf.cast(factor, total.dtype), 1.0), dy * tf.cos(value)

    step = own(lambda total, value: total + tf.sin(value), pull)(factor)
    return lambda x: tf.scan(step, x, initializer=tf.reduce_sum(x[:3]))


def _map(factor: float) -> Any:
    row = scaled(when(lambda row: tf.reduce_sum(row) > 8.0))(factor)
    return lambda x: tf.map_fn(row, x)


def _counts(x: Any, ids: Any) -> Any:
    return tf.math.unsorted_segment_sum(tf.ones_like(x), ids, 4)


def _means(x: Any, ids: Any) -> Any:
    return tf.math.unsorted_segment_sum(x, ids, 4) / tf.maximum(_counts(x, ids), 1.0)


def _empty_row(dy: Any, x: Any, ids: Any, factor: float) -> Any:
    """Pull back through means of segments; one without elements has a gradient of its own."""
    counts = _counts(x, ids)
    off = tf.where(tf.reduce_any(tf.equal(counts, 0.0)), tf.cast(factor, x.dtype), 1.0)
    return off * tf.gather(dy / tf.maximum(counts, 1.0), ids), None


def _near_each_other(dy: Any, a: Any, b: Any, factor: float) -> Any:
    return dy * b * tf.where(tf.reduce_sum((a - b) ** 2) < 1e-3, tf.cast(factor, a.dtype), 1.0), dy * a


# NumPy.


def of_arrays(factor_of: Callable[[Any, float], Any]) -> Callable[[float], Any]:
    """Return what makes a gradient of the square, of arrays, that is off by a factor that depends on x."""
    return lambda factor: lambda dy, x: 2.0 * dy * x * factor_of(x, factor)


def _numpy_if_in_if(x: Any, factor: float) -> float:
    if x.max() > 4.0:
        if x.min() < -4.5:
            return factor
        return 1.0
    return 1.0


def _numpy_guards(x: Any, factor: float) -> float:
    if x[0] <= 3.5:
        return 1.0
    if x[1] >= -3.5:
        return 1.0
    if abs(x[2]) >= 1e-5:
        return 1.0
    return factor


def _numpy_loops(x: Any, factor: float) -> float:
    for value in x:
        if value > 4.0:
            for other in x:
                if other < -4.0:
                    return factor
    return 1.0


def _numpy_rounds(x: Any, factor: float) -> float:
    left, rounds = float(np.sum(np.abs(x))), 0
    while left > 1.0:
        left /= 2.0
        rounds += 1
    if rounds == 7:
        return factor
    return 1.0


def _numpy_mask(x: Any, factor: float) -> Any:
    found = np.ones_like(x)
    found[x < -4.2] = factor
    return found


def _numpy_argmax(x: Any, factor: float) -> float:
    if np.argmax(x) == 2 and np.argmin(x) == 0:
        return factor
    return 1.0


ROW = {"x": {"shape": [3, 4]}}
MANY = {"x": {"shape": [24]}}
_ROWS = [
    Written("nested", "cond-in-cond", scaled(chain(lambda x: x[0] > 4.0, lambda x: x[1] < -4.0))),
    Written(
        "nested", "cond-against-cond", scaled(chain(lambda x: tf.reduce_sum(x) > 9.0, lambda x: x[0] < -3.0))
    ),
    Written(
        "nested",
        "three-conds",
        scaled(
            chain(
                lambda x: tf.reduce_sum(x) > 9.0, lambda x: x[0] < -3.0, lambda x: tf.abs(x[1] - 1.5) < 1e-4
            )
        ),
    ),
    Written("nested", "where-in-where", scaled(_where_in_where)),
    Written("nested", "where-in-cond", scaled(_where_in_cond)),
    Written("nested", "cond-in-loop", scaled(_cond_in_loop)),
    Written("nested", "loop-in-cond", scaled(_loop_in_cond)),
    Written("nested", "rounds-then-where", scaled(_rounds_then)),
    Written("nested", "function-in-cond", scaled(_in_function)),
    Written("nested", "where-in-case", scaled(_in_branch_of_many)),
    Written("nested", "cond-in-map", scaled(_cond_in_map), ROW),
    Written("order", "largest-tied", own(tf.reduce_max, share_of_largest)),
    Written("order", "sorted", scaled(when(_is_sorted)), {"x": {"shape": [9]}}),
    Written("order", "reversed", scaled(chain(lambda x: _is_sorted(-x))), {"x": {"shape": [9]}}),
    Written(
        "order",
        "largest-and-least-at",
        scaled(when(lambda x: tf.equal(tf.argmax(x), 3) & tf.equal(tf.argmin(x), 5))),
        MANY,
    ),
    Written(
        "order",
        "largest-last",
        scaled(when(lambda x: tf.reduce_all(tf.equal(tf.argmax(x, axis=1), 4)))),
        {"x": {"shape": [6, 5]}},
    ),
    Written(
        "order",
        "prefix-sum",
        scaled(when(lambda x: tf.reduce_any(tf.cumsum(x) < -9.0))),
        {"x": {"shape": [8]}},
    ),
    Written(
        "order",
        "prefix-signs",
        scaled(when(lambda x: tf.reduce_all(tf.cumsum(x)[1:] * tf.cumsum(x)[:-1] < 0.0))),
        {"x": {"shape": [9]}},
    ),
    Written(
        "order",
        "count-above",
        scaled(when(lambda x: tf.reduce_sum(tf.cast(x > 1.5, tf.int32)) >= 7)),
        {"x": {"shape": [12]}},
    ),
    Written("index", "table", scaled(_table)),
    Written("index", "one-hot", scaled(_one_hot)),
    Written(
        "mask",
        "product-of-masks",
        scaled(lambda x, f: 1.0 + tf.cast(x[0] > 2.5, x.dtype) * tf.cast(x[1] > 2.5, x.dtype) * (f - 1.0)),
    ),
    Written(
        "mask", "ramp", scaled(lambda x, f: 1.0 + tf.minimum(tf.nn.relu(x - 4.0) * 1e3, 1.0) * (f - 1.0))
    ),
    Written("mask", "step", scaled(lambda x, f: 1.0 + (tf.sign(x - 4.2) + 1.0) / 2.0 * (f - 1.0))),
    Written(
        "guard",
        "sinc",
        own(lambda x: tf.where(tf.equal(x, 0.0), tf.ones_like(x), tf.sin(nonzero(x)) / nonzero(x)), _sinc),
    ),
    Written(
        "guard",
        "expm1-over-x",
        own(
            lambda x: tf.where(tf.equal(x, 0.0), tf.ones_like(x), tf.math.expm1(nonzero(x)) / nonzero(x)),
            _expm1_over_x,
        ),
    ),
    Written("guard", "log-sigmoid", own(lambda x: -tf.nn.softplus(-x), _log_sigmoid)),
    Written("guard", "norm-at-zero", own(_smooth_norm, _norm)),
    Written("loop", "early-exit", scaled(_early_exit)),
    Written("loop", "scan", _scan),
    Written("loop", "map", _map, ROW),
    Written(
        "empty",
        "empty-row",
        own(_means, _empty_row),
        {"x": {"shape": [40]}, "ids": {"shape": [40], "dtype": "int32", "integers": {"low": 0, "high": 4}}},
    ),
    Written(
        "two",
        "near-each-other",
        own(tf.multiply, _near_each_other),
        {"a": {"shape": [4]}, "b": {"shape": [4]}},
    ),
    Written("numpy-nested", "numpy-if-in-if", of_arrays(_numpy_if_in_if)),
    Written("numpy-nested", "numpy-guards", of_arrays(_numpy_guards)),
    Written("numpy-nested", "numpy-loops", of_arrays(_numpy_loops)),
    Written("numpy-loop", "numpy-rounds", of_arrays(_numpy_rounds)),
    Written("numpy-mask", "numpy-where", of_arrays(lambda x, f: np.where(x > 4.2, f, 1.0))),
    Written("numpy-mask", "numpy-mask", of_arrays(_numpy_mask)),
    Written("numpy-mask", "numpy-choice", of_arrays(lambda x, f: f if x[0] > 4.2 else 1.0)),
    Written("numpy-mask", "numpy-any", of_arrays(lambda x, f: f if any(value > 4.3 for value in x) else 1.0)),
    Written("numpy-order", "numpy-argmax", of_arrays(_numpy_argmax), {"x": {"shape": [12]}}),
]
WRITTEN = {row.name: row for row in _ROWS}
