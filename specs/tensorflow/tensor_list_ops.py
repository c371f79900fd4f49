"""Functions of tensors around TensorList op types, whose lists are variants that no spec can write down.

Each puts its tensors into a list, does one thing to it, and reads tensors out again.
"""

import tensorflow as tf
from mixed_outputs import mixed

raw = tf.raw_ops


def _list_of(x):
    return raw.TensorListFromTensor(tensor=x, element_shape=x.shape[1:])


def _stacked(handle, like, count=-1, shape=None):
    shape = like.shape[1:] if shape is None else shape
    return mixed(
        raw.TensorListStack(
            input_handle=handle, element_shape=shape, element_dtype=like.dtype, num_elements=count
        )
    )


def _item(handle, index, like):
    return raw.TensorListGetItem(
        input_handle=handle, index=index, element_shape=like.shape[1:], element_dtype=like.dtype
    )


def _shape(shape):
    """Return an element shape that says as much as is wanted: -1 for nothing."""
    return -1 if shape is None else tf.constant(shape, tf.int32)


def push_back(x, element_shape=None, limit=-1):
    """Push the rows of `x` on an empty list, one by one."""
    handle = raw.EmptyTensorList(
        element_shape=_shape(element_shape), max_num_elements=limit, element_dtype=x.dtype
    )
    for row in range(x.shape[0]):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=x[row])
    return _stacked(handle, x, x.shape[0])


def push_one_twice(x):
    """Push the same tensor twice."""
    handle = raw.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=x.dtype)
    for _ in range(2):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=x)
    return _stacked(handle, x, 2, x.shape)


def pop_back(x, pops=1, keep="both"):
    """Pop rows off a list of `x`'s; `keep` says whether the rows, the rest of the list or both are used."""
    handle, rows = _list_of(x), []
    for _ in range(pops):
        handle, row = raw.TensorListPopBack(
            input_handle=handle, element_shape=x.shape[1:], element_dtype=x.dtype
        )
        rows.append(mixed(row))
    rest = _stacked(handle, x)
    return {"both": [*rows, rest], "rows": rows, "rest": [rest]}[keep]


def stack(x, u, count=-1):
    """Stack a list of two tensors."""
    handle = raw.TensorListReserve(element_shape=x.shape, num_elements=2, element_dtype=x.dtype)
    for index, item in enumerate((x, u)):
        handle = raw.TensorListSetItem(input_handle=handle, index=index, item=item)
    return _stacked(handle, x, count, x.shape)


def stack_with_hole(x, size=4, at=1):
    """Stack a list of which one element alone was ever set; the others are zeros."""
    handle = raw.TensorListReserve(element_shape=x.shape, num_elements=size, element_dtype=x.dtype)
    handle = raw.TensorListSetItem(input_handle=handle, index=at, item=x)
    return _stacked(handle, x, size, x.shape)


def from_tensor(x, element_shape=None):
    """Make a list of the rows of `x`, and stack it again."""
    return _stacked(raw.TensorListFromTensor(tensor=x, element_shape=_shape(element_shape)), x)


def get_item(x, indices):
    """Read single elements of a list of `x`'s rows; an index may come again."""
    handle = _list_of(x)
    return [mixed(_item(handle, index, x)) for index in indices]


def get_item_at(x, index):
    """Read the element of a list at an index that is a tensor."""
    return mixed(_item(_list_of(x), index, x))


def get_item_unset(x):
    """Read an element that was never set, times one that was."""
    handle = raw.TensorListReserve(element_shape=x.shape, num_elements=3, element_dtype=x.dtype)
    handle = raw.TensorListSetItem(input_handle=handle, index=0, item=x)
    read = [
        raw.TensorListGetItem(input_handle=handle, index=index, element_shape=x.shape, element_dtype=x.dtype)
        for index in (0, 2)
    ]
    return mixed(read[0]) + 3 * read[1]


