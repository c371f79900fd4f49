"""The comparison with differences, and the ledger: what may make a mismatch a pass, a kink or "can't tell".

A verdict starts with the comparison with differences (`numerics.judge`). After that, only the entries here
change it, in their order. Each says whom it protects and the largest error that it can ever excuse;
`docs/verdicts.md` has the same table. Whole Jacobians and single probed elements go through the same entries.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from gradcheck_cli.checking.ops.analytic import analytic_jacobians, is_probed
from gradcheck_cli.checking.ops.budget import OverBudgetError
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    PairKey,
    packed_point,
    working_dtype,
)
from gradcheck_cli.checking.ops.operation import (
    Float,
    packed_magnitude,
    packed_size,
)
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, Places, Rule, Smallness, joint_problem
from gradcheck_cli.checking.pairs.rounding import allow_rounding, cap_of, mark_remainders
from gradcheck_cli.checking.pairs.ties import judge_ties, leave_joined_kinks
from gradcheck_cli.numerics import (
    FLOAT32,
    Judgement,
    Precision,
    Reason,
    ToleranceRule,
    Verdict,
    judge,
)
from gradcheck_cli.numerics.precision import place_of_largest
from gradcheck_cli.numerics.problem import typical_size
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.numerics.shared_limits import OF_A_VALUE
from gradcheck_cli.spec.words import METHODS

# The comparison with differences, before any entry acts.

# How much larger than a row's value its terms may be. A normalised value near the mean cancels: in one
# row of a million it is a millionth of its terms.
_TERMS = 2.0**20


def judge_pairs(
    pairs: Mapping[PairKey, Pair], analytic: Mapping[PairKey, Jacobian | None]
) -> dict[PairKey, PairSample]:
    """Judge analytic Jacobians against differences, one input after another.

    Args:
        pairs: the pairs at one sample point; the spec's expectations don't matter here.
        analytic: the Jacobians of the formula; `None` counts as zero.

    Returns:
        The verdicts on each pair in `analytic`. Pairs that take too long are left out, and so are pairs whose
        function doesn't have the sparsity of its gradient, if they are too large to be judged whole.
    """
    judged: dict[PairKey, PairSample] = {}
    by_input: dict[tuple[int, ToleranceRule], list[Pair]] = defaultdict(list)
    for key, matrix in analytic.items():
        pair = pairs[key]
        if matrix is not None and matrix.sparsity is not None:
            try:
                sparse = _judge_sparse(pair, matrix)
            except OverBudgetError:
                continue
            if sparse is not None:
                judged[key] = sparse
                continue
            if is_probed(pair.case, pair.operations.differenced, key, None):
                continue
        by_input[pair.input_index, pair.tolerance].append(pair)
    for together in sorted(by_input.values(), key=lambda group: group[0].input.size):
        with contextlib.suppress(OverBudgetError):
            judged |= _judge_together(together, analytic)
    settled = settle_pairs(Stage.DIFFERENCES, Evidence(pairs), judged)
    samples = {
        key: replace(sample, smallness=Smallness(pairs[key].tolerance.rtol, _rounding(pairs[key])))
        for key, sample in settled.items()
    }
    return mark_remainders(pairs, samples)


def _rounding(pair: Pair) -> tuple[Float, Float]:
    """Return how large rounding of the output may make a slope that is zero, (m,) each.

    The first is for the gradient, the second for differences, which divide it by their step. A value counts
    as the output's largest unless it is far smaller: its terms may be as large, as in a softmax or a
    normalisation. Inputs count as of size 1 at least. Where they are tiny, values' last bits look like a
    slope; a gradient's own terms don't grow so.
    """
    op = pair.operations.differenced
    size = packed_magnitude(op.base_values[pair.output_index], pair.output)
    working = pair.precision_in(op)
    typical = typical_size(packed_point(op, pair.input_index), pair.scale)
    size = np.where(np.isfinite(size), size, 0.0)
    largest = float(np.max(size, initial=0.0))
    size = np.where(size >= largest / _TERMS, largest, size)
    left = size * (2 * OF_A_VALUE * working.unit_roundoff / max(typical, 1.0))
    return left, left / working.first_step


def _judge_sparse(pair: Pair, matrix: Jacobian) -> PairSample | None:
    """Judge a compressed Jacobian; `None` where the function doesn't have its sparsity."""
    problem = pair.problem(sparsity=matrix.sparsity)
    judgement = judge(problem, matrix.values, method=METHODS[pair.case.judging.method].differences)
    if not judgement.is_sparse:
        return None
    places = Places((matrix.values.shape[0], matrix.width), columns=matrix.columns)
    return PairSample.of_judgement(judgement, matrix.values, _dtype_of(pair), places=places)


