"""Soft dynamic time warping: the soft minimum of the costs of all alignments of two series."""

import tensorflow as tf

# The cost of what can't be reached; an infinity would make NaN of differences.
FAR = 1e10


def soft_dtw(costs, *, smoothing):
    """Return the soft minimum over all monotone alignments of the sum of costs on their way.

    A cell's value R is its cost and the soft minimum of R left, above and above left. The gradient E, the
    probability that an alignment takes a cell, is found from the last cell back to the first, by the weights
    in these soft minima. Cells of one anti-diagonal don't depend on each other: they are computed at once.

    Args:
        costs: of pairing step i of one series with step j of the other, shape (batch, n, m).
        smoothing: how soft the minimum is; towards 0 it becomes that of dynamic time warping.

    Returns:
        Shape (batch,).

    References:
        Cuturi and Blondel, "Soft-DTW: a differentiable loss function for time-series", 2017, algorithms 1, 2.
    """

    @tf.custom_gradient
    def soft_minimum(costs):
        diagonals = _diagonals(costs)
        weights, values = _forward(diagonals, smoothing)
        last = values[-1, :, -1]

        def gradient(upstream):
            expected = _rows(_backward(weights), tf.shape(costs))
            return upstream[:, None, None] * expected

        return last, gradient

    return soft_minimum(costs)


def soft_dtw_of_series(first, second, *, smoothing):
    """Return the same for two batches of series, by squared Euclidean distance.

    Args:
        first: shape (batch, n, features).
        second: shape (batch, m, features).
        smoothing: how soft the minimum is.
    """
    differences = first[:, :, None, :] - second[:, None, :, :]
    return soft_dtw(tf.reduce_sum(differences**2, axis=-1), smoothing=smoothing)


def _forward(diagonals, smoothing):
    """Return the weights of the three cells before each in its soft minimum, and the values R.

    Args:
        diagonals: costs, shape (n + m - 1, batch, n).
        smoothing: how soft the minimum is.

    Returns:
        Weights of the cells above left, above and left, shape (n + m - 1, batch, n, 3), and values, shape
        (n + m - 1, batch, n).
    """
    far = tf.fill(tf.shape(diagonals)[1:], tf.constant(FAR, diagonals.dtype))
    before_the_first = tf.concat([tf.zeros_like(far[:, :1]), far[:, 1:]], axis=1)

    def step(before, cost):
        _, last, above_left = before
        above = _shifted_down(last)
        ways = -tf.stack([above_left, above, last], axis=-1) / smoothing
        return tf.nn.softmax(ways), cost - smoothing * tf.reduce_logsumexp(ways, axis=-1), above

    no_weights = tf.zeros_like(tf.stack([far] * 3, axis=-1))
    weights, values, _ = tf.scan(step, diagonals, initializer=(no_weights, far, before_the_first))
    return weights, values


def _backward(weights):
    """Return how often alignments take each cell: all that comes back from the three cells it leads to.

    Args:
        weights: shape (n + m - 1, batch, n, 3).

    Returns:
        Shape (n + m - 1, batch, n).
    """
    nothing = tf.zeros_like(weights[0])
    at_the_last = tf.one_hot(tf.fill(tf.shape(nothing)[:1], tf.shape(nothing)[1] - 1), tf.shape(nothing)[1])

    def step(after, weight):
        _, returned, from_below_right = after
        above_left, above, left = tf.unstack(returned, axis=-1)
        expected = left + _shifted_up(above) + from_below_right
        return expected, weight * expected[..., None], _shifted_up(above_left)

    initial = nothing[..., 0], nothing, tf.cast(at_the_last, weights.dtype)
    return tf.scan(step, weights, initializer=initial, reverse=True)[0]


def _shifted_down(cells):
    """Give each row's value to the row below; the first row gets none."""
    return tf.concat([tf.fill(tf.shape(cells[:, :1]), tf.constant(FAR, cells.dtype)), cells[:, :-1]], axis=1)


def _shifted_up(cells):
    """Give each row's value to the row above; the last row gets none."""
    return tf.concat([cells[:, 1:], tf.zeros_like(cells[:, :1])], axis=1)


def _diagonals(costs):
    """Return the anti-diagonals of (batch, n, m), shape (n + m - 1, batch, n), FAR where there is no cell."""
    batch, n, m = tf.unstack(tf.shape(costs))
    wide = tf.pad(costs, [[0, 0], [0, 0], [0, n]], constant_values=FAR)
    # Read in rows that are shorter by one, each row begins one cell further to the right.
    flat = tf.reshape(wide, [batch, n * (m + n)])[:, :-n]
    return tf.transpose(tf.reshape(flat, [batch, n, m + n - 1]), [2, 0, 1])


def _rows(diagonals, shape):
    """Return the cells of shape (batch, n, m) of which these are the anti-diagonals."""
    batch, n, m = tf.unstack(shape)
    flat = tf.reshape(tf.transpose(diagonals, [1, 2, 0]), [batch, n * (m + n - 1)])
    return tf.reshape(tf.pad(flat, [[0, 0], [0, n]]), [batch, n, m + n])[:, :, :m]
