"""Finds the op whose own gradient is wrong: `blame`, and `trace`, which prints a backward pass op by op."""

from __future__ import annotations

from gradcheck_cli.hooks import Command, OpenCase

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
