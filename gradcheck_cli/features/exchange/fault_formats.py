"""Faults of specs as GitHub's annotations and as SARIF."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from gradcheck_cli import __version__
from gradcheck_cli.errors import Fault
from gradcheck_cli.features.exchange.github import escape_data, escape_property
from gradcheck_cli.features.exchange.sarif import SCHEMA, artifact, rule_of
from gradcheck_cli.reporting.codes import code_of
from gradcheck_cli.reporting.exchange.findings import path_from_root


def faults_github(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as GitHub's workflow commands, one annotation each."""
    lines = []
    for fault in faults:
        properties = {
            "file": path_from_root(fault.path, root),
            "line": str(fault.line or 1),
            "title": "gradcheck: spec",
        }
        named = ",".join(f"{key}={escape_property(value)}" for key, value in properties.items())
        message = f"{fault.place}: {fault.message}" if fault.place else fault.message
        lines.append(f"::error {named}::{escape_data(message)}\n")
    return "".join(lines)


def faults_sarif(faults: Sequence[Fault], root: Path) -> str:
    """Render faults as SARIF 2.1.0."""
    code = code_of("spec")
    driver = {"name": "gradcheck", "version": __version__, "rules": [rule_of(code)]}
    results = []
    for fault in faults:
        message = f"{fault.place}: {fault.message}" if fault.place else fault.message
        location: dict[str, object] = {"artifactLocation": artifact(path_from_root(fault.path, root))}
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
    content = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
