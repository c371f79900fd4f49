"""What a run does beside a case's sample points: more draws, mixed points, and points on unseen sides.

Only mismatches count at such a point, because the spec didn't ask for it. Its sides
count as seen if all pairs are right there, or one is wrong.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.clock import count_work
from gradcheck_cli.features.search.branches import pace as pacing
from gradcheck_cli.features.search.exploring import ERRORS, RIGHT, Exploration, with_note
from gradcheck_cli.results import CheckResult, PairResult, Status
from gradcheck_cli.running.limits import times_of
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.words import CHECKS
from gradcheck_cli.tensorflow_backend.opening.openers import GraphOpener

# Mixed points: the first call builds what is called, and the second shows how long a point takes.
_FIRST, _TIMED, _REST = 8, 24, 224
_OFF, _SIDES = 3, 3  # points that are judged, as each costs about a third of a small case
_ROUNDS = 4  # of the search for sides
_MIXED = 0.4  # of the time, for mixed points
_FOR_JUDGING = 0.2  # of the time: a side that is found and not judged is in vain
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


def check_other_points(opener: GraphOpener, samples: Sequence[int], findings: Findings, spent: float) -> None:
    """Add the branches of an opened case, and what other points show, to its findings.

    Args:
        samples: indices of the points at which it was checked.
        findings: what was found there; extended.
        spent: seconds that this took.
    """
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    if findings.first is None:
        return
    if not isinstance(findings.first, GraphOperation) or findings.first.traced.trace_mode.compiled:
        # There is no graph to examine, or XLA would compile each part of it.
        is_right = findings.pairs and all(pair.status in RIGHT for pair in findings.pairs)
        if is_right and not _GRAPHS & set(opener.case.modes):
            findings.sides_unknown = f"not looked at in mode {opener.case.mode}: add mode graph"
        return
    with suppress(*ERRORS):  # the findings say what is wrong
        exploration = Exploration(opener, findings, findings.first, pacing.Pace())
        exploration.see_samples(samples)
        excuses = opener.case.unreached
        findings.branches = exploration.field.branches(excuses)
        findings.sides_unknown = exploration.field.unknown
        if _may_explore(findings):
            _explore(exploration, spent)
            findings.branches = exploration.field.branches(excuses)
        if excuses:
            exploration.search.cut()  # whatever was found before
        faults = "; ".join(exploration.excuse_faults())
        if faults:
            findings.checks = (*findings.checks, CheckResult("unreached", Status.MISMATCHED, faults))
        if opener.case.second_order and _may_explore(findings):
            second = exploration.of_vjp()
            second.see_samples(samples)
            if second.labels:
                _explore(second, spent)


def _may_explore(findings: Findings) -> bool:
    """Whether all is right so far."""
    is_right = all(pair.status in RIGHT for pair in findings.pairs)
    return is_right and any(pair.status is Status.PASSED for pair in findings.pairs)


def _explore(exploration: Exploration, spent: float) -> None:
    """Look around, judge what is suspicious, and then points on unseen sides; stop at the first wrong one."""
    calls_python, most = exploration.field.calls_python, max(1, exploration.field.most)
    own, call, point, usual = clock.now, _CALL, _POINT, _USUAL
    seconds = _LITTLE * _power_of_four(_SHARE * spent / _LITTLE, math.floor)
    if calls_python:  # a point is a call, and a call may sleep
        own, call, point, usual, seconds = _own_clock(), 0.0, _RUN, _USUAL_RUN, _PYTHON
    judged = exploration.judged
    with count_work() as work:
        exploration.look_around(min(_FIRST, most), 0)
        before, began = replace(work), own()
        exploration.look_around(min(_TIMED, most), 1)
        calls, points = work.calls - before.calls, max(1, work.points - before.points)
        point *= _power_of_four((own() - began - call * calls) / points / usual, math.ceil)
        mixed_point = (point * points + call * calls) / min(_TIMED, most)
        exploration.pace = pacing.Pace(
            seconds, lambda: point * work.points + call * work.calls, point=mixed_point
        )
        exploration.kept = _FOR_JUDGING * seconds
        count = min(_REST, most, int(_MIXED * seconds / mixed_point))
        exploration.explore(count, 2, _OFF, _ROUNDS, _SIDES)
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
    alone: Case = replace(case, checks_off=frozenset(CHECKS), second_order=(), records_fingerprint=False)
    pace = pacing.Pace(float(np.clip(spent, _SHORT, _LONG)))
    for sample in range(case.samples, case.samples + _DRAWS):
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
                    with_note(wrong[pair.label], pair, note) if pair.label in shown else pair
                    for pair in pairs
                )
                findings.judged = {**findings.judged, **{label: at_draw.judged[label] for label in shown}}
                return


def _is_open(pair: PairResult) -> bool:
    """Whether a pair is undecided, and what was found differs from its gradient."""
    is_undecided = pair.status is Status.INCONCLUSIVE and pair.undecided in _OPEN
    return is_undecided and pair.order == 1 and pair.error > pair.bound
