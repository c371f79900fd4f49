"""What the points of a spec can't show: the side of a branch that none is on, an axis of size one.

A gradient that is wrong there alone passes, whatever the tolerance: no corruption of what is seen finds that
out. A site is where one could be, with what of it a point shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck_cli.checking.pairs.pair import PairKey


@dataclass(frozen=True)
class Site:
    """A place of a forward where some corruption would show at one point, and not at another.

    Attributes:
        corruption: its name, among `words.CORRUPTIONS`.
        place: the op, and the line of the user's that made it.
        pairs: those on whose way it lies.
        unseen: what the corruption would have to be seen at, and isn't, in words; nothing where it would be.
    """

    corruption: str
    place: str
    pairs: frozenset[PairKey]
    unseen: tuple[str, ...]

    @property
    def message(self) -> str:
        """Say what isn't seen, and where."""
        return f"{self.place}: {'; '.join(self.unseen)}"


def out_of_sight(points: Iterable[Sequence[Site]]) -> list[Site]:
    """Return the sites of a forward at which something is seen at no point.

    Args:
        points: the sites, in the same order at each sample point.
    """
    found: list[Site] = []
    for sites in points:
        if not found:
            found = list(sites)
            continue
        if len(sites) != len(found):  # another trace: each point has sites of its own
            found += sites
            continue
        found = [
            replace(one, unseen=tuple(told for told in one.unseen if told in other.unseen))
            for one, other in zip(found, sites, strict=True)
        ]
    return [one for one in dict.fromkeys(found) if one.unseen and one.pairs]
