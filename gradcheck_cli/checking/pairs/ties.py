"""Judge rows at ties by moving all their inputs together; see `joint_slopes`.

At a tie, judging element by element can go wrong both ways. An element between two slopes passes even if the
elements don't belong together, and the right slope of a piece that no single element shows doesn't pass. So
the row is judged as a whole, over all the inputs it depends on, and the result replaces the elements'
verdicts: a row inside the set of slopes is at a kink, and right; a row outside is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import PairKey, unit_vectors, working_precision
from gradcheck_cli.checking.ops.operation import Float, packed_size
from gradcheck_cli.checking.ops.space import Space, function_between, join
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, Rule
from gradcheck_cli.numerics.joint_slopes import Claims, Neighbourhood, Place, Placement, is_bent, judge_rows
from gradcheck_cli.numerics.precision import FLOAT64, coarsest
from gradcheck_cli.numerics.problem import Room, draw_signed, own_scale, scales
from gradcheck_cli.numerics.reasons import Reason, Verdict

# With at most MOST_SINGLE inputs in ties, each input is a direction of its own. With more, random directions
# stand for them: two more than the widest tie has inputs, since such a random projection is one to one and
# loses nothing. A tie wider than that gets MIXED_OF_MORE random directions, which may miss something. Two
# directions are always added: one moves all inputs equally, the other in proportion to their size.
MOST_SINGLE = 12
MOST_MIXED, MIXED_OF_MORE = 32, 12
# A multiple of this is exact as a step, whatever the input's precision.
GRAIN = 2.0**-4
SEED = 20261122
NO_SUBGRADIENT = (
    "tied inputs move together, and the gradient doesn't move with them: each element is possible by itself, "
    "but no subgradient has all of them together"
)


def judge_ties(
    pairs: Mapping[PairKey, Pair], judged: Mapping[PairKey, PairSample]
) -> dict[PairKey, PairSample]:
    """Return the verdicts of pairs with their ties moved together.

    Args:
        pairs: the pairs at one sample point. A pair that is expected to be wrong is judged alone.
        judged: the verdicts on elements.
    """
    samples = dict(judged)
    for output in sorted({output for output, _ in judged}):
        candidates = [
            pairs[key]
            for key in judged
            if key[0] == output and _can_be_judged_jointly(pairs[key], judged[key])
        ]
        together = [pair for pair in candidates if not pair.is_expected_wrong]
        for group in [together, *([pair] for pair in candidates if pair.is_expected_wrong)]:
            if group:
                _judge_group(group, samples)
    return samples


def _can_be_judged_jointly(pair: Pair, sample: PairSample) -> bool:
    return (
        bool(sample.verdict.size)
        and sample.rows is None
        and sample.differencing.method in {"central", "ladder"}
        and pair.precision_in(pair.operations.differenced).pieces is not None
    )


def _judge_group(group: Sequence[Pair], samples: dict[PairKey, PairSample]) -> None:
    """Judge the rows of one output over some inputs, and replace the elements' verdicts by the result."""
    tied = _Tied(group, [samples[pair.key] for pair in group])
    rows = tied.rows
    if not rows.size:
        return
    finding = tied.judge(rows)
    is_open = (finding.place == Place.OUTSIDE) | (finding.place == Place.UNKNOWN)
    guilty: list[Pair] = []
    if len(group) > 1 and is_open.any():
        # Find the input at fault: an input that is wrong by itself is excluded, and the rest are judged
        # again.
        for pair in group:
            tied_input = _Tied([pair], [samples[pair.key]])
            own_rows = np.intersect1d(tied_input.rows, rows[is_open])
            if own_rows.size:
                own_finding = tied_input.judge(own_rows)
                samples[pair.key] = tied_input.apply(own_rows, own_finding)[0]
                if (own_finding.place == Place.OUTSIDE).any():
                    guilty.append(pair)
        tied.update([samples[pair.key] for pair in group])
    if guilty:
        # These rows aren't judged together.
        finding = replace(finding, place=np.where(is_open, Place.SMOOTH, finding.place))
    samples.update(zip([pair.key for pair in group], tied.apply(rows, finding), strict=True))
    rest = [pair for pair in group if pair not in guilty]
    if guilty and len(rest) > 1:
        _judge_group(rest, samples)


