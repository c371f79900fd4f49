"""Functions of decompositions that have derivatives: of symmetrised inputs, whatever the phases and signs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def _adjoint(a: Any) -> Any:
    return tf.linalg.adjoint(a)


def _hermitian(a: Any) -> Any:
    return (a + _adjoint(a)) / 2


def _outer(left: Any, right: Any) -> Any:
    """Return left_k right_k^H for each column k, which a common phase of both leaves alone."""
    return tf.einsum("...ik,...jk->...kij", left, tf.math.conj(right))


def cholesky(a: Any) -> Any:
    """Decompose the symmetric part: the op's gradient is symmetric, though its forward reads one triangle."""
    return tf.raw_ops.Cholesky(input=_hermitian(a))


def log_determinant(a: Any) -> Any:
    """Return the sign, and the logarithm of the modulus as the real number that it is."""
    sign, logarithm = tf.raw_ops.LogMatrixDeterminant(input=a)
    return sign, tf.math.real(logarithm)


def qr(a: Any, *, full_matrices: bool = False) -> Any:
    """Return q, and r without what lies below its diagonal."""
    q, r = tf.raw_ops.Qr(input=a, full_matrices=full_matrices)
    return q, tf.linalg.band_part(r, 0, -1)


def eigenvalues(a: Any) -> Any:
    """Return the eigenvalues alone."""
    complex_dtype = tf.complex64 if a.dtype in {tf.float32, tf.complex64} else tf.complex128
    return tf.raw_ops.Eig(input=a, compute_v=False, Tout=complex_dtype)[0]


def eigenvectors(a: Any) -> Any:
    """Return eigenvalues, and v_k v_k^H of the normalised eigenvectors."""
    complex_dtype = tf.complex64 if a.dtype in {tf.float32, tf.complex64} else tf.complex128
    values, vectors = tf.raw_ops.Eig(input=a, compute_v=True, Tout=complex_dtype)
    return values, _outer(vectors, vectors)


def eigenvalue_sum(a: Any) -> Any:
    """Return a function of the eigenvalues that is smooth where some are equal."""
    return tf.reduce_sum(eigenvalues(a) ** 2, axis=-1)


def symmetric_eigenvalues(a: Any) -> Any:
    """Return the eigenvalues of a self-adjoint matrix; the forward reads the lower triangle alone."""
    return tf.math.real(tf.raw_ops.SelfAdjointEigV2(input=a, compute_v=False)[0])


def symmetric_eigenvectors(a: Any) -> Any:
    """Return eigenvalues, and v_k v_k^H, of a self-adjoint matrix."""
    values, vectors = tf.raw_ops.SelfAdjointEigV2(input=a, compute_v=True)
    return tf.math.real(values), _outer(vectors, vectors)


def symmetric_eigenvalue_sum(a: Any) -> Any:
    """Return the sum of squared eigenvalues, which is smooth where some are equal."""
    return tf.reduce_sum(symmetric_eigenvalues(a) ** 2, axis=-1)


def singular_values(a: Any) -> Any:
    """Return the singular values alone."""
    return tf.math.real(tf.raw_ops.Svd(input=a, compute_uv=False, full_matrices=False)[0])


def singular_vectors(a: Any) -> Any:
    """Return singular values, and u_k v_k^H of their vectors, which has all that is determined of both."""
    s, u, v = tf.raw_ops.Svd(input=a, compute_uv=True, full_matrices=False)
    return tf.math.real(s), _outer(u, v)


def full_singular_vectors(a: Any) -> Any:
    """Return the same of square orthogonal factors, and n n^H of the vector that has no singular value."""
    s, u, v = tf.raw_ops.Svd(input=a, compute_uv=True, full_matrices=True)
    count = s.shape[-1]
    rest = (u if u.shape[-1] > count else v)[..., count:]
    return tf.math.real(s), _outer(u[..., :count], v[..., :count]), _outer(rest, rest)


def polar_factor(a: Any) -> Any:
    """Return u v^H, the nearest orthogonal matrix: smooth where singular values are equal, if none is 0."""
    _, u, v = tf.raw_ops.Svd(input=a, compute_uv=True, full_matrices=False)
    return tf.matmul(u, v, adjoint_b=True)
