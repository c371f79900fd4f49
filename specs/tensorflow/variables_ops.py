"""Functions that read variables: raw ops read by a handle, which no spec can write down.

The factories make the variable once, so that it is an input of its own (`variables: true`), or so that the
function assigns an argument to it.
"""

import tensorflow as tf

raw = tf.raw_ops


class Table(tf.Module):
    """A variable of a given shape, and what is read of it."""

    def __init__(self, shape, dtype, read, *, squared=True, **attrs):
        """Make the variable, at values that are no one's default."""
        super().__init__()
        values = tf.random.stateless_normal(shape, seed=[1, 2], dtype=tf.float64)
        if tf.as_dtype(dtype).is_complex:
            imaginary = tf.random.stateless_normal(shape, seed=[3, 4], dtype=tf.float64)
            self.table = tf.Variable(tf.cast(tf.complex(values, imaginary), dtype), name="table")
        else:
            self.table = tf.Variable(tf.cast(values, dtype), name="table")
        self.read, self.squared, self.attrs = read, squared, attrs

    def __call__(self, x):
        """Read the variable, square it, and put `x` on it."""
        # A raw op reads by the handle, and TensorFlow only notes what is read of the variable itself.
        self.table.read_value()
        read = getattr(self, self.read)()
        return (tf.square(read) if self.squared else read) + x

    def whole(self):
        """Read all of it."""
        return raw.ReadVariableOp(resource=self.table.handle, dtype=self.table.dtype)

    def twice(self):
        """Read all of it, twice."""
        return self.whole() * self.whole()

    def gather(self):
        """Gather rows."""
        return raw.ResourceGather(
            resource=self.table.handle,
            indices=tf.constant(self.attrs["indices"], tf.int32),
            dtype=self.table.dtype,
        )

    def gather_nd(self):
        """Gather by tuples of indices."""
        return raw.ResourceGatherNd(
            resource=self.table.handle,
            indices=tf.constant(self.attrs["indices"], tf.int32),
            dtype=self.table.dtype,
        )
