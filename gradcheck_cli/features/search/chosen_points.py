"""Checks points beside a case's sample points: more draws, and points that take other sides of branches.

Such a point can show that a gradient is wrong. If it leaves a pair undecided, that changes nothing, because
the spec didn't ask for this point. Its sides count as seen if all pairs are right there, or one is wrong.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import Status
from gradcheck_cli.spec.values import candidates
from gradcheck_cli.spec.words import CHECKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gradcheck_cli.checking.examine import Findings
    from gradcheck_cli.features.search.branches.choosing import PointChooser
    from gradcheck_cli.features.search.branches.sides import Sides
    from gradcheck_cli.results import PairResult
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.opening.case_opener import GraphOpener

_MOST = 3  # points that are checked; each costs about a third of a small case
_DRAWN = 24  # candidates as the spec draws them
_CANDIDATES = 96
_LOOKED = 2_500  # points at which the conditions are looked at, for all sides together
_PYTHON = 10  # a point costs this many times as much if Python code is traced line by line
_BESIDE = 1e-3  # spreads by which values move off a point where a gradient isn't finite
_ROUNDS = 12  # of steering, a side
_NAMED = 2  # sides, in the message of a mismatch
_NOTHING = 1e-6  # of the error allowed at the sample points: a smaller one is negligible
_SLOW = 20.0  # seconds of processor time; a case that took longer isn't made longer still
# More sample points if a pair is undecided. A wrong slope of `a % b` is clear at one of three.
_DRAWS = 12
_SHORT = 5.0  # seconds for them, even if the sample points took less
# What may be decided at other values.
_OPEN = frozenset({"staircase", "unresolved", "jump", "ties", "probe"})
_GRAPHS = frozenset({"graph", "dynamic"})  # modes in which branches are found
RIGHT = frozenset({Status.PASSED, Status.EXPECTED_MISMATCH, Status.SKIPPED})


def check_unseen_sides(opener: GraphOpener, samples: Sequence[int], findings: Findings, spent: float) -> None:
    """Add the branches of an opened case, and what chosen points show, to its findings.

    Args:
        opener: of the case.
        samples: indices of the points at which it was checked.
        findings: what was found there; extended.
        spent: seconds that this took.
    """
    from gradcheck_cli.features.search.branches.sides import Sides
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    if findings.first is None:
        return
    if not isinstance(findings.first, GraphOperation) or findings.first.traced.trace_mode.compiled:
        # There is no graph to examine, or XLA would compile each part of it.
        is_right = findings.pairs and all(pair.status in RIGHT for pair in findings.pairs)
        if is_right and not _GRAPHS & set(opener.case.modes):
            findings.sides_unknown = f"not looked at in mode {opener.case.mode}: add mode graph"
        return
    excuses = opener.case.unreached
    with suppress(CaseFailedError, CaseSkippedError, GradientFormError):  # the findings say what is wrong
        sides = Sides(findings.first)
        sides.see(samples)
        findings.branches = sides.branches(excuses)
        findings.sides_unknown = sides.unknown
        if spent < _SLOW and sides.wanted(excuses).any() and _may_choose(opener.case, findings):
            _check_chosen(opener, sides, findings)
            findings.branches = sides.branches(excuses)


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
    alone = replace(case, checks_off=frozenset(CHECKS), second_order=False, remembered=False)
    ends = clock.now() + np.clip(spent, _SHORT, _SLOW)
    for sample in range(case.samples, case.samples + _DRAWS):
        if clock.now() > ends:
            return
        # The spec didn't ask for this draw.
        with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            at_draw = check_case(alone, opener, [sample])
            wrong = {pair.label: pair for pair in at_draw.pairs if pair.status is Status.MISMATCHED}
            shown = is_open & wrong.keys()
            if shown:
                note = "at another draw of the inputs; undecided at the sample points"
                findings.pairs = tuple(
                    _with_note(pair, wrong[pair.label], note) if pair.label in shown else pair
                    for pair in pairs
                )
                findings.judged = {**findings.judged, **{label: at_draw.judged[label] for label in shown}}
                return


def _is_open(pair: PairResult) -> bool:
    """Whether a pair is undecided, and what was found differs from its gradient."""
    is_undecided = pair.status is Status.INCONCLUSIVE and pair.undecided in _OPEN
    return is_undecided and pair.order == 1 and pair.error > pair.bound


def _with_note(pair: PairResult, wrong: PairResult, note: str) -> PairResult:
    """Return the result at another point with a note that says so, and with the pair's own fingerprint."""
    return replace(wrong, fingerprint=pair.fingerprint, diagnosis=(*wrong.diagnosis, note))


def _may_choose(case: Case, findings: Findings) -> bool:
    """Whether points can be chosen, and all is right so far."""
    first = findings.first
    draws = first is not None and (first.frozen or first.random_types)
    return (
        case.is_generated
        and not draws
        and all(pair.status in RIGHT for pair in findings.pairs)
        and any(pair.status is Status.PASSED for pair in findings.pairs)
    )


