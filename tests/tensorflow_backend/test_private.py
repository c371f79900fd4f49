"""Each private part of TensorFlow that is relied on: a TensorFlow that breaks one says so here."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_graphs


def traced(function, *values):
    """Trace a function into a graph and run it."""
    tensors = [tf.constant(value) for value in values]
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    return tf.compat.v1.wrap_function(function, specs)(*tensors)


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


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_what_functions_of_tensorflow_call_is_converted(value):
    expected = traced(lambda x: private_graphs.call_with_autograph(branch, [x], {}), value)
    mapped = traced(lambda x: private_graphs.call_with_autograph(tf.map_fn, [branch, x], {}), [value])
    assert list(mapped) == [expected]


def test_functions_of_legacy_keras_are_not_converted_either(monkeypatch):
    module = ModuleType("tf_keras.layers")
    exec("def deserialize(config):\n    return config", vars(module))  # noqa: S102 (in a module of this name)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(private_graphs.autograph_api, "converted_call", None)
    assert private_graphs.call_with_autograph(module.deserialize, [1], {}) == 1


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
