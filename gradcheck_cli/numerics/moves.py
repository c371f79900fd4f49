"""Many points that differ from one base point in a few coordinates each, described instead of written out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.precision import Float

Index = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Moves:
    """B points around a base point: point p moves the coordinates of one slot to one row of targets.

    In this form, a thousand points of a thousand coordinates take two rows, not a million numbers. The code
    that evaluates them can write them out block by block where they are needed (inside TensorFlow's graph).
    """

    base: Float  # (n,) the base point
    slot: Index  # (n,) the slot that each coordinate belongs to; -1 for none
    targets: Float  # (T, n) values to move to
    slots: Index  # (B,) the slot that moves at each point; -1 moves none
    rows: Index  # (B,) the row of targets that it moves to

    def __len__(self) -> int:
        """Return the number of points, B."""
        return int(self.slots.size)

    def take(self, points: slice) -> Moves:
        """Return some of the points."""
        return Moves(self.base, self.slot, self.targets, self.slots[points], self.rows[points])

    def point(self, index: int) -> Float:
        """Write out one point, (n,)."""
        slot = self.slots[index]
        if slot < 0:
            return self.base
        return np.where(self.slot == slot, self.targets[self.rows[index]], self.base)

    def points(self) -> Float:
        """Write all points out, (B, n)."""
        moves = (self.slot == self.slots[:, None]) & (self.slots >= 0)[:, None]
        return np.where(moves, self.targets[self.rows], self.base)
