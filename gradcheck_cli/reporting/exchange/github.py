"""Results as GitHub's workflow commands, which its runner turns into annotations on a change's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.reporting.exchange.findings import BAD, Entry, Outcome, entries_of, relative
from gradcheck_cli.reporting.terminal import layout

if TYPE_CHECKING:
    from pathlib import Path

    from gradcheck_cli.results import Report

_LEVELS = {Outcome.FAILED: "error", Outcome.UNDECIDED: "error", Outcome.WARNED: "warning"}
# GitHub shows ten annotations of a kind for a step: what says the same of one place takes one of them.
_MAX_LINES = 20


def to_github(report: Report, root: Path) -> str:
    """Render what isn't right as workflow commands: an annotation for each case and place, errors first.

    Args:
        report: the run.
        root: the repository's folder: GitHub knows files by their path from there.

    Returns:
        The text, a command a line; empty where all is right.
    """
    groups: dict[tuple[str, str, int, str], list[Entry]] = {}
    for entry in entries_of(report):
        level = _LEVELS.get(entry.outcome)
        if level is not None:
            key = (level, entry.file, entry.line, entry.case_name)
            groups.setdefault(key, []).append(entry)
    ordered = sorted(groups.items(), key=lambda group: _rank(group[1]))
    return "".join(_command(*key, entries, root) for key, entries in ordered)


def _rank(entries: list[Entry]) -> int:
    if any(entry.outcome is Outcome.FAILED for entry in entries):
        return 0
    return 1 if any(entry.outcome in BAD for entry in entries) else 2


def _command(  # noqa: PLR0913, PLR0917 (what a group is keyed by, and the group)
    level: str, file: str, line: int, name: str, entries: list[Entry], root: Path
) -> str:
    more = f" (and {len(entries) - 1} more)" if len(entries) > 1 else ""
    title = f"{name}: {entries[0].headline}{more}" if name else f"{entries[0].headline}{more}"
    properties = {"title": f"gradcheck: {title}"}
    if file:
        properties = {"file": relative(file, root), **({"line": str(line)} if line else {}), **properties}
    lines = []
    for entry in entries:
        if len(entries) > 1:
            lines.append(f"{entry.headline}:")
        lines += entry.text.splitlines() or [entry.title]
    lines = list(dict.fromkeys(lines))  # what is said of each of them (how to reproduce it) is said once
    if len(lines) > _MAX_LINES:
        lines = [*lines[:_MAX_LINES], f"... and {len(lines) - _MAX_LINES} more lines in the log"]
    named = ",".join(f"{key}={escape_property(value)}" for key, value in properties.items())
    return f"::{level} {named}::{escape_data(chr(10).join(lines))}\n"


def escape_data(text: str) -> str:
    """Escape a command's message as GitHub's own toolkit does; other control characters are shown."""
    lines = "\n".join(layout.lines_of(text))
    return lines.replace("%", "%25").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape a command's property: these end at commas and colons."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")
