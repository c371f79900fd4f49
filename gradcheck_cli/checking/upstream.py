"""Structural checks on the vjp as a function of its upstream: linear, zero for zero, the same again.

One-hot upstreams, which make up the Jacobian, don't show a gradient that clips, squares, ignores or
replaces what flows in: random ones of several sizes do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.jacobian import pull_back, working_precision
from gradcheck_cli.checking.packing import Float, pack, packed_size, unpack
from gradcheck_cli.numerics.steps import scales
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.checking.sample import Pair

# Sizes of the random upstreams: as a mean's (1/n), as a loss's own, beyond any customary clipping norm.
_SIZES = (2.0**-10, 1.0, 2.0**10)
# A row's gradient and the same row within a sum differ by rounding alone: n terms of relative error u
# each, and what the vjp itself loses on the way, a few hundred operations' worth. 2^10 u of the sum of
# magnitudes is 1e-13 in float64 and 6e-5 in float32, far below any clipping.
_ROUNDINGS = 2.0**10


@dataclass(frozen=True)
class Pulled:
    """What upstreams give: packed upstreams (B, m), and packed gradients (B, n) by input, of one output."""

    output: int
    upstream: Float
    gradients: Mapping[int, Float | None]


def pull_random(op: Operation, output: int, seed: int) -> Pulled:
    """Pull back a zero upstream, then a dense random one of each size."""
    rows = packed_size(op.outputs[output])
    generator = np.random.default_rng([seed, output])
    upstream = np.zeros((1 + len(_SIZES), rows))
    # Rounded to bfloat16's eight bits, an upstream is exact in every dtype.
    coarse = np.round(generator.uniform(-1, 1, (len(_SIZES), rows)) * 128) / 128
    upstream[1:] = coarse * np.asarray(_SIZES)[:, np.newaxis]
    return Pulled(output, upstream, pull_back(op, output, upstream))


def check_linearity(
    op: Operation, pulled: list[Pulled], analytic: Mapping[Pair, Float | None]
) -> CheckResult:
    """The vjp of an upstream is the sum of the Jacobian's rows that it weighs."""
    for one, number, label in _each(op, pulled):
        matrix, gradient = analytic.get((one.output, number)), one.gradients[number]
        if matrix is None or gradient is None:
            continue
        for row in range(1, len(one.upstream)):
            with np.errstate(invalid="ignore", over="ignore"):
                expected = one.upstream[row] @ matrix
                slack = _slack(op, one.output, number, one.upstream[row : row + 1], matrix)[0]
                right = np.abs(gradient[row] - expected) <= slack
            right |= ~np.isfinite(expected)  # judged as it is, element by element, in the pair
            if not right.all():
                where = int(np.argmin(right))
                return CheckResult(
                    "linearity",
                    Status.MISMATCHED,
                    f"{label} isn't linear in the upstream: for a random upstream of size {_SIZES[row - 1]:g} "
                    f"element {where} is {gradient[row][where]:.6e}, but the rows of its own Jacobian add up to "
                    f"{expected[where]:.6e}; is the upstream clipped, squared, replaced or ignored?",
                )
    return CheckResult("linearity", Status.PASSED)


def check_joint_linearity(op: Operation, pulled: list[Pulled]) -> CheckResult:
    """Upstreams of several outputs at once give the sum of what each gives alone.

    A gradient that mixes them (u1 * u2) is right for each alone, and wrong as soon as a loss uses both.
    """
    if len(pulled) < 2:  # noqa: PLR2004 (one output has nothing to mix with)
        return CheckResult("linearity", Status.PASSED)
    rows = min(len(one.upstream) for one in pulled)
    upstreams = {one.output: unpack(one.upstream[:rows], op.outputs[one.output]) for one in pulled}
    for number, joint in enumerate(op.joint_vjp(upstreams)):
        info = op.inputs[number]
        parts = [part[:rows] for one in pulled if (part := one.gradients.get(number)) is not None]
        if joint is None or not parts or not info.is_differentiable:
            continue
        found, expected = pack(joint, info), np.sum(parts, axis=0)
        slack = sum(
            _slack(
                op, one.output, number, one.upstream[:rows], np.zeros((one.upstream.shape[1], found.shape[1]))
            )
            for one in pulled
        )
        unit = max(working_precision(op, op.outputs[one.output].dtype).unit_roundoff for one in pulled)
        unit = max(unit, working_precision(op, info.dtype).unit_roundoff)
        with np.errstate(invalid="ignore", over="ignore"):
            slack = slack + min(_ROUNDINGS * unit, 0.25) * np.sum(np.abs(parts), axis=0)
            right = (np.abs(found - expected) <= slack) | ~np.isfinite(expected)
        if not right.all():
            row, column = (int(index) for index in np.unravel_index(int(np.argmin(right)), right.shape))
            return CheckResult(
                "linearity",
                Status.MISMATCHED,
                f"the gradient for {info.name} isn't the sum of what each output's upstream gives alone: element "
                f"{column} is {found[row, column]:.6e} with all of them, their sum is {expected[row, column]:.6e}; "
                "does the gradient mix the outputs' upstreams?",
            )
    return CheckResult("linearity", Status.PASSED)


