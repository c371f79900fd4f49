"""Judges a pair that is too large for its Jacobian by random probes, and follows an alarm to its element."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.jacobian import packed_function, packed_point, pull_back, working_precision
from gradcheck_cli.checking.packing import packed_size
from gradcheck_cli.checking.pair_sample import PairSample
from gradcheck_cli.numerics import Verdict, judge
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.probe import (
    LONG,
    MIDDLE,
    SHORT,
    Differenced,
    Probe,
    Target,
    bisect_input,
    bisect_output,
    compare,
    draw_direction,
    signed,
    take_difference,
    unseen_share,
)
from gradcheck_cli.numerics.steps import typical_size

if TYPE_CHECKING:
    from gradcheck_cli.checking.packing import Float
    from gradcheck_cli.checking.sample import Operations, Pair
    from gradcheck_cli.numerics import ToleranceRule
    from gradcheck_cli.spec.case import Case

# Two directions: errors that cancel in one of them don't in the other.
_PROBES = 2
# With more rows spoilt than this, a step is too long.
_MANY_SPOILT = 0.01
# Where one element's error drowns among all rows, rows are probed in blocks, of which each drowns less.
_BLOCKS = (1, 4, 16)
# Leads that may turn out to be right elements (a kink, say) before the search is given up.
_MOST_LEADS = 8
# Elements of the guilty row that its tolerance is scaled by.
_NEIGHBOURS = 7


@dataclass(frozen=True)
class _Element:
    """One element that an alarm led to, as the ladder judged it."""

    row: int
    column: int
    analytic: float
    numeric: float
    uncertainty: float
    allowed: float
    verdict: int
    reason: int


@dataclass
class _Search:
    """The probes of one pair at one sample point, and what they have found so far.

    `missed` is the smallest share, over the probes, of elements in which an error would have stayed unseen;
    `spoilt` holds the rows of which no direction could say anything.
    """

    case: Case
    operations: Operations
    pair: Pair
    rule: ToleranceRule
    target: Target
    generator: np.random.Generator
    elements: list[_Element] = field(default_factory=list)
    error: float = 0.0
    bound: float = 0.0
    missed: float = 1.0
    spoilt: npt.NDArray[np.bool_] | None = None
    gradient_is_zero: bool = True
    change_is_zero: bool = True
    doubt: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether an element was found to be wrong."""
        return any(element.verdict == Verdict.MISMATCH for element in self.elements)

    @property
    def is_over(self) -> bool:
        """Whether more probes would change nothing."""
        return bool(self.doubt) or self.is_wrong

    @property
    def is_strong(self) -> bool:
        """Whether the power that is asked for is reached."""
        return self.all_missed <= self.case.power.miss

    def run(self) -> None:
        """Probe until an error is found, or the power that is asked for is reached, or can't be."""
        tried: list[tuple[float, int]] = []
        reaches = [MIDDLE, LONG]
        while len(tried) < _PROBES and not self.is_over:
            reach = reaches.pop(0)
            differenced = take_difference(draw_direction(self.target, self.generator, reach))
            if reach != SHORT and float(np.mean(differenced.is_spoilt)) > _MANY_SPOILT:
                # Too far: kinks lie in between. A shorter step crosses fewer of them.
                reaches = [SHORT, SHORT] if reach == MIDDLE else [MIDDLE]
                continue
            tried.append((self._probe(differenced, 1, weighed=bool(tried)), reach))
        for blocks in _BLOCKS:
            if self.is_over or self.is_strong or self.target.base.size < blocks:
                break
            sharpest = min(tried)[1]
            if blocks == 1 and sharpest == tried[-1][1]:
                continue  # what it could see is known
            self._probe(take_difference(draw_direction(self.target, self.generator, sharpest)), blocks)
        if not self.is_over and not self.is_strong:
            self.doubt = self._too_weak()

    @property
    def all_missed(self) -> float:
        """The share of elements in which an error may be missed, with those of spoilt rows."""
        return min(1.0, self.missed + (0.0 if self.spoilt is None else float(np.mean(self.spoilt))))

    def _probe(self, differenced: Differenced, blocks: int, *, weighed: bool = True) -> float:
        """Compare along one direction, block of rows by block.

        Args:
            differenced: the direction.
            blocks: how many blocks the rows fall into.
            weighed: whether to find out what it could have missed.

        Returns:
            The bound of the comparison, relative to what it was made among.
        """
        weight = differenced.weight
        self.spoilt = differenced.is_spoilt if self.spoilt is None else self.spoilt & differenced.is_spoilt
        self.change_is_zero &= not differenced.change.any() and not differenced.is_spoilt.any()
        hidden = seen = 0
        sharpness = 0.0
        for start, stop in itertools.pairwise(np.linspace(0, weight.size, blocks + 1).astype(int)):
            upstream = np.zeros(weight.size)
            upstream[start:stop] = signed(self.generator, int(stop - start)) * weight[start:stop]
            if not upstream.any():
                continue
            probe = compare(differenced, upstream)
            self.gradient_is_zero &= not probe.gradient.any()
            sharpness = max(sharpness, self._note(probe))
            if probe.is_alarm:
                self._locate(differenced, probe)
                if self.is_over:
                    return sharpness
            if weighed:
                unseen, among = unseen_share(differenced, probe, self.case.power.size, self.generator)
                hidden, seen = hidden + unseen, seen + among
        if weighed and seen:
            # With nothing missed of N, three in N is the upper limit at 95 % (the rule of three).
            self.missed = min(self.missed, (hidden + 3) / seen)
        elif weighed and self.gradient_is_zero:
            self.missed = 0.0  # no element has a size that an error could be relative to
        return sharpness

    def _note(self, probe: Probe) -> float:
        """Keep the error of the sharpest comparison, or of one that failed."""
        if not probe.size > 0:
            return 0.0
        error, bound = probe.error / probe.size, probe.bound / probe.size
        failed = self.error > self.bound
        if self.bound == 0 or (probe.is_alarm and not failed) or (bound < self.bound and not failed):
            self.error, self.bound = error, bound
        return bound

    def _locate(self, differenced: Differenced, probe: Probe) -> None:
        """Follow an alarm to an element and judge that; a right one is left out, and the rest tried again."""
        for _lead in range(_MOST_LEADS):
            column = bisect_input(differenced, probe)
            row = bisect_output(differenced, probe, column)
            self.elements.append(self._judge(row, column))
            if self.elements[-1].verdict == Verdict.MISMATCH:
                return
            upstream = probe.upstream.copy()
            upstream[row] = 0.0
            probe = compare(differenced, upstream)
            if not probe.is_alarm:
                return
        if probe.error <= probe.tolerated:
            return
        self.doubt = (
            f"random probes disagree with the gradient by {probe.error / probe.size:.1e} of their size, but "
            f"none of the {_MOST_LEADS} elements that they led to is wrong; use 'method: full' on a smaller "
            "input."
        )

    def _judge(self, row: int, column: int) -> _Element:
        """Judge one element as those of a small Jacobian are, beside the largest of its row."""
        target, (output, number) = self.target, self.pair
        upstream = np.zeros(target.base.size)
        upstream[row] = 1.0
        gradient = target.pull(upstream)
        with np.errstate(invalid="ignore"):
            effect = np.nan_to_num(np.abs(gradient) * np.abs(target.point))
        effect[column] = -1.0
        largest = np.argpartition(effect, -min(_NEIGHBOURS, effect.size))[-_NEIGHBOURS:]
        columns = np.array([column, *largest[largest != column]])

        def evaluate(points: Float) -> Float:
            values = np.empty((len(points), 1))
            for place, point in enumerate(points):
                there = target.point.copy()
                there[columns] = point
                values[place] = target.at(there)[row]
            return values

        op = self.operations.differenced
        low, high = self.case.tensors[number].domain
        found = judge(
            evaluate,
            target.point[columns],
            gradient[columns][None],
            input_precision=target.precision,
            row_precision=working_precision(op, op.outputs[output].dtype),
            rule=self.rule,
            low=low,
            high=high,
            scale=target.typical,
        )
        return _Element(
            row,
            column,
            float(gradient[column]),
            float(found.numeric[0, 0]),
            float(found.uncertainty[0, 0]),
            float(found.allowed[0, 0]),
            int(found.verdict[0, 0]),
            int(found.reason[0, 0]),
        )

    def _too_weak(self) -> str:
        power = self.case.power
        spoilt = 0.0 if self.spoilt is None else float(np.mean(self.spoilt))
        why = f"; {spoilt:.1%} of the rows are at kinks or not finite" if spoilt > power.miss / 2 else ""
        return (
            f"random probes would miss an error of {power.size:.1%} in one element with a probability of "
            f"{self.all_missed:.2g}, where {power.miss:.2g} is asked for{why}; use 'method: full', a smaller "
            "input, or ask for less (--power)."
        )


