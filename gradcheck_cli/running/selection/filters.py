"""Selects cases by `--op`, `--case`, `-k`, `--tag` and `--op-type`, or the cases of a shard."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from gradcheck_cli.errors import NoSpecsError, UsageError
from gradcheck_cli.gate import Selection, Shard
from gradcheck_cli.running.selection.expression import ExpressionError, compile_expression
from gradcheck_cli.running.selection.history import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.running.selection.history import Key, Past
    from gradcheck_cli.spec.case import Case

_SHOWN = 10  # names that a message lists; they fit a line


@dataclass(frozen=True)
class CaseFilter:
    """The conditions on a case: one of the words in each field that isn't empty."""

    names: Sequence[str] = ()
    tags: Sequence[str] = ()
    op_types: Sequence[str] = ()
    expression: str | None = None
    ops: Sequence[str] = ()


def choose(cases: Sequence[Case], case_filter: CaseFilter) -> tuple[Case, ...]:
    """Return the cases that pass a filter.

    Raises:
        NoSpecsError: there is none; or a requested name, tag or op type doesn't occur, even if others do.
        UsageError: the expression is malformed.
    """
    filters = (
        (case_filter.ops, "no op is named '{}'.", lambda case: (case.op,)),
        (case_filter.names, "no case is named '{}'.", _case_names),
        (case_filter.tags, "no spec has the tag '{}'.", lambda case: case.tags),
        (
            case_filter.op_types,
            "no spec has the op_type '{}'.",
            lambda case: (*((case.op_type,) if case.op_type else ()), *case.covers),
        ),
    )
    chosen = tuple(cases)
    for requested, message, names_of in filters:
        # The names of cases are those of the requested ops.
        _require(
            requested, message, names_of, chosen if names_of is _case_names and case_filter.ops else cases
        )
        chosen = tuple(case for case in chosen if not requested or set(requested) & set(names_of(case)))
    if case_filter.expression is not None:
        try:
            holds = compile_expression(case_filter.expression)
        except ExpressionError as error:
            raise UsageError(f"-k '{case_filter.expression}': {error}.") from error
        # They are separated by blanks, so that no word matches across two of them.
        chosen = tuple(case for case in chosen if holds(f"{case.path} {case.op} {case.name}"))
    if cases and not chosen:
        raise NoSpecsError(f"none of {len(cases)} cases matches {_describe(case_filter)}.")
    return chosen


def _case_names(case: Case) -> Sequence[str]:
    return (case.name,)


def _require(
    requested: Sequence[str], message: str, names_of: Callable[[Case], Sequence[str]], cases: Sequence[Case]
) -> None:
    known_names = list(dict.fromkeys(name for case in cases for name in names_of(case)))
    missing = [name for name in requested if name not in known_names]
    if missing:
        raise NoSpecsError(
            "\n".join(message.format(name) + suggest_name(name, known_names) for name in missing)
        )


def suggest_name(name: str, known_names: Sequence[str]) -> str:
    """Return ` Did you mean 'x'?` or, if nothing is similar, the first known names."""
    close = difflib.get_close_matches(name, known_names, n=1)
    if close:
        return f" Did you mean '{close[0]}'?"
    shown = ", ".join(known_names[:_SHOWN]) + (", ..." if len(known_names) > _SHOWN else "")
    return f" There are: {shown}." if known_names else ""


def _describe(case_filter: CaseFilter) -> str:
    parts = [] if case_filter.expression is None else [f"-k '{case_filter.expression}'"]
    options = (
        ("--tag", case_filter.tags),
        ("--op-type", case_filter.op_types),
        ("--op", case_filter.ops),
        ("--case", case_filter.names),
    )
    parts += [f"{option} {' or '.join(values)}" for option, values in options if values]
    return " and ".join(parts)


def shard_of(
    cases: Sequence[Case], index: int, count: int, history: Mapping[Key, Past]
) -> tuple[tuple[Case, ...], Shard]:
    """Return one part of the cases.

    The longest case goes first, and each goes to the part with the least work so far. The same cases and the
    same history give the same parts; `gradcheck merge` detects parts of different divisions.

    Args:
        cases: all of them.
        index: which part, from 1.
        count: how many parts.
        history: durations of past runs; a case without one counts as average.

    Returns:
        The cases, in order, and the record by which parts are merged again.
    """
    durations = {key: past.duration_s for key, past in history.items() if past.duration_s is not None}
    usual = median(durations.values()) if durations else 1.0
    cost = [durations.get(key_of(case), usual) for case in cases]
    loads = [0.0] * count
    parts = [0] * len(cases)
    for case_index in sorted(
        range(len(cases)), key=lambda case_index: (-cost[case_index], key_of(cases[case_index]))
    ):
        # Among equally loaded parts, the one with fewer cases is taken: otherwise cases that take no time
        # would pile up.
        part = min(range(count), key=lambda part: (loads[part], parts.count(part + 1), part))
        loads[part] += cost[case_index]
        parts[case_index] = part + 1
    mine = tuple(case for case, part in zip(cases, parts, strict=True) if part == index)
    return mine, Shard(index, count, tuple(key_of(case) for case in cases))


def selection_of(
    cases: Sequence[CaseResult],
    loaded: Sequence[Case],
    paths: Sequence[str],
    options: Sequence[str] = (),
    modes: Sequence[str] = (),
) -> Selection:
    """Record what was requested of a run.

    Args:
        cases: the run's results.
        loaded: all cases of the specs in the paths, selected or not.
        paths: the files and folders.
        options: the options that select among them, in words.
        modes: the modes given on the command line.
    """
    done = {(case.op, case.case, case.dtype) for case in cases if case.pairs}
    loaded_keys = dict.fromkeys((case.op, case.name, case.dtype) for case in loaded)
    left_out = tuple(key for key in loaded_keys if key not in done)
    return Selection(tuple(map(str, paths)), tuple(options), tuple(modes), left_out)
