"""Hints on elements that are misplaced, masked, or wrong only in some rows or columns."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.features.diagnosis.hint_view import FEW, SAME, find_equal, is_explained, name_factor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.features.diagnosis.hint_view import Change, View


_MOST_AXES = 4  # which have 24 orders
_MOST_STEPS = 16  # the longest axis along which all shifts are tried: parts of a concatenation swapped
_LISTED = 3  # at most this many slices are named


# Another input's derivative.


def hint_on_swap(views: Sequence[View]) -> str:
    """Say that the gradient is the derivative by another input, or its negative."""
    order = "are the gradients returned in the wrong order?"
    for name in views[0].others:
        if any(view.others[name].shape != view.analytic.shape for view in views if name in view.others):
            continue
        other_jacobians = [view.others.get(name) for view in views]
        for sign, multiple in ((1.0, "the derivative"), (-1.0, "-1 times the derivative")):
            if _equals_jacobians(views, other_jacobians, sign):
                return f"it is {multiple} with respect to {name}: {order}"
    return ""


def _equals_jacobians(views: Sequence[View], other_jacobians: Sequence[Float | None], sign: float) -> bool:
    """Whether the gradient is the other Jacobian, or its negative, at each sample point."""
    count = 0
    for view, jacobian in zip(views, other_jacobians, strict=True):
        if jacobian is None:
            return False
        # The other pair's values are accurate relative to their own size.
        scale = SAME * float(np.max(np.abs(jacobian), initial=0.0))
        if not np.all(np.abs(view.analytic - sign * jacobian) <= view.slack + scale):
            return False
        count += int(np.count_nonzero(jacobian))
    return count > 0


# Elements in other places.


def hint_on_moves(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that axes are reversed, shifted, or have changed places."""
    if output.is_complex or input_info.is_complex:
        return ""
    return next(
        (description for description, change in _moves(output, input_info) if is_explained(views, change)), ""
    )


def _moves(output: TensorInfo, input_info: TensorInfo) -> Iterator[tuple[str, Change]]:
    shape, rank = (*output.shape, *input_info.shape), len(output.shape)
    for info, first, what in (
        (input_info, rank, f"the gradient for {input_info.name}"),
        (output, 0, f"the upstream of {output.name}"),
    ):
        for description, order in _orders(info.shape, first, shape, what):
            yield description, _on_axes(shape, partial(np.transpose, axes=order))
    for axis, size in enumerate(shape):
        if size > 1:
            yield from _move_along(output, input_info, axis)
    if len(input_info.shape) > 1:
        description = f"the elements of the gradient for {input_info.name} stand in reverse order"
        yield description, lambda values: values[:, ::-1]
    if len(shape) > 2:  # noqa: PLR2004 (of two vectors the whole Jacobian is transposed, below)
        yield from _swap_axes(output, input_info)
    if output.shape == input_info.shape:
        description = (
            "the upstream is multiplied by the Jacobian instead of its transpose: does a step run forwards?"
        )
        yield description, lambda values: values.T


def _on_axes(shape: Sequence[int], change: Change) -> Change:
    """Turn a change of an array, with the output's and the input's axes, into one of a packed Jacobian."""
    return lambda values: np.asarray(change(values.reshape(shape)).reshape(values.shape))


def _move_along(output: TensorInfo, input_info: TensorInfo, axis: int) -> Iterator[tuple[str, Change]]:
    """Yield the changes that reverse an axis, or shift it with or without wrapping around."""
    shape, rank = (*output.shape, *input_info.shape), len(output.shape)
    info, own_axis = (output, axis) if axis < rank else (input_info, axis - rank)
    suffix = f" along axis {own_axis}" if len(info.shape) > 1 else ""
    what = f"the upstream of {info.name}" if axis < rank else f"the gradient for {info.name}"
    reversal = f"{what} is reversed{suffix}, or isn't where it should be"
    if axis >= rank:
        reversal = f"the elements of {what} stand in reverse order{suffix}"
    yield reversal, _on_axes(shape, partial(np.flip, axis=axis))
    size = shape[axis]
    for step in (1, -1, *range(2, size - 1 if size <= _MOST_STEPS else 2)):
        description = f"{what} is shifted by {step}{suffix}: is an index off by one?"
        yield description, _on_axes(shape, partial(np.roll, shift=step, axis=axis))
        if abs(step) == 1:
            yield description, _on_axes(shape, partial(_shift, step=step, axis=axis))


def _swap_axes(output: TensorInfo, input_info: TensorInfo) -> Iterator[tuple[str, Change]]:
    """Yield the changes that swap an axis of the output with one of the input."""
    shape, rank = (*output.shape, *input_info.shape), len(output.shape)
    for output_axis, input_axis in itertools.product(range(rank), range(rank, len(shape))):
        if shape[output_axis] == shape[input_axis] > 1:
            description = (
                f"a factor of the gradient for {input_info.name} is transposed, or should be: "
                f"{output.name}'s axis {output_axis} and {input_info.name}'s axis {input_axis - rank} have "
                "changed places"
            )
            yield description, _on_axes(shape, partial(np.swapaxes, axis1=output_axis, axis2=input_axis))


