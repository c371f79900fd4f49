"""Gradients as they were published for TensorFlow 1: the switch at the top, and the global registry below."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

tf.disable_v2_behavior()


# An override: the sign, straight through where it isn't saturated.
@tf.RegisterGradient("HardTanhGrad")
def _hard_tanh_grad(op, grad):
    x = op.inputs[0]
    return tf.where(tf.abs(x) < 1.0, grad, tf.zeros(x.get_shape()))


def binarize(x):
    """Take the sign of `x`, with the gradient of a hard tanh, by an override on the default graph."""
    with tf.get_default_graph().gradient_override_map({"Sign": "HardTanhGrad"}):
        return tf.sign(x)


def hard_tanh(x):
    """Clip `x` to [-1, 1]: the reference of `binarize`."""
    return tf.clip_by_value(x, -1.0, 1.0)


# py_func with a gradient, as it is copied from forum to forum.
def py_func(func, inp, tout, *, grad):
    """Wrap a NumPy function, and register its gradient under a name drawn at random."""
    name = "PyFuncGrad" + str(np.random.randint(0, 1e8))  # noqa: NPY002 (as published)
    tf.RegisterGradient(name)(grad)
    with tf.get_default_graph().gradient_override_map({"PyFunc": name}):
        return tf.py_func(func, inp, tout, stateful=True)


def mod(x, y):
    """Return the remainder of x / y as NumPy has it."""
    (z,) = py_func(np.mod, [x, y], [tf.float32], grad=_mod_grad)
    z.set_shape(x.get_shape())
    return z


def _mod_grad(op, grad):
    x, y = op.inputs
    return grad, -grad * tf.floordiv(x, y)


def mod_as_first_published(x, y):
    """Return the same with the gradient of another version of the post, which has the wrong sign."""
    (z,) = py_func(np.mod, [x, y], [tf.float32], grad=lambda op, grad: (grad, grad * tf.floordiv(*op.inputs)))
    z.set_shape(x.get_shape())
    return z


def _spike(x):
    remainder = x % 1
    return remainder if remainder <= 0.5 else 0  # noqa: PLR2004 (as published)


def _spike_slope(x):
    return 1 if x % 1 <= 0.5 else 0  # noqa: PLR2004 (as published)


def _spike_grad(op, grad):
    slope = np.vectorize(_spike_slope, otypes=[np.float32])
    return grad * tf.py_func(slope, [op.inputs[0]], [tf.float32], stateful=False)[0]


def spikes(x):
    """Apply an activation of NumPy numbers, one by one, with the dtype of its values stated."""
    (y,) = py_func(np.vectorize(_spike, otypes=[np.float32]), [x], [tf.float32], grad=_spike_grad)
    y.set_shape(x.get_shape())
    return y


def spikes_as_published(x):
    """Return the same as it is often copied: np.vectorize takes the dtype of the first value for all."""
    every = np.vectorize(_spike)
    (y,) = py_func(lambda x: every(x).astype(np.float32), [x], [tf.float32], grad=_spike_grad)
    y.set_shape(x.get_shape())
    return y


# A Defun whose gradient is a Defun.
@function.Defun(tf.float32, tf.float32)
def norm_grad(x, dy):
    """Pull an upstream of the norm back to `x`."""
    return dy * x / tf.norm(x)


@function.Defun(tf.float32, grad_func=norm_grad)
def defun_norm(x):
    """Return the 2-norm of `x`."""
    return tf.norm(x)


def norm(x):
    """Return the 2-norm of `x`; a Defun forgets shapes."""
    y = defun_norm(x)
    y.set_shape([])
    return y


def dense(x):
    """Return a layer of the binarized inputs, with weights of the variable scope."""
    with tf.variable_scope("dense", reuse=tf.AUTO_REUSE):
        w = tf.get_variable("w", [x.shape[1].value, 2], initializer=tf.glorot_uniform_initializer())
        b = tf.get_variable("b", [2], initializer=tf.zeros_initializer())
    return tf.nn.softplus(tf.matmul(x, w) + b)


def repeated(x):
    """Square twice, in a loop."""
    _, y = tf.while_loop(lambda i, _: i > 0, lambda i, y: (i - 1, tf.square(y)), [2, x])
    return y
