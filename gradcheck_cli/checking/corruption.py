"""Known ways of corrupting a gradient, and an op whose vjp is corrupted in one of them.

They are mistakes that people make, and the smallest that a check must see: what is right otherwise is wrong
in this one way, at every upstream, in the declared dtype and in float64 alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.checking.operation import Array, Operation, TensorInfo
    from gradcheck_cli.numerics.moves import Moves

FACTOR, SIGN, ELEMENT, UPSTREAM = "factor", "sign", "element", "upstream"
NONE, TRANSPOSE, SWAP, CONJUGATE = "none", "transpose", "swap", "conjugate"
# By name, in the words of a report.
CORRUPTIONS = {
    FACTOR: "multiplied by 1.01",
    SIGN: "its sign flipped",
    ELEMENT: "one element changed by 1 %",
    UPSTREAM: "its upstream ignored",
    NONE: "None in its place",
    TRANSPOSE: "transposed, where it is square",
    SWAP: "swapped with another input's of the same shape",
    CONJUGATE: "conjugated, where it is complex",
}
_FACTOR = 1.01


@dataclass
class CorruptedOperation:
    """An op with a gradient that is wrong in one way; in all else it is the op itself.

    Attributes:
        inner: the op.
        corruption: one of `CORRUPTIONS`.
        numbers: the inputs whose gradients are corrupted.
        places: per output and input, the element that `ELEMENT` changes, in C order.
    """

    inner: Operation
    corruption: str
    numbers: frozenset[int]
    places: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> object:
        """Return what the op itself has."""
        return getattr(self.inner, name)

    def is_connected(self, output: int, number: int) -> bool:
        """Whether there's a gradient that isn't `None`."""
        if self.corruption == NONE and number in self.numbers:
            return False
        return self.inner.is_connected(output, number)

    def vjp(self, output: int, upstream: Array | Moves) -> list[Array | None]:
        """Pull upstreams of one output back, wrongly."""
        gradients = self.inner.vjp(output, upstream)
        if self.corruption == UPSTREAM:
            info = self.inner.outputs[output]
            deaf = self.inner.vjp(output, np.ones((1, *info.shape), _wide(info)))
            return self._replaced(gradients, lambda number: _repeated(deaf[number], len(upstream)))
        return self._replaced(gradients, lambda number: self._corrupted(gradients, number, output))

    def exactly(self) -> CorruptedOperation | None:
        """Return the op, as wrong, at the point before that was rounded."""
        inner = self.inner.exactly()
        return None if inner is None else replace(self, inner=inner)

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all differentiable outputs back at once, wrongly."""
        gradients = self.inner.joint_vjp(upstreams)
        if self.corruption == UPSTREAM:
            infos = {output: self.inner.outputs[output] for output in upstreams}
            ones: dict[int, Array] = {
                output: np.ones((1, *info.shape), _wide(info)) for output, info in infos.items()
            }
            deaf = self.inner.joint_vjp(ones)
            rows = len(next(iter(upstreams.values())))
            return self._replaced(gradients, lambda number: _repeated(deaf[number], rows))
        return self._replaced(gradients, lambda number: self._corrupted(gradients, number, None))

    def _replaced(
        self, gradients: Sequence[Array | None], wrong: Callable[[int], Array | None]
    ) -> list[Array | None]:
        return [
            wrong(number) if number in self.numbers and gradient is not None else gradient
            for number, gradient in enumerate(gradients)
        ]

    def _corrupted(self, gradients: Sequence[Array | None], number: int, output: int | None) -> Array | None:
        gradient = np.asarray(gradients[number])
        if self.corruption == NONE:
            return None
        if self.corruption == ELEMENT:
            place = self.places.get((output, number)) if output is not None else None
            return gradient if place is None else _with_element(gradient, place)
        if self.corruption == SWAP:
            other = partner(self.inner.inputs, number)
            return gradient if other is None or gradients[other] is None else gradients[other]
        return np.asarray(_CHANGES[self.corruption](gradient))


def _wide(info: TensorInfo) -> type:
    return complex if info.is_complex else float


def _repeated(gradient: Array | None, rows: int) -> Array | None:
    return None if gradient is None else np.repeat(gradient, rows, axis=0)


def _with_element(gradient: Array, place: int) -> Array:
    changed: Any = np.array(gradient)
    changed.reshape(len(gradient), -1)[:, place] *= _FACTOR
    return cast("Array", changed)


def _transposed(gradient: Array) -> Array:
    is_square = gradient.ndim > 2 and gradient.shape[-1] == gradient.shape[-2]  # noqa: PLR2004 (a stack of matrices)
    return np.swapaxes(gradient, -1, -2) if is_square else gradient


_CHANGES: dict[str, Callable[[Any], Any]] = {
    FACTOR: lambda gradient: gradient * _FACTOR,
    SIGN: lambda gradient: -gradient,
    TRANSPOSE: _transposed,
    CONJUGATE: np.conj,
}


def partner(inputs: Sequence[TensorInfo], number: int) -> int | None:
    """Return the next input whose gradient could be taken for this one's; `None` where there is none."""
    own = inputs[number]
    alike = [
        other
        for other, info in enumerate(inputs)
        if other != number and (info.shape, info.dtype) == (own.shape, own.dtype) and info.is_differentiable
    ]
    return next((other for other in alike if other > number), alike[0] if alike else None)
