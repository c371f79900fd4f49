"""Functions of tensors around the TensorArrays of TensorFlow 1, whose handles no spec can write down.

These are what a v1 graph uses, in which control flow v2 is disabled; in a tf.function a tf.TensorArray is a
TensorList. The gradient functions ask the graph that they are built in which of the two it uses, so that each
function here makes its graph one of the first kind.
"""

import tensorflow as tf
from mixed_outputs import mixed

tf.compat.v1.disable_control_flow_v2()
raw = tf.raw_ops


def _array(size, dtype, **attrs):
    """Make a TensorArray in a graph without control flow v2; return its handle and its flow."""
    # A function's graph has control flow v2 whatever is disabled, unless it is of the legacy kind, which
    # TensorFlow knows by this attribute.
    tf.compat.v1.get_default_graph()._captured = True  # noqa: SLF001
    return raw.TensorArrayV3(size=size, dtype=dtype, clear_after_read=False, **attrs)


def write(*rows, size=None, order=None):
    """Write each tensor to an element, and gather all."""
    handle, flow = _array(size or len(rows), rows[0].dtype, element_shape=rows[0].shape)
    order = range(len(rows)) if order is None else order
    for index, row in zip(order, rows, strict=True):
        flow = raw.TensorArrayWriteV3(handle=handle, index=index, value=row, flow_in=flow)
    return mixed(_gathered(handle, flow, list(order), rows[0]))


def write_dynamic(x, u):
    """Write two tensors to an array that grows."""
    handle, flow = _array(0, x.dtype, dynamic_size=True)
    for index, row in enumerate((x, u)):
        flow = raw.TensorArrayWriteV3(handle=handle, index=index, value=row, flow_in=flow)
    return mixed(_gathered(handle, flow, [0, 1], x))


def _gathered(handle, flow, indices, like):
    return raw.TensorArrayGatherV3(
        handle=handle,
        indices=tf.constant(indices, tf.int32, [len(indices)]),
        flow_in=flow,
        dtype=like.dtype,
        element_shape=like.shape,
    )


def _scattered(x, indices=None, size=None, **attrs):
    rows = x.shape[0]
    indices = list(range(rows)) if indices is None else indices
    handle, flow = _array(size or rows, x.dtype, element_shape=x.shape[1:], **attrs)
    return handle, raw.TensorArrayScatterV3(
        handle=handle, indices=tf.constant(indices, tf.int32, [rows]), value=x, flow_in=flow
    )


def read(x, indices):
    """Read single elements; an index may come again."""
    handle, flow = _scattered(x)
    return mixed(
        *[raw.TensorArrayReadV3(handle=handle, index=index, flow_in=flow, dtype=x.dtype) for index in indices]
    )


def gather(x, indices):
    """Gather elements; an index may come again."""
    handle, flow = _scattered(x)
    row = tf.zeros(x.shape[1:], x.dtype)
    return mixed(_gathered(handle, flow, indices, row))


def scatter(x, indices, size=None):
    """Scatter rows, and gather all that were set."""
    handle, flow = _scattered(x, indices, size)
    row = tf.zeros(x.shape[1:], x.dtype)
    return mixed(_gathered(handle, flow, sorted(indices), row))


def concat(x, u):
    """Concatenate two tensors, which may differ in length."""
    handle, flow = _array(2, x.dtype)
    for index, part in enumerate((x, u)):
        flow = raw.TensorArrayWriteV3(handle=handle, index=index, value=part, flow_in=flow)
    joined, _ = raw.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=x.dtype)
    return mixed(joined)


def split(x, lengths, read):
    """Split a tensor into pieces, and read some of these."""
    handle, flow = _array(len(lengths), x.dtype)
    flow = raw.TensorArraySplitV3(
        handle=handle, value=x, lengths=tf.constant(lengths, tf.int64), flow_in=flow
    )
    return mixed(
        *[raw.TensorArrayReadV3(handle=handle, index=index, flow_in=flow, dtype=x.dtype) for index in read]
    )
