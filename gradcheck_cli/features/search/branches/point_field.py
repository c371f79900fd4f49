"""What many points of a case show at once: the sides of branches that they take, and suspicious gradients.

Gradients and differences are compared along one random direction and upstream at each point. This is cheap:
one or two evaluations of the forward and one pull-back per point, and two more where these disagree. It
decides nothing: points that still disagree go to the judge, who knows kinks, noise and tolerances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np

from gradcheck_cli.checking.ops.operation import Operation, pack
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.search.branches.graph_branches import Key, Side, find_branches
from gradcheck_cli.features.search.branches.python_branches import constants_in, python_sides, watch_python
from gradcheck_cli.features.search.mixed_points import FreeInputs
from gradcheck_cli.gate import Branch
from gradcheck_cli.tensorflow_backend.graph_view import WholeGraph
from gradcheck_cli.tensorflow_backend.op_types import ROUNDS

Array = np.ndarray[Any, Any]
Points = Mapping[int, Array]  # input number -> (B, *shape); other inputs stay at the base point


def name_of(side: Side) -> str:
    """Return the name of a side, as `Branch.label` gives it."""
    return Branch(*side[0], (), ()).label(side[1])


def matches(side: Side, glob: str) -> bool:
    """Whether a glob is for a side, named with or without the place."""
    return any(fnmatchcase(name, glob) for name in (name_of(side), f"{side[0][0]} {side[1]}"))


# Suspicion.
STEP = 1e-5  # of a component's size, or of its spread if that is larger
_ROUNDINGS = 16 * 2.0**-53
_SCREENED = 2e-5  # of a one-sided difference, which is off by about a step: below what is suspicious
FINER = 16.0  # the factor by which each shorter step is smaller than the one before
_SHORTER = 4  # how often it is shortened: 65,000 times in all, where differences have six digits left
_OF_NOISE = 4.0  # times a shorter step's disagreement, in proportion: each step draws noise of its own
_DIRECTIONS = 4  # in which a function is looked at for kinks, half of them along tiny components alone
_SMOOTH = 1.75  # the power of the step, between those of abs(x) ** 1.5 and of a smooth function
_TINY_STEPS = 1e-12, 1e-17  # below the width of a guard in the forward, such as 1e-20 in a root
_GROWS = 1e-3  # of a slope: far above what a step of 1e-5 does to that of a smooth function
_TINY = 1e-2  # of a spread: components below it are moved alone, as they are drowned by others
_LARGEST = 2**22  # elements fetched at all points of one call together: 32 MiB


@dataclass(frozen=True)
class PointsSeen:
    """What was seen at some points."""

    op: Operation
    points: Points
    taken: Mapping[Side, Array]  # where each side is taken, (B,) of booleans
    is_finite: Array  # (B,) whether every output is finite
    values: list[Array]  # of each differentiable output, (B, *shape)
    upstreams: list[Array]  # of the same, (B, *shape)
    gradients: list[tuple[int, Array]]  # of each of them for an input, by its index, (B, *shape)

    def sides(self, rows: Any) -> frozenset[Side]:
        """Return the sides that some of the points take."""
        taken = self.taken.items()
        return frozenset(side for side, is_taken in taken if (is_taken & self.is_finite)[rows].any())

    def take(self, rows: Array) -> PointsSeen:
        """Return what was seen at some of the points."""
        values, upstreams = ([stack[rows] for stack in stacks] for stacks in (self.values, self.upstreams))
        gradients = [(input_index, stack[rows]) for input_index, stack in self.gradients]
        points = {index: stack[rows] for index, stack in self.points.items()}
        return PointsSeen(self.op, points, self.taken, self.is_finite[rows], values, upstreams, gradients)


class PointField:
    """Looks at points, and keeps which sides were tested."""

    def __init__(self, op: Any, formula: Any) -> None:
        """Find the branches.

        Args:
            op: opened at a point whose graphs serve all other points.
            formula: the same in float64, whose values and gradients are looked at: rounding is no fault.

        Raises:
            CaseFailedError: a call raises.
        """
        self._op, self._graph = formula, WholeGraph(formula)
        # The Python code that has run, with what it reads from outside.
        self._codes: dict[CodeType, list[Any]] = {}
        self.seen: set[Side] = set()  # the sides at which the gradient was tested
        self._watched, closed, self._numbers = find_branches(WholeGraph(op))
        if formula is not op:
            wide = self._graph.wide
            self._watched = [replace(own, tensors=wide(own.tensors)) for own in self._watched]
        # Why some branches can't be looked at; empty if all can.
        self.unknown = f"not looked at inside {', '.join(sorted(closed))}" if closed else ""

    @property
    def constants(self) -> list[float]:
        """The numbers in the graph, and in Python code that has run."""
        return [*self._numbers, *constants_in(self._codes)]

    @property
    def sides(self) -> list[Side]:
        """The sides of all branches, each once."""
        in_graph = [(watched.key, side) for watched in self._watched for side in watched.kind.names]
        return list(dict.fromkeys([*in_graph, *self._python_branches]))

    @property
    def _python_branches(self) -> list[Side]:
        return [*python_sides(self._codes)]

    def branches(self, excuses: Sequence[tuple[str, str]] = ()) -> tuple[Branch, ...]:
        """Return the branches, with the sides that were taken, and the reasons why others aren't.

        Args:
            excuses: pairs of a glob over sides and a reason; if several match, the last one counts.
        """
        every: dict[Key, list[str]] = {}
        for key, side in self.sides:
            every.setdefault(key, []).append(side)
        branches = []
        for key, sides in every.items():
            seen = tuple(side for side in sides if (key, side) in self.seen)
            excused = {
                side: reason
                for side in sides
                for glob, reason in excuses
                if side not in seen and matches((key, side), glob)
            }
            # A loop with as many rounds at all points doesn't branch; it may have no round.
            if tuple(sides) != ROUNDS or len(seen) > 1 or seen == ROUNDS[:1]:
                branches.append(Branch(*key, tuple(sides), seen, tuple(excused.items())))
        return tuple(branches)

    # Looking at points.

    @property
    def calls_python(self) -> bool:
        """Whether the forward or the gradient calls Python code of the user's."""
        return self._graph.calls_python

    @property
    def most(self) -> int:
        """How many points one call may take."""
        shapes = [tensor.shape for tensor in self._fetches]
        size = sum(math.prod(length or 1 for length in shape) for shape in shapes if shape.rank is not None)
        return _LARGEST // max(1, size)

    def look(self, points: Points, count: int, draws: Draws) -> PointsSeen:
        """Look at points, and pull upstreams back at each.

        A point at which a call raises takes no side, and has no values.

        Args:
            points: the inputs that differ, (B, *shape) each.
            count: B.
            draws: draws the upstreams.
        """
        graph = self._graph
        if not graph.sources:  # no gradient, so nothing to see
            return PointsSeen(self._op, points, {}, np.ones(count, bool), [], [], [])
        infos = [self._op.outputs[output_index] for output_index in graph.sources]
        upstreams = [draws.normal(turn, (count, *info.shape)) for turn, info in enumerate(infos)]
        results, taken = self._look(points, upstreams)
        outputs = len(self._op.outputs)
        is_finite = np.ones(count, bool)
        for value in results[:outputs]:
            if value.dtype.kind in "fc":
                is_finite &= np.isfinite(value).reshape(count, -1).all(axis=1)
        values = [results[output_index] for output_index in graph.sources]
        gradients = list(zip(graph.pulled, results[outputs:], strict=True))
        return PointsSeen(self._op, points, taken, is_finite, values, upstreams, gradients)

    def _look(self, points: Points, upstreams: Sequence[Array]) -> tuple[list[Array], dict[Side, Array]]:
        """Return the results, (B, ...) each, and the sides taken at each point; NaN where a call raises."""
        count = len(next(iter((*points.values(), *upstreams))))
        if count == 1 or not self._python_branches:  # those are watched point by point
            with suppress(CaseFailedError):
                at_once = self._call(points, upstreams)
                if count == 1 or not self._python_branches:  # none was met
                    return at_once
        if count == 1:
            inputs = [self._op.inputs[input_index] for input_index in self._graph.pulled]
            return [np.full((1, *info.shape), np.nan) for info in (*self._op.outputs, *inputs)], {}
        looked = [
            self._look({i: stack[row] for i, stack in points.items()}, [stack[row] for stack in upstreams])
            for row in (slice(row, row + 1) for row in range(count))
        ]
        results = [np.concatenate(rows) for rows in zip(*(values for values, _ in looked), strict=True)]
        sides, none = {side for _, taken in looked for side in taken}, np.zeros(1, bool)
        return results, {side: np.concatenate([own.get(side, none) for _, own in looked]) for side in sides}

    def _call(self, points: Points, upstreams: Sequence[Array]) -> tuple[list[Array], dict[Side, Array]]:
        in_python: set[Side] = set()
        watching = watch_python(self._codes, in_python) if self.calls_python else None
        values = self._graph.values(points, upstreams, self._fetches, watching)
        results = [values[id(tensor)] for tensor in self._graph.results]
        count = len(next(iter((*points.values(), *upstreams))))
        taken = {side: np.ones(count, bool) for side in in_python}
        for watched in self._watched:
            for side, is_taken in watched.sides_taken(values):
                taken[side] = is_taken | taken.get(side, False)
        return results, taken

    @cached_property
    def _fetches(self) -> list[Any]:
        branching = [tensor for watched in self._watched for tensor in watched.tensors]
        return list({id(tensor): tensor for tensor in (*self._graph.results, *branching)}.values())


