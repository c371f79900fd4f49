"""Points beside a case's sample points: one stream of values, and one judge.

Many points are looked at in a few calls. Those at which gradient and differences disagree go to the judge.
Only the judge says what is wrong, and only mismatches count: the spec didn't ask for these points. What lies
farther than the spec says, or would be drawn, is a question about the range.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops.operation import GradientFormError, open_operations
from gradcheck_cli.checking.pairs.pair import Rule, label_of, pair_keys
from gradcheck_cli.checking.sample_point import report_progress
from gradcheck_cli.checking.verdicts.chosen_points import (
    are_at_pole,
    failed_checks,
    have_derivative,
    least_share,
    with_notes,
    wrong_pairs,
)
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.features.search.branches.graph_branches import Side
from gradcheck_cli.features.search.branches.point_field import Draws, PointField, matches, name_of, suspect
from gradcheck_cli.features.search.mixed_points import CLOSE, MixedPoints
from gradcheck_cli.results import GREEN, PairResult, Status
from gradcheck_cli.running.limits import times_of
from gradcheck_cli.spec.case import first_order_alone
from gradcheck_cli.spec.values.moves import (
    MOVED_ALIKE,
    describe_structures,
    describe_values,
    enlarge,
    moves,
    negate,
    rearrange,
    turn,
    value_beside,
)
from gradcheck_cli.spec.values.points import describe_point, point_lines, point_text
from gradcheck_cli.spec.words import CHECKS
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.openers import CaseOpener
from gradcheck_cli.visible import join_first

Array = np.ndarray[Any, Any]
Point = Mapping[int, Array]

_SUSPICIOUS = 3e-5  # the least relative disagreement of gradient and differences that is judged
_USUAL = 30.0  # times their disagreement at most points, where all is right
_JUDGED = 10**9  # where the indices of judged points start
_SPECIALS = 64  # values, the general ones first
# A point with many components at kinks (a zero among zeros counts twice) is made to have fewer, in so many
# ways, and so often. Fewer, the judge sees; and a matrix of a few zeros must stay one.
_MANY, _WAYS, _ROUNDS = 24, 60, 3
CLEAR = 0.01  # of a slope: less may be an iteration that converges less well there
_NEARER = 24  # points that are judged to find one nearer to the sample point
_NAMED = 3  # weights in a question
_HALVINGS = 10  # of the distance that is left then, to 1 per mille of it
_DIGITS = (0, 1, 2, 3, 6)  # decimals, the simplest first
# What the judge may evaluate until a gradient is wrong, in points: so many times what the case's own check
# has evaluated, or so many if they are quick. Wrong gradients take up to 25 times as many where all elements
# are in doubt, and thousands where elements are tied. A judgement that takes more says nothing.
_TIMES, _QUICK, _LONG = 8, 2**14, 10.0
_ONLY_WHERE = (
    "only where {}: it is right as soon as these values move. Either a guard for this value is wrong, or the "
    "value is meant, as a mask is: then keep it out, with min_gap where values are equal, and with away_from "
    "for any other"
)
# Other values that weights may take: how, where that is in words, and what is asked if the gradient is wrong.
_OTHER_WEIGHTS = (
    (
        turn,
        "with the other sign of {}",
        (
            "If {name} can be {sign}, that is a fault. If not, say so: "
            "`variables: {{{name}: {{domain: {{{end}: 0}}}}}}`."
        ),
    ),
    (
        enlarge,
        "with {} four times as large",
        (
            "If {name} can be so large, that is a fault. If not, say so: "
            "`variables: {{{name}: {{domain: {{low: -{most:g}, high: {most:g}}}}}}}`."
        ),
    ),
    (
        negate,
        "with {} negated, and its smallest element 0,",
        (
            "If {name} can be so, that is a fault. If not, say so: "
            "`variables: {{{name}: {{move: false, reason: ...}}}}`."
        ),
    ),
)
RIGHT = GREEN | {Status.SKIPPED}
# What may be decided at other values: `a % b` jumps close to most points.
_OPEN = frozenset({"staircase", "unresolved", "jump", "ties", "probe"})
ERRORS = (CaseFailedError, CaseSkippedError, GradientFormError, clock.OverWorkError)


@dataclass(frozen=True)
class Candidate:
    """A point for the judge."""

    point: Point  # the inputs that differ from the first sample point
    taken: frozenset[Side] = frozenset()  # the sides that it takes
    is_spoilt: bool = False  # whether the gradient isn't finite there
    # The least comes first: whether it is far, whether it is not spoilt, how many components may be at kinks,
    # in units of `_MANY`, and how little the gradient disagrees.
    rank: tuple[bool, bool, int, float] = (False, False, 0, 0.0)
    may_have_kink: bool = False


@dataclass(frozen=True)
class WrongPoint:
    """A point that was judged, and what is wrong there."""

    point: Point
    findings: Findings  # the judge's
    pairs: Mapping[str, PairResult]  # those that are wrong, by label
    note: str = ""  # what is special there
    is_alone: bool = False  # whether all is right as soon as its values move
    question: str = ""  # whether it can be there, if the spec doesn't say so
    where: str = ""  # in words; empty if the point says it

    @property
    def off(self) -> float:
        """How far it is off, as a share of a slope; 0 where that is no number."""
        return max((pair.relative_error or 0.0 for pair in self.pairs.values()), default=0.0)


@dataclass
class Exploration:
    """The points of one case, or of its vjp as a case of its own."""

    opener: CaseOpener  # opens the case
    findings: Findings  # what its sample points showed
    first: Any  # the op at the first sample point
    until: float = math.inf  # when a search is over, by `clock.now`; infinite if this is none
    evaluated: float = math.inf  # how many points the case's own check has evaluated, if this is no search
    of: Exploration | None = None  # that of the case, where this is its vjp's
    points: int = 0  # how many points were looked at
    judged: int = 0  # how many of them went to the judge
    each: float = 0.0  # how many seconds a point took in the last call
    pace: float = 0.0  # how many seconds each evaluation for it took
    spent: int = 0  # how many points the judge evaluated, until a gradient was wrong
    largest: float = 0.0  # the largest disagreement of gradient and differences
    spoilt: int = 0  # at how many points the gradient wasn't finite, although the function was
    wrong: WrongPoint | None = None  # a point at which a gradient is wrong
    is_finite: bool = True  # whether the function was finite at one of the points of the last call

    def __post_init__(self) -> None:
        """Find the branches, and open what is differenced.

        Raises:
            CaseFailedError: a call raises.
        """
        case = self.opener.case
        self.mixed = MixedPoints(case, self.first.point, self.first.facts.low_precision)
        self.seed = case.seed, 1, zlib.crc32(f"{case.op} {case.name}".encode())
        self.generator = np.random.default_rng(self.seed)
        self.explored = 0  # how often points were explored
        opened: Any = self.findings.operations
        if opened is None or opened.declared is not self.first:
            opened = open_operations(case, self.opener, 0, self.first)
        self.field = PointField(self.first, opened.formula)
        self.differenced: Any = opened.differenced
        # In float16 the square of 1e-4 is 0, so that points near zero say nothing of the formula.
        inside = opened.formula.facts.low_precision
        self.is_narrow = "float16" in {*inside, *(tensor.dtype for tensor in case.tensors)}
        # Where values are held, differences at another point are those of another function.
        self.may_compare = bool(self.mixed.differenced.size) and not self.first.facts.held_places
        self.base: Sequence[Array] = self.first.point
        shares = (least_share(part.info.dtype) for part in self.mixed.differenced.parts)
        self.least = min(shares, default=0.0)  # the part of a slope that counts
        self.order = 1 if self.of is None else 2
        own = [pair for pair in self.findings.pairs if pair.order == self.order]
        judged = {pair.label for pair in own if pair.status in (Status.PASSED, Status.MISMATCHED)}
        self.is_tested = bool(judged)
        self.labels = judged | {pair.label for pair in own if is_open(pair)}
        self.has_open = any(map(is_open, self.findings.pairs))
        self.within: set[Side] = set()  # sides that ordinary points take, inside of what the spec states
        # Weights and stated values, moved: what a 0 switches off isn't seen at any value of the other inputs.
        # A gradient may rely on any one of several structures that stated values have: then they stay.
        is_known = len(describe_structures(case)) <= 1
        self.moved: Point = {
            index: self.opener.state.value_of(tensor, 1)
            if tensor.is_variable
            else value_beside(case, tensor, MOVED_ALIKE)
            for index, tensor in enumerate(case.tensors)
            if (is_known and moves(tensor)) or (tensor.is_variable and not tensor.keeps)
        }

    @property
    def is_search(self) -> bool:
        """Whether time limits it, and TensorFlow's own gradient at a single value counts."""
        return not math.isinf(self.until)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.until - clock.now()

    def _timer(self) -> Callable[[], float]:
        """Return what tells how many seconds of work have passed since now.

        Sleep counts where Python code is called: a NumPy function may wait for another program.
        """
        if not self.field.calls_python:
            began = clock.now()
            return lambda: clock.now() - began
        start, times = time.monotonic(), times_of(os.getpid())
        return lambda: times_of(os.getpid()).own_seconds(times, time.monotonic() - start)

    # Looking at points.

    def see_samples(self, samples: Sequence[int]) -> None:
        """Count the sides that the sample points take, if a pair passed there.

        Raises:
            CaseFailedError: a call raises.
        """
        if not (self.mixed.moving or self.field.sides or self.field.calls_python):
            return  # there are no sides, and no other points to look at
        for sample in samples:
            timer = self._timer()
            with self.opener.at(sample):
                looked = self.field.look(self.opener.drawn(sample), 1, Draws(self.seed, sample))
            self.each = min(self.each or math.inf, timer())
            self.within |= looked.sides([0])
        self.field.seen |= self.within if self.is_tested else set()

    def excuse_faults(self) -> Iterator[str]:
        """Yield which excuses for unseen sides aren't true, in words."""
        for glob, reason in self.opener.case.judging.unreached:
            excused = [side for side in self.field.sides if matches(side, glob)]
            taken = [name_of(side) for side in excused if side in self.within]
            told = "no branch has such a side. Correct the name, or drop the excuse"
            if taken:
                told = f"inputs take {taken[0]} within what the spec states. Drop the excuse"
            if taken or not (excused or self.field.unknown):
                yield f"{glob!r} ({reason}): {told}"

    def make_points(self, count: int, batch: int) -> dict[int, Array]:
        """Return a batch of mixed points, (B, *shape) by the input's index, in any order."""
        self.mixed.add_specials(self.field.constants, _SPECIALS)
        return self.mixed.make(count, batch)

    def explore(self, batches: Iterable[dict[int, Array]], most: int) -> None:
        """Look at points, and judge what is suspicious.

        Right gradients disagree at kinks. So every other point is one without, where there is one. First, all
        batches are looked at: time decides how many there are, and must not decide which points are judged.

        Args:
            batches: points, (B, *shape) by the input's index.
            most: how many may have been judged then.
        """
        report_progress(1.0)
        candidates: list[Candidate] = []
        self.explored += 1
        draws = Draws((*self.seed, self.explored))
        for points in batches:
            count, timer = max(map(len, points.values()), default=0), self._timer()
            self.is_finite = not count
            with clock.count_work() as work:
                for constants in (self.moved, {}) if self.moved else ({},):
                    if not self.is_finite:
                        with suppress(*ERRORS):
                            candidates += self._look_with(constants, points, count, draws)
            took, draws = timer(), replace(draws, first=draws.first + count)
            self.each, self.pace = took / max(count, 1), took / max(work.points, 1)
        ranked = sorted(candidates, key=lambda candidate: candidate.rank)
        for _ in range(_ROUNDS):
            ranked = sorted([*ranked, *self._untie(ranked, draws)], key=lambda candidate: candidate.rank)
        queues = ([own for own in ranked if own.may_have_kink == kink] for kink in (False, True))
        order = [own for turn in zip_longest(*queues) for own in turn if own is not None]
        for candidate in order[: max(most - self.judged, 0)]:
            is_late = self.judged > 0 and self.left <= 0  # the first may always be judged
            if self.wrong or is_late or self.judge(candidate):
                return

    def _untie(self, ranked: Sequence[Candidate], draws: Draws) -> list[Candidate]:
        """Return points as suspicious as the first with many kinks, of which most components go home.

        The judge takes the longer, the more kinks there are, and gives up before he has seen dozens.
        """
        tied = next((candidate for candidate in ranked if candidate.may_have_kink), Candidate({}))
        if not tied.rank[2]:
            return []
        free = self.mixed.free
        constants = {index: tied.point[index] for index in self.moved.keys() & tied.point.keys()}
        stacks = {index: np.repeat(value[None], _WAYS, axis=0) for index, value in tied.point.items()}
        vectors, shares = free.pack(stacks), 0.5 ** self.generator.integers(1, 6, (_WAYS, 1))
        stays = self.generator.random(vectors.shape) < shares
        vectors = np.where(stays, vectors, free.vector(dict(enumerate(self.base))))
        with suppress(*ERRORS):
            return self._look_with(constants, free.unpack(vectors, stacks), _WAYS, draws)
        return []

    def ask_about_weights(self) -> None:
        """Look at weights of the other sign, and at larger ones; what is wrong there is a question.

        Training may take a slope or a gain below zero, and a matrix beyond the norm at which it is clipped.
        No spec says whether it may. Where the forward isn't finite so, as behind the root of a variance, each
        is changed by itself.
        """
        case, point = self.opener.case, dict(enumerate(self.base))
        arguments = {
            index: value[None] for index, value in point.items() if not case.tensors[index].is_variable
        }
        for change, where, question in _OTHER_WEIGHTS:
            own = {index: change(tensor) for index, tensor in enumerate(case.tensors)}
            changed = {index: value for index, value in own.items() if value is not None}
            self.is_finite = not changed
            for weights in (changed, *({index: value} for index, value in changed.items())):
                if self.wrong or self.is_finite:
                    break
                self.spent = 0  # a question has room of its own
                with suppress(*ERRORS):
                    for candidate in self._look_with(weights, arguments, 1, Draws(self.seed)):
                        self.judge(candidate)
                names = [case.tensors[index].name for index in sorted(weights)]
                first = point[min(weights)]
                end, sign = ("low", "negative") if first.flat[0] > 0 else ("high", "positive")
                most = float(f"{2 * np.abs(first).max():.1g}")
                self.wrong = self.wrong and replace(
                    self.wrong,
                    where=where.format(join_first(names, _NAMED)),
                    question=question.format(name=names[0], end=end, sign=sign, most=most),
                )

    def ask_about_constants(self) -> None:
        """Judge points where stated numbers that aren't differentiated are others; wrong there is a question.

        A gradient that assigns where it must add is right for indices of which no two are equal. What
        TensorFlow's own gradients do isn't asked about: that of an assignment is right for such ones alone.
        """
        case, point = self.opener.case, dict(enumerate(self.base))
        for index, tensor in enumerate(case.tensors):
            value = rearrange(case, tensor) if self.wrong is None else None
            if value is None or all(
                self.is_of_tensorflow(pair) for pair in self.findings.pairs if pair.label in self.labels
            ):
                continue
            self.spent = 0
            before = point[index]
            inverses = {  # of a permutation, which stay so
                at: np.argsort(value)
                for at, other in point.items()
                if np.array_equal(np.argsort(before), other) > np.array_equal(before, other)
            }
            self.judge(Candidate({**point, **inverses, index: value}))
            self.wrong = self.wrong and replace(
                self.wrong,
                question=f"If {tensor.name} can be so, that is a fault. If not, say so: "
                f"`{tensor.name}: {{move: false, reason: ...}}`.",
            )

    def _look_with(
        self, constants: Point, points: dict[int, Array], count: int, draws: Draws
    ) -> list[Candidate]:
        """Look at points with other values of some weights and stated values; see `_look_at`."""
        stacks = {index: np.broadcast_to(value, (count, *value.shape)) for index, value in constants.items()}
        with self.opener.moved_to(constants, _JUDGED), self.opener.at(_JUDGED):
            return self._look_at({**stacks, **points}, count, draws)

    def _look_at(self, points: dict[int, Array], count: int, draws: Draws) -> list[Candidate]:
        """Compare gradient and differences at some points; return those that disagree."""
        # The judge knows the values before rounding: probabilities sum to 1 there.
        inputs, tensors = self.first.inputs, self.opener.case.tensors
        rounded = {
            at: dtypes.widen(dtypes.narrow(stack, inputs[at].dtype))
            for at, stack in points.items()
            if not tensors[at].is_variable  # the function has that
        }
        looked = self.field.look(rounded, count, draws)
        self.points += count
        self.is_finite = bool(looked.is_finite.any())
        vectors = self.mixed.free.pack(points)
        if looked.taken:
            self.within |= looked.sides(self.mixed.are_ordinary(vectors))
        if not self.may_compare:
            return []
        free = self.mixed.differenced
        fixed = {
            part.index: np.broadcast_to(self.base[part.index], (count, *part.info.shape))
            for part in free.parts
            if part.is_constant
        }
        whole = replace(looked, points={**fixed, **points, **rounded})
        seen = suspect(self.differenced, whole, free, draws, self.mixed.specials)
        usual = float(np.median(seen.disagreement)) if count > 1 else 0.0  # of one point nothing is usual
        threshold = max(_SUSPICIOUS, min(_USUAL * usual, 0.1))
        self.largest = max(self.largest, float(seen.disagreement.max(initial=0.0)))
        self.spoilt += int(seen.is_spoilt.sum())
        # Where all slopes are tiny, so are errors: the judge would say that they can't matter.
        slopes = np.nan_to_num(seen.slope)
        matters = slopes > self.least * np.median(slopes) / np.maximum(seen.disagreement, threshold)
        disagrees = matters & (seen.disagreement > threshold) | seen.is_spoilt
        self.field.seen |= looked.sides(~disagrees) if self.is_tested else set()
        if self.has_open:  # only what would be drawn tells more than the sample points, and not beside a jump
            disagrees &= self.mixed.are_ordinary(vectors)
            seen.disagreement[:] = 0.0
        rows = np.flatnonzero(disagrees)
        own = vectors[rows]
        kinks = self.mixed.count_special(own, CLOSE)
        may_have_kink = seen.is_bent[rows] | (kinks > 0)
        is_far = (self.mixed.draw_near(own) != own).any(axis=1)  # beyond, it may be a question
        ranks = zip(is_far, ~seen.is_spoilt[rows], kinks // _MANY, -seen.disagreement[rows], strict=True)
        return [
            Candidate(
                {index: np.asarray(stack[row]) for index, stack in points.items()},
                looked.sides([row]),
                bool(seen.is_spoilt[row]),
                rank,
                kink,
            )
            for row, rank, kink in zip(rows, ranks, may_have_kink, strict=True)
        ]

    # Judging them.

    def judge(self, candidate: Candidate) -> bool:
        """Judge a point; return whether a pair is unexpectedly wrong there, and count its sides as tested."""
        room = max(_TIMES * self.evaluated, in_time(_QUICK, self.pace, _LONG)) - self.spent
        if room <= 0:
            return False
        with clock.count_work(room) as work:
            # A sum of upstreams shows what single elements hide, as where their maximum is taken at a tie.
            at_point = self._judge_at(
                candidate.point,
                frozenset(() if candidate.is_spoilt or self.is_narrow else {"linearity"}),
            )
        self.spent += work.points
        if at_point is None:
            return False
        is_wrong = bool(at_point.pairs or failed_checks(at_point.findings, self.findings))
        if is_wrong and not self._is_excused(candidate.taken, at_point):
            self.wrong = self._move(at_point)
            # What was moved may lie on an edge of where the gradient is wrong.
            if self.mixed.free.size and not any(map(self._is_wrong_beside, (at_point, self.wrong))):
                special = self.mixed.describe_specials(self.wrong.point)
                note = _ONLY_WHERE.format(special) if special else ""
                # Where two kinks meet, as a relu's does with that of a slope for what is below 0, values of
                # weights decide whether the gradient lies between the slopes on both sides.
                is_excused = self._has_moved(self.wrong) or are_at_pole(self.wrong.pairs, self.findings)
                is_fault = not is_excused and have_derivative(self.wrong.pairs, self.wrong.findings)
                self.wrong = replace(self.wrong, note=note, is_alone=True) if is_fault else None
        statuses = {pair.status for pair in at_point.findings.pairs}
        if self.wrong or (not at_point.pairs and Status.PASSED in statuses and statuses <= RIGHT):
            self.field.seen |= candidate.taken
        return self.wrong is not None

    def _judge_at(self, point: Point, checks: frozenset[str] = frozenset()) -> WrongPoint | None:
        """Return what the judge finds at a point; `None` if it can't be judged."""
        self.judged += 1
        at_point = None
        with suppress(*ERRORS):
            findings = check_at(self.opener, point, _JUDGED + self.judged, checks)
            pairs = wrong_pairs(findings, self.findings)
            own = {label: pairs[label] for label in pairs.keys() & self.labels}
            at_point = WrongPoint(point, findings, own)
        return at_point

    def _move(self, wrong: WrongPoint) -> WrongPoint:
        """Return a wrong point that is nearer to the first sample point, with its constants if it can."""
        if self.moved:
            unmoved = self._judge_at({**wrong.point, **{index: self.base[index] for index in self.moved}})
            wrong = wrong if unmoved is None or not unmoved.pairs else unmoved
        free, point = self.mixed.free, wrong.point
        if not free.size:
            return wrong
        start, home = free.vector(point), free.vector(dict(enumerate(self.base)))
        tries, least = _NEARER, 0.0

        def is_wrong(vector: Array) -> bool:
            nonlocal wrong, tries
            tries -= 1
            may_judge = tries >= 0 and self.left > 0
            at_point = self._judge_at(free.at(vector, point)) if may_judge else None
            if at_point is not None and at_point.pairs and at_point.off >= least:
                wrong = at_point
            return wrong is at_point

        # What is wrong within what would be drawn is no question about the range.
        near = self.mixed.draw_near(start[None])[0]
        start = near if not np.array_equal(near, start) and is_wrong(near) else start
        # An error may fade out on the way: it is shown where it is clear. If that is a question, it goes on:
        # what is wrong within what the spec says, however slightly, is none.
        points = []
        for least in dict.fromkeys((min(wrong.off, CLEAR), 0.0)):  # noqa: B007 (`is_wrong` reads it)
            tries = _NEARER
            shrink(start, home, is_wrong, free.draw_in)
            points.append(wrong)
            start = free.vector(wrong.point)
            if not self._ask_where(wrong):
                return wrong
        return points[0]

    def _ask_where(self, wrong: WrongPoint) -> str:
        """Ask whether an input goes as far as at a point, or as near to a special value; empty if it may."""
        return self.mixed.describe_range(wrong.point) or self.mixed.describe_nearness(
            wrong.point, self.base, is_alone=wrong.is_alone
        )

    def _is_excused(self, taken: frozenset[Side], at_point: WrongPoint) -> bool:
        """Whether what is wrong at a point is no finding, as it is right again beside it.

        The spec excuses sides that only special values take: those of a mask, say. And only a search reports
        what TensorFlow's own gradients do at single points. Equal rows make a matrix singular. Several ops
        that have a kink there don't add up to a slope: the gradient of Keras' CELU is 2 at 0. Others have
        guards: that of an SVD adds 1e-20 to squares, which is all of them for matrices of 1e-6. A spec that
        draws its values never reaches such a point, and its author wrote none of these gradients. Beside is a
        tenth of a spread away for them. What is finite in float64 is anybody's: in float16, `x * x` is too
        small, and the slope of a tangent too large.
        """
        globs = [glob for glob, _ in self.opener.case.judging.unreached]
        is_meant = any(matches(side, glob) for side in taken for glob in globs)
        if is_meant and not self._is_wrong_beside(at_point):
            return True
        pairs = [*at_point.pairs.values()] or at_point.findings.pairs
        if self.is_search:
            return False
        own = Rule.DECLARED.words
        is_rounded = all(pair.judged_by.not_float64 or own in pair.numbers.decided_by for pair in pairs)
        if is_rounded and all(pair.mismatch == "nonfinite" for pair in pairs):
            return True
        is_of_tensorflow = all(self.is_of_tensorflow(pair) for pair in pairs)
        return is_of_tensorflow and not self._is_wrong_beside(at_point, 0.1)

    def is_of_tensorflow(self, pair: PairResult) -> bool:
        """Whether no gradient of the user's is on a pair's path, or on any of the case whose vjp this is."""
        if self.of is not None:
            return all(self.of.is_of_tensorflow(own) for own in self.findings.pairs if own.order == 1)
        keys = {label_of(self.first, key): key for key in pair_keys(self.first)}
        return bool(self.first.facts.library_gradients(*keys[pair.label]))

    def _is_wrong_beside(self, at_point: WrongPoint, spreads: float = CLOSE) -> bool:
        """Whether the same pairs are wrong beside a point, by up to this many spreads in each component."""
        free = self.mixed.free
        here = free.vector(at_point.point)[None]
        signs = self.generator.choice([-1.0, 1.0], here.shape)  # what moves by less may be as wrong
        moved = here + spreads * free.spreads * signs * self.generator.uniform(0.5, 1, here.shape)
        # A limit throws components back.
        inside = free.clip(2 * free.clip(moved) - moved)[0]
        beside = self._judge_at(free.at(inside, at_point.point))
        return beside is None or bool(at_point.pairs.keys() & beside.pairs.keys())

    def _has_moved(self, wrong: WrongPoint) -> bool:
        """Whether weights or stated values aren't what they are at the first sample point."""
        return any(
            not np.array_equal(wrong.point.get(index, self.base[index]), self.base[index])
            for index in self.moved
        )

    def add_to_findings(self) -> None:
        """Let the findings say what is wrong; or ask about it, if it is farther out than the spec says."""
        if self.wrong is None:
            return
        at_point, case, wrong = self.wrong.findings, self.opener.case, self.wrong.pairs
        point, question = describe_point(case, self.base, self.wrong.point), self.wrong.question
        if not (question or self.is_search):
            question = self._ask_where(self.wrong)
        if question:
            kind = "not finite" if any(pair.mismatch == "nonfinite" for pair in wrong.values()) else "wrong"
            off = f"off by {100 * self.wrong.off:.3g} %" if self.wrong.off else kind
            said = self.wrong.where or f"at {point_text(point)}"
            question = f"right at the sample points; {said} the gradient is {off}. {question}"
        so_far = "undecided" if self.has_open else "right"
        values = [self.wrong.point.get(index, value) for index, value in enumerate(self.base)]
        weights = describe_values(case, self.base, values)
        where = f", with {weights}" if weights else ""
        note = f"at a point where gradient and differences disagree{where}; {so_far} at the sample points"
        lines = [note, *([self.wrong.note] if self.wrong.note else []), *point_lines(case, point)]
        # One question for each case.
        worst = max(wrong, key=lambda label: wrong[label].error) if wrong else min(self.labels)
        told = {worst} if question else wrong.keys()

        def judged(pair: PairResult) -> PairResult:
            is_concerned = pair.label in told and pair.order == self.order
            if not is_concerned or not (pair.status is Status.PASSED or is_open(pair)):
                return pair
            if not question:
                return with_notes(replace(wrong[pair.label], order=self.order), pair, *lines, point=point)
            cause = replace(pair.cause, point=point, diagnosis=tuple(point_lines(case, point)))
            return replace(
                pair,
                status=Status.INCONCLUSIVE,
                undecided="range",
                message=question,
                cause=cause,
                numbers=wrong.get(pair.label, pair).numbers,
            )

        self.findings.pairs = tuple(map(judged, self.findings.pairs))
        failed = {} if wrong or question else failed_checks(at_point, self.findings)
        self.findings.checks = (
            *(check for check in self.findings.checks if check.name not in failed),
            *(replace(check, message="; ".join([check.message, *lines])) for check in failed.values()),
        )


def in_time(count: int, each: float, seconds: float) -> int:
    """Return a number of points, or a quarter or a sixteenth of it if they would take too long.

    In such steps, what else the machine does changes little.
    """
    return int(count / 4 ** math.ceil(math.log(max(each * count / seconds, 1.0), 4)))


def shrink(
    vector: Array, home: Array, is_wrong: Callable[[Array], bool], clip: Callable[[Array], Array]
) -> Array:
    """Return a point, (n,), that is wrong, too.

    Components are moved to where they should be, many at once and then one by one. What is left is halved,
    and then rounded.

    Args:
        vector: the point, (n,).
        home: where components should be, (n,).
        is_wrong: asks the judge; returns False once the time is up.
        clip: moves points, (B, n), into the allowed range.
    """
    best = vector

    def attempt(other: Array) -> bool:
        nonlocal best
        allowed = clip(other[None])[0]
        is_better = not np.array_equal(allowed, best) and is_wrong(allowed)
        best = allowed if is_better else best
        return is_better

    span, places = len(vector), np.arange(len(vector))
    while span:
        for start in range(0, len(vector), span):
            attempt(np.where((places >= start) & (places < start + span), home, best))
        span //= 2
    share = 0.5
    for _ in range(_HALVINGS):
        is_nearer = attempt(home + (best - home) * share)
        share = share if is_nearer else (1 + share) / 2
    any(attempt(np.where(best == home, best, np.round(best, digits))) for digits in _DIGITS)
    return best


def is_open(pair: PairResult) -> bool:
    """Whether a pair is undecided, and what was found differs from its gradient."""
    is_undecided = pair.status is Status.INCONCLUSIVE and pair.undecided in _OPEN
    return is_undecided and pair.order == 1 and pair.error > pair.bound


def check_at(opener: CaseOpener, point: Point, sample: int, checks: frozenset[str] = frozenset()) -> Findings:
    """Judge a case at a given point, without most structural checks.

    Those concern the op, whatever the point, and were made at the samples.

    Args:
        point: the inputs that differ from the first sample point, by index.
        sample: an index for the point that no other point has.
        checks: the structural checks to make all the same.

    Raises:
        CaseFailedError: the case can't be checked there.
    """
    case = first_order_alone(opener.case, frozenset(CHECKS) - checks)
    with opener.moved_to(point, sample), opener.at(sample):
        return check_case(case, opener, [sample])
