"""Finds the op whose own gradient is wrong: `blame`, and `trace`, which prints a backward pass op by op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradcheck_cli.hooks import Command, OpenCase

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

_COMMANDS = "gradcheck_cli.features.blame.blame_commands"
COMMANDS = {
    "blame": Command(_COMMANDS, "Find the op whose own gradient is wrong.", "blame"),
    "trace": Command(_COMMANDS, "Print one backward pass, op by op.", "trace"),
}
HOOKS = {
    "explain_mismatches": f"{__name__}:explain_mismatches",
    "draw_path": "gradcheck_cli.features.blame.blaming:draw_path",
    "find_written_ops": f"{__name__}:find_written_ops",
    "are_right_alone": "gradcheck_cli.features.blame.single_op:are_right_alone",
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
    if case.mode == "graph":
        judged.findings = add_blame(case, judged.findings, judged.opener, judged.spent)


def find_written_ops(op: GraphOperation, output: int, inputs: Sequence[int]) -> Sequence[Operation] | None:
    """Return the ops between an output and inputs whose gradients the user wrote; see `hooks`."""
    from gradcheck_cli.features.blame.walked_path import WalkedPath

    # Every input of an op moves, not only those on this path: at a tie, each of a maximum's two gradients may
    # be right by itself, and both together wrong.
    path = WalkedPath.of(op, output, inputs)
    every = [index for index in range(op.traced.at.count) if op.facts.is_connected(output, index)]
    whole = path if set(every) <= set(inputs) else WalkedPath.of(op, output, every)
    return path.written_ops(whole)
