"""Probes one pair at one sample point until an error is found, or it is known what could have been missed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.element import Element, judge_element
from gradcheck_cli.numerics import Verdict
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
    take_difference,
    unseen_share,
    weigh,
)

if TYPE_CHECKING:
    from gradcheck_cli.checking.sample import Operations, Pair
    from gradcheck_cli.numerics import ToleranceRule
    from gradcheck_cli.spec.case import Case

# Two directions: errors that cancel in one of them don't in the other.
_PROBES = 2
_NOTHING = np.zeros(0)
# Rows that no direction says anything of, of which an element is judged.
_SPOILT_ROWS = 6
# With more rows spoilt than this, a step is too long.
_MANY_SPOILT = 0.01
# Where one element's error drowns among all rows, rows are probed in blocks, of which each drowns less.
_BLOCKS = (1, 4, 16)
# Leads that may turn out to be right elements (a kink, say) before the search is given up.
_MOST_LEADS = 8


@dataclass
class Search:
    """The probes of one pair at one sample point, and what they have found so far.

    `missed` is the smallest share, over the probes, of elements in which an error would have stayed unseen;
    `spoilt` holds the rows of which no direction could say anything, `still` is the share of inputs that have
    no room to move.
    """

    case: Case
    operations: Operations
    pair: Pair
    rule: ToleranceRule
    target: Target
    generator: np.random.Generator
    elements: list[Element] = field(default_factory=list)
    error: float = 0.0
    bound: float = 0.0
    missed: float = 1.0
    still: float = 0.0
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
            bound = self._probe(reach, 1, weighed=bool(tried))
            if bound is None:
                # Too far: kinks lie in between. A shorter step crosses fewer of them.
                reaches = [SHORT, SHORT] if reach == MIDDLE else [MIDDLE]
            else:
                tried.append((bound, reach))
        for blocks in _BLOCKS:
            if self.is_over or self.is_strong or self.target.base.size < blocks:
                break
            sharpest = min(tried)[1]
            if blocks == 1 and sharpest == tried[-1][1]:
                continue  # what it could see is known
            self._probe(sharpest, blocks)
        if not self.is_over:
            self._look_at_spoilt_rows()
        if not self.is_over and not self.is_strong:
            self.doubt = self._too_weak()

    @property
    def all_missed(self) -> float:
        """The share of elements in which an error may be missed, with those that couldn't be looked at."""
        spoilt = 0.0 if self.spoilt is None else float(np.mean(self.spoilt))
        return min(1.0, self.missed + spoilt + self.still)

    def _probe(self, reach: int, blocks: int, *, weighed: bool = True) -> float | None:
        """Compare along one direction, block of rows by block.

        Args:
            reach: how far to step.
            blocks: how many blocks the rows fall into.
            weighed: whether to find out what it could have missed.

        Returns:
            The bound of the comparison, relative to what it was made among; `None` where a shorter step must
            be taken.
        """
        differenced = take_difference(draw_direction(self.target, self.generator, reach))
        direction, spoilt = differenced.direction, differenced.is_spoilt
        if reach != SHORT and float(np.mean(spoilt)) > _MANY_SPOILT:
            return None
        self.still = 1 - np.count_nonzero(direction.steps) / direction.steps.size
        self.spoilt = spoilt if self.spoilt is None else self.spoilt & spoilt
        self.change_is_zero &= not differenced.change.any() and not spoilt.any()
        hidden = seen = 0
        sharpness = 0.0
        rows = spoilt.size
        for start, stop in itertools.pairwise(np.linspace(0, rows, blocks + 1).astype(int)):
            upstream = weigh(differenced, self.generator, slice(start, stop))
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
                # What is done with goes first: each array may be a good part of the memory.
                probe = replace(probe, gradient=_NOTHING)
                if stop == rows:
                    del differenced
                unseen, among = unseen_share(direction, probe, self.case.power.size, self.generator)
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
            if self._judge(row, column).verdict == Verdict.MISMATCH:
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

    def _judge(self, row: int, column: int) -> Element:
        """Judge one element, and keep it."""
        place = (row, column)
        self.elements.append(
            judge_element(self.case, self.operations, self.pair, self.rule, self.target, place)
        )
        return self.elements[-1]

    def _look_at_spoilt_rows(self) -> None:
        """Judge the largest element of some rows that no direction could say anything of: rows at kinks.

        An error there may be of one kind (a wrong slope at 0), and isn't one random element among all.
        """
        if self.spoilt is None or not self.spoilt.any():
            return
        base = self.target.base
        rows = np.flatnonzero(self.spoilt)
        lost = int(np.count_nonzero(~np.isfinite(base[rows])))
        if lost:
            self.doubt = (
                f"{lost} of {base.size} outputs aren't finite: nothing can be said of their gradients; "
                "choose inputs where they are."
            )
            return
        for row in self.generator.choice(rows, min(_SPOILT_ROWS, rows.size), replace=False):
            gradient = np.abs(self.target.row(row))
            column = int(np.argmax(np.where(np.isnan(gradient), np.inf, gradient)))
            verdict = self._judge(int(row), column).verdict
            if verdict == Verdict.MISMATCH:
                return
            if verdict == Verdict.INCONCLUSIVE:
                self.elements.pop()  # the row counts as missed, whatever else is known of it

    def _too_weak(self) -> str:
        power = self.case.power
        spoilt = 0.0 if self.spoilt is None else float(np.mean(self.spoilt))
        why = f"; {spoilt:.1%} of the rows are at kinks" if spoilt > power.miss / 2 else ""
        if self.still > power.miss / 2:
            why = f"; {self.still:.1%} of the inputs are at the end of their domain"
        if self.target.is_lenient:
            why += "; what the spec's tolerances allow hides it"
        return (
            f"random probes would miss an error of {power.size:.1%} in one element with a probability of "
            f"{self.all_missed:.2g}, where {power.miss:.2g} is asked for{why}; use 'method: full', a smaller "
            "input, or ask for less (--power)."
        )