def _judge_together(
    pairs: Sequence[Pair], analytic: Mapping[PairKey, Jacobian | None]
) -> dict[PairKey, PairSample]:
    """Judge the whole Jacobians of pairs that have the same input and the same tolerance."""
    problem = joint_problem(pairs)
    matrices = [_values(pair, analytic[pair.key]) for pair in pairs]
    whole = np.concatenate(matrices)
    method = pairs[0].case.judging.method
    if not whole.size:
        judgement = _judge_nothing(whole)
    else:
        judgement = judge(problem, whole, method=METHODS[method].differences)
    ends = np.cumsum([len(values) for values in matrices]).tolist()
    return {
        pair.key: replace(
            PairSample.of_judgement(judgement, values, _dtype_of(pair), rows=slice(end - len(values), end)),
            is_connected=analytic[pair.key] is not None,
        )
        for pair, values, end in zip(pairs, matrices, ends, strict=True)
    }


def _values(pair: Pair, matrix: Jacobian | None) -> Float:
    if matrix is None:
        return np.zeros((packed_size(pair.output), packed_size(pair.input)))
    return matrix.whole().values


def _judge_nothing(whole: Float) -> Judgement:
    """Return the judgement on a Jacobian without elements."""
    zero, code = np.zeros(whole.shape), np.zeros(whole.shape, np.int8)
    return Judgement(code, zero, zero, zero, code, evaluations=0, method="none")


def _dtype_of(pair: Pair) -> str:
    """Return the dtype in which a pair is differenced."""
    op = pair.operations.differenced
    return working_dtype(op, op.inputs[pair.input_index].dtype)


# What entries do, unless that is in `pairs`.

# The formula is judged in float64, at a point that was rounded to the declared dtype, and it may have been
# written for that dtype. Neither is a fault of the gradient. Both are examined only where they could explain
# the error.


def judge_exact_point(pair: Pair, sample: PairSample, sparsities: Mapping[PairKey, Sparsity]) -> PairSample:
    """Judge at the exact point those mismatches that rounding of the inputs could have caused.

    What holds exactly for exact inputs (probabilities that add up to 1) holds for rounded ones to within some
    units of their dtype: ten in float32 add up to 1 within 5. A gradient that relies on it is off by as much,
    as far as the cap of rounding goes.

    Raises:
        OverBudgetError: that takes too long.
    """
    if not pair.may_be_rounded or not sample.is_wrong:
        return sample
    near = np.abs(sample.analytic - sample.numeric) <= cap_of(pair, sample)
    near &= sample.verdict == Verdict.MISMATCH
    if not near.any():
        return sample
    again = _judge_at_exact_point(pair, sparsities if sample.columns is not None else {})
    if again is None or again.verdict.shape != sample.verdict.shape:
        return sample
    right = near & np.isin(again.verdict, (Verdict.PASS, Verdict.KINK))
    settled = sample.settle(
        right,
        again.verdict,
        Rule.EXACT_POINT,
        again.reason,
        **{name: getattr(again, name) for name in ("analytic", "numeric", "uncertainty", "allowed")},
    )
    evaluations = sample.differencing.evaluations + again.differencing.evaluations
    return settled.with_differencing(evaluations=evaluations)


def _judge_at_exact_point(pair: Pair, sparsities: Mapping[PairKey, Sparsity]) -> PairSample | None:
    """Judge a pair at the inputs as they were drawn, before rounding; `None` where that isn't possible."""
    exact = pair.operations.in_form(lambda forms: forms.at_unrounded_point())
    if exact is None:
        return None
    exact.budget.require()
    matrices = analytic_jacobians(pair.case, exact.formula, [pair.key], sparsities)
    judged = judge_pairs({pair.key: pair.with_operations(exact)}, matrices)
    if pair.key not in judged:
        exact.budget.require()
    return judged.get(pair.key)


def pass_approximations(pair: Pair, sample: PairSample) -> PairSample:
    """Let elements pass if they are as accurate as an approximation for the declared dtype.

    Each is judged by itself: no other element, however large its error, makes room for it.
    """
    if not pair.may_be_rounded or not sample.is_wrong or pair.tolerance.is_rtol_fixed:
        return sample
    wrong = np.isin(sample.verdict, (Verdict.MISMATCH, Verdict.INCONCLUSIVE))
    error = np.abs(sample.analytic - sample.numeric) + sample.uncertainty
    approximate = wrong & (error <= approximation_rtol(pair.formula_precision) * sample.larger)
    allowed = np.maximum(sample.allowed, error)
    return sample.settle(approximate, Verdict.PASS, Rule.APPROXIMATION, allowed=allowed)


