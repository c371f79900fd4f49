"""Decide by forward mode what differences can't decide.

In eager mode, forward mode differentiates the body of a custom gradient and ignores the gradient function. So
the two derivatives can be compared even where differences are lost in noise or have no room to step. This can
show that a gradient is right, but never that it is wrong: a custom gradient is often written because the
body's own derivative is unstable or stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.packing import pack, packed_size, unpack
from gradcheck_cli.checking.pairs.pair_sample import Rule
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.reasons import Reason

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import Pair
    from gradcheck_cli.checking.pairs.pair_sample import PairSample

METHOD = "forward_mode"
# Reasons why differences fail although there is a derivative. A jump or a singularity has none, and for a
# function that rounds, the slope of its body isn't the one that is meant.
_SETTLED = (Reason.NOISE, Reason.UNRESOLVED, Reason.LOW_PRECISION, Reason.DOMAIN)
# Each column takes a forward pass.
MOST_COLUMNS = 256


def settle_by_forward_mode(pair: Pair, sample: PairSample) -> PairSample:
    """Return a pair's verdicts with those elements passed that forward mode shows to be right.

    Args:
        pair: the pair, whose formula has the gradient. With a surrogate the forward isn't meant: no change.
        sample: the verdicts by differences, of a whole Jacobian.
    """
    undecided = (sample.verdict == Verdict.INCONCLUSIVE) & np.isin(sample.reason, _SETTLED)
    columns = np.flatnonzero(undecided.any(axis=0))
    if pair.case.reference is not None or not sample.is_whole or not 0 < len(columns) <= MOST_COLUMNS:
        return sample
    slopes = _differentiate(pair, columns)
    if slopes is None:
        return sample
    forward = np.zeros(sample.verdict.shape)
    forward[:, columns] = slopes
    allowed = pair.problem(pair.operations.formula).allowed_between(sample.analytic, sample.analytic)
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - forward)
        right = undecided & (error <= allowed)
    if not right.any():
        return sample
    settled = sample.settle(right, Verdict.PASS, Rule.FORWARD_MODE, numeric=forward, uncertainty=0.0)
    return replace(settled, method=METHOD)


def _differentiate(pair: Pair, columns: np.ndarray) -> Float | None:
    """Return the columns of the packed Jacobian by forward mode; `None` where it says nothing new."""
    op, (output, input_index) = pair.operations.formula, pair.key
    directions = np.zeros((len(columns), packed_size(op.inputs[input_index])))
    directions[np.arange(len(columns)), columns] = 1.0
    outputs = op.jvp(input_index, unpack(directions, op.inputs[input_index]))
    if outputs is None or (tangents := outputs[output]) is None:
        return None
    return np.asarray(pack(tangents, op.outputs[output]).T)