@dataclass(frozen=True)
class Draws:
    """Random numbers for points: each point has its own, whatever else is looked at in the same call.

    How many points a call has depends on time, and a verdict must not.
    """

    seed: tuple[int, ...]
    first: int = 0  # the number of the first point

    def normal(self, turn: int, shape: tuple[int, ...]) -> Array:
        """Draw normal numbers, (B, ...), others in each turn."""
        generator = np.random.default_rng([*self.seed, 0, turn])
        return generator.standard_normal((self.first + shape[0], *shape[1:]))[self.first :]

    def signs(self, turn: int, shape: tuple[int, int]) -> Array:
        """Draw signs, (B, size), others in each turn."""
        size = (self.first + shape[0]) * shape[1]
        generator = np.random.default_rng([*self.seed, 1, turn])
        bits = np.frombuffer(generator.bytes(-(-size // 8)), np.uint8)
        signs = 2 * np.unpackbits(bits, count=size).view(np.int8) - 1
        return signs.reshape(-1, shape[1])[self.first :]


@dataclass(frozen=True)
class Suspicion:
    """What is suspicious at some points."""

    # (B,) the difference between u'Jv by the gradient and by differences, relative to their sizes; 0 where no
    # difference can be taken. A gradient between the slopes from both sides agrees.
    disagreement: Array
    is_spoilt: Array  # (B,) whether a gradient isn't finite although the differences are
    is_bent: Array  # (B,) whether the slopes on both sides differ by more than those of a smooth function
    noise: Array  # (B,) how much of a disagreement rounding of the outputs may hide
    slope: Array  # (B,) the size of the terms of u'Jv, for a direction v of length 1


def suspect(
    op: Operation,
    looked: PointsSeen,
    free: FreeInputs,
    draws: Draws,
    specials: Sequence[float],
) -> Suspicion:
    """Compare gradients with differences: where they disagree, again, from both sides.

    Right gradients disagree where a kink is near: so this goes along other directions, and less and less far.
    Of many elements some have kinks within any usual step. Where gradient and differences agree at a step so
    short that the function looks smooth along it, they agree; between the slopes of both sides they agree at
    the first of these steps alone, as shorter ones show the kinks of fewer elements. And what a shorter step
    makes larger by as much is noise.

    Args:
        op: the op that is differenced.
        looked: upstreams and gradients at the points.
        free: the inputs that move.
        draws: draws the directions.
        specials: what components may be compared with: those with such a value don't move in most ways.
    """
    vectors, ways = free.pack(looked.points), draws.first + np.arange(len(looked.is_finite))

    def draw_moves(turn: int) -> Array:
        return _draw_moves(vectors, free, draws.signs(turn, vectors.shape), ways, specials)

    seen = _compare(op, looked, free, STEP * draw_moves(0))
    for turn in range(1, _SHORTER + 1):
        shorter = FINER**turn
        rows = np.flatnonzero((seen.disagreement > _SCREENED) | seen.is_spoilt)
        if not len(rows):
            break
        own = looked.take(rows)
        moves = STEP / shorter * draw_moves(turn)[rows]
        again = _compare(op, own, free, moves, from_both_sides=True)
        if shorter > FINER:  # along another direction, an error may be 16 times as large
            seen.disagreement[rows] -= _OF_NOISE * again.disagreement / shorter
            # The least of several disagreements would say less and less of a wrong gradient.
            tells = ~again.is_bent & (again.noise <= _SCREENED) & (again.disagreement <= _SCREENED)
            again.disagreement[~tells] = np.inf
        seen.disagreement[rows] = np.minimum(seen.disagreement[rows], again.disagreement)
        seen.is_bent[rows] = again.is_bent
        seen.is_spoilt[rows] &= again.is_spoilt
    spoilt = np.flatnonzero(seen.is_spoilt)
    if len(spoilt):
        seen.is_spoilt[spoilt] = is_smooth(op, looked.take(spoilt).points, free, specials)
    return seen


def _compare(
    op: Operation, looked: PointsSeen, free: FreeInputs, moves: Array, *, from_both_sides: bool = False
) -> Suspicion:
    """Compare gradients with differences along a direction for each point; from both sides, they show kinks.

    Args:
        op: the op that is differenced.
        looked: upstreams and gradients at the points.
        free: the inputs that move.
        moves: how far, (B, size).
        from_both_sides: whether to move back as well.
    """
    vectors = free.pack(looked.points)
    ahead = free.clip(vectors + moves)
    ahead = np.where(ahead == vectors, free.clip(vectors - moves), ahead)
    behind = 2 * vectors - ahead
    # At the end of a range there is no other side: how far the way from there on bends shows a kink.
    is_inside = (free.clip(behind) == behind).all(axis=1)
    behind = np.where(is_inside[:, None], behind, (vectors + ahead) / 2)

    def values_at(vectors: Array) -> list[Array]:
        values = op.evaluate(free.unpack(vectors, looked.points))
        return [_rows(values[index]) for index in _differentiable_outputs(op)]

    ends = values_at(ahead)
    # A backward pass's values may differ in their last bits.
    middles = [_rows(value) for value in looked.values] if looked.op is op else values_at(vectors)
    others = values_at(behind) if from_both_sides else middles
    inside, distance = is_inside[:, None], 2 * (ahead - vectors)
    analytic, terms, is_whole = _pull_back(looked, free, distance)
    numeric, size, noise, bend = np.zeros((4, len(vectors)))
    for upstream, end, here, other in zip(looked.upstreams, ends, middles, others, strict=True):
        flow, change, bends = np.conj(_rows(upstream)), 2 * (end - here), np.zeros(())
        if from_both_sides:
            change = np.where(inside, end - other, 2 * (4 * other - 3 * here - end))
            bends = np.where(inside, end - 2 * here + other, end - 2 * other + here)
        products = np.real(flow * change)
        numeric += products.sum(axis=1)
        size += np.abs(products).sum(axis=1)
        noise += _ROUNDINGS * np.abs(flow * here).sum(axis=1)
        bend += np.abs(flow * bends).sum(axis=1)
    is_known = looked.is_finite & np.isfinite(numeric)
    excess = np.maximum(np.abs(analytic - numeric) - noise - bend, 0.0)
    return Suspicion(
        np.where(is_known & is_whole, np.nan_to_num(excess / (size + terms)), 0.0),
        is_known & ~is_whole,
        bend > _GROWS * size,
        noise / (size + terms),
        (size + terms) / np.sqrt(np.einsum("ij,ij->i", distance, distance)),
    )


def _pull_back(looked: PointsSeen, free: FreeInputs, distance: Array) -> tuple[Array, Array, Array]:
    """Return the change over a distance by the gradients, the size of its terms, and where all are finite."""
    own = {
        part.index: (part, moves) for part, moves in zip(free.parts, free.space.split(distance), strict=True)
    }
    analytic, size = np.zeros((2, len(distance)))
    is_whole = np.ones(len(distance), bool)
    for input_index, gradient in looked.gradients:
        if input_index in own:
            part, moves = own[input_index]
            products = pack(gradient, part.info) * moves
            analytic += products.sum(axis=1)
            size += np.abs(products).sum(axis=1)
            is_whole &= np.isfinite(_rows(gradient)).all(axis=1)
    return analytic, size, is_whole


def _draw_moves(
    vectors: Array, free: FreeInputs, signs: Array, ways: Array, specials: Sequence[float]
) -> Array:
    """Return how far each component moves, (B, size): by its size or its spread, with a random sign.

    In every other way a component moves by its own size: beside a border, there is no room for more. In two
    of three, tiny ones move alone. If some are zero, or what the code compares with, tiny ones do so in one
    of three, and those stay in the others: what is left out because of such a value, as padding is, makes
    outputs jump when it moves. In one of four, weights and stated values move alone, and in another one they
    stay: slopes for one kind of inputs may drown those for the other.
    """
    sizes, spreads, constant = np.abs(vectors), free.spreads, free.are_constant
    own = (ways % 2 == 1)[:, None] & (sizes > 0)
    moves = np.where(own, sizes, np.maximum(sizes, spreads))
    if constant.any() and not constant.all():
        moves[ways % 4 == 2] *= ~constant  # noqa: PLR2004 (the ways)
        moves[ways % 4 == 3] *= constant  # noqa: PLR2004 (the ways)
    tiny = (sizes < _TINY * spreads) & (moves > 0)
    is_special = (moves > 0) & ((sizes == 0) | (np.isin(vectors, specials) & ~constant))
    turns = ways[:, None] % 3
    are_alone = np.where(is_special.any(axis=1, keepdims=True), turns == 1, turns > 0)
    chosen = np.where(are_alone, tiny, ~is_special & (moves > 0))
    moves *= chosen | ~chosen.any(axis=1, keepdims=True)
    return moves * signs


def is_smooth(
    op: Operation, points: Mapping[int, Array], free: FreeInputs, specials: Sequence[float]
) -> Array:
    """Whether all outputs are smooth at each point, (B,), as far as directions show: a tie hides from half.

    Where a function is smooth, the difference of both sides' changes falls with the step's square. It falls
    with its power of 1.5 beside `abs(x) ** 1.5`, and with the step itself at a kink. That of odd functions is
    0, but the slope grows where it is infinite, as beside `cbrt(x)`. What looks like a kink may be smooth for
    a tiny step, if it is seen to change there: `sqrt(x * x + 1e-30)` at 0.
    """
    vectors = free.pack(points)
    smooth = np.ones(len(vectors), bool)
    for way in range(_DIRECTIONS):
        signs = Draws((way,)).signs(0, vectors.shape)
        moves = _draw_moves(vectors, free, signs, np.full(len(vectors), way), specials)
        # Not all as far: equal values that move alike stay equal.
        moves *= np.random.default_rng(way).uniform(0.5, 1, vectors.shape)
        regular = _are_regular(op, points, free, STEP * moves)
        for step in () if all(own.all() for own in regular) else _TINY_STEPS:
            tiny = _are_regular(op, points, free, step * moves, must_change=True)
            regular = [own | other for own, other in zip(regular, tiny, strict=True)]
        for own in regular:
            smooth &= _rows(own).all(axis=1)
    return smooth


def _are_regular(
    op: Operation, points: Mapping[int, Array], free: FreeInputs, moves: Array, *, must_change: bool = False
) -> list[Array]:
    """Return for each output whether it is regular along some moves, (B, *shape); see `_is_regular`."""
    vectors = free.pack(points)
    moves = np.where(free.clip(vectors + moves) == vectors + moves, moves, -moves)
    # At the end of a range, two moves from there on must add up: those of a distance of equal vectors don't.
    is_end = (free.clip(vectors - moves) != vectors - moves).any(axis=1, keepdims=True)
    share = is_end * np.random.default_rng(0).uniform(0, 1, moves.shape)
    parts = [share * moves, (is_end - share) * moves, moves, (is_end - 1) * moves]
    long, short = (
        [op.evaluate(free.unpack(vectors + part / shorter, points)) for part in parts]
        for shorter in (1, FINER)
    )
    return [
        _is_regular(
            *([value[index] for value in values] for values in (long, short)), must_change=must_change
        )
        for index in _differentiable_outputs(op)
    ]


def _is_regular(long: Sequence[Array], short: Sequence[Array], *, must_change: bool) -> Array:
    """Whether values are those of a smooth function, for two steps: two between, one ahead, one behind."""
    noise = _ROUNDINGS * sum(np.abs(value) for value in long)
    bends = [np.abs(ahead + behind - here - there) for here, there, ahead, behind in (long, short)]
    changes = [np.abs(ahead - behind) for _, _, ahead, behind in (long, short)]
    return np.asarray(
        (bends[1] <= bends[0] / FINER**_SMOOTH + noise)
        & (FINER * changes[1] <= (1 + _GROWS) * changes[0] + FINER * noise)
        & ((np.abs(long[2] - long[0]) > noise) | (not must_change))
    )


def _differentiable_outputs(op: Operation) -> list[int]:
    return [output_index for output_index, output in enumerate(op.outputs) if output.is_differentiable]


def _rows(values: Array) -> Array:
    return values.reshape(len(values), -1)
