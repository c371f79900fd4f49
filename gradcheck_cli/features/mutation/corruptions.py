"""Known ways of corrupting a gradient, and an op whose vjp is corrupted in one of these ways.

They are mistakes that people make, and the smallest mistakes that a check must see. A corrupted gradient is
wrong in one way only, for every upstream, in the declared dtype and in float64 alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradcheck_cli.numerics.moves import Moves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.checking.ops.operation import Array, Operation, TensorInfo

FACTOR, SIGN, ELEMENT, UPSTREAM = "factor", "sign", "element", "upstream"
NONE, TRANSPOSE, SWAP, CONJUGATE = "none", "transpose", "swap", "conjugate"
SMALL, MEAN, AXIS, ROW, ZERO, BRANCH = "small", "mean", "axis", "row", "zero", "branch"
ONES, REPEATS, SIZE = "ones", "repeats", "size"
# Corruptions that a spec's points may be unable to show.
HIDDEN = frozenset({MEAN, AXIS, BRANCH, ONES, REPEATS, SIZE, TRANSPOSE, CONJUGATE})
_FACTOR = 1.01


@dataclass(frozen=True)
class Shift:
    """What is added to one element of a Jacobian of real tensors."""

    row: int
    column: int
    amount: float


@dataclass
class CorruptedOperation:
    """An op with a gradient that is wrong in one way; otherwise it behaves as the op itself.

    Attributes:
        inner: the op.
        corruption: one of `words.CORRUPTIONS`.
        input_indices: the inputs whose gradients are corrupted.
        elements: per output and input, the element that `ELEMENT` changes, in C order.
        shifts: per output and input, the element of the Jacobian that `SMALL` changes, and by how much.
    """

    inner: Operation
    corruption: str
    input_indices: frozenset[int]
    elements: Mapping[tuple[int, int], int] = field(default_factory=dict)
    shifts: Mapping[tuple[int, int], Shift] = field(default_factory=dict)

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the op itself."""
        return getattr(self.inner, name)

    def is_connected(self, output: int, input_index: int) -> bool:
        """Whether there is a gradient that isn't `None`."""
        if self.corruption == NONE and input_index in self.input_indices:
            return False
        return self.inner.is_connected(output, input_index)

    def is_plain_chain(self, output: int, input_index: int) -> bool:  # noqa: ARG002 (as `Operation` has it)
        """Never: whoever wrote the gradient, it is corrupted."""
        return False

    def vjp(self, output: int, upstream: Array | Moves) -> list[Array | None]:
        """Pull upstreams of one output back, wrongly."""
        gradients = self.inner.vjp(output, upstream)
        info = self.inner.outputs[output]
        if self.corruption in {ROW, SMALL, BRANCH, MEAN}:
            written = upstream.points() if isinstance(upstream, Moves) else upstream
            flow = np.asarray(written).reshape(len(upstream), *info.shape)
            return self._corrupt_by_upstream(gradients, output, flow)
        if self.corruption == UPSTREAM:
            without_upstream = self.inner.vjp(output, np.ones((1, *info.shape), _wide_type(info)))
            return self._replace(
                gradients, lambda input_index: _repeat(without_upstream[input_index], len(upstream))
            )
        return self._replace(gradients, lambda input_index: self._corrupt(gradients, input_index, output))

    def exactly(self) -> CorruptedOperation | None:
        """Return the same corrupted op at the point before rounding."""
        inner = self.inner.exactly()
        return None if inner is None else replace(self, inner=inner)

    def rounded_otherwise(self, draw: int) -> CorruptedOperation | None:
        """Return the same corrupted op with other roundings."""
        inner = self.inner.rounded_otherwise(draw)
        return None if inner is None else replace(self, inner=inner)

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all differentiable outputs back at once, wrongly."""
        gradients = self.inner.joint_vjp(upstreams)
        if self.corruption == UPSTREAM:
            infos = {output: self.inner.outputs[output] for output in upstreams}
            ones: dict[int, Array] = {
                output: np.ones((1, *info.shape), _wide_type(info)) for output, info in infos.items()
            }
            without_upstream = self.inner.joint_vjp(ones)
            rows = len(next(iter(upstreams.values())))
            return self._replace(gradients, lambda input_index: _repeat(without_upstream[input_index], rows))
        return self._replace(gradients, lambda input_index: self._corrupt(gradients, input_index, None))

    def _corrupt_by_upstream(
        self, gradients: Sequence[Array | None], output: int, flow: Array
    ) -> list[Array | None]:
        """Corrupt gradients in a way that depends on their upstream."""
        if self.corruption == ROW:
            zeroed: Any = np.array(flow)
            zeroed.reshape(len(flow), -1)[:, :1] = 0
            without = self.inner.vjp(output, zeroed)
            return self._replace(gradients, lambda input_index: without[input_index])

        def corrupt(input_index: int) -> Array:
            gradient: Any = np.asarray(gradients[input_index])
            shift = self.shifts.get((output, input_index))
            if self.corruption == SMALL and shift is not None:
                changed = np.array(gradient)
                row: Any = flow.reshape(len(flow), -1)[:, shift.row]
                changed.reshape(len(gradient), -1)[:, shift.column] += shift.amount * row
                return cast("Array", changed)
            if self.corruption == BRANCH and gradient.shape == flow.shape:
                return cast("Array", np.where(gradient == 0, flow, gradient))
            if self.corruption == MEAN:
                return cast(
                    "Array", gradient / _count_of_mean(self.inner.outputs[output], gradient.shape[1:])
                )
            return cast("Array", gradient)

        return self._replace(gradients, corrupt)

    def _replace(
        self, gradients: Sequence[Array | None], corrupt: Callable[[int], Array | None]
    ) -> list[Array | None]:
        return [
            corrupt(input_index) if input_index in self.input_indices and gradient is not None else gradient
            for input_index, gradient in enumerate(gradients)
        ]

    def _corrupt(
        self, gradients: Sequence[Array | None], input_index: int, output: int | None
    ) -> Array | None:
        gradient = np.asarray(gradients[input_index])
        if self.corruption == NONE:
            return None
        if self.corruption in {ROW, SMALL, BRANCH, MEAN}:  # these depend on one output's upstream
            return gradient
        if self.corruption == ELEMENT:
            element = self.elements.get((output, input_index)) if output is not None else None
            return gradient if element is None else _change_element(gradient, element)
        if self.corruption == SWAP:
            swapped = find_partner(self.inner.inputs, input_index)
            return gradient if swapped is None or gradients[swapped] is None else gradients[swapped]
        return np.asarray(_CHANGES[self.corruption](gradient))


def _wide_type(info: TensorInfo) -> type:
    return complex if info.is_complex else float


def _repeat(gradient: Array | None, rows: int) -> Array | None:
    return None if gradient is None else np.repeat(gradient, rows, axis=0)


def _change_element(gradient: Array, element: int) -> Array:
    changed: Any = np.array(gradient)
    changed.reshape(len(gradient), -1)[:, element] *= _FACTOR
    return cast("Array", changed)


def _count_of_mean(output: TensorInfo, shape: tuple[int, ...]) -> int:
    """Return the factor between a mean and a sum: the first size above 1, of the output, else the input."""
    return next((size for size in (*output.shape, *shape) if size > 1), 1)


def _swap_other_axes(gradient: Array) -> Array:
    """Swap the first two axes of equal size, except the last two, which `TRANSPOSE` swaps."""
    shape = gradient.shape[1:]
    equal = [
        (first + 1, second + 1)
        for second in range(len(shape))
        for first in range(second)
        if shape[first] == shape[second] > 1 and (first, second) != (len(shape) - 2, len(shape) - 1)
    ]
    return np.swapaxes(gradient, *equal[0]) if equal else gradient


def _transpose(gradient: Array) -> Array:
    is_square = gradient.ndim > 2 and gradient.shape[-1] == gradient.shape[-2]  # noqa: PLR2004 (a stack of matrices)
    return np.swapaxes(gradient, -1, -2) if is_square else gradient


_CHANGES: dict[str, Callable[[Any], Any]] = {
    FACTOR: lambda gradient: gradient * _FACTOR,
    SIGN: lambda gradient: -gradient,
    TRANSPOSE: _transpose,
    CONJUGATE: np.conj,
    AXIS: _swap_other_axes,
    ZERO: np.zeros_like,
}


def find_partner(inputs: Sequence[TensorInfo], input_index: int) -> int | None:
    """Return the next input whose gradient could be confused with this one's; `None` where there is none."""
    own_info = inputs[input_index]
    alike = [
        candidate
        for candidate, info in enumerate(inputs)
        if candidate != input_index
        and (info.shape, info.dtype) == (own_info.shape, own_info.dtype)
        and info.is_differentiable
    ]
    return next((candidate for candidate in alike if candidate > input_index), alike[0] if alike else None)
