"""Find the op of a forward whose own gradient is wrong, by each op's contribution to the pair's error.

For one direction of the inputs and one upstream, the error of the whole gradient is the sum of the ops'
contributions: <op's upstream, movement of its outputs> - <op's gradient, movement of its inputs>. An op that
contributes nothing is right on this path. An op that contributes is then checked alone, with its own inputs
and its own gradient, and is named only if that finds it wrong too. So a gradient that relies on what always
holds on the path (a symmetric matrix, probabilities that add up to 1) is never blamed.

Alone, an op's pairs are judged as those of a case, at its own operating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gradcheck_cli import hooks, visible
from gradcheck_cli.checking.checks.check import UpstreamView, pull_outputs
from gradcheck_cli.checking.checks.linearity import check_linearity
from gradcheck_cli.checking.judging.judge_by_probes import probe_pairs
from gradcheck_cli.checking.judging.ledger import Evidence, Stage, judge_pairs, settle_pairs
from gradcheck_cli.checking.ops.analytic import analytic_jacobians, guess_sparsities
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import PairKey, hint_on_triangle, packed_point, working_precision
from gradcheck_cli.checking.ops.operation import (
    Array,
    Float,
    GradientFormError,
    Operation,
    Operations,
    OpPlace,
    TensorInfo,
    name_element,
    pack,
    packed_size,
    unpack,
)
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, PointData, pair_keys, pairs_at
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import (
    EXPLANATIONS,
    Judgement,
    Precision,
    Problem,
    Reason,
    Verdict,
    estimate,
    rule_for,
)
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.shared_limits import MARGIN
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Argument, Case, InputSpec, Judging

# How long probes of one op's large pairs may go on, in seconds of processor time.
_SECONDS = 1.0
_SEED = 20261123
# Each pair of elements is told apart by a quarter of these masks; the moves are far above rounding.
_MASKS = 32
_MASKED = 1e-3
_MOST_ROWS = 64
# Slopes are told apart if they differ by at least this part of the largest.
_NONLINEAR = 1e-2

_ONE_TRIANGLE = (
    "it reads one triangle of a matrix, and its gradient is right if that stays symmetric: say 'symmetric: "
    "true' of the input that it is made of"
)


@dataclass(frozen=True)
class SingleOpVerdict:
    """The verdict on one op alone.

    `evidence` says where its gradient is wrong, by how much, and what the mistake looks like. `reason` says
    why it couldn't be decided. `at_kink` says whether an element is at a kink; `is_nonlinear`, whether it is
    wrong as a function of its upstream.
    """

    status: Status
    evidence: str = ""
    reason: str = ""
    at_kink: bool = False
    is_nonlinear: bool = False


def check_alone(op: Operation) -> SingleOpVerdict:
    """Check an op's gradient for every input that moves, at its own operating point.

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
    pairs = pairs_at(_case_of(op), Operations.of_one(op), dict.fromkeys(pair_keys(op)))
    jacobians = analytic_jacobians(_case_of(op), op, pairs, {})
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
    at_kink = any((sample.verdict == Verdict.KINK).any() for sample in judged.values())
    met = any(pair.operations.on_kinks for pair in pairs.values())
    return SingleOpVerdict(Status.PASSED, at_kink=at_kink or met)


def are_right_alone(ops: Sequence[Operation] | None) -> bool:
    """Whether each op's gradient is right by itself, at its own operating point.

    Where elements meet in one output at a kink, as in a maximum of equal numbers, each may have a slope of
    the function, and all of them together still be wrong. So they are moved together as well.
    """
    generator = np.random.default_rng(_SEED)
    try:
        return ops is not None and all(_is_right_alone(op, generator) for op in ops)
    except (CaseFailedError, GradientFormError):
        return False


def _is_right_alone(op: Operation, generator: np.random.Generator) -> bool:
    verdict = check_alone(op)
    return verdict.status is Status.PASSED and (
        not verdict.at_kink or _is_elementwise(op, generator) or _is_between_slopes(op, generator)
    )


