"""Faults of specs, for people and for programs: with their line, as JSON, annotations or SARIF."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli import __version__
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.reporting.codes import code_of
from gradcheck_cli.reporting.exchange.findings import path_from_root
from gradcheck_cli.reporting.exchange.github import escape_data, escape_property
from gradcheck_cli.reporting.exchange.sarif import SCHEMA, artifact, rule_of
from gradcheck_cli.serial import plain
from gradcheck_cli.visible import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.errors import Fault

_LIMIT = 16 * MIB
_WIDEST = 200  # columns of a quoted line
# The end of a value within brackets.
_END = re.compile(r"[,}\]]|\s+#|\s*$")


def excerpt(fault: Fault) -> list[str]:
    """Return the line of a fault with a caret under its place; nothing if the line can't be shown."""
    if not fault.line:
        return []
    try:
        lines = read_plain(Path(fault.path), _LIMIT).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    if (
        fault.line > len(lines)
        or len(lines[fault.line - 1]) > _WIDEST
        or not lines[fault.line - 1].isprintable()
    ):
        return []
    text = lines[fault.line - 1]
    start, stop = _span(text, fault)
    margin = f"  {fault.line} | "
    return [f"{margin}{text}", f"{'':{len(margin) - 2}}| {'':{start}}{'^' * max(1, stop - start)}"]


def _span(text: str, fault: Fault) -> tuple[int, int]:
    """Return where a fault is in its line: at its value, or at its key if that is at fault."""
    at, last_match = 0, None
    for part in re.findall(r"[^.\[\]]+", fault.place):
        match = re.compile(rf"(?<![\w.-])['\"]?{re.escape(part)}['\"]?\s*:\s*").search(text, at)
        if match is not None:
            last_match, at = match, match.end()
    if last_match is None:
        start = len(text) - len(text.lstrip())
        return start, len(text.rstrip())
    if "unknown" in fault.message or at >= len(text.rstrip()):
        return last_match.start(), last_match.start() + len(last_match.group().rstrip(": "))
    if text[at] in "[{":
        return at, len(text.rstrip().rstrip("}")) if text[at] == "[" else len(text.rstrip())
    end = _END.search(text, at)
    return at, end.start() if end is not None else len(text)


def faults_json(faults: Sequence[Fault]) -> str:
    """Render faults as JSON."""
    return json.dumps({"faults": plain(list(faults))}, indent=2, ensure_ascii=False) + "\n"


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


def add_excerpts(faults: Sequence[Fault]) -> str:
    """Return every fault together with its line."""
    return "\n".join(line for fault in faults for line in (str(fault), *map(clean, excerpt(fault))))
