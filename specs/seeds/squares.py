"""Squares and cubes: NumPy functions that TensorFlow can't differentiate, and the gradients we give them."""

import tensorflow as tf


def square_grad(op, upstream):
    """Gradient of the square, as TensorFlow registers gradients: `2 x * upstream`."""
    return 2 * op.inputs[0] * upstream


def cube(x):
    """Cube a NumPy array."""
    return x**3


def cube_grad_numpy(upstream, x):
    """Gradient of the cube, in NumPy: upstreams first, then the inputs."""
    return 3 * x**2 * upstream


def cube_grad(op, upstream):
    """Gradient of the cube, as a NumPy function behind a `py_func` of its own."""
    (x,) = op.inputs
    grad = tf.numpy_function(cube_grad_numpy, [upstream, x], x.dtype, stateful=False)
    # A py_func forgets shapes; a gradient has the shape of its input.
    grad.set_shape(x.shape)
    return grad
