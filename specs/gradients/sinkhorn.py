"""Entropic optimal transport by Sinkhorn's iterations, with the gradient of their limit."""

import tensorflow as tf


def transport_plan(costs, sources, targets, *, smoothing, iterations):
    """Return the plan that moves one distribution to the other at the least cost less entropy.

    The plan is P = exp((f + g - costs) / smoothing), with f and g such that its rows sum to the sources and
    its columns to the targets. Its gradient follows from these two conditions alone, by one linear system,
    whatever the number of iterations; so it is right only if they have converged.

    Args:
        costs: of moving from i to j, shape (batch, n, m).
        sources: positive, each row with a sum of 1, shape (batch, n).
        targets: the same, shape (batch, m).
        smoothing: the weight of the entropy.
        iterations: how often rows and columns are scaled.

    Returns:
        Shape (batch, n, m).

    References:
        Cuturi, "Sinkhorn distances", 2013; Eisenberger et al., "A unified framework for implicit Sinkhorn
        differentiation", 2022.
    """

    @tf.custom_gradient
    def solve(costs, sources, targets):
        plan = _iterate(-costs / smoothing, tf.math.log(sources), tf.math.log(targets), iterations)

        def gradient(upstream):
            # Of a change of the costs, what isn't made up for by multipliers of rows and of columns reaches
            # the plan: these come from the condition that the sums stay.
            weighted = upstream * plan
            of_rows, of_columns = _multipliers(plan, weighted)
            through = weighted - plan * (of_rows[:, :, None] + of_columns[:, None, :])
            return -through / smoothing, of_rows, of_columns

        return plan, gradient

    return solve(costs, sources, targets)


def transport_plan_of_logits(costs, sources, targets, *, smoothing, iterations):
    """Return the plan for distributions by their logits, which may move freely: their softmax stays one."""
    return transport_plan(
        costs,
        tf.nn.softmax(sources),
        tf.nn.softmax(targets),
        smoothing=smoothing,
        iterations=iterations,
    )


def _iterate(scores, log_sources, log_targets, iterations):
    """Scale rows and columns of exp(scores) in turn, in logarithms: nothing overflows."""

    def scale(_, columns):
        rows = log_sources - tf.reduce_logsumexp(scores + columns[:, None, :], axis=2)
        return rows, log_targets - tf.reduce_logsumexp(scores + rows[:, :, None], axis=1)

    rows, columns = tf.while_loop(
        lambda *_: True,
        scale,
        (tf.zeros_like(log_sources), tf.zeros_like(log_targets)),
        maximum_iterations=iterations,
    )
    return tf.exp(scores + rows[:, :, None] + columns[:, None, :])


def _multipliers(plan, weighted):
    """Solve for what is to be added to rows and to columns so that `weighted` sums to zero along both.

    One number is free, since what is added to all rows may be taken from all columns: the multipliers of the
    columns sum to zero. They solve a system whose matrix is positive once that is added to it.
    """
    rows, columns = tf.reduce_sum(plan, axis=2), tf.reduce_sum(plan, axis=1)
    to_columns = plan / rows[:, :, None]
    matrix = tf.linalg.diag(columns) - tf.matmul(plan, to_columns, transpose_a=True)
    wanted = tf.reduce_sum(weighted, axis=1) - tf.einsum(
        "bij,bi->bj", to_columns, tf.reduce_sum(weighted, axis=2)
    )
    factor = tf.linalg.cholesky(matrix + tf.reduce_mean(columns))
    of_columns = tf.linalg.cholesky_solve(factor, wanted[:, :, None])[:, :, 0]
    of_rows = (tf.reduce_sum(weighted, axis=2) - tf.linalg.matvec(plan, of_columns)) / rows
    return of_rows, of_columns
