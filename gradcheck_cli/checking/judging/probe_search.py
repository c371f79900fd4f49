"""Probes a group of pairs at a point until it finds an error, or knows what it could have missed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.judging.ledger import settle_element
from gradcheck_cli.checking.judging.probe_group import Group
from gradcheck_cli.checking.ops.budget import Budget, OverBudgetError
from gradcheck_cli.checking.ops.jacobian import PairKey, working_dtype, working_precision
from gradcheck_cli.checking.ops.operation import Float, Operation, packed_size
from gradcheck_cli.checking.pairs.pair import PairSample, Places, ProbeNumbers
from gradcheck_cli.numerics import Problem, Verdict, judge
from gradcheck_cli.numerics.differences import Mask
from gradcheck_cli.numerics.probes import (
    LONG,
    MIDDLE,
    NEAREST,
    SHORT,
    SMOOTH,
    Differenced,
    Direction,
    Probe,
    Target,
    Unseen,
    bisect_input,
    bisect_output,
    compare,
    count_unseen,
    draw_direction,
    draw_upstream,
    persists,
    show_elements,
    take_difference,
)
from gradcheck_cli.numerics.shared_limits import DIRECTIONS, FEW, NO_PROGRESS

# A bound of no more than this many times its rounding: curvature hardly contributes to it.
_STRAIGHT = 2.0
# If kinks spoil more rows than this share, a shorter step is tried: it may spoil none, but shows less of all.
_SPOILT = 0.01
# A step that rounding limits becomes this many times as long, up to the longest, relative to an element: a
# piece is smooth however far it goes.
_LENGTHEN, _LONGEST = 2.0**3, 2.0**-5
# If one element's error is hidden among all rows, rows are probed in blocks, each of which hides less.
_BLOCKS = (1, 4, 16)
# Evaluations that judging one element may take: a ladder for it and those beside it takes some 300.
_OF_A_LADDER = 2**9
# How many sets of inputs are split to find those that are on a kink; each split takes two evaluations.
_MOST_TESTS = 2**6


_NOTHING_SEEN = ProbeNumbers(gradient_is_zero=True, output_is_still=True)


@dataclass
class Search:
    """The probes of a group at one sample point, and what they have found so far.

    An element is *missed* if an error in it would have stayed below every bound, and *still* if it has no
    room to move. A row is *unusable* if no direction shows anything in it, because of kinks. A pair is *weak*
    if more of it was missed than the requested power allows. A gradient is *faint* if it can't be told from
    zero.
    """

    group: Group
    target: Target
    budget: Budget
    generator: np.random.Generator
    elements: list[tuple[PairKey, PairSample]] = field(default_factory=list)  # that were judged alone
    numbers: ProbeNumbers = _NOTHING_SEEN  # what the pairs' samples will say
    # by pair, the smallest share, over the probes, of elements that are missed
    missed: dict[PairKey, float] = field(default_factory=dict)
    still: dict[int, float] = field(default_factory=dict)  # by input, the share of elements that are still
    unusable: npt.NDArray[np.bool_] | None = None  # the rows that are unusable so far
    is_noise: bool = True  # whether no row has moved by more than rounding
    doubt: str = ""  # why nothing can be said; empty otherwise
    step_fraction: float = 1.0  # by how much of its step a smooth piece is moved
    least: int = 1  # how many probes are made whatever they take
    # the inputs that are on a kink, and stay still while the others' smooth piece is probed
    on_kinks: frozenset[int] = frozenset()
    has_piece: bool = True  # whether the point may have a smooth piece that shows more than the forward
    # of a few rows, (m, n): in which elements an error would have shown, and which can be told from zero
    shown: Mask = field(init=False)
    counted: Mask = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is shown yet; of many rows, elements aren't listed."""
        shape = (self.target.base.size, self.target.point.size) if self.group.has_few_rows else (0, 0)
        self.shown, self.counted = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)

    @property
    def wrong(self) -> PairKey | None:
        """The pair in which an element was found to be wrong."""
        wrong = [pair for pair, element in self.elements if element.is_wrong]
        return wrong[0] if wrong else None

    @property
    def is_over(self) -> bool:
        """Whether more probes would change nothing."""
        return bool(self.doubt) or self.wrong is not None

    @property
    def weak(self) -> list[PairKey]:
        """The pairs for which the requested power isn't reached."""
        return [pair for pair in self.group.pairs if self.is_weak(pair)]

    def is_weak(self, pair: PairKey) -> bool:
        """Whether the requested power isn't reached for a pair."""
        return not self.missed_share(pair) <= self.group.case.judging.power.miss

    @property
    def can_be_sharper(self) -> bool:
        """Whether a sharper probe may show more of some pair.

        Elements that are zero but for rounding have no size that an error could be relative to: in a pair
        that has no others, every error is missed.
        """
        return any(self.missed_share(pair) < 1 for pair in self.weak)

    def missed_share(self, pair: PairKey) -> float:
        """The share of elements in which an error may be missed, or that couldn't be examined."""
        output, input_index = pair
        rows = self.group.rows[output]
        if self.is_noise and self.missed.get(pair) == 0:
            return 0.0  # rows are unusable because of the rounding of values that don't move
        unusable = 0.0 if self.unusable is None else float(np.mean(self.unusable[rows]))
        return min(1.0, self.missed.get(pair, 1.0) + unusable + self.still.get(input_index, 0.0))

    def run(self) -> None:
        """Probe until an error is found, the requested power is reached, or it can't be reached."""
        tried: list[tuple[float, int]] = []
        curvature = 1.0
        # Of many rows, the short step shows too little where the budget leaves no other.
        is_spoilt = MIDDLE in self.group.spoilt and self.group.has_few_rows
        reaches, whole = [SHORT, SMOOTH] if is_spoilt else [MIDDLE], self.target
        while len(tried) < (self.least if self.budget.is_spent else DIRECTIONS) and not self.is_over:
            reach = reaches.pop(0)
            if reach == SMOOTH and not (self.has_piece and self._take_piece()):
                reach, self.has_piece = SHORT, False
            comparison = self._probe(reach, weighed=bool(tried) or self.target.base.size <= FEW)
            if comparison is None:
                # The step is too long: there are kinks on the way. A shorter step crosses fewer of them, and
                # none if they are held.
                self.target, self.has_piece = whole, self.has_piece and reach != SMOOTH
                self.group.spoilt.add(reach)
                reaches = {MIDDLE: [SHORT, SMOOTH], SHORT: [SMOOTH], LONG: [MIDDLE], SMOOTH: [SHORT]}[reach]
            else:
                bound, curvature = comparison
                tried.append((bound, reach))
                reaches = reaches or [SMOOTH if curvature > _STRAIGHT else LONG]
        if self.group.has_few_rows:
            is_known = bool(tried) and tried[-1][1] == SMOOTH
            self._probe_unseen(min(tried)[1] if tried else MIDDLE, curvature if is_known else 1.0)
        else:
            self._probe_again(tried, curvature)
        if not self.is_over:
            self._judge_unusable_rows()

    def _probe_again(self, tried: list[tuple[float, int]], curvature: float) -> None:
        """Probe all inputs with shorter steps, if these may show more, then one block of rows by one."""
        for _ in range(DIRECTIONS):
            is_done = not self.can_be_sharper or self.is_over or self.budget.is_spent
            if is_done or not self.target.is_smooth or curvature <= _STRAIGHT:
                break
            self._change_step(curvature)
            bound, curvature = self._probe(SMOOTH) or (np.inf, 1.0)
            tried.append((bound, SMOOTH))
        for blocks in _BLOCKS:
            if self.is_over or not self.weak or self.target.base.size < blocks or self.budget.is_spent:
                return
            sharpest = min(tried)[1]
            if blocks == 1 and sharpest == tried[-1][1]:
                continue  # the power of this probe is known
            self._probe(sharpest, blocks)

    def _probe_unseen(self, reach: int, curvature: float) -> None:
        """Move only the elements of a few rows in which an error would have stayed unseen.

        An error in a small element is hidden by the rounding and the curvature of the large elements, so
        these aren't moved any more. What a weak pair's gradient calls zero moves on: it may be wrong. A round
        needs no gradient, and their number is limited, so that no budget ends them: they go on as long as
        each shows a tenth of what is left, or another step may.
        """
        if self.has_piece and not self.target.is_smooth and self._count_open() and self._take_piece():
            reach = SMOOTH
        too_long = np.inf
        if reach == SMOOTH:
            self._change_step(curvature, too_long)  # what is left moves the outputs little
        for _ in range(FEW):
            before = self._count_open()
            if not before or self.is_over:
                return
            comparison = self._probe(reach, rest_only=True)
            curvature = comparison[1] if comparison else np.inf
            is_progress = self._count_open() <= NO_PROGRESS * before
            if curvature > _STRAIGHT or is_progress:
                too_long = np.inf if is_progress else min(too_long, self.step_fraction)
            if reach == MIDDLE and curvature <= _STRAIGHT:
                reach = LONG
            elif not (reach == SMOOTH and self._change_step(curvature, too_long)) and not is_progress:
                return

    def _count_open(self) -> int:
        """Count the elements of weak pairs in which an error could be seen, if they moved by themselves."""
        return sum(
            int(np.count_nonzero(self.counted[places] & ~self.shown[places]))
            for places in map(self._places, self.weak)
        )

    def _places(self, pair: PairKey) -> tuple[slice, slice]:
        return self.group.rows[pair[0]], self.group.columns[pair[1]]

    def _change_step(self, curvature: float, too_long: float = np.inf) -> bool:
        """Take a smooth piece's step to where curvature hides no more than rounding; say if it moved."""
        before, longest = self.step_fraction, _LONGEST / self.target.working.probe_steps[SMOOTH]
        if curvature > _STRAIGHT:  # truncation grows as h^5
            self.step_fraction *= curvature ** (-1 / 5) or 1 / _LENGTHEN
        else:
            self.step_fraction = max(before, min(before * _LENGTHEN, longest, too_long / 2))
        return self.step_fraction != before

    def _take_piece(self) -> bool:
        """Continue with the point's smooth piece; return `False` if the point is on a kink itself."""
        piece = self.group.operations.piece
        target = replace(
            self.group.target(piece), evaluations=self.target.evaluations, shared=self.target.shared
        )
        if piece is not self.group.operations.differenced:
            with self.budget.pause():  # else nothing would be known of any input
                is_smooth = self._hold_inputs_on_kinks(piece, draw_direction(target, self.generator))
            if not is_smooth:
                return False
        self.target = target
        return True

    def _crosses_kinks(self, direction: Direction) -> bool:
        """Whether elements change sides on the way, though the same direction can be probed with sides held.

        Then an alarm says nothing of the gradient: with sides held, a wrong one raises it again.
        """
        piece = self.group.operations.piece
        if self.target.is_smooth or not self.has_piece or piece is self.group.operations.differenced:
            return False
        return any(
            self.group.count_changed_sides(piece, direction.side(factor)) for factor in (2.0, -2.0, 1.0, -1.0)
        )

    def _hold_inputs_on_kinks(self, piece: Operation, direction: Direction) -> bool:
        """Find the inputs that are on a kink, and say whether the others are on a smooth piece.

        As soon as such an input moves, an element changes its side. In a deep network these are few: the
        offset of a normalisation whose input is zero, say.
        """
        tiny = NEAREST / direction.share

        def changes(inputs: Sequence[int], *factors: float) -> bool:
            moved = direction.restrict_to([self.group.columns[index] for index in inputs])
            return any(self.group.count_changed_sides(piece, moved.side(factor)) for factor in factors)

        on_kinks = self.group.operations.on_kinks
        rest = tuple(index for index in self.group.inputs if index not in on_kinks)
        waiting = [rest] if rest and changes(rest, tiny, -tiny) else []
        is_clean = not waiting
        for _ in range(_MOST_TESTS):
            if not waiting:
                break
            inputs = waiting.pop()
            middle = len(inputs) // 2
            if not middle:
                on_kinks.update(inputs)
            else:
                # One direction shows most kinks. The last test, in both, shows whether it missed one.
                waiting += [half for half in (inputs[:middle], inputs[middle:]) if changes(half, tiny)]
        self.on_kinks = frozenset(on_kinks.intersection(self.group.inputs))
        rest = tuple(index for index in self.group.inputs if index not in on_kinks)
        return bool(rest) and (is_clean or (not waiting and not changes(rest, tiny, -tiny)))

    def _draw(self, reach: int, *, rest_only: bool = False) -> Direction:
        """Draw a direction, in which the inputs that are on kinks stay where they are.

        Args:
            reach: how far to step.
            rest_only: whether what has been shown stays, too, and the inputs of which enough has.
        """
        fraction = self.step_fraction if reach == SMOOTH else 1.0
        drawn = draw_direction(self.target, self.generator, reach, fraction)
        for input_index in self.on_kinks:
            drawn.steps[self.group.columns[input_index]] = 0.0
        if rest_only:
            drawn.steps[self.shown.all(axis=0)] = 0.0
            for input_index in set(self.group.inputs).difference(index for _, index in self.weak):
                drawn.steps[self.group.columns[input_index]] = 0.0
        return replace(drawn, is_rest=rest_only)

    def _probe(
        self, reach: int, blocks: int = 1, *, weighed: bool = True, rest_only: bool = False
    ) -> tuple[float, float] | None:
        """Compare along one direction, one block of rows after another; a few rows each by itself.

        Args:
            reach: how far to step.
            blocks: into how many blocks the rows are split.
            weighed: whether to find out what the comparison could have missed.
            rest_only: whether to move only elements that haven't been shown.

        Returns:
            The bound of the comparison, relative to the terms compared, and that bound over its rounding;
            `None` where a shorter step must be taken.
        """
        differenced = take_difference(self._draw(reach, rest_only=rest_only))
        direction, unusable = differenced.direction, differenced.is_unusable
        if reach != SHORT and float(np.mean(unusable)) > _SPOILT:
            return None
        if not rest_only:
            self._count_still(direction.steps)
        self.unusable = unusable if self.unusable is None else self.unusable & unusable
        self.is_noise &= differenced.is_noise
        is_still = self.numbers.output_is_still and not (differenced.change.any() or unusable.any())
        self.numbers = replace(self.numbers, output_is_still=is_still)
        unseen: dict[int, Unseen] = {}
        sharpness, curvature, is_compared = 0.0, 1.0, False
        rows = unusable.size
        blocks = rows if self.group.has_few_rows else blocks
        for start, stop in itertools.pairwise(np.linspace(0, rows, blocks + 1).astype(int)):
            upstream = draw_upstream(differenced, self.generator, slice(start, stop))
            if not upstream.any():
                continue
            probe = compare(differenced, upstream)
            is_zero = self.numbers.gradient_is_zero and not probe.gradient.any()
            self.numbers = replace(self.numbers, gradient_is_zero=is_zero)
            if probe.is_alarm and self._crosses_kinks(direction):
                return None
            probe = self._follow(differenced, probe)
            sharpness, curvature = max(sharpness, self._keep_sharpest(probe)), max(curvature, probe.curvature)
            if self.is_over:
                return sharpness, curvature
            is_compared = True
            if weighed:
                # Arrays that are no longer needed are freed first: each may take a large part of the memory.
                probe = replace(probe, gradient=np.zeros(0))
                if stop == rows:
                    del differenced
                self._count_missed(direction, probe, slice(start, stop), unseen)
        if weighed:
            self._record_missed(unseen, is_compared=is_compared)
        return (np.inf if unusable.all() else sharpness), curvature

    def _count_still(self, steps: Float) -> None:
        for input_index, columns in self.group.columns.items():
            own = steps[columns]
            self.still[input_index] = 1 - np.count_nonzero(own) / max(own.size, 1)

    def _count_missed(
        self, direction: Direction, probe: Probe, block: slice, unseen: dict[int, Unseen]
    ) -> None:
        """Count, output by output, what one comparison could have missed; of a few rows, note it."""
        size = self.group.case.judging.power.size
        if self.group.has_few_rows:
            masks = show_elements(direction, probe, size)
            self.shown, self.counted = self.shown | masks[0], self.counted | masks[1]
            return
        for output, rows in self.group.rows.items():
            rows_of_block = slice(max(rows.start, block.start), min(rows.stop, block.stop))
            if rows_of_block.start >= rows_of_block.stop:
                continue
            counted = count_unseen(direction, probe, size, rows_of_block, self.generator)
            if output in unseen:
                unseen[output].add(counted)
            else:
                unseen[output] = counted

    def _record_missed(self, unseen: dict[int, Unseen], *, is_compared: bool) -> None:
        """Keep the share of each pair's elements that every probe so far would have missed."""
        if self.group.has_few_rows:
            shares = {pair: self._open_share(pair) for pair in self.group.pairs}
            is_seen = bool(self.counted.any())
        else:
            is_seen = any(counted.seen.any() for counted in unseen.values())
            shares = {
                (output, input_index): float(share)
                for output, counted in unseen.items()
                for input_index, share in zip(self.group.inputs, counted.shares(), strict=True)
            }
        for pair, share in shares.items():
            missed = self.missed.get(pair, 1.0)
            self.missed[pair] = missed if np.isnan(share) else min(missed, share)
        self.numbers = replace(self.numbers, is_faint=not is_seen and (self.is_noise or is_compared))
        if self.numbers.gradient_is_zero or self.numbers.is_faint:
            # No element has a size that an error could be relative to.
            self.missed = dict.fromkeys(self.group.pairs, 0.0)

    def _open_share(self, pair: PairKey) -> float:
        """Return the share of a pair's elements in which no probe would have shown an error; NaN of none."""
        places = self._places(pair)
        count = np.count_nonzero(self.counted[places])
        return np.count_nonzero(self.counted[places] & ~self.shown[places]) / count if count else np.nan

    def _keep_sharpest(self, probe: Probe) -> float:
        """Keep the error of the sharpest comparison, or of one that failed."""
        if not probe.size > 0:
            return 0.0
        error, bound, kept = probe.error / probe.size, probe.bound / probe.size, self.numbers
        failed = kept.error > kept.bound
        if kept.bound == 0 or (probe.is_alarm and not failed) or (bound < kept.bound and not failed):
            self.numbers = replace(kept, error=error, bound=bound)
        return bound

    def _follow(self, differenced: Differenced, probe: Probe) -> Probe:
        """Examine an alarm, if there is one, and return the comparison that results."""
        if not probe.is_alarm:
            return probe
        if persists(differenced, probe):
            # Rounded constants may add up to this.
            before, self.target.shared = self.target.shared, self.target.most_shared
            if not (again := compare(differenced, probe.upstream)).is_alarm:
                return again
            self.target.shared = before
            return self._locate(differenced, probe)
        # Rounding inside the forward can have this effect.
        return replace(probe, bound=probe.error, level=probe.error)

    def _locate(self, differenced: Differenced, probe: Probe) -> Probe:
        """Follow an alarm to an element and judge it. If it is right, exclude it and compare the rest again.

        Returns:
            The comparison that results.
        """
        for _lead in range(FEW):  # alarms that may lead to a right element (a kink, say)
            column = bisect_input(differenced, probe)
            row = bisect_output(differenced, probe, column)
            try:
                self.elements.append(self._judge(row, column, _OF_A_LADDER))  # even if the budget is spent
                element = self.elements[-1][1]
            except OverBudgetError:
                self.doubt = (
                    f"{self._explain_alarm(probe)}, and to judge the element that they led to takes too "
                    "long; give it more time (--budget)."
                )
                return probe
            if element.is_wrong:
                return probe
            if self.target.shared < self.target.most_shared:
                self.target.shared = self.target.most_shared
                probe = compare(differenced, probe.upstream)
                if not probe.is_alarm:
                    return probe
            upstream = probe.upstream.copy()
            if np.count_nonzero(upstream) > FEW:
                upstream[row] = 0.0
            else:  # without its row, hardly anything would be left
                steps = differenced.direction.steps.copy()
                steps[column] = 0.0
                differenced = take_difference(replace(differenced.direction, steps=steps))
                upstream[differenced.is_unusable] = 0.0
            probe = compare(differenced, upstream)
            if not probe.is_alarm:
                return probe
        if probe.error <= probe.tolerated:
            return probe
        self.doubt = (
            f"{self._explain_alarm(probe)}, but none of the {FEW} elements that they led to is "
            "wrong; use 'method: full' on a smaller input."
        )
        return probe

    def _explain_alarm(self, probe: Probe) -> str:
        """Say by how much probes disagree, and of how many pairs: any of them may be the wrong one."""
        others = len(self.group.pairs) - 1
        together = f" of this pair and {others} others together" if others else ""
        gradients = "gradients" if others else "gradient"
        return (
            f"random probes{together} disagree with the {gradients} by {probe.error:.1e}, of {probe.size:.1e}"
        )

    def _judge(self, row: int, column: int, least: int = 0) -> tuple[PairKey, PairSample]:
        """Judge one element, and return its pair and the verdict."""
        pair, position = self.group.locate(row, column)
        element = judge_element(Group.of_pair(self.group.members[pair]), position, self.budget, least)
        self.target.evaluations += element.differencing.evaluations
        return pair, element

    def _judge_unusable_rows(self) -> None:
        """Judge the largest element of some rows that every direction spoils: rows at kinks.

        These rows may share one kind of error (a wrong slope at 0), so they aren't covered by the odds for a
        random element.
        """
        if self.unusable is None or not self.unusable.any() or (self.is_noise and not self.weak):
            return
        base = self.target.base
        rows = np.flatnonzero(self.unusable)
        lost = int(np.count_nonzero(~np.isfinite(base[rows])))
        if lost:
            self.doubt = (
                f"{lost} of {base.size} outputs aren't finite: nothing can be said of their gradients; "
                "choose inputs where they are."
            )
            return
        for row in self.generator.choice(rows, min(FEW, rows.size), replace=False):
            gradient = np.abs(self.target.row(row))
            column = int(np.argmax(np.where(np.isnan(gradient), np.inf, gradient)))
            try:
                pair, element = self._judge(int(row), column)
            except OverBudgetError:
                return  # these rows count as missed
            if element.verdict[0, 0] == Verdict.INCONCLUSIVE:
                continue  # the row counts as missed, whatever else is known about it
            self.elements.append((pair, element))
            if element.is_wrong:
                return

    def explain_weakness(self, pair: PairKey) -> str:
        """Say why the requested power isn't reached."""
        power = self.group.case.judging.power
        unusable = 0.0 if self.unusable is None else float(np.mean(self.unusable[self.group.rows[pair[0]]]))
        why = f"; {unusable:.1%} of the rows are at kinks" if unusable > power.miss / 2 else ""
        still = self.still.get(pair[1], 0.0)
        if pair[1] in self.on_kinks:
            why = "; as soon as this input moves, elements that depend on it leave a kink"
        elif still > power.miss / 2:
            why = f"; {still:.1%} of the inputs are at the end of their domain"
        if self.target.is_lenient:
            why += "; what the spec's tolerances allow hides it"
        more = ""
        if self.budget.is_spent:
            why += f"; the budget of {self.group.case.judging.budget:g} s is spent"
            more = "give it more time (--budget), "
        return (
            f"random probes would miss an error of {power.size:.1%} in one element with a probability of "
            f"{self.missed_share(pair):.2g}, where {power.miss:.2g} is asked for{why}; {more}use 'method: "
            "full', a smaller input, or ask for less (--power)."
        )


