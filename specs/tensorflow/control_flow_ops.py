"""Loops and branches, which a function's graph turns into functional ops: While, If, Case.

`dataflow_ops` has the same of the dataflow ops of TensorFlow 1.
"""

import tensorflow as tf
from mixed_outputs import mixed

v1 = tf.compat.v1


def _asserted(x):
    """Put a stateful op beside `x`, by which a loop or a branch is of the stateful kind."""
    tf.debugging.Assert(tf.reduce_all(tf.abs(x) < 1e30), ["beyond"])  # noqa: PLR2004 (any number)
    return x


# Loops.


def loop(x, u, n, *, stateful=False, **keywords):
    """Go `n` rounds, in which `u` stays what it is."""
    note = _asserted if stateful else tf.identity
    _, y = v1.while_loop(
        lambda i, _: i < n, lambda i, y: (i + 1, note(tf.sin(y) * u)), (tf.constant(0), x), **keywords
    )
    return mixed(y)


def loop_of_two(x, u, n):
    """Go `n` rounds with two tensors that each move by the other, and one that goes along unchanged."""
    _, y, z, same = v1.while_loop(
        lambda i, *_: i < n,
        lambda i, y, z, same: (i + 1, y * z, tf.cos(y) + z, same),
        (tf.constant(0), x, u, x * u),
    )
    return mixed(y, z, same)


def loop_in_a_loop(x, u, n):
    """Go `n` rounds, each of which goes round itself."""

    def rounds(i, y):
        _, inner = v1.while_loop(lambda j, _: j < i + 1, lambda j, z: (j + 1, tf.sin(z) * u), (0, y))
        return i + 1, inner + u

    return mixed(v1.while_loop(lambda i, _: i < n, rounds, (tf.constant(0), x))[1])


def loop_with_a_branch(x, u, n):
    """Go `n` rounds, every second of which does something else."""

    def rounds(i, y):
        return i + 1, v1.cond(tf.equal(i % 2, 0), lambda: y * u, lambda: tf.sin(y))

    return mixed(v1.while_loop(lambda i, _: i < n, rounds, (tf.constant(0), x))[1])


def loop_that_gathers(x, n):
    """Go `n` rounds, each of which takes rows of `x`."""

    def rounds(i, y):
        return i + 1, tf.sin(y) + tf.gather(x, [i % 2, 0])

    return mixed(v1.while_loop(lambda i, _: i < n, rounds, (tf.constant(0), tf.ones_like(x[:2])))[1])


def loop_until(x, u):
    """Go round for as long as what moves is small: how often is known by its value alone."""
    (y,) = v1.while_loop(
        lambda y: tf.reduce_max(y) < 20.0,  # noqa: PLR2004 (any number)
        lambda y: (y * 2 + u,),
        (x,),
        return_same_structure=True,
    )
    return mixed(y)


def loop_with_an_array(x, n):
    """Go `n` rounds, each of which writes what it has to a tf.TensorArray."""
    array = tf.TensorArray(x.dtype, size=n, element_shape=x.shape)
    _, _, array = tf.while_loop(
        lambda i, *_: i < n, lambda i, y, a: (i + 1, tf.sin(y), a.write(i, y)), (tf.constant(0), x, array)
    )
    return mixed(array.stack())


# Branches.


def branch(x, u, pick, *, stateful=False):
    """Take one of two branches."""
    note = _asserted if stateful else tf.identity
    return mixed(v1.cond(pick, lambda: note(tf.sin(x) * u), lambda: x * x - u))


def branch_that_ignores(x, u, pick):
    """Take one of two branches, of which one ignores `u`."""
    return mixed(v1.cond(pick, lambda: x * u, lambda: tf.sin(x)))


def branch_that_gathers(x, pick):
    """Take one of two branches, of which one takes rows."""
    return mixed(v1.cond(pick, lambda: tf.gather(x, [1, 1]), lambda: x[:2] * 2))


def branch_in_a_branch(x, u, pick):
    """Take one of two branches, of which one branches again."""
    deeper = tf.reduce_sum(tf.math.real(x)) < 1e9  # noqa: PLR2004 (any number)
    return mixed(v1.cond(pick, lambda: v1.cond(deeper, lambda: x * u, lambda: x), lambda: tf.sin(x)))


def branch_of_two(x, u, pick):
    """Take one of two branches, of which two tensors come."""
    return mixed(*v1.cond(pick, lambda: (x * u, tf.sin(u)), lambda: (x, x + u)))


def case(x, u, which, *, stateful=False):
    """Take one of three branches."""
    note = _asserted if stateful else tf.identity
    return mixed(
        tf.switch_case(which, [lambda: note(tf.sin(x) * u), lambda: x * x - u, lambda: tf.cos(u) * x])
    )


def case_that_ignores(x, u, which):
    """Take one of three branches, of which each ignores something."""
    return mixed(tf.switch_case(which, [lambda: x, lambda: tf.sin(u), lambda: tf.ones_like(x)]))
