"""One op by itself: its pairs are judged as those of a case, at its own operating point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradcheck_cli import hooks
from gradcheck_cli.checking.checks.check import UpstreamView, pull_outputs
from gradcheck_cli.checking.checks.linearity import check_linearity
from gradcheck_cli.checking.judging.judge_by_probes import probe_pairs
from gradcheck_cli.checking.judging.ledger import Evidence, Stage, judge_pairs, settle_pairs
from gradcheck_cli.checking.ops.analytic import analytic_jacobians, guess_sparsities
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import PairKey, hint_on_triangle
from gradcheck_cli.checking.ops.operation import (
    GradientFormError,
    Operation,
    Operations,
    TensorInfo,
    name_element,
)
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, PointData, pair_keys, pairs_at
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import (
    EXPLANATIONS,
    Reason,
    Verdict,
)
from gradcheck_cli.numerics.precision import place_of_largest
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Argument, Case, InputSpec, Judging, StatedTolerance
from gradcheck_cli.spec.values.moves import is_symmetric

# How long probes of one op's large pairs may go on, in seconds of processor time.
_SECONDS = 1.0

_ONE_TRIANGLE = (
    "it reads one triangle of a matrix, and its gradient is right if that stays symmetric: say 'symmetric: "
    "true' of the input that it is made of"
)


@dataclass(frozen=True)
class SingleOpVerdict:
    """The verdict on one op alone.

    `evidence` says where its gradient is wrong, by how much, and what the mistake looks like. `reason` says
    why it couldn't be decided. `is_nonlinear` says whether it is wrong as a function of its upstream.
    """

    status: Status
    evidence: str = ""
    reason: str = ""
    is_nonlinear: bool = False


def check_alone(op: Operation, rtol: float | None = None) -> SingleOpVerdict:
    """Check an op's gradient for every input that moves, at its own operating point.

    Args:
        op: the op.
        rtol: the relative tolerance; `None` for the table's.

    Raises:
        CaseFailedError: it can't be evaluated at its point, or its gradient raises.
        GradientFormError: its gradient has the wrong form.
    """
    if op.facts.dtype_faults:
        return SingleOpVerdict(Status.MISMATCHED, next(iter(op.facts.dtype_faults.values())))
    if op.facts.random_types:
        return SingleOpVerdict(
            Status.INCONCLUSIVE, reason=f"it draws anew at each call ({', '.join(op.facts.random_types)})"
        )
    case = _case_of(op, rtol=rtol)
    pairs = pairs_at(case, Operations.of_one(op), dict.fromkeys(pair_keys(op)))
    jacobians = analytic_jacobians(case, op, pairs, {})
    judged = settle_pairs(Stage.FORMULA, Evidence(pairs), judge_pairs(pairs, jacobians))
    judged |= probe_pairs({key: pairs[key] for key in pairs if key not in judged}, 0, Budget(_SECONDS))
    judged = settle_pairs(Stage.POINT, Evidence(pairs), judged)
    verdicts = [_verdict_on(pairs[key], sample) for key, sample in judged.items()]
    for status in (Status.MISMATCHED, Status.INCONCLUSIVE):
        if status is Status.INCONCLUSIVE:
            nonlinear = _find_nonlinear(op, list(pairs))
            if nonlinear:
                return SingleOpVerdict(Status.MISMATCHED, nonlinear, is_nonlinear=True)
        worst = next((verdict for verdict in verdicts if verdict.status is status), None)
        if worst is not None:
            return worst
    return SingleOpVerdict(Status.PASSED)


def are_right_alone(ops: Sequence[Operation] | None) -> bool:
    """Whether each op's gradient is right by itself, at its own operating point."""
    try:
        return ops is not None and all(check_alone(op).status is Status.PASSED for op in ops)
    except (CaseFailedError, GradientFormError):
        return False


def _case_of(op: Operation, method: str = "probe", rtol: float | None = None) -> Case:
    """Return a case of the op's inputs, in which all but small pairs are probed: many ops are checked."""
    return Case(
        op="op",
        name="alone",
        dtype="float64",
        arguments=tuple(
            Argument(info.name, (InputSpec(info.name, info.dtype, info.shape),)) for info in op.inputs
        ),
        judging=Judging(tolerance=StatedTolerance(rtol=rtol), method=method),
    )


def _verdict_on(pair: Pair, sample: PairSample) -> SingleOpVerdict:
    if sample.is_right:
        return SingleOpVerdict(Status.PASSED)
    if not sample.is_wrong:
        undecided = sample.reason[sample.verdict == Verdict.INCONCLUSIVE]
        reason = sample.doubt or str(EXPLANATIONS[Reason(int(undecided[0]))])
        return SingleOpVerdict(Status.INCONCLUSIVE, reason=reason)
    # A Cholesky factor reads one triangle: its gradient is right for a matrix that stays symmetric.
    if (
        sample.is_whole
        and is_symmetric(pair.operations.declared.point[pair.input_index])
        and hint_on_triangle(sample.analytic, sample.numeric, pair.input)
    ):
        return SingleOpVerdict(Status.INCONCLUSIVE, reason=_ONE_TRIANGLE)
    return SingleOpVerdict(Status.MISMATCHED, _evidence(pair, sample))


def _evidence(pair: Pair, sample: PairSample) -> str:
    """Compare the gradient with differences, in words, and add a diagnosis."""
    op, output, info = pair.operations.declared, pair.output, pair.input
    if not sample.is_connected:
        return f"its gradient for {info.name} is None, but {output.name} moves with it"
    worst = _describe_worst(sample, output, info)
    if not sample.is_whole:
        return worst
    point = PointData.of([info], [op.point[pair.input_index]], [output], [op.base_values[pair.output_index]])
    return "; ".join([worst, *(hooks.ask("diagnose", [sample], output, info, [{}], [point]) or ())])


def _describe_worst(sample: PairSample, output_info: TensorInfo, input_info: TensorInfo) -> str:
    error = np.abs(sample.analytic - sample.numeric)
    error = np.where(sample.verdict == Verdict.MISMATCH, np.nan_to_num(error, nan=np.inf), -1.0)
    row, column = place_of_largest(error)
    at_row, at_column = sample.place(row, column)
    return (
        f"at {name_element(at_row, output_info)} / {name_element(at_column, input_info)} it is "
        f"{sample.analytic[row, column]:.6g}, differences give {sample.numeric[row, column]:.6g}"
    )


def _find_nonlinear(op: Operation, pairs: list[PairKey]) -> str:
    """Return what the check of linearity says of the op's gradient; empty if it finds nothing.

    The rows of large pairs are pulled back, too: only they show an upstream that is lost in a sum.
    """
    case = _case_of(op, method="auto")
    rows = analytic_jacobians(case, op, pairs, guess_sparsities(case, op, pairs))
    matrices = {key: matrix for key, matrix in rows.items() if matrix is not None}
    pulled = pull_outputs(case, op, pairs, matrices, ["linearity"])
    checks = check_linearity(UpstreamView(case, op, pulled))
    return next((check.message for check in checks if check.status is Status.MISMATCHED), "")
