"""What is wrong with the gradients of BlockLSTM and V2, against differences of the recurrence in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

STEPS, BATCH, UNITS = 2, 1, 2
NAMES = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
SHAPES = [
    (STEPS, BATCH, UNITS),
    (BATCH, UNITS),
    (BATCH, UNITS),
    (2 * UNITS, 4 * UNITS),
    *[(UNITS,)] * 3,
    (4 * UNITS,),
]
OUTPUTS = ("i", "cs", "f", "o", "ci", "co", "h")
ICFO, IFCO = (0, 1, 2, 3), (0, 2, 1, 3)


@pytest.fixture
def values():
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape) for shape in SHAPES]


def recurrence(values, order, bias, clip=np.inf):
    """Return what the op returns, by its name; no peepholes."""
    x, cs, h, w, *_, b = values
    found = {name: [] for name in OUTPUTS}
    for step in x:
        parts = np.split(np.concatenate([step, h], 1) @ w + b, 4, axis=1)
        i, ci, f, o = (parts[place] for place in order)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f + bias, o))
        ci = np.tanh(ci)
        cs = np.clip(ci * i + cs * f, -clip, clip)
        co = np.tanh(cs)
        h = co * o
        for name, value in zip(OUTPUTS, (i, cs, f, o, ci, co, h), strict=True):
            found[name].append(value)
    return {name: np.stack(value) for name, value in found.items()}


def exact(values, output, order, bias, clip=np.inf):
    """Return the derivative of the output's sum by x, from differences; its error is below 1e-8."""
    found = np.zeros_like(values[0])
    for place in np.ndindex(found.shape):
        ends = []
        for step in (1e-5, -1e-5):
            x = values[0].copy()
            x[place] += step
            ends.append(recurrence([x, *values[1:]], order, bias, clip)[output].sum())
        found[place] = (ends[0] - ends[1]) / 2e-5
    return found


def run(op, values, **attrs):
    tensors = [tf.constant(value, tf.float32) for value in values]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(tensors)
        found = op(
            seq_len_max=tf.constant(STEPS, tf.int64), **dict(zip(NAMES, tensors, strict=True)), **attrs
        )
        sums = {name: tf.reduce_sum(getattr(found, name)) for name in OUTPUTS}
    return found, {name: tape.gradient(total, tensors[0]).numpy() for name, total in sums.items()}


def test_the_gradient_of_block_lstm_is_right_without_a_clip(values):
    found, gradients = run(tf.raw_ops.BlockLSTM, values, cell_clip=-1.0)
    np.testing.assert_allclose(found.h, recurrence(values, ICFO, 1.0)["h"], atol=1e-6)
    for output in ("cs", "h"):
        np.testing.assert_allclose(gradients[output], exact(values, output, ICFO, 1.0), atol=1e-5)


def test_the_gradient_of_block_lstm_flows_through_a_clipped_cell(values):
    found, gradients = run(tf.raw_ops.BlockLSTM, values, cell_clip=0.05)
    np.testing.assert_allclose(found.cs, recurrence(values, ICFO, 1.0, 0.05)["cs"], atol=1e-6)
    assert np.all(np.abs(found.cs) == np.float32(0.05))
    np.testing.assert_allclose(exact(values, "cs", ICFO, 1.0, 0.05), 0)
    assert np.all(np.abs(gradients["cs"]) > 1e-3)


@pytest.mark.parametrize("output", ["i", "f", "o", "ci", "co"])
def test_the_gates_of_block_lstm_have_a_gradient_of_zeros(values, output):
    _, gradients = run(tf.raw_ops.BlockLSTM, values, cell_clip=-1.0)
    np.testing.assert_array_equal(gradients[output], 0)
    assert np.all(np.abs(exact(values, output, ICFO, 1.0)) > 1e-4)


def test_the_gradient_of_block_lstm_v2_is_another_ops(values):
    found, gradients = run(tf.raw_ops.BlockLSTMV2, values, cell_clip=-1.0)
    np.testing.assert_allclose(found.h, recurrence(values, IFCO, 0.0)["h"], atol=1e-6)
    truth = exact(values, "h", IFCO, 0.0)
    assert np.max(np.abs(gradients["h"] - truth)) > 0.1 * np.max(np.abs(truth))
    # TensorFlow has the right one, unused:
    inputs = dict(zip(NAMES, (tf.constant(value, tf.float32) for value in values), strict=True))
    right = tf.raw_ops.BlockLSTMGradV2(
        seq_len_max=tf.constant(STEPS, tf.int64),
        **inputs,
        **{name: getattr(found, name) for name in OUTPUTS},
        cs_grad=tf.zeros_like(found.cs),
        h_grad=tf.ones_like(found.h),
        use_peephole=False,
    ).x_grad
    np.testing.assert_allclose(right, truth, atol=1e-5)
