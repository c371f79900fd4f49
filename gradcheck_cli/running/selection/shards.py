"""One of several parts of a run, cut so that each takes about as long as the others."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from gradcheck_cli.gate import Shard
from gradcheck_cli.running.selection.history import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.running.selection.history import Key, Past
    from gradcheck_cli.spec.case import Case


def shard_of(
    cases: Sequence[Case], index: int, count: int, history: Mapping[Key, Past]
) -> tuple[tuple[Case, ...], Shard]:
    """Return one part of the cases.

    The longest goes first, each to the part that has least to do so far. The same cases and the same
    history give the same cut; `gradcheck merge` finds out where two parts were cut from different ones.

    Args:
        cases: all of them.
        index: which part, from 1.
        count: how many parts.
        history: durations of past runs; a case without one counts as a middling one.

    Returns:
        The cases, in order, and the note by which parts are joined again.
    """
    known = {key: past.duration_s for key, past in history.items() if past.duration_s is not None}
    usual = median(known.values()) if known else 1.0
    cost = [known.get(key_of(case), usual) for case in cases]
    loads = [0.0] * count
    parts = [0] * len(cases)
    for number in sorted(range(len(cases)), key=lambda number: (-cost[number], key_of(cases[number]))):
        # Of equally loaded parts the one with fewer cases: many that take no time at all would pile up.
        part = min(range(count), key=lambda part: (loads[part], parts.count(part + 1), part))
        loads[part] += cost[number]
        parts[number] = part + 1
    mine = tuple(case for case, part in zip(cases, parts, strict=True) if part == index)
    return mine, Shard(index, count, tuple(key_of(case) for case in cases))
