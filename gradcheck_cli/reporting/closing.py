"""The lines after a run's tables: what was slow, what has changed, what wasn't checked, the summary.

Instead of tables there may be one line for each finding, for `grep`: place, name, verdict, numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from gradcheck_cli import hooks
from gradcheck_cli.gate import BaselineFinding, Change
from gradcheck_cli.reporting.codes import code_of, code_of_change
from gradcheck_cli.reporting.exchange.findings import (
    BAD,
    Finding,
    Outcome,
    findings_of,
    first_line,
    join_name,
    name_of,
)
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import named_numbers
from gradcheck_cli.reporting.terminal.report_text import summary_lines
from gradcheck_cli.results import Report

_NEXT = (
    "Fix what isn't intended. Record what is intended with `gradcheck run --update-baseline FILE`, "
    "as a change to be reviewed."
)


_MOST_FAILED = 100  # a terminal's memory; reports have all


def failed_lines(report: Report, width: int) -> list[Text]:
    """List what fails the run, one line each, and where to read on: the tables may have scrolled away."""
    failed = [finding for finding in findings_of(report) if finding.outcome in BAD]
    # Changes since the baseline have a list of their own.
    failed = [
        finding for finding in failed if finding.case is not None and not finding.rule.startswith("baseline/")
    ]
    if not failed:
        return []
    lines = [Text("failed:", style="bold")]
    code_width = 2 + max(len(str(finding.code or "")) for finding in failed)
    for finding in failed[:_MOST_FAILED]:
        code = "" if finding.code is None else str(finding.code)
        where = finding.case.spec.rpartition(":")[0] if finding.case is not None else ""
        line = Text("  ") + Text(
            f"{code:{code_width}}", style="bold red" if finding.outcome is Outcome.FAILED else "bold yellow"
        )
        line += Text(layout.clean(f"{where} · {finding.case_name} · {finding.name}"))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    if len(failed) > _MOST_FAILED:
        lines.append(Text(f"  ... and {len(failed) - _MOST_FAILED:,} more"))
    first = next((finding.code for finding in failed if finding.code is not None), None)
    if first is not None:
        lines.append(
            Text(f"  `gradcheck explain {first.number}` says what that means, and what to do", style="dim")
        )
    return lines


def version_lines(old: tuple[str, Report], new: tuple[str, Report]) -> list[Text]:
    """Say how the versions of two reports differ."""
    facts = [report.facts for _, report in (old, new)]
    differing = [name for name in {**facts[0], **facts[1]} if facts[0].get(name) != facts[1].get(name)]
    if not differing:
        return []
    return [
        Text(
            layout.clean(f"{name}: " + ", ".join(f"{what} {facts_of.get(what) or '?'}" for what in differing))
        )
        for (name, _), facts_of in zip((old, new), facts, strict=True)
    ]


def duration_lines(report: Report, count: int) -> list[Text]:
    """Lay out the slowest cases, the slowest first."""
    if not count or not report.cases:
        return []
    slowest = sorted(report.cases, key=lambda case: -case.ran.duration_s)[:count]
    lines = [Text(f"slowest {layout.count(len(slowest), 'case')}:")]
    for case in slowest:
        path = case.spec.rpartition(":")[0] or case.spec
        lines.append(Text(f"  {case.ran.duration_s:8.2f} s  {layout.clean(f'{path} · {name_of(case)}')}"))
    return lines


def unchecked_lines(report: Report, width: int) -> list[Text]:
    """Lay out what should have been checked but wasn't."""
    word = f"NOT CHECKED {code_of('unchecked').number}"
    return [
        line
        for text in report.unchecked
        for line in layout.wrap(f"{word}  {text}", width=width, indent=0, style="bold red")
    ]


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
    parts = [
        f"{change_count:,} {str(change).replace('_', ' ')}" for change, change_count in sorted(counts.items())
    ]
    failed = any(finding.is_failure for finding in findings)
    lines_of_counts = layout.wrap(
        f"{title}: {', '.join(parts) or 'no change'}",
        width=width,
        indent=0,
        style="bold red" if failed else "bold",
    )
    if is_of_run and failed:
        lines_of_counts += layout.wrap(_NEXT, width=width, indent=0)
    return [*lines, *lines_of_counts]


def _change_lines(group: Sequence[BaselineFinding], width: int) -> list[Text]:
    """Lay out one change, of one pair or of several."""
    first = group[0]
    word = str(first.change).replace("_", " ")
    style = "bold red" if first.is_failure else ""
    where = f"{join_name(first.op, first.case, first.dtype, first.mode)} · {first.pair}"
    if len(group) > 1:
        where += f" and {layout.count(len(group) - 1, 'pair')} more"
    word = f"{word.upper() if first.is_failure else word} {code_of_change(first).number}"
    head = Text(f"  {word}", style=style)
    lines = [head + Text(f"  {layout.clean(where)}", style="")]
    if first.change is not Change.NEW:  # the word says it, and there may be many
        lines += layout.wrap(first.message, width=width, indent=4)
    return lines


def closing_lines(report: Report, width: int, *, verbose: bool = False, durations: int = 0) -> list[Text]:
    """Lay out the end of a table: what was slow, what wasn't checked or covered, and the summary."""
    return [
        *duration_lines(report, durations),
        *(baseline_lines(report.baseline, width) if report.baseline else ()),
        *unchecked_lines(report, width),
        *hooks.closing_lines(report, width),
        *summary_lines(report, width=width, verbose=verbose),
    ]


def to_concise(report: Report) -> str:
    """Render a report as lines `file:line: op · pair: status CODE name: numbers`, one for each pair.

    Other findings (a check, an error, a change since the baseline) have a line of their own.
    """
    lines = [
        concise_line(finding)
        for finding in findings_of(report)
        if finding.pair is not None or finding.outcome is not Outcome.PASSED
    ]
    end = layout.plain(summary_lines(report, width=layout.MAX_WIDTH))
    return "".join(f"{line}\n" for line in lines) + end


def concise_line(finding: Finding) -> str:
    """Return a finding's line."""
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    about = f"{finding.case_name} · {finding.name}" if finding.case is not None else ""
    word = finding.outcome.value if finding.pair is None else str(finding.pair.status)
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