def _is_between_slopes(op: Operation, generator: np.random.Generator) -> bool:
    """Whether the gradient of each output lies between both sides' slopes when all inputs move at once.

    That holds for each subgradient of a convex or concave function. Outputs that are too many to be looked at
    one by one aren't known.
    """
    heights = [packed_size(info) for info in op.outputs]
    if sum(heights) > _MOST_ROWS:
        return False
    rows = np.split(np.eye(sum(heights)), np.cumsum(heights)[:-1], axis=1)
    gradients = op.joint_vjp(
        {index: unpack(own, info) for index, (own, info) in enumerate(zip(rows, op.outputs, strict=True))}
    )
    points = [packed_point(op, input_index) for input_index in range(len(op.inputs))]
    infos = [*op.inputs, *op.outputs]
    step = coarsest(*[working_precision(op, info.dtype) for info in infos]).first_step
    moves = [
        generator.choice([-step, 0.0, step], (_MASKS, point.size)) * (1 + np.abs(point)) for point in points
    ]
    stacks = {
        index: unpack(np.concatenate([point[np.newaxis], point + move, point - move]), info)
        for index, (point, move, info) in enumerate(zip(points, moves, op.inputs, strict=True))
    }
    outputs = zip(op.evaluate(stacks), op.outputs, strict=True)
    values = np.concatenate([pack(stack, info) for stack, info in outputs], axis=1)
    sides = np.stack([values[1 : _MASKS + 1] - values[0], values[0] - values[_MASKS + 1 :]])
    terms = [
        move[:, np.newaxis] * pack(gradient, info)
        for move, gradient, info in zip(moves, gradients, op.inputs, strict=True)
        if gradient is not None
    ]
    claimed = np.sum([term.sum(axis=-1) for term in terms], axis=0)
    slack = _NONLINEAR * (
        np.abs(sides).max(axis=0) + np.sum([np.abs(term).sum(axis=-1) for term in terms], axis=0)
    )
    return bool(np.all((claimed >= sides.min(axis=0) - slack) & (claimed <= sides.max(axis=0) + slack)))


def _is_elementwise(op: Operation, generator: np.random.Generator) -> bool:
    """Whether no element of the only input moves another element of the only output, as far as was tried."""
    if len(op.inputs) != 1 or len(op.outputs) != 1 or op.inputs[0].shape != op.outputs[0].shape:
        return False
    point = op.point[0]
    moves = generator.choice([True, False], (_MASKS, *point.shape))
    steps = generator.choice([-_MASKED, _MASKED], moves.shape) * (1 + np.abs(point))
    (values,) = op.evaluate({0: point + np.where(moves, steps, 0.0)})
    return bool(np.all(moves | (values == op.base_values[0])))


def _case_of(op: Operation, method: str = "probe") -> Case:
    """Return a case of the op's inputs, in which all but small pairs are probed: many ops are checked."""
    return Case(
        op="op",
        name="alone",
        dtype="float64",
        arguments=tuple(
            Argument(info.name, (InputSpec(info.name, info.dtype, info.shape),)) for info in op.inputs
        ),
        judging=Judging(method=method),
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
        and _is_symmetric(pair.operations.declared.point[pair.input_index])
        and hint_on_triangle(sample.analytic, sample.numeric, pair.input)
    ):
        return SingleOpVerdict(Status.INCONCLUSIVE, reason=_ONE_TRIANGLE)
    return SingleOpVerdict(Status.MISMATCHED, _evidence(pair, sample))


def _is_symmetric(matrix: Array) -> bool:
    if matrix.ndim <= 1 or matrix.shape[-1] != matrix.shape[-2]:  # no square matrix
        return False
    # A product that makes a matrix symmetric does so only up to rounding, in float32 too.
    difference = np.abs(matrix - np.conj(np.swapaxes(matrix, -1, -2)))
    return bool(np.all(difference <= 1e-5 * np.max(np.abs(matrix), initial=0.0)))


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
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - sample.numeric)
    error = np.where(sample.verdict == Verdict.MISMATCH, np.nan_to_num(error, nan=np.inf), -1.0)
    row, column = (int(index) for index in np.unravel_index(int(np.argmax(error)), error.shape))
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


LISTED = 3  # ops in doubt that a sentence names


