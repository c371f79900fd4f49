"""What is done beside a case's sample points: more draws, other values, and a search if asked for.

Only mismatches count at such a point, because the spec didn't ask for it. A search looks at thousands of
points in batches (see `exploring`), and shrinks a wrong one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.checking.verdicts.chosen_points import with_notes
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.clock import count_work
from gradcheck_cli.features.search.exploring import (
    ERRORS,
    RIGHT,
    Candidate,
    Exploration,
    Pace,
    WrongPoint,
)
from gradcheck_cli.features.search.mixed_points import MixedPoints, reach_of
from gradcheck_cli.gate import side_counts
from gradcheck_cli.hooks import OpenCase
from gradcheck_cli.results import CheckResult, Counterexample, PairResult, SearchResult, Status
from gradcheck_cli.running.limits import times_of
from gradcheck_cli.spec.case import Case, InputSpec, first_order_alone
from gradcheck_cli.spec.values.arrays import as_lists
from gradcheck_cli.spec.values.constraints import distribution_of
from gradcheck_cli.spec.words import CHECKS, SOURCES
from gradcheck_cli.spec.yaml_tree import as_flow
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.openers import GraphOpener, opener_of

Array = np.ndarray[Any, Any]
Point = Mapping[int, Array]

# Mixed points: the first call shows how long a point takes. (What it calls was built at the sample points.)
_FIRST, _REST = 32, 224
_OFF = 3  # points that are judged, as each costs about a third of a small case
_MIXED = 0.8  # of the time, for mixed points
# Seconds for all of this: a part of what the case took, or a little if that is more. They are counted, so
# that what else the machine does changes nothing: a point and a call take so many, and four times as many,
# or 16 times, where a point was measured to take longer than is usual.
_SHARE, _LITTLE, _PYTHON = 0.5, 0.4, 1.2
_POINT, _CALL, _USUAL = 2e-4, 5e-4, 8e-4
_RUN, _USUAL_RUN = 1e-3, 3e-3  # of Python code
# More sample points if a pair is undecided. A wrong slope of `a % b` is clear at one of three.
_DRAWS = 12
_SHORT, _LONG = 5.0, 20.0  # seconds for them
# What may be decided at other values.
_OPEN = frozenset({"staircase", "unresolved", "jump", "ties", "probe"})
_GRAPHS = frozenset({"graph", "dynamic"})  # modes in which branches are found
# A search.
_BATCH = 256
_OFF_OF_BATCH = 12  # points that are judged in a round
_SHRINKING = 10.0  # seconds
_LONGER = 0.1  # shrinking may take this share of the search time in addition
_JUDGED_PAIRS = frozenset({Status.PASSED, Status.MISMATCHED})


def draw_more_points(judged: OpenCase) -> None:
    """Check more draws if a pair is undecided and disagrees with its gradient."""
    check_more_draws(judged.opener, judged.findings, judged.spent)


def choose_points(judged: OpenCase) -> None:
    """Search the case if its spec says so; else check points on other sides of its branches."""
    seconds = judged.opener.case.wanted.search
    if not seconds or not search(judged.opener, judged.points, judged.findings, seconds, judged.spent):
        check_other_points(judged.opener, judged.points, judged.findings, judged.spent)


def check_other_points(opener: GraphOpener, samples: Sequence[int], findings: Findings, spent: float) -> None:
    """Add the branches of an opened case, and what other points show, to its findings.

    Args:
        samples: indices of the points at which it was checked.
        findings: what was found there; extended.
        spent: seconds that this took.
    """
    if findings.first is None:
        return
    if not isinstance(findings.first, GraphOperation) or findings.first.traced.trace_mode.compiled:
        # There is no graph to examine, or XLA would compile each part of it.
        is_right = findings.pairs and all(pair.status in RIGHT for pair in findings.pairs)
        if is_right and not _GRAPHS & set(opener.case.running.modes):
            findings.sides_unknown = f"not looked at in mode {opener.case.mode}: add mode graph"
        return
    with suppress(*ERRORS):  # the findings say what is wrong
        exploration = Exploration(opener, findings, findings.first, Pace())
        exploration.see_samples(samples)
        excuses = opener.case.judging.unreached
        findings.branches = exploration.field.branches(excuses)
        findings.sides_unknown = exploration.field.unknown
        if _may_explore(findings):
            _explore(exploration, spent)
            findings.branches = exploration.field.branches(excuses)
        faults = "; ".join(exploration.excuse_faults())
        if faults:
            findings.checks = (*findings.checks, CheckResult("unreached", Status.MISMATCHED, faults))
        if opener.case.judging.second_order and _may_explore(findings):
            second = exploration.of_vjp()
            second.see_samples(samples)
            if second.labels:
                _explore(second, spent)


def _may_explore(findings: Findings) -> bool:
    """Whether all is right so far."""
    is_right = all(pair.status in RIGHT for pair in findings.pairs)
    return is_right and any(pair.status is Status.PASSED for pair in findings.pairs)


def _explore(exploration: Exploration, spent: float) -> None:
    """Look around, and judge what is suspicious; stop at the first wrong one."""
    calls_python, most = exploration.field.calls_python, max(1, exploration.field.most)
    own, call, point, usual = clock.now, _CALL, _POINT, _USUAL
    seconds = _LITTLE * _power_of_four(_SHARE * spent / _LITTLE, math.floor)
    if calls_python:  # a point is a call, and a call may sleep
        own, call, point, usual, seconds = _own_clock(), 0.0, _RUN, _USUAL_RUN, _PYTHON
    judged = exploration.judged
    with count_work() as work:
        began = own()
        exploration.look_around(min(_FIRST, most), 1)
        calls, points = work.calls, max(1, work.points)
        point *= _power_of_four((own() - began - call * calls) / points / usual, math.ceil)
        mixed_point = (point * points + call * calls) / min(_FIRST, most)
        exploration.pace = Pace(seconds, lambda: point * work.points + call * work.calls, point=mixed_point)
        count = min(_REST, most, int(_MIXED * seconds / mixed_point))
        exploration.explore(count, 2, _OFF)
    exploration.findings.chosen_points += exploration.judged - judged
    exploration.add_to_findings()


def _power_of_four(number: float, rounded: Callable[[float], int]) -> float:
    return float(4.0 ** rounded(math.log(max(number, 1.0), 4)))


def _own_clock() -> Callable[[], float]:
    """Return a clock for Python code, which may sleep: it stands while others have the processors."""
    began, since = time.monotonic(), times_of(os.getpid())
    return lambda: times_of(os.getpid()).own_seconds(since, time.monotonic() - began)


def check_more_draws(opener: GraphOpener, findings: Findings, spent: float) -> None:
    """Check more draws if a pair is undecided and disagrees with its gradient: it may be clearly wrong there.

    `a % b` jumps close to most points, so the slope that is seen there may be that of a stair. A wrong
    gradient may be undecided at each of two points, and a mismatch at the third.

    Args:
        findings: what was found at the sample points; changed.
        spent: seconds that this took; more draws take no longer.
    """
    case, pairs = opener.case, findings.pairs
    is_open = {pair.label for pair in pairs if _is_open(pair)}
    if not (is_open and case.is_generated) or any(pair.status is Status.MISMATCHED for pair in pairs):
        return
    alone = first_order_alone(case, frozenset(CHECKS))
    pace = Pace(float(np.clip(spent, _SHORT, _LONG)))
    for sample in range(case.judging.samples, case.judging.samples + _DRAWS):
        if pace.left <= 0:
            return
        # The spec didn't ask for this draw.
        with suppress(*ERRORS):
            at_draw = check_case(alone, opener, [sample])
            wrong = {pair.label: pair for pair in at_draw.pairs if pair.status is Status.MISMATCHED}
            shown = is_open & wrong.keys()
            if shown:
                note = "at another draw of the inputs; undecided at the sample points"
                findings.pairs = tuple(
                    with_notes(wrong[pair.label], pair, note) if pair.label in shown else pair
                    for pair in pairs
                )
                findings.judged = {**findings.judged, **{label: at_draw.judged[label] for label in shown}}
                return


def _is_open(pair: PairResult) -> bool:
    """Whether a pair is undecided, and what was found differs from its gradient."""
    is_undecided = pair.status is Status.INCONCLUSIVE and pair.undecided in _OPEN
    return is_undecided and pair.order == 1 and pair.error > pair.bound


def judge_samples(exploration: Exploration, samples: Sequence[int]) -> None:
    """Judge sample points until one is wrong."""
    at = exploration.first.traced.at
    for sample in samples:
        points = at.stacked([sample])
        if points:
            point = {index: stack[0] for index, stack in points.items()}
            if exploration.judge(Candidate("off", 0.0, point)):
                return


def shrink_wrong(exploration: Exploration, wrong: WrongPoint) -> WrongPoint:
    """Return a simpler point at which a gradient is wrong, too."""
    pace, free = exploration.pace, exploration.mixed.free
    until = pace.clock() + min(_SHRINKING, max(pace.left, _LONGER * pace.seconds))
    stacked = {index: np.asarray(value)[None] for index, value in wrong.point.items()}
    others = free.others(stacked)

    def is_wrong(vector: Array) -> bool:
        nonlocal wrong
        if pace.clock() + exploration.judgement > until:
            return False
        point = {index: stack[0] for index, stack in free.unpack(vector[None], others).items()}
        at_point = exploration.judge_at(point)
        if at_point is None or not exploration.labels & exploration.wrong_pairs(at_point).keys():
            return False
        wrong = replace(wrong, point=point, findings=at_point)
        return True

    if free.size:
        shrink(free.pack(stacked)[0], is_wrong, free.clip)
    return wrong


def _describe(case: Case, point: Point, *, has_one_row: bool) -> Counterexample:
    """Describe a wrong point; with a batch of one, its inputs have other shapes than the spec's."""
    inputs = [(case.tensors[input_index], value) for input_index, value in sorted(point.items())]
    return Counterexample(
        tuple((tensor.name, as_flow(as_lists(value))) for tensor, value in inputs),
        tuple((tensor.name, tensor.shape) for tensor, _ in inputs) if has_one_row else (),
    )


