"""Faults of specs, for people with their line, for programs as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from gradcheck_cli.errors import Fault
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.serial import plain
from gradcheck_cli.visible import clean

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


def add_excerpts(faults: Sequence[Fault]) -> str:
    """Return every fault together with its line."""
    return "\n".join(line for fault in faults for line in (str(fault), *map(clean, excerpt(fault))))