@dataclass(frozen=True)
class OpVerdict:
    """The verdict on one op."""

    place: OpPlace  # the op
    status: Status  # passed, mismatched (it is named), or inconclusive
    reason: str = ""  # why it is inconclusive
    evidence: str = ""  # its gradient's actual and expected value, where they were seen
    contributes: bool = False  # whether it adds to the whole gradient's error along this path

    @property
    def is_suspect(self) -> bool:
        """Whether something counts against it, though not enough to name it."""
        return self.status is Status.INCONCLUSIVE and (self.contributes or bool(self.evidence))


@dataclass(frozen=True)
class Blame:
    """The verdicts on a path."""

    ops: tuple[OpVerdict, ...]  # every op's verdict, in backward order
    # whether the whole gradient agrees with differences along the directions that were tried; `None` where
    # that can't be decided
    agrees: bool | None
    reason: str = ""  # why it can't be decided
    run: str = ""  # why a run fails although every op on the path is right; empty elsewhere
    is_form: bool = False  # whether a gradient's form is wrong, so that nothing else could be checked

    @property
    def named(self) -> tuple[OpVerdict, ...]:
        """The ops whose own gradient is wrong, the first in backward order first."""
        return tuple(op for op in self.ops if op.status is Status.MISMATCHED)

    @property
    def undecided(self) -> tuple[OpVerdict, ...]:
        """The ops that couldn't be decided."""
        return tuple(op for op in self.ops if op.status is Status.INCONCLUSIVE)

    @property
    def status(self) -> Status:
        """Mismatched if an op is named; passed if all are right, or the whole agrees; else inconclusive."""
        if self.named:
            return Status.MISMATCHED
        if self.run:
            return Status.INCONCLUSIVE
        suspected = any(op.is_suspect for op in self.undecided)
        all_right = bool(self.ops) and not self.undecided and self.agrees is not False
        return Status.PASSED if all_right or (self.agrees and not suspected) else Status.INCONCLUSIVE


@dataclass(frozen=True)
class PathBlame:
    """Blame for one output and some inputs, at the sample point that shows most."""

    output: str
    inputs: tuple[str, ...]
    sample: int  # index of the sample point
    blame: Blame


def exit_code_of(paths: Sequence[PathBlame]) -> int:
    """Return `blame`'s exit code: 1 if an op is named, 0 if all are right, else 3."""
    statuses = {path.blame.status for path in paths}
    if Status.MISMATCHED in statuses:
        return 1
    return 0 if statuses == {Status.PASSED} else 3


def describe_op(place: OpPlace) -> str:
    """Name an op: `op 'chain/op31' (Exp), gradient bad_exp_grad at ops.py:12`."""
    name = f"op '{place.name}' ({place.type})"
    if place.inside:
        # The gradients in its body are named with a loop, branch or call, whose own gradient is TensorFlow's.
        inside = ", ".join(gradient_at(*gradient) for gradient in place.inside)
        return f"{name} with the gradients inside it ({inside})"
    if not place.gradient:
        return f"{name} without a gradient function"
    return f"{name}, gradient {gradient_at(place.gradient, place.file, place.line)}"


def gradient_at(name: str, file: str, line: int) -> str:
    """Name a gradient function: `bad_exp_grad at ops.py:12`."""
    return f"{name} at {file}:{line}" if file else name


def sentence(blame: Blame) -> str:
    """Say in one sentence which op is to blame, or why none can be named."""
    if blame.named:
        return _accuse(*blame.named)
    if blame.status is Status.PASSED:
        return _explain_pass(blame)
    if blame.run:
        return f"{_explain_pass(blame)}, but a run fails: {blame.run}"
    names = _list_doubtful(blame)
    if blame.agrees is None:
        reason = f"no op can be blamed: {blame.reason or 'the whole gradient could not be compared'}"
        return f"{reason}; undecided: {names}" if names else reason
    if blame.agrees:
        return f"the whole gradient agrees along the directions tried, but undecided: {names}"
    return _explain_remaining(blame, names)


