"""What a run does beside a case's sample points: more draws, mixed points, and points on unseen sides.

Only mismatches count at such a point, because the spec didn't ask for it. Its sides
count as seen if all pairs are right there, or one is wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.features.search.branches import pace as pacing
from gradcheck_cli.features.search.exploring import ERRORS, RIGHT, Exploration, with_note
from gradcheck_cli.results import CheckResult, PairResult, Status
from gradcheck_cli.running.processes.process import times_of
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.words import CHECKS
from gradcheck_cli.tensorflow_backend.opening.openers import GraphOpener
from gradcheck_cli.tensorflow_backend.work_counts import count_work

_FIRST, _ALL = 32, 256  # mixed points: the first show how long a point takes
_OFF, _SIDES = 3, 3  # points that are judged, as each costs about a third of a small case
_ROUNDS = 6  # of the search for sides
_FOR_JUDGING = 0.2  # of the time: a side that is found and not judged is in vain
# Processor seconds for all of this: a part of what the case took, or a little if that is more.
_SHARE, _LITTLE = 0.5, 0.4
# If Python code is called, a run of it counts as a millisecond, so that the points don't depend on a clock.
_PYTHON, _RUN = 1.2, 1e-3
_SLOW = 3.0  # Code that takes longer than this many milliseconds, or waits for them, is timed after all.
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
    pace = pacing.Pace(max(_LITTLE, _SHARE * spent))
    with suppress(*ERRORS), count_work() as work:  # the findings say what is wrong
        exploration = Exploration(opener, findings, findings.first, pace)
        if exploration.sides.field.calls_python:
            own = _own_clock()
            pace = exploration.pace = pacing.Pace(_PYTHON, lambda: max(_RUN * work.points, own() / _SLOW))
        exploration.see_samples(samples)
        excuses = opener.case.unreached
        findings.branches = exploration.sides.branches(excuses)
        findings.sides_unknown = exploration.sides.unknown
        if _may_explore(findings):
            _explore(exploration)
            findings.branches = exploration.sides.branches(excuses)
        faults = exploration.excuse_faults()
        if faults:
            findings.checks = (
                *findings.checks,
                CheckResult("unreached", Status.MISMATCHED, "; ".join(faults)),
            )
        if opener.case.second_order and _may_explore(findings):
            vjp = opener.vjp(findings.first)
            second = Exploration(vjp, findings, vjp.open(exploration.first.opening), pace, of=exploration)
            if second.labels:
                second.see_samples(samples)
                _explore(second)


def _own_clock() -> Callable[[], float]:
    """Return a clock for Python code, which may sleep: it stands while others have the processors."""
    began, since = time.monotonic(), times_of(os.getpid())
    return lambda: times_of(os.getpid()).own_seconds(since, time.monotonic() - began)


def _may_explore(findings: Findings) -> bool:
    """Whether all is right so far."""
    is_right = all(pair.status in RIGHT for pair in findings.pairs)
    return is_right and any(pair.status is Status.PASSED for pair in findings.pairs)


def _explore(exploration: Exploration) -> None:
    """Look around, judge what is suspicious, and then points on unseen sides; stop at the first wrong one."""
    most = min(_ALL, exploration.sides.field.most)
    calls_python = exploration.sides.field.calls_python
    before = exploration.pace.elapsed
    first = exploration.pace.batch(min(_FIRST, most)) if calls_python else min(_FIRST, most)
    if first:
        exploration.look_around(first, 0)
    point = max((exploration.pace.elapsed - before) / max(first, 1), 1e-9)
    count = most - _FIRST
    # Judging takes the other half. The first call also builds what is run, so all points take less than this.
    if calls_python or count * point > exploration.pace.left:
        count = min(count, int(0.5 * exploration.pace.left / point) // _FIRST * _FIRST)
    if count > 0:
        exploration.look_around(count, 1)
    judged = exploration.judged
    for candidate in exploration.next_candidates(_OFF):
        if exploration.is_over or exploration.judge(candidate):
            break
    exploration.kept = _FOR_JUDGING * exploration.pace.seconds
    exploration.seek_sides(_ROUNDS)
    exploration.kept = 0.0
    for _ in range(_SIDES):
        on_side = None if exploration.is_over else exploration.next_side()
        if on_side is None or exploration.judge_side(on_side):
            break
    exploration.findings.chosen_points += exploration.judged - judged
    exploration.add_to_findings()


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
    alone: Case = replace(case, checks_off=frozenset(CHECKS), second_order=(), remembered=False)
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
