"""Hints on a factor or a term that is missing from the gradient, or one too many."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.features.diagnosis.hint_view import (
    FEW,
    NICE,
    SAME,
    find_equal,
    is_explained,
    name_factor,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.features.diagnosis.hint_view import Mask, View


# A factor.


def hint_on_factor(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the gradient is a multiple of the derivative, and which size the factor equals."""
    numeric = np.concatenate([view.numeric[view.is_judged] for view in views])
    analytic = np.concatenate([view.analytic[view.is_judged] for view in views])
    size = float(numeric @ numeric)
    if size == 0 or np.count_nonzero(numeric) <= 1:  # any one element is a multiple of any other
        return ""
    factor = float(numeric @ analytic) / size
    sizes = {**_sizes(output), **_sizes(input_info)}
    exact = find_equal(factor, [1 / length for length in sizes])
    name = name_factor(factor) if exact is None else str(Fraction(1, round(1 / exact)))
    if factor == 0 or not is_explained(views, lambda values: factor * values):
        return ""
    if name == "-1":
        return "the sign is flipped: the gradient is -1 times the derivative"
    return f"the gradient is {name} times the derivative{_of_a_size(factor, sizes)}"


def _sizes(info: TensorInfo) -> dict[int, str]:
    """Return the sizes that a mean over a tensor can divide by, each with its description."""
    axis_sizes = {size: f"the size of {info.name}'s axis {axis}" for axis, size in enumerate(info.shape)}
    return {info.size: f"the number of {info.name}'s elements", **axis_sizes}


def _of_a_size(factor: float, sizes: Mapping[int, str]) -> str:
    for size, description in sizes.items():
        if size > 2 and abs(factor - size) < SAME * size:  # noqa: PLR2004 (twice is more often a square's)
            return f"; {size} is {description}: is the sum taken where a mean is meant?"
        if size > 1 and abs(factor * size - 1) < SAME:
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