def search(
    opener: GraphOpener, samples: Sequence[int], findings: Findings, seconds: float, spent: float
) -> bool:
    """Search a case, and add the result to its findings. If a sample point is wrong already, shrink that.

    Args:
        samples: the indices of the sample points.
        findings: what the sample points showed; changed.
        seconds: how long to search.
        spent: how many seconds the samples took.

    Returns:
        Whether the case could be searched; if not, its findings say why.
    """
    reason = _explain_refusal(opener, findings)
    if reason:
        findings.search = SearchResult(0.0, 0, 0, refused=reason)
        return False
    with suppress(*ERRORS):
        # The batch of one comes last, and takes about as long as the case did.
        last = 0.0 if spent > seconds else min(spent, seconds / 2)
        pace = Pace(seconds - last)
        first = Exploration(opener, findings, findings.first, pace, is_search=True)
        first.judgement = spent / len(samples)
        first.see_samples(samples)
        if any(pair.status is Status.MISMATCHED for pair in findings.pairs):
            judge_samples(first, samples)
        parts = [first]
        with suppress(*ERRORS):
            if opener.case.judging.second_order:
                second = first.of_vjp()
                second.see_samples(samples)
                parts += [second] if second.labels else []
        batch = 0
        while not first.is_over and not any(part.wrong for part in parts):
            part = parts[batch % len(parts)]
            most = pace.batch(min(_BATCH, max(2, part.field.most)))
            part.explore(max(1, most), batch // len(parts), _OFF_OF_BATCH)
            batch += 1
        finder = next((part for part in parts if part.wrong is not None), None)
        has_one_row = finder is None
        if finder is None and last:
            finder = _search_one_row(first, last)
        example = None
        if finder is not None and finder.wrong is not None:
            finder.wrong = shrink_wrong(finder, finder.wrong)
            example = _describe(finder.opener.case, finder.wrong.point, has_one_row=has_one_row)
        seen, sides = side_counts(first.field.branches(opener.case.judging.unreached))
        findings.search = SearchResult(
            pace.elapsed,
            sum(part.points for part in parts),
            sum(part.judged for part in parts),
            seen,
            sides,
            max(part.largest for part in parts),
            sum(part.spoilt for part in parts),
            example,
        )
        if finder is not None:
            finder.add_to_findings()
        findings.branches = first.field.branches(opener.case.judging.unreached)
        findings.sides_unknown = first.field.unknown
        return True
    return False


def _explain_refusal(opener: GraphOpener, findings: Findings) -> str:
    """Return why a case can't be searched; empty if it can."""
    if not any(pair.status in _JUDGED_PAIRS for pair in findings.pairs):
        return "none of its pairs was judged"
    if not isinstance(findings.first, GraphOperation) or findings.first.traced.trace_mode.compiled:
        return f"points are looked at in graphs, and its mode is {opener.case.mode}"
    if not MixedPoints(opener.case, reach_of(findings.first.facts.low_precision)).moving:
        kinds = {
            tensor.source.kind for tensor in opener.case.tensors if not SOURCES[tensor.source.kind].is_fixed
        }
        return "its inputs have no elements" if kinds else "all values of its inputs are written out"
    return ""


def _search_one_row(search: Exploration, seconds: float) -> Exploration | None:
    """Return an exploration that found a wrong gradient with a batch of one, at the sample points, if any."""
    case = cut_to_one_row(search.opener.case)
    if case is None:
        return None
    with suppress(*ERRORS):
        opener: GraphOpener = opener_of(case, case.mode)
        first = opener.open(Opening(0))
        row_search = Exploration(opener, search.findings, first, Pace(seconds))
        row_search.judged = search.judged
        judge_samples(row_search, range(case.judging.samples))
        at_point = row_search.wrong
        if at_point is None:
            return None
        # That a function takes one row isn't stated: a gradient of another form there is no finding.
        wrong = row_search.wrong_pairs(at_point.findings)
        if any(pair.mismatch in ("value", "nonfinite") for pair in wrong.values()):
            row_search.wrong = replace(at_point, note="with a batch of one")
            return row_search
    return None


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
        for argument in case.arguments
        # Opening the case adds its variables again.
        if not any(tensor.is_variable for tensor in argument.tensors)
    )
    outputs = tuple(replace(output, shape=None) for output in case.outputs)
    return replace(case, arguments=arguments, outputs=outputs)


