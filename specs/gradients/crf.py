"""A linear-chain conditional random field: log-likelihoods of label sequences, by marginals."""

import tensorflow as tf


@tf.custom_gradient
def log_normalizer(unaries, transitions, lengths):
    """Return the log of the sum of exp(score) over all label sequences, by the forward algorithm.

    Its gradient is what the model expects: the probability of each label at each step, and the expected
    number of each transition, both from the forward and the backward algorithm.

    Args:
        unaries: score of each label at each step, shape (batch, time, labels).
        transitions: score of going from one label to the next, shape (labels, labels).
        lengths: how many steps of each sequence there are, shape (batch,); at least 1.

    Returns:
        Shape (batch,).

    References:
        Lafferty, McCallum and Pereira, "Conditional random fields", 2001.
    """
    present = tf.sequence_mask(lengths, tf.shape(unaries)[1])
    alphas = _forward(unaries, transitions, present)
    total = tf.reduce_logsumexp(alphas[:, -1], axis=-1)

    def gradient(upstream):
        betas = _backward(unaries, transitions, present)
        label = tf.exp(alphas + betas - total[:, None, None]) * _as_numbers(present, unaries)
        pair = tf.exp(
            alphas[:, :-1, :, None]
            + transitions
            + (unaries + betas)[:, 1:, None, :]
            - total[:, None, None, None]
        )
        expected = tf.reduce_sum(pair * _as_numbers(present[:, 1:], unaries)[..., None], axis=1)
        return upstream[:, None, None] * label, tf.einsum("b,bij->ij", upstream, expected), None

    return total, gradient


def log_likelihood(unaries, transitions, lengths, labels):
    """Return the log-probability of each sequence of labels.

    Args:
        unaries: shape (batch, time, labels).
        transitions: shape (labels, labels).
        lengths: shape (batch,).
        labels: the sequences, shape (batch, time); what is beyond a sequence's length doesn't count.

    Returns:
        Shape (batch,).
    """
    present = _as_numbers(tf.sequence_mask(lengths, tf.shape(unaries)[1]), unaries)
    chosen = tf.one_hot(labels, tf.shape(unaries)[2], dtype=unaries.dtype) * present
    at_steps = tf.reduce_sum(unaries * chosen, axis=[1, 2])
    between = tf.einsum("bti,ij,btj->b", chosen[:, :-1], transitions, chosen[:, 1:])
    return at_steps + between - log_normalizer(unaries, transitions, lengths)


def _forward(unaries, transitions, present):
    """Return log-sums over all beginnings that end in a label; past the end they stay as they are."""

    def step(alpha, now):
        unary, is_present = now
        longer = tf.reduce_logsumexp(alpha[:, :, None] + transitions, axis=1) + unary
        return tf.where(is_present[:, None], longer, alpha)

    later = _time_first(unaries[:, 1:]), _time_first(present[:, 1:])
    rest = tf.scan(step, later, initializer=unaries[:, 0])
    return tf.concat([unaries[:, :1], _time_first(rest)], axis=1)


def _backward(unaries, transitions, present):
    """Return log-sums over all continuations of a label; at the end and past it there is one, of score 0."""

    def step(beta, following):
        unary, is_present = following
        longer = tf.reduce_logsumexp(transitions + (unary + beta)[:, None, :], axis=2)
        return tf.where(is_present[:, None], longer, beta)

    last = tf.zeros_like(unaries[:, 0])
    later = _time_first(unaries[:, 1:]), _time_first(present[:, 1:])
    rest = tf.scan(step, later, initializer=last, reverse=True)
    return tf.concat([_time_first(rest), last[:, None]], axis=1)


def _time_first(tensor):
    """Swap the first two axes."""
    return tf.transpose(tensor, [1, 0, *range(2, tensor.shape.rank)])


def _as_numbers(present, like):
    """Return 1 and 0 for true and false, with an axis for labels."""
    return tf.cast(present, like.dtype)[..., None]
