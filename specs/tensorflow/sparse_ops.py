"""Sparse addition with its threshold as an attribute: the raw op wants it in the real dtype of the values."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def add(  # noqa: PLR0913, PLR0917 (two sparse tensors of three parts each, and the threshold)
    a_indices: Any,
    a_values: Any,
    a_shape: Any,
    b_indices: Any,
    b_values: Any,
    b_shape: Any,
    thresh: float = 0.0,
) -> Any:
    """Add two sparse tensors; sums of at most `thresh` in size are dropped."""
    return tf.raw_ops.SparseAdd(
        a_indices=a_indices,
        a_values=a_values,
        a_shape=a_shape,
        b_indices=b_indices,
        b_values=b_values,
        b_shape=b_shape,
        thresh=tf.constant(thresh, a_values.dtype.real_dtype),
    )