def _is_drawn(tensor: InputSpec) -> bool:
    return distribution_of(tensor) is not None and not tensor.is_variable


_DIGITS = (0, 1, 2, 3, 6)  # decimals, the simplest first


def shrink(vector: Array, is_wrong: Callable[[Array], bool], clip: Callable[[Array], Array]) -> Array:
    """Return a simpler point that is wrong, too.

    Args:
        vector: the point, (n,).
        is_wrong: asks the judge; returns False once the time is up.
        clip: moves points, (B, n), into the allowed range.
    """
    best, tried = vector, set()

    def attempt(simpler: Array) -> bool:
        """Take a point, if it is simpler and also wrong."""
        nonlocal best
        allowed = clip(simpler[None])[0]
        key = allowed.tobytes()
        if key in tried or _size(allowed) >= _size(best):
            return False
        tried.add(key)
        if is_wrong(allowed):
            best = allowed
        return best is allowed

    def put(value: float, components: Any) -> bool:
        simpler = best.copy()
        simpler[components] = value
        return attempt(simpler)

    any(attempt(np.round(best, digits)) for digits in _DIGITS)
    span = len(vector)
    while span:
        for start in range(0, len(vector), span):
            put(0.0, slice(start, start + span))
        span //= 2
    for column in np.flatnonzero(best):
        any(put(simpler, column) for simpler in _simpler(float(best[column])))
    return best


def _simpler(value: float) -> Iterator[float]:
    """Yield simpler numbers near a number, the simplest first."""
    yield float(np.sign(value))
    for digits in _DIGITS:
        yield float(np.round(value, digits))
        step = 10.0**-digits
        yield float(np.sign(value) * step * np.ceil(abs(value) / step))


def _size(vector: Array) -> tuple[int, int, float]:
    """Return how complicated a point is: elements that aren't zero, digits, magnitude."""
    digits = sum(len(repr(float(value)).rstrip("0")) for value in vector)
    return int(np.count_nonzero(vector)), digits, float(np.sum(np.abs(vector)))
