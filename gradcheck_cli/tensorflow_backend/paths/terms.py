"""The size that an output's rounding is relative to: its last sums may have terms far larger than it.

A log-likelihood of nearly 0 is a difference of scores of 50. Its rounding is theirs, which its own value
doesn't show. The bound is a first-order running error analysis: the error of a sum is the sum of its terms'
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
_KEPT = {"ExpandDims", "Identity", "IdentityN", "Neg", "Reshape", "Squeeze", "StopGradient"}
# How many tensors are examined: each is fetched once more at the base point.
_MOST = 32


def terms_of(output: Any) -> list[Any]:
    """Return the tensors in an output's last sums and products, including `output`.

    Returns:
        Nothing if there is no sum or too many tensors: then the output's own size counts.
    """
    found: dict[int, Any] = {}
    stack, has_sum = [output], False
    while stack:
        tensor = stack.pop()
        if id(tensor) in found:
            continue
        found[id(tensor)] = tensor
        has_sum |= tensor.op.type in _SUMS
        stack += _parts(tensor)
        if len(found) + len(stack) > _MOST:
            return []
    return list(found.values()) if has_sum else []


def rounded_size(output: Any, values: Mapping[int, Array], moving: Collection[Any]) -> Array:
    """Return the size that rounding of each element of an output is relative to, at least its own.

    Args:
        output: the graph's tensor.
        values: id -> value of what `terms_of` returned.
        moving: the ops that differ from one evaluation to the next.
    """
    known: dict[int, Array] = {}

    def size(tensor: Any) -> Array:
        if id(tensor) not in known:
            value, parts = np.abs(values[id(tensor)]), _parts(tensor)
            sizes = [
                size(part) if part.op in moving else np.zeros(np.shape(values[id(part)])) for part in parts
            ]
            with np.errstate(all="ignore"):
                if tensor.op.type in _SUMS:
                    handed_on = sum(sizes)
                elif tensor.op.type in _PRODUCTS:
                    first, second = (np.abs(values[id(part)]) for part in parts)
                    # By the other factor, which holds where a factor is zero itself: x (1 + erf(x)) at -9.
                    other, own = (
                        (1 / second, value / second) if tensor.op.type == "RealDiv" else (second, first)
                    )
                    handed_on = np.fmax(sizes[0] * other, sizes[1] * own)
                else:
                    handed_on = sizes[0].reshape(value.shape) if sizes else value
            known[id(tensor)] = np.fmax(value, handed_on)
        return known[id(tensor)]

    return size(output)


def _parts(tensor: Any) -> list[Any]:
    """Return the operands whose rounding an op passes on."""
    op = tensor.op
    if op.type in _SUMS | _PRODUCTS:
        return list(op.inputs)
    return [op.inputs[tensor.value_index]] if op.type in _KEPT else []
