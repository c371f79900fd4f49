from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.graph import graph_runs
from gradcheck_cli.tensorflow_backend.graph.graph_runs import Batched


def batched(function, *shapes, dtype="float64", **changes):
    """Trace a function of tensors of these shapes, with a base point of ones."""
    signature = [tf.TensorSpec(shape, dtype) for shape in shapes]

    def traced(*tensors):
        results = function(*tensors)
        return list(results) if isinstance(results, list | tuple) else [results]

    wrapped = tf.compat.v1.wrap_function(traced, signature)
    numpy = tf.as_dtype(dtype).as_numpy_dtype
    return Batched(
        wrapped,
        [(dtype, tuple(shape)) for shape in shapes],
        [np.ones(shape, numpy) for shape in shapes],
        **changes,
    )


WAYS = ["direct", "mapped"]


@pytest.fixture
def modes(monkeypatch):
    """Record how each batch is evaluated, and set which way is taken."""
    seen = []
    mapped, alone = Batched._map, Batched._run_one_by_one

    def watched_mapped(self, which, stacks):
        seen.append("mapped")
        return mapped(self, which, stacks)

    def watched_alone(self, which, stacks):
        seen.append("direct")
        return alone(self, which, stacks)

    monkeypatch.setattr(Batched, "_map", watched_mapped)
    monkeypatch.setattr(Batched, "_run_one_by_one", watched_alone)

    def setting(way):
        monkeypatch.setattr(Batched, "is_mappable", is_mappable if way == "mapped" else False)
        return seen

    is_mappable = Batched.__dict__["is_mappable"]
    return setting


def points(*shape, rows=20):
    return np.random.default_rng(0).normal(size=(rows, *shape))


def loop(x):
    return tf.while_loop(
        lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y) + x), (0, x), maximum_iterations=5
    )[1]


FUNCTIONS = {
    "elementwise": (lambda x, y: (tf.tanh(x) * y, x + 1), [(3,), (3,)]),
    "matmul": (tf.matmul, [(2, 3), (3, 2)]),
    "loop": (lambda x, y: loop(x) * y, [(3,), (3,)]),
    "cond": (lambda x, y: tf.cond(tf.reduce_sum(x) > 0, lambda: x * y, lambda: x - y), [(3,), (3,)]),
    "scalar": (lambda x, y: x**2 * y, [(), ()]),
    "integers beside": (lambda x, y: (tf.cast(x > 0, tf.int32), y * 2), [(3,), (3,)]),
    "cholesky": (
        lambda x, y: tf.linalg.cholesky(x @ tf.transpose(x) + 3 * tf.eye(3, dtype=x.dtype)) * y,
        [(3, 3)] * 2,
    ),
}


@pytest.mark.parametrize(("function", "shapes"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_all_ways_agree(modes, function, shapes):
    batch = {0: points(*shapes[0]), 1: points(*shapes[1])}
    found = {}
    for way in WAYS:
        seen = modes(way)
        found[way] = batched(function, *shapes)(batch, 9)
        assert seen[-1] == way
    for values, expected in zip(found["mapped"], found["direct"], strict=True):
        np.testing.assert_array_equal(values, expected)


def numpy_sine(x):
    return tf.ensure_shape(tf.numpy_function(np.sin, [x], x.dtype), x.shape)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.numpy_function(np.square, [x], x.dtype),
        lambda x: x + tf.random.uniform([3], dtype=x.dtype),
        lambda x: tf.raw_ops.TensorArrayReadV3(  # kept by the run, which a loop inside of an op isn't
            handle=(array := tf.raw_ops.TensorArrayV3(size=1, dtype=x.dtype)).handle,
            index=0,
            flow_in=tf.raw_ops.TensorArrayWriteV3(handle=array.handle, index=0, value=x, flow_in=array.flow),
            dtype=x.dtype,
        ),
        lambda x: tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, numpy_sine(y)), (0, x))[1],
    ],
    ids=["numpy", "random", "TensorArray of TensorFlow 1", "numpy in a loop"],
)
def test_what_keeps_something_is_called_one_by_one(modes, function):
    seen = modes("mapped")
    op = batched(function, (3,))
    assert np.isfinite(op({0: points(3)}, 3)[0]).all()
    assert seen == ["direct"]


def test_large_batches_are_cut_and_join_without_a_seam(modes, monkeypatch):
    seen = modes("mapped")
    monkeypatch.setattr(graph_runs, "BUDGET_BYTES", 16 * 3 * 7)
    values = points(3, rows=20)
    (found,) = batched(tf.tanh, (3,))({0: values}, 3)
    assert len(seen) == 3
    np.testing.assert_allclose(found, np.tanh(values), rtol=1e-14)
