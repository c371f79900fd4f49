"""Which elements of a Jacobian are looked at, and records of what is known about them, which don't change."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class PerElement:
    """Arrays with one entry for each of some elements, (e,), or records of such arrays."""

    def __getitem__(self, which: np.ndarray) -> Self:
        """Return what is known about some of the elements."""
        return replace(self, **{name: part[which] for name, part in self._parts()})

    def put(self, which: np.ndarray, other: Self) -> Self:
        """Return the same with some elements taken from another record, which holds only these."""
        mine, its = self._parts(), other._parts()
        return replace(
            self, **{name: _put(part, which, new) for (name, part), (_, new) in zip(mine, its, strict=True)}
        )

    def _parts(self) -> list[tuple[str, np.ndarray | PerElement]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def _put(
    old: np.ndarray | PerElement, which: np.ndarray, new: np.ndarray | PerElement
) -> np.ndarray | PerElement:
    if isinstance(old, PerElement) and isinstance(new, PerElement):
        return old.put(which, new)
    changed = np.array(old)
    changed[which] = new
    return changed


@dataclass(frozen=True)
class Elements(PerElement):
    """Some elements of the Jacobian: (e,) each."""

    rows: np.ndarray
    columns: np.ndarray
