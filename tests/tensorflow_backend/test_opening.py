from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.opening import GraphOpener


def in_float64(case_of, forward, dtype="float32", **spec):
    case = case_of(forward=forward, inputs={"x": {"shape": [2, 4], "dtype": dtype}}, **spec)
    opener = GraphOpener(case)
    return opener.in_float64(opener.declared(0))


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("float32", "float64"), ("float16", "float64"), ("bfloat16", "float64"), ("complex64", "complex128")],
)
def test_the_same_function_in_float64_is_a_reference(case_of, dtype, wide):
    found = in_float64(case_of, tf.tanh, dtype)
    assert (found.inputs[0].dtype, found.outputs[0].dtype) == (wide, wide)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_float64_needs_none(case_of, dtype):
    assert in_float64(case_of, tf.tanh, dtype) is None


def keras_layer(dtype):
    layer = keras.layers.Dense(3, dtype=dtype)
    layer.build((None, 4))
    return layer


def refuses(x):
    if x.dtype != tf.float32:
        raise TypeError("float32 only")
    return tf.tanh(x)


@tf.custom_gradient
def gradient_refuses(x):
    def grad(upstream):
        if upstream.dtype != tf.float32:
            raise TypeError("float32 only")
        return upstream * (1 - tf.tanh(x) ** 2)

    return tf.tanh(x), grad


REFUSED = {
    "casts down": lambda x: tf.cast(tf.tanh(tf.cast(x, tf.float32)), x.dtype),
    "a float32 Keras layer": keras_layer("float32"),
    "raises": refuses,
    "its gradient raises": gradient_refuses,
    "another function": lambda x: tf.tanh(x) * (1 if x.dtype == tf.float32 else 1.01),
    "another shape": lambda x: x if x.dtype == tf.float32 else x[:1],
    "other integers": lambda x: (x * 2, tf.cast(x.dtype == tf.float32, tf.int32)),
    "not finite": lambda x: tf.where(x.dtype == tf.float32, x, np.nan * x),
}


@pytest.mark.parametrize("forward", REFUSED.values(), ids=REFUSED)
def test_what_is_not_the_same_function_in_float64_is_none(case_of, forward):
    assert in_float64(case_of, forward) is None


def test_the_formula_is_judged_there(run):
    result = run(forward=tf.tanh, inputs={"x": {"shape": [3], "dtype": "float32"}})
    assert (result.status, result.dtype, result.numeric_dtype) == (Status.PASSED, "float32", "float64")


def test_without_one_the_declared_dtype_is_judged_in_itself(run):
    result = run(forward=refuses, inputs={"x": {"shape": [3], "dtype": "float32"}})
    assert (result.status, result.numeric_dtype) == (Status.PASSED, "float32")


@pytest.mark.parametrize("forward", [refuses, tf.tanh])
def test_a_fault_of_one_per_cent_is_found_either_way(run, forward):
    @tf.custom_gradient
    def wrong(x):
        return forward(x), lambda upstream: 1.02 * upstream * (1 - tf.tanh(x) ** 2)

    assert run(forward=wrong, inputs={"x": {"shape": [3], "dtype": "float32"}}).status is Status.MISMATCHED


def test_a_pass_by_a_gradient_that_is_wrong_in_the_declared_dtype_alone_is_none(run):
    @tf.custom_gradient
    def wrong(x):
        factor = 2.0 if x.dtype == tf.float32 else 1.0
        return tf.tanh(x), lambda upstream: factor * upstream * (1 - tf.tanh(x) ** 2)

    result = run(forward=wrong, inputs={"x": {"shape": [3], "dtype": "float32"}})
    assert result.status is Status.MISMATCHED
    assert result.pairs[0].reference_dtype == "float32"


def test_saturation_in_float32_is_a_warning(run):
    @tf.custom_gradient
    def softplus(x):
        # 1 - 1 / (1 + e^x) keeps two digits of 6e-6 in float32.
        return tf.math.softplus(x), lambda upstream: upstream * (1 - 1 / (1 + tf.exp(x)))

    result = run(forward=softplus, inputs={"x": {"value": [-12.0, 0.5], "shape": [2], "dtype": "float32"}})
    assert result.status is Status.PASSED
    (warning,) = result.warnings
    assert warning.startswith(
        "precision: dy/dx: the formula is right in float64, but 1 of 4 elements lose more than"
    )


def test_numpy_functions_have_a_reference_too(run):
    result = run(
        forward=np.tanh,
        gradient={"numpy": lambda u, x: u * (1 - np.tanh(x) ** 2)},
        binding="py_func",
        inputs={"x": {"shape": [3], "dtype": "float32"}},
        outputs={"y": {"shape": [3], "dtype": "float32"}},
    )
    assert (result.status, result.numeric_dtype) == (Status.PASSED, "float64")


def test_every_call_traces_afresh(case_of):
    traces = []

    def forward(x):
        traces.append(1)
        return x * 2

    opener = GraphOpener(case_of(forward=forward, inputs={"x": {"shape": [3]}}))
    for _ in range(2):
        opener.declared(0)
    assert len(traces) == 2
