"""Hints on mistakes: a factor or a term missing or one too many, misplaced or masked elements, wrong rows.

A hint is given only if it explains the gradient element by element, at every sample point, within the bounds
that judged it. Where the numbers fit several causes, the hint is a question.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.operation import Float, TensorInfo
from gradcheck_cli.checking.pairs.pair import PairSample, PointData
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.visible import join_first

Mask = npt.NDArray[np.bool_]
Change = Callable[[Float], Float]

# Factors that differ by less count as equal: far below what a mistake causes, far above the noise.
_SAME = 1e-4
_NICE = 12  # the largest denominator of a factor that is written as a fraction
_FEW = 3  # this many elements agree with a fitted number by chance in one case of many thousands
_MOST_AXES = 4  # which have 24 orders
_MOST_STEPS = 16  # the longest axis along which all shifts are tried: parts of a concatenation swapped
TIMES = " times the derivative"  # of a hint on a factor that is the same everywhere
_LISTED = 3  # at most this many slices are named


@dataclass(frozen=True)
class View:
    """A pair at one sample point: its Jacobians, packed and finite, and the point and value there."""

    analytic: Float  # (m, n)
    numeric: Float  # (m, n)
    slack: Float  # what the two may differ by
    is_judged: Mask  # where the gradient is compared with the numeric value
    point: Mapping[str, Float]  # the inputs' packed values, by name
    value: Float  # the output's packed value, (m,)
    others: Mapping[str, Float]  # numeric Jacobians of the same output by other inputs, by their names

    @property
    def error(self) -> Float:
        """What the gradient is off by."""
        return np.asarray(self.analytic - self.numeric)

    @property
    def is_wrong(self) -> Mask:
        """Where the gradient isn't the derivative."""
        return np.asarray(self.is_judged & (np.abs(self.error) > self.slack))

    @property
    def is_moving(self) -> Mask:
        """Where the derivative isn't zero."""
        return np.asarray(self.is_judged & (np.abs(self.numeric) > self.slack))

    @property
    def has_gradient(self) -> Mask:
        """Where the gradient isn't zero."""
        return np.asarray(self.is_judged & (np.abs(self.analytic) > self.slack))

    @property
    def ratios(self) -> Float:
        """The gradient divided by the derivative, where that isn't zero."""
        moving = self.is_moving
        return np.asarray(np.where(moving, self.analytic, 0.0) / np.where(moving, self.numeric, 1.0))


def view_of(sample: PairSample, output: str, other_pairs: Mapping[str, PairSample], scene: PointData) -> View:
    """Return a whole, finite sample as a view."""
    decided = (sample.verdict == Verdict.PASS) | (sample.verdict == Verdict.MISMATCH)
    is_judged = decided & np.isfinite(sample.numeric) & np.isfinite(sample.uncertainty)
    numeric = np.where(is_judged, sample.numeric, 0.0)
    return View(
        analytic=sample.analytic,
        numeric=numeric,
        slack=np.where(is_judged, sample.allowed + sample.uncertainty, 0.0),
        is_judged=is_judged,
        point=scene.point,
        value=scene.values[output],
        others={
            name: pair.numeric
            for name, pair in other_pairs.items()
            if pair.is_whole and np.isfinite(pair.numeric).all()
        },
    )


