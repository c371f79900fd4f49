"""Which of the cases that specs hold a command line asks for by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from gradcheck_cli.errors import UsageError
from gradcheck_cli.running.selection.choose import Wanted, choose, meant
from gradcheck_cli.spec.pairs import could_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case

__all__ = ["meant", "select_cases"]

LABEL = re.compile(r"d(?P<output>.+)/d(?P<input>.+)")
SECOND = re.compile(r"d2(?P<output>.+)/d(?P<input>.+)\.d.+")


def select_cases(cases: Sequence[Case], names: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases whose name is among `names`; all of them if `names` is empty.

    Raises:
        NoSpecsError: a name matches no case, even where another one does: nothing asked for is left out
            in silence.
    """
    return choose(cases, Wanted(names=names))


def choose_case(cases: Sequence[Case], label: str | None, doing: str) -> Case:
    """Return the first case that can have a pair, and say so on standard error where there are others.

    Args:
        cases: the cases to choose from.
        label: the pair, such as `dM1/dM0`; `None` where any will do.
        doing: what the command does with the case, such as "showing".

    Raises:
        UsageError: no case can have such a pair.
    """
    fitting = [case for case in cases if label is None or _fits(case, label)]
    if not fitting:
        known = list(dict.fromkeys(name for case in cases for name in _labels(case)))
        raise UsageError(f"no pair is labelled '{label}'.{meant(str(label), known)}")
    chosen = fitting[0]
    if len(fitting) > 1:
        others = dict.fromkeys(case.name for case in fitting if case.name != chosen.name)
        choice = f"; others: --case {', '.join(others)}" if others else ""
        having = " with this pair" if label is not None else " cases"
        click.echo(
            f"{doing} {chosen.op} · {chosen.dtype} · case {chosen.name}, "
            f"the first of {len(fitting)}{having}{choice}",
            err=True,
        )
    return chosen


def _labels(case: Case) -> list[str]:
    """Return the labels of a case as far as its spec tells them; outputs without a name count as y."""
    outputs = [output.name for output in case.outputs] or ["y"]
    inputs = [tensor.name for tensor in case.tensors if tensor.is_differentiable]
    return [f"d{output}/d{name}" for output in outputs for name in inputs]


def _fits(case: Case, label: str) -> bool:
    """Whether the case can have the pair; tracing tells the names of variables, and of outputs' parts."""
    second = SECOND.fullmatch(label) if case.second_order else None
    if second is not None:  # by what it is differentiated, perhaps an upstream, tracing tells
        label = f"d{second['output']}/d{second['input']}"
    if case.variables:
        return LABEL.fullmatch(label) is not None
    if case.outputs:
        return any(label == known or could_match(label, known) for known in _labels(case))
    parts = LABEL.fullmatch(label)
    inputs = [tensor.name for tensor in case.tensors if tensor.is_differentiable]
    return parts is not None and any(label.endswith(f"/d{name}") for name in inputs)
