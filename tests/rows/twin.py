"""What is judged in float64: hidden float32 tensors, tuned formulas, small elements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STRICT = {"samples": 1}


def scaled(
    factor: float, forward: Callable[[Any], Any] = tf.sin, slope: Callable[[Any], Any] = tf.cos
) -> Any:
    """Return a function whose gradient is a factor times the right one."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return forward(x), lambda upstream: upstream * tf.cast(factor, x.dtype) * slope(x)

    return function


# What a float32 tensor stands between the input and the output for; each of a function of float64.


def in_a_loop_with_a_dead_constant(inner: Any) -> Any:
    """Call it in a loop whose body makes a float32 constant for nothing."""

    def body(i: Any, x: Any) -> Any:
        tf.constant(1.0, tf.float32)
        return i + 1, inner(x)

    return lambda x: tf.while_loop(lambda i, _: i < 2, body, [0, x])[1]


def with_a_cast_number(inner: Any) -> Any:
    """Call it in a tf.function that casts a Python number."""
    return tf.function(lambda x: inner(x) * tf.cast(1.5, x.dtype))


def with_an_unused_output(inner: Any) -> Any:
    """Call it in a tf.function with a float32 output that nobody uses."""
    both = tf.function(lambda x: (inner(x), tf.cast(x, tf.float32)))
    return lambda x: both(x)[0]


def with_a_default_argument(inner: Any) -> Any:
    """Call it beside a custom gradient of a Python number, which becomes a float32 tensor."""

    @tf.custom_gradient
    def twice(x: Any, factor: Any) -> Any:
        factor = tf.cast(factor, x.dtype)
        return factor * x, lambda upstream: (factor * upstream, None)

    return lambda x: inner(twice(x, 2.0))


def with_an_enumeration(inner: Any) -> Any:
    """Call it in a map over elements, each times its number as a float32."""

    def call(x: Any) -> Any:
        numbers = tf.range(1.0, 5.0)
        return tf.map_fn(
            lambda pair: inner(pair[0]) * tf.cast(pair[1], tf.float64),
            (x, numbers),
            fn_output_signature=tf.float64,
        )

    return call


def with_a_float32_weight(inner: Any) -> Any:
    """Call it between casts around a product with a float32 weight."""
    weight = tf.Variable([0.5, 1.5, -1.25, 0.75], dtype=tf.float32)
    return lambda x: inner(x) * tf.cast(weight * 2.0, tf.float64)


def through_float32(inner: Any) -> Any:
    """Call it in float32, between casts."""
    return lambda x: tf.cast(inner(tf.cast(x, tf.float32)), tf.float64)


def in_a_branch(inner: Any) -> Any:
    """Call it in a branch that is chosen by a float32 comparison."""
    return lambda x: tf.cond(
        tf.reduce_sum(tf.cast(x, tf.float32)) < np.float32(100), lambda: inner(x), lambda: x
    )


def in_a_scan(inner: Any) -> Any:
    """Call it in a scan over TensorArrays, beside a float32 state."""
    return lambda x: tf.scan(
        lambda state, one: (inner(one) + 0.5 * state[0], state[1] + 1.0),
        x,
        initializer=(tf.constant(0.0, tf.float64), tf.constant(0.0, tf.float32)),
    )[0]


HIDES = (
    in_a_loop_with_a_dead_constant,
    with_a_cast_number,
    with_an_unused_output,
    with_a_default_argument,
    with_an_enumeration,
    with_a_float32_weight,
    through_float32,
    in_a_branch,
    in_a_scan,
)


def hidden() -> Iterator[Row]:
    """Put right and wrong gradients of float64 behind float32 tensors."""
    inputs = {"x": {"shape": [4], "value": [0.3, -0.8, 1.1, 0.6]}}
    for hide in HIDES:
        for factor in (1.0, 1.0001, 1.001, 0.99):
            truth = "right" if factor == 1 else "wrong"
            yield Row(f"{hide.__name__} x{factor:g}", hide(scaled(factor)), None, inputs, truth)


# Cases below float64, whose own differences show two digits or three.


