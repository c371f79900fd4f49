"""Finds the op whose own gradient is wrong: `blame`, and `trace`, which prints a backward pass op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradcheck_cli.hooks import Command, OpenCase

if TYPE_CHECKING:
    from gradcheck_cli.figure import PathOp
    from gradcheck_cli.tensorflow_backend.opening.case_opener import CaseOpener

COMMANDS = {
    "blame": Command(
        "gradcheck_cli.features.blame.blame_command", "Find the op whose own gradient is wrong."
    ),
    "trace": Command("gradcheck_cli.features.blame.trace_command", "Print one backward pass, op by op."),
}


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