def _orders(
    axes: Sequence[int], first: int, shape: Sequence[int], what: str
) -> Iterator[tuple[str, list[int]]]:
    """Yield the other orders of a tensor's axes that leave its shape as it is."""
    if len(axes) > _MOST_AXES:
        return
    for order in itertools.permutations(range(len(axes))):
        if list(order) == list(range(len(axes))) or [axes[axis] for axis in order] != list(axes):
            continue
        changed = [axis for axis, source in enumerate(order) if axis != source]
        description = f"{what} is transposed" if changed == [len(axes) - 2, len(axes) - 1] else ""
        description = description or f"the axes of {what} are permuted: {order}"
        full_order = list(range(len(shape)))
        full_order[first : first + len(axes)] = [first + axis for axis in order]
        yield description, full_order


def _shift(values: Float, step: int, axis: int) -> Float:
    rolled = np.roll(values, step, axis)
    index: list[int | slice] = [slice(None)] * values.ndim
    index[axis] = 0 if step > 0 else -1
    rolled[tuple(index)] = 0.0
    return np.asarray(rolled)


# Masks and signs.


def hint_on_mask(views: Sequence[View]) -> str:
    """Say that a mask is inverted, missing or too narrow, judging by the zeros."""
    nonzero = [view.is_moving & view.has_gradient for view in views]
    more = sum(int((view.has_gradient & ~view.is_moving).sum()) for view in views)
    fewer = sum(int((view.is_moving & ~view.has_gradient).sum()) for view in views)
    shared = sum(int(mask.sum()) for mask in nonzero)
    if not shared and more and fewer:
        return "the gradient is zero where the derivative isn't, and the other way round: is a mask inverted?"
    is_right = all(
        np.all(np.abs(view.analytic - view.numeric)[mask] <= view.slack[mask])
        for view, mask in zip(views, nonzero, strict=True)
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


def hint_on_signs(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the sign alone is wrong, in some elements."""
    if output.is_complex or input_info.is_complex:
        return ""
    flipped = [view.is_moving & (view.ratios < 0) for view in views]
    count = sum(int(mask.sum()) for mask in flipped)
    unflipped = sum(int((view.is_moving & ~mask).sum()) for view, mask in zip(views, flipped, strict=True))
    if not count or count + unflipped < FEW:
        return ""
    for view in views:
        signs = np.where(view.ratios < 0, -1.0, 1.0)
        if not np.all((np.abs(view.analytic - signs * view.numeric) <= view.slack) | ~view.is_judged):
            return ""
    if all(not (view.is_moving & (view.analytic < 0)).any() for view in views):
        return "the gradient is the derivative's absolute value: is a sign missing?"
    return f"the sign is flipped in {count} of {count + unflipped} elements, and all else is right"


# A factor for some rows or columns.


def hint_on_slices(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that some slices along an axis are off by a factor."""
    if output.is_complex or input_info.is_complex:
        return ""
    shape, rank = (*output.shape, *input_info.shape), len(output.shape)
    for axis in (*range(rank, len(shape)), *range(rank)):
        factors = _factors_along(views, shape, axis)
        if factors is None:
            continue
        groups: dict[float, list[int]] = {}
        for index, factor in factors.items():
            matching = find_equal(factor, [1.0, *groups]) if factor else 0.0
            groups.setdefault(factor if matching is None else matching, []).append(index)
        off = {factor: indices for factor, indices in groups.items() if factor != 1.0}
        if len(off) != 1 or 1.0 not in groups:
            continue
        ((factor, indices),) = off.items()
        info, own_axis = (output, axis) if axis < rank else (input_info, axis - rank)
        where = _slices(info, own_axis, indices)
        if axis < rank:
            fault = "is dropped" if factor == 0 else f"counts {name_factor(factor)} times"
            return f"the upstream of {where} {fault}, and all else is right"
        fault = "zero" if factor == 0 else f"{name_factor(factor)} times the derivative"
        return f"the gradient is {fault} for {where}, and all else is right"
    return ""


def _factors_along(views: Sequence[View], shape: Sequence[int], axis: int) -> dict[int, float] | None:
    """Return the factor of each slice along an axis; `None` where there is no such factor."""
    factors: dict[int, float] = {}
    if shape[axis] <= 1:  # one slice is all there is
        return None
    for index in range(shape[axis]):
        slices = [
            [
                np.take(array.reshape(shape), index, axis)
                for array in (view.analytic, view.numeric, view.slack)
            ]
            for view in views
        ]
        analytic, numeric, slack = (
            np.concatenate([arrays[k].ravel() for arrays in slices]) for k in range(3)
        )
        size = float(numeric @ numeric)
        moving = int(np.count_nonzero(np.abs(numeric) > slack))
        factor = float(numeric @ analytic) / size if size else 1.0
        if moving == 1 and abs(factor - 1) > SAME:  # any number is some multiple of another
            return None
        if not np.all(np.abs(analytic - factor * numeric) <= slack * (1 + abs(factor))):
            return None
        if moving:
            factors[index] = factor if abs(factor) > SAME else 0.0
    return factors


def _slices(info: TensorInfo, axis: int, indices: Sequence[int]) -> str:
    def slice_text(index: int) -> str:
        places = [":"] * len(info.shape)
        places[axis] = str(index)
        return f"{info.name}[{', '.join(places)}]"

    more = f" and {len(indices) - _LISTED} more" if len(indices) > _LISTED else ""
    return ", ".join(slice_text(index) for index in indices[:_LISTED]) + more
