"""Find out what a `stop_gradient` does to a derivative: nothing, or it makes the gradient another one.

Backpropagation treats a stopped value as a constant; differences don't. If the gradient is that of the whole
function, the stop has only saved work, and nothing is reported. If it isn't, the function is differenced once
more with the stops held. A gradient that is right then is right only if the stop is meant, and only the
author knows that (decision 9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gradcheck_cli.checking.judging.judge_by_probes import probe_pairs
from gradcheck_cli.checking.judging.ledger import judge_pairs
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    PairKey,
    packed_point,
    working_precision,
)
from gradcheck_cli.checking.ops.operation import Float, Operation
from gradcheck_cli.checking.ops.space import function_between
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, Rule, Stopped
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.problem import Room, scales
from gradcheck_cli.numerics.shared_limits import DIGITS, DIRECTIONS, OF_MANY_OPERATIONS, OWN_ORDER
from gradcheck_cli.spec.case import Case

CLOSED = (
    "a stop_gradient inside {}, which is closed (a ready-made function: a ConcreteFunction, a SavedModel), "
    "may change this derivative, and nothing can hold it there to tell; check the Python function that it "
    "was made of."
)
UNHELD = "a stop_gradient at {} may change this derivative, and it can't be held to tell: {}"
# Stands for every op that can't be opened among the keys of stops.
_CLOSED_KEY = "closed"
# Two steps, by which the cubic term of a central difference is eliminated. Held or not, functions with the
# same first derivative may have different third derivatives, which are 1000 times as large near a small
# variance.
_STEPS = (1.0, 0.25)


@dataclass(frozen=True)
class StopGradients:
    """The `stop_gradient`s of a case for which the spec doesn't say whether they are meant."""

    case: Case
    # keys of those that may be held, to see whether a gradient is right then; `None` for all. For a vjp, only
    # those that change a first derivative: any other stop only saves work, and the second derivative is then
    # that of the function with nothing held.
    among: frozenset[str] | None = None
    budget: Budget = field(default_factory=Budget)  # limits what probes may spend

    def judge_with_stops_held(
        self,
        pairs: Mapping[PairKey, Pair],
        analytic: Mapping[PairKey, Jacobian | None],
        sample: int,
        judged: dict[PairKey, PairSample],
    ) -> dict[PairKey, PairSample]:
        """Return the verdicts on pairs with stops in between, in doubt where one may be meant.

        Args:
            pairs: the pairs at the point, with nothing held.
            analytic: the Jacobians, except of pairs that are too large.
            sample: index of the sample point.
            judged: the verdicts with nothing held.
        """
        op = next(iter(pairs.values())).operations.differenced
        stops = {
            key: {
                stop: place
                for stop, place in op.facts.stops_between(*key).items()
                if self.among is None or stop in self.among
            }
            for key in judged
        }
        held = _HeldVerdicts({key: pairs[key] for key in judged}, stops, analytic, sample, self.budget)
        return {
            key: self._judge_with_stops_held(pairs[key], verdicts, stops[key], held)
            for key, verdicts in judged.items()
        }

    def note_reference(
        self, pairs: Mapping[PairKey, Pair], judged: Mapping[PairKey, PairSample]
    ) -> dict[PairKey, PairSample]:
        """Note which stops of a reference change its derivative: they are meant, at second order too."""
        samples = dict(judged)
        for key, sample in judged.items() if self.case.judging.freeze is None else ():
            stops = pairs[key].operations.differenced.facts.stops_between(*key)
            if stops:
                changing = frozenset(_compare(pairs[key], sample, stops).keys)
                samples[key] = replace(sample, stop_keys=changing)
        return samples

    def _judge_with_stops_held(
        self, pair: Pair, sample: PairSample, stops: Mapping[str, str], verdicts: _HeldVerdicts
    ) -> PairSample:
        op = pair.operations.differenced
        closed = op.facts.closed(*pair.key) if self.among is None or _CLOSED_KEY in self.among else []
        if closed and sample.is_wrong:
            undecided = _mark_undecided(sample, CLOSED.format(", ".join(closed)))
            return replace(undecided, stop_keys=sample.stop_keys | {_CLOSED_KEY})
        if not stops:
            return sample
        try:
            held = verdicts.of(pair.key)
            if self.case.reference is not None:  # the reference decides this by its own stops
                own = replace(held, stop_keys=sample.stop_keys)
                return own.with_differencing(is_held=True) if held.is_right else sample
            return self._doubt(pair, sample, stops, held)
        except CaseFailedError as failure:
            where = " and ".join(dict.fromkeys(stops.values()))
            return (
                _mark_undecided(sample, UNHELD.format(where, failure.message)) if sample.is_wrong else sample
            )

    @staticmethod
    def _doubt(pair: Pair, sample: PairSample, stops: Mapping[str, str], held: PairSample) -> PairSample:
        """Leave a verdict open for stops, unless the gradient is wrong with them held, too."""
        if sample.is_wrong and held.is_wrong:
            return sample
        change = _compare(pair, sample, stops)
        if not change.keys and not (sample.is_wrong and held.is_right):
            return sample
        # It isn't always possible to tell which stop makes the difference; then any of them may.
        keys = change.keys or list(stops)
        places = tuple(dict.fromkeys(stops[key] for key in keys))
        stopped = Stopped(places, _largest_error(sample) if sample.is_wrong else change.share)
        undecided = _mark_undecided(sample, str(stopped))
        return replace(undecided, stopped=stopped, stop_keys=sample.stop_keys.union(keys))


