"""The formats of a report, in one table, from which the command line reads its choices; and faults of specs.

Faults are written for people with their line, for programs as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli.errors import Fault
from gradcheck_cli.hooks import REPORTS, Format, extensions, formats
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.visible import clean

if TYPE_CHECKING:
    from gradcheck_cli.results import Report


FORMATS = {
    "json": Format("gradcheck_cli.reporting.exchange.json_report", "to_json", is_json=True),
    **formats(),
}
TO_FILES = tuple(kind for kind, form in FORMATS.items() if form.to_file)


def render(kind: str, report: Report, root: Path) -> str:
    """Return a report's text in a format of ours or of another package; files are named from the folder.

    Raises:
        ValueError: there is no such format.
    """
    if kind in FORMATS:
        form = FORMATS[kind]
        to_text = getattr(import_module(form.module), form.function)
        return str(to_text(report, root) if form.is_rooted else to_text(report))
    registered = extensions(REPORTS)
    if kind not in registered:
        raise ValueError(f"no format {kind!r}; there are {', '.join([*FORMATS, *registered])}")
    return str(registered[kind](report, root))


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
    from gradcheck_cli.serial import write  # late: the command line reads the formats for `--help`

    return write({"faults": list(faults)})


def add_excerpts(faults: Sequence[Fault]) -> str:
    """Return every fault together with its line."""
    return "\n".join(line for fault in faults for line in (str(fault), *map(clean, excerpt(fault))))