def _join(views: Sequence[View], part: Callable[[View], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return a part of all views as one vector."""
    return np.concatenate([part(view).ravel() for view in views])


def _is_explained(views: Sequence[View], change: Change) -> bool:
    """Whether the changed derivative equals the gradient everywhere; zeros alone show nothing."""
    count = 0
    for view in views:
        expected = change(view.numeric)
        is_judged = view.is_judged & (change(view.is_judged.astype(float)) != 0)
        slack = view.slack + np.abs(change(view.slack))
        if not np.all((np.abs(view.analytic - expected) <= slack) | ~is_judged):
            return False
        count += int(np.count_nonzero(is_judged & (np.abs(expected) > slack)))
    return count > 1


def _find_equal(factor: float, candidates: Sequence[float]) -> float | None:
    """Return the candidate that equals a factor, if any."""
    return next(
        (candidate for candidate in candidates if abs(candidate - factor) < _SAME * abs(factor)), None
    )


def _name_factor(factor: float) -> str:
    """Return a factor as text: a simple fraction, `(1 - 2e-06)`, or else a decimal number."""
    nice = Fraction(factor).limit_denominator(_NICE) if np.isfinite(factor) else None
    if nice and abs(float(nice) - factor) < _SAME * abs(factor):
        return f"(1 {'+' if factor > 1 else '-'} {abs(factor - 1):.2g})" if nice == 1 != factor else str(nice)
    return f"{factor:.6g}"


def hint(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say what the gradient of a pair is instead of the derivative: the likeliest hint that fits, if any."""
    if output.is_complex or input_info.is_complex:
        return _hint_on_factor(views, output, input_info) or _hint_on_swap(views) or _hint_on_mask(views)
    return (
        _hint_on_factor(views, output, input_info)
        or _hint_on_swap(views)
        or _hint_on_moves(views, output, input_info)
        or _hint_on_signs(views)
        or _hint_on_slices(views, output, input_info)
        or _hint_on_mask(views)
        or _hint_on_multiplier(views, output, input_info)
        or _hint_on_term(views, output, input_info)
        or _hint_on_simplex(views, output, input_info)
    )


# A factor.


def _hint_on_factor(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the gradient is a multiple of the derivative, and which size the factor equals."""
    numeric = _join(views, lambda view: view.numeric[view.is_judged])
    analytic = _join(views, lambda view: view.analytic[view.is_judged])
    size = float(numeric @ numeric)
    if size == 0 or np.count_nonzero(numeric) <= 1:  # any one element is a multiple of any other
        return ""
    factor = float(numeric @ analytic) / size
    sizes = {**_sizes(output), **_sizes(input_info)}
    exact = _find_equal(factor, [1 / length for length in sizes])
    name = _name_factor(factor) if exact is None else str(Fraction(1, round(1 / exact)))
    if factor == 0 or not _is_explained(views, lambda values: factor * values):
        return ""
    if name == "-1":
        return "the sign is flipped: the gradient is -1 times the derivative"
    return f"the gradient is {name}{TIMES}{_of_a_size(factor, sizes)}"


def _sizes(info: TensorInfo) -> dict[int, str]:
    """Return the sizes that a mean over a tensor can divide by, each with its description."""
    axis_sizes = {size: f"the size of {info.name}'s axis {axis}" for axis, size in enumerate(info.shape)}
    return {info.size: f"the number of {info.name}'s elements", **axis_sizes}


def _of_a_size(factor: float, sizes: Mapping[int, str]) -> str:
    for size, description in sizes.items():
        if size > 2 and abs(factor - size) < _SAME * size:  # noqa: PLR2004 (twice is more often a square's)
            return f"; {size} is {description}: is the sum taken where a mean is meant?"
        if size > 1 and abs(factor * size - 1) < _SAME:
            return f"; {size} is {description}: is a mean taken where the sum is meant?"
    return ""


# A factor or a term that depends on the values.


def _candidates(name: str, values: Float) -> Iterator[tuple[str, Float]]:
    yield name, values
    yield f"{name}**2", values**2
    yield f"(1 - {name})", 1 - values
    yield f"(1 + {name})", 1 + values
    yield f"(1 - {name}**2)", 1 - values**2
    yield f"(1 + {name}**2)", 1 + values**2
    yield f"exp({name})", np.exp(np.minimum(values, 700.0))  # exp(709) is float64's largest
    yield f"sin({name})", np.sin(values)
    yield f"cos({name})", np.cos(values)
    yield f"tanh({name})", np.tanh(values)


def _known_values(view: View, output: TensorInfo, input_info: TensorInfo) -> dict[str, Float]:
    """Return values that a factor of an element may depend on: those of its row or of its column."""
    rows, columns = view.analytic.shape
    candidates = dict(_candidates(output.name, view.value[:, None]))
    for name, values in view.point.items():
        if values.size == columns:
            candidates |= dict(_candidates(name, values[None]))
        elif values.size == rows:
            candidates |= dict(_candidates(name, values[:, None]))
    # The pair's own input comes first: if it explains the factor, no other input is needed.
    of_input = {name: values for name, values in candidates.items() if input_info.name in name}
    return {**of_input, **candidates}


def _hint_on_multiplier(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the gradient has one value-dependent factor too many or too few."""
    if any((view.has_gradient & ~view.is_moving).any() for view in views):
        return ""
    numerics, analytics = [view.numeric for view in views], [view.analytic for view in views]
    known_values = [_known_values(view, output, input_info) for view in views]
    for name in known_values[0]:
        for power, relation in (
            (-1, "divided by {}: is this factor missing?"),
            (1, "times {}: is it one too many?"),
        ):
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                spread = [
                    np.broadcast_to(values[name], numeric.shape) ** power
                    for values, numeric in zip(known_values, numerics, strict=True)
                ]
                products = [
                    np.where(numeric == 0, 0.0, numeric * values)
                    for values, numeric in zip(spread, numerics, strict=True)
                ]
            distinct = max(_count_distinct(products, numerics), _count_distinct(products, spread))
            factor = _fit_factor(views, analytics, products) if distinct > 1 else None
            if factor is not None:
                multiple = "" if factor == 1 else f"{_name_factor(factor)} times "
                return f"the gradient is {multiple}the derivative {relation.format(name)}"
    return ""


def _hint_on_simplex(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the gradient is right along the moves that keep the sum of what may be probabilities."""
    if not all(view.is_judged.all() and (view.point[input_info.name] >= 0).all() for view in views):
        return ""
    for axis, size in enumerate(input_info.shape):
        # What is wrong is one number for all elements along the axis.
        levels = [view.error.reshape(output.size, *input_info.shape) for view in views]
        slacks = [view.slack.reshape(levels[0].shape) for view in views]
        is_level = all(
            (np.abs(error - error.mean(axis + 1, keepdims=True)) <= slack.max()).all()
            for error, slack in zip(levels, slacks, strict=True)
        )
        if size >= _FEW and is_level:
            name = input_info.name
            return (
                f"the gradient is right along each move of {name} that keeps its sums along axis {axis}: if "
                f"{name} holds probabilities, give it 'probabilities: true', or check the function of "
                "tf.nn.softmax"
            )
    return ""


def _hint_on_term(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say which term is added to the derivative, or what kind of term it is."""
    if not all(
        np.all(view.is_moving.sum(1) <= 1) and np.all(view.is_wrong <= view.is_moving) for view in views
    ):  # it isn't elementwise
        return _hint_on_rank_one(views, output, input_info)
    errors = [view.error for view in views]
    terms = [_terms(view, output, input_info) for view in views]
    for name in terms[0]:
        products = [of_view[name] for of_view in terms]
        is_telling = name == "1" or _count_distinct(products, products) > 1
        factor = _fit_factor(views, errors, products) if is_telling else None
        if factor is not None:
            sign = "minus" if factor < 0 else "plus"
            multiple = "" if abs(factor) == 1 and name != "1" else _name_factor(abs(factor))
            term = multiple if name == "1" else f"{multiple} {name}".strip()
            return f"the gradient is the derivative {sign} {term}: is a term missing, or its sign flipped?"
    return ""


def _terms(view: View, output: TensorInfo, input_info: TensorInfo) -> dict[str, Float]:
    """Return candidates for a term of an elementwise op's gradient, each with its values by element."""
    moving = view.is_moving
    values = {"1": np.ones(()), **_known_values(view, output, input_info)}
    terms = {
        name: np.where(moving, np.broadcast_to(array, moving.shape), 0.0) for name, array in values.items()
    }
    with np.errstate(over="ignore", invalid="ignore"):
        products = {
            f"{first} {second}": terms[first] * terms[second]
            for first, second in itertools.product(terms, list(terms)[1:])
            if first in view.point and first != second
        }
    return {**terms, **products}


def _fit_factor(views: Sequence[View], targets: Sequence[Float], products: Sequence[Float]) -> float | None:
    """Return the round number k with targets = k products at every view; `None` where there is none.

    Callers make sure that the products have several values: any gradient is a multiple of a number.
    """
    target, product, slack = (
        np.concatenate([array[view.is_judged] for view, array in zip(views, arrays, strict=True)])
        for arrays in (targets, products, [view.slack for view in views])
    )
    if not np.isfinite(product).all() or np.count_nonzero(product) < _FEW:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        size, along = float(product @ product), float(product @ target)
    if size == 0 or not np.isfinite(along / size):  # squares overflow where products don't
        return None
    rounded = Fraction(along / size).limit_denominator(4)
    if not rounded or abs(float(rounded) - along / size) > _SAME * abs(along / size) or abs(rounded) > _NICE:
        return None
    factor = float(rounded)
    slack = slack * (1 + abs(factor)) + 1e-6 * np.abs(factor * product)
    return factor if np.all(np.abs(target - factor * product) <= slack) else None


def _count_distinct(products: Sequence[Float], values: Sequence[Float]) -> int:
    """Count the distinct values behind the first non-zero products of each view."""
    samples = [array[product != 0][: _FEW**3] for product, array in zip(products, values, strict=True)]
    return len({f"{value:.6e}" for value in np.concatenate(samples)})


def _hint_on_rank_one(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the error is of rank one, as a whole or per row of a batch, while the derivative isn't."""
    if sum(int(view.is_wrong.sum()) for view in views) <= _FEW:
        return ""
    slack = max(float(np.linalg.norm(view.slack)) for view in views)
    sizes = list(
        itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(output.shape, input_info.shape, strict=False)
        )
    )
    for axes in range(min(len(sizes), len(output.shape) - 1, len(input_info.shape) - 1), -1, -1):
        count = int(np.prod(output.shape[:axes]))
        error_blocks = [_blocks(view.error, count) for view in views]
        derivatives = [_blocks(view.numeric, count) for view in views]
        if not all(error_blocks) or not all(derivatives):
            continue
        every = [block for blocks in derivatives for block in blocks]
        ranks = [_rank(block, slack) for blocks in error_blocks for block in blocks]
        if min(min(block.shape) for block in every) < _FEW or max(ranks) != 1:
            continue
        if max(_rank(block, slack) for block in every) > 1:
            rows = " in each row of the batch" if axes else ""
            return (
                f"what is wrong is of rank one{rows}: a term that is made of a sum (a mean, a product with "
                "the upstream) is missing, or its sign flipped"
            )
    return ""


def _blocks(matrix: Float, count: int) -> list[Float]:
    """Return the diagonal blocks of a batch's matrix; none if anything else is non-zero."""
    parts = matrix.reshape(count, matrix.shape[0] // count, count, matrix.shape[1] // count)
    largest = np.abs(parts).max(axis=(1, 3), initial=0.0)
    if (largest * (1 - np.eye(count)) > _SAME * float(largest.max())).any():
        return []
    return [np.asarray(parts[index, :, index]) for index in range(count)]


def _rank(matrix: Float, slack: float) -> int:
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(values > max(slack, _SAME * float(values[0]))))


# Another input's derivative.


def _hint_on_swap(views: Sequence[View]) -> str:
    """Say that the gradient is the derivative by another input, or its negative."""
    order = "are the gradients returned in the wrong order?"
    for name in views[0].others:
        jacobians = [view.others.get(name) for view in views]
        if any(
            jacobian is None or jacobian.shape != view.analytic.shape
            for view, jacobian in zip(views, jacobians, strict=True)
        ):
            continue
        for sign, multiple in ((1.0, "the derivative"), (-1.0, "-1 times the derivative")):
            if _is_multiple(views, name, sign):
                return f"it is {multiple} with respect to {name}: {order}"
    return ""


def _is_multiple(views: Sequence[View], name: str, sign: float) -> bool:
    """Whether the gradient is another input's Jacobian, or its negative, at each sample point."""
    for view in views:
        # The other pair's values are accurate relative to their own size.
        scale = _SAME * float(np.max(np.abs(view.others[name]), initial=0.0))
        if not np.all(np.abs(view.analytic - sign * view.others[name]) <= view.slack + scale):
            return False
    return any(view.others[name].any() for view in views)


# Elements in other places.


def _hint_on_moves(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that axes are reversed, shifted, or have changed places."""
    return next(
        (description for description, change in _moves(output, input_info) if _is_explained(views, change)),
        "",
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


def _hint_on_mask(views: Sequence[View]) -> str:
    """Say that a mask is inverted, missing or too narrow, judging by the zeros."""
    moving, nonzero = _join(views, lambda view: view.is_moving), _join(views, lambda view: view.has_gradient)
    more, fewer = np.count_nonzero(nonzero & ~moving), np.count_nonzero(moving & ~nonzero)
    shared = np.count_nonzero(moving & nonzero)
    if not shared and more and fewer:
        return "the gradient is zero where the derivative isn't, and the other way round: is a mask inverted?"
    is_wrong = _join(views, lambda view: view.is_moving & view.has_gradient & view.is_wrong)
    if is_wrong.any() or shared < _FEW:
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


def _hint_on_signs(views: Sequence[View]) -> str:
    """Say that the sign alone is wrong, in some elements."""
    count = np.count_nonzero(_join(views, lambda view: view.is_moving & (view.ratios < 0)))
    moving_count = np.count_nonzero(_join(views, lambda view: view.is_moving))
    if not count or moving_count < _FEW:
        return ""
    for view in views:
        signs = np.where(view.ratios < 0, -1.0, 1.0)
        if not np.all((np.abs(view.analytic - signs * view.numeric) <= view.slack) | ~view.is_judged):
            return ""
    if all(not (view.is_moving & (view.analytic < 0)).any() for view in views):
        return "the gradient is the derivative's absolute value: is a sign missing?"
    return f"the sign is flipped in {count} of {moving_count} elements, and all else is right"


# A factor for some rows or columns.


def _hint_on_slices(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that some slices along an axis are off by a factor."""
    shape, rank = (*output.shape, *input_info.shape), len(output.shape)
    for axis in (*range(rank, len(shape)), *range(rank)):
        factors = _factors_along(views, shape, axis)
        if factors is None:
            continue
        groups: dict[float, list[int]] = {}
        for index, factor in factors.items():
            matching = _find_equal(factor, [1.0, *groups]) if factor else 0.0
            groups.setdefault(factor if matching is None else matching, []).append(index)
        off = {factor: indices for factor, indices in groups.items() if factor != 1.0}
        if len(off) != 1 or 1.0 not in groups:
            continue
        ((factor, indices),) = off.items()
        info, own_axis = (output, axis) if axis < rank else (input_info, axis - rank)
        where = _slices(info, own_axis, indices)
        if axis < rank:
            fault = "is dropped" if factor == 0 else f"counts {_name_factor(factor)} times"
            return f"the upstream of {where} {fault}, and all else is right"
        fault = "zero" if factor == 0 else f"{_name_factor(factor)} times the derivative"
        return f"the gradient is {fault} for {where}, and all else is right"
    return ""


def _factors_along(views: Sequence[View], shape: Sequence[int], axis: int) -> dict[int, float] | None:
    """Return the factor of each slice along an axis; `None` where there is no such factor."""
    factors: dict[int, float] = {}
    if shape[axis] <= 1:  # one slice is all there is
        return None
    slices = (
        np.concatenate(
            [np.moveaxis(values.reshape(shape), axis, 0).reshape(shape[axis], -1) for values in of_views], 1
        )
        for of_views in zip(*((view.analytic, view.numeric, view.slack) for view in views), strict=True)
    )
    for index, (analytic, numeric, slack) in enumerate(zip(*slices, strict=True)):
        size = float(numeric @ numeric)
        moving = int(np.count_nonzero(np.abs(numeric) > slack))
        factor = float(numeric @ analytic) / size if size else 1.0
        if moving == 1 and abs(factor - 1) > _SAME:  # any number is some multiple of another
            return None
        if not np.all(np.abs(analytic - factor * numeric) <= slack * (1 + abs(factor))):
            return None
        if moving:
            factors[index] = factor if abs(factor) > _SAME else 0.0
    return factors


def _slices(info: TensorInfo, axis: int, indices: Sequence[int]) -> str:
    def slice_text(index: int) -> str:
        places = [":"] * len(info.shape)
        places[axis] = str(index)
        return f"{info.name}[{', '.join(places)}]"

    return join_first([slice_text(index) for index in indices], _LISTED)
