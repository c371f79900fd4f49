"""How much gradient and differences disagree at many points, along one random direction and upstream at each.

This is cheap: one or two evaluations of the forward and one pull-back per point, and another one where these
disagree. It decides nothing: points that still disagree go to the judge, who knows kinks, noise and
tolerances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.features.search.branches.point_field import Looked
from gradcheck_cli.features.search.mixed_points import FreeInputs

Array = np.ndarray[Any, Any]

STEP = 1e-5  # of a component's size, or of its spread if that is larger
_ROUNDINGS = 16 * 2.0**-53
_SCREENED = 2e-5  # of a one-sided difference, which is off by about a step: below what is suspicious
FINER = 16.0  # the factor by which the shorter of two steps is smaller
_DIRECTIONS = 4  # in which a function is looked at for kinks, half of them along tiny components alone
_SMOOTH = 1.75  # the power of the step, between those of abs(x) ** 1.5 and of a smooth function
_GROWS = 1e-3  # of a slope: far above what a step of 1e-5 does to that of a smooth function
_TINY = 1e-2  # of a spread: components below it are moved alone, as they are drowned by others


@dataclass(frozen=True)
class Suspicion:
    """What is suspicious at some points."""

    # (B,) the difference between u'Jv by the gradient and by differences, relative to their sizes; 0 where no
    # difference can be taken. Between the slopes from both sides nothing disagrees.
    disagreement: Array
    is_spoilt: Array  # (B,) whether a gradient isn't finite although the differences are
    is_bent: Array  # (B,) whether the slopes on both sides differ by more than those of a smooth function


def suspect(
    op: Operation,
    looked: Looked,
    points: Mapping[int, Array],
    free: FreeInputs,
    moving: tuple[np.random.Generator, float, Array],
) -> Suspicion:
    """Compare gradients with differences.

    Args:
        op: the op that is differenced.
        looked: upstreams and gradients at the points.
        points: (B, *shape), by the input's index.
        free: the inputs that move.
        moving: draws the directions; the step of the differences, as a part of a component's size or spread;
            and a number for each point, (B,): those with the same number move in the same way.
    """
    generator, step, ways = moving
    vectors = free.pack(points)
    moves = free.share_moves(vectors, _draw_moves(vectors, free.spreads, generator, ways) * step)
    others = free.others(points)
    above = free.clip(vectors + moves)
    blocked = above == vectors
    if blocked.any():
        above = np.where(blocked, free.clip(vectors - moves), above)
    distance = 2 * (above - vectors)
    indices = _differentiable_outputs(op)
    values: Sequence[Any] = op.evaluate(free.unpack(above, others))
    ahead, here = [values[index] for index in indices], looked.values
    if looked.op is not op:  # a backward pass's values may differ in their last bits
        values = op.evaluate(free.unpack(vectors, others))
        here = [values[index] for index in indices]
    with np.errstate(all="ignore"):
        changes = [2 * (end - middle) for end, middle in zip(ahead, here, strict=True)]
        seen = _compare(looked, free, (changes, here, []), distance)
        # Most points are right: only others need the other side, which shows kinks.
        rows = np.flatnonzero((seen.disagreement > _SCREENED) | seen.is_spoilt)
        if not len(rows):
            return seen
        below = free.clip(2 * vectors[rows] - above[rows])
        own_others = {index: stack if len(stack) == 1 else stack[rows] for index, stack in others.items()}
        values = op.evaluate(free.unpack(below, own_others))
        behind = [values[index] for index in indices]
        ahead, here = ([stack[rows] for stack in stacks] for stacks in (ahead, here))
        both = [end - other for end, other in zip(ahead, behind, strict=True)]
        bends = [end - 2 * middle + other for end, middle, other in zip(ahead, here, behind, strict=True)]
        again = _compare(looked.at(rows), free, (both, here, bends), above[rows] - below)
        seen.disagreement[rows], seen.is_spoilt[rows] = again.disagreement, again.is_spoilt
        seen.is_bent[rows] = again.is_bent
    return seen


def _compare(
    looked: Looked, free: FreeInputs, values: tuple[list[Array], list[Array], list[Array]], distance: Array
) -> Suspicion:
    """Compare gradients with the changes of values over a distance, (B, size).

    Args:
        values: changes of each output, (B, *shape); its values; and how far they bend; none if
            that wasn't measured.
    """
    changes, here, bends = values
    count = len(distance)
    numeric, size, noise, bend = (np.zeros(count) for _ in range(4))
    for flow, change, middle in zip(looked.upstreams, changes, here, strict=True):
        products = _rows(np.real(np.conj(flow) * change))
        numeric += products.sum(axis=1)
        size += np.abs(products).sum(axis=1)
        noise += _ROUNDINGS * _rows(np.abs(flow * middle)).sum(axis=1)
    for flow, second in zip(looked.upstreams, bends, strict=False):
        bend += _rows(np.abs(flow * second)).sum(axis=1)
    analytic, moved = np.zeros(count), size.copy()
    is_whole = np.ones(count, bool)
    for free_input, own in zip(free.parts, free.split(distance), strict=True):
        gradient = looked.gradients[free_input.index]
        if gradient is None:
            continue
        flat = _rows(gradient)
        if free_input.is_complex:
            flat = np.concatenate([flat.real, flat.imag], axis=1)
        products = flat.real * own
        analytic += products.sum(axis=1)
        size += np.abs(products, out=products).sum(axis=1)
        is_whole &= np.isfinite(flat).all(axis=1)
    excess = np.maximum(np.abs(analytic - numeric) - noise - bend, 0.0)
    share = np.where(size > 0, excess / size, 0.0)
    is_known = looked.is_finite & np.isfinite(numeric)
    disagreement = np.where(is_known & is_whole, np.nan_to_num(share), 0.0)
    return Suspicion(disagreement, is_known & ~is_whole, bend > _GROWS * moved)


def _draw_moves(vectors: Array, spreads: Array, generator: np.random.Generator, ways: Array) -> Array:
    """Draw how far each component moves, (B, size): by its size or its spread, with a random sign.

    In every other point a component moves by its own size: beside a border, there is no room for more.
    """
    sizes = np.abs(vectors)
    tiny = sizes < _TINY * spreads
    alone = np.flatnonzero(tiny.any(axis=1) & (ways % 3 > 0))
    own = (ways % 2 == 1)[:, None] & (sizes > 0)
    moves = np.where(own, sizes, np.maximum(sizes, spreads))
    moves[alone] *= tiny[alone]
    bits = np.frombuffer(generator.bytes(-(-moves.size // 8)), np.uint8)
    signs = np.unpackbits(bits, count=moves.size).reshape(moves.shape).view(np.int8)
    return np.asarray(moves * (2 * signs - 1))


def is_smooth(op: Operation, points: Mapping[int, Array], free: FreeInputs) -> Array:
    """Whether all outputs are smooth at each point, (B,), as far as directions show: a tie hides from half.

    Where a function is smooth, the difference of both sides' changes falls with the step's square. It falls
    with its power of 1.5 beside `abs(x) ** 1.5`, and with the step itself at a kink. That of odd functions is
    0, but the slope grows where it is infinite, as beside `cbrt(x)`.
    """
    vectors, others = free.pack(points), free.others(points)
    smooth = np.ones(len(vectors), bool)
    steps = STEP * np.maximum(np.abs(vectors), free.spreads)
    tiny = np.abs(vectors) < _TINY * free.spreads
    here = op.evaluate(free.unpack(vectors, others))
    for seed in range(_DIRECTIONS):
        moves = steps * np.random.default_rng(seed).choice([-1.0, 1.0], vectors.shape)
        if seed % 2:
            moves = np.where(tiny.any(axis=1, keepdims=True) & ~tiny, 0.0, moves)
        long, short = (
            [op.evaluate(free.unpack(free.clip(vectors + move), others)) for move in (size, -size)]
            for size in (moves, moves / FINER)
        )
        for index in _differentiable_outputs(op):
            ends = [(here[index], ahead[index], behind[index]) for ahead, behind in (long, short)]
            with np.errstate(all="ignore"):
                smooth &= _rows(_is_regular(*ends)).all(axis=1)
    return smooth


def _is_regular(long: tuple[Array, ...], short: tuple[Array, ...]) -> Array:
    """Whether values at, ahead of and behind a point are those of a smooth function, for two steps."""
    noise = _ROUNDINGS * sum(np.abs(value) for value in long)
    bends, changes = (
        [np.abs(ahead + sign * behind - (1 + sign) * here) for here, ahead, behind in (long, short)]
        for sign in (1, -1)
    )
    return np.asarray(
        (bends[1] <= bends[0] / FINER**_SMOOTH + noise)
        & (FINER * changes[1] <= (1 + _GROWS) * changes[0] + FINER * noise)
    )


def _differentiable_outputs(op: Operation) -> list[int]:
    return [output_index for output_index, output in enumerate(op.outputs) if output.is_differentiable]


def _rows(values: Array) -> Array:
    return values.reshape(len(values), -1)
