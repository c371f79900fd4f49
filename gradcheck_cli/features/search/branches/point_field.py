"""A case's function, gradient and branches at many points at once, and the search for sides not yet taken.

Sides are sought without knowing what the branches are, by two means: points that differ in one component from
one that comes as far as such a branch; and segments between points, cut where sides change. The cuts lie at
all distances from a change, down to the last bit, so a narrow band beside it is met, whatever its width. A
branch inside another one's rare side changes between points on that side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.search.branches.graph_branches import Body, Key, Watched, find_branches, needed_by
from gradcheck_cli.features.search.branches.python_branches import (
    Arc,
    PythonBranch,
    constants_in,
    python_branches,
    trace_jumps,
)
from gradcheck_cli.features.search.branches.side_graph import SideGraph
from gradcheck_cli.features.search.mixed_points import FreeInputs
from gradcheck_cli.gate import Branch, with_excuses
from gradcheck_cli.tensorflow_backend.binding.user_gradient import PY_FUNC_TYPES
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.traces.state import at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import require_shapes

Array = np.ndarray[Any, Any]
Points = Mapping[int, Array]  # input number -> (B, *shape); other inputs stay at the base point
Side = tuple[Key, str]


# The search for sides.
_CHILDREN = 96  # points with another component, in one round
_SEGMENTS = 6  # in one round
_CUTS = 7  # points of a segment in one call: each call divides it by eight
_LEVELS = 18  # 8**-18 is below a rounding
_KEPT = 256  # points that are remembered
_LARGEST = 2**22  # elements fetched at all points of one call together: 32 MiB


@dataclass(frozen=True)
class Looked:
    """What was seen at some points."""

    op: GraphOperation
    taken: Array  # (B, sides) which sides are taken
    is_finite: Array  # (B,) whether every output is finite
    values: list[Array]  # of each differentiable output, (B, *shape)
    upstreams: list[Array]  # of the same, (B, *shape)
    # what the upstreams are pulled back to for each input, (B, *shape); `None` for no path
    gradients: list[Array | None]

    def at(self, rows: Array) -> Looked:
        """Return what was seen at some of the points."""
        values, upstreams = ([stack[rows] for stack in stacks] for stacks in (self.values, self.upstreams))
        gradients = [None if stack is None else stack[rows] for stack in self.gradients]
        return Looked(self.op, self.taken[rows], self.is_finite[rows], values, upstreams, gradients)


class PointField:
    """Looks at points, and keeps which sides were tested."""

    def __init__(self, op: GraphOperation) -> None:
        """Find the branches.

        Args:
            op: opened at a point whose graphs serve all other points.

        Raises:
            CaseFailedError: a call raises.
        """
        self._op = op
        self._python: list[PythonBranch] = []  # branches of Python code that has run
        self.seen: set[Side] = set()  # the sides at which the gradient was tested
        self.unknown = ""  # why some branches can't be looked at; empty if all can
        whole = find_branches(op)
        # The numbers in the graph, and in Python code that has run.
        self.constants = list(dict.fromkeys(whole.constants))
        if not whole.calls or not self._watch_bodies(whole):
            self._watch(whole.watched)
            if whole.calls:
                names = ", ".join(sorted(whole.calls))
                self.unknown = f"not looked at inside {names}: a copy of the graph with sides can't be called"

    def _watch(self, branches: Sequence[Watched], copy: SideGraph | None = None) -> None:
        self._watched, self._copy = branches, copy
        self.sides: list[Side] = []  # of all branches, each once
        self._side_index: dict[Side, int] = {}
        self._hidden = {watched.branch.key for watched in branches if watched.is_hidden}
        for watched in branches:
            self._add_sides(watched.branch)

    def _add_sides(self, branch: Branch) -> None:
        for side in branch.sides:
            if (branch.key, side) not in self._side_index:
                self._side_index[branch.key, side] = len(self.sides)
                self.sides.append((branch.key, side))

    def _watch_bodies(self, whole: Body) -> bool:
        """Watch branches in bodies, too; return whether that works."""
        with suppress(CaseFailedError, ValueError, TypeError, KeyError, tf.errors.OpError):
            copy = SideGraph.of(self._op.traced.vjp_trace.whole, whole)
            self._watch([*whole.watched, *copy.branches], copy)
            self.look({}, [0])
            return True
        return False

    # Sides that were tested.

    def see(self, taken: Array) -> None:
        """Count the sides, (sides,), that a tested point takes."""
        self.seen |= {self.sides[side] for side in np.flatnonzero(taken)}

    @property
    def wanted(self) -> Array:
        """Which sides no tested point has taken, (sides,)."""
        return np.array([side not in self.seen and side[0] not in self._hidden for side in self.sides], bool)

    @property
    def shown(self) -> list[Side]:
        """The sides that reports have."""
        return [side for side in self.sides if side[0] not in self._hidden]

    def branches(self, excuses: Sequence[tuple[str, str]] = ()) -> tuple[Branch, ...]:
        """Return the branches, with the sides that were taken, and the reasons why others aren't."""
        sides: dict[Key, list[str]] = {}
        for key, side in self.shown:
            sides.setdefault(key, []).append(side)
        branches = [
            Branch(*key, tuple(own), tuple(side for side in own if (key, side) in self.seen))
            for key, own in sides.items()
            if len(own) > 1
        ]
        return tuple(with_excuses(branch, excuses) for branch in branches)

    # Looking at points.

    @cached_property
    def calls_python(self) -> bool:
        """Whether the forward or the gradient calls Python code of the user's."""
        return any(op.type in PY_FUNC_TYPES for op in needed_by(self._op.traced.vjp_trace.results))

    @property
    def most(self) -> int:
        """How many points one call may take."""
        shapes = [tensor.shape for tensor in self._fetches]
        size = sum(math.prod(length or 1 for length in shape) for shape in shapes if shape.rank is not None)
        return _LARGEST // max(1, size)

    def look(self, points: Points, seeds: Sequence[int]) -> Looked:
        """Look at points, and pull upstreams back at each.

        Args:
            points: the inputs that differ, (B, *shape) each.
            seeds: a number for each point; together they are the seed of the upstreams.

        Raises:
            CaseFailedError: a call raises at every point. If it raises at some points only, these take no
                side and have no values.
        """
        trace = self._op.traced.vjp_trace
        infos = [self._op.outputs[output_index] for output_index in trace.sources]
        generator = np.random.default_rng(list(seeds))
        upstreams = [generator.standard_normal((len(seeds), *info.shape)) for info in infos]
        arcs: list[set[Arc]] = []
        fetched = self._values(points, upstreams, arcs)
        if any(arcs):
            self._note_python(arcs)
        values = dict(zip(map(id, self._fetches), fetched, strict=True))
        count = len(self._op.outputs)
        is_finite = np.ones(len(seeds), bool)
        for value in (values[id(tensor)] for tensor in trace.results[:count]):
            if value.dtype.kind in "fc":
                is_finite &= np.isfinite(value).reshape(len(seeds), -1).all(axis=1)
        taken = self._sides_at(values, arcs, len(seeds)) & is_finite[:, None]
        gradients = self._add_gradients([values[id(tensor)] for tensor in trace.results[count:]])
        outputs = [values[id(trace.results[output_index])] for output_index in trace.sources]
        return Looked(self._op, taken, is_finite, outputs, upstreams, gradients)

    def _note_python(self, arcs: Sequence[set[Arc]]) -> None:
        """Add the branches of the code that ran."""
        every = set().union(*arcs)
        before = {arc for python_branch in self._python for side in python_branch.arcs for arc in side}
        self._python = python_branches(every | before)
        for python_branch in self._python:
            self._add_sides(python_branch.branch)
        self.constants = list(dict.fromkeys([*self.constants, *constants_in(every)]))

    def _sides_at(self, values: Mapping[int, Array], arcs: Sequence[set[Arc]], count: int) -> Array:
        taken = np.zeros((count, len(self.sides)), bool)
        for watched in self._watched:
            for side, is_taken in zip(watched.branch.sides, watched.sides_taken(values), strict=True):
                taken[:, self._side_index[watched.branch.key, side]] |= is_taken
        for row, of_row in enumerate(arcs):
            for python_branch in self._python:
                branch = python_branch.branch
                for side, is_true in zip(branch.sides, python_branch.sides_taken(of_row), strict=True):
                    taken[row, self._side_index[branch.key, side]] |= is_true
        return taken

    def _add_gradients(self, gradients: Sequence[Array]) -> list[Array | None]:
        """Add up the gradients of all outputs for each input."""
        trace = self._op.traced.vjp_trace
        sums: list[Array | None] = [None] * len(self._op.inputs)
        rest = iter(gradients)
        for output in trace.sources:
            for input_index in trace.connected(output):
                gradient, before = next(rest), sums[input_index]
                with np.errstate(invalid="ignore", over="ignore"):
                    sums[input_index] = gradient if before is None else before + gradient
        return sums

    def _values(self, points: Points, upstreams: Sequence[Array], arcs: list[set[Arc]]) -> list[Array]:
        """Return the values of everything that is fetched, (B, ...) each; NaN where a call raises.

        It adds to `arcs` which way the jumps of Python code go at each point.
        """
        count = len(next(iter((*points.values(), *upstreams))))
        # Python code is watched point by point, and a variable has one value in a call.
        starts = range(count) if self.calls_python else self._changes_of_variables(points, count)
        if len(starts) == 1:
            try:
                return self._call(points, upstreams, arcs)
            except CaseFailedError:
                if count == 1:
                    raise
                starts = [0, count // 2]
        parts = [slice(*ends) for ends in zip(starts, [*starts[1:], count], strict=True)]
        values: list[list[Array] | None] = [None] * len(parts)
        for index, part in enumerate(parts):
            own = {input_index: stack[part] for input_index, stack in points.items()}
            with suppress(CaseFailedError):
                values[index] = self._values(own, [flow[part] for flow in upstreams], arcs)
        return _stack(values, [part.stop - part.start for part in parts])

    def _call(self, points: Points, upstreams: Sequence[Array], arcs: list[set[Arc]]) -> list[Array]:
        at = self._op.traced.at
        arguments = {index: stack for index, stack in points.items() if index < at.count}
        variables = {index - at.count: stack[:1] for index, stack in points.items() if index >= at.count}
        with ExitStack() as around:
            if variables:
                next(around.enter_context(at_values(self._op.traced.variables, variables)))
            if self.calls_python:
                arcs.append(set())
                around.enter_context(trace_jumps(arcs[-1]))
            fetched = self._op.runs.beside_gradient(self._fetches, arguments, upstreams, self._copy)
        # Upstreams have the shapes of the outputs at the base point.
        values = dict(zip(map(id, self._fetches), fetched, strict=True))
        results = self._op.traced.vjp_trace.results[: len(self._op.outputs)]
        require_shapes((values[id(tensor)].shape[1:] for tensor in results), self._op.outputs)
        return fetched

    def _changes_of_variables(self, points: Points, count: int) -> list[int]:
        """Return the rows from which on variables have other values, with the first."""
        stacks = [stack for index, stack in points.items() if index >= self._op.traced.at.count]
        changed = (
            row
            for row in range(1, count)
            if any(not np.array_equal(stack[row], stack[row - 1]) for stack in stacks)
        )
        return [0, *changed]

    @cached_property
    def _fetches(self) -> list[Any]:
        branching = [tensor for watched in self._watched for tensor in watched.fetched]
        every = [*self._op.traced.vjp_trace.results, *branching]
        return list({id(tensor): tensor for tensor in every}.values())


def _stack(parts: Sequence[list[Array] | None], counts: Sequence[int]) -> list[Array]:
    """Put values at several points together; NaN at points without values.

    Of a tensor whose shape differs, the last elements are repeated: its elements take the same sides. Nothing
    is known of a point at which it is empty.
    """
    parts_with_values = [part for part in parts if part is not None]
    if not parts_with_values:
        raise CaseFailedError("forward", "the forward raises at every point that was looked at.")
    shapes = [
        tuple(np.max([value.shape[1:] for value in values], axis=0).astype(int))
        for values in zip(*parts_with_values, strict=True)
    ]

    def fill(part: list[Array] | None, count: int) -> list[Array]:
        if part is None or any(
            not value.size and np.prod(shape) for value, shape in zip(part, shapes, strict=True)
        ):
            return [
                np.full((count, *shape), np.nan if value.dtype.kind in "fc" else 0, value.dtype)
                for value, shape in zip(parts_with_values[0], shapes, strict=True)
            ]
        return [_extend(value, shape) for value, shape in zip(part, shapes, strict=True)]

    filled = map(fill, parts, counts)
    return [np.concatenate(values) for values in zip(*filled, strict=True)]


def _extend(stack: Array, shape: tuple[int, ...]) -> Array:
    if stack.shape[1:] == shape:
        return stack
    missing = [(0, most - length) for most, length in zip(shape, stack.shape[1:], strict=True)]
    return np.pad(stack, [(0, 0), *missing], mode="edge")


@dataclass
class SideSearch:
    """A point for each combination of sides, and the search for others between them."""

    free: FreeInputs  # the inputs that move
    look: Callable[[Points], Looked | None]  # looks at points, and remembers them
    generator: np.random.Generator  # of random numbers
    points: dict[tuple[int, ...], Points] = field(default_factory=dict)  # one each, by the sides it takes
    # (N, size), vectors whose components other points are given, one at a time
    lenders: Array = field(default_factory=lambda: np.zeros((0, 0)))
    turn: int = 0  # how many components took a special value

    def remember(self, points: Mapping[int, Array], looked: Looked) -> None:
        """Remember points with other sides than those before; the newest, if there are too many."""
        for row in np.flatnonzero(looked.is_finite):
            taken = tuple(np.flatnonzero(looked.taken[row]).tolist())
            if taken not in self.points:
                self.points[taken] = {index: stack[[row]] for index, stack in points.items()}
        for taken in list(self.points)[:-_KEPT]:
            del self.points[taken]

    def exchange(self, near: set[int], specials: Array) -> None:
        """Look at points with one component of others, or on or beside a special value.

        Args:
            near: the sides of branches of which some side is sought.
            specials: special values; each component takes each in turn.
        """
        reached = [taken for taken in self.points if not near.isdisjoint(taken)]
        if not reached or not self.lenders.size:
            return
        points = self._stack([reached[row] for row in self.generator.integers(len(reached), size=_CHILDREN)])
        vectors = self.free.pack(points)
        size = vectors.shape[1]
        rows, columns = (self.generator.integers(most, size=_CHILDREN) for most in self.lenders.shape)
        values = self.lenders[rows, columns]
        turns = self.turn + np.arange(_CHILDREN // 2)
        self.turn += len(turns)
        special = specials[turns // size % len(specials)]
        away = self.generator.choice([-1.0, 1.0], len(turns)) * 10.0 ** self.generator.uniform(-6, -1)
        is_beside = turns // (size * len(specials)) % 2  # on each one first, then beside each
        values[: len(turns)] = special + is_beside * away * np.where(special, np.abs(special), 1.0)
        columns[: len(turns)] = turns % size
        vectors[np.arange(_CHILDREN), columns] = values
        self.look(self.free.unpack(self.free.clip(vectors), self.free.others(points)))

    def _stack(self, combinations: list[tuple[int, ...]]) -> Points:
        own = [self.points[taken] for taken in combinations]
        return {index: np.concatenate([point[index] for point in own]) for index in own[0]}

    def cut(self) -> None:
        """Cut segments at changes of sides, rare ones first."""
        if not self.free.size or not self.points:
            return
        combinations = list(self.points)
        taken = np.zeros((len(combinations), 1 + max(map(max, filter(None, combinations)), default=0)), bool)
        for row, sides in enumerate(combinations):
            taken[row, list(sides)] = True
        share = taken.mean(axis=0)
        rare = np.minimum(share, 1.0 - share) + 0.05 * self.generator.random(len(share))
        changing = np.flatnonzero((share > 0) & (share < 1))
        chosen = changing[np.argsort(rare[changing])][:_SEGMENTS]
        if not len(chosen):
            return
        starts = [int(self.generator.choice(np.flatnonzero(~taken[:, side]))) for side in chosen]
        ends = [
            int(min(np.flatnonzero(taken[:, side]), key=lambda row: (taken[row] != taken[start]).sum()))
            for side, start in zip(chosen, starts, strict=True)
        ]
        self._cut([combinations[row] for row in starts], [combinations[row] for row in ends], chosen)

    def _cut(self, starts: list[tuple[int, ...]], ends: list[tuple[int, ...]], sides: Array) -> None:
        low, high = self._stack(starts), self._stack(ends)
        begin, end = self.free.pack(low), self.free.pack(high)
        others = {index: np.repeat(stack, _CUTS, axis=0) for index, stack in self.free.others(low).items()}
        left, width = np.zeros(len(sides)), 1.0
        parts = np.arange(1, _CUTS + 1) / (_CUTS + 1)
        for _ in range(_LEVELS):
            at = left[:, None] + width * parts
            vectors = begin[:, None] + at[:, :, None] * (end - begin)[:, None]
            looked = self.look(self.free.unpack(self.free.clip(vectors.reshape(-1, self.free.size)), others))
            if looked is None:
                return
            same = ~looked.taken[np.arange(at.size), np.repeat(sides, _CUTS)].reshape(at.shape)
            width /= _CUTS + 1
            left = left + width * np.cumprod(same, axis=1).sum(axis=1)