def approximation_rtol(precision: Precision) -> float:
    """Return how far off an approximation for a precision may be, relative to the element.

    It is half of float32's digits, 3.5e-4 (e^x for a sigmoid below -9 is off by 1.2e-4, and its slope by
    2.5e-4). In the half precisions it is one rounding where that is more, since they can't come nearer to any
    value: 4.9e-4 and 3.9e-3. An error of one per cent is larger than this in every dtype.
    """
    return max(FLOAT32.half_the_digits, precision.unit_roundoff)


def warn_of_precision(pair: Pair, sample: PairSample) -> list[str]:
    """Return a warning if some elements pass as an approximation only, and one if the dtype loses digits."""
    losses = [sample.loss] if sample.loss else []
    approximate = sample.decided_by == Rule.APPROXIMATION
    if not approximate.any():
        return losses
    share = (np.abs(sample.analytic - sample.numeric) + sample.uncertainty) / sample.larger
    at = np.where(approximate, share, -1.0)
    row, column = place_of_largest(at)
    warning = (
        f"precision: {pair.label}: {int(np.count_nonzero(approximate))} of {sample.elements} "
        f"elements are right as an approximation for {pair.formula_precision.name} only, by up to "
        f"{float(at[row, column]):.1e} off; {pair.indices(*sample.place(row, column))}: "
        f"{sample.analytic[row, column]:.6e}, numeric {sample.numeric[row, column]:.6e}."
    )
    return [warning, *losses]


# The entries.

Samples = dict[PairKey, PairSample]


@dataclass(frozen=True)
class Evidence:
    """What entries of the ledger may look at, at one sample point."""

    pairs: Mapping[PairKey, Pair]
    # of the pairs that are judged without their zeros
    sparsities: Mapping[PairKey, Sparsity] = field(default_factory=dict)
    # takes the verdicts on formulas, and judges the declared dtype beside them
    judge_declared: Callable[[Samples], Samples] | None = None
    # takes the verdicts on pairs with a stop in between, and leaves undecided what is right only if the stop
    # is meant; `None` where the spec says whether it is
    judge_stops: Callable[[Samples], Samples] | None = None
    # takes the wrong verdicts, and judges again where loops run on that values stop
    judge_loops: Callable[[Samples], Samples] | None = None
    # whether the user's own gradients on a pair's path are right, each by itself
    are_right_alone: Callable[[PairKey], bool] = lambda _: False


class Stage(Enum):
    """When an entry acts."""

    DIFFERENCES = "with each comparison with differences"
    FORMULA = "once, on the formula of a pair"
    DECLARED = "once, on a right formula's declared dtype"
    POINT = "once, on all pairs of a sample point"


@dataclass(frozen=True)
class Allowance:
    """An entry of the ledger."""

    rule: Rule  # the name that stays with the elements it decides
    stage: Stage  # when it acts
    effect: str  # what it may turn into what
    protects: str  # whom
    limit: str  # the largest error that it can ever excuse
    # returns the verdicts; a pair for which there is no time is left out
    run: Callable[[Evidence, Samples], Samples]
    at_elements: bool = False  # whether it acts on single elements of a probed pair, too
    of_right: bool = False  # whether it also acts on pairs that are right so far


def _each(
    settle: Callable[[Pair, PairSample, Evidence], PairSample],
) -> Callable[[Evidence, Samples], Samples]:
    """Return an entry that settles one pair after another; one for which there is no time is left out."""

    def run(evidence: Evidence, judged: Samples) -> Samples:
        settled = {}
        for key, sample in judged.items():
            with contextlib.suppress(OverBudgetError):
                settled[key] = settle(evidence.pairs[key], sample, evidence)
        return settled

    return run


