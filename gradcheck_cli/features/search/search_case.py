"""Search a case for a point at which its gradient is wrong.

Thousands of points are looked at in batches. A point goes to the judge if it takes an unseen side, if its
gradient disagrees most with differences, or if its gradient isn't finite. Only the judge says what is wrong.
A wrong point is shrunk by judging simpler ones.
"""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.ops.operations import open_operations
from gradcheck_cli.covered import side_counts
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.features.search.chosen_points import RIGHT, check_at, replace_if_wrong, wrong_pairs
from gradcheck_cli.features.search.shrinking import shrink
from gradcheck_cli.features.search.suspicion import suspect
from gradcheck_cli.results import Counterexample, SearchResult, Status
from gradcheck_cli.spec.values import candidates
from gradcheck_cli.spec.values.distributions import distribution_of
from gradcheck_cli.spec.values.free_inputs import FreeInputs
from gradcheck_cli.spec.values.patterns import make_patterns
from gradcheck_cli.spec.yaml_tree import as_flow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.checking.examine import Findings
    from gradcheck_cli.features.search.branches.choosing import PointChooser
    from gradcheck_cli.features.search.branches.pace import Pace
    from gradcheck_cli.features.search.branches.point_field import Looked
    from gradcheck_cli.features.search.branches.sides import Sides
    from gradcheck_cli.features.search.suspicion import Suspicion
    from gradcheck_cli.spec.case import Case, InputSpec
    from gradcheck_cli.tensorflow_backend.opening.case_opener import GraphOpener

    Array = np.ndarray[Any, Any]
    Point = Mapping[int, Array]

_START = 1_000  # candidates that are left to `run`
_JUDGED = 10**9  # where the numbers of judged points start
_DRAWN = 32  # points drawn anew in each round
_BATCH = 256
_PYTHON = 24  # points of a round if Python code is traced line by line
_SUSPICIOUS = 1e-4  # the least relative disagreement of gradient and differences that is judged
_USUAL = 30.0  # times their disagreement at the sample points, where all is right
_AGAIN = 3  # points with the same sides that may be judged without a finding
_EACH = 4  # points that are judged in a round for each reason
_STEERED = 20_000  # points that steering may look at in a round
_SHRINKING = 10.0  # seconds
_LONGER = 0.1  # shrinking may take this share of the search time in addition
_CALIBRATING = 8  # points
_JUDGED_PAIRS = frozenset({Status.PASSED, Status.MISMATCHED})
_ELITE = 16  # points that later rounds start from


