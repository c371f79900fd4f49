"""Functions around op types that have kernels for XLA alone: each is compiled here, whatever the mode."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

# OpSharding{type: MANUAL}, serialised: a shard is a tensor of its own.
MANUAL = b"\x08\x04"


def _compiled(function, *tensors):
    return tf.function(function, jit_compile=True, autograph=False)(*tensors)


def einsum(a, b, equation):
    """Multiply and sum by XLA's einsum."""
    return _compiled(lambda a, b: gen_xla_ops.xla_einsum(a, b, equation), a, b)


def plain_einsum(a, b, equation):
    """Multiply and sum by TensorFlow's einsum, which takes float64, too."""
    return tf.einsum(equation, a, b)


def sharding(x):
    """Say how a tensor is sharded, and go on with it."""
    return _compiled(lambda x: tf.sin(gen_xla_ops.xla_sharding(x * x, sharding="")), x)


def full_to_shard(x, dim=-1):
    """Hand a tensor over to code that sees one shard of it: on one device that is all of it."""
    return _compiled(
        lambda x: tf.sin(gen_xla_ops.xla_spmd_full_to_shard_shape(x * x, manual_sharding=MANUAL, dim=dim)), x
    )


def shard_to_full(x, dim=-1):
    """Take a tensor back from code that sees one shard of it."""

    def take_back(x):
        full = gen_xla_ops.xla_spmd_shard_to_full_shape(
            x * x, manual_sharding=MANUAL, full_shape=x.shape, dim=dim
        )
        return tf.sin(full)

    return _compiled(take_back, x)


def there_and_back(x):
    """Hand a tensor over to code that sees one shard of it, and take it back."""

    def both(x):
        shard = gen_xla_ops.xla_spmd_full_to_shard_shape(x * x, manual_sharding=MANUAL)
        full = gen_xla_ops.xla_spmd_shard_to_full_shape(
            tf.sin(shard), manual_sharding=MANUAL, full_shape=x.shape
        )
        return full * x

    return _compiled(both, x)
