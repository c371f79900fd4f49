"""The coverage of hand-written gradients, as lines after the table, as JSON and as Markdown."""

from __future__ import annotations

import json

from rich.text import Text

from gradcheck_cli.gate import CoverageStatus, GradientCoverage, WrittenGradient
from gradcheck_cli.reporting.exchange.json_report import LAYOUTS
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.layout import escape, folded_lines, table_lines
from gradcheck_cli.results import Report
from gradcheck_cli.serial import plain

_STYLES = {CoverageStatus.MISSING: "red", CoverageStatus.EXCUSED: "yellow", CoverageStatus.COVERED: "green"}
_MARKS = {CoverageStatus.MISSING: "❌", CoverageStatus.EXCUSED: "⚠️", CoverageStatus.COVERED: "✅"}


def headline(coverage: GradientCoverage) -> str:
    """Say in one line how many of the gradients passing pairs ran."""
    covered, missing, excused = (
        coverage.count(status)
        for status in (CoverageStatus.COVERED, CoverageStatus.MISSING, CoverageStatus.EXCUSED)
    )
    where = ", ".join(coverage.packages) + (f" changed since {coverage.changed}" if coverage.changed else "")
    if not coverage.gradients:
        return f"hand-written gradients of {where}: there are none"
    parts = [f"{covered:,} of {covered + missing:,} covered ({_share(coverage)})"]
    parts += [f"{excused:,} excused"] if excused else []
    modules = sum(gradient.line == 0 for gradient in coverage.gradients)
    parts += [f"{layout.count(modules, 'module')} not imported"] if modules else []
    if coverage.falls_short:
        parts.append(f"--cov-fail-under {coverage.fail_under:g} isn't reached")
    return f"hand-written gradients of {where}: {', '.join(parts)}"


def _share(coverage: GradientCoverage) -> str:
    # Rounded down: 100 % means all of them.
    return f"{int(coverage.percent * 10) / 10:.1f} %"


def closing_lines(report: Report, width: int) -> list[Text]:
    """Lay out what was covered: sides of branches, and gradients."""
    return branch_lines(report) + (coverage_lines(report.coverage, width) if report.coverage else [])


def coverage_lines(coverage: GradientCoverage, width: int) -> list[Text]:
    """Lay out a line of counts; above it, if too few gradients are covered, those that aren't."""
    lines = missing_lines(coverage, width) if coverage.falls_short else []
    style = "bold red" if coverage.falls_short else "bold"
    return [*lines, *layout.wrap(headline(coverage), width=width, indent=0, style=style)]


def missing_lines(coverage: GradientCoverage, width: int) -> list[Text]:
    """Lay out a line for each gradient that isn't covered."""
    lines = []
    for gradient in coverage.gradients:
        if gradient.status is not CoverageStatus.COVERED:
            head = Text(f"  {gradient.status}", style=_STYLES[gradient.status])
            lines.append(head + Text(f"  {layout.clean(f'{gradient.name}  {_place(gradient)}')}", style=""))
            lines += layout.wrap(gradient.reason, width=width, indent=4)
    return lines


def branch_lines(report: Report) -> list[Text]:
    """Lay out a line of counts if a share of the sides of branches is required."""
    seen, every = report.sides
    least = report.policy.branch_fail_under
    unknown = sum(bool(case.seen.sides_unknown) for case in report.cases)
    if least is None or not (every or unknown):
        return []
    message = f"sides of branches: {seen:,} of {every:,} seen"
    if every:
        message += f" ({int(1000 * seen / every) / 10:.1f} %)"
    if unknown:
        message += f", not all looked at in {layout.count(unknown, 'case')}"
    if not report.branches_fall_short:
        return [Text(message, style="bold")]
    return [Text(f"{message}, --branch-fail-under {least:g} isn't reached", style="bold red")]


def _place(gradient: WrittenGradient) -> str:
    return f"{gradient.file}:{gradient.line}" if gradient.line else gradient.file


def coverage_json(coverage: GradientCoverage) -> str:
    """Render it as JSON text that ends in a newline."""
    return json.dumps(plain(coverage, LAYOUTS), indent=2, ensure_ascii=False) + "\n"


def coverage_markdown(coverage: GradientCoverage) -> str:
    """Render it as Markdown: what isn't covered first, then the rest, collapsed."""
    lines = [f"### {escape(headline(coverage))}", ""]
    heading = ("", "gradient", "where", "cases or reason")
    covered: list[tuple[str, ...]] = []
    others: list[tuple[str, ...]] = []
    for gradient in coverage.gradients:
        cells = (gradient.name, _place(gradient), ", ".join(gradient.cases) or gradient.reason)
        rows = covered if gradient.status is CoverageStatus.COVERED else others
        rows.append((_MARKS[gradient.status], *map(escape, cells)))
    lines += table_lines(heading, others) if others else []
    lines += folded_lines(f"{layout.count(len(covered), 'gradient')} covered", heading, covered)
    return "\n".join(lines).rstrip("\n") + "\n"
