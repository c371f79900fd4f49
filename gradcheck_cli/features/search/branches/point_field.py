"""A case's function, gradient and branches at many points at once, for choosing points and for searching."""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.search.branches.graph_branches import find_branches, needed_by
from gradcheck_cli.features.search.branches.python_branches import constants_in, python_branches, trace_jumps
from gradcheck_cli.features.search.branches.side_graph import SideGraph
from gradcheck_cli.tensorflow_backend.binding.binder import PY_FUNC_TYPES
from gradcheck_cli.tensorflow_backend.traces.state import at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import require_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.features.search.branches.graph_branches import Body, Key, Watched
    from gradcheck_cli.features.search.branches.python_branches import Arc, PythonBranch
    from gradcheck_cli.features.search.branches.side_graph import InBody
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]
    Points = Mapping[int, Array]  # input number -> (B, *shape); other inputs stay at the base point
    Side = tuple[Key, str]

_LARGEST = 2**22  # elements fetched at all points of one call together: 32 MiB


@dataclass(frozen=True)
class Looked:
    """What was seen at some points."""

    op: GraphOperation
    taken: Array  # (B, sides) which sides are taken
    # (B, sides) the share of what must hold on a side that does; 0 where nothing is known of it
    scores: Array
    is_finite: Array  # (B,) whether every output is finite
    values: list[Array]  # of each differentiable output, (B, *shape)
    upstreams: list[Array]  # of the same, (B, *shape)
    # what the upstreams are pulled back to for each input, (B, *shape); `None` for no path
    gradients: list[Array | None]


