"""What is done beside a case's sample points: more draws, other values, and a search if asked for.

Only mismatches count at such a point, because the spec didn't ask for it. A search looks at thousands of
points in batches (see `exploring`), and shrinks a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.features.search.exploring import (
    CLEAR,
    ERRORS,
    RIGHT,
    Candidate,
    Exploration,
    in_time,
    is_open,
)
from gradcheck_cli.features.search.mixed_points import MixedPoints
from gradcheck_cli.gate import side_counts
from gradcheck_cli.hooks import OpenCase
from gradcheck_cli.results import CheckResult, Counterexample, SearchResult, Status
from gradcheck_cli.spec.case import Argument, Case, InputSpec
from gradcheck_cli.spec.values.arrays import as_lists
from gradcheck_cli.spec.values.constraints import distribution_of
from gradcheck_cli.spec.words import SOURCES
from gradcheck_cli.spec.yaml_tree import as_flow
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, opener_of

# Mixed points: if so many might take too long one by one, a first call shows how long a point takes. (What it
# calls was built at the sample points.)
_POINTS, _FIRST = 256, 32
# As many points as have a million elements together, a quarter of one call's, but no fewer than these: of 38
# conditions on a matrix as a whole, 256 points meet 37, 128 points 36, 64 points 32.
_FEWEST, _AT_ONCE = 128, 4
# Seconds for the rest: a part of what the case took, or a little if that is more; and for Python code.
_SHARE, _LITTLE, _PYTHON = 0.4, 1.0, 2.5
# Points of a batch that are judged, more where pairs are undecided: each costs about a third of a small case,
# and of a large one, which takes so many seconds, as much as a sample point.
_OFF, _OFF_OF_OPEN, _OFF_OF_LARGE, _LARGE = 3, 6, 1, 5.0
_ONE_ROW = "If it can be 1, that is a fault. If not, let the forward refuse it."
_DRAWS = 4  # with another setting, as a spec would have them: what is farther out is another question
_OTHER_SETTING = "If {} can be so, that is a fault. If not, {}: it is a constant of the code then."
_GRAPHS = frozenset({"graph", "dynamic"})  # modes with branches; XLA would compile each part of its own
# A search.
_BATCH, _PART = 256, 0.25  # points of a call, which takes at most this part of the time that is left


def choose_points(judged: OpenCase) -> None:
    """Add the branches of a case, and what other points show; search it if its spec says so."""
    opener, findings, first = judged.opener, judged.findings, judged.findings.first
    seconds = opener.case.wanted.search or 0.0
    refused = _explain_refusal(opener, findings) if seconds else ""
    if refused:
        findings.search, seconds = SearchResult(0.0, 0, 0, refused=refused), 0.0
    if first is None or opener.case.mode not in _GRAPHS:
        is_right = findings.pairs and all(pair.status in RIGHT for pair in findings.pairs)
        if first is not None and is_right and not _GRAPHS & set(opener.case.running.modes):
            findings.sides_unknown = f"not looked at in mode {opener.case.mode}: add mode graph"
        return
    with suppress(*ERRORS):  # the findings say what is wrong
        until = clock.now() + seconds if seconds else math.inf
        evaluated = math.inf if seconds else judged.evaluated
        exploration = Exploration(opener, findings, first, until, evaluated)
        exploration.see_samples(judged.points)
        if seconds:
            search(exploration, judged.points, judged.spent)
        else:
            for part in _parts(exploration, judged.points):
                _look_around(part, judged)
        findings.branches = exploration.field.branches(opener.case.judging.unreached)
        findings.sides_unknown = exploration.field.unknown
        faults = "; ".join(exploration.excuse_faults())
        if faults:
            findings.checks = (*findings.checks, CheckResult("unreached", Status.MISMATCHED, faults))


def _parts(exploration: Exploration, samples: Sequence[int]) -> Iterator[Exploration]:
    """Yield an exploration, and then that of the vjp if second-order gradients are judged."""
    yield exploration
    opener, op = exploration.opener, exploration.first
    with suppress(*ERRORS):
        if opener.case.judging.second_order:
            vjp, ends = opener.vjp(op), (exploration.until, exploration.evaluated)
            second = Exploration(vjp, exploration.findings, vjp.open(op.opening), *ends, exploration)
            second.see_samples(samples)
            if second.labels:
                yield second


def _look_around(exploration: Exploration, judged: OpenCase) -> None:
    """Look around if nothing is wrong so far, and judge what is suspicious; stop at the first wrong one."""
    statuses = {pair.status for pair in exploration.findings.pairs if not is_open(pair)}
    if not exploration.labels or not statuses <= RIGHT:
        return
    room = exploration.field.most
    points = exploration.make_points(min(_POINTS, max(min(_FEWEST, room), room // _AT_ONCE, 1)), 1)
    seconds = _PYTHON if exploration.field.calls_python else max(_LITTLE, _SHARE * judged.spent)
    usual = _OFF_OF_OPEN if exploration.has_open else _OFF
    most = usual if judged.spent < _LARGE else _OFF_OF_LARGE

    def batches() -> Iterator[dict[int, Any]]:
        rest = slice(None)
        if exploration.each * _POINTS > seconds:
            yield {index: stack[:_FIRST] for index, stack in points.items()}
            rest = slice(_FIRST, _FIRST + in_time(_POINTS - _FIRST, exploration.each, seconds))
        yield {index: stack[rest] for index, stack in points.items()}

    exploration.explore(batches(), most)
    _ask(exploration, judged.spent)
    exploration.findings.chosen_points += exploration.judged
    exploration.add_to_findings()


def _ask(exploration: Exploration, spent: float) -> None:
    """Look at values, settings and sizes of which the spec doesn't say that they are ever others."""
    if exploration.of is not None:
        return
    if exploration.opener.case.code.given is None:
        exploration.ask_about_weights()
        exploration.ask_about_constants()
    if spent < _LARGE:
        _ask_about_changes(exploration)


