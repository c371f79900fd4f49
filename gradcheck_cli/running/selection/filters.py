"""The cases that a command line asks for by name: `--op`, `--case`, `-k`, `--tag`, `--op-type`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradcheck_cli.errors import NoSpecsError, UsageError
from gradcheck_cli.running.selection.expression import ExpressionError, compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck_cli.spec.case import Case

_SHOWN = 10  # names; a line's worth


@dataclass(frozen=True)
class Wanted:
    """What a case must be: of each that isn't empty, one."""

    names: Sequence[str] = ()
    tags: Sequence[str] = ()
    op_types: Sequence[str] = ()
    expression: str | None = None
    ops: Sequence[str] = ()


def choose(cases: Sequence[Case], wanted: Wanted) -> tuple[Case, ...]:
    """Return the cases that are all that is wanted.

    Raises:
        NoSpecsError: there is none; or a name, tag or op type is nobody's, even where others are
            somebody's: nothing asked for is left out in silence.
        UsageError: the expression isn't one.
    """
    filters = (
        (wanted.ops, "no op is named '{}'.", lambda case: (case.op,)),
        (wanted.names, "no case is named '{}'.", _names),
        (wanted.tags, "no spec has the tag '{}'.", lambda case: case.tags),
        (
            wanted.op_types,
            "no spec has the op_type '{}'.",
            lambda case: (*((case.op_type,) if case.op_type else ()), *case.covers),
        ),
    )
    chosen = tuple(cases)
    for asked, message, own in filters:
        # The names of cases are those of the ops that are asked for.
        _require(asked, message, own, chosen if own is _names and wanted.ops else cases)
        chosen = tuple(case for case in chosen if not asked or set(asked) & set(own(case)))
    if wanted.expression is not None:
        try:
            holds = compile_expression(wanted.expression)
        except ExpressionError as error:
            raise UsageError(f"-k '{wanted.expression}': {error}.") from error
        # A blank between them: no word is found across two of these.
        chosen = tuple(case for case in chosen if holds(f"{case.path} {case.op} {case.name}"))
    if cases and not chosen:
        raise NoSpecsError(f"none of {len(cases)} cases matches {_described(wanted)}.")
    return chosen


def _names(case: Case) -> Sequence[str]:
    return (case.name,)


def _require(
    asked: Sequence[str], message: str, own: Callable[[Case], Sequence[str]], cases: Sequence[Case]
) -> None:
    known = list(dict.fromkeys(name for case in cases for name in own(case)))
    missing = [name for name in asked if name not in known]
    if missing:
        raise NoSpecsError("\n".join(message.format(name) + meant(name, known) for name in missing))


def meant(name: str, known: Sequence[str]) -> str:
    """Return ` Did you mean 'x'?`, or, where nothing is near, the first names there are."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f" Did you mean '{close[0]}'?"
    shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    return f" There are: {shown}." if known else ""


def _described(wanted: Wanted) -> str:
    parts = [] if wanted.expression is None else [f"-k '{wanted.expression}'"]
    options = (
        ("--tag", wanted.tags),
        ("--op-type", wanted.op_types),
        ("--op", wanted.ops),
        ("--case", wanted.names),
    )
    parts += [f"{option} {' or '.join(values)}" for option, values in options if values]
    return " and ".join(parts)