def _check_chosen(opener: GraphOpener, sides: Sides, findings: Findings) -> None:
    """Check points that take unseen sides, those that take most of them first."""
    chooser = _make_chooser(opener, sides, findings)
    for side in np.flatnonzero(chooser.wanted):
        if not chooser.is_found(int(side)) and chooser.left > 0:
            chooser.steer(int(side), _ROUNDS)
    left = [find for finds in chooser.finds.values() for find in finds]
    # Saturated sides come last: a point that is far out tells less about the others.
    is_offered = np.array([side in sides.field.offered for side in sides.field.sides], bool)
    for judged in range(1, _MOST + 1):
        unseen = chooser.wanted & ~sides.seen
        left = [find for find in left if (find.taken & unseen).any()]
        if not left:
            return
        gains = [int((find.taken & unseen & ~is_offered).sum()) for find in left]
        best = max(range(len(left)), key=lambda index: (gains[index], left[index].rank))
        find = left.pop(best)
        # Points that take the same sides mostly come from the same steps, and would be as undecided.
        left = [other for other in left if not np.array_equal(other.taken, find.taken)]
        with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            at_point = check_at(opener, find.point, candidates.FIRST + judged)
            findings.chosen_points += 1
            wrong = wrong_pairs(at_point, findings)
            if wrong and _is_singular(opener, chooser, find.point, at_point, judged):
                continue
            if wrong:
                note = _note_on(sides.names(find.taken & unseen))
                findings.pairs = tuple(
                    replace_if_wrong(pair, wrong.get(pair.label), note) for pair in findings.pairs
                )
                if any(pair.status is Status.MISMATCHED for pair in findings.pairs):
                    sides.seen |= find.taken
                return
            if at_point.pairs and all(pair.status in RIGHT for pair in at_point.pairs):
                sides.seen |= find.taken


def wrong_pairs(at_point: Findings, at_samples: Findings) -> dict[str, PairResult]:
    """Return the pairs that are wrong at a chosen point, by label.

    A pair isn't wrong if its output doesn't move there at all, and its gradient is negligible beside what is
    allowed at the sample points: `1 + erf(x)` is 0 below -5.9, and its right gradient isn't quite zero.

    Args:
        at_point: what was found at the point.
        at_samples: what was found at the sample points.
    """
    allowed = {pair.label: pair.allowed for pair in at_samples.pairs}
    return {
        pair.label: pair
        for pair in at_point.pairs
        if pair.status is Status.MISMATCHED
        and not (
            pair.mismatch == "value"
            and pair.worst is not None
            and pair.worst.numeric == 0
            and pair.max_abs_error <= _NOTHING * allowed.get(pair.label, 0.0)
        )
    }


def _is_singular(
    opener: GraphOpener, chooser: PointChooser, point: Mapping[int, Any], at_point: Findings, judged: int
) -> bool:
    """Whether gradients aren't finite at this exact point, but right as soon as its values move a little.

    Equal rows make a matrix singular, and a norm has no slope at zero. A spec that draws its values never
    reaches such a point, so it says nothing about it. `gradcheck search` reports it.
    """
    wrong = [pair for pair in at_point.pairs if pair.status is Status.MISMATCHED]
    if any(pair.mismatch != "nonfinite" for pair in wrong):
        return False
    free = chooser.free
    stacked = {input_index: np.asarray(value)[None] for input_index, value in point.items()}
    vectors = free.pack(stacked)
    vectors = free.clip(vectors + _BESIDE * free.spreads * chooser.generator.standard_normal(vectors.shape))
    beside = {
        input_index: stack[0] for input_index, stack in free.unpack(vectors, free.others(stacked)).items()
    }
    again = check_at(opener, beside, candidates.FIRST + _MOST + judged)
    is_wrong = {pair.label for pair in again.pairs if pair.status is Status.MISMATCHED}
    return not any(pair.label in is_wrong for pair in wrong)


def _make_chooser(opener: GraphOpener, sides: Sides, findings: Findings) -> PointChooser:
    from gradcheck_cli.features.search.branches.choosing import PointChooser

    first: Any = findings.first
    stated = bool(first.low_precision)
    wanted = sides.wanted(opener.case.unreached)
    most = min(_LOOKED // _PYTHON if sides.field.python else _LOOKED, sides.field.most)
    chooser = PointChooser(sides.field, opener.case, wanted, as_stated=stated, most=most)
    samples = candidates.list_candidates(as_stated=stated)[:_DRAWN]
    if wanted.any() and most > len(samples):
        chooser.look_around(
            first.traced.at.stacked(samples),
            min(_CANDIDATES if most > _CANDIDATES * 4 else _CANDIDATES // 2, most),
        )
    return chooser


def check_at(opener: GraphOpener, point: Mapping[int, Any], sample: int) -> Findings:
    """Judge a case at a given point, without the structural checks.

    Those concern the op, whatever the point, and were made at the samples.

    Args:
        opener: of the case.
        point: the inputs that differ from the first sample point, by index.
        sample: an index for the point that no other point has.

    Raises:
        CaseFailedError: the case can't be checked there.
    """
    from gradcheck_cli.checking.ops.opener import Opening

    base: Any = opener.open(Opening(0))
    opener.state.chosen[sample] = tuple(
        np.asarray(point.get(input_index, value)) for input_index, value in enumerate(base.point)
    )
    case = replace(opener.case, checks_off=frozenset(CHECKS), second_order=False, remembered=False)
    return check_case(case, opener, [sample])


def _note_on(sides: Sequence[str]) -> str:
    """Say why a point was chosen."""
    more = f" and {len(sides) - _NAMED} more" if len(sides) > _NAMED else ""
    names = ", ".join(sides[:_NAMED]) + more
    return f"at a point that was chosen to see {names}; right at the sample points"


def replace_if_wrong(pair: PairResult, wrong: PairResult | None, note: str) -> PairResult:
    """Return the result at another point, with a note, if it is wrong there and was right at the samples."""
    if wrong is None or pair.order != 1 or pair.status is not Status.PASSED:
        return pair
    return _with_note(pair, wrong, note)
