"""What each allowance excuses: the largest error, of right gradients and of others, beside its limit.

`python -m tests.support.rows --excused [TABLE ...]` prints it as a table.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from gradcheck_cli import hooks
from gradcheck_cli.checking.judging import ledger
from gradcheck_cli.checking.pairs.pair import PairSample, Rule
from gradcheck_cli.numerics import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.row import Row

IS_RIGHT = ("right", "undecidable", "unchecked")


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give a module or class another attribute for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def without_blame() -> Any:
    """Leave out which op is to blame: it is said after the verdict, and takes a fifth of the time."""
    return mock.patch.dict(hooks.AFTER_VERDICT, explain_mismatches=lambda _judged: False)


@contextmanager
def recorded(excused: dict[Rule, list[tuple[float, float]]], acting: set[Rule]) -> Iterator[None]:
    """Note what each entry excuses, relative to the element and as it is; and which entries act."""
    settle = PairSample.settle

    def record(sample: PairSample, where: Any, verdict: Any, rule: Rule, *rest: Any, **numbers: Any) -> Any:
        # An entry may also find that what it looked at is a mismatch.
        wrong = where & (sample.verdict == Verdict.MISMATCH) & (np.asarray(verdict) != Verdict.MISMATCH)
        if wrong.any():
            with np.errstate(all="ignore"):
                error = np.abs(sample.analytic - sample.numeric)[wrong]
                share = error / np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))[wrong]
            excused[rule].append((float(np.nanmax(share, initial=0.0)), float(np.nanmax(error, initial=0.0))))
        if where.any():
            acting.add(rule)
        return settle(sample, where, verdict, rule, *rest, **numbers)

    with replaced(PairSample, "settle", record):
        yield


def what_is_excused(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each entry's largest error over some rows, beside the limit that it states, as a table.

    Right gradients and others are apart: an entry may only protect right ones.
    """
    of_truth: dict[bool, dict[Rule, list[tuple[float, float, str]]]] = {}
    for row in rows:
        excused: dict[Rule, list[tuple[float, float]]] = defaultdict(list)
        with recorded(excused, set()), without_blame():
            row.report()
        of_rules = of_truth.setdefault(row.truth in IS_RIGHT, defaultdict(list))
        for rule, errors in excused.items():
            of_rules[rule] += [(share, error, row.name) for share, error in errors]
    yield "| entry | right gradients | largest error of an element | others | largest error | its limit |"
    yield "|---|--:|---|--:|---|---|"
    for entry in ledger.ALLOWANCES:
        cells = [entry.rule.words]
        for is_right in (True, False):
            errors = of_truth.get(is_right, {}).get(entry.rule, [])
            share, error, name = max(errors, default=(0.0, 0.0, ""))
            cells += [
                f"{len({name for *_, name in errors})}",
                f"{share:.1e} ({error:.1e}) {name}" if name else "",
            ]
        yield f"| {' | '.join([*cells, entry.limit])} |"
