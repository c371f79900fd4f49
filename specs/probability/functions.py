"""Functions of TensorFlow Probability that need more than their inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_probability as tfp

if TYPE_CHECKING:
    from collections.abc import Callable


def method(distribution: str, name: str) -> Callable[..., tf.Tensor]:
    """Return a method of a distribution as a function of the value and the parameters."""
    made = getattr(tfp.distributions, distribution)

    def called(value: tf.Tensor, *parameters: tf.Tensor) -> tf.Tensor:
        return getattr(made(*parameters), name)(value)

    return called


def bijector(bijector: str, name: str) -> Callable[..., tf.Tensor]:
    """Return a method of a bijector as a function of the value and the parameters."""
    made = getattr(tfp.bijectors, bijector)

    def called(value: tf.Tensor, *parameters: tf.Tensor, **constants: float) -> tf.Tensor:
        numbers = {key: tf.constant(number, value.dtype) for key, number in constants.items()}
        return getattr(made(*parameters, **numbers), name)(value)

    return called


def von_mises_cdf(x: tf.Tensor, concentration: tf.Tensor) -> tf.Tensor:
    """Return the CDF of a von Mises distribution at 0."""
    from tensorflow_probability.python.distributions import von_mises  # noqa: PLC0415 (a private module)

    return von_mises.von_mises_cdf(x, concentration)


def marginal_cholesky(matrix: tf.Tensor) -> tf.Tensor:
    """Return a Cholesky factor with as much jitter as it takes."""
    return tfp.experimental.distributions.marginal_fns.retrying_cholesky(matrix, jitter=0.0)[0]


def inferred_inverse(x: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """Return the inverse of x + shift * tanh(x), which is found by a search."""
    made = tfp.experimental.bijectors.ScalarFunctionWithInferredInverse(
        lambda value, shift: value + shift * tf.tanh(value),
        additional_scalar_parameters_requiring_gradients=[shift],
    )
    return made.inverse(x)


def ode(rate: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """Return the solution of y' = -rate * y by the adjoint method."""
    solver = tfp.math.ode.DormandPrince(rtol=1e-10, atol=1e-12)
    solved = solver.solve(
        lambda _, y, rate: -rate * y,
        tf.constant(0.0, start.dtype),
        start,
        [tf.constant(1.0, start.dtype)],
        constants={"rate": rate},
    )
    return solved.states


def kernel_distance(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return a Matern kernel's matrix, whose distances have a gradient of their own."""
    return tfp.math.psd_kernels.MaternThreeHalves().matrix(x, y)


def low_rank_cholesky(matrix: tf.Tensor) -> tf.Tensor:
    """Return a Cholesky factor of rank two."""
    return tfp.math.low_rank_cholesky(matrix, max_rank=2)[0]


def kahan_sum(x: tf.Tensor) -> tf.Tensor:
    """Return a sum and what it leaves out as one number."""
    total = tfp.math.reduce_kahan_sum(x)
    return total.total - total.correction


def diagonal_of_a_cube(x: tf.Tensor) -> tf.Tensor:
    """Return the derivative of each element's cube."""
    return tf.stack(tfp.math.diag_jacobian(x[..., tf.newaxis], fn=lambda y: y**3)[1])


def running_product(x: tf.Tensor) -> tf.Tensor:
    """Return cumulative products."""
    return tfp.math.scan_associative(tf.multiply, x)
