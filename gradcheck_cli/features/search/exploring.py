"""Points beside a case's sample points: one stream of values, and one judge.

Many points are looked at in a few calls. Those at which gradient and differences disagree go to the judge.
Only the judge says what is wrong, and only mismatches count: the spec didn't ask for these points. What lies
farther than the spec says, or would be drawn, is a question about the range.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops.operation import GradientFormError, Opening, open_operations
from gradcheck_cli.checking.verdicts.chosen_points import MATTERS, failed_checks, with_notes, wrong_pairs
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.features.search.branches.graph_branches import Side
from gradcheck_cli.features.search.branches.point_field import (
    FINER,
    STEP,
    PointField,
    PointsSeen,
    Suspicion,
    is_smooth,
    matches,
    name_of,
    suspect,
)
from gradcheck_cli.features.search.mixed_points import MixedPoints, reach_of
from gradcheck_cli.features.search.shrinking import shrink
from gradcheck_cli.results import GREEN, PairResult, Status
from gradcheck_cli.spec.case import first_order_alone
from gradcheck_cli.spec.values.points import Written, describe_point, point_lines, point_text
from gradcheck_cli.spec.words import CHECKS
from gradcheck_cli.tensorflow_backend.openers import GraphOpener

Array = np.ndarray[Any, Any]
Point = Mapping[int, Array]

_SHARE = 0.25  # of the remaining time, for one call


@dataclass
class Pace:
    """A limited time, how long points take in it, and so how many a call may take: nothing interrupts it."""

    seconds: float = math.inf  # how long it is; infinite if only counts matter
    clock: Callable[[], float] = clock.now  # tells the time; by default processor time
    began: float = field(init=False)  # when it began
    point: float = 0.0  # how many seconds a point took in the last call

    def __post_init__(self) -> None:
        """Begin."""
        self.began = self.clock()

    @property
    def left(self) -> float:
        """Seconds that are left; negative once it is over."""
        return self.seconds - self.clock() + self.began

    def batch(self, most: int) -> int:
        """Return how many points the next call may take, of `most`; 0 if no time is left."""
        left = self.left
        if left <= 0:
            return 0
        return most if self.point * most <= _SHARE * left else max(1, int(_SHARE * left / self.point))

    @contextmanager
    def timed(self, count: int) -> Iterator[None]:
        """Measure how long this many points take."""
        before = self.clock()
        yield
        self.point = (self.clock() - before) / max(1, count)


_SUSPICIOUS = 3e-5  # the least relative disagreement of gradient and differences that is judged
_USUAL = 30.0  # times their disagreement at most points, where all is right
_JUDGED = 10**9  # where the indices of judged points start
_DOUBTED = 32  # points of a batch that are compared again
_OTHER = 12_000  # added to a point's index where it is looked at again: another upstream
_WORK = 4  # points that the judge may evaluate for each that is looked at
_CLOSE = 1e-3  # spreads: two values that near may be at a tie as far as differences show
_NEARER = 24  # points that are judged to find one nearer to the sample point
_LONGER = 0.1  # the part of a search's time that it may take longer for that
RIGHT = GREEN | {Status.SKIPPED}
ERRORS = (CaseFailedError, CaseSkippedError, GradientFormError)


@dataclass
class Candidate:
    """A point for the judge."""

    point: Point  # the inputs that differ from the first sample point
    strength: float = 0.0  # the larger, the sooner
    taken: frozenset[Side] = frozenset()  # the sides that it takes
    may_have_kink: bool = False  # there, as values are special, or slopes on both sides differ
    is_spoilt: bool = False  # whether the gradient isn't finite there


@dataclass(frozen=True)
class WrongPoint:
    """A point that was judged, and what is wrong there."""

    point: Point
    findings: Findings  # the judge's
    pairs: Mapping[str, PairResult]  # those that are wrong, by label
    note: str = ""  # what is special there


@dataclass
class Exploration:
    """The points of one case, or of its vjp as a case of its own."""

    opener: GraphOpener  # opens the case
    findings: Findings  # what its sample points showed
    first: Any  # the op at the first sample point
    pace: Pace  # how long to go on
    of: Exploration | None = None  # that of the case, where this is its vjp's
    is_search: bool = False  # whether TensorFlow's own gradient at a single value counts
    points: int = 0  # how many points were looked at
    judged: int = 0  # how many of them went to the judge
    judgement: float = 0.0  # how long it takes to judge a point
    evaluated: int = 0  # how many points the judge evaluated
    largest: float = 0.0  # the largest disagreement of gradient and differences
    spoilt: int = 0  # at how many points the gradient wasn't finite, although the function was
    wrong: WrongPoint | None = None  # a point at which a gradient is wrong

    def __post_init__(self) -> None:
        """Find the branches, and open what is differenced.

        Raises:
            CaseFailedError: a call raises.
        """
        case = self.opener.case
        self.is_rounded = bool(self.first.facts.low_precision)
        # In float16 the square of 1e-4 is 0, so that points near zero say nothing of the formula.
        self.is_narrow = self.is_rounded or any(tensor.dtype == "float16" for tensor in case.tensors)
        self.mixed = MixedPoints(case, reach_of(self.first.facts.low_precision))
        self.generator = np.random.default_rng([case.seed, 1, zlib.crc32(f"{case.op} {case.name}".encode())])
        self.field = PointField(self.first)
        opened = self.findings.operations
        if opened is None or opened.declared is not self.first:
            opened = open_operations(case, self.opener, 0, self.first)
        self.differenced: Any = opened.differenced
        self.candidates: list[Candidate] = []
        self.threshold = _SUSPICIOUS * (100.0 if self.is_rounded else 1.0)
        # Where values are held, differences at another point are those of another function.
        self.may_compare = bool(self.mixed.differenced.size) and not self.first.facts.held_places
        self.order = 1 if self.of is None else 2
        self.labels = {
            pair.label
            for pair in self.findings.pairs
            if pair.order == self.order and pair.status in (Status.PASSED, Status.MISMATCHED)
        }
        self.within: set[Side] = set()  # sides that ordinary points take, inside of what the spec states

    def of_vjp(self) -> Exploration:
        """Return the exploration of the vjp of this case, for its second order.

        Raises:
            CaseFailedError: a call raises.
        """
        vjp = self.opener.vjp(self.first)
        op = vjp.open(self.first.opening)
        return Exploration(vjp, self.findings, op, self.pace, of=self, is_search=self.is_search)

    # Looking at points.

    def see_samples(self, samples: Sequence[int]) -> None:
        """Count the sides that the sample points take, if a pair passed there.

        Raises:
            CaseFailedError: a call raises.
        """
        for sample in samples:
            with self.pace.timed(1), self.opener.at(sample):
                looked = self.field.look(self.first.traced.at.stacked([sample]), [sample])
            sides = looked.sides([0])
            self._see(sides)
            self.within |= sides

    def _see(self, sides: Collection[Side]) -> None:
        """Count the sides that points take at which a gradient was tested."""
        self.field.seen |= set(sides) if self.labels else set()

    def excuse_faults(self) -> Iterator[str]:
        """Yield which excuses for unseen sides aren't true, in words."""
        for glob, reason in self.opener.case.judging.unreached:
            excused = [side for side in self.field.sides if matches(side, glob)]
            taken = [name_of(side) for side in excused if side in self.within]
            if taken:
                told = f"inputs take {taken[0]} within what the spec states. Drop the excuse"
            elif not excused and not self.field.unknown:
                told = "no branch has such a side. Correct the name, or drop the excuse"
            else:
                continue
            yield f"{glob!r} ({reason}): {told}"

    def make_points(self, count: int, batch: int) -> dict[int, Array]:
        """Return a batch of mixed points, (B, *shape) by the input's index, in any order."""
        constants = [value for value in self.field.constants if value not in self.mixed.specials]
        self.mixed.specials += tuple(constants[: 64 - len(self.mixed.specials)])
        return self.mixed.make(count, batch)

    def explore(self, points: dict[int, Array], most: int) -> None:
        """Look at points, and judge what is suspicious.

        Args:
            points: (B, *shape) by the input's index.
            most: how many may be judged.
        """
        self.look_at(points)
        for candidate in self._next_candidates()[:most]:
            is_late = self.judgement >= self.pace.left
            # Outside of a search, judging may take some times the work of looking.
            is_long = not self.is_search and self.evaluated > _WORK * self.points
            if self.wrong or (self.judged and (is_late or is_long)) or self.judge(candidate):
                return  # the first may always be judged

    def look_at(self, points: dict[int, Array]) -> None:
        """Look at points, and compare gradient and differences there."""
        count = max(map(len, points.values()), default=0)
        if count:
            with suppress(*ERRORS), self.pace.timed(count):
                self._compare(points, count)

    def _compare(self, points: dict[int, Array], count: int) -> None:
        """Compare gradient and differences at some points, and keep those that go on to disagree."""
        looked, suspicion = self._suspect(points, range(count), STEP)
        self.points += count
        vectors = self.mixed.free.pack(points)
        self.within |= looked.sides(self.mixed.are_ordinary(vectors))
        if suspicion is None:
            return
        threshold = max(self.threshold, min(_USUAL * float(np.median(suspicion.disagreement)), 0.1))
        self.largest = max(self.largest, float(suspicion.disagreement.max(initial=0.0)))
        self.spoilt += int(suspicion.is_spoilt.sum())
        # Where all slopes are tiny, so are errors: the judge would say that they can't matter.
        slopes = np.nan_to_num(suspicion.slope)
        matters = slopes > MATTERS * np.median(slopes) / np.maximum(suspicion.disagreement, threshold)
        doubtful = np.flatnonzero(matters & (suspicion.disagreement > threshold) | suspicion.is_spoilt)
        rows = self._persisting(points, doubtful[:_DOUBTED], suspicion, threshold)
        agrees = np.ones(count, bool)
        agrees[[*rows, *doubtful[_DOUBTED:]]] = False
        self._see(looked.sides(agrees))
        special = self.mixed.free.ties(vectors, _CLOSE) | np.isin(vectors, self.mixed.specials)
        may_have_kink = suspicion.is_bent | special.any(axis=1)
        self.candidates += [
            Candidate(
                _point_at(points, row),
                float(suspicion.disagreement[row]),
                looked.sides([row]),
                bool(may_have_kink[row]),
                bool(suspicion.is_spoilt[row]),
            )
            for row in rows
        ]

    def _suspect(
        self, points: dict[int, Array], seeds: Sequence[int], step: float
    ) -> tuple[PointsSeen, Suspicion | None]:
        """Look at points, and compare gradients and differences there, if they can be compared."""
        looked = self.field.look(points, seeds)
        moving = self.generator, step, np.array(seeds)
        free = self.mixed.differenced
        return looked, suspect(self.differenced, looked, points, free, moving) if self.may_compare else None

    def _persisting(
        self, points: dict[int, Array], rows: Array, before: Suspicion, threshold: float
    ) -> Array:
        """Return the points that still disagree with another direction and smaller steps: kinks may be near.

        A gradient that isn't finite counts where the function is smooth.
        """
        own = {index: stack[rows] for index, stack in points.items()}
        with suppress(*ERRORS):
            again = (
                self._suspect(own, [_OTHER + int(row) for row in rows], STEP / FINER)[1]
                if len(rows)
                else None
            )
            if again is not None:
                is_spoilt = again.is_spoilt & before.is_spoilt[rows]
                if is_spoilt.any():
                    is_spoilt &= is_smooth(self.differenced, own, self.mixed.differenced)
                return rows[(again.disagreement > threshold) | is_spoilt]
        return rows[:0]

    # Judging them.

    def _next_candidates(self) -> list[Candidate]:
        """Return the points that disagree, in the order in which the judge should see them.

        Right gradients disagree at kinks. So every other one is a point without, where there is one.
        """
        ranked = sorted(self.candidates, key=lambda own: (not own.is_spoilt, -own.strength))
        queues = ([own for own in ranked if own.may_have_kink is kink] for kink in (False, True))
        self.candidates = []
        return [candidate for turn in zip_longest(*queues) for candidate in turn if candidate is not None]

    def judge(self, candidate: Candidate) -> bool:
        """Judge a point; return whether a pair is unexpectedly wrong there, and count its sides as tested."""
        # A sum of upstreams shows what single elements hide: a gradient that takes their maximum at a tie.
        is_asked = not candidate.is_spoilt and not self.is_narrow
        at_point = self._judge_at(candidate.point, frozenset({"linearity"} if is_asked else ()))
        if at_point is None:
            return False
        is_wrong = bool(at_point.pairs or failed_checks(at_point.findings, self.findings))
        if is_wrong and not self._is_singular(at_point) and not self._is_meant(candidate, at_point):
            moved = self._move(at_point)
            self.wrong = replace(moved, note=self._describe_where(moved))
        statuses = {pair.status for pair in at_point.findings.pairs}
        if self.wrong or (not at_point.pairs and Status.PASSED in statuses and statuses <= RIGHT):
            self.field.seen |= candidate.taken
        return self.wrong is not None

    def _judge_at(self, point: Point, checks: frozenset[str] = frozenset()) -> WrongPoint | None:
        """Return what the judge finds at a point; `None` if it can't be judged."""
        self.judged += 1
        before = self.pace.clock()
        at_point = None
        with suppress(*ERRORS), clock.count_work() as work:
            findings = check_at(self.opener, point, _JUDGED + self.judged, checks)
            pairs = wrong_pairs(findings, self.findings)
            at_point = WrongPoint(
                point, findings, {label: pairs[label] for label in pairs.keys() & self.labels}
            )
        self.evaluated += work.points
        self.opener.state.chosen.pop(_JUDGED + self.judged, None)
        self.judgement = max(self.pace.clock() - before, self.judgement / 2)
        return at_point

    def _move(self, wrong: WrongPoint) -> WrongPoint:
        """Return a wrong point that is nearer to the first sample point."""
        free, point = self.mixed.free, wrong.point
        if not free.size:
            return wrong
        start, home = free.vector(point), free.vector(dict(enumerate(self._base)))
        left = max(self.pace.left, _LONGER * self.pace.seconds)
        tries = min(_NEARER, left / max(self.judgement, 1e-3))

        def is_wrong(vector: Array) -> bool:
            nonlocal wrong, tries
            tries -= 1
            at_point = self._judge_at(free.at(vector, point)) if tries >= 0 else None
            if at_point is not None and at_point.pairs:
                wrong = at_point
            return wrong is at_point

        # What is wrong within what would be drawn is no question about the range.
        near = self.mixed.draw_near(start[None])[0]
        start = near if not np.array_equal(near, start) and is_wrong(near) else start
        shrink(start, home, is_wrong, free.clip)
        return wrong

    def _ask(self, wrong: WrongPoint, point: Written) -> str:
        """Return what is asked about a wrong point farther out than the spec says; empty for any other."""
        asked = "" if self.is_search else self.mixed.describe_range(wrong.point)
        worst = max((pair.relative_error or 0.0 for pair in wrong.pairs.values()), default=0.0)
        off = f"off by {100 * worst:.3g} %" if worst else "wrong"
        told = f"right at the sample points; at {point_text(point)} the gradient is {off}. {asked}"
        return told if asked else ""

    @property
    def _base(self) -> Sequence[Array]:
        """The values at the first sample point."""
        base: Sequence[Array] = self.first.traced.at.point
        return base

    def _is_singular(self, at_point: WrongPoint) -> bool:
        """Whether gradients are right again beside a point, so that only a search reports such a fault.

        Equal rows make a matrix singular. TensorFlow's own gradients of several ops that have a kink there
        don't add up to a slope: that of Keras' CELU is 2 at 0. Others have guards: that of an SVD adds 1e-20
        to squares, which is all of them for matrices of 1e-6. A spec that draws its values never reaches such
        a point, and its author wrote none of these gradients. Beside is a tenth of a spread away for them.
        One of the user's may be not finite where the function has no slope, as a norm at zero, and anybody's
        in float16, where `x * x` is too small for it and the slope of a tangent too large.
        """
        if self.is_search:
            return False
        pairs = [
            pair for pair in at_point.findings.pairs if pair.label in at_point.pairs or not at_point.pairs
        ]
        is_nonfinite = all(pair.mismatch == "nonfinite" for pair in pairs)
        if is_nonfinite and self.is_narrow:
            return True
        if all(self.is_of_tensorflow(pair) for pair in pairs):
            return not self._is_wrong_beside(at_point, 0.1)
        stacked = {index: np.asarray(value)[None] for index, value in at_point.point.items()}
        return (
            is_nonfinite
            and not is_smooth(self.differenced, stacked, self.mixed.free)[0]
            and not self._is_wrong_beside(at_point)
        )

    def is_of_tensorflow(self, pair: PairResult) -> bool:
        """Whether no gradient of the user's is on a pair's path, or on any of the case whose vjp this is."""
        if self.of is not None:
            return all(self.of.is_of_tensorflow(own) for own in self.findings.pairs if own.order == 1)
        names = [[info.name for info in infos] for infos in (self.first.outputs, self.first.inputs)]
        output, input_index = names[0].index(pair.output), names[1].index(pair.input)
        written = self.opener.written_ops(self.first, output, input_index)
        return written is not None and not written

    def _is_meant(self, candidate: Candidate, at_point: WrongPoint) -> bool:
        """Whether the spec excuses a side here that only special values take: those of a mask, say."""
        globs = [glob for glob, _ in self.opener.case.judging.unreached]
        is_excused = any(matches(side, glob) for side in candidate.taken for glob in globs)
        return is_excused and not self._is_wrong_beside(at_point)

    def _is_wrong_beside(self, at_point: WrongPoint, spreads: float = _CLOSE) -> bool:
        """Whether the same pairs are wrong beside a point, by up to this many spreads in each component."""
        free = self.mixed.free
        moved = free.vector(at_point.point)[None]
        moved += spreads * free.spreads * self.generator.uniform(-1, 1, moved.shape)
        # A limit throws components back.
        inside = free.clip(2 * free.clip(moved) - moved)[0]
        beside = self._judge_at(free.at(inside, at_point.point))
        return beside is None or bool(at_point.pairs.keys() & beside.pairs.keys())

    def _describe_where(self, at_point: WrongPoint) -> str:
        """Say what is special at a wrong point, if the gradient is right beside it."""
        text = self.mixed.describe_specials(at_point.point)
        if not text or self._is_wrong_beside(at_point):
            return ""
        return (
            f"only where {text}: it is right as soon as these values move. Either a guard for this value is "
            "wrong, or the value is meant, as a mask is: then keep it out, with min_gap where values are "
            "equal, and with away_from for any other"
        )

    def add_to_findings(self) -> None:
        """Let the findings say what is wrong."""
        if self.wrong is None:
            return
        at_point, case = self.wrong.findings, self.opener.case
        point = describe_point(case, self._base, self.wrong.point)
        wrong, question = self.wrong.pairs, self._ask(self.wrong, point)
        note = "at a point where gradient and differences disagree; right at the sample points"
        lines = [note, *([self.wrong.note] if self.wrong.note else []), *point_lines(case, point)]
        # One question for each case.
        worst = max(wrong, key=lambda label: wrong[label].error) if wrong else min(self.labels)
        told = {worst} if question else wrong.keys()

        def judged(pair: PairResult) -> PairResult:
            if pair.label not in told or pair.order != self.order or pair.status is not Status.PASSED:
                return pair
            if not question:
                return with_notes(replace(wrong[pair.label], order=self.order), pair, *lines, point=point)
            cause = replace(pair.cause, point=point, diagnosis=tuple(point_lines(case, point)))
            return replace(pair, status=Status.INCONCLUSIVE, undecided="range", message=question, cause=cause)

        self.findings.pairs = tuple(map(judged, self.findings.pairs))
        failed = {} if wrong or question else failed_checks(at_point, self.findings)
        self.findings.checks = (
            *(check for check in self.findings.checks if check.name not in failed),
            *(replace(check, message="; ".join([check.message, *lines])) for check in failed.values()),
        )


def check_at(
    opener: GraphOpener, point: Point, sample: int, checks: frozenset[str] = frozenset()
) -> Findings:
    """Judge a case at a given point, without most structural checks.

    Those concern the op, whatever the point, and were made at the samples.

    Args:
        point: the inputs that differ from the first sample point, by index.
        sample: an index for the point that no other point has.
        checks: the structural checks to make all the same.

    Raises:
        CaseFailedError: the case can't be checked there.
    """
    base: Any = opener.open(Opening(0))
    opener.state.chosen[sample] = tuple(
        np.asarray(point.get(input_index, value)) for input_index, value in enumerate(base.point)
    )
    for key in [key for key in opener.state.draws if key[0] == 0]:
        opener.state.draws[sample, key[1]] = opener.state.draws[key]  # the draws are those of the first point
    case = first_order_alone(opener.case, frozenset(CHECKS) - checks)
    return check_case(case, opener, [sample])


def _point_at(points: Point, row: int | np.integer[Any]) -> dict[int, Array]:
    """Return one of some stacked points."""
    return {input_index: np.asarray(stack[row]) for input_index, stack in points.items()}