def probe_pair(
    case: Case, operations: Operations, pair: Pair, rule: ToleranceRule, sample: int
) -> PairSample:
    """Judge one pair by random probes.

    Args:
        case: for its domains, scales and the power that is asked for.
        operations: `formula` has the vjp, `differenced` the forward.
        pair: output number, input number.
        rule: the pair's tolerance.
        sample: number of the sample point.

    Returns:
        The elements that were looked at one by one, if any, and what the probes say of the rest.
    """
    output, number = pair
    op = operations.differenced
    target = _target(case, operations, pair, rule)
    search = _Search(
        case, operations, pair, rule, target, np.random.default_rng([case.seed, sample, output, number])
    )
    search.run()
    found = search.elements

    def column(values: list[float]) -> Float:
        return np.array(values, dtype=np.float64).reshape(-1, 1)

    return PairSample(
        analytic=column([element.analytic for element in found]),
        numeric=column([element.numeric for element in found]),
        uncertainty=column([element.uncertainty for element in found]),
        allowed=column([element.allowed for element in found]),
        verdict=column([element.verdict for element in found]).astype(np.int8),
        reason=column([element.reason for element in found]).astype(np.int8),
        is_connected=operations.formula.is_connected(output, number),
        evaluations=target.evaluations,
        method="probe",
        numeric_dtype=op.inputs[number].dtype,
        shape=(packed_size(op.outputs[output]), packed_size(op.inputs[number])),
        rows=column([element.row for element in found]).astype(np.int64),
        columns=column([element.column for element in found]).astype(np.int64),
        miss_probability=None if search.is_wrong else search.all_missed,
        miss_size=None if search.is_wrong else case.power.size,
        is_zero=(search.gradient_is_zero, search.change_is_zero),
        probe_error=search.error,
        probe_bound=search.bound,
        doubt=search.doubt,
    )


