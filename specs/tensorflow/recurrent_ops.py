"""A whole LSTM as one op, and the same written out: the reference, in any dtype.

Gates stand side by side in `w` and `b`: input, new cell, forget, output (ICFO) in BlockLSTM; input, forget,
new cell, output (IFCO) in BlockLSTMV2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDER = {1: (0, 1, 2, 3), 2: (0, 2, 1, 3)}  # where i, ci, f and o stand
INPUTS = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")


def states(*tensors: tf.Tensor, version: int, steps: int, **attrs: Any) -> list[tf.Tensor]:
    """Return the cell states and the outputs of each step, (steps, batch, units) each."""
    found = _block(tensors, version, steps, attrs)
    return [found.cs, found.h]


def gates(*tensors: tf.Tensor, version: int, steps: int, **attrs: Any) -> list[tf.Tensor]:
    """Return the gates of each step: i, f, o, ci and co."""
    found = _block(tensors, version, steps, attrs)
    return [found.i, found.f, found.o, found.ci, found.co]


def plain_states(*tensors: tf.Tensor, version: int, steps: int, **attrs: Any) -> list[tf.Tensor]:
    """Return what `states` returns."""
    found = _plain(tensors, version=version, steps=steps, **attrs)
    return [found["cs"], found["h"]]


def plain_gates(*tensors: tf.Tensor, version: int, steps: int, **attrs: Any) -> list[tf.Tensor]:
    """Return what `gates` returns."""
    found = _plain(tensors, version=version, steps=steps, **attrs)
    return [found[name] for name in ("i", "f", "o", "ci", "co")]


def _block(tensors: Sequence[tf.Tensor], version: int, steps: int, attrs: dict[str, Any]) -> Any:
    op = tf.raw_ops.BlockLSTM if version == 1 else tf.raw_ops.BlockLSTMV2
    return op(seq_len_max=tf.constant(steps, tf.int64), **dict(zip(INPUTS, tensors, strict=True)), **attrs)


def _plain(  # noqa: PLR0913 (the op's own attributes)
    tensors: Sequence[tf.Tensor],
    *,
    version: int,
    steps: int,
    forget_bias: float | None = None,
    cell_clip: float = -1.0,
    use_peephole: bool = False,
) -> dict[str, tf.Tensor]:
    """Run the recurrence of Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000).

    References:
        tensorflow/core/kernels/rnn/lstm_ops.h, for the order of the gates, peepholes and clipping.
    """
    x, cs, h, w, wci, wcf, wco, b = tensors
    bias = (1.0 if forget_bias is None else forget_bias) if version == 1 else 0.0
    found: dict[str, list[tf.Tensor]] = {name: [] for name in ("i", "cs", "f", "o", "ci", "co", "h")}
    for step in range(steps):
        parts = tf.split(tf.concat([x[step], h], 1) @ w + b, 4, axis=1)
        i, ci, f, o = (parts[place] for place in ORDER[version])
        f = f + tf.cast(bias, x.dtype)
        if use_peephole:
            i, f = i + cs * wci, f + cs * wcf
        i, f, ci = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(ci)
        cs = ci * i + cs * f
        if cell_clip > 0:
            cs = tf.clip_by_value(cs, tf.cast(-cell_clip, x.dtype), tf.cast(cell_clip, x.dtype))
        o = tf.sigmoid(o + cs * wco if use_peephole else o)
        co = tf.tanh(cs)
        h = co * o
        for name, value in zip(found, (i, cs, f, o, ci, co, h), strict=True):
            found[name].append(value)
    left = [tf.zeros_like(h)] * (x.shape[0] - steps)
    return {name: tf.stack(values + left) for name, values in found.items()}
