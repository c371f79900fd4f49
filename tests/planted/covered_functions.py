"""The square of a matrix, whose gradient is that of MatMul, or another one."""

import tensorflow as tf


@tf.RegisterGradient("OfCoveredFunctions")
def _matmul_grad(op, upstream):
    left, right = op.inputs
    return tf.matmul(upstream, right, transpose_b=True), tf.matmul(left, upstream, transpose_a=True)


@tf.custom_gradient
def _custom(x):
    return tf.matmul(x, x), lambda u: u @ tf.transpose(x) + tf.transpose(x) @ u


@tf.custom_gradient
def _wrong(x):
    return tf.matmul(x, x), lambda u: u @ tf.transpose(x)


def squared(x, *, how):
    if how == "plain":
        return tf.matmul(x, x)
    if how == "constant":
        return x * tf.reduce_sum(tf.matmul(tf.ones_like(x), tf.ones([3, 3], x.dtype)))
    if how == "overridden":
        with tf.compat.v1.get_default_graph().gradient_override_map({"MatMul": "OfCoveredFunctions"}):
            return tf.matmul(x, x)
    return _custom(x) if how == "custom" else _wrong(x)
