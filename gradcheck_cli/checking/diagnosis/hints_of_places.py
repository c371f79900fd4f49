"""Hints on elements that stand in the wrong place, are masked, or wrong in some rows or columns alone."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.diagnosis.hint_view import FEW, SAME, is_explained, named_factor, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck_cli.checking.diagnosis.hint_view import Change, View
    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.ops.packing import Float


_MOST_AXES = 4  # which have 24 orders
_MOST_STEPS = 16  # along an axis: parts of a concatenation that are taken for each other
_LISTED = 3  # slices


# Another input's derivative.


def as_swap(views: Sequence[View]) -> str:
    """Say that it is the derivative by another input, or that with the other sign."""
    order = "are the gradients returned in the wrong order?"
    for name in views[0].others:
        if any(view.others[name].shape != view.analytic.shape for view in views if name in view.others):
            continue
        theirs = [view.others.get(name) for view in views]
        for sign, told in ((1.0, "the derivative"), (-1.0, "-1 times the derivative")):
            if _is_all(views, theirs, sign):
                return f"it is {told} with respect to {name}: {order}"
    return ""


def _is_all(views: Sequence[View], theirs: Sequence[Float | None], sign: float) -> bool:
    seen = 0
    for view, other in zip(views, theirs, strict=True):
        if other is None:
            return False
        # The other pair's values are as good as this one's, at their own size.
        scale = SAME * float(np.max(np.abs(other), initial=0.0))
        if not np.all(np.abs(view.analytic - sign * other) <= view.slack + scale):
            return False
        seen += int(np.count_nonzero(other))
    return seen > 0


# Elements in other places.


def as_moved(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> str:
    """Say that axes are reversed, shifted, or have changed places."""
    if output.is_complex or taken.is_complex:
        return ""
    return next((told for told, change in _moves(output, taken) if is_explained(views, change)), "")


def _moves(output: TensorInfo, taken: TensorInfo) -> Iterator[tuple[str, Change]]:
    shape, rank = (*output.shape, *taken.shape), len(output.shape)
    for info, first, what in (
        (taken, rank, f"the gradient for {taken.name}"),
        (output, 0, f"the upstream of {output.name}"),
    ):
        for told, order in _orders(info.shape, first, shape, what):
            yield told, _on_axes(shape, partial(np.transpose, axes=order))
    for axis, size in enumerate(shape):
        if size > 1:
            yield from _along(output, taken, axis)
    if len(taken.shape) > 1:
        told = f"the elements of the gradient for {taken.name} stand in reverse order"
        yield told, lambda values: values[:, ::-1]
    if len(shape) > 2:  # noqa: PLR2004 (of two vectors the whole Jacobian is transposed, below)
        yield from _crossed(output, taken)
    if output.shape == taken.shape:
        told = (
            "the upstream is multiplied by the Jacobian instead of its transpose: does a step run forwards?"
        )
        yield told, lambda values: values.T


def _on_axes(shape: Sequence[int], change: Change) -> Change:
    """Apply a change of an array with the axes of the output and the input to a packed Jacobian."""
    return lambda values: np.asarray(change(values.reshape(shape)).reshape(values.shape))


def _along(output: TensorInfo, taken: TensorInfo, axis: int) -> Iterator[tuple[str, Change]]:
    """Return an axis reversed, and shifted, one that comes around or not."""
    shape, rank = (*output.shape, *taken.shape), len(output.shape)
    info, own = (output, axis) if axis < rank else (taken, axis - rank)
    along = f" along axis {own}" if len(info.shape) > 1 else ""
    what = f"the upstream of {info.name}" if axis < rank else f"the gradient for {info.name}"
    stands = f"{what} is reversed{along}, or isn't where it should be"
    if axis >= rank:
        stands = f"the elements of {what} stand in reverse order{along}"
    yield stands, _on_axes(shape, partial(np.flip, axis=axis))
    size = shape[axis]
    for step in (1, -1, *range(2, size - 1 if size <= _MOST_STEPS else 2)):
        told = f"{what} is shifted by {step}{along}: is an index off by one?"
        yield told, _on_axes(shape, partial(np.roll, shift=step, axis=axis))
        if abs(step) == 1:
            yield told, _on_axes(shape, partial(_shifted, step=step, axis=axis))


def _crossed(output: TensorInfo, taken: TensorInfo) -> Iterator[tuple[str, Change]]:
    """Return an axis of the output in the place of one of the input."""
    shape, rank = (*output.shape, *taken.shape), len(output.shape)
    for axis, other in itertools.product(range(rank), range(rank, len(shape))):
        if shape[axis] == shape[other] > 1:
            told = (
                f"a factor of the gradient for {taken.name} is transposed, or should be: {output.name}'s "
                f"axis {axis} and {taken.name}'s axis {other - rank} have changed places"
            )
            yield told, _on_axes(shape, partial(np.swapaxes, axis1=axis, axis2=other))


def _orders(
    axes: Sequence[int], first: int, shape: Sequence[int], what: str
) -> Iterator[tuple[str, list[int]]]:
    """Return the other orders of a tensor's axes that leave its shape as it is."""
    if len(axes) > _MOST_AXES:
        return
    for order in itertools.permutations(range(len(axes))):
        if list(order) == list(range(len(axes))) or [axes[axis] for axis in order] != list(axes):
            continue
        changed = [axis for axis, other in enumerate(order) if axis != other]
        told = f"{what} is transposed" if changed == [len(axes) - 2, len(axes) - 1] else ""
        told = told or f"the axes of {what} are permuted: {order}"
        every = list(range(len(shape)))
        every[first : first + len(axes)] = [first + axis for axis in order]
        yield told, every


