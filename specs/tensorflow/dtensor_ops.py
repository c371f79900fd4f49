"""Functions around DTensor's op types, on a mesh of the CPU alone.

An ordinary tensor goes on the mesh and off it again outside of the ops that are checked; what its gradient is
there is said by hand, since DTensor's own ways have none.
"""

import tensorflow as tf
from tensorflow.experimental import dtensor


def relayout(x):
    """Shard a replicated tensor."""
    return _off_the_mesh(dtensor.relayout(_on_the_mesh(x), _layout(x, "m")) ** 2)


def relayout_back(x):
    """Shard a replicated tensor, and replicate it again."""
    sharded = tf.sin(dtensor.relayout(_on_the_mesh(x), _layout(x, "m")))
    return _off_the_mesh(dtensor.relayout(sharded, _layout(x)) ** 2)


def relayout_like(x, u):
    """Lay a sharded tensor out like a replicated one."""
    replicated = _on_the_mesh(u)
    sharded = dtensor.relayout(_on_the_mesh(x), _layout(x, "m"))
    return _off_the_mesh(dtensor.relayout_like(sharded * sharded, replicated) * replicated)


def relayout_like_sharded(x, u):
    """Lay a replicated tensor out like a sharded one."""
    sharded = dtensor.relayout(_on_the_mesh(u), _layout(u, "m"))
    return _off_the_mesh(dtensor.relayout_like(_on_the_mesh(x) ** 2, sharded) * sharded)


def _layout(x, first=dtensor.UNSHARDED):
    """Return the layout of a tensor like `x`, which is sharded along its first axis or replicated."""
    mesh = dtensor.create_mesh([("m", 1)], devices=["CPU:0"])
    return dtensor.Layout([first] + [dtensor.UNSHARDED] * (x.shape.rank - 1), mesh)


@tf.custom_gradient
def _on_the_mesh(x):
    return dtensor.pack([x], _layout(x)), lambda upstream: dtensor.unpack(upstream)[0]


@tf.custom_gradient
def _off_the_mesh(x):
    layout = dtensor.fetch_layout(x)
    return dtensor.unpack(x)[0], lambda upstream: dtensor.pack([upstream], layout)