def narrow() -> Iterator[Row]:
    """Check functions in every dtype below float64, right ones and wrong ones."""
    functions = {
        "while": lambda f: lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, f(a)), [0, x])[1],
        "tf.function": lambda f: tf.function(lambda x: f(f(x))),
        "plain": lambda f: f,
    }
    for name, made in functions.items():
        for dtype in ("float32", "float16", "bfloat16", "complex64"):
            for factor in (1.0, 1.01):
                # A half's own numbers can't hold a factor of 1.01 apart from its neighbours.
                slope = 1.0 if factor == 1.0 else 1.03125
                values = {"uniform": {"low": 0.5, "high": 1.25}}
                if dtype == "complex64":
                    values = {"value": ["0.5+0.25j", "1-0.5j", "0.75+1j"]}
                inputs = {"x": {"shape": [3], "dtype": dtype, **values}}
                truth = "right" if factor == 1.0 else "wrong"
                yield Row(f"{name} {dtype} {truth}", made(scaled_conj(slope)), None, inputs, truth)


def scaled_conj(factor: float) -> Any:
    """Return sin with a factor in its gradient, conjugated as TensorFlow has it."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return tf.sin(x), lambda upstream: upstream * tf.cast(factor, x.dtype) * tf.math.conj(tf.cos(x))

    return function


def layers() -> Iterator[Row]:
    """Check float32 layers of Keras with a wrapped gradient behind them."""
    makers = {
        "Dense": ((3, 4), lambda: keras.layers.Dense(3)),
        "LSTM": ((2, 3, 2), lambda: keras.layers.LSTM(2)),
        "LayerNormalization": ((3, 4), keras.layers.LayerNormalization),
        "Conv1D": ((2, 5, 2), lambda: keras.layers.Conv1D(2, 2)),
        "Embedding of a product": ((3, 4), lambda: keras.layers.Dense(2, activation="gelu")),
    }
    for name, (shape, make) in makers.items():
        for dtype in ("float32", "float64"):
            for factor in (1.0, 1.002):
                truth = "right" if factor == 1.0 else "wrong"
                yield Row(
                    f"{name} on {dtype} {truth}",
                    "of_a_row:make",
                    None,
                    {"x": {"shape": list(shape), "dtype": dtype}},
                    truth,
                    keys={"build": {"factor": factor}, **STRICT},
                    functions={"make": layer_maker(make)},
                )


def layer_maker(make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a factory of a layer between products whose gradient has a factor."""

    def build(factor: float) -> Any:
        keras.utils.set_random_seed(1)
        layer, inner = make(), scaled(factor)
        return lambda x: inner(layer(inner(x)))

    return build


def numpy_functions() -> Iterator[Row]:
    """Check NumPy functions, those that take float64 and those that take float32 alone."""

    def any_dtype(x: Any) -> Any:
        return np.tanh(x)

    def float32_only(x: Any) -> Any:
        if x.dtype != np.float32:
            raise TypeError("float32 only")
        return np.tanh(x)

    for function in (any_dtype, float32_only):
        for factor in (1.0, 1.01):

            def gradient(u: Any, x: Any, factor: float = factor) -> Any:
                return (u * factor * (1 - np.tanh(x) ** 2)).astype(x.dtype)

            name, truth = f"numpy {function.__name__} x{factor:g}", "right" if factor == 1.0 else "wrong"
            single, functions = {"shape": [4], "dtype": "float32"}, {"slope": gradient}
            keys = {"binding": "py_func", "gradient": {"numpy": "of_a_row:slope"}, "outputs": {"y": single}}
            yield Row(name, function, None, {"x": single}, truth, keys=keys, functions=functions)


# Approximations that are tuned to the declared dtype, and wrong gradients that look like one.


