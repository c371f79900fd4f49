"""The formats of a report, in one table; the command line reads its choices from it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli.extensions import REPORTS, extensions
from gradcheck_cli.hooks import Format, formats

if TYPE_CHECKING:
    from gradcheck_cli.results import Report


FORMATS = {
    "json": Format("gradcheck_cli.reporting.exchange.json_report", "to_json", is_json=True),
    **formats(),
    "concise": Format("gradcheck_cli.reporting.closing", "to_concise", to_file=False),
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
