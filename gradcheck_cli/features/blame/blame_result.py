"""The result of blaming a path: a verdict for each op, and a sentence that says which op is at fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradcheck_cli.checking.ops.operation import OpPlace
from gradcheck_cli.results import Status

LISTED = 3  # ops in doubt that a sentence names


@dataclass(frozen=True)
class OpVerdict:
    """The verdict on one op."""

    place: OpPlace  # the op
    status: Status  # passed, mismatched (it is named), or inconclusive
    reason: str = ""  # why it is inconclusive
    evidence: str = ""  # its gradient's actual and expected value, where they were seen
    contributes: bool = False  # whether it adds to the whole gradient's error along this path
    # the ops whose outputs flow into it, by their index on the path; -1 for the path's input
    reads: tuple[int, ...] = ()

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
        first = blame.named[0]
        other_count = len(blame.named) - 1
        more = f"; {other_count} other(s) are wrong too" if other_count else ""
        return f"{describe_op(first.place)} is the first whose own gradient is wrong: {first.evidence}{more}"
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
    return (
        f"the gradient is wrong, but each of its {len(blame.ops)} ops' own gradient is right within its "
        "tolerance: the mistake is in how they are joined, or an error that each may make adds up"
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
    return f"every op's own gradient is right on this path ({right} {'op' if right == 1 else 'ops'})"
