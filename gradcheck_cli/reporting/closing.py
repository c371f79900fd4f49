"""What a table ends with beside its summary: what was slow, what has changed, what wasn't checked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from gradcheck_cli.gate import Change
from gradcheck_cli.reporting import layout
from gradcheck_cli.reporting.entries import name_of, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.gate import BaselineFinding
    from gradcheck_cli.results import Report


def duration_lines(report: Report, count: int) -> list[Text]:
    """Lay out the slowest cases, the slowest first.

    Args:
        report: the run.
        count: how many; 0 for none.
    """
    if not count or not report.cases:
        return []
    slowest = sorted(report.cases, key=lambda case: -case.duration_s)[:count]
    lines = [Text(f"slowest {layout.count(len(slowest), 'case')}:")]
    for case in slowest:
        path = case.spec.rpartition(":")[0] or case.spec
        lines.append(Text(f"  {case.duration_s:8.2f} s  {layout.clean(f'{path} · {name_of(case)}')}"))
    return lines


def unchecked_lines(report: Report, width: int) -> list[Text]:
    """Lay out what was to be checked, and wasn't."""
    return [
        line
        for text in report.unchecked
        for line in layout.wrap(f"NOT CHECKED  {text}", width=width, indent=0, style="bold red")
    ]


def baseline_lines(
    findings: Sequence[BaselineFinding], width: int, *, title: str = "since the baseline"
) -> list[Text]:
    """Lay out what has changed since a baseline, failures first, and how much of each.

    Args:
        findings: what has changed.
        width: columns there are.
        title: what was compared.
    """
    lines = []
    for finding in sorted(findings, key=lambda one: not one.is_failure):
        name = named(finding.op, finding.case, finding.dtype, finding.mode)
        word = str(finding.change).replace("_", " ")
        style = "bold red" if finding.is_failure else ""
        head = Text(f"  {word.upper() if finding.is_failure else word}", style=style)
        lines.append(head + Text(f"  {layout.clean(f'{name} · {finding.pair}')}", style=""))
        if finding.change is not Change.NEW:  # the word says it, and there may be many
            lines += layout.wrap(finding.message, width=width, indent=4)
    counts = Counter(finding.change for finding in findings)
    parts = [f"{number:,} {str(change).replace('_', ' ')}" for change, number in sorted(counts.items())]
    failed = any(finding.is_failure for finding in findings)
    told = layout.wrap(
        f"{title}: {', '.join(parts) or 'no change'}",
        width=width,
        indent=0,
        style="bold red" if failed else "bold",
    )
    return [*lines, *told]
