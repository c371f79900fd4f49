"""Results, and faults of specs, as GitHub's workflow commands: annotations on the changed lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gradcheck_cli.errors import Fault
from gradcheck_cli.reporting.exchange.findings import BAD, Finding, Outcome, findings_of, path_from_root
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Report

_LEVELS = {Outcome.FAILED: "error", Outcome.UNDECIDED: "error", Outcome.WARNED: "warning"}
# GitHub shows ten annotations of a kind for each step, so findings with the same text and place share one.
_MAX_LINES = 20


class _Place(NamedTuple):
    """What the findings of one annotation share; `name` is the case's."""

    level: str
    file: str
    line: int
    name: str


def to_github(report: Report, root: Path) -> str:
    """Render what isn't right as workflow commands: one annotation for each case and place, errors first.

    Args:
        root: the repository's folder: GitHub names files relative to it.
    """
    groups: dict[_Place, list[Finding]] = {}
    for finding in findings_of(report):
        level = _LEVELS.get(finding.outcome)
        if level is not None:
            key = _Place(level, finding.file, finding.line, finding.case_name)
            groups.setdefault(key, []).append(finding)
    ordered = sorted(groups.items(), key=lambda group: _rank(group[1]))
    return "".join(_command(key, findings, root) for key, findings in ordered)


def _rank(findings: list[Finding]) -> int:
    if any(finding.outcome is Outcome.FAILED for finding in findings):
        return 0
    return 1 if any(finding.outcome in BAD for finding in findings) else 2


def _command(at: _Place, findings: list[Finding], root: Path) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    title = f"{at.name}: {findings[0].headline}{more}" if at.name else f"{findings[0].headline}{more}"
    properties = {"title": f"gradcheck: {title}"}
    if at.file:
        line = {"line": str(at.line)} if at.line else {}
        properties = {"file": path_from_root(at.file, root), **line, **properties}
    lines = []
    for finding in findings:
        if len(findings) > 1:
            lines.append(f"{finding.headline}:")
        lines += finding.text.splitlines() or [finding.title]
    lines = list(dict.fromkeys(lines))  # what they have in common (how to reproduce them) is said once
    if len(lines) > _MAX_LINES:
        lines = [*lines[:_MAX_LINES], f"... and {len(lines) - _MAX_LINES} more lines in the log"]
    named = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{at.level} {named}::{_escape_data(chr(10).join(lines))}\n"


def _escape_data(text: str) -> str:
    """Escape a command's message as GitHub's own toolkit does; other control characters are shown."""
    lines = "\n".join(layout.lines_of(text))
    return lines.replace("%", "%25").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """Escape a command's property: these end at commas and colons."""
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def faults_github(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as GitHub's workflow commands, one annotation each."""
    lines = []
    for fault in faults:
        properties = {
            "file": path_from_root(fault.path, root),
            "line": str(fault.line or 1),
            "title": "gradcheck: spec",
        }
        named = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
        message = f"{fault.place}: {fault.message}" if fault.place else fault.message
        lines.append(f"::error {named}::{_escape_data(message)}\n")
    return "".join(lines)
