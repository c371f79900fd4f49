"""Points beside a case's sample points: one stream of them, and one judge.

Many points are looked at in a few calls. Those at which gradient and differences disagree go to the judge,
as do those on sides of branches that no tested point takes. Only the judge says what is
wrong, and only mismatches count: the spec didn't ask for these points.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops.operation import GradientFormError, Opening, open_operations
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.features.search.branches.point_field import (
    FINER,
    STEP,
    PointField,
    PointsSeen,
    Side,
    SideSearch,
    Suspicion,
    is_smooth,
    suspect,
    with_excuses,
)
from gradcheck_cli.features.search.mixed_points import MixedPoints, reach_of
from gradcheck_cli.gate import Branch
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.results import GREEN, CheckResult, PairNumbers, PairResult, Status
from gradcheck_cli.spec.case import first_order_alone
from gradcheck_cli.spec.words import CHECKS
from gradcheck_cli.tensorflow_backend.openers import GraphOpener

Array = np.ndarray[Any, Any]
Point = Mapping[int, Array]

_SHARE = 0.25  # of the remaining time, for one call
_FADING = 0.5  # a point's time falls by this factor at most: the first call also builds the function


def _now() -> float:
    return clock.now()


@dataclass
class Pace:
    """A limited time, how long points take in it, and so how many a call may take: nothing interrupts it."""

    seconds: float = math.inf  # how long it is; infinite if only counts matter
    clock: Callable[[], float] = _now  # tells the time; by default processor time
    began: float = field(init=False)  # when it began
    point: float = 0.0  # how many seconds a point takes

    def __post_init__(self) -> None:
        """Begin."""
        self.began = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.clock() - self.began

    @property
    def left(self) -> float:
        """Seconds that are left; negative once it is over."""
        return self.seconds - self.elapsed

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
        self.point = max((self.clock() - before) / max(1, count), _FADING * self.point)


_SUSPICIOUS = 3e-5  # the least relative disagreement of gradient and differences that is judged
_USUAL = 30.0  # times their disagreement at most points, where all is right
_JUDGED = 10**9  # where the indices of judged points start
_AGAIN = 3  # points with the same sides that may be judged without a finding
_NAMED = 2  # sides, in the message of a mismatch
_NOTHING = 1e-6  # of the error allowed at the sample points: a smaller one is negligible
# Slopes times a tiny point, and its steps, are subnormal: float64's smallest number over two roundings.
_UNDERFLOWS = float(np.finfo(float).tiny / np.finfo(float).eps ** 2)
_DOUBTED = 32  # points of a batch that are compared again
_BESIDE = 10.0 ** -np.arange(1, 14, 1.0)  # spreads by which values move off a point
_FAR_OUT = 5.0  # spreads
_CLOSE = 1e-3  # spreads: two values that near may be at a tie as far as differences show
_WITHIN = 4.0  # spreads: one of 16,000 normal values lies beyond
RIGHT = GREEN | {Status.SKIPPED}
ERRORS = (CaseFailedError, CaseSkippedError, GradientFormError)


@dataclass
class Candidate:
    """A point for the judge."""

    reason: str  # "spoilt", "off" or "side"
    strength: float  # the larger, the sooner
    point: dict[int, Array]  # the inputs that differ from the first sample point
    taken: Array  # (sides,) the sides that it takes
    may_have_kink: bool = False  # there, as values are special, or slopes on both sides differ

    @property
    def kind(self) -> tuple[str, bytes, bool]:
        """What points have in common of which it is enough to judge a few."""
        return self.reason, self.taken.tobytes(), self.may_have_kink


@dataclass(frozen=True)
class WrongPoint:
    """A point at which a gradient is wrong."""

    point: Point
    findings: Findings  # the judge's
    note: str  # why the point was chosen, and what is special there


@dataclass
class Exploration:
    """The points of one case, or of its vjp as a case of its own."""

    opener: GraphOpener  # opens the case
    findings: Findings  # what its sample points showed
    first: Any  # the op at the first sample point
    pace: Pace  # how long to go on
    kept: float = 0.0  # how much of that the search for sides leaves for judging
    of: Exploration | None = None  # that of the case, where this is its vjp's
    is_search: bool = False  # whether TensorFlow's own gradient at a single value counts
    points: int = 0  # how many points were looked at
    judged: int = 0  # how many of them went to the judge
    judgement: float = 0.0  # how long it takes to judge a point
    largest: float = 0.0  # the largest disagreement of gradient and differences
    spoilt: int = 0  # at how many points the gradient wasn't finite, although the function was
    wrong: WrongPoint | None = None  # a point at which a gradient is wrong
    # how often the judge found nothing, by kind
    in_vain: Counter[tuple[str, bytes, bool]] = field(default_factory=Counter)

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
        self.search = SideSearch(self.mixed.free, self.look_for_sides, self.generator)
        self.candidates: list[Candidate] = []
        self.finds: dict[int, list[Candidate]] = {}
        self.threshold = _SUSPICIOUS * (100.0 if self.is_rounded else 1.0)
        # Where values are held, differences at another point are those of another function.
        self.may_compare = bool(self.mixed.free.size) and not self.first.facts.held_places
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

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or something was found."""
        return self.wrong is not None or self.pace.left <= 0

    # Looking at points.

    def see_samples(self, samples: Sequence[int]) -> None:
        """Count the sides that the sample points take, if a pair passed there.

        Raises:
            CaseFailedError: a call raises.
        """
        with self.pace.timed(len(samples)):
            looked = self.field.look(self.first.traced.at.stacked(samples), samples)
        if self.labels:
            self.field.see(np.asarray(looked.taken.any(axis=0)))
        self._note_within(looked.taken)

    def _note_within(self, taken: Array) -> None:
        self.within |= {self.field.sides[side] for side in np.flatnonzero(taken.any(axis=0))}

    def excuse_faults(self) -> Iterator[str]:
        """Yield which excuses for unseen sides aren't true, in words."""
        for glob, reason in self.opener.case.judging.unreached:
            excused = [side for side in self.field.shown if _matches(side, glob)]
            taken = [_label(side) for side in excused if side in self.within]
            if taken:
                told = f"inputs take {taken[0]} within what the spec states. Drop the excuse"
            elif not excused and not self.field.unknown:
                told = "no branch has such a side. Correct the name, or drop the excuse"
            else:
                continue
            yield f"{glob!r} ({reason}): {told}"

    def explore(self, count: int, batch: int, most_off: int, rounds: int, most_sides: int) -> None:
        """Look at mixed points, judge what is suspicious, seek sides, and judge points on new ones.

        Args:
            count: how many points to look at.
            batch: which batch of mixed points they are.
            most_off: how many points that disagree may be judged.
            rounds: how often sides are sought.
            most_sides: how many points on new sides may be judged.
        """
        with suppress(*ERRORS):
            if count:
                self.look_around(count, batch)
        for candidate in self._next_candidates(most_off):
            if not self._may_judge() or self.judge(candidate):
                return
        with suppress(*ERRORS):
            for turn in range(rounds):
                sought = self.field.wanted
                sought[list(self.finds)] = False
                if sought.any() and not self.is_over:
                    keys = {self.field.sides[side][0] for side in np.flatnonzero(sought)}
                    near = {side for side, (key, _) in enumerate(self.field.sides) if key in keys}
                    self.search.exchange(near, np.array(self.mixed.specials[::-1]))
                    if turn % 3 == 2:  # noqa: PLR2004 (a cut costs as much as several of the others)
                        self.search.cut()
        for _ in range(most_sides):
            on_side = self._next_side() if self._may_judge() else None
            if on_side is None or self._judge_side(on_side):
                return

    def look_around(self, count: int, batch: int) -> None:
        """Look at a batch of mixed points, and compare gradient and differences there.

        Raises:
            CaseFailedError: a call raises at every point.
        """
        constants = [value for value in self.field.constants if value not in self.mixed.specials]
        self.mixed.specials += tuple(constants[: 64 - len(self.mixed.specials)])
        points = self.mixed.make(count, batch)
        if not points:
            return
        with self.pace.timed(count):
            looked = self.field.look(points, range(count))
            self._note(points, looked)
            self.search.lenders = self.mixed.free.pack(points)
            if not self.may_compare:
                return
            suspicion = suspect(
                self.differenced, looked, points, self.mixed.free, (self.generator, STEP, np.arange(count))
            )
        usual = float(np.median(suspicion.disagreement))
        threshold = max(self.threshold, min(_USUAL * usual, 0.1))
        self.largest = max(self.largest, float(suspicion.disagreement.max(initial=0.0)))
        self.spoilt += int(suspicion.is_spoilt.sum())
        rows = np.flatnonzero((suspicion.disagreement > threshold) | suspicion.is_spoilt)
        rows = self._persisting(points, rows[:_DOUBTED], suspicion, threshold)
        vectors = self.search.lenders[rows]
        special = self.mixed.free.ties(vectors, _CLOSE) | np.isin(vectors, self.mixed.specials)
        may_have_kink = suspicion.is_bent[rows] | special.any(axis=1)
        for row, may_bend in zip(rows, may_have_kink, strict=True):
            reason = "spoilt" if suspicion.is_spoilt[row] else "off"
            strength, point = float(suspicion.disagreement[row]), _point_at(points, row)
            self.candidates.append(Candidate(reason, strength, point, looked.taken[row], bool(may_bend)))

    def _persisting(
        self, points: dict[int, Array], rows: Array, before: Suspicion, threshold: float
    ) -> Array:
        """Return the points that still disagree with another direction and smaller steps: kinks may be near.

        A gradient that isn't finite counts where the function is smooth.
        """
        own = {index: stack[rows] for index, stack in points.items()}
        if not len(rows) or self.pace.batch(len(rows)) < len(rows):
            return rows
        with suppress(*ERRORS):
            looked = self.field.look(own, [10_000 + int(row) for row in rows])
            again = suspect(
                self.differenced, looked, own, self.mixed.free, (self.generator, STEP / FINER, rows)
            )
            is_spoilt = again.is_spoilt & before.is_spoilt[rows]
            if is_spoilt.any():
                is_spoilt &= is_smooth(self.differenced, own, self.mixed.free)
            return rows[(again.disagreement > threshold) | is_spoilt]
        return rows[:0]

    def look_for_sides(self, points: Point) -> PointsSeen | None:
        """Look at points for the sides that they take; `None` if there is no time, or a call raises."""
        count = len(next(iter(points.values())))
        if self.pace.point * count > self.pace.left - self.kept:
            return None
        with suppress(*ERRORS), self.pace.timed(count):
            looked = self.field.look(points, range(count))
            self._note(points, looked)
            return looked
        return None

    def _note(self, points: Point, looked: PointsSeen) -> None:
        """Keep the best point for each side that wasn't tested: an ordinary one, near the middle."""
        self.points += len(looked.taken)
        self.search.remember(points, looked)
        free = self.mixed.free
        columns = np.flatnonzero(self.field.wanted & looked.taken.any(axis=0))
        if not len(columns) and not self.opener.case.judging.unreached:
            return
        vectors = free.pack(points)
        special = free.ties(vectors).sum(axis=1)
        distances = np.abs(vectors - free.middles) / free.spreads
        far = np.max(distances, axis=1, initial=0.0)
        ordinary = (special == 0) & (np.median(distances, axis=1) <= _FAR_OUT) if free.size else special == 0
        self._note_within(looked.taken[(special == 0) & (far <= _WITHIN)])
        for side in columns:
            rows = np.flatnonzero(looked.taken[:, side])
            for row in rows[np.lexsort((far[rows], special[rows], ~ordinary[rows]))[:2]]:
                strength = 1e3 * float(ordinary[row]) - float(special[row]) - 1e-2 * float(far[row])
                candidate = Candidate("side", strength, _point_at(points, row), looked.taken[row])
                finds = [*self.finds.get(int(side), []), candidate]
                self.finds[int(side)] = sorted(finds, key=lambda find: -find.strength)[:3]

    # Judging them.

    def _may_judge(self) -> bool:
        """Whether there is time to judge another point; the first may always be judged."""
        return self.wrong is None and (self.judged == 0 or self.judgement < self.pace.left)

    def _next_candidates(self, most: int) -> list[Candidate]:
        """Return the points that disagree, in the order in which the judge should see them.

        Right gradients disagree at kinks. So every other one is a point without, where there is one.
        """
        alike, ranks = self.in_vain.copy(), Counter[tuple[str, bool]]()
        ranked: list[tuple[bool, int, bool, Candidate]] = []
        for candidate in sorted(self.candidates, key=lambda candidate: -candidate.strength):
            alike[candidate.kind] += 1
            if alike[candidate.kind] <= _AGAIN:
                ranks[candidate.reason, candidate.may_have_kink] += 1
                rank = ranks[candidate.reason, candidate.may_have_kink]
                ranked.append((candidate.reason != "spoilt", rank, candidate.may_have_kink, candidate))
        self.candidates = []
        return [candidate for *_, candidate in sorted(ranked, key=lambda each: each[:-1])[:most]]

    def _next_side(self) -> Candidate | None:
        """Return the point that takes most sides that weren't tested; `None` if there is none."""
        wanted = self.field.wanted
        finds = [find for side, own in self.finds.items() if wanted[side] for find in own]
        if not finds:
            return None
        best = max(finds, key=lambda find: (int((_pad(find.taken, wanted) & wanted).sum()), find.strength))
        for side, own in list(self.finds.items()):
            # Points that take the same sides mostly come from the same steps.
            self.finds[side] = [find for find in own if not np.array_equal(find.taken, best.taken)]
            if not self.finds[side]:
                del self.finds[side]
        return best

    def _judge_side(self, candidate: Candidate) -> bool:
        """Judge a point on an unseen side, and first one further inside; return whether a pair is wrong.

        At the edge of a side the function may jump, and at zero many wrong gradients look right.
        """
        inside = self._move_inside(candidate)
        if self.judge(inside):
            return True
        is_special = bool(self.mixed.free.ties(self.mixed.free.pack(_stacked(candidate.point))).any())
        return inside is not candidate and is_special and not self.is_over and self.judge(candidate)

    def _move_inside(self, candidate: Candidate) -> Candidate:
        """Return the point that is moved furthest and still takes a candidate's unseen sides."""
        if not self.mixed.free.size:
            return candidate
        moved = self._moved(candidate.point, _BESIDE)
        looked = self.look_for_sides(moved)
        if looked is not None:
            needed = _pad(candidate.taken, self.field.wanted) & self.field.wanted
            inside = np.flatnonzero((looked.taken | ~needed).all(axis=1))
            if len(inside):
                return replace(candidate, point=_point_at(moved, inside[0]), taken=looked.taken[inside[0]])
        return candidate

    def _moved(self, point: Point, spreads: Array) -> dict[int, Array]:
        """Return a point with all components moved by up to these many spreads, three times each.

        A move across the end of a range is reflected there: a component on the end moves, too.
        """
        free, stacked = self.mixed.free, _stacked(point)
        sizes = np.repeat(spreads, 3)[:, None] * free.spreads
        moved = free.pack(stacked) + sizes * self.generator.uniform(-1, 1, (len(sizes), free.size))
        return free.unpack(free.clip(2 * free.clip(moved) - moved), free.others(stacked))

    def judge(self, candidate: Candidate) -> bool:
        """Judge a point; return whether a pair is unexpectedly wrong there, and count its sides as tested."""
        # A sum of upstreams shows what single elements hide: a gradient that takes their maximum at a tie.
        is_asked = candidate.reason == "off" and not self.is_narrow
        at_point = self.judge_at(candidate.point, frozenset({"linearity"} if is_asked else ()))
        wrong: set[str] = set()
        if at_point is not None:
            wrong = self.labels & self.wrong_pairs(at_point).keys()
            if (
                (wrong or failed_checks(at_point, self.findings))
                and not self._is_singular(candidate, at_point, wrong)
                and not self._is_meant(candidate, wrong)
            ):
                taken = _pad(candidate.taken, self.field.wanted) & self.field.wanted
                note = _note_on([_label(self.field.sides[side]) for side in np.flatnonzero(taken)])
                note += self._describe_where(candidate, wrong)
                self.wrong = WrongPoint(candidate.point, at_point, note)
                self.field.see(candidate.taken)
                return True
            statuses = {pair.status for pair in at_point.pairs}
            if not wrong and Status.PASSED in statuses and statuses <= RIGHT:
                self.field.see(candidate.taken)
        self.in_vain[candidate.kind] += 1
        return False

    def judge_at(self, point: Point, checks: frozenset[str] = frozenset()) -> Findings | None:
        """Return what the judge finds at a point; `None` if it can't be judged."""
        self.judged += 1
        before = self.pace.clock()
        at_point = None
        with suppress(*ERRORS):
            at_point = check_at(self.opener, point, _JUDGED + self.judged, checks)
        self.opener.state.chosen.pop(_JUDGED + self.judged, None)
        self.judgement = max(self.pace.clock() - before, self.judgement / 2)
        return at_point

    def _is_singular(self, candidate: Candidate, at_point: Findings, wrong: set[str]) -> bool:
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
        pairs = [pair for pair in at_point.pairs if pair.label in wrong or not wrong]
        is_nonfinite = all(pair.mismatch == "nonfinite" for pair in pairs)
        if is_nonfinite and self.is_narrow:
            return True
        if all(self.is_of_tensorflow(pair) for pair in pairs):
            return not self._is_wrong_beside(candidate, wrong, 0.1)
        return (
            is_nonfinite
            and not is_smooth(self.differenced, _stacked(candidate.point), self.mixed.free)[0]
            and not self._is_wrong_beside(candidate, wrong)
        )

    def is_of_tensorflow(self, pair: PairResult) -> bool:
        """Whether no gradient of the user's is on a pair's path, or on any of the case whose vjp this is."""
        if self.of is not None:
            return all(self.of.is_of_tensorflow(own) for own in self.findings.pairs if own.order == 1)
        names = [[info.name for info in infos] for infos in (self.first.outputs, self.first.inputs)]
        output, input_index = names[0].index(pair.output), names[1].index(pair.input)
        written = self.opener.written_ops(self.first, output, input_index)
        return written is not None and not written

    def _is_meant(self, candidate: Candidate, wrong: set[str]) -> bool:
        """Whether the spec excuses a side here that only special values take: those of a mask, say."""
        sides = [self.field.sides[side] for side in np.flatnonzero(candidate.taken)]
        is_excused = any(
            _matches(side, glob) for side in sides for glob, _ in self.opener.case.judging.unreached
        )
        return is_excused and not self._is_wrong_beside(candidate, wrong)

    def wrong_pairs(self, at_point: Findings) -> dict[str, PairResult]:
        """Return the pairs that are wrong at a chosen point, by label; see `wrong_pairs`."""
        return wrong_pairs(at_point, self.findings, hides_terms=self.field.calls_python)

    def _is_wrong_beside(self, candidate: Candidate, wrong: set[str], spreads: float = _CLOSE) -> bool:
        """Whether the same pairs are wrong beside a point, by up to this many spreads in each component."""
        beside = self.judge_at(_point_at(self._moved(candidate.point, np.array([spreads])), 0))
        return beside is None or bool(wrong & self.wrong_pairs(beside).keys())

    def _describe_where(self, candidate: Candidate, wrong: set[str]) -> str:
        """Say what is special at a wrong point, if the gradient is right beside it."""
        text = self.mixed.describe_specials(candidate.point)
        if not text or self._is_wrong_beside(candidate, wrong):
            return ""
        return (
            f"; only where {text}: it is right as soon as these values move. Either a guard for this value "
            "is wrong, or the value is meant, as a mask is: then excuse its side with unreached, or keep it "
            "out with away_from"
        )

    def add_to_findings(self) -> None:
        """Let the findings say what is wrong."""
        if self.wrong is None:
            return
        at_point, note = self.wrong.findings, self.wrong.note
        wrong = self.wrong_pairs(at_point)
        self.findings.pairs = tuple(
            with_note(replace(wrong[pair.label], order=self.order), pair, note)
            if pair.label in wrong and pair.order == self.order and pair.status is Status.PASSED
            else pair
            for pair in self.findings.pairs
        )
        failed = {} if wrong else failed_checks(at_point, self.findings)
        self.findings.checks = (
            *(check for check in self.findings.checks if check.name not in failed),
            *(replace(check, message=f"{check.message}; {note}") for check in failed.values()),
        )


