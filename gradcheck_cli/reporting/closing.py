"""What a table ends with beside its summary: the slowest cases, and what wasn't checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from gradcheck_cli.reporting import layout
from gradcheck_cli.reporting.entries import name_of

if TYPE_CHECKING:
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
