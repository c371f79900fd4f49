"""What isn't right in a report, and faults of specs, as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from gradcheck_cli import __version__
from gradcheck_cli.errors import Fault
from gradcheck_cli.reporting.codes import Code, code_of, link_of, page_of
from gradcheck_cli.reporting.exchange.findings import Finding, Outcome, findings_of, path_from_root
from gradcheck_cli.results import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Outcome.FAILED: "error", Outcome.UNDECIDED: "error", Outcome.WARNED: "warning"}
INTERRUPTED = 130


def to_sarif(report: Report, root: Path) -> str:
    """Render a report as SARIF.

    Args:
        root: the repository's folder; places are paths relative to it, under `%SRCROOT%`.
    """
    findings = [finding for finding in findings_of(report) if finding.outcome in _LEVELS]
    rules = sorted({_code(finding) for finding in findings})
    driver = {
        "name": "gradcheck",
        "version": report.gradcheck_version,
        "rules": [_rule_of(rule) for rule in rules],
    }
    invocation = {"executionSuccessful": report.exit_code != INTERRUPTED, "exitCode": report.exit_code}
    content = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "invocations": [invocation],
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, rules.index(_code(finding)), root) for finding in findings],
            }
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _code(finding: Finding) -> Code:
    return finding.code or code_of(finding.rule)


def _rule_of(code: Code) -> dict[str, object]:
    """Return a code as a SARIF rule, with its page as help."""
    page = page_of(code).partition("\n")[2].strip()
    rule: dict[str, object] = {
        "id": code.number,
        "name": code.name,
        "shortDescription": {"text": code.title},
        "help": {"text": page, "markdown": page},
    }
    link = link_of(code)
    return {**rule, "helpUri": link} if link else rule


def _result(finding: Finding, rule: int, root: Path) -> dict[str, object]:
    name = f"{finding.case_name}: " if finding.case is not None else ""
    result: dict[str, object] = {
        "ruleId": _code(finding).number,
        "ruleIndex": rule,
        "level": _LEVELS[finding.outcome],
        "message": {"text": "\n".join(filter(None, [f"{name}{finding.title}", finding.text]))},
        "partialFingerprints": {"gradcheck/v1": _identity(finding)},
    }
    if finding.file:
        location: dict[str, object] = {"artifactLocation": _artifact(path_from_root(finding.file, root))}
        if finding.line:
            location["region"] = {"startLine": finding.line}
        result["locations"] = [{"physicalLocation": location}]
    return result


def _artifact(file: str) -> dict[str, str]:
    """Return a URI, relative to the root if the file is below it."""
    if file.startswith("/"):
        return {"uri": f"file://{quote(file, errors='surrogateescape')}"}
    return {"uri": quote(file, errors="surrogateescape"), "uriBaseId": "%SRCROOT%"}


def _identity(finding: Finding) -> str:
    """Return what identifies a result from run to run: neither its line nor its numbers."""
    case = finding.case
    parts = [] if case is None else [case.op, case.case, case.dtype, case.mode]
    text = json.dumps([finding.rule, *parts, finding.name])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def faults_sarif(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as SARIF 2.1.0."""
    code = code_of("spec")
    driver = {"name": "gradcheck", "version": __version__, "rules": [_rule_of(code)]}
    results = []
    for fault in faults:
        message = f"{fault.place}: {fault.message}" if fault.place else fault.message
        location: dict[str, object] = {"artifactLocation": _artifact(path_from_root(fault.path, root))}
        if fault.line:
            location["region"] = {"startLine": fault.line}
        identity = hashlib.sha256(
            f"{fault.path}\n{fault.place}\n{fault.message}".encode("utf-8", "surrogatepass")
        )
        results.append(
            {
                "ruleId": code.number,
                "ruleIndex": 0,
                "level": "error",
                "message": {"text": message},
                "partialFingerprints": {"gradcheck/v1": identity.hexdigest()[:32]},
                "locations": [{"physicalLocation": location}],
            }
        )
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    content = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
