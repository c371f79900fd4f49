"""Known ways of corrupting a gradient, an op whose vjp is corrupted in one of these ways, and a cached op.

Corruptions are mistakes that people make, and the smallest mistakes that a check must see. A corrupted
gradient is wrong in one way only, for every upstream, in the declared dtype and in float64 alike. The op's
results are cached, because it is judged with many gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from gradcheck_cli.checking.ops.opener import Dtype, OpenedOperation, Opener, Opening
from gradcheck_cli.checking.ops.operation import Array, Gradients, Operation, Stack, TensorInfo
from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.spec.case import Case

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


Op = TypeVar("Op", bound=Operation)


@dataclass(frozen=True)
class Corruption:
    """One way of corrupting a gradient."""

    name: str  # one of `words.CORRUPTIONS`
    input_indices: frozenset[int]  # the inputs whose gradients are corrupted
    # per output and input, the element that `ELEMENT` changes, in C order
    elements: Mapping[tuple[int, int], int] = field(default_factory=dict)
    # per output and input, the element of the Jacobian that `SMALL` changes, and by how much
    shifts: Mapping[tuple[int, int], Shift] = field(default_factory=dict)

    def corrupt(self, op: Op) -> Op:
        """Return an op whose gradient is wrong in this way; otherwise it behaves as the op itself."""
        wrong = _WrongGradient(op, self)
        facts, forms = op.facts, op.forms
        return replace(
            op,
            vjp=wrong.vjp,
            joint_vjp=wrong.joint_vjp,
            vjp_beside=wrong.vjp_beside,
            facts=replace(facts, is_connected=wrong.is_connected, is_plain_chain=lambda *_: False),
            forms=replace(
                forms,
                at_unrounded_point=lambda: self._corrupt_form(forms.at_unrounded_point()),
                rounded_otherwise=lambda draw: self._corrupt_form(forms.rounded_otherwise(draw)),
            ),
        )

    def _corrupt_form(self, op: Operation | None) -> Operation | None:
        return None if op is None else self.corrupt(op)


@dataclass(frozen=True)
class _WrongGradient:
    """Pulls upstreams back wrongly."""

    inner: Operation
    how: Corruption

    @property
    def corruption(self) -> str:
        return self.how.name

    def is_connected(self, output: int, input_index: int) -> bool:
        """Whether there is a gradient that isn't `None`."""
        if self.corruption == NONE and input_index in self.how.input_indices:
            return False
        return self.inner.facts.is_connected(output, input_index)

    def vjp(self, output: int, upstream: Stack) -> Gradients:
        """Pull upstreams of one output back, wrongly."""
        return self._pull(self.inner.vjp, output, upstream)

    def vjp_beside(self, output: int, upstream: Array, point: Mapping[int, Array]) -> Gradients | None:
        """Pull upstreams of one output back at another point, wrongly."""

        def pull(output: int, upstream: Stack) -> Gradients | None:
            rows = {index: value[: len(upstream)] for index, value in point.items()}
            return self.inner.vjp_beside(output, np.asarray(upstream), rows)

        return None if pull(output, upstream[:1]) is None else self._pull(pull, output, upstream)

    def _pull(self, pull: Callable[[int, Stack], Any], output: int, upstream: Stack) -> Gradients:
        gradients = pull(output, upstream)
        info = self.inner.outputs[output]
        if self.corruption in {ROW, SMALL, BRANCH, MEAN}:
            written = upstream.points() if isinstance(upstream, Moves) else upstream
            flow = np.asarray(written).reshape(len(upstream), *info.shape)
            return self._corrupt_by_upstream(pull, gradients, output, flow)
        if self.corruption == UPSTREAM:
            without_upstream = pull(output, np.ones((1, *info.shape), _wide_type(info)))
            return self._replace(
                gradients, lambda input_index: _repeat(without_upstream[input_index], len(upstream))
            )
        return self._replace(gradients, lambda input_index: self._corrupt(gradients, input_index, output))

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> Gradients:
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
        self,
        pull: Callable[[int, Stack], Any],
        gradients: Sequence[Array | None],
        output: int,
        flow: Array,
    ) -> Gradients:
        """Corrupt gradients in a way that depends on their upstream."""
        if self.corruption == ROW:
            zeroed: Any = np.array(flow)
            zeroed.reshape(len(flow), -1)[:, :1] = 0
            without = pull(output, zeroed)
            return self._replace(gradients, lambda input_index: without[input_index])

        def corrupt(input_index: int) -> Array:
            gradient: Any = np.asarray(gradients[input_index])
            shift = self.how.shifts.get((output, input_index))
            if self.corruption == SMALL and shift is not None:
                changed = np.array(gradient)
                row: Any = flow.reshape(len(flow), -1)[:, shift.row]
                changed.reshape(len(gradient), -1)[:, shift.column] += shift.amount * row
                return cast("Array", changed)
            if self.corruption == BRANCH and gradient.shape == flow.shape:
                return cast("Array", np.where(gradient == 0, flow, gradient))
            if self.corruption == MEAN:  # the first size above 1, of the output, else the input
                sizes = (*self.inner.outputs[output].shape, *gradient.shape[1:])
                return cast("Array", gradient / next((size for size in sizes if size > 1), 1))
            return cast("Array", gradient)

        return self._replace(gradients, corrupt)

    def _replace(
        self, gradients: Sequence[Array | None], corrupt: Callable[[int], Array | None]
    ) -> Gradients:
        return [
            gradient if gradient is None or index not in self.how.input_indices else corrupt(index)
            for index, gradient in enumerate(gradients)
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
            element = self.how.elements.get((output, input_index)) if output is not None else None
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


# How much memory one op's results may take together, in bytes. Beyond that they are computed again.
_MOST = 2**26


def cached(op: Op) -> Op:
    """Return an op that caches its results; otherwise it behaves as the op itself."""
    results = _Results(op)

    @cache
    def hold(stops: frozenset[str]) -> Operation | None:
        held = op.forms.holding(stops)
        return None if held is None else cached(held)

    return replace(
        op,
        evaluate=results.evaluate,
        vjp=results.vjp,
        joint_vjp=results.joint_vjp,
        forms=replace(op.forms, holding=hold),
    )


@dataclass
class _Results:
    """An op's results."""

    inner: Operation
    _results: dict[Any, list[Any]] = field(default_factory=dict)
    _size: int = 0

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the forward at several points; see `Operation`."""
        key = ("forward", *((input_index, _key_of(batch[input_index])) for input_index in sorted(batch)))
        return self._look_up(key, lambda: self.inner.evaluate(batch))

    def vjp(self, output: int, upstream: Stack) -> Gradients:
        """Pull upstreams of one output back; see `Operation`."""
        return self._look_up(("vjp", output, _key_of(upstream)), lambda: self.inner.vjp(output, upstream))

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> Gradients:
        """Pull upstreams of all outputs back; see `Operation`."""
        key = ("joint", *((output, _key_of(upstreams[output])) for output in sorted(upstreams)))
        return self._look_up(key, lambda: self.inner.joint_vjp(upstreams))

    def _look_up(self, key: Hashable, compute: Callable[[], list[Any]]) -> list[Any]:
        if key in self._results:
            return list(self._results[key])
        result = compute()
        self._size += sum(value.nbytes for value in result if value is not None)
        if self._size <= _MOST:
            self._results[key] = result
        return list(result)


def _key_of(stack: Stack) -> tuple[object, ...]:
    if isinstance(stack, Moves):
        arrays = (stack.base, stack.slot, stack.targets, stack.slots, stack.rows)
        return tuple(_key_of(array) for array in arrays)
    value = np.ascontiguousarray(stack)
    return (value.shape, value.dtype.str, value.tobytes())


@dataclass
class CachingOpener:
    """Opens each op of a case once, and caches it."""

    inner: Opener[Any]  # the opener that opens them
    _opened: dict[Opening, OpenedOperation | None] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        """The case that is opened."""
        return self.inner.case

    def open(self, opening: Opening) -> Any:  # noqa: ANN401 (an op, never None)
        """Open a form of the case; see `Opener`."""
        return self._look_up(opening, lambda: self.inner.open(opening))

    def in_dtype(self, op: OpenedOperation, dtype: Dtype) -> Any:  # noqa: ANN401 (an op, or None)
        """Open an opened op in another dtype; see `Opener`."""
        return self._look_up(replace(op.opening, dtype=dtype), lambda: self.inner.in_dtype(op, dtype))

    def retrace(self, op: OpenedOperation) -> Any:  # noqa: ANN401 (an op)
        """Trace an opened op's gradient once more."""
        return self.inner.retrace(op)

    def vjp(self, op: OpenedOperation) -> CachingOpener:
        """Return the opener of an opened op's vjp."""
        return CachingOpener(self.inner.vjp(op))

    def written_ops(self, op: OpenedOperation, output: int, input_index: int) -> Sequence[Any] | None:
        """Return the ops of a pair's path whose gradients the user wrote."""
        return self.inner.written_ops(op, output, input_index)

    def gradients_seen(self, op: OpenedOperation) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when the op's vjp was built."""
        return self.inner.gradients_seen(op)

    def unrun_gradients(self) -> Sequence[str]:
        """Say which custom gradients the forward called and no backward pass ran."""
        return self.inner.unrun_gradients()

    def _look_up(
        self, opening: Opening, compute: Callable[[], OpenedOperation | None]
    ) -> OpenedOperation | None:
        if opening not in self._opened:
            op = compute()
            self._opened[opening] = None if op is None else cached(op)
        return self._opened[opening]
