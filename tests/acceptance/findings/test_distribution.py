"""What is wrong with the gradient of XLA's einsum."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

A = np.array([[1 + 2j, 3 - 1j]], np.complex64)
B = np.array([[2 + 1j], [1j]], np.complex64)


def loss_gradient(equation, *factors):
    @tf.function
    def function(a, b):
        multiply = tf.function(lambda a, b: gen_xla_ops.xla_einsum(a, b, equation), jit_compile=True)
        loss = tf.reduce_sum(tf.math.real(multiply(a, b)))
        return loss, tf.gradients(loss, a)[0]

    return function(*map(tf.constant, factors))


def test_a_complex_factor_is_not_conjugated():
    # Re(sum of a b) = sum of Re a Re b - Im a Im b, whose gradient by a is Re b - i Im b.
    loss, gradient = loss_gradient("ij,jk->ik", A, B)
    np.testing.assert_allclose(loss, (A @ B).real.sum(), rtol=1e-6)
    np.testing.assert_allclose(gradient, B.T, rtol=1e-6)
    assert not np.allclose(gradient, B.conj().T)


def test_an_index_of_one_factor_alone_that_is_summed_makes_the_gradient_raise():
    with pytest.raises(ValueError, match="has label 'i' which is not present"):
        loss_gradient("ij,jk->k", A, B)
