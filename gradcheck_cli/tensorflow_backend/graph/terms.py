"""The size that an output's rounding is relative to: what is added on the way may be far larger than it.

A log-likelihood of nearly 0 may be a difference of scores of 50: its rounding is theirs, far above its own
value. `log(1 + exp(x))` at -39 is 0, and rounded as 1 is. The bound is a first-order running error analysis
of the last ops: the error of a sum is the sum of its terms' errors; in a product, each factor's error is
multiplied by the other factor; a function multiplies it by its slope. Ops without a rule are run alone, with
operands that are moved a little: `xlogy(p, p)` at 1 is 0, and rounded as p is. A tensor that no moving input
reaches is rounded alike in every evaluation, so its rounding cancels in differences: `(1 - mask) * -1e30`
adds nothing.

References:
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (2002), section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.private import private_graphs

# What an op makes of its operands' sizes: from the op, the sizes, the operands' values and its own value. NaN
# where it isn't known.
_PassOn = Callable[[Any, "Sequence[Array]", "Sequence[Array]", "Array"], "Array | float"]


def _multiply(op: Any, sizes: Sequence[Array], values: Sequence[Array], value: Array) -> Array:
    first, second = np.abs(values[0]), np.abs(values[1])
    # Not relative to the product, which may be zero itself: x (1 + erf(x)) at -9.
    other, own = (1 / second, np.abs(value) / second) if op.type == "RealDiv" else (second, first)
    return np.asarray(np.fmax(sizes[0] * other, sizes[1] * own))


def _multiply_matrices(op: Any, sizes: Sequence[Array], values: Sequence[Array], _: Array) -> Array:
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    is_turned = [op.get_attr(name) for name in names]

    def turn(matrices: Sequence[Array]) -> list[Array]:
        pairs = zip(matrices, is_turned, strict=True)
        return [np.swapaxes(matrix, -1, -2) if turned else matrix for matrix, turned in pairs]

    (left, right), (left_size, right_size) = turn([np.abs(each) for each in values]), turn(sizes)
    return np.asarray(np.fmax(left_size @ right, left @ right_size))


def _add_bias(op: Any, sizes: Sequence[Array], *_: Any) -> Array:
    size, bias = sizes
    if op.get_attr("data_format") == b"NCHW":  # of any rank: channels come second
        bias = np.reshape(bias, (-1, *[1] * (np.ndim(size) - 2)))
    return np.asarray(size + bias)


def _reduce(op: Any, sizes: Sequence[Array], _: Sequence[Array], value: Array) -> Array | float:
    axes = tf.get_static_value(op.inputs[1])
    if axes is None:
        return np.nan
    reduce = np.sum if op.type == "Sum" else np.mean
    return np.reshape(reduce(sizes[0], axis=tuple(np.ravel(axes).tolist())), np.shape(value))


def _concatenate(op: Any, sizes: Sequence[Array], *_: Any) -> Array | float:
    axis = tf.get_static_value(op.inputs[-1])
    return np.nan if axis is None else np.concatenate(sizes, int(axis))


def _choose(_: Any, sizes: Sequence[Array], values: Sequence[Array], value: Array) -> Array:
    """An operand that isn't chosen, by more than its own rounding, adds nothing: that of a guard, say."""
    eps = np.finfo(value.dtype).eps
    near = [np.abs(each - value) <= eps * size for each, size in zip(values, sizes, strict=True)]
    return np.fmax(*(np.where(is_near, size, 0.0) for is_near, size in zip(near, sizes, strict=True)))


def _scale_by(slope: Callable[[Array, Array], Array]) -> _PassOn:
    """Return the rule of a function of one operand, whose slope follows from operand and value."""
    return lambda _, sizes, values, value: np.abs(slope(values[0], value)) * sizes[0]


def _add_one(count: Callable[[Sequence[Array], Array], Array]) -> _PassOn:
    """Return the rule of an op that adds a 1 inside, such as a sum of exponentials: how often it counts."""
    return lambda _, sizes, values, value: np.abs(count(values, value)) * (sizes[0] > 0).any()


