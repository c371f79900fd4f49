"""Selects cases by name and by pair, and handles each of them in turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import click

from gradcheck_cli.errors import GradcheckError, UsageError
from gradcheck_cli.running.selection.filters import suggest_name
from gradcheck_cli.spec.case import Case, could_match

LABEL = re.compile(r"d(?P<output>.+)/d(?P<input>.+)")
SECOND = re.compile(r"d2(?P<output>.+)/d(?P<input>.+)\.d.+")


def filter_by_pair(cases: Sequence[Case], label: str | None) -> list[Case]:
    """Return the cases that can have a pair, such as `dM1/dM0`; all of them without one.

    Raises:
        UsageError: no case can have such a pair.
    """
    fitting = [case for case in cases if label is None or _fits(case, label)]
    if not fitting:
        labels = list(dict.fromkeys(name for case in cases for name in _labels(case)))
        raise UsageError(f"no pair is labelled '{label}'.{suggest_name(str(label), labels)}")
    return fitting


def handle_cases(cases: Sequence[Case], handle: Callable[[Case], int]) -> int:
    """Handle each case. An error in one is printed on standard error, and the others go on.

    Returns:
        The gravest exit code, in the order 1 (a fault), 2, 3 (undecided), 0.

    Raises:
        GradcheckError: the error of the only case.
    """
    if len(cases) == 1:
        return handle(cases[0])
    codes, failed = set(), set()
    for case in cases:
        try:
            codes.add(handle(case))
        except GradcheckError as error:
            click.echo(f"{case.op} · case {case.name} · {case.dtype}: {error}", err=True)
            failed.add(error.exit_code)
    if codes:  # one case has the requested pair; it is no fault of the command line that another one lacks it
        failed.discard(UsageError.exit_code)
    return next((code for code in (1, 2, 3) if code in codes | failed), 0)


def _labels(case: Case) -> list[str]:
    """Return the labels that a case's spec implies; outputs without a name are called y."""
    outputs = [output.name for output in case.outputs] or ["y"]
    inputs = [tensor.name for tensor in case.tensors if tensor.is_differentiable]
    return [f"d{output}/d{name}" for output in outputs for name in inputs]


def _fits(case: Case, label: str) -> bool:
    """Whether the case can have the pair. Names of variables and of parts of outputs show only in a trace."""
    second = SECOND.fullmatch(label) if case.second_order else None
    if second is not None:  # what follows the dot, perhaps an upstream, is known only after tracing
        label = f"d{second['output']}/d{second['input']}"
    if case.may_have_variables:
        return LABEL.fullmatch(label) is not None
    if case.outputs:
        return any(label == known_label or could_match(label, known_label) for known_label in _labels(case))
    parts = LABEL.fullmatch(label)
    inputs = [tensor.name for tensor in case.tensors if tensor.is_differentiable]
    return parts is not None and any(label.endswith(f"/d{name}") for name in inputs)
