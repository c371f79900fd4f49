"""What a surrogate gradient is for: a sign, which is flat, learns by the logistic function's gradient."""

from __future__ import annotations

import importlib.util

import pytest
import tensorflow as tf

from tests.acceptance.acceptance_root import ROOT

SPEC = importlib.util.spec_from_file_location("surrogates", ROOT / "specs" / "seeds" / "surrogates.py")
SURROGATES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SURROGATES)


def trained(sign, start, target):
    """Return the losses of 100 steps of Adam at 0.1 and the last one, as a compiled step gives them."""
    x = tf.Variable(start)
    optimizer = tf.keras.optimizers.Adam(0.1)
    optimizer.build([x])

    def loss():
        return tf.nn.l2_loss(sign(x) - target)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.apply_gradients([(tape.gradient(value, x), x)])
        return value

    return [float(step()) for _ in range(100)] + [float(loss())]


@pytest.mark.parametrize(("start", "target"), [(-1.0, 1.0), (3.0, -1.0)])
def test_the_surrogate_trains_to_a_loss_of_zero(start, target):
    losses = trained(SURROGATES.differentiable_sign, start, target)
    assert losses[0] == 2.0
    assert losses[-1] == 0.0


def test_the_signs_own_gradient_teaches_nothing():
    assert set(trained(tf.sign, -1.0, 1.0)) == {2.0}
