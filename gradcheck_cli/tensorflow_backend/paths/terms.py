"""The size that an output's rounding is relative to: the terms of its last sums may be far larger than it.

A log-likelihood of nearly 0 may be a difference of scores of 50: its rounding is theirs, far above its own
value. The bound is a first-order running error analysis: the error of a sum is the sum of its terms'
errors; in a product, each factor's error is multiplied by the other factor. A tensor that no moving input
reaches is rounded alike in every evaluation, so its rounding cancels in differences: `(1 - mask) * -1e30`
adds nothing.

References:
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (2002), section 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Array = np.ndarray[Any, Any]

_SUMS = {"Add", "AddN", "AddV2", "Sub"}
_PRODUCTS = {"Mul", "RealDiv"}
_PASSES_ON = {"ExpandDims", "Identity", "IdentityN", "Neg", "Reshape", "Squeeze", "StopGradient"}
# Each tensor is fetched once more at the base point.
_MOST_TENSORS = 32


def terms_of(output: Any) -> list[Any]:
    """Return the tensors in an output's last sums and products, including `output`.

    Returns:
        Nothing if there is no sum or too many tensors: then the output's own size counts.
    """
    tensors: dict[int, Any] = {}
    stack, has_sum = [output], False
    while stack:
        tensor = stack.pop()
        if id(tensor) in tensors:
            continue
        tensors[id(tensor)] = tensor
        has_sum |= tensor.op.type in _SUMS
        stack += _operands(tensor)
        if len(tensors) + len(stack) > _MOST_TENSORS:
            return []
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
            value, operands = np.abs(values[id(tensor)]), _operands(tensor)
            sizes = [
                size(operand) if operand.op in moving else np.zeros(np.shape(values[id(operand)]))
                for operand in operands
            ]
            with np.errstate(all="ignore"):
                if tensor.op.type in _SUMS:
                    passed_on = sum(sizes)
                elif tensor.op.type in _PRODUCTS:
                    first, second = (np.abs(values[id(operand)]) for operand in operands)
                    # Not relative to the product, which may be zero itself: x (1 + erf(x)) at -9.
                    other, own = (
                        (1 / second, value / second) if tensor.op.type == "RealDiv" else (second, first)
                    )
                    passed_on = np.fmax(sizes[0] * other, sizes[1] * own)
                else:
                    passed_on = sizes[0].reshape(value.shape) if sizes else value
            size_of[id(tensor)] = np.fmax(value, passed_on)
        return size_of[id(tensor)]

    return size(output)


def _operands(tensor: Any) -> list[Any]:
    """Return the operands whose rounding an op passes on."""
    op = tensor.op
    if op.type in _SUMS | _PRODUCTS:
        return list(op.inputs)
    return [op.inputs[tensor.value_index]] if op.type in _PASSES_ON else []