def check_zero_upstream(
    op: Operation, pulled: list[Pulled], analytic: Mapping[Pair, Float | None]
) -> CheckResult:
    """A zero upstream gives exact zeros, wherever the Jacobian is finite."""
    for one, number, label in _each(op, pulled):
        matrix, gradient = analytic.get((one.output, number)), one.gradients[number]
        if matrix is None or gradient is None:
            continue
        wrong = (gradient[0] != 0) & np.isfinite(matrix).all(axis=0)
        if wrong.any():
            where = int(np.argmax(wrong))
            return CheckResult(
                "zero_upstream",
                Status.MISMATCHED,
                f"{label} isn't zero for a zero upstream: element {where} is {gradient[0][where]:.6e}.",
            )
    return CheckResult("zero_upstream", Status.PASSED)


def check_same(
    name: str,
    what: str,
    op: Operation,
    pulled: list[Pulled],
    again: list[Pulled],
    analytic: Mapping[Pair, Float | None],
    atol: float = 0.0,
) -> CheckResult:
    """The same upstream at the same point gives the same gradient, up to the order of its sums."""
    repeats = {one.output: one for one in again}
    for one, number, label in _each(op, pulled):
        matrix = analytic.get((one.output, number))
        first, second = one.gradients[number], repeats[one.output].gradients[number]
        if (first is None) != (second is None):
            return CheckResult(name, Status.MISMATCHED, f"{label} is None at times: it differs {what}.")
        if matrix is None or first is None or second is None:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            slack = _slack(op, one.output, number, one.upstream, matrix) + atol
            right = (np.abs(first - second) <= slack) | (first == second) | ~np.isfinite(slack)
        right |= np.isnan(first) & np.isnan(second)
        if not right.all():
            row, column = (int(index) for index in np.unravel_index(int(np.argmin(right)), right.shape))
            return CheckResult(
                name,
                Status.MISMATCHED,
                f"{label} differs {what}: element {column} was {first[row, column]:.6e}, then "
                f"{second[row, column]:.6e}; does the gradient draw random numbers, or keep state?",
            )
    return CheckResult(name, Status.PASSED)


def _each(op: Operation, pulled: list[Pulled]) -> list[tuple[Pulled, int, str]]:
    return [
        (one, number, f"d{op.outputs[one.output].name}/d{op.inputs[number].name}")
        for one in pulled
        for number in one.gradients
    ]


def _slack(op: Operation, output: int, number: int, upstream: Float, matrix: Float) -> Float:
    """Return the rounding, (B, n), that a gradient may show in the coarser of the two dtypes.

    Beside the rows' own magnitudes, the outputs' values over the input's scale count: a vjp that cancels,
    such as softmax's u s - s sum(u s) or y(1 - y) near saturation, is as good as its terms.
    """
    taken, produced = op.inputs[number], op.outputs[output]
    unit = max(working_precision(op, info.dtype).unit_roundoff for info in (produced, taken))
    point = np.abs(pack(op.point[number][np.newaxis], taken)[0])
    value = np.abs(pack(op.base_values[output][np.newaxis], produced)[0])
    value = np.where(np.isfinite(value), value, 0.0)
    size = np.abs(upstream)
    magnitudes = size @ np.abs(matrix) + (size @ value)[:, np.newaxis] / scales(point).step[np.newaxis, :]
    return np.asarray(min(_ROUNDINGS * unit, 0.25) * magnitudes)
