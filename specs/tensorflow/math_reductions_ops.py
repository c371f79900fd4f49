"""Forwards for what a raw op alone can't show of the reductions."""

import tensorflow as tf


def exclusive_cumulative_logsumexp(x, *, reverse=False):
    """Return the outputs of x's rows, without the row that is -inf."""
    y = tf.math.cumulative_logsumexp(x, axis=0, exclusive=True, reverse=reverse)
    return y[:-1] if reverse else y[1:]
