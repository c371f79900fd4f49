"""Chains through compressed sparse row matrices, which are variants: from values to a dense tensor."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def _csr(indices: Any, values: Any, shape: Any) -> Any:
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(indices=indices, values=values, dense_shape=shape)


def _dense(matrix: Any, dtype: Any) -> Any:
    return tf.raw_ops.CSRSparseMatrixToDense(sparse_input=matrix, type=dtype)


def to_dense(indices: Any, values: Any, shape: Any) -> Any:
    """Return the dense tensor of a sparse one."""
    return _dense(_csr(indices, values, shape), values.dtype)


def to_sparse_tensor(indices: Any, values: Any, shape: Any) -> Any:
    """Return the values of a sparse tensor that went through a matrix."""
    return tf.raw_ops.CSRSparseMatrixToSparseTensor(
        sparse_matrix=_csr(indices, values, shape), type=values.dtype
    ).values


def from_dense(dense: Any, indices: Any) -> Any:
    """Return a dense tensor's elements at some indices, in their places."""
    return _dense(tf.raw_ops.DenseToCSRSparseMatrix(dense_input=dense, indices=indices), dense.dtype)


def transpose(indices: Any, values: Any, shape: Any, *, conjugate: bool = False) -> Any:
    """Return the transposed matrix, or the adjoint, as a dense tensor."""
    transposed = tf.raw_ops.SparseMatrixTranspose(
        input=_csr(indices, values, shape), conjugate=conjugate, type=values.dtype
    )
    return _dense(transposed, values.dtype)


def mat_mul(indices: Any, values: Any, shape: Any, b: Any, **attrs: bool) -> Any:
    """Multiply a sparse matrix by a dense one."""
    return tf.raw_ops.SparseMatrixMatMul(a=_csr(indices, values, shape), b=b, **attrs)


def sparse_mat_mul(  # noqa: PLR0913, PLR0917 (two sparse matrices of three parts each)
    a_indices: Any, a_values: Any, a_shape: Any, b_indices: Any, b_values: Any, b_shape: Any, **attrs: bool
) -> Any:
    """Multiply two sparse matrices; the product as a dense tensor."""
    product = tf.raw_ops.SparseMatrixSparseMatMul(
        a=_csr(a_indices, a_values, a_shape),
        b=_csr(b_indices, b_values, b_shape),
        type=a_values.dtype,
        **attrs,
    )
    return _dense(product, a_values.dtype)
