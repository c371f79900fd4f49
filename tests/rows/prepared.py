"""Graphs that are finite only once Grappler or XLA has prepared them, and compiled ones."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.row import Row, marked

# By dtype: the size of the inputs, and a factor by which they overflow.
SIZES = {"float64": (1e150, 1e200), "float32": (1e15, 1e30), "float16": (3e2, 1e3)}
# Grappler folds the two factors into one.
FORMS = {
    "product": lambda y, large: y * large * (1 / large),
    "quotient": lambda y, large: (y * large) / large,
    "square": lambda y, large: tf.square(y / y) * y * large * (1 / large),
    "sum": lambda y, large: tf.reduce_sum(y * large * (1 / large)) + y,
    "in_a_function": lambda y, large: tf.function(lambda z: z * large * (1 / large))(y),
}


def own(factor: float) -> Any:
    """Return twice the input, with a gradient that is off by a factor."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return 2 * x, lambda upstream: 2 * factor * upstream

    return function


def own_form(factor: float, form: Any) -> Any:
    """Return twice the input, with a gradient that only a prepared graph computes without overflow."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return 2 * x, lambda upstream: 2 * factor * form(upstream * x) / x

    return function


def compiled(function: Any) -> Any:
    """Return a function that XLA compiles, wherever it is called."""
    return tf.function(function, jit_compile=True, autograph=False)


def hessian_times(function: Any) -> Any:
    """Return the product of a scalar function's Hessian and a direction, as two tapes compute it."""

    def product(x: Any, direction: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            slope = tf.reduce_sum(inner.gradient(y, x) * direction)
        return outer.gradient(slope, x)

    return product


def loop(function: Any) -> Any:
    """Return a function that is called three times in a loop."""
    return lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, function(y)), (0, x))[1]


GRADIENT_FORMS = {
    "product": lambda u: u * 1e200 * (1 / 1e200),
    "quotient": lambda u: (u * 1e200) / 1e200,
    "steps": lambda u: u * 1e120 * 1e120 * (1 / 1e120) * (1 / 1e120),
}
WRAPPED = {"plain": lambda f: f, "function": lambda f: tf.function(f, autograph=False), "compiled": compiled}
HUGE = {"x": {"shape": [3], "value": [1e150, -1.5e150, 2e150]}}
SMALL = {"x": {"shape": [3]}}
WEIGHT = tf.Variable([1.5, -0.5, 2.0], dtype=tf.float64)
# name -> a forward of twice the input's function, its inputs, other keys
COMPILED = {
    "whole": (lambda f: compiled(lambda x: tf.sin(f(x))), SMALL, {}),
    "part": (lambda f: lambda x: compiled(tf.sin)(f(x)), SMALL, {}),
    "before": (lambda f: lambda x: f(compiled(tf.sin)(x)), SMALL, {}),
    "float32": (
        lambda f: compiled(lambda x: tf.sin(f(x))),
        {"x": {"shape": [3], "dtype": "float32"}},
        {},
    ),
    "float16": (lambda f: compiled(lambda x: tf.sin(f(x))), {"x": {"shape": [3], "dtype": "float16"}}, {}),
    "variable": (lambda f: compiled(lambda x: tf.sin(f(x * WEIGHT))), SMALL, {"variables": True}),
    "loop": (lambda f: compiled(loop(f)), SMALL, {}),
    "second_order": (lambda f: compiled(lambda x: tf.sin(f(x))), SMALL, {"second_order": True}),
    "modes": (
        lambda f: compiled(lambda x: tf.sin(f(x))),
        SMALL,
        {"modes": ["graph", "dynamic", "eager"]},
    ),
    "overflow": (lambda f: compiled(lambda x: f(x) * 1e200 * (1 / 1e200)), HUGE, {}),
}
PRODUCTS = {
    "norm": tf.norm,
    "softplus": lambda x: tf.reduce_sum(tf.math.log1p(tf.exp(x))),
    "cubes": lambda x: tf.reduce_sum(x**3),
}


def rows() -> Any:
    for name, form in GRADIENT_FORMS.items():
        for kind, wrap in WRAPPED.items():
            for truth, factor in (("right", 1.0), ("wrong", 1.5)):
                yield Row(f"gradient_{name}-{kind}-{truth}", wrap(own_form(factor, form)), None, HUGE, truth)
    for kind, (wrap, inputs, keys) in COMPILED.items():
        for truth, factor in (("right", 1.0), ("wrong", 1.5)):
            yield Row(f"compiled_{kind}-{truth}", wrap(own(factor)), None, inputs, truth, keys=keys)
    for name, function in PRODUCTS.items():
        for kind, wrap in WRAPPED.items():
            inputs = {**SMALL, "direction": {"shape": [3]}}
            yield Row(f"hessian_{name}-{kind}", wrap(hessian_times(function)), None, inputs, "right")


def rows_of_forwards() -> Any:
    for dtype, (size, large) in SIZES.items():
        for index, (name, form) in enumerate(FORMS.items()):
            inputs = {"x": {"shape": [3], "dtype": dtype, "value": [size, -1.5 * size, 2 * size]}}
            mode = {"modes": [("graph", "dynamic")[index % 2]]}
            for truth, factor in (("right", 1.0), ("wrong", 1.5)):
                forward = lambda x, f=form, c=factor, big=large: f(own(c)(x), big)  # noqa: E731 (a forward)
                yield Row(f"{name}-{dtype}-{truth}", forward, None, inputs, truth, keys=mode)


ROWS = marked(
    (*rows(), *rows_of_forwards()), "gradient_quotient-function-wrong", "gradient_steps-function-right"
)