def tuned() -> Iterator[Row]:
    """Check gradients off by little in float32: tuned ones, which pass and are told of, and wrong ones."""
    points = {"x": {"shape": [6], "dtype": "float32", "value": [-30.0, -12.0, -9.5, -2.0, 0.5, 3.0]}}
    central = {"x": {"shape": [7], "dtype": "float32", "value": [-2.5, -1.5, -0.6, 0.2, 0.9, 1.7, 2.75]}}

    def softplus(cut: float) -> Any:
        @tf.custom_gradient
        def function(x: Any) -> Any:
            slope = tf.where(x < cut, tf.exp(x), tf.sigmoid(x))
            return tf.math.softplus(x), lambda upstream: upstream * slope

        return function

    @tf.custom_gradient
    def erf(x: Any) -> Any:
        # Abramowitz and Stegun 7.1.26, with the slope of the true one.
        size = tf.abs(x)
        t = 1 / (1 + 0.3275911 * size)
        terms = (((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592
        value = tf.sign(x) * (1 - terms * t * tf.exp(-size * size))
        return value, lambda upstream: upstream * 2 / np.sqrt(np.pi) * tf.exp(-x * x)

    yield Row("softplus cut at -9", softplus(-9.0), None, points, "right")
    yield Row("softplus cut at -11", softplus(-11.0), None, points, "right")
    yield Row("softplus cut at -1", softplus(-1.0), None, points, "wrong")
    yield Row("erf by a polynomial", erf, None, central, "right")
    # At 3 it is off by 4.6e-4 of itself: by more than half of the digits.
    tail = {"x": {"shape": [2], "dtype": "float32", "value": [3.0, 1.7]}}
    yield Row("erf by a polynomial in its tail", erf, None, tail, "not green")
    for factor in (1.01, 0.99, 1.003, 0.999):
        tanh = scaled(factor, tf.tanh, lambda x: 1 - tf.tanh(x) ** 2)
        yield Row(f"tanh x{factor}", tanh, None, central, "wrong")
    for size in (1e-2, 1e-3):
        error = np.zeros(7, np.float32)
        error[4] = size

        def one(x: Any, error: Any = error) -> Any:
            return (1 - tf.tanh(x) ** 2) * (1 + tf.constant(error))

        yield Row(f"tanh, one element {size:g} off", scaled(1.0, tf.tanh, one), None, central, "wrong")


# Elements far below their row's largest.


def small() -> Iterator[Row]:
    """Check sums whose terms differ by orders of magnitude, the smallest with a wrong gradient."""
    for order in (4, 5, 6, 7):
        for factor in (1.0, 0.0, 2.0, 1.01):
            low = 10.0**-order

            def weighed(x: Any, low: float = low, factor: float = factor) -> Any:
                @tf.custom_gradient
                def function(x: Any) -> Any:
                    value = tf.sin(x[0]) + low * tf.sin(x[1])
                    slopes = tf.stack([tf.cos(x[0]), low * factor * tf.cos(x[1])])
                    return value, lambda upstream: upstream * slopes

                return function(x)

            truth = "right" if factor == 1.0 else "wrong"
            inputs = {"x": {"shape": [2], "dtype": "float32", "value": [0.4, 0.7]}}
            yield Row(f"1e-{order} of the row x{factor:g}", weighed, None, inputs, truth)
    shares = {"p": {"shape": [5], "dtype": "float32", "probabilities": True}}
    yield Row("relies on probabilities", normalised, None, shares, "right")


@tf.custom_gradient
def normalised(p: Any) -> Any:
    """Return sum p^2 / (sum p)^2, with the slope that holds where they add up to 1."""
    squares = tf.reduce_sum(p * p)
    return squares / tf.reduce_sum(p) ** 2, lambda upstream: upstream * (2 * p - 2 * squares)


# One way in bfloat16 beside one in float32: each input's gradient may round as its own way does, and no more.


def cut(x: Any) -> Any:
    """Return numbers rounded to bfloat16."""
    return tf.cast(tf.cast(x, tf.bfloat16), x.dtype)


@tf.custom_gradient
def product(h: Any, x: Any) -> Any:
    """Return tanh(h) sin(x), whose gradient of h is computed in h's dtype."""
    slope = 1 - tf.tanh(h) ** 2

    def grad(upstream: Any) -> Any:
        of_h = tf.cast(upstream, h.dtype) * tf.cast(tf.sin(x), h.dtype) * slope
        return of_h, upstream * tf.cos(x) * tf.cast(tf.tanh(h), x.dtype)

    return tf.cast(tf.tanh(h), x.dtype) * tf.sin(x), grad


@tf.custom_gradient
def by_rounded(z: Any, x: Any) -> Any:
    """Return x times z in bfloat16, with a gradient that rounds z again."""
    return x * cut(z), lambda upstream: (upstream * x, upstream * cut(z))


def two_ways() -> Iterator[Row]:
    """Check functions of a narrow input and of a wide one."""
    sine = scaled(1.0, slope=lambda x: cut(tf.cos(x)))
    inputs = {
        "h": {"shape": [2], "dtype": "bfloat16", "value": [0.5, 1.25]},
        "x": {"shape": [2], "dtype": "float32", "value": [0.3, 1.1]},
    }
    beside = "cos(x) in bfloat16 on a way in float32"
    forward = lambda h, x: tf.cast(h, x.dtype) + sine(x)  # noqa: E731
    yield Row("cut beside", forward, None, inputs, "wrong", beside, at="dy/dx")
    variable, h = tf.Variable([0.3, 1.1]), {"h": inputs["h"]}
    forward, keys = lambda h: tf.cast(h, tf.float32) + sine(variable), {"variables": True}
    yield Row("cut of a variable beside", forward, None, h, "wrong", beside, keys=keys)
    yield Row("product of two ways", product, None, inputs, "right")
    wide = {"z": inputs["x"], "x": inputs["x"]}
    yield Row("by a rounded number", by_rounded, None, wide, "right", "z is rounded on its own way")


def grouped() -> Iterator[Row]:
    """A convolution in groups, of which the CPU has no gradient in float64, and XLA a slow one."""
    inputs = {
        key: {"shape": shape, "dtype": "float32"} for key, shape in (("x", [1, 5, 5, 4]), ("w", [3, 3, 2, 4]))
    }

    def convolve(x: Any, w: Any) -> Any:
        return tf.nn.conv2d(x, w, 1, "SAME")

    for name, function in (("", convolve), ("_by_xla", tf.function(convolve, jit_compile=True))):
        for factor, truth in ((1, "right"), (1.001, "wrong")):
            scale = scaled(factor, tf.identity, tf.ones_like)
            op = lambda x, w, function=function, scale=scale: scale(function(x, w))  # noqa: E731
            why = "judged in float32, an error of 1e-3 would be rounding"
            yield Row(f"grouped{name}_x{factor}", op, None, inputs, truth, why, keys=STRICT)


def _times(forward: Callable[..., Any], factor: float) -> Any:
    """Return a function with TensorFlow's gradient times a factor."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
        return y, lambda upstream: tape.gradient(y, x, upstream) * tf.cast(factor, x.dtype)

    return function


def _variance(x: Any) -> Any:
    return tf.reduce_mean(x * x, -1) - tf.reduce_mean(x, -1) ** 2


def _squared_distances(x: Any) -> Any:
    squares = tf.reduce_sum(x * x, -1)
    return squares[:, None] + squares[None] - 2 * tf.matmul(x, x, transpose_b=True)


def _cosine_distances(x: Any) -> Any:
    unit = tf.linalg.l2_normalize(x, -1)
    return 1 - tf.matmul(unit[:2], unit[2:], transpose_b=True)


def cancelled() -> Iterator[Row]:
    """Forwards whose float32 value is the rest of far larger terms, so that it differs in float64."""
    for name, forward, shape, mean, deviation in (
        ("one minus cosine", lambda x: 1 - tf.cos(x), [6], 0, 1e-3),
        ("root minus one", lambda x: tf.sqrt(1 + x * x) - 1, [5], 0, 1e-3),
        ("variance", _variance, [3, 6], 100, 1),
        ("squared distances", _squared_distances, [4, 2], 30, 0.1),
        ("cosine distances", _cosine_distances, [4, 3], 1, 1e-3),
    ):
        inputs = {"x": {"shape": shape, "dtype": "float32", "normal": {"mean": mean, "stddev": deviation}}}
        for factor, truth in ((1, "right"), (1.02, "wrong")):
            yield Row(f"{name} x{factor}", _times(forward, factor), None, inputs, truth)


ROWS = marked(
    tuple(
        replace(one, name=one.name.replace(",", "").replace(" ", "_"))
        for one in (
            *hidden(),
            *narrow(),
            *layers(),
            *numpy_functions(),
            *tuned(),
            *small(),
            *two_ways(),
            *grouped(),
            *cancelled(),
        )
    ),
    "numpy_any_dtype_x1.01",
    "numpy_float32_only_x1",
    "numpy_float32_only_x1.01",
    "softplus_cut_at_-9",
    "cut_beside",
    "grouped_by_xla_x1.001",
    "by_a_rounded_number",
    "variance_x1",
    "variance_x1.02",
)
