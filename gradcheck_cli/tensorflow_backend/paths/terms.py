"""The size that an output's rounding is relative to: what is added on the way may be far larger than it.

A log-likelihood of nearly 0 may be a difference of scores of 50: its rounding is theirs, far above its own
value. `log(1 + exp(x))` at -39 is 0, and rounded as 1 is. The bound is a first-order running error analysis
of the last ops: the error of a sum is the sum of its terms' errors; in a product, each factor's error is
multiplied by the other factor; a function multiplies it by its slope. A tensor that no moving input reaches
is rounded alike in every evaluation, so its rounding cancels in differences: `(1 - mask) * -1e30` adds
nothing.

References:
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (2002), section 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Array = np.ndarray[Any, Any]

_SUMS = {"Add", "AddN", "AddV2", "BiasAdd", "Sub"}
_REDUCTIONS = {"Mean", "Sum"}
_PRODUCTS = {"Mul", "RealDiv"}
_MATRIX_PRODUCTS = {"BatchMatMulV2", "BatchMatMulV3", "MatMul"}
_CHOICES = {"Maximum", "Minimum", "SelectV2"}
_JOINS = {"ConcatV2", "Pack"}
_PASSES_ON = {"ExpandDims", "Identity", "IdentityN", "Neg", "Reshape", "Squeeze", "StopGradient"}
# Op type -> the size of its slope, of its operand and its value.
_FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "Abs": lambda x, _: np.ones_like(x),
    "Exp": lambda _, y: y,
    "Expm1": lambda _, y: y + 1,
    "Log": lambda x, _: 1 / x,
    "Log1p": lambda x, _: 1 / (1 + x),
    "Reciprocal": lambda _, y: y * y,
    "Relu": lambda x, _: x > 0,
    "Rsqrt": lambda _, y: y**3 / 2,
    "Sigmoid": lambda _, y: y * (1 - y),
    "Sin": lambda x, _: np.cos(x),
    "Softplus": lambda _, y: 1 - np.exp(-y),
    "Sqrt": lambda _, y: 0.5 / y,
    "Square": lambda x, _: 2 * x,
    "Tanh": lambda _, y: 1 - y * y,
}
# Ops that add a term of size 1 inside, before a logarithm or after an exponential, and how often it counts.
_ADDS_ONE: dict[str, Callable[[Sequence[Array], Array], Array]] = {
    "Elu": lambda inputs, _: inputs[0] < 0,
    "LogSoftmax": lambda _, y: np.ones_like(y),
    "Selu": lambda inputs, _: inputs[0] < 0,
    "SoftmaxCrossEntropyWithLogits": lambda inputs, _: inputs[1].sum(axis=-1),
    "SparseSoftmaxCrossEntropyWithLogits": lambda _, y: np.ones_like(y),
}
_FED = {"Placeholder", "ReadVariableOp"}  # not rounded any more
# Each tensor is fetched once more at the base point.
_MOST_TENSORS = 48


def terms_of(output: Any) -> list[Any]:
    """Return the tensors that an output's last sums, products and functions are made of, and `output`.

    Returns:
        Nothing if there is no sum: then the output's own size counts. If there are very many, only those
        nearest to the output.
    """
    tensors: dict[int, Any] = {id(output): output}
    queue, has_sum = [output], False
    for tensor in queue:
        op = tensor.op
        operands = {id(operand): operand for operand in _operands(tensor)}
        if len(tensors) + len(operands) > _MOST_TENSORS:
            break
        has_sum |= op.type in _SUMS | _REDUCTIONS | _MATRIX_PRODUCTS | _ADDS_ONE.keys()
        queue += [operand for key, operand in operands.items() if key not in tensors]
        tensors |= operands
    return list(tensors.values()) if has_sum else []


def rounded_size(output: Any, values: Mapping[int, Array], moving: Collection[Any]) -> Array:
    """Return the size that rounding of each element of an output is relative to, at least its own.

    Args:
        output: the graph's tensor.
        values: id -> value of what `terms_of` returned.
        moving: the ops that differ from one evaluation to the next.
    """
    size_of: dict[int, Array] = {}

    def size(tensor: Any) -> Array:
        if id(tensor) not in size_of:
            value, operands = values[id(tensor)], _operands(tensor)
            passed_on: Array | float = 0.0
            if operands and all(id(operand) in values for operand in operands):
                inputs = [values[id(operand)] for operand in operands]
                is_function = tensor.op.type in _FUNCTIONS
                sizes = [
                    size(operand)
                    if operand.op in moving and not (is_function and operand.op.type in _FED)
                    else np.zeros(np.shape(each))
                    for operand, each in zip(operands, inputs, strict=True)
                ]
                with np.errstate(all="ignore"):
                    passed_on = np.broadcast_to(_pass_on(tensor.op, sizes, inputs, value), np.shape(value))
            size_of[id(tensor)] = np.fmax(np.abs(value), passed_on)
        return size_of[id(tensor)]

    return size(output)


def _pass_on(op: Any, sizes: Sequence[Array], values: Sequence[Array], value: Array) -> Array | float:
    """Return what an op makes of the sizes of its operands; NaN where that isn't known.

    Args:
        op: the op.
        sizes: of the operands.
        values: of the operands.
        value: of the output.
    """
    kind = op.type
    if kind in _SUMS:
        return np.asarray(sum(sizes))
    if kind in _PRODUCTS:
        first, second = np.abs(values[0]), np.abs(values[1])
        # Not relative to the product, which may be zero itself: x (1 + erf(x)) at -9.
        other, own = (1 / second, np.abs(value) / second) if kind == "RealDiv" else (second, first)
        return np.asarray(np.fmax(sizes[0] * other, sizes[1] * own))
    if kind in _FUNCTIONS:
        return np.asarray(np.abs(_FUNCTIONS[kind](values[0], value)) * sizes[0])
    if kind in _ADDS_ONE:
        return np.asarray(np.abs(_ADDS_ONE[kind](values, value)) * (sizes[0] > 0).any())
    if kind in _CHOICES:
        return np.asarray(np.fmax(sizes[0], sizes[1]))
    if kind in _REDUCTIONS:
        axes = tf.get_static_value(op.inputs[1])
        if axes is None:
            return np.nan
        reduce = np.sum if kind == "Sum" else np.mean
        return np.reshape(reduce(sizes[0], axis=tuple(np.ravel(axes).tolist())), np.shape(value))
    if kind in _MATRIX_PRODUCTS:
        left, right = _transpose(op, [np.abs(each) for each in values])
        left_size, right_size = _transpose(op, sizes)
        return np.asarray(np.fmax(left_size @ right, left @ right_size))
    if kind == "Pack":
        return np.stack(sizes, op.get_attr("axis"))
    if kind == "ConcatV2":
        axis = tf.get_static_value(op.inputs[-1])
        return np.nan if axis is None else np.concatenate(sizes, int(axis))
    return np.reshape(sizes[0], np.shape(value))


def _transpose(op: Any, matrices: Sequence[Array]) -> list[Array]:
    """Return the operands of a product of matrices as they are multiplied."""
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    return [
        np.swapaxes(matrix, -1, -2) if op.get_attr(name) else matrix
        for matrix, name in zip(matrices, names, strict=True)
    ]


def _operands(tensor: Any) -> list[Any]:
    """Return the operands whose rounding an op passes on."""
    op = tensor.op
    if op.type in _SUMS | _PRODUCTS | _MATRIX_PRODUCTS or op.type == "Pack":
        return list(op.inputs)
    if op.type in _REDUCTIONS or op.type in _FUNCTIONS:
        return [op.inputs[0]]
    if op.type in _ADDS_ONE:
        return list(op.inputs[:2]) if tensor.value_index == 0 else []
    if op.type == "SelectV2":
        return list(op.inputs[1:])
    if op.type in _CHOICES:
        return list(op.inputs)
    if op.type == "ConcatV2":
        return list(op.inputs[:-1])
    return [op.inputs[tensor.value_index]] if op.type in _PASSES_ON else []
