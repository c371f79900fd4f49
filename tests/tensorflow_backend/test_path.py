from __future__ import annotations

import re

import pytest
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode

SQUARE = {"inputs": {"a": {"shape": [3, 3]}, "b": {"shape": [3, 3]}}}
OVERRIDE = {"op_type": "MatMul", "binding": "override"}


def no_transpose(op, upstream):
    a, b = op.inputs
    return tf.matmul(upstream, b), tf.matmul(a, upstream, transpose_a=True)


@tf.function
def hidden(a, b):
    return tf.matmul(a, b)


@tf.function
def hidden_deeper(a, b):
    return hidden(a, b) * 2


def missed(run, forward, **spec):
    result = run(forward=forward, gradient=no_transpose, **{**OVERRIDE, **SQUARE, **spec})
    assert (result.status, result.error.kind) == (Status.ERROR, "override_missed")
    return result.error.message


def test_another_op_type_is_named(run):
    message = missed(run, tf.matmul, inputs={"a": {"shape": [2, 3, 3]}, "b": {"shape": [2, 3, 3]}})
    assert message == (
        "the override of MatMul took effect on no op between the inputs and the outputs; op types found "
        "there: BatchMatMulV2. Set op_type to BatchMatMulV2."
    )


@pytest.mark.parametrize("forward", [hidden, hidden_deeper, lambda a, b: hidden(a, b) + 1])
def test_the_tf_function_in_the_way_is_named(run, forward):
    message = missed(run, forward)
    assert (
        " A MatMul is inside a tf.function or a loop's or a branch's body, which no override enters: "
        in message
    )
    assert re.search(r"PartitionedCall, calls \w*hidden", message)
    assert message.endswith("Check the Python function without tf.function, or use binding: custom_gradient.")


def test_a_loop_in_the_way_is_named(run):
    def forward(a, b):
        return tf.while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, tf.matmul(y, b)), (0, a), maximum_iterations=3
        )[1]

    message = missed(run, forward)
    assert "While, calls " in message


def test_one_of_two_is_not_green_unless_it_is_meant(run):
    def gradient(op, upstream):
        a, b = op.inputs
        return tf.matmul(upstream, b, transpose_b=True), tf.matmul(a, upstream, transpose_a=True)

    spec = {"forward": lambda a, b: tf.matmul(a, b) + hidden(a, b), "gradient": gradient}
    result = run(**spec, **OVERRIDE, **SQUARE)
    assert result.status is Status.INCONCLUSIVE
    (check,) = [check for check in result.checks if check.name == "override"]
    assert check.message.startswith(
        "the override of MatMul didn't take effect on MatMul inside of PartitionedCall (PartitionedCall): "
    )
    assert run(**spec, **OVERRIDE, **SQUARE, checks={"override": False}).status is Status.PASSED


def low_precision_of(case_of, forward, dtype="float64", shape=(2, 4)):
    case = case_of(forward=forward, inputs={"x": {"shape": list(shape), "dtype": dtype}})
    return CaseOpener(GraphMode(), CaseState(case)).open(Opening()).facts.low_precision


@tf.function
def cast_inside(x):
    return tf.cast(tf.cast(x, tf.bfloat16) * 2, x.dtype)


def cast_in_a_loop(x):
    return tf.while_loop(
        lambda i, _: i < 2,
        lambda i, y: (i + 1, tf.cast(tf.cast(y, tf.float32), y.dtype)),
        (0, x),
        maximum_iterations=3,
    )[1]


@pytest.mark.parametrize(
    ("forward", "dtype", "expected"),
    [
        (tf.tanh, "float64", ()),
        (tf.tanh, "float32", ("float32",)),
        (tf.tanh, "bfloat16", ("bfloat16",)),
        (tf.exp, "complex64", ("complex64",)),
        (tf.exp, "complex128", ()),
        (lambda x: tf.cast(tf.cast(x, tf.float16), tf.float64), "float64", ("float16",)),
        (lambda x: tf.cast(tf.cast(x, tf.bfloat16), tf.float32), "float64", ("bfloat16", "float32")),
        (cast_inside, "float64", ("bfloat16",)),
        (cast_in_a_loop, "float64", ("float32",)),
        # Beside the path, not on it.
        (lambda x: x * tf.cast(tf.constant([1.0], tf.float32) * 2, x.dtype), "float64", ()),
    ],
)
def test_dtypes_below_float64_on_the_path(case_of, forward, dtype, expected):
    assert tuple(low_precision_of(case_of, forward, dtype)) == expected


def through_a_v1_array(x):
    """Write to a TensorArray of TensorFlow 1 and read it: its flow is a float32, and holds no number."""
    tf.compat.v1.get_default_graph()._captured = True
    handle, flow = tf.raw_ops.TensorArrayV3(size=1, dtype=x.dtype)
    flow = tf.raw_ops.TensorArrayWriteV3(handle=handle, index=0, value=x, flow_in=flow)
    return tf.raw_ops.TensorArrayReadV3(handle=handle, index=0, flow_in=tf.identity(flow), dtype=x.dtype)


@pytest.mark.parametrize(("dtype", "expected"), [("float64", ()), ("float16", ("float16",))])
def test_the_flow_of_an_array_of_tensorflow_1_is_no_computation_in_float32(case_of, dtype, expected):
    assert tuple(low_precision_of(case_of, through_a_v1_array, dtype)) == expected
