"""A case's function, gradient and branches at many points at once, for choosing points and for searching."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.search.branches.graph_branches import find_branches, needed_by
from gradcheck_cli.features.search.branches.numpy_branches import constants_at, trace_lines
from gradcheck_cli.features.search.branches.pace import Pace
from gradcheck_cli.features.search.branches.side_graph import SideGraph
from gradcheck_cli.tensorflow_backend.binding.binder import PY_FUNC_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.features.search.branches.graph_branches import Body, Key, Watched
    from gradcheck_cli.features.search.branches.numpy_branches import (
        Arcs,
        Margins,
        PythonBranch,
    )
    from gradcheck_cli.features.search.branches.side_graph import InBody
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]
    Points = Mapping[int, Array]  # input number -> (B, *shape); other inputs stay at the base point
    Side = tuple[Key, str]

_LARGEST = 2**22  # elements fetched at all points of one call together: 32 MiB


@dataclass(frozen=True)
class Looked:
    """What was seen at some points.

    Attributes:
        taken: (B, sides) which sides are taken.
        is_finite: (B,) whether every output is finite.
        outputs: the values of each differentiable output, (B, *shape), and the upstream.
        gradients: what the upstreams are pulled back to for each input, (B, *shape); `None` for no path.
            Empty if gradients weren't requested.
        margin: returns how far the points are on a side, by its number, (B,).
    """

    taken: Array
    is_finite: Array
    outputs: list[tuple[Array, Array]]
    gradients: list[Array | None]
    margin: Callable[[int], Array]


class PointField:
    """Looks at points.

    Attributes:
        watched: the branches in the graph.
        sides: the sides of all branches, each once.
        unknown: why some branches can't be looked at; empty if all can.
        python: the conditions in Python code that is called, with file and line, once the code has run.
        reached: (sides,) which sides are taken by some point that was looked at.
        pace: how many points a call may take.
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
        self.pace = Pace()
        self.unknown = ""
        whole = find_branches(op)
        if not whole.calls or not self._watch_bodies(whole):
            self._watch(whole.watched)
            if whole.calls:
                names = ", ".join(sorted(whole.calls))
                self.unknown = f"not looked at inside {names}: a copy of the graph with sides can't be called"

    def _watch(self, branches: Sequence[Watched | InBody], copy: SideGraph | None = None) -> None:
        self.watched, self._copy = branches, copy
        self.sides: list[Side] = list(
            dict.fromkeys((watched.key, side) for watched in branches for side in watched.branch.sides)
        )
        self._side_index = {side: index for index, side in enumerate(self.sides)}
        self.reached = np.zeros(len(self.sides), bool)
        self._fetched: dict[bool, list[Any]] = {}

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
        trace = self._op.traced.vjp_trace
        return bool(trace.joint_outputs) and any(op.type in PY_FUNC_TYPES for op in needed_by(trace.results))

    def add_python(self, branches: Sequence[PythonBranch]) -> None:
        """Also look at conditions in Python code, which takes a call for each point."""
        known_places = {python_branch.place for python_branch in self.python}
        new = [python_branch for python_branch in branches if python_branch.place not in known_places]
        self.python += new
        for key, side in dict.fromkeys(
            (python_branch.branch.key, side) for python_branch in new for side in python_branch.branch.sides
        ):
            self._side_index[key, side] = len(self.sides)
            self.sides.append((key, side))
        self.reached = np.concatenate([self.reached, np.zeros(len(self.sides) - len(self.reached), bool)])

    @cached_property
    def offered(self) -> set[Side]:
        """The sides that count only if a point takes them."""
        return {(watched.key, side) for watched in self.watched for side in watched.offered}

    @property
    def constants(self) -> list[float]:
        """The numbers that conditions compare with."""
        constants = constants_at(python_branch.place for python_branch in self.python)
        constants += [value for watched in self.watched for value in watched.constants]
        return list(dict.fromkeys(constants))

    @property
    def most(self) -> int:
        """How many points one call may take."""
        shapes = [tensor.shape for tensor in self._fetches(pulls=True)]
        size = sum(math.prod(length or 1 for length in shape) for shape in shapes if shape.rank is not None)
        return _LARGEST // max(1, size)

    def look(self, points: Points, seeds: Sequence[int], *, pulls: bool = False) -> Looked:
        """Look at points.

        Args:
            points: the inputs that differ, (B, *shape) each.
            seeds: the seed of each point's upstreams.
            pulls: whether to pull the upstreams back.

        Raises:
            CaseFailedError: a call raises at every point. If it raises at some points only, these take no
                side and have no values.
        """
        trace = self._op.traced.vjp_trace
        infos = [self._op.outputs[output_index] for output_index in trace.joint_outputs]
        upstreams = [
            np.stack([np.random.default_rng(seed).standard_normal(info.shape) for seed in seeds])
            for info in infos
        ]
        fetches = self._fetches(pulls=pulls or bool(self.python))
        python: list[tuple[Arcs, Margins]] = []
        with self.pace.timed(len(seeds)):
            if self.python:
                rows = [
                    self._look_in_python(fetches, points, upstreams, row, python) for row in range(len(seeds))
                ]
                fetched = _stack(rows)
            else:
                fetched = self._values(fetches, points, upstreams)
        values = dict(zip(map(id, fetches), fetched, strict=True))
        taken = np.zeros((len(seeds), len(self.sides)), bool)
        for watched in self.watched:
            for side, is_taken in zip(watched.branch.sides, watched.sides_taken(values), strict=True):
                taken[:, self._side_index[watched.key, side]] |= is_taken
        for row, (arcs, _) in enumerate(python):
            for python_branch in self.python:
                branch = python_branch.branch
                for side, is_true in zip(branch.sides, python_branch.sides_taken(arcs), strict=True):
                    taken[row, self._side_index[branch.key, side]] |= is_true
        count = len(self._op.outputs)
        outputs = [values[id(tensor)] for tensor in trace.results[:count]]
        is_finite = np.ones(len(seeds), bool)
        for value in outputs:
            if value.dtype.kind in "fc":
                is_finite &= np.isfinite(value).reshape(len(seeds), -1).all(axis=1)
        taken &= is_finite[:, None]
        self.reached |= taken.any(axis=0)
        return Looked(
            taken,
            is_finite,
            [(outputs[index], flow) for index, flow in zip(trace.joint_outputs, upstreams, strict=True)],
            self._add_gradients([values[id(tensor)] for tensor in trace.results[count:]]) if pulls else [],
            lambda side: self._margin(values, [margins for _, margins in python], side),
        )

    def _look_in_python(
        self, fetches: Sequence[Any], points: Points, upstreams: Sequence[Array], row: int, noted: list[Any]
    ) -> list[Array] | None:
        """Look at one point, and note the lines that run; `None` if it raises."""
        arcs: Arcs = set()
        margins: Margins = {}
        own = slice(row, row + 1)
        noted.append((arcs, margins))
        with trace_lines(arcs, margins), suppress(CaseFailedError):
            point = {input_index: stack[own] for input_index, stack in points.items()}
            return self._values(fetches, point, [flow[own] for flow in upstreams])
        return None

    def _margin(self, values: Mapping[int, Array], python: Sequence[Margins], side: int) -> Array:
        key, name = self.sides[side]
        for python_branch in self.python:
            if python_branch.branch.key == key:
                index = python_branch.branch.sides.index(name)
                nothing = (-np.inf, -np.inf)
                return np.array([margins.get(python_branch.place, nothing)[index] for margins in python])
        of_branches = [
            watched.margin(values, watched.branch.sides.index(name))
            for watched in self.watched
            if watched.key == key
        ]
        return np.asarray(np.max(of_branches, axis=0))

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

    def _values(self, fetches: Sequence[Any], points: Points, upstreams: Sequence[Array]) -> list[Array]:
        try:
            return self._op.runs.beside_gradient(fetches, points, upstreams, self._copy)
        except CaseFailedError:
            count = len(next(iter(upstreams)))
            if count == 1:
                raise
        parts = [slice(0, count // 2), slice(count // 2, count)]
        halves: list[list[Array] | None] = []
        for rows in parts:
            try:
                own = {input_index: stack[rows] for input_index, stack in points.items()}
                halves.append(self._values(fetches, own, [flow[rows] for flow in upstreams]))
            except CaseFailedError:
                halves.append(None)
        return _stack(halves, [rows.stop - rows.start for rows in parts])

    def _fetches(self, *, pulls: bool) -> list[Any]:
        if pulls not in self._fetched:
            results = self._op.traced.vjp_trace.results
            results = results if pulls else results[: len(self._op.outputs)]
            every = [*results, *(tensor for watched in self.watched for tensor in watched.fetched)]
            self._fetched[pulls] = list({id(tensor): tensor for tensor in every}.values())
        return self._fetched[pulls]


def _stack(parts: Sequence[list[Array] | None], counts: Sequence[int] | None = None) -> list[Array]:
    """Put values at several points together; NaN at points without values.

    Args:
        parts: the values at some points each, or `None`.
        counts: how many points each part has; one by default.

    Raises:
        CaseFailedError: no point has values.
    """
    example = next((part for part in parts if part is not None), None)
    if example is None:
        raise CaseFailedError("forward", "the forward raises at every point that was looked at.")
    filled = [
        [
            np.full((count, *value.shape[1:]), np.nan if value.dtype.kind in "fc" else 0, value.dtype)
            for value in example
        ]
        if part is None
        else part
        for part, count in zip(parts, counts or [1] * len(parts), strict=True)
    ]
    return [np.concatenate(values) for values in zip(*filled, strict=True)]
