"""Which allowances and tuned numbers earn their place: what is said without them, or with other numbers.

`python tests/attacks --allowances [TABLE ...]` switches off each entry of the ledger that decided an element
of an attack, and lists the attacks of which something else is said then. It also shows the largest error
that each entry excused, relative to the element and as it is, beside the limit that the entry states.
`--excused` shows that alone, as a table, and takes a tenth of the time.

`python tests/attacks --numbers MODULE [TABLE ...]` multiplies each number of a module by 4 and by 1/4, and
lists the same. A number that changes nothing is untested, or not needed.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.checking.judging import ledger
from gradcheck_cli.checking.pairs.pair_sample import PairSample, Rule
from gradcheck_cli.features import blame
from gradcheck_cli.numerics import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attacking import Attack

FACTORS = (4.0, 0.25)
IS_RIGHT = ("right", "unclear", "unchecked")


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give a module or class another attribute for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def said_of(attack: Attack) -> str:
    """Return what is said of an attack."""
    return "+".join(sorted({str(case.status) for case in attack.report().cases}))


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


def what_is_excused(attacks: Sequence[Attack]) -> Iterator[str]:
    """Yield each entry's largest error over some attacks, beside the limit that it states, as a table.

    Right gradients and others are apart: an entry may only protect right ones.
    """
    of_truth: dict[bool, dict[Rule, list[tuple[float, float, str]]]] = {}
    for attack in attacks:
        excused: dict[Rule, list[tuple[float, float]]] = defaultdict(list)
        with recorded(excused, set()), replaced(blame, "explain_mismatches", lambda _judged: None):
            attack.report()
        of_rules = of_truth.setdefault(attack.truth in IS_RIGHT, defaultdict(list))
        for rule, errors in excused.items():
            of_rules[rule] += [(share, error, attack.name) for share, error in errors]
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


def without_allowances(attacks: Sequence[Attack]) -> Iterator[str]:
    """Switch each entry of the ledger off in turn; yield a line for each entry, and for each that changes."""
    excused: dict[Rule, list[tuple[float, float]]] = defaultdict(list)
    changed: dict[Rule, list[str]] = defaultdict(list)
    for attack in attacks:
        acting: set[Rule] = set()
        with recorded(excused, acting):
            before = said_of(attack)
        for rule in sorted(acting):
            rest = tuple(entry for entry in ledger.ALLOWANCES if entry.rule is not rule)
            with replaced(ledger, "ALLOWANCES", rest):
                after = said_of(attack)
            if after != before:
                changed[rule].append(f"  {attack.name} ({attack.truth}): {before} -> {after}")
    for entry in ledger.ALLOWANCES:
        shares, errors = zip(*excused[entry.rule], strict=True) if excused[entry.rule] else ((0.0,), (0.0,))
        yield (
            f"{entry.rule.name}: excused {len(excused[entry.rule])} times, by up to {max(shares):.1e} of the "
            f"element ({max(errors):.1e}); its limit: {entry.limit}; without it {len(changed[entry.rule])} "
            "change"
        )
        yield from changed[entry.rule]


def with_other_numbers(module_name: str, attacks: Sequence[Attack]) -> Iterator[str]:
    """Multiply each number of a module in turn; yield a line for each number, and for each that changes."""
    module = import_module(f"gradcheck_cli.{module_name}")
    before = {attack.name: said_of(attack) for attack in attacks}
    numbers = {name: value for name, value in vars(module).items() if name.isupper() and is_number(value)}
    for name, value in numbers.items():
        for factor in FACTORS:
            other = max(1, int(value * factor)) if isinstance(value, int) else value * factor
            with replaced(module, name, other):
                after = {attack.name: said_of(attack) for attack in attacks}
            lines = [f"  {key}: {before[key]} -> {after[key]}" for key in before if after[key] != before[key]]
            yield f"{name} = {value:g} x {factor:g}: {len(lines)} change"
            yield from lines


def is_number(value: object) -> bool:
    """Whether a module's name stands for a plain number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