class _Tied:
    """One output over some inputs, packed side by side, near the point."""

    def __init__(self, group: Sequence[Pair], samples: list[PairSample]) -> None:
        self.op, self.input_indices = group[0].operations.differenced, [pair.input_index for pair in group]
        self.output = group[0].output_index
        op = self.op
        self.space = Space.of(op.inputs, self.input_indices)
        self.point = self.space.pack_one(op.point)
        points = self.space.split(self.point)
        # Joint steps must not pass over what an element's own don't reach: a kink at 0, seen from 1e-13.
        own = list(zip(points, group, strict=True))
        self.scale = join([own_scale(point, scales(point, pair.scale).step) for point, pair in own])
        domains = [Room.around(point, *pair.domain) for point, pair in own]
        self.below = join([domain.below for domain in domains])
        self.above = join([domain.above for domain in domains])
        self.precisions = [
            working_precision(op, op.inputs[input_index].dtype) for input_index in self.input_indices
        ]
        self.value_precision = working_precision(op, op.outputs[self.output].dtype)
        self.generator = np.random.default_rng([SEED, self.output])
        self.update(samples)
        self.bent = np.zeros(packed_size(op.outputs[self.output]), dtype=bool)

    def update(self, samples: list[PairSample]) -> None:
        """Take over the current verdicts."""
        self.samples = samples
        self.tied = [self._is_tied(sample) for sample in samples]

    @property
    def starts(self) -> list[int]:
        """Where each input's components begin."""
        return [place.start for place in self.space.places.values()]

    def _round(self, points: Float) -> Float:
        if coarsest(*self.precisions) is FLOAT64:
            return points
        arrays = zip(self.space.split(points), self.precisions, strict=True)
        return join([precision.round(values) for values, precision in arrays])

    def _restrict_to(self, columns: np.ndarray) -> Neighbourhood:
        """Return the function of some inputs; the others stay."""
        moves = np.zeros(self.point.size, dtype=bool)
        moves[columns] = True
        working = coarsest(*self.precisions, self.value_precision)
        if working.pieces is None:
            raise ValueError(f"{working.name} shows no difference of slopes")
        return Neighbourhood(
            evaluate=function_between(self.op, self.input_indices, [self.output]),
            point=self.point,
            scale=self.scale,
            below=np.where(moves, self.below, 0.0),
            above=np.where(moves, self.above, 0.0),
            unit=np.full(self.bent.size, self.value_precision.unit_roundoff),
            input_unit=coarsest(*self.precisions).unit_roundoff,
            round=self._round,
            reach=working.pieces,
            generator=self.generator,
        )

    def _dot(self, directions: Float, name: str) -> Float:
        """Return directions (K, n), in units of scale, times an array of the samples', (K, m)."""
        total = np.zeros((len(directions), self.bent.size))
        for moves, sample in zip(self.space.split(directions * self.scale), self.samples, strict=True):
            values = getattr(sample, name)
            if sample.columns is None:
                total += moves @ values.T
            else:
                total += np.stack([(direction[sample.columns] * values).sum(axis=1) for direction in moves])
        return total

    @property
    def rows(self) -> np.ndarray:
        """The rows to judge: those at more than one kink, and those that bend where no element shows it."""
        kinks, open_elements, lost = (np.zeros(self.bent.size, dtype=np.int64) for _ in range(3))
        for sample, is_tied in zip(self.samples, self.tied, strict=True):
            kinks += (sample.verdict == Verdict.KINK).sum(axis=1)
            open_elements += is_tied.sum(axis=1)
            given_up = (sample.verdict == Verdict.INCONCLUSIVE) & ~is_tied
            lost += (given_up | ~np.isfinite(sample.analytic)).sum(axis=1)
        # A single kink was judged already, as an element.
        may_be_bent = (lost == 0) & ~((kinks == 1) & (open_elements == 1))
        if may_be_bent.any():
            near = self._restrict_to(np.arange(self.point.size))
            self.bent = is_bent(near, lambda directions: self._dot(directions, "numeric")) & may_be_bent
        return np.flatnonzero(((kinks > 1) & (lost == 0)) | self.bent)

    @staticmethod
    def _is_tied(sample: PairSample) -> npt.NDArray[np.bool_]:
        """Say which elements a tie may have spoilt."""
        undecided = (sample.verdict == Verdict.INCONCLUSIVE) & np.isin(
            sample.reason, (Reason.UNRESOLVED, Reason.LOW_PRECISION)
        )
        return np.asarray(undecided | np.isin(sample.verdict, (Verdict.KINK, Verdict.MISMATCH)))

    def _find_involved(self, row: int) -> tuple[np.ndarray, Float]:
        """Return the inputs that take part in a row's tie, and its gradient for them, in units of scale."""
        columns, gradient = [], []
        for start, sample, is_tied in zip(self.starts, self.samples, self.tied, strict=False):
            elements = np.arange(sample.verdict.shape[1])
            if not self.bent[row]:
                elements = np.flatnonzero(is_tied[row])
            places = sample.each_place()[1][row, elements]
            columns.append(start + places)
            gradient.append(sample.analytic[row, elements] * self.scale[start + places])
        return np.concatenate(columns), np.concatenate(gradient)

    def judge(self, rows: np.ndarray) -> Placement:
        """Judge rows over all inputs together."""
        sizes = np.where(self.bent, self.point.size, sum(is_tied.sum(axis=1) for is_tied in self.tied))
        widest = int(sizes[rows].max())
        near = self._restrict_to(self._find_active(rows))
        self.directions = self._choose_directions(np.flatnonzero(near.can_move), widest)
        claims = Claims(
            rows,
            lambda directions: self._dot(directions, "analytic")[:, rows],
            lambda directions: self._dot(directions, "allowed")[:, rows],
            lambda index: self._find_involved(int(rows[index])),
            widest,
        )
        return judge_rows(near, claims, self.directions)

    def _find_active(self, rows: np.ndarray) -> np.ndarray:
        """Return the inputs that take part in the tie of any of some rows."""
        if self.bent[rows].any():
            return np.arange(self.point.size)
        active = np.zeros(self.point.size, dtype=bool)
        for start, sample, is_tied in zip(self.starts, self.samples, self.tied, strict=False):
            row, elements = np.nonzero(is_tied[rows])
            active[start + sample.each_place()[1][rows[row], elements]] = True
        return np.flatnonzero(active)

    def _choose_directions(self, active: np.ndarray, widest: int) -> Float:
        """Choose what to compare along: each input of a tie, or random mixtures of them."""
        size = self.point.size
        if active.size <= MOST_SINGLE:
            return unit_vectors(active, size)
        count = widest + 2 if widest + 2 <= MOST_MIXED else MIXED_OF_MORE
        chosen = np.zeros((count + 2, size))
        for direction in chosen[:count]:
            direction[active] = GRAIN * np.rint(draw_signed(self.generator, active.size) / GRAIN)
        # Inputs that are tied by being equal move equally; inputs that are tied by size move in proportion.
        chosen[count, active] = self.scale[active].min() / self.scale[active]
        chosen[count + 1, active] = self.point[active] / self.scale[active]
        return chosen[chosen.any(axis=1)]

    def apply(self, rows: np.ndarray, finding: Placement) -> list[PairSample]:
        """Return the samples with the verdicts on some rows replaced by the joint finding."""
        is_outside = finding.place == Place.OUTSIDE
        outside = zip(rows[is_outside], finding.lack[is_outside], strict=True)
        lacks = {int(row): self._least_change(int(row), lack) for row, lack in outside}
        updated = []
        for index, (sample, own_inputs) in enumerate(
            zip(self.samples, self.space.places.values(), strict=True)
        ):
            columns = sample.each_place()[1]
            inside, unknown, blur = (np.zeros((len(columns), 1)) for _ in range(3))
            inside[rows[finding.place == Place.INSIDE]] = 1
            unknown[rows[(finding.place == Place.UNKNOWN) & finding.is_tie]] = 1
            blur[rows, 0] = finding.error_bound
            blur = blur / self.scale[own_inputs][columns]
            right = (inside > 0) & self.tied[index]
            settled = sample.settle(right, Verdict.KINK, Rule.TIE, numeric=sample.analytic, uncertainty=blur)
            lost = (unknown > 0) & self.tied[index] & (settled.verdict != Verdict.INCONCLUSIVE)
            settled = settled.settle(lost, Verdict.INCONCLUSIVE, Rule.TIE, Reason.TIES)
            off = np.zeros(columns.shape)
            for row, lack in lacks.items():
                off[row] = lack[own_inputs][columns[row]]
            beyond = np.abs(off) > sample.allowed + blur
            settled = settled.settle(
                beyond,
                Verdict.MISMATCH,
                Rule.TIE,
                Reason.JOINED_KINKS,
                numeric=sample.analytic - off,
                uncertainty=blur,
            )
            if settled.is_wrong and not sample.is_wrong:
                settled = replace(settled, remark=NO_SUBGRADIENT)
            updated.append(settled)
        return updated

    def _least_change(self, row: int, lack: Float) -> Float:
        """Return the least change, (n,), that would bring a row's gradient inside the set of slopes."""
        among, _ = self._find_involved(row)
        off = np.zeros(self.point.size)
        off[among] = np.linalg.pinv(self.directions[:, among]) @ lack / self.scale[among]
        return off


