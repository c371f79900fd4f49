"""What a run does beside a case's sample points: more draws, mixed points, and points on unseen sides.

Such a point can show that a gradient is wrong. If it leaves a pair undecided, that changes nothing, because
the spec didn't ask for this point. Its sides count as seen if all pairs are right there, or one is wrong.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.features.search.branches import pace as pacing
from gradcheck_cli.features.search.exploring import ERRORS, RIGHT, Exploration, with_note
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.words import CHECKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.examine import Findings
    from gradcheck_cli.results import PairResult
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.opening.case_opener import GraphOpener

_FIRST, _ALL = 32, 256  # mixed points: the first show how long a point takes
_OFF, _SIDES = 3, 3  # points that are judged, as each costs about a third of a small case
_ROUNDS = 6  # of the search for sides
# Processor seconds for all of this: a part of what the case took, or a little if that is more.
_SHARE, _LITTLE = 0.5, 0.4
_PYTHON = 1.2  # at least, if Python code is called, point by point
# More sample points if a pair is undecided. A wrong slope of `a % b` is clear at one of three.
_DRAWS = 12
_SHORT, _LONG = 5.0, 20.0  # seconds for them
# What may be decided at other values.
_OPEN = frozenset({"staircase", "unresolved", "jump", "ties", "probe"})
_GRAPHS = frozenset({"graph", "dynamic"})  # modes in which branches are found


def check_other_points(opener: GraphOpener, samples: Sequence[int], findings: Findings, spent: float) -> None:
    """Add the branches of an opened case, and what other points show, to its findings.

    Args:
        opener: of the case.
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
    with suppress(*ERRORS):  # the findings say what is wrong
        exploration = Exploration(opener, findings, findings.first, pace)
        if exploration.sides.field.calls_python:
            pace.seconds = max(pace.seconds, _PYTHON)
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
            second = Exploration(vjp, findings, vjp.open(exploration.first.opening), pace, order=2)
            if second.labels:
                second.see_samples(samples)
                _explore(second)


def _may_explore(findings: Findings) -> bool:
    """Whether all is right so far."""
    is_right = all(pair.status in RIGHT for pair in findings.pairs)
    return is_right and any(pair.status is Status.PASSED for pair in findings.pairs)


def _explore(exploration: Exploration) -> None:
    """Look around, judge what is suspicious, and then points on unseen sides; stop at the first wrong one."""
    most = min(_ALL, exploration.sides.field.most)
    before = exploration.pace.elapsed
    exploration.look_around(min(_FIRST, most), 0)
    point = (exploration.pace.elapsed - before) / _FIRST
    left = int(0.5 * exploration.pace.left / max(point, 1e-9))
    count = min(most - _FIRST, left // _FIRST * _FIRST)
    if count > 0:
        exploration.look_around(count, 1)
    judged = exploration.judged
    for candidate in exploration.next_candidates(_OFF):
        if exploration.is_over or exploration.judge(candidate):
            break
    exploration.seek_sides(_ROUNDS)
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
        opener: of the case.
        findings: what was found at the sample points; changed.
        spent: seconds that this took; more draws take no longer.
    """
    case, pairs = opener.case, findings.pairs
    is_open = {pair.label for pair in pairs if _is_open(pair)}
    if not (is_open and case.is_generated) or any(pair.status is Status.MISMATCHED for pair in pairs):
        return
    alone: Case = replace(case, checks_off=frozenset(CHECKS), second_order=False, remembered=False)
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