def _doubt_stops(evidence: Evidence, judged: Samples) -> Samples:
    """Doubt pairs with a stop in between: one that changes nothing leaves a gradient right.

    A stop that changes a derivative makes probes disagree. Probes that only lack power stay undecided for
    that reason.
    """
    if evidence.judge_stops is None:
        return judged

    def may_be_stopped(key: PairKey, sample: PairSample) -> bool:
        facts, probes = evidence.pairs[key].operations.differenced.facts, sample.probes
        is_weak = probes is not None and probes.is_weak
        return not is_weak and bool(facts.stops_between(*key) or facts.closed(*key))

    stopped = {key: sample for key, sample in judged.items() if may_be_stopped(key, sample)}
    return judged | evidence.judge_stops(stopped) if stopped else judged


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
        of_right=True,
    ),
    Allowance(
        Rule.ROUNDING,
        Stage.DIFFERENCES,
        "a mismatch or can't tell into a pass, or a mismatch into can't tell",
        "remainders of terms that cancel inside the gradient, as in a causal softmax's first row; and "
        "constants or weights that the declared dtype rounds (an exact GELU in bfloat16)",
        "twice what random rounding moves the element by: for a pass at most 1e-6 (16 roundings in the half "
        "precisions) of the row's largest element or of the output's value over the input's scale; of the "
        "value over a smaller input, up to 1e-3 of the element; where the output stays level, 2^10 roundings "
        "of the pair's largest slope",
        _each(lambda pair, sample, _: allow_rounding(pair, sample)),
        at_elements=True,
    ),
    Allowance(
        Rule.EXACT_POINT,
        Stage.FORMULA,
        "a mismatch into a pass or a kink",
        "gradients that rely on a property that rounding of the inputs destroys (probabilities)",
        "as much as rounding, and the gradient must be right at those values",
        _each(lambda pair, sample, evidence: judge_exact_point(pair, sample, evidence.sparsities)),
    ),
    Allowance(
        Rule.APPROXIMATION,
        Stage.FORMULA,
        "a mismatch or can't tell into a pass, with a `precision` warning",
        "formulas that are tuned to the declared dtype, such as a polynomial `erf`",
        "3.5e-4 of the element itself; 4.9e-4 in float16, 3.9e-3 in bfloat16",
        _each(lambda pair, sample, _: pass_approximations(pair, sample)),
        at_elements=True,
    ),
    Allowance(
        Rule.DECLARED,
        Stage.DECLARED,
        "any verdict into a mismatch or into can't tell",
        "users of a gradient that is right in float64 alone, such as one that overflows in float32",
        "none: it accuses",
        lambda evidence, judged: evidence.judge_declared(judged) if evidence.judge_declared else judged,
        of_right=True,
    ),
    Allowance(
        Rule.LOOP,
        Stage.POINT,
        "a mismatch into a pass, with a `precision` warning, or into can't tell",
        "gradients of the limit of a loop that stops at a tolerance (implicit layers, Sinkhorn)",
        "for a pass as much as rounding, and the gradient must be right where the loop runs on",
        lambda evidence, judged: evidence.judge_loops(judged) if evidence.judge_loops else judged,
    ),
    Allowance(
        Rule.STOP,
        Stage.POINT,
        "a mismatch into can't tell",
        "gradients that are right if a `stop_gradient` is meant",
        "none: the gradient must be right with the stops held; behind a closed function, any error",
        _doubt_stops,
    ),
    Allowance(
        Rule.JOINED_KINKS,
        Stage.POINT,
        "a mismatch into can't tell",
        "TensorFlow's chain rule where several ops are at a kink at once",
        "any error, in rows with an element at a kink whose own gradients are right by themselves",
        _each(lambda pair, sample, evidence: leave_joined_kinks(pair, sample, evidence.are_right_alone)),
    ),
    Allowance(
        Rule.NOT_FINITE,
        Stage.POINT,
        "any verdict into can't tell",
        "points at which the forward isn't finite",
        "any error, in rows whose value isn't finite, and in elements that aren't where a value is NaN",
        _each(lambda pair, sample, _: _leave_infinite(pair, sample)),
        of_right=True,
    ),
)


def settle_pairs(stage: Stage, evidence: Evidence, judged: Samples) -> Samples:
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
            judged = _let_act(allowance, evidence, judged)
    return judged


def _let_act(allowance: Allowance, evidence: Evidence, judged: Samples) -> Samples:
    """Let an entry act on the pairs that it is for."""
    concerned = {key: sample for key, sample in judged.items() if allowance.of_right or not sample.is_right}
    if not concerned:
        return judged
    settled = allowance.run(evidence, concerned)
    return {
        key: settled.get(key, sample)
        for key, sample in judged.items()
        if key in settled or key not in concerned
    }


def settle_element(pair: Pair, sample: PairSample) -> PairSample:
    """Let the ledger's entries for single elements act on a probed pair's element and its neighbours.

    Raises:
        OverBudgetError: there is no time for an entry, so it isn't known what may be excused.
    """
    judged = {pair.key: sample}
    for allowance in ALLOWANCES:
        if allowance.at_elements:
            judged = _let_act(allowance, Evidence({pair.key: pair}), judged)
    if pair.key not in judged:
        raise OverBudgetError
    return judged[pair.key]