def _accuse(first: OpVerdict, *others: OpVerdict) -> str:
    """Name the first op whose own gradient is wrong; for a sampler, say first that it may be right."""
    rest = f"{visible.count(len(others), 'other')} {'is' if len(others) == 1 else 'are'} wrong too"
    more = f"; {rest}" if others else ""
    text = f"{describe_op(first.place)} is the first whose own gradient is wrong: {first.evidence}{more}"
    if not first.place.draws:
        return text
    return (
        f"op '{first.place.name}' draws random numbers ({first.place.draws}). A sampler's implicit gradient, "
        "that of its distribution, isn't the slope of a draw: name the distribution as 'reference', with "
        f"'implicit: true'. If this is no sampler: {text}"
    )


def _explain_remaining(blame: Blame, names: str) -> str:
    """Say what is left where the whole gradient is wrong and no op can be named."""
    adding = next((op for op in blame.undecided if op.contributes), None)
    if adding is not None:
        return (
            f"the gradient is wrong, and {describe_op(adding.place)} adds to the error, but alone it can't "
            f"be decided: {adding.reason}"
        )
    if names:
        return f"the gradient is wrong, and no op that could be checked is to blame; undecided: {names}"
    if blame.reason:
        return f"each of the {len(blame.ops)} ops' own gradient is right: {blame.reason}"
    return (
        f"the gradient is wrong, but each of its {len(blame.ops)} ops' own gradient is right within its "
        "tolerance: the mistake is in how they are joined, or errors within these tolerances add up"
    )


def _list_doubtful(blame: Blame) -> str:
    """List the ops in doubt, suspects first, as many as fit a sentence."""
    doubtful = sorted(blame.undecided, key=lambda op: not op.is_suspect)
    return ", ".join(f"{_name_briefly(op.place)}: {op.reason}" for op in doubtful[:LISTED])


def _name_briefly(place: OpPlace) -> str:
    """Name an op without its gradient function, unless the user's are inside it."""
    return describe_op(place) if place.inside else f"'{place.name}' ({place.type})"


def _explain_pass(blame: Blame) -> str:
    right = len(blame.ops) - len(blame.undecided)
    if blame.undecided:
        return (
            f"the whole gradient agrees, and so does that of each op that could be checked ({right} "
            f"of {len(blame.ops)}); not checked: {_list_doubtful(blame)}"
        )
    if not blame.ops:
        return blame.reason or "there is no op on this path"
    return f"every op's own gradient is right on this path ({visible.count(right, 'op')})"


# Two upstreams and directions: an error that one of them happens to miss shows in the other.
PROBES = 2
SEED = 20240317
# Behind a long chain few digits of a small slope survive; this relative accuracy still counts as right.
_ROUGH = 1e-3
# Terms of an op that cancel to less than this part of the sum of their magnitudes say nothing about it: far
# below what a million random signs leave (1e-3), far above rounding.
_CANCELLED = 1e-6
_ROUNDINGS = 64.0
# The most ops that are checked alone. A path with more in doubt has another fault than one wrong gradient.
_MOST_ALONE = 64


@dataclass(frozen=True)
class OpOnPath:
    """One op on the way."""

    place: OpPlace  # the op's name, type and place
    obstacle: str = ""  # why it can't be differenced by itself; empty where it can
    fault: str = ""  # what is wrong with its gradient's shape or dtype; empty where nothing is


class Probe(Protocol):
    """One upstream at the output and one direction of the inputs, with the backward pass for it."""

    @property
    def slope(self) -> float:
        """The pair's gradient along the direction."""

    @property
    def room(self) -> tuple[float, float]:
        """How far back and forth the inputs may go, in units of the direction."""

    @property
    def is_finite(self) -> Sequence[tuple[bool, bool]]:
        """Per op, whether all that flows in is finite, and all that comes out."""

    def contributions(self, steps: Float) -> Float:
        """Return (B, 1 + 2 K) contracted values: the output's, then each op's outputs' and inputs'."""

    def sizes(self, step: float) -> Float:
        """Return, per op (K,), the sum of its terms' magnitudes."""