def refused(operations: Operations, pair: Pair) -> PairSample:
    """Return what is known of a pair that only probes could judge, where they are refused: nothing."""
    op, (output, number) = operations.differenced, pair
    none = np.zeros((0, 1))
    codes = none.astype(np.int8)
    shape = (packed_size(op.outputs[output]), packed_size(op.inputs[number]))
    return PairSample(
        analytic=none,
        numeric=none,
        uncertainty=none,
        allowed=none,
        verdict=codes,
        reason=codes,
        is_connected=operations.formula.is_connected(output, number),
        evaluations=0,
        method="none",
        numeric_dtype=op.inputs[number].dtype,
        shape=shape,
        is_zero=(False, False),
        doubt=(
            f"a Jacobian of {shape[0]} x {shape[1]} elements is left to random probes, which '--require "
            "full' refuses; use 'method: full', or a smaller input."
        ),
    )


def _target(case: Case, operations: Operations, pair: Pair, rule: ToleranceRule) -> Target:
    """Set up forward and vjp of a pair, one point and one upstream at a time."""
    output, number = pair
    op, formula = operations.differenced, operations.formula
    evaluate = packed_function(op, number, [output])
    point = packed_point(op, number)

    def pull(upstream: Float) -> Float:
        gradient = pull_back(formula, output, upstream[None])[number]
        return np.zeros(point.size) if gradient is None else gradient[0]

    low, high = case.tensors[number].domain
    precision = working_precision(op, op.inputs[number].dtype)
    values = working_precision(op, op.outputs[output].dtype)
    return Target(
        evaluate=lambda x: evaluate(x[None])[0],
        pull=pull,
        point=point,
        typical=typical_size(point, case.tensors[number].scale),
        low=-np.inf if low is None else low,
        high=np.inf if high is None else high,
        unit=values.unit_roundoff,
        precision=precision,
        working=coarsest(precision, values),
        rtol=rule.rtol,
    )
