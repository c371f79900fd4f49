"""Forwards of array ops that no raw op alone makes: many tensors at once, slices, variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence


def concat_many(x: Any, axis: int) -> Any:
    """Concatenate 18 tensors: beyond 16 the gradient splits instead of slicing."""
    scaled = [factor * x for factor in range(1, 18)]
    return tf.raw_ops.ConcatV2(values=[*scaled, x], axis=axis)[..., 5:9]


def gather_of_concat(a: Any, b: Any, axis: int, indices: Sequence[int]) -> Any:
    """Gather rows of a concatenation, whose upstream is then slices instead of a tensor."""
    return tf.gather(tf.raw_ops.ConcatV2(values=[a, b], axis=axis), indices)


@tf.custom_gradient
def ref_identity(x: Any) -> Any:
    """Assign to a reference variable and read it; the gradient is that of the read."""
    variable = tf.raw_ops.VariableV2(shape=x.shape, dtype=x.dtype)
    assigned = tf.raw_ops.Assign(ref=variable, value=x)
    read = tf.raw_ops.RefIdentity(input=assigned)
    return tf.identity(read), lambda upstream: tf.gradients(read, assigned, upstream)[0]


def diag_part(x: Any, k: Sequence[int], align: str) -> Any:
    """Take a band of a matrix, with a k that is known when the graph is built."""
    padding = tf.zeros([], x.dtype)
    return tf.raw_ops.MatrixDiagPartV3(input=x, k=k, padding_value=padding, align=align)


def set_diag(x: Any, diagonal: Any, k: Sequence[int], align: str) -> Any:
    """Set a band of a matrix, with a k that is known when the graph is built."""
    return tf.raw_ops.MatrixSetDiagV3(input=x, diagonal=diagonal, k=k, align=align)


def gather(params: Any, indices: Any, axis: int, batch_dims: int, *, twice: bool = False) -> Any:
    """Gather along an axis that is known when the graph is built; twice, the upstream is slices itself."""
    taken = tf.raw_ops.GatherV2(params=params, indices=indices, axis=axis, batch_dims=batch_dims)
    return tf.raw_ops.GatherV2(params=taken, indices=[1, 1, 0], axis=axis) if twice else taken


class GatherNdOfVariable:
    """Gathers from a variable, which keeps what it was made with."""

    def __init__(self, shape: Sequence[int], dtype: str = "float64") -> None:
        """Make the variable."""
        real = tf.as_dtype(dtype).real_dtype
        values = tf.reshape(tf.range(1, 1 + int(tf.reduce_prod(shape))), shape)
        self.table = tf.Variable(tf.cast(tf.cast(values, real) / 4, dtype), name="table")

    def __call__(self, indices: Any) -> Any:
        """Return the elements or rows that indices name."""
        return tf.gather_nd(self.table, indices)
