"""A report as one line for each finding, for `grep`: place, name, verdict, numbers."""

from __future__ import annotations

from gradcheck_cli.reporting.exchange.findings import Finding, Outcome, findings_of, first_line
from gradcheck_cli.reporting.report_text import summary_lines
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import named_numbers
from gradcheck_cli.results import Report


def to_concise(report: Report) -> str:
    """Render a report as lines `file:line: op · pair: status CODE name: numbers`, one for each finding.

    What passed has none: a JSON report has every pair.
    """
    lines = [
        _concise_line(finding) for finding in findings_of(report) if finding.outcome is not Outcome.PASSED
    ]
    end = layout.plain(summary_lines(report, width=layout.MAX_WIDTH))
    return "".join(f"{line}\n" for line in lines) + end


def _concise_line(finding: Finding) -> str:
    """Return a finding's line."""
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    about = f"{finding.case_name} · {finding.name}" if finding.case is not None else ""
    is_skipped = finding.title == f"{finding.name} skipped"  # a check, which isn't undecided then
    word = "skipped" if is_skipped else finding.outcome.value
    word = word if finding.pair is None else str(finding.pair.status)
    code = f" {finding.code}" if finding.code is not None else ""
    parts = [where, about, f"{word}{code}"]
    details = _numbers(finding) if finding.pair is not None else first_line(finding.text or finding.title)
    return layout.clean(": ".join(part for part in [*parts, details] if part))


def _numbers(finding: Finding) -> str:
    pair = finding.pair
    if pair is None or not pair.numbers.elements or finding.outcome is Outcome.SKIPPED:
        return "" if pair is None else pair.note
    if not pair.connected:
        return "disconnected"
    return " ".join(f"{name}={value}" for name, value in named_numbers(pair).items())