def hint_on_multiplier(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the gradient has one value-dependent factor too many or too few."""
    if output.is_complex or input_info.is_complex:
        return ""
    if any((view.has_gradient & ~view.is_moving).any() for view in views):
        return ""
    known_values = [_known_values(view, output, input_info) for view in views]
    for name in known_values[0]:
        for power, relation in (
            (-1, "divided by {}: is this factor missing?"),
            (1, "times {}: is it one too many?"),
        ):
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                spread = [
                    np.broadcast_to(values[name], view.analytic.shape) ** power
                    for values, view in zip(known_values, views, strict=True)
                ]
            factor = _fit_factor(
                views, [view.analytic for view in views], [view.numeric for view in views], spread
            )
            if factor is not None:
                multiple = "" if factor == 1 else f"{name_factor(factor)} times "
                return f"the gradient is {multiple}the derivative {relation.format(name)}"
    return ""


def hint_on_term(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say which term is added to the derivative, or what kind of term it is."""
    if output.is_complex or input_info.is_complex:
        return ""
    errors = [view.analytic - view.numeric for view in views]
    is_wrong = [
        view.is_judged & (np.abs(error) > view.slack) for error, view in zip(errors, views, strict=True)
    ]
    is_elementwise = all(
        np.all(view.is_moving.sum(1) <= 1) and np.all(mask <= view.is_moving)
        for view, mask in zip(views, is_wrong, strict=True)
    )
    if not is_elementwise:
        return _hint_on_rank_one(views, errors, is_wrong, output, input_info)
    for name, arrays in _terms(views, output, input_info):
        ones = [np.ones(array.shape) for array in arrays]
        factor = _fit_factor(views, errors, arrays, ones, 1 if name == "1" else 2)
        if factor is not None:
            sign = "minus" if factor < 0 else "plus"
            multiple = "" if abs(factor) == 1 and name != "1" else name_factor(abs(factor))
            term = multiple if name == "1" else f"{multiple} {name}".strip()
            return f"the gradient is the derivative {sign} {term}: is a term missing, or its sign flipped?"
    return ""


def _terms(
    views: Sequence[View], output: TensorInfo, input_info: TensorInfo
) -> list[tuple[str, list[Float]]]:
    """Return candidates for a term of an elementwise op's gradient."""
    spread = [view.is_moving.astype(float) for view in views]
    known_values = [_known_values(view, output, input_info) for view in views]
    terms: list[tuple[str, list[Float]]] = [("1", spread)]
    for name in known_values[0]:
        value_arrays = [
            np.broadcast_to(values[name], moving.shape)
            for values, moving in zip(known_values, spread, strict=True)
        ]
        terms.append(
            (
                name,
                [
                    np.where(moving > 0, values, 0.0)
                    for values, moving in zip(value_arrays, spread, strict=True)
                ],
            )
        )
    of_points = [(name, arrays) for name, arrays in terms if name in views[0].point]
    products = [
        (
            f"{first_name} {second_name}",
            [left * right for left, right in zip(first_arrays, second_arrays, strict=True)],
        )
        for (first_name, first_arrays), (second_name, second_arrays) in itertools.product(
            of_points, terms[1:]
        )
        if first_name != second_name
    ]
    return terms + products


def _fit_factor(
    views: Sequence[View],
    targets: Sequence[Float],
    base: Sequence[Float],
    spread: Sequence[Float],
    distinct: int = 2,
) -> float | None:
    """Return the round number k with targets = k base spread at every view; `None` where there is none.

    Products with fewer than `distinct` distinct values show nothing: any gradient is a multiple of a number.
    """
    products = []
    for view, values, right in zip(views, base, spread, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            product = np.where(values == 0, 0.0, values * right)
        if not np.isfinite(product[view.is_judged]).all():
            return None
        products.append(np.where(view.is_judged, product, 0.0))
    size = sum(float(np.vdot(product, product)) for product in products)
    distinct_count = max(_count_distinct(products, base), _count_distinct(products, spread))
    if (
        size == 0
        or sum(int(np.count_nonzero(product)) for product in products) < FEW
        or distinct_count < distinct
    ):
        return None
    quotient = (
        sum(
            float(np.vdot(product, np.where(view.is_judged, target, 0.0)))
            for view, product, target in zip(views, products, targets, strict=True)
        )
        / size
    )
    if not np.isfinite(quotient):  # squares overflow where products don't
        return None
    rounded = Fraction(quotient).limit_denominator(4)
    if not rounded or abs(float(rounded) - quotient) > SAME * abs(quotient) or abs(rounded) > NICE:
        return None
    factor = float(rounded)
    for view, target, product in zip(views, targets, products, strict=True):
        slack = view.slack * (1 + abs(factor)) + 1e-6 * np.abs(factor * product)
        if not np.all((np.abs(target - factor * product) <= slack) | ~view.is_judged):
            return None
    return factor


def _count_distinct(products: Sequence[Float], values: Sequence[Float]) -> int:
    """Count the distinct values behind the first non-zero products of each view."""
    samples = [array[product != 0][: FEW**3] for product, array in zip(products, values, strict=True)]
    return len({f"{value:.6e}" for value in np.concatenate(samples)})


def _hint_on_rank_one(
    views: Sequence[View],
    errors: Sequence[Float],
    is_wrong: Sequence[Mask],
    output: TensorInfo,
    input_info: TensorInfo,
) -> str:
    """Say that the error is of rank one, as a whole or per row of a batch, while the derivative isn't."""
    if sum(int(mask.sum()) for mask in is_wrong) <= FEW:
        return ""
    slack = max(float(np.linalg.norm(view.slack)) for view in views)
    sizes = list(
        itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(output.shape, input_info.shape, strict=False)
        )
    )
    for axes in range(min(len(sizes), len(output.shape) - 1, len(input_info.shape) - 1), -1, -1):
        count = int(np.prod(output.shape[:axes]))
        error_blocks, derivatives = (
            [_blocks(error, count) for error in errors],
            [_blocks(view.numeric, count) for view in views],
        )
        if not all(error_blocks) or not all(derivatives):
            continue
        every = [block for blocks in derivatives for block in blocks]
        ranks = [_rank(block, slack) for blocks in error_blocks for block in blocks]
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
    """Return the diagonal blocks of a batch's matrix; none if anything else is non-zero."""
    parts = matrix.reshape(count, matrix.shape[0] // count, count, matrix.shape[1] // count)
    largest = np.abs(parts).max(axis=(1, 3), initial=0.0)
    if (largest * (1 - np.eye(count)) > SAME * float(largest.max())).any():
        return []
    return [np.asarray(parts[index, :, index]) for index in range(count)]


def _rank(matrix: Float, slack: float) -> int:
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(values > max(slack, SAME * float(values[0]))))