@dataclass
class _HeldVerdicts:
    """The verdicts on pairs with their stops held, all pairs at once.

    A stop that isn't between an input and an output changes nothing there, held or not.
    """

    pairs: Mapping[PairKey, Pair]  # the pairs to judge again
    stops: Mapping[PairKey, Mapping[str, str]]  # for each pair, places by key
    analytic: Mapping[PairKey, Jacobian | None]  # Jacobians of those that are judged element by element
    sample: int  # index of the sample point
    budget: Budget  # limits what probes may spend

    def of(self, key: PairKey) -> PairSample:
        """Return one pair's verdicts.

        Raises:
            CaseFailedError: the stops can't be held.
        """
        if key in self.analytic:
            judged = judge_pairs({key: self._held[key]}, {key: self.analytic[key]})
            if judged:
                return judged[key]
        if key in self._probed:
            return self._probed[key]
        return probe_pairs({key: self._held[key]}, self.sample, self.budget)[key]

    @cached_property
    def _held(self) -> dict[PairKey, Pair]:
        every = {stop: place for of_pair in self.stops.values() for stop, place in of_pair.items()}
        operations = next(iter(self.pairs.values())).operations
        operations = replace(operations, differenced=_holding(operations.differenced, frozenset(every)))
        return {key: pair.with_operations(operations) for key, pair in self.pairs.items()}

    @cached_property
    def _probed(self) -> dict[PairKey, PairSample]:
        """Probe the pairs whose Jacobians cost too much and that have a stop in between, all together."""
        large = {
            key: pair for key, pair in self._held.items() if key not in self.analytic and self.stops[key]
        }
        return probe_pairs(large, self.sample, self.budget)


def _holding(op: Operation, stops: frozenset[str]) -> Operation:
    return op.forms.holding(stops) or op


def _mark_undecided(sample: PairSample, message: str) -> PairSample:
    wrong = sample.verdict == Verdict.MISMATCH
    return replace(sample.settle(wrong, Verdict.INCONCLUSIVE, Rule.STOP), doubt=message)


def _largest_error(sample: PairSample) -> float:
    """Return the largest difference of gradient and derivative among mismatches, relative to the larger."""
    wrong = sample.verdict == Verdict.MISMATCH
    share = (np.abs(sample.analytic - sample.numeric) / sample.larger)[wrong]
    return float(np.max(np.nan_to_num(share, nan=1.0, posinf=1.0), initial=0.0))


@dataclass(frozen=True)
class _Change:
    """How holding stops changes slopes: by what share of a slope at most, and which stops cause it."""

    share: float
    keys: list[str]


def _compare(pair: Pair, sample: PairSample, stops: Mapping[str, str]) -> _Change:
    """Compare slopes with nothing held, with each stop held alone, with all but one held, and with all held.

    If there are two stops in a row, holding one changes nothing while the other is held, and everything while
    it isn't. So both ways are tried.
    """
    op, (output, input_index) = pair.operations.differenced, pair.key
    points = _draw_points(pair, sample)

    def slopes(held: frozenset[str]) -> tuple[Float, float]:
        both = np.concatenate([points, 2 * point - points])
        values = function_between(_holding(op, held), [input_index], [output])(both)
        far, near = np.split(values[: len(points)] - values[len(points) :], 2)
        return (16 * near / _STEPS[1] - far) / 15, float(np.max(np.abs(values), initial=0.0))

    point = packed_point(op, input_index)
    every = frozenset(stops)
    (free, size), (held, _) = slopes(frozenset()), slopes(every)
    # Four roundings are seen between a graph and a batch, from sums in another order. The extrapolated slope
    # has 130/15 times a value's.
    noise = OF_MANY_OPERATIONS * working_precision(op, op.outputs[output].dtype).unit_roundoff * size
    largest = np.maximum(np.abs(free), np.abs(held))
    change = np.abs(free - held)
    # A smaller change can't be told from the remaining truncation error. Where a gradient is wrong
    # without a stop and right with it, the verdicts tell.
    counts = change > np.maximum(noise, DIGITS * largest)
    if not counts.any():
        return _Change(0.0, [])
    # A stop that causes less than that isn't named beside those that cause it.
    least = max(noise, OWN_ORDER * float(np.max(change[counts])))

    def differ(left: Float, right: Float) -> bool:
        return bool(np.any(np.abs(left - right) > least))

    keys = [
        key
        for key in stops
        if len(stops) == 1
        or differ(slopes(frozenset({key}))[0], free)
        or differ(slopes(every - {key})[0], held)
    ]
    return _Change(float(np.max(change[counts] / largest[counts])), keys)


def _draw_points(pair: Pair, sample: PairSample) -> Float:
    """Return points along random directions of the undecided columns, first far, then near, (2k, n)."""
    op, input_index = pair.operations.differenced, pair.input_index
    point = packed_point(op, input_index)
    bad = np.isin(sample.verdict, (Verdict.MISMATCH, Verdict.INCONCLUSIVE))
    if bad.any() and sample.columns is not None:
        columns = np.unique(np.broadcast_to(sample.columns, bad.shape)[bad])
    elif bad.any():
        columns = np.flatnonzero(bad.any(axis=0))
    else:
        columns = np.arange(point.size)
    precision = working_precision(op, op.inputs[input_index].dtype)
    step = precision.first_step * scales(point, pair.scale).step
    room = Room.around(point, *pair.domain)
    step = np.minimum(step, np.minimum(room.below, room.above))
    signs = np.random.default_rng(pair.case.seed).choice([-1.0, 1.0], size=(DIRECTIONS, columns.size))
    moves = np.concatenate([share * signs * step[columns] for share in _STEPS])
    points = np.repeat(point[None], len(moves), axis=0)
    points[:, columns] = precision.round(points[:, columns] + moves)
    return points
