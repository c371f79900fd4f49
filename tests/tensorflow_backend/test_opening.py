from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode


def in_float64(case_of, forward, dtype="float32", **spec):
    case = case_of(forward=forward, inputs={"x": {"shape": [2, 4], "dtype": dtype}}, **spec)
    opener = CaseOpener(GraphMode(), CaseState(case))
    return opener.in_float64(opener.open(Opening()))


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


# Whatever the Python code makes of float64, a traced graph has a twin.
TRACED = {
    "casts down": lambda x: tf.cast(tf.tanh(tf.cast(x, tf.float32)), x.dtype),
    "a float32 Keras layer": keras_layer("float32"),
    "raises": refuses,
    "its gradient raises": gradient_refuses,
    "another function": lambda x: tf.tanh(x) * (1 if x.dtype == tf.float32 else 1.01),
    "another shape": lambda x: x if x.dtype == tf.float32 else x[:1],
    "other integers": lambda x: (x * 2, tf.cast(x.dtype == tf.float32, tf.int32)),
}


@pytest.mark.parametrize("forward", TRACED.values(), ids=TRACED)
def test_a_traced_graph_has_a_twin_whatever_its_code_makes_of_float64(case_of, forward):
    found = in_float64(case_of, forward)
    assert (found.outputs[0].dtype, found.facts.low_precision, found.facts.not_float64) == ("float64", (), "")


def test_what_overflows_in_its_own_dtype_has_none(case_of):
    case = case_of(forward=lambda x: tf.exp(100 + x), inputs={"x": {"shape": [2], "dtype": "float32"}})
    opener = CaseOpener(GraphMode(), CaseState(case))
    own = opener.open(Opening())
    assert opener.in_float64(own) is None
    assert own.facts.not_float64 == "its outputs differ in float64: it overflows, or takes another branch"


def test_the_formula_is_judged_there(run):
    result = run(forward=tf.tanh, inputs={"x": {"shape": [3], "dtype": "float32"}})
    assert (result.status, result.dtype, result.how.numeric_dtype) == (Status.PASSED, "float32", "float64")


def test_an_op_without_a_float64_kernel_is_judged_in_its_own_dtype_and_named(run):
    result = run(forward=tf.nn.lrn, inputs={"x": {"shape": [1, 1, 2, 3], "dtype": "float32"}})
    assert (result.status, result.how.numeric_dtype, result.warnings) == (Status.PASSED, "float32", ())
    assert result.pairs[0].judged_by.not_float64 == "there is no float64 form of LRN, LRNGrad"


def test_a_float64_case_that_is_not_judged_in_float64_is_no_plain_pass(run):
    def through(x):
        return tf.cast(tf.nn.lrn(tf.cast(x, tf.float32)), tf.float64)

    result = run(forward=through, inputs={"x": {"shape": [1, 1, 2, 3]}})
    assert result.status is Status.PASSED
    (warning,) = result.warnings
    assert warning == (
        "precision: dy/dx: declared in float64, but judged in float32, where errors up to 0.002 of an "
        "element pass: there is no float64 form of LRN, LRNGrad."
    )


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
    assert result.pairs[0].judged_by.reference_dtype == "float64"


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
    assert (result.status, result.how.numeric_dtype) == (Status.PASSED, "float64")


@tf.custom_gradient
def _doubled(x):
    return x * 2, lambda upstream: 2 * upstream


# Another trace calls the forward once, or at other values, too: a gradient by hand may keep the last.
@pytest.mark.parametrize(
    ("double", "retraced"), [(lambda x: x * 2, 3), (_doubled, 4)], ids=["own", "by hand"]
)
def test_one_trace_serves_every_point(case_of, double, retraced):
    traces = []

    def forward(x):
        traces.append(1)
        return double(x)

    opener = CaseOpener(GraphMode(), CaseState(case_of(forward=forward, inputs={"x": {"shape": [3]}})))
    first, second = opener.open(Opening()), opener.open(Opening(1))
    assert len(traces) == 1
    for op in (first, second, first):
        np.testing.assert_array_equal(op.base_values[0], 2 * op.point[0])
        np.testing.assert_array_equal(op.vjp(0, np.ones((1, 3)))[0], [[2, 2, 2]])
    assert len(traces) == 2
    opener.retrace(second).vjp(0, np.ones((1, 3)))
    assert len(traces) == retraced


@pytest.mark.parametrize("checks", [{}, {"retrace": False}], ids=["retraced", "not retraced"])
def test_a_forward_that_is_another_function_in_each_trace_is_no_mismatch(run, checks):
    traced = iter(range(1000))

    def forward(x):
        return x * float(next(traced))

    result = run(forward=forward, inputs={"x": {"shape": [3]}}, checks=checks)
    assert result.status is Status.INCONCLUSIVE
    assert any("each time the forward is traced" in check.message for check in result.checks)