@dataclass
class CaseSearch:
    """A search of one case.

    Attributes:
        opener: opens the case.
        findings: what its sample points showed.
        sides: the branches, and which sides were seen.
        pace: how long to search.
        judgement: how many seconds it takes to judge a point.
        points: how many points were looked at.
        judged: how many of them went to the judge.
        largest: the largest disagreement of gradient and differences.
        spoilt: at how many points the gradient wasn't finite, although the function was.
        wrong: the judge's findings at a wrong point.
        worst: that point.
        in_vain: how often the judge found nothing at points with the same sides, by reason and sides.
        first: the op at the first sample point.
        counterexample: the wrong point, shrunk.
    """

    opener: GraphOpener
    findings: Findings
    sides: Sides
    pace: Pace
    judgement: float = 0.0
    points: int = 0
    judged: int = 0
    largest: float = 0.0
    spoilt: int = 0
    wrong: Findings | None = None
    worst: dict[int, Array] = field(default_factory=dict)
    in_vain: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    first: Any = None
    counterexample: Counterexample | None = None

    def __post_init__(self) -> None:
        """Open what is differenced at the first sample point."""
        case = self.opener.case
        self.first = self.findings.first
        self.stated = bool(self.first.low_precision)
        self.free = FreeInputs.of(case, as_stated=self.stated)
        self.generator = np.random.default_rng([case.seed, 1, zlib.crc32(f"{case.op} {case.name}".encode())])
        self.differenced: Any = open_operations(case, self.opener, 0, self.first).differenced
        self.elite: list[Array] = []
        self.threshold = _SUSPICIOUS * (100.0 if self.stated else 1.0)

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or something was found."""
        return self.wrong is not None or self.pace.left <= 0

    @property
    def may_judge(self) -> bool:
        """Whether there is time to judge another point; the first may always be judged."""
        return not self.is_over and (self.judged == 0 or self.judgement <= self.pace.left)

    def run(self) -> SearchResult:
        """Search, and add what is found to the findings."""
        self._calibrate()
        round_index = 0
        while not self.is_over and self.free.size:
            with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
                self._round(round_index)
            round_index += 1
        if self.wrong is not None:
            self.counterexample = self.shrink_worst()
        seen, sides = side_counts(self.sides.branches(self.opener.case.unreached))
        return SearchResult(
            self.pace.elapsed,
            self.points,
            self.judged,
            seen,
            sides,
            self.largest,
            self.spoilt,
            self.counterexample,
        )

    def _calibrate(self) -> None:
        """Measure how much gradient and differences disagree where all is right, as with a held stop."""
        with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            seeds = range(max(1, self.pace.batch(_CALIBRATING)))
            _, suspicion = self._compare(self.first.traced.at.stacked(seeds), seeds)
            usual = float(np.median(suspicion.disagreement))
            self.threshold = max(self.threshold, _USUAL * usual)

    def _round(self, round_index: int) -> None:
        wanted = self.sides.wanted(self.opener.case.unreached)
        if wanted.any():
            self._steer(wanted, round_index)
            if self.is_over:
                return
        points = self._make_points(round_index)
        count = len(next(iter(points.values())))
        looked, suspicion = self._compare(points, range(round_index, round_index + count))
        self.points += count
        self.largest = max(self.largest, float(suspicion.disagreement.max(initial=0.0)))
        self._keep_elite(points, looked.taken, suspicion.disagreement)
        self.spoilt += int(suspicion.is_spoilt.sum())
        order = np.argsort(-suspicion.disagreement)
        for reason, rows in (
            ("spoilt", np.flatnonzero(suspicion.is_spoilt)),
            ("off", [row for row in order if suspicion.disagreement[row] > self.threshold]),
            ("side", np.flatnonzero((looked.taken & wanted).any(axis=1))),
        ):
            judged = 0
            for row in rows:
                key = reason, looked.taken[row].tobytes()
                if judged == _EACH or not self.may_judge:
                    break
                if self.in_vain[key] < _AGAIN:
                    judged += 1
                    self.judge(_point_at(points, row), looked.taken[row], key)

    def _compare(self, points: Point, seeds: Sequence[int]) -> tuple[Looked, Suspicion]:
        """Compare gradients with differences at some points."""
        with self.pace.timed(len(seeds)):
            looked = self.sides.field.look(points, seeds, pulls=True)
            return looked, suspect(self.differenced, looked, points, self.free, self.generator)

    def _draw(self, round_index: int) -> dict[int, Array]:
        """Draw a round's points as the spec says."""
        indices = candidates.list_candidates(
            as_stated=self.stated, start=_START + round_index * candidates.COUNT
        )
        drawn: dict[int, Array] = self.first.traced.at.stacked(indices[:_DRAWN])
        return drawn

    def _make_points(self, round_index: int) -> dict[int, Array]:
        """Draw points, make patterns of most of them, and move some that were promising."""
        drawn = self._draw(round_index)
        most = _PYTHON if self.sides.field.python else min(_BATCH, max(2, self.sides.field.most))
        most = max(1, self.pace.batch(most))
        rows = np.arange(most) % _DRAWN
        points = {input_index: stack[rows] for input_index, stack in drawn.items()}
        vectors = self.free.pack(points)
        vectors[most // 8 :] = make_patterns(
            self.free, vectors[most // 8 :], self.generator, self.sides.field.constants
        )
        if self.elite and most // 4:
            moved = slice(most - most // 4, most)
            chosen = self.generator.integers(len(self.elite), size=most // 4)
            sizes = 10.0 ** self.generator.uniform(-6, 1, (most // 4, 1)) * self.free.spreads
            share = self.generator.random((most // 4, self.free.size)) < 0.5  # noqa: PLR2004 (half)
            vectors[moved] = np.array([self.elite[index] for index in chosen]) + np.where(
                share, sizes * self.generator.standard_normal(share.shape), 0.0
            )
        return self.free.unpack(self.free.clip(vectors), self.free.others(points))

    def _keep_elite(self, points: Point, sides_taken: Array, disagreement: Array) -> None:
        """Keep the points that take rare sides, or disagree most."""
        vectors = self.free.pack(points)
        rarity = sides_taken.mean(axis=0)
        rare = np.flatnonzero((rarity > 0) & (rarity < 0.05))  # noqa: PLR2004 (one in twenty)
        rows = [int(np.argmax(sides_taken[:, side])) for side in rare[:4]] + [int(np.argmax(disagreement))]
        self.elite = [*(vectors[row] for row in rows), *self.elite][:_ELITE]

    def _steer(self, wanted: Array, round_index: int) -> None:
        """Steer towards sides that no point has taken."""
        chooser = self._make_chooser(wanted, round_index)
        most = chooser.left
        for side in np.flatnonzero(wanted):
            if self.is_over:
                return
            if self.sides.seen[side]:
                continue
            if not chooser.is_found(int(side)) and chooser.left > 0:
                chooser.steer(int(side), 24)
                self.points += most - chooser.left
                most = chooser.left
            for find in chooser.finds.get(int(side), []):
                key = "side", bytes([side % 256])
                if self.in_vain[key] < 2 * _AGAIN and self.may_judge and not self.sides.seen[side]:
                    self.judge(find.point, find.taken, key)

    def _make_chooser(self, wanted: Array, round_index: int) -> PointChooser:
        from gradcheck_cli.features.search.branches.choosing import PointChooser

        most = min(_STEERED // 16 if self.sides.field.python else _STEERED, self.sides.field.most)
        most = max(1, self.pace.batch(most))
        chooser = PointChooser(self.sides.field, self.opener.case, wanted, as_stated=self.stated, most=most)
        chooser.generator = self.generator
        most_at_once = min(_PYTHON if self.sides.field.python else _BATCH, most)
        chooser.look_around(self._draw(round_index), most_at_once)
        self.points += most - chooser.left
        return chooser

    def judge_samples(self, samples: Sequence[int]) -> bool:
        """Judge sample points until one is wrong; return whether one is."""
        for sample in samples:
            points = self.first.traced.at.stacked([sample])
            if points and self.judge(_point_at(points, 0), self.sides.seen):
                return True
        return False

    def judge(self, point: Point, sides_taken: Array, key: tuple[str, bytes] = ("", b"")) -> bool:
        """Judge one point; return whether a pair is unexpectedly wrong there."""
        self.judged += 1
        at_point = None
        before = self.pace.clock()
        with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            at_point = check_at(self.opener, point, _JUDGED + self.judged)
        self.opener.state.chosen.pop(_JUDGED + self.judged, None)
        self.judgement = max(self.pace.clock() - before, self.judgement / 2)
        judged_labels = {pair.label for pair in self.findings.pairs if pair.status in _JUDGED_PAIRS}
        if at_point is not None and judged_labels & wrong_pairs(at_point, self.findings).keys():
            self.wrong = at_point
            self.worst = {input_index: np.asarray(value) for input_index, value in point.items()}
            return True
        self.in_vain[key] += 1
        if at_point is not None and at_point.pairs and all(pair.status in RIGHT for pair in at_point.pairs):
            self.sides.seen |= sides_taken
        return False

    @property
    def is_wrong_in_values(self) -> bool:
        """Whether some gradient has the right form but wrong values."""
        pairs = () if self.wrong is None else wrong_pairs(self.wrong, self.findings).values()
        return any(pair.mismatch in ("value", "nonfinite") for pair in pairs)

    def shrink_worst(self) -> Counterexample:
        """Shrink the wrong point, and describe the result."""
        left = min(_SHRINKING, max(self.pace.left, _LONGER * self.pace.seconds))
        until = self.pace.clock() + left
        stacked = {input_index: value[None] for input_index, value in self.worst.items()}
        others = self.free.others(stacked)
        no_sides = np.zeros(len(self.sides.seen), bool)

        def is_wrong(vector: Array) -> bool:
            if self.pace.clock() + self.judgement > until:
                return False
            point = self.free.unpack(vector[None], others)
            return self.judge(_point_at(point, 0), no_sides)

        shrink(self.free.pack(stacked)[0], is_wrong, self.free.clip)
        return describe_point(self.opener, self.worst)


def _point_at(points: Point, row: int | np.integer[Any]) -> Point:
    """Return one of some stacked points."""
    return {input_index: stack[row] for input_index, stack in points.items()}


def describe_point(opener: GraphOpener, point: Point) -> Counterexample:
    """Describe a point: the name, dtype and values of each drawn input."""
    tensors = opener.case.tensors
    return Counterexample(
        tuple(
            (tensors[input_index].name, as_flow(_to_plain(value)))
            for input_index, value in sorted(point.items())
        )
    )


def _to_plain(value: Array) -> object:
    if value.dtype.kind == "c":
        texts = np.array([str(element).strip("()") for element in value.ravel()], object)
        return texts.reshape(value.shape).tolist()
    return value.tolist()


def search(
    opener: GraphOpener, samples: Sequence[int], findings: Findings, seconds: float, spent: float
) -> bool:
    """Search a case, and add the result to its findings. If a sample point is wrong already, shrink that.

    Args:
        opener: opens the case.
        samples: the indices of the sample points.
        findings: what the sample points showed; changed.
        seconds: how long to search.
        spent: how many seconds the samples took.

    Returns:
        Whether the case could be searched; if not, its findings say why.
    """
    from gradcheck_cli.features.search.branches.pace import Pace
    from gradcheck_cli.features.search.branches.sides import Sides

    first: Any = findings.first
    reason = _explain_refusal(opener, findings)
    if reason:
        findings.search = SearchResult(0.0, 0, 0, refused=reason)
        return False
    with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
        pace = Pace(seconds)
        sides = Sides(first)
        sides.field.pace = pace
        sides.see(samples)
        # The batch of one comes last, and takes about as long as the case did.
        last = 0.0 if spent > seconds else min(spent, seconds / 2)
        pace.seconds -= last
        case_search = CaseSearch(opener, findings, sides, pace, spent / len(samples))
        if any(pair.status is Status.MISMATCHED for pair in findings.pairs):
            case_search.judge_samples(samples)
        findings.search = case_search.run()
        if case_search.wrong is None and last:
            case_search = _search_one_row(case_search, last) or case_search
            findings.search = replace(
                findings.search, found=case_search.counterexample, judged=case_search.judged
            )
        if case_search.wrong is not None:
            wrong = wrong_pairs(case_search.wrong, findings)
            note = "at a point that the search found; right at the sample points"
            findings.pairs = tuple(
                replace_if_wrong(pair, wrong.get(pair.label), note) for pair in findings.pairs
            )
        findings.branches = sides.branches(opener.case.unreached)
        findings.sides_unknown = sides.unknown
        return True
    return False


def _explain_refusal(opener: GraphOpener, findings: Findings) -> str:
    """Return why a case can't be searched; empty if it can."""
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    if not any(pair.status in _JUDGED_PAIRS for pair in findings.pairs):
        return "none of its pairs was judged"
    if not isinstance(findings.first, GraphOperation) or findings.first.traced.trace_mode.compiled:
        return f"points are looked at in graphs, and its mode is {opener.case.mode}"
    if not FreeInputs.of(opener.case, as_stated=bool(findings.first.low_precision)).size:
        return "all values of its inputs are written out"
    return ""


def _search_one_row(search: CaseSearch, seconds: float) -> CaseSearch | None:
    """Return a search that found a wrong gradient with a batch of one, at the sample points; else `None`."""
    from gradcheck_cli.checking.ops.opener import Opening
    from gradcheck_cli.features.search.branches.pace import Pace
    from gradcheck_cli.features.search.branches.sides import Sides
    from gradcheck_cli.tensorflow_backend.opening.openers import opener_of

    case = cut_to_one_row(search.opener.case)
    if case is None:
        return None
    with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
        opener: GraphOpener = opener_of(case, case.mode)
        first = opener.open(Opening(0))
        row_search = CaseSearch(opener, replace(search.findings, first=first), Sides(first), Pace(seconds))
        row_search.judged = search.judged
        if row_search.judge_samples(range(case.samples)) and row_search.is_wrong_in_values:
            moved = [case.tensors[input_index] for input_index in row_search.worst]
            shapes = tuple((tensor.name, tensor.shape) for tensor in moved)
            row_search.counterexample = replace(row_search.shrink_worst(), shapes=shapes)
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
    )
    outputs = tuple(replace(output, shape=None) for output in case.outputs)
    return replace(case, arguments=arguments, outputs=outputs)


def _is_drawn(tensor: InputSpec) -> bool:
    return distribution_of(tensor) is not None and not tensor.is_variable
