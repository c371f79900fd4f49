"""What is wrong with CTCLoss, against the sum over every path, in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

LOGITS = np.random.default_rng(0).normal(size=(5, 1, 4))
LABELS = [1, 2]


def by_paths(logits):
    logs = logits[:, 0] - np.log(np.exp(logits[:, 0]).sum(-1, keepdims=True))
    total = 0.0
    for path in itertools.product(range(4), repeat=5):
        if [label for label, _ in itertools.groupby(path) if label != 3] == LABELS:
            total += np.exp(sum(logs[step, label] for step, label in enumerate(path)))
    return -np.log(total)


def exact():
    """Return the loss's derivative, from differences; its error is below 1e-9."""
    found = np.zeros_like(LOGITS)
    for place in np.ndindex(found.shape):
        step = np.zeros_like(LOGITS)
        step[place] = 1e-4
        found[place] = (by_paths(LOGITS + step) - by_paths(LOGITS - step)) / 2e-4
    return found


def run(x):
    return tf.raw_ops.CTCLoss(
        inputs=x, labels_indices=[[0, 0], [0, 1]], labels_values=LABELS, sequence_length=[5]
    )


def test_the_loss_in_float64_and_its_gradient_have_the_digits_of_float32():
    x = tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = run(x).loss
    found = tape.gradient(loss, x)
    off, far = abs(float(loss[0]) - by_paths(LOGITS)), np.max(np.abs(found - exact()))
    assert 1e-9 < off < 1e-6
    assert 1e-9 < far < 1e-6


def test_the_gradient_that_the_op_returns_has_a_gradient_of_zeros():
    x = tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(x)
        square = tf.reduce_sum(run(x).gradient ** 2)
    np.testing.assert_array_equal(tape.gradient(square, x), 0)
    step = np.zeros_like(LOGITS)
    step[0, 0, 0] = 1e-2
    moved = [float(tf.reduce_sum(run(tf.constant(LOGITS + sign * step)).gradient ** 2)) for sign in (1, -1)]
    assert abs(moved[0] - moved[1]) / 2e-2 > 1e-2