def leave_joined_kinks(
    pair: Pair, sample: PairSample, are_right_alone: Callable[[PairKey], bool]
) -> PairSample:
    """Return a pair's verdicts, undecided where several ops of TensorFlow's are at a kink.

    Args:
        pair: the pair; one that is expected to be wrong stays so.
        sample: the verdicts at a sample point.
        are_right_alone: whether the user's own gradients on a pair's path are right, each by itself.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    at_kink = (sample.verdict == Verdict.KINK) | (wrong & (sample.reason == Reason.JOINED_KINKS))
    # A row is one output: where one of its elements is at a kink, the others' slopes may be mixed ones.
    joined = wrong & at_kink.any(axis=1, keepdims=True) & np.isfinite(sample.analytic)
    # A mismatch elsewhere must be reported.
    if not joined.any() or (wrong & ~joined).any() or pair.is_expected_wrong:
        return sample
    # With a reference, the gradient is meant to be that of another function, and has no part in its kinks.
    if pair.case.reference is not None:
        return sample
    if pair.operations.formula.facts.library_gradients(*pair.key) <= 1 and not are_right_alone(pair.key):
        return sample
    settled = sample.settle(joined, Verdict.INCONCLUSIVE, Rule.JOINED_KINKS, Reason.JOINED_KINKS)
    return replace(settled, remark="")