def judge_element(group: Group, position: tuple[int, int], budget: Budget, least: int = 0) -> PairSample:
    """Judge one element of a pair, and return the verdict on it alone.

    Args:
        group: the group, of one pair.
        position: the element's row and column.
        budget: limits the time.
        least: how many evaluations it may take in any case.

    Raises:
        OverBudgetError: it takes longer.
    """
    (row, column), pair = position, group.first
    target = group.target()
    gradient = target.row(row)
    effect = np.nan_to_num(np.abs(gradient) * np.abs(target.point))
    # Beside it, the largest elements of its row, which set the scale of its tolerance: a few in all.
    effect[column] = np.inf
    few = min(FEW, effect.size)
    largest = np.argpartition(effect, -few)[-few:]
    columns = np.array([column, *largest[largest != column]])

    def evaluate(points: Float) -> Float:
        values = np.empty((len(points), 1))
        for index, point in enumerate(points):
            if target.evaluations >= least:
                budget.require()
            there = target.point.copy()
            there[columns] = point
            values[index] = target.at(there)[row]
        return values

    op = group.operations.differenced
    low, high = pair.domain
    problem = Problem(
        evaluate,
        target.point[columns],
        target.spans[0].precision,
        working_precision(op, op.outputs[pair.output_index].dtype),
        tolerance=pair.tolerance,
        low=low,
        high=high,
        scale=target.spans[0].typical,
    )
    judgement = judge(problem, gradient[columns][None])
    places = Places((packed_size(pair.output), packed_size(pair.input)), np.full((1, 1), row), columns[None])
    dtype = working_dtype(op, op.inputs[pair.input_index].dtype)
    sample = PairSample.of_judgement(judgement, gradient[columns][None], dtype, places=places)
    return settle_element(pair, sample).take(0, 0).with_differencing(evaluations=target.evaluations)
