"""Results as Markdown for a pull request or a job's summary page: what isn't right first, then every pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gradcheck_cli.reporting.exchange.findings import (
    SPEC_COLUMNS,
    Finding,
    Outcome,
    findings_of,
    group_alike,
    name_of,
    path_from_root,
    sort_by_gravity,
    summarize_specs,
)
from gradcheck_cli.reporting.report_text import all_right, summary_lines
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.layout import escape, folded_lines, limit_rows, table_lines
from gradcheck_cli.reporting.terminal.pair_table import NUMBERS, number_cells
from gradcheck_cli.results import PairResult, Report
from gradcheck_cli.visible import join_first

_MARKS = {
    Outcome.FAILED: "❌",
    Outcome.UNDECIDED: "❔",
    Outcome.WARNED: "⚠️",
    Outcome.SKIPPED: "⏭️",
    Outcome.PASSED: "✅",
}
_NAMED = 3  # cases that share a finding


def _mark_of(report: Report) -> str:
    if report.exit_code:
        return _MARKS[Outcome.FAILED]
    return _MARKS[Outcome.WARNED if report.summary["ignored"] else Outcome.PASSED]


def to_markdown(report: Report, root: Path) -> str:
    """Render a report as Markdown with GitHub's tables; places are relative to the repository's folder."""
    findings = findings_of(report)
    code = report.exit_code
    counts = " ".join(
        line.plain.strip().split("  ")[0] for line in summary_lines(report, width=layout.MAX_WIDTH)
    )
    lines = [f"### {_mark_of(report)} gradcheck: {f'exit code {code}' if code else all_right(report)}", ""]
    lines += [escape(counts), ""]
    wrong = [finding for finding in sort_by_gravity(findings) if finding.outcome is not Outcome.PASSED]
    if wrong:
        lines += table_lines(
            ("", "op", "what", "details", "where"), [_row_of(alike, root) for alike in group_alike(wrong)]
        )
    specs = summarize_specs(report, findings)
    if len(specs) > 1:
        rows = [(escape(spec.spec), *spec.numbers) for spec in specs]
        lines += folded_lines(f"{len(specs)} specs", SPEC_COLUMNS, rows)
    changes = [
        finding for finding in findings if finding.rule.startswith("baseline/") and finding not in wrong
    ]
    if changes:
        lines += ["Since the baseline, without a fault:", ""]
        lines += limit_rows([f"- {escape(finding.text)}" for finding in changes], "changes")
        lines.append("")
    pairs = [_row(finding, finding.pair) for finding in findings if finding.pair is not None]
    lines += folded_lines(layout.count(len(pairs), "pair"), ("", "op", "pair", *NUMBERS, "verdict"), pairs)
    searches = [
        (escape(finding.case_name), escape(finding.title)) for finding in findings if finding.rule == "search"
    ]
    count = layout.count(len(searches), "case")
    lines += folded_lines(f"{count} in which a search found nothing", ("op", "tried"), searches)
    never = [
        (escape(name_of(case)), escape(branch.label(side)), branch.part)
        for case in report.cases
        for branch in case.seen.branches
        for side in branch.unseen
    ]
    count = layout.count(len(never), "side")
    lines += folded_lines(f"{count} of branches never seen", ("op", "side", "of"), never)
    return "\n".join(lines).rstrip("\n") + "\n"


def _row_of(alike: Sequence[Finding], root: Path) -> Sequence[str]:
    finding = alike[0]
    names = join_first([same.case_name for same in alike], _NAMED)
    where = path_from_root(finding.file, root) if finding.file else ""
    if finding.line:
        where += f":{finding.line}"
    cells = (names, finding.headline, finding.text, where)
    return (_MARKS[finding.outcome], *(escape(cell) for cell in cells))


def _row(finding: Finding, pair: PairResult) -> Sequence[str]:
    code = "" if finding.code is None else finding.code.number
    verdict = " ".join(filter(None, [str(pair.status).replace("_", " "), code, pair.note]))
    return (
        _MARKS[finding.outcome],
        *map(escape, [finding.case_name, pair.label]),
        *number_cells(pair),
        escape(verdict),
    )