def failed_checks(at_point: Findings, at_samples: Findings) -> dict[str, CheckResult]:
    """Return the structural checks that fail at a chosen point, and not at the sample points, by name."""
    told = {check.name for check in at_samples.checks if check.status is Status.MISMATCHED}
    failed = [check for check in at_point.checks if check.status is Status.MISMATCHED]
    return {check.name: check for check in failed if check.name not in told}


def wrong_pairs(
    at_point: Findings, at_samples: Findings, *, hides_terms: bool = False
) -> dict[str, PairResult]:
    """Return the pairs that are wrong at a chosen point, by label.

    A pair isn't wrong if its output doesn't move there at all, and its gradient is negligible beside what is
    allowed at the sample points: `1 + erf(x)` is 0 below -5.9, and its right gradient isn't quite zero. Nor
    if all slopes are so small that the output underflows at a tiny point, nor if the forward's values are
    others in float64 there, as where the cubes in a norm underflow: it is judged in less precision then.

    Args:
        hides_terms: whether Python code computes a part of the output: the terms of its sums aren't seen, so
            its rounding may be as large as at the sample points, and so may what it does to a slope.
    """
    numbers = {pair.label: pair.numbers for pair in at_samples.pairs}
    rounding = {pair.label: _unit_roundoff(pair) for pair in at_samples.pairs}

    def is_nothing(pair: PairResult) -> bool:
        of_samples, worst = numbers.get(pair.label, PairNumbers()), pair.numbers.worst
        if pair.mismatch != "value" or worst is None:
            return False
        largest = pair.numbers.max_abs_error
        if worst.numeric == 0 and largest <= max(_NOTHING * of_samples.allowed, _UNDERFLOWS):
            return True
        return hides_terms and largest <= min(of_samples.uncertainty, of_samples.allowed)

    return {
        pair.label: pair
        for pair in at_point.pairs
        if pair.status is Status.MISMATCHED
        and _unit_roundoff(pair) <= rounding.get(pair.label, np.inf)
        and not is_nothing(pair)
    }


