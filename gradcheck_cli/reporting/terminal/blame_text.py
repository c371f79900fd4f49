"""Which op of a forward is to blame, as text that fits a width, or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.text import Text

from gradcheck_cli.checking.blame.blame_result import LISTED, describe_op, sentence
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.trace_text import heading, place_json
from gradcheck_cli.results import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.blame.blame_result import Blame
    from gradcheck_cli.running.views.blaming import PathBlame
    from gradcheck_cli.spec.case import Case

STYLES = {Status.PASSED: "green", Status.MISMATCHED: "bold red", Status.INCONCLUSIVE: "bold yellow"}
MAX_OTHERS = 10  # ops in doubt that are listed; JSON has all


def blame_lines(case: Case, found: Sequence[PathBlame], *, width: int = 80) -> list[Text]:
    """Lay out what was found: a heading and a sentence for each output, and the other ops in doubt.

    Args:
        case: where it comes from.
        found: one for each output.
        width: columns there are.

    Returns:
        The lines.
    """
    lines: list[Text] = []
    for one in found:
        lines += heading(case, one.output, one.inputs, width)
        blame = one.blame
        lines += layout.wrap(f"blame: {sentence(blame)}", width=width, indent=2, style=STYLES[blame.status])
        others = [*blame.named[1:], *(blame.undecided if blame.named else blame.undecided[LISTED:])]
        for op in others[:MAX_OTHERS]:
            word = "wrong" if op.status is Status.MISMATCHED else "undecided"
            why = op.evidence if op.status is Status.MISMATCHED else op.reason
            lines += layout.wrap(f"{word} too: {describe_op(op.place)}: {why}", width=width, indent=4)
        if len(others) > MAX_OTHERS:
            lines.append(Text(f"    and {len(others) - MAX_OTHERS:,} more; --format json has all"))
        if blame.ops:
            point = f" at sample point {one.sample}" if one.sample else ""
            lines += layout.wrap(f"{_counts(blame)}{point}", width=width, indent=2, style="dim")
    return lines


def _counts(blame: Blame) -> str:
    wrong, unsure = len(blame.named), len(blame.undecided)
    return (
        f"{layout.count(len(blame.ops), 'op')} on the way: {len(blame.ops) - wrong - unsure:,} right, "
        f"{wrong:,} wrong, {unsure:,} undecided"
    )


def blame_json(case: Case, found: Sequence[PathBlame], exit_code: int) -> str:
    """Render what was found as JSON text, every op included."""
    content = {
        "schema_version": 1,
        "op": case.op,
        "case": case.name,
        "spec": case.spec,
        "dtype": case.dtype,
        "exit_code": exit_code,
        "paths": [
            {
                "output": one.output,
                "inputs": list(one.inputs),
                "sample": one.sample,
                "status": str(one.blame.status),
                "agrees": one.blame.agrees,
                "named": one.blame.named[0].place.name if one.blame.named else None,
                "message": sentence(one.blame),
                "ops": [
                    {
                        **place_json(op.place),
                        "status": str(op.status),
                        "reason": op.reason,
                        "evidence": op.evidence,
                        "contributes": op.contributes,
                    }
                    for op in one.blame.ops
                ],
            }
            for one in found
        ],
    }
    return json.dumps(content, allow_nan=False, ensure_ascii=False) + "\n"
