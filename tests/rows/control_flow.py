"""Branches, loops that end early, and maps around a custom gradient, at both orders."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.row import Row, marked


def own(factor: float, second: float = 1.0) -> Any:
    """Return x^3, with a gradient and a gradient of that, each off by a factor."""

    @tf.custom_gradient
    def slope(x: Any, upstream: Any) -> Any:
        return 3 * factor * x * x * upstream, lambda v: (
            6 * factor * second * x * upstream * v,
            3 * factor * x * x * v,
        )

    @tf.custom_gradient
    def cube(x: Any) -> Any:
        return x * x * x, lambda upstream: slope(x, upstream)

    return cube


def branch(f: Any) -> Any:
    return lambda x: tf.cond(x[0] > -50, lambda: f(x), lambda: 2 * x)


def nested(f: Any) -> Any:
    return lambda x: tf.cond(
        x[0] > -50, lambda: tf.cond(x[1] < 50, lambda: f(tf.sin(x)), lambda: x), lambda: -x
    )


def beside(f: Any) -> Any:
    return lambda x: tf.cond(x[0] > -50, lambda: tf.sin(x), lambda: 2 * x) * f(x)


def switch(f: Any) -> Any:
    index = tf.constant(1)
    return lambda x: tf.switch_case(index, [lambda: x, lambda: f(x), lambda: -x])


def chosen(f: Any) -> Any:
    return lambda x: tf.case([(x[0] > 50, lambda: x), (x[0] > -50, lambda: f(x))], default=lambda: -x)


def loop(f: Any) -> Any:
    return lambda x: tf.while_loop(
        lambda i, _: i < 2, lambda i, y: (i + 1, tf.sin(f(y))), (0, x), maximum_iterations=5
    )[1]


def ends_early(f: Any) -> Any:
    @tf.function
    def call(x: Any) -> Any:
        y = x
        for i in tf.range(5):
            if i > 1:
                break
            y = tf.sin(f(y))
        return y

    return call


def goes_on(f: Any) -> Any:
    @tf.function
    def call(x: Any) -> Any:
        y = tf.zeros_like(x)
        for i in tf.range(4):
            if i == 1:
                continue
            y += f(x) * tf.cast(i, x.dtype)
        return y

    return call


def returns_early(f: Any) -> Any:
    @tf.function
    def call(x: Any) -> Any:
        if x[0] > -50:
            return f(x)
        return x

    return call


def mapped(f: Any) -> Any:
    return lambda x: tf.map_fn(f, x)


def folded(f: Any) -> Any:
    return lambda x: tf.foldl(lambda total, y: total + f(y), x, tf.zeros([], tf.float64))


def scanned(f: Any) -> Any:
    return lambda x: tf.scan(lambda total, y: tf.sin(total) + f(y), x)


FORMS = {
    form.__name__: form
    for form in (
        branch,
        nested,
        beside,
        switch,
        chosen,
        loop,
        ends_early,
        goes_on,
        returns_early,
        mapped,
        folded,
        scanned,
    )
}
# What TensorFlow can't differentiate, at the first order or at the second, in a plain `tf.function` either.
NEVER = ("chosen", "ends_early", "goes_on", "returns_early")
ONCE = ("nested", "loop", "mapped", "folded", "scanned")
INPUTS = {"x": {"shape": [3], "value": [0.7, -0.4, 1.1]}}


def rows() -> Any:
    for name, form in FORMS.items():
        for is_right in (True, False):
            truth = "right" if is_right else "wrong"
            once = "unchecked" if name in NEVER else truth
            yield Row(f"{name}_{truth}", form(own(1.0 if is_right else 1.1)), None, INPUTS, once)
            twice = "unchecked" if name in NEVER + ONCE else truth
            function, keys = form(own(1.0, 1.0 if is_right else 1.1)), {"second_order": True}
            yield Row(f"{name}_twice_{truth}", function, None, INPUTS, twice, keys=keys)


ROWS = marked(tuple(rows()), "nested_twice_right", "nested_wrong", "returns_early_wrong")