class OpPath(Protocol):
    """The ops between an output and some inputs, in backward order."""

    @property
    def ops(self) -> Sequence[OpOnPath]:
        """The ops."""

    @property
    def precision(self) -> Precision:
        """The precision in which the path computes."""

    def probe(self, generator: np.random.Generator) -> Probe:
        """Draw an upstream and a direction."""

    def isolate(self, index: int) -> Operation:
        """Return one op as an op of its own, at its own operating point."""

    def closes_over(self, index: int) -> bool:
        """Whether an op depends on tensors that move with the input but aren't its own inputs."""


@dataclass
class _ProbeFinding:
    """What the probes show about one op: it is right if one tested it and none contradicts it."""

    is_wrong: bool = False
    is_tested: bool = False
    is_rough: bool = False  # right as far as the probes can see, but less precisely than the tolerance asks
    reason: str = ""

    @property
    def is_right(self) -> bool:
        """Whether a probe tested it and nothing contradicts it."""
        return self.is_tested and not (self.is_wrong or self.reason)


def find_blame(path: OpPath, *, seed: int = SEED, each_alone: bool = False) -> Blame:
    """Check every op on a path, and say which are wrong.

    Args:
        each_alone: check those ops alone, too, that are right along the path.

    Raises:
        CaseFailedError: forward or gradient can't be evaluated at the point.
    """
    generator = np.random.default_rng(seed)
    findings = [_ProbeFinding() for _ in path.ops]
    whole = _ProbeFinding()
    for _ in range(PROBES):
        _evaluate_probe(path, path.probe(generator), findings, whole)
    verdicts: dict[int, OpVerdict] = {}
    for index, (op, finding) in enumerate(zip(path.ops, findings, strict=True)):
        if op.fault:
            verdicts[index] = OpVerdict(op.place, Status.MISMATCHED, evidence=op.fault)
        elif op.obstacle:
            verdicts[index] = OpVerdict(op.place, Status.INCONCLUSIVE, op.obstacle)
        elif finding.is_right:
            verdicts[index] = OpVerdict(op.place, Status.PASSED)
    waiting = [index for index in range(len(findings)) if index not in verdicts]
    for count, index in enumerate(waiting):
        verdicts[index] = _judge_op(path, index, findings[index], is_late=count >= _MOST_ALONE)
    is_unexplained = each_alone or whole.is_wrong
    if is_unexplained and not any(verdict.status is Status.MISMATCHED for verdict in verdicts.values()):
        # There is a mistake somewhere: check the ops again whose slopes show only few digits on the path.
        rough = [
            index
            for index, finding in enumerate(findings)
            if (finding.is_rough or each_alone) and finding.is_right and index not in waiting
        ]
        for count, index in enumerate(rough):
            verdicts[index] = _judge_op(path, index, findings[index], is_late=count >= _MOST_ALONE)
    agrees = False if whole.is_wrong else None if whole.reason else True
    return Blame(tuple(verdicts[index] for index in range(len(findings))), agrees, whole.reason)


def _evaluate_probe(path: OpPath, probe: Probe, findings: list[_ProbeFinding], whole: _ProbeFinding) -> None:
    """Evaluate one probe: compare the two sides of each op, and of the whole gradient."""
    precision = path.precision
    rule = rule_for(precision, precision)
    low, high = probe.room
    estimated = estimate(
        Problem(
            lambda points: probe.contributions(points[:, 0]),
            [0.0],
            precision,
            precision,
            low=low,
            high=high,
            scale=1.0,
        )
    )
    sizes = probe.sizes(min(precision.first_step, abs(low) or np.inf, high or np.inf))
    slope, uncertainty, reasons = estimated.numeric[:, 0], estimated.uncertainty[:, 0], _reasons(estimated)
    _note(
        whole,
        slope[0],
        probe.slope,
        uncertainty[0],
        rule.rtol * max(abs(slope[0]), abs(probe.slope)),
        reasons[0],
    )
    whole.is_tested = True
    for index, (finding, (takes_finite, gives_finite)) in enumerate(
        zip(findings, probe.is_finite, strict=True)
    ):
        moved, claimed = slope[1 + 2 * index], slope[2 + 2 * index]
        reason = reasons[1 + 2 * index] or (reasons[2 + 2 * index] if gives_finite else "")
        if not takes_finite:
            reason = "what flows into it isn't finite"
        elif not gives_finite and not reason:
            finding.is_wrong, finding.is_tested = True, True
            continue
        # As in a pair's tolerance: relative to the slopes, and to what adds up to them.
        size = sizes[index] if np.isfinite(sizes[index]) else 0.0
        allowed = rule.rtol * max(abs(moved), abs(claimed)) + rule.ratol * size
        _note(
            finding, moved, claimed, uncertainty[1 + 2 * index] + uncertainty[2 + 2 * index], allowed, reason
        )
        # Terms that all cancel (a softmax after equal columns) test nothing.
        shows = max(_CANCELLED, _ROUNDINGS * precision.unit_roundoff)
        finding.is_tested |= bool(max(abs(moved), abs(claimed)) > shows * size)