def search(first: Exploration, samples: Sequence[int], spent: float) -> None:
    """Search a case, and add the result to its findings.

    Args:
        first: the sample points.
        samples: their indices.
        spent: how many seconds they took.
    """
    began = clock.now()
    finder: Exploration | None = None
    parts, batch = list(_parts(first, samples)), 0
    while finder is None and first.left > 0:
        part = parts[batch % len(parts)]
        most = min(_BATCH, part.field.most, int(_PART * first.left / max(part.each, 1e-6)))
        part.explore([part.make_points(max(1, most), batch // len(parts))], part.judged + _OFF)
        finder, batch = part if part.wrong else None, batch + 1
    example = None
    if finder is not None and finder.wrong is not None:
        point = [
            (finder.opener.case.tensors[index].name, as_flow(as_lists(value)))
            for index, value in sorted(finder.wrong.point.items())
        ]
        example = Counterexample(tuple(point))
    else:
        finder = first
        _ask(first, spent)
    finder.add_to_findings()
    first.findings.search = SearchResult(
        clock.now() - began,
        sum(part.points for part in parts),
        sum(part.judged for part in parts),
        *side_counts(first.field.branches(first.opener.case.judging.unreached)),
        max(part.largest for part in parts),
        sum(part.spoilt for part in parts),
        example,
    )


def _explain_refusal(opener: CaseOpener, findings: Findings) -> str:
    """Return why a case can't be searched; empty if it can."""
    statuses = {pair.status for pair in findings.pairs}
    if Status.MISMATCHED in statuses:
        return "it is wrong at a point of the spec already"
    if Status.PASSED not in statuses:
        return "none of its pairs was judged"
    if opener.case.mode not in _GRAPHS:
        return f"points are looked at in graphs, and its mode is {opener.case.mode}"
    if findings.first is not None and not MixedPoints(opener.case, findings.first.point).moving:
        is_written = all(SOURCES[tensor.source.kind].is_fixed for tensor in opener.case.tensors)
        return "all values of its inputs are written out" if is_written else "its inputs have no elements"
    return ""


def _ask_about_changes(whole: Exploration) -> None:
    """Judge the case with each setting as another, in a search also with one row; a fault is a question.

    A gradient that forgets a factor of 1 or an axis is right with this alone. What the differenced function
    doesn't use can't be forgotten: it chooses a gradient.
    """
    own = [pair for pair in whole.findings.pairs if pair.order == 1]
    if whole.first.facts.random_types or all(map(whole.is_of_tensorflow, own)):
        return
    opener, case = whole.opener, whole.opener.case
    differenced = Opening(0, of="forward" if case.reference is None else "reference")
    for changed, like, where, question in _changed_cases(opener, is_search=whole.is_search):
        with suppress(*ERRORS):
            other = opener_of(changed, case.mode, like)
            values = (each.open(differenced).base_values for each in (other, opener))
            if whole.wrong or all(map(np.array_equal, *values)):
                continue
            part = Exploration(other, whole.findings, other.open(Opening(0)), evaluated=whole.evaluated)
            moving = {index: part.base[index] for index in part.mixed.moving}
            for sample in range(_DRAWS):
                drawn = {index: stack[0] for index, stack in other.drawn(sample).items()}
                if part.judge(Candidate(moving | drawn)):
                    break
            pairs = part.wrong.pairs.values() if part.wrong else ()
            # That a function takes one row isn't stated: a gradient of another form there is no finding.
            is_row = question == _ONE_ROW
            is_told = not is_row or any(pair.mismatch in ("value", "nonfinite") for pair in pairs)
            if is_told and part.wrong and not 0 < part.wrong.off <= CLEAR:
                point = {} if is_row else part.wrong.point  # it has other shapes
                whole.wrong = replace(part.wrong, point=point, where=where, question=question)


def _changed_cases(
    opener: CaseOpener, *, is_search: bool
) -> Iterator[tuple[Case, CaseOpener | None, str, str]]:
    """Yield a case with one change each, whose layers it keeps if any, what is changed, and the question."""
    case = opener.case
    remedy = "leave it out of `{}`" if case.code.given is None else "bind it by functools.partial"
    for key, name, value in opener.settings():
        settings: dict[str, Any] = {key: {**getattr(case.code, key), name: value}}
        changed = replace(case, arguments=_without_variables(case), code=replace(case.code, **settings))
        question = _OTHER_SETTING.format(name, remedy.format(key))
        yield changed, opener if key == "attrs" else None, f"with {name} = {value}", question
    one_row = cut_to_one_row(case) if is_search else None
    if one_row is not None:
        yield one_row, opener, "where the first dimension is 1", _ONE_ROW


def cut_to_one_row(case: Case) -> Case | None:
    """Return a case with a batch of one: each drawn input with the same first dimension gets one row.

    `None` if there is no such dimension.
    """
    sizes = [tensor.shape[0] for tensor in case.tensors if tensor.shape and _is_drawn(tensor)]
    if not sizes or sizes[0] <= 1:  # it is a batch of one already
        return None

    def cut(tensor: InputSpec) -> InputSpec:
        fits = _is_drawn(tensor) and tensor.shape[:1] == (sizes[0],)
        return replace(tensor, shape=(1, *tensor.shape[1:])) if fits else tensor

    arguments = tuple(
        replace(argument, tensors=tuple(map(cut, argument.tensors)))
        if argument.form.kind in ("tensor", "list")
        else argument
        for argument in _without_variables(case)
    )
    outputs = tuple(replace(output, shape=None) for output in case.outputs)
    return replace(case, arguments=arguments, outputs=outputs)


def _without_variables(case: Case) -> tuple[Argument, ...]:
    """Return a case's own arguments: opening it adds its variables again."""
    return tuple(
        argument for argument in case.arguments if not any(tensor.is_variable for tensor in argument.tensors)
    )


def _is_drawn(tensor: InputSpec) -> bool:
    return distribution_of(tensor) is not None and not tensor.is_variable
