"""The sides of a case's branches that points have taken so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.covered import Branch, with_excuses
from gradcheck_cli.features.search.branches.numpy_branches import python_branches, trace_lines
from gradcheck_cli.features.search.branches.point_field import PointField

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gradcheck_cli.features.search.branches.graph_branches import Key
    from gradcheck_cli.features.search.branches.numpy_branches import Arcs
    from gradcheck_cli.features.search.branches.point_field import Side
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]


class Sides:
    """The branches of an op, and the sides that points have taken so far.

    Attributes:
        field: looks at points.
        seen: (sides,) which sides have been taken.
    """

    def __init__(self, op: GraphOperation) -> None:
        """Find the branches.

        Args:
            op: opened at a point whose graphs serve all other points.

        Raises:
            CaseFailedError: a call raises.
        """
        self._op = op
        self.field = PointField(op)
        self.seen = np.zeros(len(self.field.sides), bool)

    def see(self, samples: Sequence[int]) -> None:
        """Count the sides that some sample points take.

        Raises:
            CaseFailedError: a call raises.
        """
        points = self._op.traced.at.stacked(samples)
        if self.field.calls_python:
            arcs: Arcs = set()
            with trace_lines(arcs):
                self.field.look(points, samples, pulls=True)
            self.field.add_python(python_branches(arcs))
            self.seen = np.concatenate([self.seen, np.zeros(len(self.field.sides) - len(self.seen), bool)])
        if self.field.sides:
            self.seen |= self.field.look(points, samples).taken.any(axis=0)

    @property
    def unknown(self) -> str:
        """Why some branches can't be looked at; empty if all can."""
        return self.field.unknown

    def branches(self, excuses: Sequence[tuple[str, str]] = ()) -> tuple[Branch, ...]:
        """Return the branches, with the sides that were taken, and the reasons why others aren't.

        A saturated side counts only if a point that was looked at takes it: then these inputs can reach it.
        """
        counts = {
            side
            for side, is_reached in zip(self.field.sides, self.field.reached, strict=True)
            if is_reached or side not in self.field.offered
        }
        return tuple(branch for branch in self._branches(excuses, counts) if len(branch.sides) > 1)

    def names(self, which: Array) -> list[str]:
        """Return the names of some sides, as `Branch.label` gives them."""
        picked = [side for side, is_picked in zip(self.field.sides, which, strict=True) if is_picked]
        return [Branch(*key, (side,), ()).label(side) for key, side in picked]

    def wanted(self, excuses: Sequence[tuple[str, str]]) -> Array:
        """Return which sides no point has taken and no spec excuses, (sides,)."""
        every = self._branches(excuses, self.field.sides)
        unseen = {(branch.key, side) for branch in every for side in branch.unseen}
        return np.array([side in unseen for side in self.field.sides], bool)

    def _branches(self, excuses: Sequence[tuple[str, str]], counts: Collection[Side]) -> list[Branch]:
        sides: dict[Key, list[tuple[str, bool]]] = {}
        for (key, side), is_seen in zip(self.field.sides, self.seen, strict=True):
            if (key, side) in counts:
                sides.setdefault(key, []).append((side, bool(is_seen)))
        branches = [
            Branch(
                *key,
                tuple(side for side, _ in sides_of_branch),
                tuple(side for side, is_seen in sides_of_branch if is_seen),
            )
            for key, sides_of_branch in sides.items()
        ]
        return [with_excuses(branch, excuses) for branch in branches]
