"""Results as one line for each thing found, for `grep`: where, what, verdict, numbers; then the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.reporting.exchange.findings import Entry, Outcome, entries_of, first_line
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import named_numbers
from gradcheck_cli.reporting.terminal.report_text import summary_lines

if TYPE_CHECKING:
    from gradcheck_cli.results import Report


def to_concise(report: Report) -> str:
    """Render a report as lines `file:line: op · pair: status CODE name: numbers`, one for each pair.

    What else isn't right (a check, an error, a change since the baseline) has a line of its own.
    """
    lines = [
        concise_line(entry)
        for entry in entries_of(report)
        if entry.pair is not None or entry.outcome is not Outcome.PASSED
    ]
    end = layout.plain(summary_lines(report, width=layout.MAX_WIDTH))
    return "".join(f"{line}\n" for line in lines) + end


def concise_line(entry: Entry) -> str:
    """Return an entry's line."""
    where = f"{entry.file}:{entry.line}" if entry.line else entry.file
    about = f"{entry.case_name} · {entry.name}" if entry.case is not None else ""
    word = entry.outcome.value if entry.pair is None else str(entry.pair.status)
    code = f" {entry.code}" if entry.code is not None else ""
    parts = [where, about, f"{word}{code}"]
    told = _numbers(entry) if entry.pair is not None else first_line(entry.text or entry.title)
    return layout.clean(": ".join(part for part in [*parts, told] if part))


def _numbers(entry: Entry) -> str:
    pair = entry.pair
    if pair is None or not pair.elements or entry.outcome is Outcome.SKIPPED:
        return "" if pair is None else pair.note
    if not pair.connected:
        return "disconnected"
    return " ".join(f"{name}={value}" for name, value in named_numbers(pair).items())
