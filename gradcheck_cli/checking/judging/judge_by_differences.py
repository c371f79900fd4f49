"""Judge pairs at one sample point element by element, against differences or complex steps."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradcheck_cli.checking.judging.ledger import Evidence, Stage, settle_pairs
from gradcheck_cli.checking.ops.analytic import is_probed
from gradcheck_cli.checking.ops.budget import OverBudgetError
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    PairKey,
    packed_complex_function,
    packed_point,
    working_dtype,
)
from gradcheck_cli.checking.ops.packing import Float, packed_magnitude, packed_size
from gradcheck_cli.checking.pairs.pair import Pair, joint_problem
from gradcheck_cli.checking.pairs.pair_sample import PairSample, Places, Smallness
from gradcheck_cli.checking.pairs.rounding import mark_remainders
from gradcheck_cli.numerics import Judgement, ToleranceRule, judge, judge_complex_step
from gradcheck_cli.numerics.shared_limits import OF_A_VALUE
from gradcheck_cli.numerics.steps import typical_size
from gradcheck_cli.spec.words import METHODS

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
    mark_remainders(pairs, samples)
    return samples


def _rounding(pair: Pair) -> tuple[Float, Float]:
    """Return how large a zero slope may seem, as outputs are rounded: in the gradient, in differences; (m,).

    A value counts as the output's largest unless it is far smaller: its terms may be as large, as in a
    softmax or a normalisation. Inputs count as of size 1 at least. Where they are tiny, values' last bits
    look like a slope; a gradient's own terms don't grow so.
    """
    op = pair.operations.differenced
    size = packed_magnitude(op.base_values[pair.output_index], pair.output)
    working = pair.precision_in(op)
    typical = typical_size(packed_point(op, pair.input_index), pair.scale)
    size = np.where(np.isfinite(size), size, 0.0)
    largest = float(np.max(size, initial=0.0))
    size = np.where(_TERMS * size >= largest, largest, size)
    left = size * (2 * OF_A_VALUE * working.unit_roundoff / max(typical, 1.0))
    return left, left / working.first_step


def _judge_sparse(pair: Pair, matrix: Jacobian) -> PairSample | None:
    """Judge a compressed Jacobian; `None` where the function doesn't have its sparsity."""
    problem = pair.problem(sparsity=matrix.sparsity)
    judgement = judge(problem, matrix.values, method=METHODS[pair.case.method].differences)
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
    method = pairs[0].case.method
    if not whole.size:
        judgement = _judge_nothing(whole)
    elif (in_complex := pairs[0].operations.in_complex) is not None:
        outputs = [pair.output_index for pair in pairs]
        evaluate = packed_complex_function(in_complex, pairs[0].input_index, outputs)
        judgement = judge_complex_step(problem, evaluate, whole)
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
