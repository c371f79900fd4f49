"""Finds the op whose own gradient is wrong: `blame`, and `trace`, which prints a backward pass op by op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradcheck_cli.hooks import Command, OpenCase

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.results import PathOp
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
    from gradcheck_cli.tensorflow_backend.opening.openers import CaseOpener

COMMANDS = {
    "blame": Command(
        "gradcheck_cli.features.blame.blame_command", "Find the op whose own gradient is wrong."
    ),
    "trace": Command("gradcheck_cli.features.blame.trace_command", "Print one backward pass, op by op."),
}
FOR_CASES = (
    "gradcheck_cli.features.blame.blaming",
    "gradcheck_cli.features.blame.walked_path",
    "gradcheck_cli.features.blame.single_op",
)


def explain_mismatches(judged: OpenCase) -> None:
    """Add to each mismatched pair the op that is to blame; ops are examined one by one in a graph only."""
    from gradcheck_cli.features.blame.blaming import add_blame

    case = judged.opener.case
    if case.mode == "graph" and judged.explains:
        judged.findings = add_blame(case, judged.findings, judged.opener, judged.spent)


def draw_path(opener: CaseOpener[Any], pair: tuple[int, int], sample: int) -> tuple[PathOp, ...]:
    """Return the ops between output and input with their verdicts, in the order of the forward."""
    from gradcheck_cli.features.blame import blaming

    return blaming.draw_path(opener, pair, sample)


def find_written_ops(op: GraphOperation, output: int, inputs: Sequence[int]) -> Sequence[Operation] | None:
    """Return the ops between an output and inputs whose gradients the user wrote; see `hooks`."""
    from gradcheck_cli.features.blame.walked_path import WalkedPath

    # Every input of an op moves, not only those on this path: at a tie, each of a maximum's two gradients may
    # be right by itself, and both together wrong.
    path = WalkedPath.of(op, output, inputs)
    every = [index for index in range(op.traced.at.count) if op.facts.is_connected(output, index)]
    whole = path if set(every) <= set(inputs) else WalkedPath.of(op, output, every)
    return path.written_ops(whole)


def are_right_alone(ops: Sequence[Operation] | None) -> bool:
    """Whether each op's gradient is right by itself; see `hooks`."""
    from gradcheck_cli.features.blame import single_op

    return single_op.are_right_alone(ops)
