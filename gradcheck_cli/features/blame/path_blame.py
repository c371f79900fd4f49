"""Find the op of a forward whose own gradient is wrong, by each op's contribution to the pair's error.

For one direction of the inputs and one upstream, the error of the whole gradient is the sum of the ops'
contributions: <op's upstream, movement of its outputs> - <op's gradient, movement of its inputs>. An op that
contributes nothing is right on this path. An op that contributes is then checked alone, with its own inputs
and its own gradient, and is named only if that finds it wrong too. So a gradient that relies on what always
holds on the path (a symmetric matrix, probabilities that add up to 1) is never blamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli import visible
from gradcheck_cli.checking.judging.op_alone import SingleOpVerdict, check_alone
from gradcheck_cli.checking.ops.operation import GradientFormError, OpPlace
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import (
    EXPLANATIONS,
    Judgement,
    Problem,
    Reason,
    Verdict,
    judge,
    rule_for,
)
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.results import Status

if TYPE_CHECKING:
    from gradcheck_cli.tensorflow_backend.backward_walk import Walk, WalkedProbe

LISTED = 3  # ops in doubt that a sentence names


@dataclass(frozen=True)
class OpVerdict:
    """The verdict on one op."""

    place: OpPlace  # the op
    status: Status  # passed, mismatched (it is named), or inconclusive
    reason: str = ""  # why it is inconclusive
    evidence: str = ""  # its gradient's actual and expected value, where they were seen
    is_form: bool = False  # whether its gradient has a wrong shape or dtype, of which the pair has no place
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


def _name_briefly(place: OpPlace) -> str:
    """Name an op without its gradient function, unless the user's are inside it."""
    return describe_op(place) if place.inside else f"'{place.name}' ({place.type})"


def _list_doubtful(blame: Blame) -> str:
    """List the ops that couldn't be judged, those that explain the error first."""
    doubtful = sorted(blame.undecided, key=lambda op: not op.is_suspect)
    return ", ".join(f"{_name_briefly(op.place)}: {op.reason}" for op in doubtful[:LISTED])


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


@dataclass
class _ProbeFinding:
    """What the probes show about one op: it is right if one tested it and none contradicts it."""

    is_wrong: bool = False
    is_tested: bool = False
    is_rough: bool = False  # right as far as the probes can see, but less precisely than the tolerance asks
    reason: str = ""

    def note(self, judged: Judgement, row: int, slopes: Float) -> None:
        """Note how one probe was judged."""
        verdict, uncertainty = judged.verdict[row, 0], judged.uncertainty[row, 0]
        if verdict == Verdict.MISMATCH:
            self.is_wrong = True
        elif verdict == Verdict.KINK:
            self.reason = "the path has a kink here"
        elif verdict == Verdict.INCONCLUSIVE:
            self.is_rough = True
            if not uncertainty <= _ROUGH * abs(slopes[row]):
                self.reason = str(EXPLANATIONS[Reason(int(judged.reason[row, 0]))])

    @property
    def is_right(self) -> bool:
        """Whether a probe tested it and nothing contradicts it."""
        return self.is_tested and not (self.is_wrong or self.reason)


def find_blame(path: Walk, *, each_alone: bool = False) -> Blame:
    """Check every op on a path, and say which are wrong.

    Args:
        each_alone: check those ops alone, too, that are right along the path.

    Raises:
        CaseFailedError: forward or gradient can't be evaluated at the point.
    """
    generator = np.random.default_rng(SEED)
    findings = [_ProbeFinding() for _ in path.ops]
    whole = _ProbeFinding()
    for _ in range(PROBES):
        _evaluate_probe(path, path.probe(generator), findings, whole)
    verdicts: dict[int, OpVerdict] = {}

    def judge_alone(indices: Sequence[int]) -> None:
        for count, index in enumerate(indices):
            verdicts[index] = _judge_op(path, index, findings[index], is_late=count >= _MOST_ALONE)

    for index, (op, finding) in enumerate(zip(path.ops, findings, strict=True)):
        if op.fault:
            verdicts[index] = OpVerdict(op.place, Status.MISMATCHED, evidence=op.fault, is_form=True)
        elif op.obstacle:
            verdicts[index] = OpVerdict(op.place, Status.INCONCLUSIVE, op.obstacle)
        elif finding.is_right:
            verdicts[index] = OpVerdict(op.place, Status.PASSED)
    every = range(len(findings))
    right = [index for index in every if index in verdicts and findings[index].is_right]
    judge_alone([index for index in every if index not in verdicts])
    is_unexplained = each_alone or whole.is_wrong
    if is_unexplained and not any(verdict.status is Status.MISMATCHED for verdict in verdicts.values()):
        # There is a mistake somewhere: check the ops again whose slopes show only few digits on the path.
        judge_alone([index for index in right if findings[index].is_rough or each_alone])
    agrees = False if whole.is_wrong else None if whole.reason else True
    return Blame(tuple(verdicts[index] for index in every), agrees, whole.reason)


def _evaluate_probe(
    path: Walk, probe: WalkedProbe, findings: list[_ProbeFinding], whole: _ProbeFinding
) -> None:
    """Evaluate one probe: compare the two sides of each op, and of the whole gradient."""
    precision = path.precision
    low, high = probe.room
    step = min(precision.first_step, abs(low) or np.inf, high or np.inf)
    base, *beside = probe.contributions(np.array([0.0, step, -step]))
    # A row is what an op moves less what its gradient claims, and a slope of the claim's size: relative to
    # that the two may differ.
    claimed = np.nan_to_num((beside[0] - beside[1])[2::2] / (2 * step), posinf=0.0, neginf=0.0)

    def rows(points: Float) -> Float:
        values = probe.contributions(points[:, 0])
        return np.concatenate([values[:, :1], values[:, 1::2] - values[:, 2::2] + points * claimed], axis=1)

    rule = rule_for(precision, precision).with_user(rtol=path.rtol)
    size = np.concatenate([np.abs(base[:1]), np.abs(base[1::2]) + np.abs(base[2::2])])
    slopes = np.concatenate([[probe.slope], claimed])
    judged = judge(
        Problem(rows, [0.0], precision, precision, rule, low, high, scale=1.0, base_value=size),
        slopes[:, np.newaxis],
    )
    whole.note(judged, 0, slopes)
    whole.is_tested = True
    # Terms that all cancel (a softmax after equal columns) test nothing.
    tested = np.abs(slopes[1:]) > max(_CANCELLED, _ROUNDINGS * precision.unit_roundoff) * probe.sizes(step)
    for row, (finding, (takes_finite, gives_finite)) in enumerate(
        zip(findings, probe.is_finite, strict=True), 1
    ):
        if not takes_finite:
            finding.reason = "what flows into it isn't finite"
        elif not gives_finite:
            finding.is_wrong = finding.is_tested = True
        else:
            finding.note(judged, row, slopes)
            finding.is_tested |= bool(tested[row - 1]) or finding.is_wrong


def _judge_op(path: Walk, index: int, finding: _ProbeFinding, *, is_late: bool) -> OpVerdict:
    """Check an op alone, and combine the result with what the probes found."""
    place = path.ops[index].place
    if is_late:
        reason = finding.reason or f"more than {_MOST_ALONE} ops are in doubt, and it wasn't checked alone"
        return OpVerdict(place, Status.INCONCLUSIVE, reason, contributes=finding.is_wrong)
    try:
        alone = check_alone(path.isolate(index), path.rtol)
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
