"""Which elements of a Jacobian can differ from zero, if rows and columns fall into independent classes.

Columns of different classes never meet in a row, so one evaluation can move one column of each class at once:
as many evaluations as the largest class has columns, instead of one for each column. `judge` shows
that the function has its gradient's sparsity, without differencing each element that is left out.

References:
    A. R. Curtis, M. J. D. Powell and J. K. Reid, On the estimation of sparse Jacobian matrices, J. Inst.
    Maths Applics 13 (1974), 117-119.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sparsity:
    """A Jacobian with a block structure: a row depends only on the columns of its own class."""

    row_class: Index  # (m,) the class of each row
    column_class: Index  # (n,) the class of each column
    table: Index  # (classes, slots) the columns of each class; all classes have the same size

    @property
    def slots(self) -> int:
        """How many columns a class has."""
        return int(self.table.shape[1])

    @property
    def columns(self) -> Index:
        """The column that element (row, slot) stands for, (m, slots)."""
        return self.table[self.row_class]

    @cached_property
    def rows(self) -> Index:
        """The rows of each class, (classes, most rows of a class); m stands for none."""
        counts = np.bincount(self.row_class, minlength=len(self.table))
        rows = np.full((len(self.table), counts.max(initial=0)), self.row_class.size)
        rows[self.row_class, rank_in_class(self.row_class)] = np.arange(self.row_class.size)
        return rows


def rank_in_class(classes: Index) -> Index:
    """Number the members of each class in their order: (c,) classes to (c,) ranks."""
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.maximum.accumulate(np.where(first, np.arange(classes.size), 0))
    rank = np.empty(classes.size, dtype=np.int64)
    rank[order] = np.arange(classes.size) - starts
    return rank
