"""The lines that say what has changed since a baseline, or between two reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from gradcheck_cli import visible
from gradcheck_cli.gate import BaselineFinding, Change
from gradcheck_cli.reporting.codes import code_of
from gradcheck_cli.reporting.exchange.findings import join_name
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Report

_NEXT = (
    "Fix what isn't intended. Record what is intended with `gradcheck run --update-baseline FILE`, "
    "as a change to be reviewed."
)


def closing_lines(report: Report, width: int) -> list[Text]:
    """Lay out what has changed since a run's baseline; see `hooks.closing_lines`."""
    return baseline_lines(report.baseline, width) if report.baseline else []


def baseline_lines(findings: Sequence[BaselineFinding], width: int, *, title: str = "") -> list[Text]:
    """Lay out what has changed since a baseline, failures first, and how much of each."""
    is_of_run = not title
    title = title or "since the baseline"
    lines = []
    groups: dict[tuple[str, ...], list[BaselineFinding]] = {}
    for finding in sorted(findings, key=lambda finding: not finding.is_failure):
        # A tolerance is stated once for an op, so its pairs share a line.
        case_key = (
            ()
            if finding.change is Change.LOOSENED
            else (finding.case, finding.dtype, finding.mode, finding.pair)
        )
        groups.setdefault((finding.change, finding.op, finding.message, *case_key), []).append(finding)
    for group in groups.values():
        lines += _change_lines(group, width)
    counts = Counter(finding.change for finding in findings)
    parts = [f"{change_count:,} {change.words}" for change, change_count in sorted(counts.items())]
    failed = any(finding.is_failure for finding in findings)
    lines_of_counts = layout.wrap(
        f"{title}: {', '.join(parts) or 'no change'}",
        width,
        0,
        style="bold red" if failed else "bold",
    )
    if is_of_run and failed:
        lines_of_counts += layout.wrap(_NEXT, width, 0)
    return [*lines, *lines_of_counts]


def _change_lines(group: Sequence[BaselineFinding], width: int) -> list[Text]:
    """Lay out one change, of one pair or of several."""
    first = group[0]
    style = "bold red" if first.is_failure else ""
    where = f"{join_name(*first.key[:4])} · {first.pair}"
    if len(group) > 1:
        where += f" and {visible.count(len(group) - 1, 'pair')} more"
    word = first.change.words
    word = f"{word.upper() if first.is_failure else word} {code_of(f'baseline/{first.change}').number}"
    head = Text(f"  {word}", style=style)
    lines = [head + Text(f"  {layout.clean(where)}", style="")]
    if first.change is not Change.NEW:  # the word says it, and there may be many
        lines += layout.wrap(first.message, width)
    return lines
