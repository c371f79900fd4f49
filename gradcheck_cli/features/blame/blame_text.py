"""The op of a forward that is to blame, as text that fits a width, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.text import Text

from gradcheck_cli.features.blame.blame_result import LISTED, Blame, describe_op, sentence
from gradcheck_cli.features.blame.blaming import PathBlame
from gradcheck_cli.features.blame.trace_text import heading, place_json
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Case

STYLES = {Status.PASSED: "green", Status.MISMATCHED: "bold red", Status.INCONCLUSIVE: "bold yellow"}
MAX_OTHERS = 10  # ops in doubt that are listed; JSON has all of them


def blame_lines(case: Case, path_blames: Sequence[PathBlame], *, width: int = 80) -> list[Text]:
    """Lay out the result: a heading and a sentence for each output, and the other ops in doubt.

    Returns:
        The lines.
    """
    lines: list[Text] = []
    for path_blame in path_blames:
        lines += heading(case, path_blame.output, path_blame.inputs, width)
        blame = path_blame.blame
        lines += layout.wrap(f"blame: {sentence(blame)}", width=width, indent=2, style=STYLES[blame.status])
        other_ops = [*blame.named[1:], *(blame.undecided if blame.named else blame.undecided[LISTED:])]
        for op in other_ops[:MAX_OTHERS]:
            word = "wrong" if op.status is Status.MISMATCHED else "undecided"
            why = op.evidence if op.status is Status.MISMATCHED else op.reason
            lines += layout.wrap(f"{word} too: {describe_op(op.place)}: {why}", width=width, indent=4)
        if len(other_ops) > MAX_OTHERS:
            lines.append(Text(f"    and {len(other_ops) - MAX_OTHERS:,} more; --format json has all"))
        if blame.ops:
            point = f" at sample point {path_blame.sample}" if path_blame.sample else ""
            lines += layout.wrap(f"{_counts(blame)}{point}", width=width, indent=2, style="dim")
    return lines


def _counts(blame: Blame) -> str:
    wrong, unsure = len(blame.named), len(blame.undecided)
    return (
        f"{layout.count(len(blame.ops), 'op')} on the way: {len(blame.ops) - wrong - unsure:,} right, "
        f"{wrong:,} wrong, {unsure:,} undecided"
    )


def blame_json(case: Case, path_blames: Sequence[PathBlame], exit_code: int) -> str:
    """Render the result as JSON text, with every op."""
    content = {
        "schema_version": 1,
        "op": case.op,
        "case": case.name,
        "spec": case.spec,
        "dtype": case.dtype,
        "exit_code": exit_code,
        "paths": [
            {
                "output": path_blame.output,
                "inputs": list(path_blame.inputs),
                "sample": path_blame.sample,
                "status": str(path_blame.blame.status),
                "agrees": path_blame.blame.agrees,
                "named": path_blame.blame.named[0].place.name if path_blame.blame.named else None,
                "message": sentence(path_blame.blame),
                "ops": [
                    {
                        **place_json(op.place),
                        "status": str(op.status),
                        "reason": op.reason,
                        "evidence": op.evidence,
                        "contributes": op.contributes,
                    }
                    for op in path_blame.blame.ops
                ],
            }
            for path_blame in path_blames
        ],
    }
    return json.dumps(content, allow_nan=False, ensure_ascii=False) + "\n"