def set_item(x, u, index=0, *, resize=False):
    """Replace one element of a list of `x`'s rows by `u`."""
    handle = raw.TensorListSetItem(
        input_handle=_list_of(x), index=index, item=u, resize_if_index_out_of_bounds=resize
    )
    return _stacked(handle, x)


def set_item_twice(x, u):
    """Replace the same element twice: `u` counts, the first replacement doesn't."""
    handle = raw.TensorListSetItem(input_handle=_list_of(x), index=1, item=3 * u)
    handle = raw.TensorListSetItem(input_handle=handle, index=1, item=u)
    return _stacked(handle, x)


def resize(x, size):
    """Make a list of `x`'s rows longer or shorter."""
    return _stacked(raw.TensorListResize(input_handle=_list_of(x), size=size), x)


def gather(x, indices):
    """Gather elements of a list of `x`'s rows."""
    return mixed(
        raw.TensorListGather(
            input_handle=_list_of(x),
            indices=tf.constant(indices, tf.int32, [len(indices)]),
            element_shape=x.shape[1:],
            element_dtype=x.dtype,
        )
    )


def scatter(x, indices):
    """Scatter rows into a list of its own, by the first version of the op."""
    return _stacked(raw.TensorListScatter(tensor=x, indices=indices, element_shape=x.shape[1:]), x)


def scatter_v2(x, indices, count=-1):
    """Scatter rows into a list of its own, of a given length."""
    handle = raw.TensorListScatterV2(
        tensor=x,
        indices=tf.constant(indices, tf.int32, [len(indices)]),
        element_shape=x.shape[1:],
        num_elements=count,
    )
    return _stacked(handle, x)


def scatter_into(x, u, indices):
    """Scatter the rows of `u` into a list of `x`'s rows."""
    handle = raw.TensorListScatterIntoExistingList(
        input_handle=_list_of(x), tensor=u, indices=tf.constant(indices, tf.int32, [len(indices)])
    )
    return _stacked(handle, x)


def concat(x, u):
    """Concatenate a list of two tensors, which may differ in length, by the first version of the op."""
    return mixed(
        raw.TensorListConcat(input_handle=_list_of_two(x, u), element_dtype=x.dtype, element_shape=None)[0]
    )


def concat_v2(x, u, element_shape=None, leading_dims=()):
    """Concatenate a list of two tensors, which may differ in length."""
    joined, _ = raw.TensorListConcatV2(
        input_handle=_list_of_two(x, u),
        element_shape=_shape(element_shape),
        leading_dims=tf.constant(leading_dims, tf.int64, [len(leading_dims)]),
        element_dtype=x.dtype,
    )
    return mixed(joined)


def _list_of_two(x, u):
    handle = raw.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=x.dtype)
    for tensor in (x, u):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=tensor)
    return handle


def concat_with_hole(x, leading_dims):
    """Concatenate a list whose second element was never set; it is zeros of the length that is told."""
    handle = raw.TensorListReserve(
        element_shape=_shape([-1, *x.shape[1:]]), num_elements=2, element_dtype=x.dtype
    )
    handle = raw.TensorListSetItem(input_handle=handle, index=0, item=x)
    joined, _ = raw.TensorListConcatV2(
        input_handle=handle,
        element_shape=_shape([-1, *x.shape[1:]]),
        leading_dims=tf.constant(leading_dims, tf.int64),
        element_dtype=x.dtype,
    )
    return mixed(joined)


def split(x, lengths, read):
    """Split `x` into a list of pieces, and read some of these."""
    handle = raw.TensorListSplit(
        tensor=x,
        element_shape=_shape([-1, *x.shape[1:]]),
        lengths=tf.constant(lengths, tf.int64, [len(lengths)]),
    )
    return [
        mixed(
            raw.TensorListGetItem(
                input_handle=handle,
                index=index,
                element_shape=_shape([lengths[index], *x.shape[1:]]),
                element_dtype=x.dtype,
            )
        )
        for index in read
    ]