class PointField:
    """Looks at points.

    Attributes:
        watched: the branches in the graph.
        sides: the sides of all branches, each once.
        unknown: why some branches can't be looked at; empty if all can.
        python: the branches of Python code that is called, once the code has run.
        constants: the numbers in the graph, and in Python code that has run.
    """

    def __init__(self, op: GraphOperation) -> None:
        """Find the branches.

        Args:
            op: opened at a point whose graphs serve all other points.

        Raises:
            CaseFailedError: a call raises.
        """
        self._op = op
        self.python: list[PythonBranch] = []
        self.unknown = ""
        whole = find_branches(op)
        self.constants = list(dict.fromkeys(whole.constants))
        if not whole.calls or not self._watch_bodies(whole):
            self._watch(whole.watched)
            if whole.calls:
                names = ", ".join(sorted(whole.calls))
                self.unknown = f"not looked at inside {names}: a copy of the graph with sides can't be called"

    def _watch(self, branches: Sequence[Watched | InBody], copy: SideGraph | None = None) -> None:
        self.watched, self._copy = branches, copy
        self.sides: list[Side] = []
        self._side_index: dict[Side, int] = {}
        for watched in branches:
            self._add_sides(watched.key, watched.branch.sides)

    def _add_sides(self, key: Key, sides: Sequence[str]) -> None:
        for side in sides:
            if (key, side) not in self._side_index:
                self._side_index[key, side] = len(self.sides)
                self.sides.append((key, side))

    def _watch_bodies(self, whole: Body) -> bool:
        """Watch branches in bodies, too; return whether that works."""
        with suppress(CaseFailedError, ValueError, TypeError, KeyError, tf.errors.OpError):
            copy = SideGraph.of(self._op.traced.vjp_trace.whole, whole)
            self._watch([*whole.watched, *copy.branches], copy)
            self.look({}, [0])
            return True
        return False

    @cached_property
    def calls_python(self) -> bool:
        """Whether the forward or the gradient calls Python code of the user's."""
        return any(op.type in PY_FUNC_TYPES for op in needed_by(self._op.traced.vjp_trace.results))

    @property
    def is_hidden(self) -> Array:
        """Which sides are of comparisons that no report has, (sides,)."""
        hidden = {watched.key for watched in self.watched if watched.is_hidden}
        return np.array([key in hidden for key, _ in self.sides], bool)

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
        infos = [self._op.outputs[output_index] for output_index in trace.joint_outputs]
        generator = np.random.default_rng(list(seeds))
        upstreams = [generator.standard_normal((len(seeds), *info.shape)) for info in infos]
        arcs: list[set[Arc]] = []
        if self.calls_python:
            fetched = _stack(
                [self._look_in_python(points, upstreams, row, arcs) for row in range(len(seeds))]
            )
            self._note_python(arcs)
        else:
            fetched = self._values(points, upstreams)
        values = dict(zip(map(id, self._fetches), fetched, strict=True))
        taken = np.zeros((len(seeds), len(self.sides)), bool)
        for watched in self.watched:
            for side, is_taken in zip(watched.branch.sides, watched.sides_taken(values), strict=True):
                taken[:, self._side_index[watched.key, side]] |= is_taken
        for row, of_row in enumerate(arcs):
            for python_branch in self.python:
                branch = python_branch.branch
                for side, is_true in zip(branch.sides, python_branch.sides_taken(of_row), strict=True):
                    taken[row, self._side_index[branch.key, side]] |= is_true
        count = len(self._op.outputs)
        is_finite = np.ones(len(seeds), bool)
        for value in (values[id(tensor)] for tensor in trace.results[:count]):
            if value.dtype.kind in "fc":
                is_finite &= np.isfinite(value).reshape(len(seeds), -1).all(axis=1)
        taken &= is_finite[:, None]
        gradients = self._add_gradients([values[id(tensor)] for tensor in trace.results[count:]])
        outputs = [values[id(trace.results[output_index])] for output_index in trace.joint_outputs]
        return Looked(
            self._op, taken, self._scores(values, len(seeds)), is_finite, outputs, upstreams, gradients
        )

    def _note_python(self, arcs: Sequence[set[Arc]]) -> None:
        """Add the branches of the code that ran."""
        every = set().union(*arcs)
        self.python = python_branches(
            every | {arc for python_branch in self.python for side in python_branch.arcs for arc in side}
        )
        for python_branch in self.python:
            self._add_sides(python_branch.branch.key, python_branch.branch.sides)
        self.constants = list(dict.fromkeys([*self.constants, *constants_in(every)]))

    def _scores(self, values: Mapping[int, Array], count: int) -> Array:
        scores = np.zeros((count, len(self.sides)))
        for watched in self.watched:
            for index, side in enumerate(watched.branch.sides):
                flat = [
                    (values[id(tensor)] == holds).reshape(count, -1)
                    for tensor, holds in watched.literals(index)
                ]
                if flat:
                    column = self._side_index[watched.key, side]
                    own = np.concatenate(flat, axis=1).mean(axis=1) if sum(map(np.size, flat)) else 0.0
                    scores[:, column] = np.maximum(scores[:, column], own)
        return scores

    def _look_in_python(
        self, points: Points, upstreams: Sequence[Array], row: int, noted: list[set[Arc]]
    ) -> list[Array] | None:
        """Look at one point, and note which way jumps go; `None` if it raises."""
        arcs: set[Arc] = set()
        own = slice(row, row + 1)
        noted.append(arcs)
        with trace_jumps(arcs), suppress(CaseFailedError):
            point = {input_index: stack[own] for input_index, stack in points.items()}
            return self._values(point, [flow[own] for flow in upstreams])
        return None

    def _add_gradients(self, gradients: Sequence[Array]) -> list[Array | None]:
        """Add up the gradients of all outputs for each input."""
        trace = self._op.traced.vjp_trace
        sums: list[Array | None] = [None] * len(self._op.inputs)
        rest = iter(gradients)
        for output in trace.joint_outputs:
            for input_index in trace.connected.get(output, ()):
                gradient, before = next(rest), sums[input_index]
                with np.errstate(invalid="ignore", over="ignore"):
                    sums[input_index] = gradient if before is None else before + gradient
        return sums

    def _values(self, points: Points, upstreams: Sequence[Array]) -> list[Array]:
        """Return the values of everything that is fetched, (B, ...) each."""
        count = len(next(iter(upstreams)))
        rows = self._rows_with_variables(points, count)
        if len(rows) > 1:
            return _stack(
                [
                    self._values(
                        {index: stack[own] for index, stack in points.items()},
                        [flow[own] for flow in upstreams],
                    )
                    for own in rows
                ]
            )
        arguments = {index: stack for index, stack in points.items() if index < self._op.traced.at.count}
        variables = {
            index - self._op.traced.at.count: stack[:1]
            for index, stack in points.items()
            if index not in arguments
        }
        try:
            with (
                at_values(self._op.traced.variables, variables)
                if variables
                else nullcontext(iter([0])) as set_rows
            ):
                next(set_rows)
                fetched = self._op.runs.beside_gradient(self._fetches, arguments, upstreams, self._copy)
                self._require_shapes(fetched)
                return fetched
        except CaseFailedError:
            if count == 1:
                raise
        parts = [slice(0, count // 2), slice(count // 2, count)]
        halves: list[list[Array] | None] = []
        for half in parts:
            try:
                own = {input_index: stack[half] for input_index, stack in points.items()}
                halves.append(self._values(own, [flow[half] for flow in upstreams]))
            except CaseFailedError:
                halves.append(None)
        return _stack(halves, [half.stop - half.start for half in parts])

    def _require_shapes(self, fetched: Sequence[Array]) -> None:
        """Refuse points at which an output has another shape than at the base point: upstreams have that one.

        Raises:
            ShapeChangesError: an output has.
        """
        values = dict(zip(map(id, self._fetches), fetched, strict=True))
        results = self._op.traced.vjp_trace.results[: len(self._op.outputs)]
        require_shapes((values[id(tensor)].shape[1:] for tensor in results), self._op.outputs)

    def _rows_with_variables(self, points: Points, count: int) -> list[slice]:
        """Return runs of points at which variables have the same values."""
        stacks = [stack for index, stack in points.items() if index >= self._op.traced.at.count]
        changes = [
            row
            for row in range(1, count)
            if any(not np.array_equal(stack[row], stack[row - 1]) for stack in stacks)
        ]
        return [slice(*ends) for ends in zip([0, *changes], [*changes, count], strict=True)]

    @cached_property
    def _fetches(self) -> list[Any]:
        literals = [
            tensor
            for watched in self.watched
            for side in range(len(watched.branch.sides))
            for tensor, _ in watched.literals(side)
        ]
        branching = [tensor for watched in self.watched for tensor in watched.fetched]
        every = [*self._op.traced.vjp_trace.results, *branching, *literals]
        return list({id(tensor): tensor for tensor in every}.values())


def _stack(parts: Sequence[list[Array] | None], counts: Sequence[int] | None = None) -> list[Array]:
    """Put values at several points together; NaN at points without values.

    Of a tensor whose shape differs, the last elements are repeated: its elements take the same sides. Nothing
    is known of a point at which it is empty.

    Args:
        parts: the values at some points each, or `None`.
        counts: how many points each part without values has; one by default.

    Raises:
        CaseFailedError: no point has values.
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

    filled = map(fill, parts, counts or [1] * len(parts))
    return [np.concatenate(values) for values in zip(*filled, strict=True)]


def _extend(stack: Array, shape: tuple[int, ...]) -> Array:
    if stack.shape[1:] == shape:
        return stack
    missing = [(0, most - length) for most, length in zip(shape, stack.shape[1:], strict=True)]
    return np.pad(stack, [(0, 0), *missing], mode="edge")
