"""Leave numbers in memory that is free, where a kernel that writes nothing would find zeros by luck."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.stacks import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.tensorflow_backend.stacks import Stack

    Array = np.ndarray[Any, Any]

# Allocators keep pieces of each size at hand, and what surrounds a kernel takes some. With 8 of them a kernel
# that writes nothing to 128 bytes was given zeros each time, with 100 one time in two. (empirical)
_PIECES = 100
# Bytes that the pieces may take together: what is larger comes from the system, and is zero anyway.
_MOST = 2**26


def in_spoilt_memory(
    pull: Callable[[Stack], Sequence[Array | None]],
    upstream: Stack,
    gradients: Iterable[TensorInfo],
    *,
    eagerly: bool = False,
) -> list[Array | None]:
    """Pull upstreams back one by one, with numbers in free memory before each.

    Args:
        pull: returns the gradients of a stack of upstreams, or `None` for one that there isn't.
        upstream: the stack.
        gradients: what the gradients are like.
        eagerly: whether they are pulled back eagerly.
    """
    infos, rows = list(gradients), []
    if not len(upstream):
        return list(pull(upstream))
    for row in range(len(upstream)):
        for info in infos:
            spoil_memory(info, eagerly=eagerly)
        rows.append(pull(part_of(upstream, slice(row, row + 1))))
    return [
        None if any(part is None for part in column) else np.concatenate(column)
        for column in zip(*rows, strict=True)
    ]


def spoil_memory(like: TensorInfo, *, eagerly: bool) -> None:
    """Fill some tensors of a tensor's shape and dtype with numbers, and let go of them.

    Args:
        like: the tensor.
        eagerly: whether what comes runs in this thread, as eager ops do; those of a graph run in others. A
            thread takes first what it has given back itself.
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
    def fill(numbers: Any) -> Any:
        # Neither constants nor alike, or there would be one piece, made as the graph is prepared.
        size = tf.constant(shape, tf.int32)
        return tf.add_n([tf.raw_ops.Fill(dims=size, value=number) for number in tf.unstack(numbers)])

    return tf.compat.v1.wrap_function(fill, [tf.TensorSpec([_PIECES], dtype)])
