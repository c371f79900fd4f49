"""What an output is rounded relative to: the terms that its last sums add, which may be far larger than it.

A log-likelihood of nearly 0 is a difference of scores of 50. Its rounding is theirs, and its value doesn't
tell. The bound is that of a running error analysis, of first order: a sum errs by what its terms err by, a
product by what its factors do, each times the other.

References:
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (2002), section 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    Array = np.ndarray[Any, Any]

_SUMS = {"Add", "AddN", "AddV2", "Sub"}
_PRODUCTS = {"Mul", "RealDiv"}
_KEPT = {"ExpandDims", "Identity", "IdentityN", "Neg", "Reshape", "Squeeze", "StopGradient"}
# Tensors that are looked at: each is fetched once more at the base point.
_MOST = 32


def terms_of(output: Any) -> list[Any]:
    """Return the tensors that an output's last sums and products are made of, `output` among them.

    Returns:
        Nothing where no sum is among them, or too many: then the output counts as large as its terms.
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


def rounded_size(output: Any, values: Mapping[int, Array]) -> Array:
    """Return the size that each element of an output is rounded relative to, at least its own.

    Args:
        output: the graph's tensor.
        values: id -> value of what `terms_of` returned.
    """
    known: dict[int, Array] = {}

    def size(tensor: Any) -> Array:
        if id(tensor) not in known:
            value, parts = np.abs(values[id(tensor)]), _parts(tensor)
            sizes = [size(part) for part in parts]
            with np.errstate(all="ignore"):
                if tensor.op.type in _SUMS:
                    handed_on = sum(sizes)
                elif tensor.op.type in _PRODUCTS:
                    # What a factor errs by, relative to it, the product does.
                    handed_on = value * np.fmax(
                        *(each / np.abs(values[id(part)]) for each, part in zip(sizes, parts, strict=True))
                    )
                else:
                    handed_on = sizes[0].reshape(value.shape) if sizes else value
            known[id(tensor)] = np.fmax(value, handed_on)
        return known[id(tensor)]

    return size(output)


def _parts(tensor: Any) -> list[Any]:
    """Return the operands whose rounding an op hands on."""
    op = tensor.op
    if op.type in _SUMS | _PRODUCTS:
        return list(op.inputs)
    return [op.inputs[tensor.value_index]] if op.type in _KEPT else []