def _note(  # noqa: PLR0913, PLR0917 (two slopes, and what they may differ by)
    finding: _ProbeFinding, numeric: float, analytic: float, uncertainty: float, allowed: float, reason: str
) -> None:
    error = abs(analytic - numeric)
    if numeric == 0 == analytic:  # nothing moves, and the gradient is zero
        return
    if reason:
        finding.reason = reason
    elif not error <= allowed + MARGIN * uncertainty:
        finding.is_wrong = True
    elif uncertainty > 2 * allowed:
        finding.is_rough = True
        if uncertainty > _ROUGH * max(abs(analytic), abs(numeric)):
            finding.reason = str(EXPLANATIONS[Reason.UNRESOLVED])


def _reasons(estimated: Judgement) -> list[str]:
    """Return, per row, why it has no slope; empty where it has one."""
    has_none = ~np.isfinite(estimated.numeric[:, 0])
    is_kink = estimated.verdict[:, 0] == Verdict.KINK
    return [
        str(EXPLANATIONS[Reason(int(code))]) if none else "the path has a kink here" if kink else ""
        for code, none, kink in zip(estimated.reason[:, 0], has_none, is_kink, strict=True)
    ]


def _judge_op(path: OpPath, index: int, finding: _ProbeFinding, *, is_late: bool) -> OpVerdict:
    """Check an op alone, and combine the result with what the probes found."""
    place = path.ops[index].place
    if is_late:
        reason = finding.reason or f"more than {_MOST_ALONE} ops are in doubt, and it wasn't checked alone"
        return OpVerdict(place, Status.INCONCLUSIVE, reason, contributes=finding.is_wrong)
    try:
        alone = check_alone(path.isolate(index))
    except (CaseFailedError, GradientFormError) as error:
        return OpVerdict(place, Status.INCONCLUSIVE, error.message, contributes=finding.is_wrong)
    if finding.is_wrong:
        return _weigh_wrong_op(place, alone, closes_over=path.closes_over(index))
    if alone.is_nonlinear:
        return OpVerdict(place, Status.MISMATCHED, evidence=alone.evidence)
    if alone.status is Status.MISMATCHED:
        few = "differences along this path show too few digits of it"
        why = finding.reason or (few if finding.is_rough else "nothing flows through it on this path")
        reason = f"wrong when its inputs move freely, but {why}"
        return OpVerdict(place, Status.INCONCLUSIVE, reason, alone.evidence)
    return OpVerdict(place, alone.status, alone.reason)


def _weigh_wrong_op(place: OpPlace, alone: SingleOpVerdict, *, closes_over: bool) -> OpVerdict:
    """Combine a wrong verdict on an isolated op with its contribution to the error on its path."""
    if alone.status is Status.MISMATCHED:
        return OpVerdict(place, Status.MISMATCHED, evidence=alone.evidence, contributes=True)
    if closes_over:
        evidence = (
            "its forward closes over a tensor that moves with the input, which its gradient leaves out: "
            "make it an argument"
        )
        return OpVerdict(place, Status.MISMATCHED, evidence=evidence, contributes=True)
    if alone.status is Status.PASSED:  # each element is within its tolerance; their sum shows more
        return OpVerdict(place, Status.PASSED)
    return OpVerdict(place, Status.INCONCLUSIVE, alone.reason, contributes=True)