def _unit_roundoff(pair: PairResult) -> float:
    return precision_of(pair.numeric.reference_dtype).unit_roundoff


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
    from gradcheck_cli.tensorflow_backend.traces.state import at_values

    base: Any = opener.open(Opening(0))
    opener.state.chosen[sample] = tuple(
        np.asarray(point.get(input_index, value)) for input_index, value in enumerate(base.point)
    )
    for key in [key for key in opener.state.draws if key[0] == 0]:
        opener.state.draws[sample, key[1]] = opener.state.draws[key]  # the draws are those of the first point
    count = base.traced.at.count
    variables = {index - count: np.asarray(value)[None] for index, value in point.items() if index >= count}
    case = first_order_alone(opener.case, frozenset(CHECKS) - checks)
    with at_values(base.traced.variables, variables) as rows:
        next(rows)
        return check_case(case, opener, [sample])


def with_note(wrong: PairResult, pair: PairResult, note: str) -> PairResult:
    """Return the result at another point with a note that says so, and with the pair's own fingerprint."""
    return replace(wrong, fingerprint=pair.fingerprint).explained(*wrong.cause.diagnosis, note)


def _note_on(sides: Sequence[str]) -> str:
    """Say why a point was chosen."""
    if not sides:
        return "at a point where gradient and differences disagree; right at the sample points"
    more = f" and {len(sides) - _NAMED} more" if len(sides) > _NAMED else ""
    names = ", ".join(sides[:_NAMED]) + more
    return f"at a point that was chosen to see {names}; right at the sample points"


def _label(side: Side) -> str:
    """Return the name of a side, as `Branch.label` gives it."""
    return Branch(*side[0], (), ()).label(side[1])


def _matches(side: Side, glob: str) -> bool:
    """Whether an excuse is for a side, however often that was seen."""
    return bool(with_excuses(Branch(*side[0], (side[1],), ()), [(glob, "")]).excused)


def _pad(taken: Array, sides: Array) -> Array:
    """Return which sides a point takes, of those that are known by now."""
    return np.pad(taken, (0, len(sides) - len(taken)))


def _point_at(points: Point, row: int | np.integer[Any]) -> dict[int, Array]:
    """Return one of some stacked points."""
    return {input_index: np.asarray(stack[row]) for input_index, stack in points.items()}


def _stacked(point: Point) -> dict[int, Array]:
    return {input_index: np.asarray(value)[None] for input_index, value in point.items()}
