"""Functions with mistakes that a spec's points may hide; see `test_mutate`."""

import tensorflow as tf


@tf.custom_gradient
def dense(x, weights, bias):
    """A mean over the batch for the bias."""
    back = lambda u: (  # noqa: E731 (as they are written)
        u @ tf.transpose(weights),
        tf.transpose(x) @ u,
        tf.reduce_mean(u, axis=0),
    )
    return x @ weights + bias, back


@tf.custom_gradient
def relu6(x):
    """Without the upper limit."""
    return tf.nn.relu6(x), lambda u: u * tf.cast(x > 0, x.dtype)


@tf.custom_gradient
def masked(x, mask):
    """Without the mask."""
    return tf.exp(x) * mask, lambda u: (u * tf.exp(x), u * tf.exp(x))


@tf.custom_gradient
def over_batch(x):
    """With the number 4 for the batch's size."""
    return tf.reduce_mean(x * x, axis=0), lambda u: 2 * x * u / 4


@tf.custom_gradient
def leaky(x):
    """With another slope on the negative side."""
    return tf.nn.leaky_relu(x), lambda u: u * tf.where(x > 0, tf.ones_like(x), 0.1 * tf.ones_like(x))


@tf.custom_gradient
def segments(x, ids):
    """A mean over the segment."""
    size = tf.gather(tf.math.segment_sum(tf.ones_like(x), ids), ids)
    return tf.math.segment_sum(x * x, ids), lambda u: (2 * x * tf.gather(u, ids) / size, None)


@tf.custom_gradient
def huber(x):
    """Without the far branch."""
    return tf.where(tf.abs(x) < 3.0, 0.5 * x * x, 3.0 * tf.abs(x) - 4.5), lambda u: u * x


@tf.custom_gradient
def softmax(logits):
    """A sum over all axes."""
    y = tf.nn.softmax(logits)
    return y, lambda u: y * (u - tf.reduce_sum(u * y))


@tf.custom_gradient
def gather(x, ids):
    """Assigned, not added up."""

    def back(u):
        spread = tf.tensor_scatter_nd_update(tf.zeros_like(x), ids[:, None], u)
        return 2 * x * spread, None

    return tf.gather(x * x, ids), back


@tf.custom_gradient
def clip(x):
    """Without the ends."""
    return tf.clip_by_value(tf.sin(x), -0.5, 0.5), lambda u: u * tf.cos(x)


@tf.custom_gradient
def scaled(x, scale):
    """Without the scale."""
    return tf.exp(x) / scale, lambda u: (u * tf.exp(x), -tf.reduce_sum(u * tf.exp(x)))


@tf.custom_gradient
def convolution(x, filters):
    """A mean over the batch for the filters."""

    def back(u):
        of_filters = tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=tf.shape(filters), out_backprop=u, strides=[1] * 4, padding="SAME"
        )
        of_input = tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(x), filter=filters, out_backprop=u, strides=[1] * 4, padding="SAME"
        )
        return of_input, of_filters / tf.cast(tf.shape(x)[0], x.dtype)

    return tf.nn.conv2d(x, filters, 1, "SAME"), back


@tf.custom_gradient
def absolute(x):
    """Without the sign."""
    return tf.abs(x), lambda u: u


@tf.custom_gradient
def along(x):
    """A mean along the axis."""
    size = tf.cast(tf.shape(x)[1], x.dtype)
    return tf.reduce_sum(x * x, axis=1), lambda u: 2 * x * u[:, None] / size


@tf.custom_gradient
def chosen(mask, x):
    """As if the mask were true throughout."""
    return tf.where(mask, x * x, x), lambda u: (None, 2 * x * u)


@tf.custom_gradient
def log_of(x):
    """Without the floor."""
    return tf.math.log(tf.maximum(x, 0.1)), lambda u: u / x
