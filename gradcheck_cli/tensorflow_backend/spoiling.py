"""Fills free memory with numbers, so that a kernel that writes nothing doesn't find zeros by luck."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.tensorflow_backend.dtypes import Stack, take_points

Array = np.ndarray[Any, Any]

# Allocators keep pieces of each size, and the code around a kernel takes some. With 8 pieces, a kernel that
# leaves 128 bytes unwritten got zeros each time; with 100, one time in two. (empirical)
_PIECES = 100
# Bytes that the pieces may take together: larger ones come from the system, and are zero anyway.
_MOST = 2**26


def pull_in_spoilt_memory(
    pull: Callable[[Stack], Sequence[Array | None]],
    upstream: Stack,
    gradients: Iterable[TensorInfo],
    *,
    eagerly: bool = False,
) -> list[Array | None]:
    """Pull upstreams back one by one, with numbers in free memory before each."""
    infos, rows = list(gradients), []
    if not len(upstream):
        return list(pull(upstream))
    for row in range(len(upstream)):
        for info in infos:
            spoil_memory(info, eagerly=eagerly)
        rows.append(pull(take_points(upstream, slice(row, row + 1))))
    return [
        None if any(gradient is None for gradient in column) else np.concatenate(column)
        for column in zip(*rows, strict=True)
    ]


def spoil_memory(like: TensorInfo, *, eagerly: bool) -> None:
    """Fill some tensors of a tensor's shape and dtype with numbers, and free them.

    Args:
        eagerly: whether the next ops run in this thread, as eager ops do; a graph's ops run in others. A
            thread first reuses the memory that it freed itself.
    """
    if not like.size or like.size * tf.as_dtype(like.dtype).size * _PIECES > _MOST:
        return
    if eagerly:
        pieces = [tf.ones(like.shape, like.dtype) for _ in range(_PIECES)]
        del pieces
    else:
        _filler(like.shape, like.dtype)(tf.cast(tf.range(1, 1 + _PIECES), like.dtype))


@functools.lru_cache(maxsize=64)
def _filler(shape: tuple[int, ...], dtype: str) -> Any:
    def fill(values: Any) -> Any:
        # Constant or equal values would become a single piece, made when the graph is prepared.
        size = tf.constant(shape, tf.int32)
        return tf.add_n([tf.raw_ops.Fill(dims=size, value=value) for value in tf.unstack(values)])

    return tf.compat.v1.wrap_function(fill, [tf.TensorSpec([_PIECES], dtype)])
