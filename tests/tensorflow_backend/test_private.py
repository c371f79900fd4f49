"""Each private part of TensorFlow that is relied on: a TensorFlow that breaks one says so here."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import op_types
from gradcheck_cli.tensorflow_backend.private import private_graphs


def traced(function, *values):
    """Trace a function into a graph and run it."""
    tensors = [tf.constant(value) for value in values]
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    return tf.compat.v1.wrap_function(function, specs)(*tensors)


def test_tensors_that_have_a_value_are_told_from_those_of_a_graph():
    seen = []
    traced(lambda x: seen.append(x) or x, 1.0)
    assert isinstance(tf.constant(1.0), private_graphs.EAGER_TENSOR)
    assert isinstance(tf.Variable(1.0).read_value(), private_graphs.EAGER_TENSOR)
    assert not isinstance(seen[0], private_graphs.EAGER_TENSOR)


def branch(x):
    if x > 0:
        return x * 2
    return -x


def loop(x, steps=3):
    total = tf.zeros([], x.dtype)
    for _ in tf.range(steps):
        total += x
    while total > 10:
        total -= 4.0
    return total


def a_list(x):
    found = []
    for _ in range(3):
        found.append(x)  # noqa: PERF401 (AutoGraph is to convert it)
    return tf.stack(found)


class Callable:
    def __call__(self, x):
        return branch(x)

    def method(self, x):
        return branch(x)


@pytest.mark.parametrize(
    ("function", "keywords", "value", "expected"),
    [
        (branch, {}, 3.0, 6.0),
        (branch, {}, -3.0, 3.0),
        (loop, {}, 3.0, 9.0),
        (loop, {"steps": 5}, 3.0, 7.0),
        (a_list, {}, 2.0, [2.0, 2.0, 2.0]),
        (Callable(), {}, -3.0, 3.0),
        (Callable().method, {}, -3.0, 3.0),
        (functools.partial(loop, steps=2), {}, 3.0, 6.0),
        (tf.function(branch), {}, -3.0, 3.0),
        (tf.square, {}, -3.0, 9.0),
    ],
)
def test_python_control_flow_on_tensors_is_converted(function, keywords, value, expected):
    found = traced(lambda x: private_graphs.call_with_autograph(function, [x], keywords), value)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("function", [branch, loop])
def test_without_it_wrap_function_has_none(function):
    with pytest.raises(TypeError, match=r"[Uu]sing a symbolic|not allowed"):
        traced(function, 3.0)


def test_a_function_may_ask_not_to_be_converted():
    plain = tf.autograph.experimental.do_not_convert(branch)
    with pytest.raises(TypeError):
        traced(lambda x: private_graphs.call_with_autograph(plain, [x], {}), 3.0)


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_what_functions_of_tensorflow_call_is_converted(value):
    expected = traced(lambda x: private_graphs.call_with_autograph(branch, [x], {}), value)
    mapped = traced(lambda x: private_graphs.call_with_autograph(tf.map_fn, [branch, x], {}), [value])
    assert list(mapped) == [expected]


def test_functions_of_tensorflow_are_not_converted_themselves(monkeypatch):
    def refuse(*_args, **_keywords):
        raise AssertionError

    monkeypatch.setattr(private_graphs.autograph_api, "converted_call", refuse)
    assert traced(lambda x: private_graphs.call_with_autograph(tf.nn.relu, [x], {}), 3.0) == 3.0
    with pytest.raises(AssertionError):
        traced(lambda x: private_graphs.call_with_autograph(branch, [x], {}), 3.0)


def raises(x):
    if x > 0:
        x = x / 2
    raise ValueError("no")


def test_functions_of_legacy_keras_are_not_converted_either(monkeypatch):
    module = ModuleType("tf_keras.layers")
    exec("def deserialize(config):\n    return config", vars(module))  # noqa: S102 (in a module of this name)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(private_graphs.autograph_api, "converted_call", None)
    assert private_graphs.call_with_autograph(module.deserialize, [1], {}) == 1


def test_the_users_frames_of_a_converted_function_are_known():
    with pytest.raises(ValueError, match="no") as caught:
        traced(lambda x: private_graphs.call_with_autograph(raises, [x], {}), 3.0)
    frames = private_graphs.autograph_frames(caught.value)
    file, line, function, code = frames[-1]
    assert Path(file).name == Path(__file__).name
    assert Path(__file__).read_text().splitlines()[line - 1].strip() == code == 'raise ValueError("no")'
    assert function == "raises"


def test_an_ordinary_exception_has_no_frames_of_autographs():
    assert private_graphs.autograph_frames(ValueError("no")) == []


@pytest.mark.parametrize(
    ("op_type", "may"),
    [("While", True), ("Case", True), ("PartitionedCall", True), ("a_function", True), ("MatMul", False)],
)
def test_which_ops_may_call_functions(op_type, may):
    assert private_graphs.may_call(op_type) is may


def test_op_defs():
    definition = private_graphs.op_def("MatMul")
    assert [argument.name for argument in definition.input_arg] == ["a", "b"]
    assert {"T", "transpose_a", "transpose_b"} <= {attr.name for attr in definition.attr}
    assert not definition.is_stateful
    assert private_graphs.op_def("RandomUniform").is_stateful
    assert private_graphs.op_def("Tahn") is None


A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)


def apply_op(op_type, arguments):
    definition = op_types.definition_of(op_type)
    return private_graphs.apply_op(definition, arguments, op_types.inferred_attrs(definition))


@pytest.mark.parametrize(
    ("op_type", "values", "arguments", "expected"),
    [
        ("MatMul", [A, B], lambda a, b: {"a": a, "b": b}, A @ B),
        ("MatMul", [A.T, B], lambda a, b: {"a": a, "b": b, "transpose_a": True}, A @ B),
        ("ConcatV2", [A, A], lambda a, b: {"values": [a, b], "axis": 1}, np.concatenate([A, A], 1)),
        ("AddN", [A, A, A], lambda *tensors: {"inputs": list(tensors)}, 3 * A),
        ("Pack", [A, A], lambda *tensors: {"values": list(tensors), "axis": 2}, np.stack([A, A], 2)),
        ("Cast", [A], lambda x: {"x": x, "DstT": tf.int32}, A),
        ("Cast", [A], lambda x: {"x": x, "DstT": "int32"}, A),
        (
            "Sum",
            [A],
            lambda x: {"input": x, "reduction_indices": [0], "keep_dims": True},
            A.sum(0, keepdims=True),
        ),
        ("LeakyRelu", [-A], lambda x: {"features": x}, -0.2 * A),
        ("LeakyRelu", [-A], lambda x: {"features": x, "alpha": 0.5}, -0.5 * A),
    ],
)
def test_any_op_can_be_made_by_its_op_def(op_type, values, arguments, expected):
    found = traced(lambda *tensors: apply_op(op_type, arguments(*tensors)), *values)
    np.testing.assert_allclose(found, expected)


def test_op_types_that_raw_ops_lacks_can_be_made_too():
    assert not hasattr(tf.raw_ops, "_EagerConst")
    np.testing.assert_array_equal(traced(lambda x: apply_op("_EagerConst", {"input": x}), A), A)


def test_several_outputs_come_by_name_or_place():
    found = traced(lambda x: list(apply_op("TopKV2", {"input": x, "k": 2})), [3.0, 1.0, 2.0])
    np.testing.assert_array_equal(found[0], [3, 2])
    np.testing.assert_array_equal(found[1], [0, 2])


def test_defun_attaches_a_python_gradient():
    seen = []

    def gradient(op, upstream):
        seen.append(list(op.inputs))
        return 7 * upstream

    def both(x):
        y = private_graphs.call_defun("a_defun_of_a_test", lambda value: value**2, gradient, [x])
        return y, tf.compat.v1.gradients([y], [x])[0]

    value, slope = traced(both, 3.0)
    assert (float(value), float(slope)) == (9.0, 7.0)
    assert len(seen) == 1
    assert len(seen[0]) == 1


def test_defun_is_for_graphs():
    with pytest.raises((AttributeError, RuntimeError, TypeError, ValueError)):
        private_graphs.call_defun("another_defun_of_a_test", tf.square, lambda _, u: u, [tf.constant(3.0)])


def test_an_override_leaves_its_name_on_the_op():
    # Not private in name, but in what it is for: `tracing` reads it.
    ops = []

    @tf.RegisterGradient("gradcheck_test_private_override")
    def _(op, upstream):
        return op.inputs[0] * 0 + 7 * upstream

    def forward(x):
        with tf.compat.v1.get_default_graph().gradient_override_map(
            {"Square": "gradcheck_test_private_override"}
        ):
            y = tf.square(x)
        ops.append(y.op)
        return tf.compat.v1.gradients([y], [x])[0]

    assert float(traced(forward, 3.0)) == 7.0
    assert ops[0].node_def.attr["_gradient_op_type"].s == b"gradcheck_test_private_override"


def test_a_function_is_called_for_each_row_and_gives_what_a_call_gives():
    variable = tf.Variable(3.0, dtype=tf.float64)

    def function(x, y):
        return [tf.linalg.inv(x) * variable + y, tf.cast(x[0, 0] > 0, tf.int32)]

    specs = [tf.TensorSpec([3, 3], tf.float64)] * 2
    wrapped = tf.compat.v1.wrap_function(function, specs)
    rows = np.random.default_rng(0).normal(size=(5, 3, 3))
    beside = tf.ones([3, 3], tf.float64)
    stacked = private_graphs.map_flat(wrapped, [tf.constant(rows)], [beside])
    for row, *results in zip(rows, *stacked, strict=True):
        for result, alone in zip(
            results, private_graphs.call_flat(wrapped, [tf.constant(row), beside]), strict=True
        ):
            np.testing.assert_array_equal(result, alone)


def test_rows_of_other_shapes_are_refused_in_the_words_that_are_looked_for():
    wrapped = tf.compat.v1.wrap_function(
        lambda x: [tf.boolean_mask(x, x > 0)], [tf.TensorSpec([2], tf.float64)]
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="Mismatch in function retval shape"):
        private_graphs.map_flat(wrapped, [tf.constant([[1.0, 2.0], [1.0, -2.0]], tf.float64)], [])


def test_bodies_are_found_by_name_with_their_lines():
    @tf.function(jit_compile=True)
    def compiled(x):
        return tf.abs(x)

    @tf.function
    def called(x):
        return tf.while_loop(lambda v: v[0] < 3.0, lambda v: (compiled(v) + 1.0,), [x])[0]

    function = tf.function(called).get_concrete_function(tf.TensorSpec([2]))
    (call,) = [op for op in function.graph.get_operations() if "PartitionedCall" in op.type]
    inner = private_graphs.body_named(function.graph, call.get_attr("f").name)
    (loop,) = [op for op in inner.get_operations() if op.type.endswith("While")]
    body = private_graphs.body_named(inner, loop.get_attr("body").name)
    (inside,) = [op for op in body.get_operations() if "PartitionedCall" in op.type]
    assert any(frame.filename == __file__ for frame in inside.traceback)
    assert len(body.inputs) == len(loop.inputs)
    # XLA must compile it; nothing can be added to it.
    assert private_graphs.body_named(body, inside.get_attr("f").name) is None
    assert private_graphs.body_named(body, "no_such_function") is None
