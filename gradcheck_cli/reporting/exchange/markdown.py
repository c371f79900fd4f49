"""Results as Markdown for a pull request or a job's summary page: what isn't right first, then every pair."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gradcheck_cli.reporting.exchange.findings import Finding, Outcome, findings_of, name_of, path_from_root
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import NUMBERS, named_numbers
from gradcheck_cli.reporting.terminal.report_text import summary_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gradcheck_cli.results import PairResult, Report

_MARKS = {
    Outcome.FAILED: "❌",
    Outcome.UNDECIDED: "❔",
    Outcome.WARNED: "⚠️",
    Outcome.SKIPPED: "⏭️",
    Outcome.PASSED: "✅",
}
_ORDER = (Outcome.FAILED, Outcome.UNDECIDED, Outcome.WARNED, Outcome.SKIPPED)
# GitHub accepts a summary of 1 MiB per step, and drops a longer one completely; a row has at most some 500
# bytes.
MAX_ROWS = 800
# Characters that CommonMark, its tables, or GitHub's references and emoji could interpret; at the start of a
# line, lists and headings too.
_SPECIAL = re.compile(r"[\\`*_\[\]|~#@!]|:(?=[\w+-]+:)|^[-+=]|(?<=^\d)[.)]")


def to_markdown(report: Report, root: Path) -> str:
    """Render a report as Markdown with GitHub's tables.

    Args:
        report: the run.
        root: the repository's folder; places are named relative to it.

    Returns:
        The text, ending in a newline.
    """
    findings = findings_of(report)
    code = report.exit_code
    counts = " ".join(
        line.plain.strip().split("  ")[0] for line in summary_lines(report, width=layout.MAX_WIDTH)
    )
    lines = [
        f"### {'❌' if code else '✅'} gradcheck: {'exit code ' + str(code) if code else 'all right'}",
        "",
    ]
    lines += [escape(counts), ""]
    wrong = [finding for outcome in _ORDER for finding in findings if finding.outcome is outcome]
    if wrong:
        lines += table_lines(
            ("", "op", "what", "details", "where"), [_row_of(finding, root) for finding in wrong]
        )
    changes = [
        finding for finding in findings if finding.rule.startswith("baseline/") and finding not in wrong
    ]
    if changes:
        lines += ["Since the baseline, without a fault:", ""]
        lines += _limit([f"- {escape(finding.text)}" for finding in changes], "changes")
        lines.append("")
    pairs = [finding for finding in findings if finding.pair is not None]
    if pairs:
        lines += [f"<details><summary>{layout.count(len(pairs), 'pair')}</summary>", ""]
        heading = ("", "op", "pair", *NUMBERS, "verdict")
        lines += table_lines(
            heading, [_row(finding, finding.pair) for finding in pairs if finding.pair is not None]
        )
        lines += ["</details>", ""]
    searches = [finding for finding in findings if finding.rule == "search"]
    if searches:
        count = layout.count(len(searches), "case")
        lines += [f"<details><summary>{count} in which a search found nothing</summary>", ""]
        rows = [(escape(finding.case_name), escape(finding.title)) for finding in searches]
        lines += [*table_lines(("op", "tried"), rows), "</details>", ""]
    never = [
        (escape(name_of(case)), escape(branch.label(side)), branch.part)
        for case in report.cases
        for branch in case.branches
        for side in branch.unseen
    ]
    if never:
        count = layout.count(len(never), "side")
        lines += [f"<details><summary>{count} of branches never seen</summary>", ""]
        lines += [*table_lines(("op", "side", "of"), never), "</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def escape(text: str) -> str:
    """Return text so that Markdown shows it literally, also in a table's cell; lines are broken by `<br>`."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "<br>".join(_SPECIAL.sub(r"\\\g<0>", line) for line in layout.lines_of(plain))


def _row_of(finding: Finding, root: Path) -> Sequence[str]:
    where = path_from_root(finding.file, root) if finding.file else ""
    if finding.line:
        where += f":{finding.line}"
    cells = (finding.case_name, finding.headline, finding.text, where)
    return (_MARKS[finding.outcome], *(escape(cell) for cell in cells))


def _row(finding: Finding, pair: PairResult) -> Sequence[str]:
    numbers = ["disconnected", "", ""] if not pair.connected else list(named_numbers(pair).values())
    code = "" if finding.code is None else finding.code.number
    verdict = " ".join(filter(None, [str(pair.status).replace("_", " "), code, pair.note]))
    return (_MARKS[finding.outcome], *map(escape, [finding.case_name, pair.label]), *numbers, escape(verdict))


def table_lines(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table, followed by an empty line; its cells are Markdown."""
    lines = [f"| {' | '.join(heading)} |", f"|{' --- |' * len(heading)}"]
    lines += _limit([f"| {' | '.join(row)} |" for row in rows], "rows")
    return [*lines, ""]


def _limit(lines: list[str], noun: str) -> list[str]:
    """Cut off what is too long for a summary page, and say how much that is."""
    if len(lines) <= MAX_ROWS:
        return lines
    return [*lines[:MAX_ROWS], "", f"... and {len(lines) - MAX_ROWS:,} more {noun}: see the JSON report."]
