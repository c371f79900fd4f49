"""Results, and faults of specs, as annotations on lines: GitHub's workflow commands, and SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from gradcheck_cli import __version__
from gradcheck_cli.errors import Fault
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
_FAULTY = "error"  # the level of a fault


def _message_of(fault: Fault) -> str:
    return f"{fault.place}: {fault.message}" if fault.place else fault.message


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
    groups: dict[_Place, list[Finding]] = {}
    for finding in sort_by_gravity(findings_of(report)):
        level = _LEVELS.get(finding.outcome)
        if level is not None:
            key = _Place(level, finding.file, finding.line, finding.case_name)
            groups.setdefault(key, []).append(finding)
    return "".join(_annotate(key, findings, root) for key, findings in groups.items())


def faults_github(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as GitHub's workflow commands, one annotation each."""
    return "".join(
        _command(
            _FAULTY,
            {
                "file": path_from_root(fault.path, root),
                "line": str(fault.line or 1),
                "title": "gradcheck: spec",
            },
            _message_of(fault),
        )
        for fault in faults
    )


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
    return _command(at.level, properties, "\n".join(lines))


def _command(level: str, properties: Mapping[str, str], message: str) -> str:
    named = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{level} {named}::{_escape_data(message)}\n"


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
    findings = [finding for finding in findings_of(report) if finding.outcome in _LEVELS]
    codes = [finding.code or code_of(finding.rule) for finding in findings]
    rules = sorted(set(codes))
    results = []
    for finding, code in zip(findings, codes, strict=True):
        name = f"{finding.case_name}: " if finding.case is not None else ""
        result = {
            **_rule_and_level(code, rules.index(code), _LEVELS[finding.outcome]),
            **_message("\n".join(filter(None, [f"{name}{finding.title}", finding.text])), _identity(finding)),
            **(_location(finding.file, finding.line, root) if finding.file else {}),
        }
        results.append(result)
    invocation = {"executionSuccessful": report.exit_code != INTERRUPTED, "exitCode": report.exit_code}
    return _log(report.gradcheck_version, rules, results, {"invocations": [invocation]})


def faults_sarif(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as SARIF."""
    code = code_of("spec")
    results = [
        {
            **_rule_and_level(code, 0, _FAULTY),
            **_message(_message_of(fault), f"{fault.path}\n{fault.place}\n{fault.message}"),
            **_location(fault.path, fault.line, root),
        }
        for fault in faults
    ]
    return _log(__version__, [code], results, {})


def _log(version: str, rules: Sequence[Code], results: Sequence[object], more: Mapping[str, object]) -> str:
    """Return a log of one run as text, with more of what a run may state."""
    driver = {"name": "gradcheck", "version": version, "rules": [_rule_of(rule) for rule in rules]}
    run = {"tool": {"driver": driver}, **more, "columnKind": "unicodeCodePoints", "results": results}
    content = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return write(content)


def _rule_of(code: Code) -> dict[str, object]:
    """Return a code as a SARIF rule, with its page as help."""
    page = page_of(code).partition("\n")[2].strip()
    return {
        "id": code.number,
        "name": code.name,
        "shortDescription": {"text": code.title},
        "help": {"text": page, "markdown": page},
    }


def _rule_and_level(code: Code, index: int, level: str) -> dict[str, object]:
    return {"ruleId": code.number, "ruleIndex": index, "level": level}


def _message(text: str, identity: str) -> dict[str, object]:
    """Return a result's message, and what identifies it from run to run."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return {"message": {"text": text}, "partialFingerprints": {"gradcheck/v1": digest}}


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
