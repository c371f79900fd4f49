"""Functions that call Python through tf.py_function, whose gradient is a tape that runs in Python, too."""

import tensorflow as tf


def one(x):
    """Call Python for one tensor."""
    return _like(tf.py_function(lambda value: tf.sin(value) * value, [x], x.dtype), x)


def two(x, u):
    """Call Python for two tensors of different shapes, of which two come back."""
    outputs = tf.py_function(lambda a, b: (a * b, tf.reduce_sum(a) - b), [x, u], [x.dtype, u.dtype])
    return _like(outputs[0], x), _like(outputs[1], u)


def ignoring(x, u):
    """Call Python for two tensors, of which it ignores one."""
    return _like(tf.py_function(lambda a, _: tf.square(a), [x, u], x.dtype), x)


def numbers(x):
    """Call Python for a real number and get a complex one."""
    output = tf.py_function(
        lambda a: tf.complex(a * a, tf.sin(a)),
        [x],
        {tf.float32: tf.complex64, tf.float64: tf.complex128}[x.dtype],
    )
    return _like(output, x)


def chained(x):
    """Call Python for what Python gave."""
    return one(one(x))


def _like(output, x):
    output.set_shape(x.shape)
    return output
