"""Reversible residual blocks: activations aren't kept for the gradient, but computed from the outputs."""

import tensorflow as tf


class Residual(tf.Module):
    """A residual branch: tanh(x W + b)."""

    def __init__(self, units, dtype, name):
        """Draw the weights."""
        super().__init__(name=name)
        self.kernel = tf.Variable(tf.random.normal([units, units], dtype=dtype), name=f"{name}_kernel")
        self.bias = tf.Variable(tf.random.normal([units], dtype=dtype), name=f"{name}_bias")

    def __call__(self, x):
        """Return the branch's value, for x of shape (batch, units)."""
        return tf.tanh(x @ self.kernel + self.bias)


class ReversibleStack(tf.Module):
    """Reversible blocks in a row, of which the outputs of the last alone are kept for the gradient.

    A block maps (x1, x2) to y1 = x1 + f(x2), y2 = x2 + g(y1). From its outputs it is run backward,
    x2 = y2 - g(y1), x1 = y1 - f(x2), so that memory doesn't grow with the number of blocks.

    References:
        Gomez, Ren, Urtasun and Grosse, "The reversible residual network", 2017.
    """

    def __init__(self, depth, units, dtype="float64"):
        """Make the blocks' branches.

        Args:
            depth: number of blocks.
            units: features of each of the two halves.
            dtype: of weights and inputs.
        """
        super().__init__()
        self.blocks = [
            (Residual(units, dtype, f"f{number}"), Residual(units, dtype, f"g{number}"))
            for number in range(depth)
        ]

    def __call__(self, x1, x2):
        """Run the two halves through all blocks.

        Args:
            x1: shape (batch, units).
            x2: the same.

        Returns:
            Both halves of the output.
        """

        @tf.custom_gradient
        def run(x1, x2):
            y1, y2 = self.plain(x1, x2)

            def gradient(upstream1, upstream2, variables=()):
                of = {variable.ref(): tf.zeros_like(variable) for variable in variables}
                z1, z2, u1, u2 = y1, y2, upstream1, upstream2
                for f, g in reversed(self.blocks):
                    value, returned = _pull_back(g, z1, u2, of)
                    z2, u1 = z2 - value, u1 + returned
                    value, returned = _pull_back(f, z2, u1, of)
                    z1, u2 = z1 - value, u2 + returned
                # TensorFlow says which variables it wants, and in what order.
                return (u1, u2), [of[variable.ref()] for variable in variables]

            return (y1, y2), gradient

        return run(x1, x2)

    def plain(self, x1, x2):
        """Return the same, with no gradient but TensorFlow's own."""
        for f, g in self.blocks:
            x1 = x1 + f(x2)
            x2 = x2 + g(x1)
        return x1, x2


def squared_outputs(**settings):
    """Make a stack, and return half the sum of squares of what comes out as a function of what goes in."""
    stack = ReversibleStack(**settings)

    def loss(x1, x2):
        y1, y2 = stack(x1, x2)
        return tf.nn.l2_loss(y1) + tf.nn.l2_loss(y2)

    return loss


def _pull_back(branch, x, upstream, of):
    """Compute a branch anew, and send an upstream back through it.

    Args:
        branch: the residual branch.
        x: what it is applied to.
        upstream: of its value.
        of: gradients of variables by their references, to which the branch's are added.

    Returns:
        The branch's value at x, and what comes back to x.
    """
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = branch(x)
    variables = branch.trainable_variables
    by_x, by_variables = tape.gradient(value, (x, variables), output_gradients=upstream)
    for variable, gradient in zip(variables, by_variables, strict=True):
        of[variable.ref()] += gradient
    return value, by_x
