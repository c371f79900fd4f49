"""Hints on a factor or a term that the gradient has too many, or too few."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.diagnosis.hint_view import FEW, NICE, SAME, is_explained, named_factor, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradcheck_cli.checking.diagnosis.hint_view import Mask, View
    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.ops.packing import Float


# A factor.


def as_factor(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> str:
    """Say that the gradient is a multiple of the derivative, and whether that is the size of something."""
    numeric = np.concatenate([view.numeric[view.known] for view in views])
    analytic = np.concatenate([view.analytic[view.known] for view in views])
    size = float(numeric @ numeric)
    if size == 0 or np.count_nonzero(numeric) < 2:  # noqa: PLR2004 (one element is any factor of another)
        return ""
    factor = float(numeric @ analytic) / size
    sizes = {**_sizes(output), **_sizes(taken)}
    exact = nearest(factor, [1 / number for number in sizes])
    told = named_factor(factor) if exact is None else str(Fraction(1, round(1 / exact)))
    if factor == 0 or not is_explained(views, lambda values: factor * values):
        return ""
    if told == "-1":
        return "the sign is flipped: the gradient is -1 times the derivative"
    return f"the gradient is {told} times the derivative{_of_a_size(factor, sizes)}"


def _sizes(info: TensorInfo) -> dict[int, str]:
    """Return the sizes that a mean over a tensor can divide by, each with what it is the size of."""
    found = {size: f"the size of {info.name}'s axis {axis}" for axis, size in enumerate(info.shape)}
    return {info.size: f"the number of {info.name}'s elements", **found}


def _of_a_size(factor: float, sizes: Mapping[int, str]) -> str:
    for size, told in sizes.items():
        if size > 2 and abs(factor - size) < SAME * size:  # noqa: PLR2004 (twice is more often a square's)
            return f"; {size} is {told}: is the sum taken where a mean is meant?"
        if size > 1 and abs(factor * size - 1) < SAME:
            return f"; {size} is {told}: is a mean taken where the sum is meant?"
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


def _known_values(view: View, output: TensorInfo, taken: TensorInfo) -> dict[str, Float]:
    """Return what a factor of an element may depend on: values that go with its row, or with its column."""
    rows, columns = view.analytic.shape
    found = dict(_candidates(output.name, view.value[:, None]))
    for name, values in view.point.items():
        if values.size == columns:
            found |= dict(_candidates(name, values[None]))
        elif values.size == rows:
            found |= dict(_candidates(name, values[:, None]))
    # The input itself first: what it explains needs no other one.
    own = {name: values for name, values in found.items() if taken.name in name}
    return {**own, **found}


def as_multiplied(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> str:
    """Say that the gradient has a factor too many, or too few, that depends on the values."""
    if output.is_complex or taken.is_complex:
        return ""
    if any((view.has_gradient & ~view.is_moving).any() for view in views):
        return ""
    known = [_known_values(view, output, taken) for view in views]
    for name in known[0]:
        for power, told in (
            (-1, "divided by {}: is this factor missing?"),
            (1, "times {}: is it one too many?"),
        ):
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                spread = [
                    np.broadcast_to(values[name], view.analytic.shape) ** power
                    for values, view in zip(known, views, strict=True)
                ]
            factor = _fitted(
                views, [view.analytic for view in views], [view.numeric for view in views], spread
            )
            if factor is not None:
                many = "" if factor == 1 else f"{named_factor(factor)} times "
                return f"the gradient is {many}the derivative {told.format(name)}"
    return ""


def as_added(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> str:
    """Say what is added to the derivative, or what kind of a term that is."""
    if output.is_complex or taken.is_complex:
        return ""
    wrong = [view.analytic - view.numeric for view in views]
    place = [view.known & (np.abs(one) > view.slack) for one, view in zip(wrong, views, strict=True)]
    is_elementwise = all(
        np.all(view.is_moving.sum(1) <= 1) and np.all(one <= view.is_moving)
        for view, one in zip(views, place, strict=True)
    )
    if not is_elementwise:
        return _as_rank_one(views, wrong, place, output, taken)
    for name, arrays in _terms(views, output, taken):
        ones = [np.ones(array.shape) for array in arrays]
        factor = _fitted(views, wrong, arrays, ones, 1 if name == "1" else 2)
        if factor is not None:
            sign = "minus" if factor < 0 else "plus"
            many = "" if abs(factor) == 1 and name != "1" else named_factor(abs(factor))
            what = many if name == "1" else f"{many} {name}".strip()
            return f"the gradient is the derivative {sign} {what}: is a term missing, or its sign flipped?"
    return ""


def _terms(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> list[tuple[str, list[Float]]]:
    """Return what a term may be where an element of the output moves with one of the input alone."""
    spread = [view.is_moving.astype(float) for view in views]
    known = [_known_values(view, output, taken) for view in views]
    found: list[tuple[str, list[Float]]] = [("1", spread)]
    for name in known[0]:
        written = [
            np.broadcast_to(values[name], one.shape) for values, one in zip(known, spread, strict=True)
        ]
        found.append(
            (name, [np.where(one > 0, values, 0.0) for values, one in zip(written, spread, strict=True)])
        )
    own = [(name, arrays) for name, arrays in found if name in views[0].point]
    products = [
        (f"{one} {other}", [left * right for left, right in zip(first, second, strict=True)])
        for (one, first), (other, second) in itertools.product(own, found[1:])
        if one != other
    ]
    return found + products


def _fitted(
    views: Sequence[View],
    found: Sequence[Float],
    base: Sequence[Float],
    spread: Sequence[Float],
    distinct: int = 2,
) -> float | None:
    """Return the round number k by which found = k base spread at every view; `None` where there is none.

    What has fewer distinct values says little: any gradient is some multiple of a number.
    """
    products = []
    for view, left, right in zip(views, base, spread, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            product = np.where(left == 0, 0.0, left * right)
        if not np.isfinite(product[view.known]).all():
            return None
        products.append(np.where(view.known, product, 0.0))
    size = sum(float(np.vdot(one, one)) for one in products)
    seen = max(_distinct(products, base), _distinct(products, spread))
    if size == 0 or sum(int(np.count_nonzero(one)) for one in products) < FEW or seen < distinct:
        return None
    raw = (
        sum(
            float(np.vdot(one, np.where(view.known, left, 0.0)))
            for view, one, left in zip(views, products, found, strict=True)
        )
        / size
    )
    if not np.isfinite(raw):  # squares overflow where products don't
        return None
    nice = Fraction(raw).limit_denominator(4)
    if not nice or abs(float(nice) - raw) > SAME * abs(raw) or abs(nice) > NICE:
        return None
    factor = float(nice)
    for view, left, product in zip(views, found, products, strict=True):
        slack = view.slack * (1 + abs(factor)) + 1e-6 * np.abs(factor * product)
        if not np.all((np.abs(left - factor * product) <= slack) | ~view.known):
            return None
    return factor


def _distinct(products: Sequence[Float], values: Sequence[Float]) -> int:
    """Count the values that make up the products, as far as some say."""
    some = [one[product != 0][: FEW**3] for product, one in zip(products, values, strict=True)]
    return len({f"{value:.6e}" for value in np.concatenate(some)})


def _as_rank_one(
    views: Sequence[View],
    wrong: Sequence[Float],
    place: Sequence[Mask],
    output: TensorInfo,
    taken: TensorInfo,
) -> str:
    """Say that what is wrong is of rank one, alone or in each row of a batch, and the derivative isn't."""
    if sum(int(one.sum()) for one in place) <= FEW:
        return ""
    slack = max(float(np.linalg.norm(view.slack)) for view in views)
    sizes = list(
        itertools.takewhile(lambda both: both[0] == both[1], zip(output.shape, taken.shape, strict=False))
    )
    for axes in range(min(len(sizes), len(output.shape) - 1, len(taken.shape) - 1), -1, -1):
        count = int(np.prod(output.shape[:axes]))
        errors, own = [_blocks(one, count) for one in wrong], [_blocks(view.numeric, count) for view in views]
        if not all(errors) or not all(own):
            continue
        every = [block for blocks in own for block in blocks]
        ranks = [_rank(block, slack) for blocks in errors for block in blocks]
        if min(min(block.shape) for block in every) < FEW or max(ranks) != 1:
            continue
        if max(_rank(block, slack) for block in every) > 1:
            rows = " in each row of the batch" if axes else ""
            return (
                f"what is wrong is of rank one{rows}: a term that is made of a sum (a mean, a product with "
                "the upstream) is missing, or its sign flipped"
            )
    return ""


def _blocks(matrix: Float, count: int) -> list[Float]:
    """Return the blocks on the diagonal of a batch; none where something is beside them."""
    parts = matrix.reshape(count, matrix.shape[0] // count, count, matrix.shape[1] // count)
    largest = np.abs(parts).max(axis=(1, 3), initial=0.0)
    if (largest * (1 - np.eye(count)) > SAME * float(largest.max())).any():
        return []
    return [np.asarray(parts[number, :, number]) for number in range(count)]


def _rank(matrix: Float, slack: float) -> int:
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(values > max(slack, SAME * float(values[0]))))
