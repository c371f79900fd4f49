"""The sides of a case's branches at which its gradient was tested so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.covered import Branch, with_excuses
from gradcheck_cli.features.search.branches.point_field import PointField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.features.search.branches.graph_branches import Key
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]


class Sides:
    """The branches of an op, and the sides at which its gradient was tested.

    Attributes:
        field: looks at points.
    """

    def __init__(self, op: GraphOperation) -> None:
        """Find the branches.

        Args:
            op: opened at a point whose graphs serve all other points.

        Raises:
            CaseFailedError: a call raises.
        """
        self.field = PointField(op)
        self._seen: set[tuple[Key, str]] = set()

    def see(self, taken: Array) -> None:
        """Count the sides, (sides,), that a tested point takes."""
        self._seen |= {self.field.sides[side] for side in np.flatnonzero(taken)}

    @property
    def seen(self) -> Array:
        """Which sides were seen, (sides,)."""
        return np.array([side in self._seen for side in self.field.sides], bool)

    @property
    def unknown(self) -> str:
        """Why some branches can't be looked at; empty if all can."""
        return self.field.unknown

    def branches(self, excuses: Sequence[tuple[str, str]] = ()) -> tuple[Branch, ...]:
        """Return the branches, with the sides that were taken, and the reasons why others aren't."""
        sides: dict[Key, list[tuple[str, bool]]] = {}
        for (key, side), is_hidden in zip(self.field.sides, self.field.is_hidden, strict=True):
            if not is_hidden:
                sides.setdefault(key, []).append((side, (key, side) in self._seen))
        branches = [
            Branch(*key, tuple(side for side, _ in own), tuple(side for side, is_seen in own if is_seen))
            for key, own in sides.items()
            if len(own) > 1
        ]
        return tuple(with_excuses(branch, excuses) for branch in branches)

    def names(self, which: Array) -> list[str]:
        """Return the names of some sides."""
        return [self.name(self.field.sides[side]) for side in np.flatnonzero(which & ~self.field.is_hidden)]

    @staticmethod
    def name(side: tuple[Key, str]) -> str:
        """Return the name of a side, as `Branch.label` gives it."""
        return Branch(*side[0], (side[1],), ()).label(side[1])

    @property
    def wanted(self) -> Array:
        """Which sides no tested point has taken, (sides,)."""
        return ~self.seen & ~self.field.is_hidden

    @property
    def siblings(self) -> Array:
        """Whether two sides are of one branch, (sides, sides)."""
        numbers = {
            key: number for number, key in enumerate(dict.fromkeys(key for key, _ in self.field.sides))
        }
        own = np.array([numbers[key] for key, _ in self.field.sides], int)
        return np.asarray(own[:, None] == own)