def _shifted(values: Float, step: int, axis: int) -> Float:
    rolled = np.roll(values, step, axis)
    index: list[int | slice] = [slice(None)] * values.ndim
    index[axis] = 0 if step > 0 else -1
    rolled[tuple(index)] = 0.0
    return np.asarray(rolled)


# Masks and signs.


def as_masked(views: Sequence[View]) -> str:
    """Say that a mask is inverted, missing or too narrow, as far as zeros show it."""
    both = [view.is_moving & view.has_gradient for view in views]
    more = sum(int((view.has_gradient & ~view.is_moving).sum()) for view in views)
    fewer = sum(int((view.is_moving & ~view.has_gradient).sum()) for view in views)
    shared = sum(int(one.sum()) for one in both)
    if not shared and more and fewer:
        return "the gradient is zero where the derivative isn't, and the other way round: is a mask inverted?"
    is_right = all(
        np.all(np.abs(view.analytic - view.numeric)[one] <= view.slack[one])
        for view, one in zip(views, both, strict=True)
    )
    if not is_right or shared < FEW:
        return ""
    if more > 1 and not fewer:
        return (
            "the gradient is right where the derivative isn't zero, and not zero where it is: is a mask "
            "missing?"
        )
    if fewer > 1 and not more:
        return (
            f"the gradient is zero in {fewer} elements where the derivative isn't, and right in the others: "
            "is a part left out, or a mask too narrow?"
        )
    return ""


def as_signed(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> str:
    """Say that the sign alone is wrong, in some elements."""
    if output.is_complex or taken.is_complex:
        return ""
    flipped = [view.is_moving & (view.ratios < 0) for view in views]
    count = sum(int(one.sum()) for one in flipped)
    kept = sum(int((view.is_moving & ~one).sum()) for view, one in zip(views, flipped, strict=True))
    if not count or count + kept < FEW:
        return ""
    for view in views:
        signs = np.where(view.ratios < 0, -1.0, 1.0)
        if not np.all((np.abs(view.analytic - signs * view.numeric) <= view.slack) | ~view.known):
            return ""
    if all(not (view.is_moving & (view.analytic < 0)).any() for view in views):
        return "the gradient is the derivative's absolute value: is a sign missing?"
    return f"the sign is flipped in {count} of {count + kept} elements, and all else is right"


# A factor for some rows or columns.


def as_block(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> str:
    """Say that some slices along an axis are off by a factor."""
    if output.is_complex or taken.is_complex:
        return ""
    shape, rank = (*output.shape, *taken.shape), len(output.shape)
    for axis in (*range(rank, len(shape)), *range(rank)):
        factors = _factors_along(views, shape, axis)
        if factors is None:
            continue
        groups: dict[float, list[int]] = {}
        for number, factor in factors.items():
            known = nearest(factor, [1.0, *groups]) if factor else 0.0
            groups.setdefault(factor if known is None else known, []).append(number)
        off = {factor: numbers for factor, numbers in groups.items() if factor != 1.0}
        if len(off) != 1 or 1.0 not in groups:
            continue
        ((factor, numbers),) = off.items()
        info, own = (output, axis) if axis < rank else (taken, axis - rank)
        where = _slices(info, own, numbers)
        if axis < rank:
            told = "is dropped" if factor == 0 else f"counts {named_factor(factor)} times"
            return f"the upstream of {where} {told}, and all else is right"
        told = "zero" if factor == 0 else f"{named_factor(factor)} times the derivative"
        return f"the gradient is {told} for {where}, and all else is right"
    return ""


def _factors_along(views: Sequence[View], shape: Sequence[int], axis: int) -> dict[int, float] | None:
    """Return the factor of each slice along an axis; `None` where none can be told."""
    factors: dict[int, float] = {}
    if shape[axis] < 2:  # noqa: PLR2004 (one slice is all there is)
        return None
    for number in range(shape[axis]):
        parts = [
            [
                np.take(array.reshape(shape), number, axis)
                for array in (view.analytic, view.numeric, view.slack)
            ]
            for view in views
        ]
        analytic, numeric, slack = (np.concatenate([part[k].ravel() for part in parts]) for k in range(3))
        size = float(numeric @ numeric)
        moving = int(np.count_nonzero(np.abs(numeric) > slack))
        factor = float(numeric @ analytic) / size if size else 1.0
        if moving == 1 and abs(factor - 1) > SAME:  # any number is some multiple of another
            return None
        if not np.all(np.abs(analytic - factor * numeric) <= slack * (1 + abs(factor))):
            return None
        if moving:
            factors[number] = factor if abs(factor) > SAME else 0.0
    return factors


def _slices(info: TensorInfo, axis: int, numbers: Sequence[int]) -> str:
    def one(number: int) -> str:
        places = [":"] * len(info.shape)
        places[axis] = str(number)
        return f"{info.name}[{', '.join(places)}]"

    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return ", ".join(one(number) for number in numbers[:_LISTED]) + more
