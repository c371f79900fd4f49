"""The loss of connectionist temporal classification, and its definition: a sum over every path."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence


def loss(x: tf.Tensor, labels: Sequence[Sequence[int]], lengths: Sequence[int], **attrs: Any) -> tf.Tensor:
    """Return CTCLoss's loss of each item, logits being (time, batch, classes), the last the blank."""
    places = [(item, place) for item, row in enumerate(labels) for place in range(len(row))]
    return tf.raw_ops.CTCLoss(
        inputs=x,
        labels_indices=tf.constant(places, tf.int64),
        labels_values=tf.constant([label for row in labels for label in row], tf.int32),
        sequence_length=tf.constant(lengths, tf.int32),
        **attrs,
    ).loss


def by_paths(  # noqa: PLR0913 (the op's own attributes)
    x: tf.Tensor,
    labels: Sequence[Sequence[int]],
    lengths: Sequence[int],
    *,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,  # noqa: ARG001 (no path: no loss)
) -> tf.Tensor:
    """Return what `loss` returns: minus the log of the probability of all paths that read as the labels.

    References:
        Graves et al., Connectionist Temporal Classification (2006), equation 3.
    """
    classes = int(x.shape[-1])
    blank = classes - 1
    losses = []
    for item, (row, length) in enumerate(zip(labels, lengths, strict=True)):
        wanted = [label for label, _ in itertools.groupby(row)] if preprocess_collapse_repeated else list(row)
        kept = [
            path
            for path in itertools.product(range(classes), repeat=length)
            if _read(path, blank, merges=ctc_merge_repeated) == wanted
        ]
        if not kept:
            losses.append(tf.zeros([], x.dtype))
            continue
        logs = tf.nn.log_softmax(x[:length, item])
        each = sum(tf.gather(logs[step], [path[step] for path in kept]) for step in range(length))
        losses.append(-tf.reduce_logsumexp(each))
    return tf.stack(losses)


def _read(path: Sequence[int], blank: int, *, merges: bool) -> list[int]:
    """Return the labels that a path reads as."""
    seen = [label for label, _ in itertools.groupby(path)] if merges else list(path)
    return [label for label in seen if label != blank]
