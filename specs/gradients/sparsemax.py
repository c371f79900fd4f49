"""Sparse kin of softmax, exact by sorting, with gradients that see the support alone."""

import tensorflow as tf


def sparsemax(scores):
    """Project each row of scores onto the probability simplex; what is far below the best gets exactly 0.

    On its support it is the scores minus a threshold, so that the gradient is the upstream minus its mean
    there, and 0 elsewhere. Where the support is about to change there is a kink.

    References:
        Martins and Astudillo, "From softmax to sparsemax", 2016.
    """

    @tf.custom_gradient
    def project(scores):
        # For each k, the threshold that would make the k best sum to 1; the right one leaves all k above it.
        best = tf.sort(scores, axis=-1, direction="DESCENDING")
        thresholds = (tf.cumsum(best, axis=-1) - 1) / _counts(best)
        threshold = _chosen(thresholds, best > thresholds)
        result = tf.nn.relu(scores - threshold)

        def gradient(upstream):
            return _through_support(upstream, tf.cast(result > 0, result.dtype))

        return result, gradient

    return project(scores)


def entmax15(scores):
    """Return 1.5-entmax of each row of scores: between softmax and sparsemax, and smooth.

    References:
        Peters, Niculae and Martins, "Sparse sequence-to-sequence models", 2019, algorithm 2.
    """

    @tf.custom_gradient
    def transform(scores):
        # It is relu(scores / 2 - threshold) squared. Of the k best, with their mean and variance, the
        # threshold that makes the squares sum to 1 is mean - sqrt(1 / k - variance).
        halves = (scores - tf.reduce_max(scores, axis=-1, keepdims=True)) / 2
        best = tf.sort(halves, axis=-1, direction="DESCENDING")
        counts = _counts(best)
        means = tf.cumsum(best, axis=-1) / counts
        variances = tf.cumsum(best**2, axis=-1) / counts - means**2
        thresholds = means - tf.sqrt(tf.nn.relu(1 / counts - variances))
        root = tf.nn.relu(halves - _chosen(thresholds, best > thresholds))
        return root**2, lambda upstream: _through_support(upstream, root)

    return transform(scores)


def _counts(rows):
    """Return 1, 2, 3, ... along the last axis of rows, whose size may be unknown."""
    return tf.range(1, tf.shape(rows)[-1] + 1, dtype=rows.dtype)


def _chosen(thresholds, above):
    """Return the threshold of the largest k for which the k-th best is above it, as a column."""
    size = tf.reduce_sum(tf.cast(above, tf.int32), axis=-1, keepdims=True)
    return tf.gather(thresholds, size - 1, batch_dims=thresholds.shape.rank - 1, axis=-1)


def _through_support(upstream, slope):
    """Multiply with the Jacobian diag(s) - s s^T / sum(s); the slopes s are 0 off the support."""
    total = tf.reduce_sum(slope, axis=-1, keepdims=True)
    mean = tf.reduce_sum(slope * upstream, axis=-1, keepdims=True) / total
    return slope * (upstream - mean)
