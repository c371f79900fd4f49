"""Dtypes at the border: TensorFlow's own inside, wide NumPy ones (float64, complex128, int64) outside.

A stack holds the values of one argument at many points, written out or described as moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.spec.words import DTYPE_KINDS

Array = np.ndarray[Any, Any]


_WIDE = {"f": np.float64, "V": np.float64, "c": np.complex128, "i": np.int64, "u": np.uint64, "b": np.bool_}
REFERENCE = {name: widest for *narrower, widest in DTYPE_KINDS.values() for name in narrower}


def is_differentiable(dtype: tf.DType) -> bool:
    """Whether TensorFlow propagates gradients through this dtype."""
    return bool(dtype.is_floating or dtype.is_complex)


def narrow(value: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Cast a wide array to the NumPy form of a TensorFlow dtype, rounding to nearest."""
    target = tf.as_dtype(dtype)
    if target == tf.string:
        return value.astype(object)
    return value.astype(target.as_numpy_dtype, copy=False)


def constant(value: np.ndarray[Any, Any], dtype: Any) -> Any:
    """Return a wide array as a tensor of a TensorFlow dtype."""
    dtype = tf.as_dtype(dtype)
    return tf.constant(narrow(value, dtype.name), dtype)


def widen(value: Any) -> np.ndarray[Any, Any]:
    """Cast a tensor or its value to its wide NumPy form, which holds it exactly; a wide one isn't copied."""
    # NumPy takes no scalar tensor of a dtype that isn't NumPy's own, such as bfloat16.
    array = np.asarray(value.numpy() if tf.is_tensor(value) else value)
    if array.dtype == object:
        return array
    kind = "f" if array.dtype.name in DTYPE_KINDS["floating"] else array.dtype.kind
    return array.astype(_WIDE.get(kind, array.dtype), copy=False)


def magnitudes(values: Iterable[Array]) -> list[Array]:
    """Return what wide values' rounding is relative to: their sizes; zero for texts, which aren't rounded."""
    return [np.abs(value) if value.dtype.kind in "fciu" else np.zeros(value.shape) for value in values]


def reference_dtype(dtype: str) -> str:
    """Return the dtype in which a float or complex dtype is referenced; return others unchanged."""
    return REFERENCE.get(dtype, dtype)


def shape_text(shape: Any) -> str:
    """Return a shape as `[2, 3]`, with `?` for unknown dimensions."""
    dims = tf.TensorShape(shape)
    if dims.rank is None:
        return "of unknown rank"
    return "[" + ", ".join("?" if size is None else str(size) for size in dims.as_list()) + "]"


def moved(tensor: Any) -> Any:
    """Return a tensor of other values; one that isn't differentiable as it is."""
    if not is_differentiable(tensor.dtype):
        return tensor
    factor, offset = tf.constant(0.75, tensor.dtype), tf.constant(0.125, tensor.dtype)
    return tf.raw_ops.AddV2(x=tf.raw_ops.Mul(x=tensor, y=factor), y=offset)  # `*` costs three times as much


def as_list(result: Any) -> list[Any]:
    """Return what a function returned as a list; a single value as its only element."""
    return list(result) if isinstance(result, list | tuple) else [result]


# Values of shape (B, *shape), or moves of the flattened elements.
Stack = np.ndarray[Any, Any] | Moves


def value_of(stack: Stack, position: int, shape: tuple[int, ...]) -> Array:
    """Write one of a stack's points out, in its shape."""
    return stack.point(position).reshape(shape) if isinstance(stack, Moves) else stack[position]
