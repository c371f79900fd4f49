"""The formats of a report, in one table, from which the command line reads its choices; and faults of specs.

Faults are written for people with their line, for programs as JSON.
"""

from __future__ import annotations

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


def excerpt(fault: Fault) -> list[str]:
    """Return the line of a fault with a caret under its place; nothing if the line can't be shown."""
    try:
        text = read_plain(Path(fault.path), _LIMIT).decode("utf-8-sig").splitlines()[fault.line - 1]
    except (OSError, UnicodeDecodeError, IndexError):
        return []
    if not fault.line or len(text) > _WIDEST or not text.isprintable():
        return []
    start, stop = fault.columns
    margin, count = f"  {fault.line} | ", min(stop, len(text)) - start
    return [f"{margin}{text}", f"{'':{len(margin) - 2}}| {'':{start}}{'^' * max(1, count)}"]


def faults_json(faults: Sequence[Fault]) -> str:
    """Render faults as JSON."""
    from gradcheck_cli.serial import Layout, write  # late: the command line reads the formats for `--help`

    return write({"faults": list(faults)}, {Fault: Layout(left_out=frozenset({"columns"}))})


def add_excerpts(faults: Sequence[Fault]) -> str:
    """Return every fault together with its line."""
    return "\n".join(line for fault in faults for line in (str(fault), *map(clean, excerpt(fault))))