_FUNCTIONS = {
    "Abs": _scale_by(lambda x, _: np.ones_like(x)),
    "Exp": _scale_by(lambda _, y: y),
    "Expm1": _scale_by(lambda _, y: y + 1),
    "Log": _scale_by(lambda x, _: 1 / x),
    "Log1p": _scale_by(lambda x, _: 1 / (1 + x)),
    "Reciprocal": _scale_by(lambda _, y: y * y),
    "Relu": _scale_by(lambda x, _: x > 0),
    "Rsqrt": _scale_by(lambda _, y: y**3 / 2),
    "Sigmoid": _scale_by(lambda _, y: y * (1 - y)),
    "Sin": _scale_by(lambda x, _: np.cos(x)),
    "Softplus": _scale_by(lambda _, y: 1 - np.exp(-y)),
    "Sqrt": _scale_by(lambda _, y: 0.5 / y),
    "Square": _scale_by(lambda x, _: 2 * x),
    "Tanh": _scale_by(lambda _, y: 1 - y * y),
}
_ADDS: dict[str, _PassOn] = {
    **dict.fromkeys(("Add", "AddN", "AddV2", "Sub"), lambda _, sizes, *__: np.asarray(sum(sizes))),
    **dict.fromkeys(("Mean", "Sum"), _reduce),
    **dict.fromkeys(("BatchMatMulV2", "BatchMatMulV3", "MatMul"), _multiply_matrices),
    **dict.fromkeys(("Elu", "Selu"), _add_one(lambda values, _: values[0] < 0)),
    **dict.fromkeys(
        ("LogSoftmax", "SparseSoftmaxCrossEntropyWithLogits"), _add_one(lambda _, y: np.ones_like(y))
    ),
    "BiasAdd": _add_bias,
    "SigmoidGrad": _add_one(lambda values, _: values[0] * values[1]),  # dy y (1 - y)
    "SoftmaxCrossEntropyWithLogits": _add_one(lambda values, _: values[1].sum(axis=-1)),
    "TanhGrad": _add_one(lambda values, _: values[1]),  # dy (1 - y y)
}
_PASS_ON: dict[str, _PassOn] = {
    **_ADDS,
    **_FUNCTIONS,
    **dict.fromkeys(("Mul", "RealDiv"), _multiply),
    **dict.fromkeys(("Maximum", "Minimum"), _choose),
    "Complex": lambda _, sizes, *__: np.fmax(*sizes),
    "SelectV2": lambda _, sizes, values, __: np.where(values[0], *sizes[1:]),
    **dict.fromkeys(
        (
            *("Conj", "ExpandDims", "Identity", "IdentityN", "Imag", "Neg", "Real", "Reshape", "Squeeze"),
            "StopGradient",
        ),
        lambda _, sizes, __, value: np.reshape(sizes[0], np.shape(value)),
    ),
    "ConcatV2": _concatenate,
    "Pack": lambda op, sizes, *_: np.stack(sizes, op.get_attr("axis")),
}
# The operands that count, where these aren't all.
_OPERANDS: dict[str, slice] = {
    **dict.fromkeys(
        ("Mean", "Sum", "ExpandDims", "Reshape", "SparseSoftmaxCrossEntropyWithLogits"), slice(1)
    ),
    "ConcatV2": slice(-1),
}
_FED = {"Placeholder", "ReadVariableOp"}  # not rounded any more
# Each tensor is fetched once more at the base point.
_MOST_TENSORS = 48
# Elements of the operands of an op that is run alone.
_MOST_ELEMENTS = 2**14
_RUNS = 2  # with random signs: one alone may cancel in a sum


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
        has_sum |= bool(operands) and (op.type in _ADDS or op.type not in _PASS_ON)
        queue += [operand for key, operand in operands.items() if key not in tensors]
        tensors |= operands
    return list(tensors.values()) if has_sum else []


def rounded_size(output: Any, values: Mapping[int, Array], moving: Collection[Any]) -> Array:
    """Return the size that rounding of each element of an output is relative to, at least its own.

    Args:
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
                rule = _PASS_ON.get(tensor.op.type)
                with np.errstate(all="ignore"):
                    passed_on = np.broadcast_to(
                        rule(tensor.op, sizes, inputs, value) if rule else _measure(tensor, sizes, inputs),
                        np.shape(value),
                    )
            size_of[id(tensor)] = np.fmax(np.abs(value), passed_on)
        return size_of[id(tensor)]

    return size(output)


def _operands(tensor: Any) -> list[Any]:
    """Return the operands whose rounding an op passes on."""
    op = tensor.op
    if not (tensor.dtype.is_floating or tensor.dtype.is_complex):  # a choice or an index isn't rounded
        return []
    if op.type not in _PASS_ON:
        return list(op.inputs) if _can_be_run(op) else []
    if tensor.value_index and op.type != "IdentityN":
        return []
    if op.type == "IdentityN":
        return [op.inputs[tensor.value_index]]
    operands = list(op.inputs[_OPERANDS.get(op.type, slice(None))])
    # A graph function can't return a reference, which ops of TensorFlow 1 hand on.
    has_reference = any(operand.dtype != operand.dtype.base_dtype for operand in operands)
    return [] if has_reference else operands


def _can_be_run(op: Any) -> bool:
    """Whether an op without a rule is a function of small tensors of numbers, and of nothing else."""
    dtypes = [tensor.dtype for tensor in (*op.inputs, *op.outputs)]
    shapes = [tensor.shape for tensor in op.inputs]
    return (
        bool(shapes)
        and dtypes[0] in (tf.float32, tf.float64, tf.complex64, tf.complex128)
        and all(dtype.base_dtype == dtype and dtype.is_numpy_compatible for dtype in dtypes)
        and not {tf.string, tf.resource, tf.variant} & set(dtypes)
        and all(shape.is_fully_defined() for shape in shapes)
        and sum(shape.num_elements() for shape in shapes) <= _MOST_ELEMENTS
        and private_graphs.is_pure(op)
    )


def _measure(tensor: Any, sizes: Sequence[Array], values: Sequence[Array]) -> Array | float:
    """Return how much a tensor moves if the operands of its op do, per unit of movement; NaN if it can't run.

    Args:
        sizes: what each operand's rounding is relative to; whole numbers and booleans don't move.
    """
    dtypes = [operand.dtype for operand in tensor.op.inputs]
    step = np.finfo(dtypes[0].as_numpy_dtype).eps ** 0.75  # rounding of the value itself is small beside it
    generator = np.random.default_rng(0)

    def run(movement: float) -> Array:
        moved = [
            value + movement * generator.choice([-1.0, 1.0], np.shape(size)) * size
            if dtype.is_floating or dtype.is_complex
            else value
            for dtype, size, value in zip(dtypes, sizes, values, strict=True)
        ]
        operands = [
            np.asarray(value, dtype.as_numpy_dtype) for dtype, value in zip(dtypes, moved, strict=True)
        ]
        return np.asarray(private_graphs.run_alone(tensor.op, operands)[tensor.value_index])

    try:
        here = run(0.0)
        return np.asarray(np.max([np.abs(run(step) - here) for _ in range(_RUNS)], axis=0) / step)
    except (tf.errors.OpError, ValueError, TypeError, NotImplementedError):  # outside its domain, for one
        return np.nan
