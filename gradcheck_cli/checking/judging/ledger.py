"""The ledger: whatever may turn a mismatch into a pass, a kink or "can't tell", in its order.

A verdict starts with the comparison with differences (`numerics.judge`). After that, only the entries here
change it. Each says whom it protects and the largest error that it can ever excuse; `docs/verdicts.md` has
the same table. Whole Jacobians and single probed elements go through the same entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import numpy as np

from gradcheck_cli.checking.judging.declared_allowances import (
    JudgePairs,
    judge_exact_point,
    pass_approximations,
)
from gradcheck_cli.checking.ops.budget import OverBudgetError
from gradcheck_cli.checking.ops.jacobian import Jacobian, PairKey
from gradcheck_cli.checking.ops.packing import Float, pack, packed_magnitude, packed_size, unpack
from gradcheck_cli.checking.pairs.pair import Pair
from gradcheck_cli.checking.pairs.pair_sample import PairSample, Rule
from gradcheck_cli.checking.pairs.rounding import allow_rounding, leave_ill_conditioned
from gradcheck_cli.checking.pairs.ties import judge_ties, leave_joined_kinks
from gradcheck_cli.numerics import Reason, Verdict
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.numerics.shared_limits import CHEAP

METHOD = "forward_mode"
# Reasons why differences fail although there is a derivative. A jump or a singularity has none, and for a
# function that rounds, the slope of its body isn't the one that is meant.
_SETTLED = (Reason.NOISE, Reason.UNRESOLVED, Reason.LOW_PRECISION, Reason.DOMAIN)


def settle_by_forward_mode(pair: Pair, sample: PairSample) -> PairSample:
    """Return a pair's verdicts with those elements passed that forward mode shows to be right.

    Args:
        pair: the pair, whose formula has the gradient. With a surrogate the forward isn't meant: no change.
        sample: the verdicts by differences, of a whole Jacobian.
    """
    undecided = (sample.verdict == Verdict.INCONCLUSIVE) & np.isin(sample.reason, _SETTLED)
    columns = np.flatnonzero(undecided.any(axis=0))
    if pair.case.reference is not None or not sample.is_whole or not 0 < len(columns) <= CHEAP:
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
    return settled.with_differencing(method=METHOD)


def _differentiate(pair: Pair, columns: np.ndarray) -> Float | None:
    """Return the columns of the packed Jacobian by forward mode; `None` where it says nothing new."""
    op, (output, input_index) = pair.operations.formula, pair.key
    directions = np.zeros((len(columns), packed_size(op.inputs[input_index])))
    directions[np.arange(len(columns)), columns] = 1.0
    outputs = op.jvp(input_index, unpack(directions, op.inputs[input_index]))
    if outputs is None or (tangents := outputs[output]) is None:
        return None
    return np.asarray(pack(tangents, op.outputs[output]).T)


Judged = dict["PairKey", "PairSample"]
JudgeStops = Callable[
    [Mapping[PairKey, Pair], Mapping[PairKey, Jacobian | None], Mapping[PairKey, PairSample], int], Judged
]


@dataclass(frozen=True)
class Evidence:
    """What entries of the ledger may look at, at one sample point.

    Attributes:
        analytic: the formula's Jacobians of pairs that are judged element by element.
        sparsities: of the pairs that are judged without their zeros.
        are_right_alone: whether the user's own gradients on a pair's path are right, each by itself.
    """

    pairs: Mapping[PairKey, Pair]
    judge: JudgePairs | None = None  # judges other forms of pairs by differences
    analytic: Mapping[PairKey, Jacobian | None] = field(default_factory=dict)
    sparsities: Mapping[PairKey, Sparsity] = field(default_factory=dict)
    # leaves undecided what is right only if a stop is meant
    judge_stops: JudgeStops = lambda _pairs, _analytic, judged, _sample: dict(judged)
    are_right_alone: Callable[[PairKey], bool] = lambda _: False
    sample: int = 0  # index of the sample point


class Stage(Enum):
    """When an entry acts."""

    DIFFERENCES = "with each comparison with differences"
    FORMULA = "once, on the formula of a pair"
    POINT = "once, on all pairs of a sample point"


@dataclass(frozen=True)
class Allowance:
    """An entry of the ledger.

    Attributes:
        run: returns the verdicts; a pair for which there is no time is left out.
    """

    rule: Rule  # the name that stays with the elements it decides
    stage: Stage  # when it acts
    effect: str  # what it may turn into what
    protects: str  # whom
    limit: str  # the largest error that it can ever excuse
    run: Callable[[Evidence, Judged], Judged]
    at_elements: bool = False  # whether it acts on single elements of a probed pair, too


def _each(settle: Callable[[Pair, PairSample], PairSample]) -> Callable[[Evidence, Judged], Judged]:
    """Return an entry that settles one pair after another."""

    def run(evidence: Evidence, judged: Judged) -> Judged:
        return {key: settle(evidence.pairs[key], sample) for key, sample in judged.items()}

    return run


def _judge_exact_points(evidence: Evidence, judged: Judged) -> Judged:
    samples: Judged = {}
    for key, sample in judged.items():
        pair = evidence.pairs[key]
        if evidence.judge is None or not pair.may_be_rounded or not sample.is_wrong:
            samples[key] = sample
            continue
        try:
            samples[key] = judge_exact_point(pair, sample, evidence.sparsities, evidence.judge)
        except OverBudgetError:
            continue
    return samples


def _leave_joined_kinks(evidence: Evidence, judged: Judged) -> Judged:
    return {
        key: leave_joined_kinks(evidence.pairs[key], sample, partial(evidence.are_right_alone, key))
        for key, sample in judged.items()
    }


def _leave_infinite(pair: Pair, sample: PairSample) -> PairSample:
    """Return a pair's verdicts, undecided where the forward isn't finite at the point.

    If the output contains NaN, all elements of the gradient that aren't finite are undecided, too: a kernel
    that gives up (the Cholesky factor of a matrix that isn't positive definite) leaves the rest of its memory
    unwritten, and a difference of that is no derivative.
    """
    op, output = pair.operations.differenced, pair.output_index
    is_finite = np.isfinite(packed_magnitude(op.base_values[output], op.outputs[output]))
    if is_finite.all() or not sample.verdict.size:
        return sample
    undecided = ~is_finite[sample.each_place()[0]]
    if np.isnan(op.base_values[output]).any():  # an infinity is a value like any other
        undecided |= ~np.isfinite(sample.analytic)
    return sample.settle(
        undecided,
        Verdict.INCONCLUSIVE,
        Rule.NOT_FINITE,
        Reason.SINGULAR,
        numeric=np.nan,
        uncertainty=np.inf,
    )


ALLOWANCES = (
    Allowance(
        Rule.TIE,
        Stage.DIFFERENCES,
        "a mismatch into a kink or into can't tell; and a kink into a mismatch",
        "gradients at tied inputs, such as those of a maximum of equal numbers",
        "none: the row, as a whole, must lie among the slopes around the point",
        lambda evidence, judged: judge_ties(evidence.pairs, judged),
    ),
    Allowance(
        Rule.ROUNDING,
        Stage.DIFFERENCES,
        "a mismatch or can't tell into a pass, or a mismatch into can't tell",
        "remainders of terms that cancel inside the gradient, as in a causal softmax's first row; and "
        "constants or weights that the declared dtype rounds (an exact GELU in bfloat16)",
        "16 times what eight other roundings of the upstream move the element by, or 4 times its noise at "
        "points beside: at most 1e-3 of the element, or 2^23 roundings (1e-9 in float64), and 1e-3, of the "
        "pair's largest element or of the output's value over the input. For a mismatch, 1.5 times what "
        "eight other roundings of constants move it by: at most 16 roundings of the declared dtype, of the "
        "row's largest element or of the output's value over the input",
        _each(allow_rounding),
        at_elements=True,
    ),
    Allowance(
        Rule.ILL_CONDITIONED,
        Stage.DIFFERENCES,
        "a mismatch into can't tell",
        "points at which output and gradient have no digits, such as a singular matrix, or equal elements "
        "that are normalised twice",
        "where eight roundings of the inputs move the output by 2^17 roundings: any error if they move the "
        "gradient by a thousandth, else 4 times what they move it by, or what they move the output by over "
        "the input",
        _each(leave_ill_conditioned),
        at_elements=True,
    ),
    Allowance(
        Rule.FORWARD_MODE,
        Stage.FORMULA,
        "can't tell into a pass",
        "noisy forwards, and inputs without room for a step, in eager mode",
        "the tolerance, between the gradient and TensorFlow's forward mode",
        _each(settle_by_forward_mode),
    ),
    Allowance(
        Rule.EXACT_POINT,
        Stage.FORMULA,
        "a mismatch into a pass or a kink",
        "gradients that rely on a property that rounding of the inputs destroys (probabilities)",
        "16 roundings of the declared dtype, of the row's largest element",
        _judge_exact_points,
    ),
    Allowance(
        Rule.APPROXIMATION,
        Stage.FORMULA,
        "a mismatch or can't tell into a pass, with a `precision` warning",
        "formulas that are tuned to the declared dtype, such as a polynomial `erf`",
        "3.5e-4 of the element itself; 4.9e-4 in float16, 3.9e-3 in bfloat16",
        _each(pass_approximations),
        at_elements=True,
    ),
    Allowance(
        Rule.STOP,
        Stage.POINT,
        "a mismatch into can't tell",
        "gradients that are right if a `stop_gradient` is meant",
        "none: the gradient must be right with the stops held; behind a closed function, any error",
        lambda evidence, judged: evidence.judge_stops(
            evidence.pairs, evidence.analytic, judged, evidence.sample
        ),
    ),
    Allowance(
        Rule.JOINED_KINKS,
        Stage.POINT,
        "a mismatch into can't tell",
        "TensorFlow's chain rule where several ops are at a kink at once",
        "any error, in rows with an element at a kink whose own gradients are right by themselves",
        _leave_joined_kinks,
    ),
    Allowance(
        Rule.NOT_FINITE,
        Stage.POINT,
        "any verdict into can't tell",
        "points at which the forward isn't finite",
        "any error, in rows whose value isn't finite, and in elements that aren't where a value is NaN",
        _each(_leave_infinite),
    ),
)


def settle_pairs(stage: Stage, evidence: Evidence, judged: Judged) -> Judged:
    """Let the ledger's entries of one stage act, in order.

    Args:
        stage: which.
        evidence: what they may look at.
        judged: the verdicts so far.

    Returns:
        The verdicts, except on pairs for which there is no time.
    """
    for allowance in ALLOWANCES:
        if allowance.stage is stage:
            judged = allowance.run(evidence, judged)
    return judged


def settle_element(pair: Pair, sample: PairSample) -> PairSample:
    """Let the ledger's entries for single elements act on a probed pair's element and its neighbours."""
    judged = {pair.key: sample}
    for allowance in ALLOWANCES:
        if allowance.at_elements:
            judged = allowance.run(Evidence({pair.key: pair}), judged)
    return judged[pair.key]
