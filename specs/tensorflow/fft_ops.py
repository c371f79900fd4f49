"""Fourier transforms between real and complex tensors, of either precision: the raw op asks for both."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

COMPLEX = {tf.float32: tf.complex64, tf.float64: tf.complex128}
REAL = {complex_dtype: real_dtype for real_dtype, complex_dtype in COMPLEX.items()}


def rfft(x: Any, fft_length: Any) -> Any:
    """Transform a real tensor; a longer one than `fft_length` is cropped."""
    return tf.raw_ops.RFFT(input=x, fft_length=fft_length, Tcomplex=COMPLEX[x.dtype])


def irfft(x: Any, fft_length: Any) -> Any:
    """Transform half of a Hermitian spectrum to `fft_length` real values."""
    return tf.raw_ops.IRFFT(input=x, fft_length=fft_length, Treal=REAL[x.dtype])


def rfft2d(x: Any, fft_length: Any) -> Any:
    """Transform the last two dimensions of a real tensor."""
    return tf.raw_ops.RFFT2D(input=x, fft_length=fft_length, Tcomplex=COMPLEX[x.dtype])


def irfft2d(x: Any, fft_length: Any) -> Any:
    """Transform half of a Hermitian spectrum of two dimensions to real values."""
    return tf.raw_ops.IRFFT2D(input=x, fft_length=fft_length, Treal=REAL[x.dtype])
