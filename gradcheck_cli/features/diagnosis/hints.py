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
class Pair:
    """A pair at its V sample points: its Jacobians, packed and finite, and the points and values there."""

    output: TensorInfo
    input_info: TensorInfo
    analytic: Float  # (V, m, n)
    numeric: Float  # (V, m, n); 0 where the gradient isn't compared with it
    slack: Float  # (V, m, n) what the two may differ by
    is_judged: Mask  # (V, m, n) where the gradient is compared with the numeric value
    point: Mapping[str, Float]  # the inputs' packed values, (V, size), by name
    value: Float  # (V, m) the output's packed value
    others: Mapping[str, Float]  # numeric Jacobians of the same output by other inputs, by their names

    @property
    def error(self) -> Float:
        """What the gradient is off by."""
        return np.asarray(self.analytic - self.numeric)

    def exceeds(self, values: Float) -> Mask:
        """Return where values are judged, and differ from zero by more than the slack."""
        return np.asarray(self.is_judged & (np.abs(values) > self.slack))

    @property
    def is_wrong(self) -> Mask:
        """Where the gradient isn't the derivative."""
        return self.exceeds(self.error)

    @property
    def is_moving(self) -> Mask:
        """Where the derivative isn't zero."""
        return self.exceeds(self.numeric)

    @property
    def has_gradient(self) -> Mask:
        """Where the gradient isn't zero."""
        return self.exceeds(self.analytic)

    @property
    def is_flipped(self) -> Mask:
        """Where the derivative isn't zero, and the gradient has the other sign."""
        return np.asarray(self.is_moving & (np.sign(self.analytic) == -np.sign(self.numeric)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The output's axes, and the input's."""
        return (*self.output.shape, *self.input_info.shape)

    def tensor_of(self, axis: int) -> tuple[TensorInfo, int]:
        """Return the tensor that has an axis of the pair, and which of its own axes that is."""
        rank = len(self.output.shape)
        return (self.output, axis) if axis < rank else (self.input_info, axis - rank)

    def along_axes(self, values: Float) -> Float:
        """Return packed Jacobians as arrays with the pair's axes, after that of the points."""
        return values.reshape(len(values), *self.shape)

    def is_explained_by(self, change: Change) -> bool:
        """Whether the changed derivative equals the gradient everywhere; zeros alone show nothing."""
        expected = change(self.numeric)
        is_judged = self.is_judged & (change(self.is_judged.astype(float)) != 0)
        slack = self.slack + np.abs(change(self.slack))
        is_equal = np.abs(self.analytic - expected) <= slack
        is_telling = is_judged & (np.abs(expected) > slack)
        return bool(np.all(is_equal | ~is_judged) and np.count_nonzero(is_telling) > 1)

    def fit_factor(self, target: Float, product: Float) -> float | None:
        """Return the round number k with target = k product; `None` where there is none.

        Callers make sure that the product has several values: any gradient is a multiple of a number.
        """
        target, slack, product = (values[self.is_judged] for values in (target, self.slack, product))
        if not np.isfinite(product).all() or np.count_nonzero(product) < _FEW:
            return None
        size, along = float(product @ product), float(product @ target)
        if size == 0 or not np.isfinite(along / size):  # squares overflow where products don't
            return None
        rounded = Fraction(along / size).limit_denominator(4)
        is_near = abs(float(rounded) - along / size) <= _SAME * abs(along / size)
        if not rounded or not is_near or abs(rounded) > _NICE:
            return None
        factor = float(rounded)
        slack = slack * (1 + abs(factor)) + 1e-6 * np.abs(factor * product)
        return factor if np.all(np.abs(target - factor * product) <= slack) else None


def pair_of(
    output: TensorInfo,
    input_info: TensorInfo,
    samples: Sequence[PairSample],
    other_pairs: Sequence[Mapping[str, PairSample]],
    scenes: Sequence[PointData],
) -> Pair:
    """Return a pair at some points, of whole, finite samples."""
    analytic, numeric, uncertainty, allowed, verdict = (
        np.stack([getattr(sample, name) for sample in samples])
        for name in ("analytic", "numeric", "uncertainty", "allowed", "verdict")
    )
    decided = (verdict == Verdict.PASS) | (verdict == Verdict.MISMATCH)
    is_judged = decided & np.isfinite(numeric) & np.isfinite(uncertainty)
    of_others = {name: [pairs.get(name) for pairs in other_pairs] for name in other_pairs[0]}
    return Pair(
        output,
        input_info,
        analytic,
        np.where(is_judged, numeric, 0.0),
        np.where(is_judged, allowed + uncertainty, 0.0),
        is_judged,
        {name: np.stack([scene.point[name] for scene in scenes]) for name in scenes[0].point},
        np.stack([scene.values[output.name] for scene in scenes]),
        {
            name: np.stack([own.numeric for own in pairs if own])
            for name, pairs in of_others.items()
            if all(own and own.is_whole and np.isfinite(own.numeric).all() for own in pairs)
        },
    )


def _find_equal(factor: float, candidates: Sequence[float]) -> float | None:
    """Return the candidate that equals a factor, if any."""
    return next((each for each in candidates if abs(each - factor) < _SAME * abs(factor)), None)


def _name_factor(factor: float) -> str:
    """Return a factor as text: a simple fraction, `(1 - 2e-06)`, or else a decimal number."""
    nice = Fraction(factor).limit_denominator(_NICE) if np.isfinite(factor) else None
    if nice and abs(float(nice) - factor) < _SAME * abs(factor):
        return f"(1 {'+' if factor > 1 else '-'} {abs(factor - 1):.2g})" if nice == 1 != factor else str(nice)
    return f"{factor:.6g}"


def hint(pair: Pair) -> str:
    """Say what the gradient of a pair is instead of the derivative: the likeliest hint that fits, if any."""
    is_complex = pair.output.is_complex or pair.input_info.is_complex
    return next(filter(None, (find(pair) for find in (_OF_COMPLEX if is_complex else _OF_REAL))), "")


# A factor.


def _hint_on_factor(pair: Pair) -> str:
    """Say that the gradient is a multiple of the derivative, and which size the factor equals."""
    numeric = pair.numeric.ravel()
    size = float(numeric @ numeric)
    if size == 0 or np.count_nonzero(numeric) <= 1:  # any one element is a multiple of any other
        return ""
    factor = float(numeric @ pair.analytic.ravel()) / size
    sizes = {
        length: description
        for info in (pair.output, pair.input_info)
        for length, description in _sizes(info)
        if length > 1
    }
    exact = _find_equal(factor, [1 / length for length in sizes])
    name = _name_factor(factor) if exact is None else str(Fraction(1, round(1 / exact)))
    if factor == 0 or not pair.is_explained_by(lambda values: factor * values):
        return ""
    if name == "-1":
        return "the sign is flipped: the gradient is -1 times the derivative"
    return f"the gradient is {name}{TIMES}{_of_a_size(factor, sizes)}"


def _sizes(info: TensorInfo) -> Iterator[tuple[int, str]]:
    """Yield the sizes that a mean over a tensor can divide by, each with its description."""
    yield info.size, f"the number of {info.name}'s elements"
    yield from ((size, f"the size of {info.name}'s axis {axis}") for axis, size in enumerate(info.shape))


def _of_a_size(factor: float, sizes: Mapping[int, str]) -> str:
    for size, description in sizes.items():
        if size > 2 and abs(factor - size) < _SAME * size:  # noqa: PLR2004 (twice is more often a square's)
            return f"; {size} is {description}: is the sum taken where a mean is meant?"
        if size > 1 and abs(factor * size - 1) < _SAME:
            return f"; {size} is {description}: is a mean taken where the sum is meant?"
    return ""


# A factor or a term that depends on the values.

_FUNCTIONS: Mapping[str, Change] = {
    "{}": lambda values: values,
    "{}**2": lambda values: values**2,
    "(1 - {})": lambda values: 1 - values,
    "(1 + {})": lambda values: 1 + values,
    "(1 - {}**2)": lambda values: 1 - values**2,
    "(1 + {}**2)": lambda values: 1 + values**2,
    "exp({})": lambda values: np.exp(np.minimum(values, 700.0)),  # exp(709) is float64's largest
    "sin({})": np.sin,
    "cos({})": np.cos,
    "tanh({})": np.tanh,
}


def _known_values(pair: Pair) -> dict[str, Float]:
    """Return values that a factor of an element may depend on: those of its row or of its column."""
    _, rows, columns = pair.analytic.shape
    by_name = {pair.output.name: pair.value[:, :, None]}
    for name, values in pair.point.items():
        if values.shape[1] in (rows, columns):
            by_name[name] = values[:, None] if values.shape[1] == columns else values[:, :, None]
    candidates = {
        text.format(name): change(values)
        for name, values in by_name.items()
        for text, change in _FUNCTIONS.items()
    }
    # The pair's own input comes first: if it explains the factor, no other input is needed.
    of_input = {name: values for name, values in candidates.items() if pair.input_info.name in name}
    return {**of_input, **candidates}


_RELATIONS = ((-1, "divided by {}: is this factor missing?"), (1, "times {}: is it one too many?"))


def _hint_on_multiplier(pair: Pair) -> str:
    """Say that the gradient has one value-dependent factor too many or too few."""
    if (pair.has_gradient & ~pair.is_moving).any():
        return ""
    numeric = pair.numeric
    for (name, values), (power, relation) in itertools.product(_known_values(pair).items(), _RELATIONS):
        spread = np.broadcast_to(values, numeric.shape) ** power
        product = np.where(numeric == 0, 0.0, numeric * spread)
        distinct = max(_count_distinct(product, numeric), _count_distinct(product, spread))
        factor = pair.fit_factor(pair.analytic, product) if distinct > 1 else None
        if factor is not None:
            multiple = "" if factor == 1 else f"{_name_factor(factor)} times "
            return f"the gradient is {multiple}the derivative {relation.format(name)}"
    return ""


def _hint_on_simplex(pair: Pair) -> str:
    """Say that the gradient is right along the moves that keep the sum of what may be probabilities."""
    name = pair.input_info.name
    if not (pair.is_judged.all() and (pair.point[name] >= 0).all()):
        return ""
    slack = pair.slack.max(axis=(1, 2), keepdims=True)
    for axis, size in enumerate(pair.input_info.shape):
        # What is wrong is one number for all elements along the axis.
        error = pair.error.reshape(len(slack), pair.output.size, *pair.input_info.shape)
        uneven = error - error.mean(axis + 2, keepdims=True)
        is_level = (np.abs(uneven).reshape(pair.error.shape) <= slack).all()
        if size >= _FEW and is_level:
            return (
                f"the gradient is right along each move of {name} that keeps its sums along axis {axis}: if "
                f"{name} holds probabilities, check the function of tf.nn.softmax"
            )
    return ""


def _hint_on_term(pair: Pair) -> str:
    """Say which term is added to the derivative, or what kind of term it is."""
    if (pair.is_moving.sum(2) > 1).any() or (pair.is_wrong & ~pair.is_moving).any():  # it isn't elementwise
        return _hint_on_rank_one(pair)
    for name, product in _terms(pair).items():
        is_telling = name == "1" or _count_distinct(product, product) > 1
        factor = pair.fit_factor(pair.error, product) if is_telling else None
        if factor is not None:
            sign = "minus" if factor < 0 else "plus"
            multiple = "" if abs(factor) == 1 and name != "1" else _name_factor(abs(factor))
            term = multiple if name == "1" else f"{multiple} {name}".strip()
            return f"the gradient is the derivative {sign} {term}: is a term missing, or its sign flipped?"
    return ""


def _terms(pair: Pair) -> dict[str, Float]:
    """Return candidates for a term of an elementwise op's gradient, each with its values by element."""
    moving = pair.is_moving
    values = {"1": np.ones(()), **_known_values(pair)}
    terms = {
        name: np.where(moving, np.broadcast_to(array, moving.shape), 0.0) for name, array in values.items()
    }
    return terms | {
        f"{first} {second}": terms[first] * terms[second]
        for first, second in itertools.product(terms, list(terms)[1:])
        if first in pair.point and first != second
    }


def _count_distinct(products: Float, values: Float) -> int:
    """Count the distinct values behind the first non-zero products at each point."""
    samples = [array[product != 0][: _FEW**3] for product, array in zip(products, values, strict=True)]
    return len({f"{value:.6e}" for value in np.concatenate(samples)})


def _hint_on_rank_one(pair: Pair) -> str:
    """Say that the error is of rank one, as a whole or per row of a batch, while the derivative isn't."""
    if pair.is_wrong.sum() <= _FEW:
        return ""
    slack = float(np.linalg.norm(pair.slack, axis=(1, 2)).max())
    shapes = pair.output.shape, pair.input_info.shape
    shared = len(list(itertools.takewhile(lambda sizes: sizes[0] == sizes[1], zip(*shapes, strict=False))))
    for axes in range(min(shared, *(len(shape) - 1 for shape in shapes)), -1, -1):
        count = int(np.prod(pair.output.shape[:axes]))
        errors, derivatives = (
            [_blocks(matrix, count) for matrix in matrices] for matrices in (pair.error, pair.numeric)
        )
        if not all(errors) or not all(derivatives):
            continue
        every = list(itertools.chain.from_iterable(derivatives))
        if min(min(block.shape) for block in every) < _FEW:
            continue
        if max(_rank(block, slack) for blocks in errors for block in blocks) != 1:
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


def _hint_on_swap(pair: Pair) -> str:
    """Say that the gradient is the derivative by another input, or its negative."""
    multiples = ((1.0, "the derivative"), (-1.0, "-1 times the derivative"))
    for (name, jacobian), (sign, multiple) in itertools.product(pair.others.items(), multiples):
        if jacobian.shape != pair.analytic.shape or not jacobian.any():
            continue
        # The other pair's values are accurate relative to their own size.
        slack = pair.slack + _SAME * np.abs(jacobian).max(axis=(1, 2), keepdims=True)
        if np.all(np.abs(pair.analytic - sign * jacobian) <= slack):
            order = "are the gradients returned in the wrong order?"
            return f"it is {multiple} with respect to {name}: {order}"
    return ""


# Elements in other places.


def _hint_on_moves(pair: Pair) -> str:
    """Say that axes are reversed, shifted, or have changed places."""

    def on_axes(change: Change) -> Change:
        return lambda values: np.asarray(change(pair.along_axes(values)).reshape(values.shape))

    moves = (description for description, change in _moves(pair) if pair.is_explained_by(on_axes(change)))
    return next(moves, "")


def _moves(pair: Pair) -> Iterator[tuple[str, Change]]:
    """Yield changes of `Pair.along_axes` that leave its shape as it is."""
    axes = range(len(pair.shape))
    of_output, of_input = axes[: len(pair.output.shape)], axes[len(pair.output.shape) :]
    yield from _orders(pair, of_input)
    yield from _orders(pair, of_output)
    for axis in axes:
        if pair.shape[axis] > 1:
            yield from _along(pair, axis)
    yield from _swaps(pair)
    if len(of_input) > 1:
        description = f"the elements of {_what(pair.input_info, pair)} stand in reverse order"
        yield description, partial(np.flip, axis=tuple(axis + 1 for axis in of_input))
    if pair.output.shape == pair.input_info.shape:
        description = (
            "the upstream is multiplied by the Jacobian instead of its transpose: does a step run forwards?"
        )
        yield description, _reorder([*of_input, *of_output])


def _reorder(order: Sequence[int]) -> Change:
    """Return the change that puts the pair's axes into an order."""
    return partial(np.transpose, axes=[0, *(axis + 1 for axis in order)])


def _what(info: TensorInfo, pair: Pair) -> str:
    """Name what flows through a tensor."""
    return f"the upstream of {info.name}" if info is pair.output else f"the gradient for {info.name}"


def _along(pair: Pair, axis: int) -> Iterator[tuple[str, Change]]:
    """Yield the changes that reverse an axis, or shift it with or without wrapping around."""
    info, own_axis = pair.tensor_of(axis)
    suffix = f" along axis {own_axis}" if len(info.shape) > 1 else ""
    what, size = _what(info, pair), pair.shape[axis]
    reversal = f"{what} is reversed{suffix}, or isn't where it should be"
    if info is not pair.output:
        reversal = f"the elements of {what} stand in reverse order{suffix}"
    yield reversal, partial(np.flip, axis=axis + 1)
    for step in (1, -1, *range(2, size - 1 if size <= _MOST_STEPS else 2)):
        description = f"{what} is shifted by {step}{suffix}: is an index off by one?"
        yield description, partial(np.roll, shift=step, axis=axis + 1)
        if abs(step) == 1:
            yield description, partial(_shift, step=step, axis=axis + 1)


def _shift(values: Float, step: int, axis: int) -> Float:
    rolled = np.roll(values, step, axis)
    np.moveaxis(rolled, axis, 0)[0 if step > 0 else -1] = 0.0
    return np.asarray(rolled)


def _swaps(pair: Pair) -> Iterator[tuple[str, Change]]:
    """Yield the changes that swap an axis of the output with one of the input."""
    shape, rank = pair.shape, len(pair.output.shape)
    if len(shape) <= 2:  # noqa: PLR2004 (of two vectors the whole Jacobian is transposed)
        return
    for output_axis, input_axis in itertools.product(range(rank), range(rank, len(shape))):
        if shape[output_axis] == shape[input_axis] > 1:
            description = (
                f"a factor of the gradient for {pair.input_info.name} is transposed, or should be: "
                f"{pair.output.name}'s axis {output_axis} and {pair.input_info.name}'s axis "
                f"{input_axis - rank} have changed places"
            )
            yield description, partial(np.swapaxes, axis1=output_axis + 1, axis2=input_axis + 1)


def _orders(pair: Pair, axes: range) -> Iterator[tuple[str, Change]]:
    """Yield the other orders of the pair's axes that leave its shape as it is, with some axes permuted."""
    whole = list(range(len(pair.shape)))
    for order in itertools.permutations(axes) if 0 < len(axes) <= _MOST_AXES else ():
        changed = [axis for axis, source in zip(axes, order, strict=True) if axis != source]
        if not changed or [pair.shape[axis] for axis in order] != [pair.shape[axis] for axis in axes]:
            continue
        what = _what(pair.tensor_of(axes[0])[0], pair)
        own_order = tuple(axis - axes[0] for axis in order)
        is_last = changed == list(axes[-2:])
        description = f"{what} is transposed" if is_last else f"the axes of {what} are permuted: {own_order}"
        yield description, _reorder([*whole[: axes.start], *order, *whole[axes.stop :]])


# Masks and signs.


def _hint_on_mask(pair: Pair) -> str:
    """Say that a mask is inverted, missing or too narrow, judging by the zeros."""
    moving, nonzero = pair.is_moving, pair.has_gradient
    more, fewer = np.count_nonzero(nonzero & ~moving), np.count_nonzero(moving & ~nonzero)
    shared = moving & nonzero
    if not shared.any() and more and fewer:
        return "the gradient is zero where the derivative isn't, and the other way round: is a mask inverted?"
    if (shared & pair.is_wrong).any() or np.count_nonzero(shared) < _FEW:
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


def _hint_on_signs(pair: Pair) -> str:
    """Say that the sign alone is wrong, in some elements."""
    count, moving_count = np.count_nonzero(pair.is_flipped), np.count_nonzero(pair.is_moving)
    if not count or moving_count < _FEW:
        return ""
    if pair.exceeds(pair.analytic - np.where(pair.is_flipped, -1.0, 1.0) * pair.numeric).any():
        return ""
    if not (pair.is_moving & (pair.analytic < 0)).any():
        return "the gradient is the derivative's absolute value: is a sign missing?"
    return f"the sign is flipped in {count} of {moving_count} elements, and all else is right"


# A factor for some rows or columns.


def _hint_on_slices(pair: Pair) -> str:
    """Say that some slices along an axis are off by a factor."""
    rank = len(pair.output.shape)
    for axis in (*range(rank, len(pair.shape)), *range(rank)):
        factors = _factors_along(pair, axis)
        groups: dict[float, list[int]] = {}
        for index, factor in factors.items():
            matching = _find_equal(factor, [1.0, *groups]) if factor else 0.0
            groups.setdefault(factor if matching is None else matching, []).append(index)
        if len(groups) != 2 or 1.0 not in groups:  # noqa: PLR2004 (the right ones, and the wrong ones)
            continue
        ((factor, indices),) = ((own, places) for own, places in groups.items() if own != 1.0)
        info, own_axis = pair.tensor_of(axis)
        places = [":"] * len(info.shape)
        names = [", ".join([*places[:own_axis], str(index), *places[own_axis + 1 :]]) for index in indices]
        where = join_first([f"{info.name}[{name}]" for name in names], _LISTED)
        if info is pair.output:
            fault = "is dropped" if factor == 0 else f"counts {_name_factor(factor)} times"
            return f"the upstream of {where} {fault}, and all else is right"
        fault = "zero" if factor == 0 else f"{_name_factor(factor)} times the derivative"
        return f"the gradient is {fault} for {where}, and all else is right"
    return ""


def _factors_along(pair: Pair, axis: int) -> dict[int, float]:
    """Return the factor of each slice along an axis; none where there is no such factor."""
    factors: dict[int, float] = {}
    if pair.shape[axis] <= 1:  # one slice is all there is
        return {}
    slices = (
        np.moveaxis(pair.along_axes(values), axis + 1, 0).reshape(pair.shape[axis], -1)
        for values in (pair.analytic, pair.numeric, pair.slack)
    )
    for index, (analytic, numeric, slack) in enumerate(zip(*slices, strict=True)):
        size = float(numeric @ numeric)
        moving = int(np.count_nonzero(np.abs(numeric) > slack))
        factor = float(numeric @ analytic) / size if size else 1.0
        if moving == 1 and abs(factor - 1) > _SAME:  # any number is some multiple of another
            return {}
        if not np.all(np.abs(analytic - factor * numeric) <= slack * (1 + abs(factor))):
            return {}
        if moving:
            factors[index] = factor if abs(factor) > _SAME else 0.0
    return factors


_OF_COMPLEX = (_hint_on_factor, _hint_on_swap, _hint_on_mask)
# In the order of how likely they are.
_OF_REAL = (
    *(_hint_on_factor, _hint_on_swap, _hint_on_moves, _hint_on_signs, _hint_on_slices, _hint_on_mask),
    *(_hint_on_multiplier, _hint_on_term, _hint_on_simplex),
)
