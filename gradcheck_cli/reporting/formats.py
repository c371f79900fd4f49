"""The formats of a report, in one table; the command line reads its choices from it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from gradcheck_cli.extensions import REPORTS, extensions

if TYPE_CHECKING:
    from pathlib import Path

    from gradcheck_cli.results import Report


class Format(NamedTuple):
    """One format.

    Attributes:
        module: the module below `gradcheck_cli` that renders it; imported when a report is rendered.
        function: its function, which takes a report and returns text.
        is_rooted: whether the function also takes the folder from which files are named.
        to_file: whether `--report KIND=FILE` offers it.
        is_json: whether it is JSON, where any character may be written as an escape.
    """

    module: str
    function: str
    is_rooted: bool = False
    to_file: bool = True
    is_json: bool = False


FORMATS = {
    "json": Format("reporting.exchange.json_report", "to_json", is_json=True),
    "junit": Format("reporting.exchange.junit", "to_junit"),
    "github": Format("reporting.exchange.github", "to_github", is_rooted=True, to_file=False),
    "markdown": Format("reporting.exchange.markdown", "to_markdown", is_rooted=True),
    "sarif": Format("reporting.exchange.sarif", "to_sarif", is_rooted=True, is_json=True),
    "html": Format("features.page.html.page", "to_html", is_rooted=True),
    "concise": Format("reporting.exchange.concise", "to_concise", to_file=False),
}
TO_FILES = tuple(kind for kind, form in FORMATS.items() if form.to_file)


def render(kind: str, report: Report, root: Path) -> str:
    """Return a report's text.

    Args:
        kind: one of `FORMATS`, or a format that another package registers.
        report: the run.
        root: the folder from which files are named.

    Raises:
        ValueError: there is no such format.
    """
    if kind in FORMATS:
        form = FORMATS[kind]
        to_text = getattr(import_module(f"gradcheck_cli.{form.module}"), form.function)
        return str(to_text(report, root) if form.is_rooted else to_text(report))
    registered = extensions(REPORTS)
    if kind not in registered:
        raise ValueError(f"no format {kind!r}; there are {', '.join([*FORMATS, *registered])}")
    return str(registered[kind](report, root))
