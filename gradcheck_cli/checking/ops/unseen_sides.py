"""What the points of a spec can't show: a side of a branch that no point takes, an axis of size one.

A gradient that is wrong only there passes at any tolerance, and no corruption of the visible part reveals it.
A `Site` is a place where such a mistake could be, with what a point doesn't show of it.
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
    merged: list[Site] = []
    for sites in points:
        if not merged:
            merged = list(sites)
            continue
        if len(sites) != len(merged):  # another trace: each point has sites of its own
            merged += sites
            continue
        merged = [
            replace(site, unseen=tuple(fault for fault in site.unseen if fault in other_site.unseen))
            for site, other_site in zip(merged, sites, strict=True)
        ]
    return [site for site in dict.fromkeys(merged) if site.unseen and site.pairs]
