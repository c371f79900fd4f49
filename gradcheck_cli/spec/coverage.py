"""Which op types specs cover or except, and what they say of each input: by what is written, nothing is run.

A case covers the op types of its `covers`, and a raw `op_type` itself. That their gradients run is what a run
sees to: a report of one tells which cases were right, and is what `proven` goes by.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradcheck_cli.results import Status
from gradcheck_cli.spec import versions
from gradcheck_cli.spec.pairs import rule_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gradcheck_cli.results import Report
    from gradcheck_cli.spec.case import Case, InputSpec, PairRule
    from gradcheck_cli.spec.exceptions import Excepted

COVERED, UNPROVEN, EXCEPTED, MISSING, GONE = "covered", "unproven", "excepted", "missing", "gone"
WORDS = (COVERED, UNPROVEN, EXCEPTED, MISSING, GONE)

GRADIENT, STRAIGHT_THROUGH, NONE = "gradient", "straight-through", "None"
SKIPPED, NOT_DIFFERENTIABLE = "skipped", "not differentiable"
# Of an input that cases treat differently, the state that most is known of.
STATES = (GRADIENT, STRAIGHT_THROUGH, NONE, SKIPPED, NOT_DIFFERENTIABLE)

_NUMBERED = re.compile(r"dy\d")
_MOST_OUTPUTS = 16  # y0, y1, ..., where a spec names none: enough for the rules that name one


@dataclass(frozen=True)
class InputState:
    """What specs say of an op type's input.

    `gradient`: it is compared with differences; `straight-through`: with those of a reference, as it is no
    derivative; `None`: there is none, as expected; `skipped`, with the reason; `not differentiable`: an
    integer, say, or switched off. Of a list argument `name` is the list's.
    """

    name: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Coverage:
    """What becomes of one entry of the registry.

    Attributes:
        word: one of `WORDS`; empty for what has no gradient to be covered.
        specs: where the cases are written that cover it, each once.
        inputs: its inputs, or of a composite those of the function that leads to it.
        exception: why it can't be checked, where that is written.
    """

    word: str = ""
    specs: tuple[str, ...] = ()
    inputs: tuple[InputState, ...] = ()
    exception: Excepted | None = None


def cases_by_type(cases: Iterable[Case], version: str) -> dict[str, list[Case]]:
    """Return the cases that cover each op type, of those that are for a version of TensorFlow."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        if not versions.matches(version, case.tensorflow):
            continue
        own = (str(case.op_type),) if case.is_raw_op else ()
        for op_type in dict.fromkeys((*own, *case.covers)):
            found.setdefault(op_type, []).append(case)
    return found


def proven(cases: Mapping[str, Sequence[Case]], report: Report) -> set[str]:
    """Return the op types of which a run found a case right, their own gradient having been seen.

    Args:
        cases: by op type, as `cases_by_type` returns them.
        report: the run.
    """
    right: dict[tuple[str, str, str], set[str]] = {}
    for one in report.cases:
        if one.status in (Status.PASSED, Status.EXPECTED_MISMATCH):
            right.setdefault((one.op, one.case, one.dtype), set()).update(one.gradients_seen)
    return {
        op_type
        for op_type, covering in cases.items()
        if any(op_type in right.get((case.op, case.name, case.dtype), ()) for case in covering)
    }


def coverage_of(
    op_type: str,
    cases: Sequence[Case],
    exception: Excepted | None,
    *,
    is_proven: bool = True,
    specs: Sequence[str] = (),
) -> Coverage:
    """Return what becomes of an op type that has a gradient.

    Args:
        op_type: its name.
        cases: those that cover it.
        exception: why it can't be checked, where that is written for this version of TensorFlow.
        is_proven: whether a run has shown it, where one was asked.
        specs: further specs that cover it by a function that they name.
    """
    places = tuple(dict.fromkeys([*(case.spec for case in cases), *specs]))
    if places:
        return Coverage(COVERED if is_proven else UNPROVEN, places, _inputs(op_type, cases), exception)
    return Coverage(EXCEPTED if exception is not None else MISSING, exception=exception)


def _inputs(op_type: str, cases: Sequence[Case]) -> tuple[InputState, ...]:
    """Return each input's state; those of the raw op, where some case calls that."""
    raw = [case for case in cases if case.is_raw_op and case.op_type == op_type]
    best: dict[str, InputState] = {}
    for case in raw or cases:
        for argument in case.arguments:
            for tensor in argument.tensors:
                state = _state(case, tensor, argument.name)
                known = best.get(argument.name)
                if known is None or STATES.index(state.state) < STATES.index(known.state):
                    best[argument.name] = state
    return tuple(best.values())


def _state(case: Case, tensor: InputSpec, name: str) -> InputState:
    if not tensor.is_differentiable:
        return InputState(name, NOT_DIFFERENTIABLE)
    rules = [rule_for(case.pairs, f"d{output}/d{tensor.name}") for output in _outputs(case)]
    states = [_of_rule(case, rule) for rule in rules]
    state = min(states, key=STATES.index)
    rule = rules[states.index(state)]
    return InputState(name, state, rule.reason if rule is not None and state in (NONE, SKIPPED) else "")


def _of_rule(case: Case, rule: PairRule | None) -> str:
    if rule is not None and rule.expect in ("disconnected", "skip"):
        return NONE if rule.expect == "disconnected" else SKIPPED
    return STRAIGHT_THROUGH if case.reference is not None else GRADIENT


def _outputs(case: Case) -> list[str]:
    """Return the outputs' names; where a spec gives none, those that its rules know."""
    if case.outputs:
        return [output.name for output in case.outputs]
    if any(_NUMBERED.match(rule.glob) for rule in case.pairs):
        return [f"y{number}" for number in range(_MOST_OUTPUTS)]
    return ["y"]
