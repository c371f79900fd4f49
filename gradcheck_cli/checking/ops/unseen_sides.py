"""What the points of a spec can't show: the side of a branch that none is on, an axis of size one.

A gradient that is wrong there alone passes, whatever the tolerance: no corruption of what is seen finds that
out. A `Site` is a place where one could be, with what a point shows of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck_cli.checking.ops.operation import Site


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
