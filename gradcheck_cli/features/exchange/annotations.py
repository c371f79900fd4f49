"""Results, and faults of specs, as annotations on lines: GitHub's workflow commands, and SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from gradcheck_cli import __version__
from gradcheck_cli.errors import Fault, SpecError
from gradcheck_cli.reporting.codes import Code, code_of, page_of
from gradcheck_cli.reporting.exchange.findings import (
    Finding,
    Outcome,
    findings_of,
    path_from_root,
    sort_by_gravity,
)
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Report
from gradcheck_cli.serial import write

_LEVELS = {Outcome.FAILED: "error", Outcome.UNDECIDED: "error", Outcome.WARNED: "warning"}


def _finding_of(fault: Fault) -> Finding:
    """Return a fault of a spec as a finding."""
    title = f"{fault.place}: {fault.message}" if fault.place else fault.message
    return Finding(
        "spec", Outcome.UNDECIDED, f"{fault.path}\n{title}", title, place=f"{fault.path}:{fault.line}"
    )


# GitHub's workflow commands.

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
    return _github_of(findings_of(report), root)


def faults_github(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as GitHub's workflow commands."""
    return _github_of(list(map(_finding_of, faults)), root)


def _github_of(findings: Sequence[Finding], root: Path) -> str:
    groups: dict[_Place, list[Finding]] = {}
    for finding in sort_by_gravity(findings):
        level = _LEVELS.get(finding.outcome)
        if level is not None:
            key = _Place(level, finding.file, finding.line, finding.case_name)
            groups.setdefault(key, []).append(finding)
    return "".join(_annotate(*group, root) for group in groups.items())


def _annotate(at: _Place, findings: list[Finding], root: Path) -> str:
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
    message = "\n".join(lines)
    return f"::{at.level} {named}::{_escape_data(message)}\n"


def _escape_data(text: str) -> str:
    """Escape a command's message as GitHub's own toolkit does; other control characters are shown."""
    lines = "\n".join(layout.lines_of(text))
    return lines.replace("%", "%25").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """Escape a command's property: these end at commas and colons."""
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


# SARIF, for code scanning.

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
INTERRUPTED = 130


def to_sarif(report: Report, root: Path) -> str:
    """Render what isn't right in a report as SARIF.

    Args:
        root: the repository's folder; places are paths relative to it, under `%SRCROOT%`.
    """
    return _sarif_of(findings_of(report), root, report.gradcheck_version, report.exit_code)


def faults_sarif(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as SARIF."""
    return _sarif_of(list(map(_finding_of, faults)), root, __version__, SpecError.exit_code if faults else 0)


def _sarif_of(every: Sequence[Finding], root: Path, version: str, exit_code: int) -> str:
    findings = [finding for finding in every if finding.outcome in _LEVELS]
    codes = [finding.code or code_of(finding.rule) for finding in findings]
    rules = sorted(set(codes))
    results = []
    for finding, code in zip(findings, codes, strict=True):
        name = f"{finding.case_name}: " if finding.case is not None else ""
        digest = hashlib.sha256(_identity(finding).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        result = {
            "ruleId": code.number,
            "ruleIndex": rules.index(code),
            "level": _LEVELS[finding.outcome],
            "message": {"text": "\n".join(filter(None, [f"{name}{finding.title}", finding.text]))},
            "partialFingerprints": {"gradcheck/v1": digest},
            **(_location(finding.file, finding.line, root) if finding.file else {}),
        }
        results.append(result)
    driver = {"name": "gradcheck", "version": version, "rules": [_rule_of(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": exit_code != INTERRUPTED, "exitCode": exit_code}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return write({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule_of(code: Code) -> dict[str, object]:
    """Return a code as a SARIF rule, with its page as help."""
    page = page_of(code).partition("\n")[2].strip()
    return {
        "id": code.number,
        "name": code.name,
        "shortDescription": {"text": code.title},
        "help": {"text": page, "markdown": page},
    }


def _location(file: str, line: int, root: Path) -> dict[str, object]:
    location: dict[str, object] = {"artifactLocation": _artifact(path_from_root(file, root))}
    if line:
        location["region"] = {"startLine": line}
    return {"locations": [{"physicalLocation": location}]}


def _artifact(file: str) -> dict[str, str]:
    """Return a URI, relative to the root if the file is below it."""
    if file.startswith("/"):
        return {"uri": f"file://{quote(file, errors='surrogateescape')}"}
    return {"uri": quote(file, errors="surrogateescape"), "uriBaseId": "%SRCROOT%"}


def _identity(finding: Finding) -> str:
    """Return what identifies a result: neither its line nor its numbers."""
    case = finding.case
    parts = [] if case is None else list(case.mode_key)
    return json.dumps([finding.rule, *parts, finding.name])
