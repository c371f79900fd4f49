"""Results as Markdown for a pull request or a job's summary page: what isn't right first, then every pair."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gradcheck_cli.reporting.exchange.findings import (
    SPEC_COLUMNS,
    Outcome,
    findings_of,
    group_alike,
    name_of,
    path_from_root,
    sort_by_gravity,
    summarize_specs,
)
from gradcheck_cli.reporting.exchange.templates import render_markdown
from gradcheck_cli.reporting.report_text import all_right, summary_lines
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import number_cells
from gradcheck_cli.results import Report
from gradcheck_cli.visible import join_first

_MARKS = {
    Outcome.FAILED: "❌",
    Outcome.UNDECIDED: "❔",
    Outcome.WARNED: "⚠️",
    Outcome.SKIPPED: "⏭️",
    Outcome.PASSED: "✅",
}
_NAMED = 3  # cases that share a finding


def to_markdown(report: Report, root: Path) -> str:
    """Render a report as Markdown with GitHub's tables; places are relative to the repository's folder."""
    findings = findings_of(report)
    fine = Outcome.WARNED if report.summary["ignored"] else Outcome.PASSED
    lines = summary_lines(report, width=layout.MAX_WIDTH)
    wrong = [finding for finding in sort_by_gravity(findings) if finding.outcome is not Outcome.PASSED]
    return render_markdown(
        __package__,
        "report.md",
        report=report,
        mark=_MARKS[Outcome.FAILED if report.exit_code else fine],
        fine=all_right(report),
        counts=" ".join(line.plain.strip().split("  ")[0] for line in lines),
        marks=_MARKS,
        wrong=group_alike(wrong),
        names_of=lambda alike: join_first([same.case_name for same in alike], _NAMED),
        relative=partial(path_from_root, root=root),
        specs=summarize_specs(report, findings),
        spec_columns=SPEC_COLUMNS,
        changes=[
            finding for finding in findings if finding.rule.startswith("baseline/") and finding not in wrong
        ],
        pairs=[finding for finding in findings if finding.pair is not None],
        number_cells=number_cells,
        searches=[finding for finding in findings if finding.rule == "search"],
        never=[
            (name_of(case), branch.label(side), branch.part)
            for case in report.cases
            for branch in case.seen.branches
            for side in branch.unseen
        ],
    )
