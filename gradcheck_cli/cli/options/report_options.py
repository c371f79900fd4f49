"""The options that say which reports are written and printed, and the writing of reports."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradcheck_cli.cli.stdout_guard import print_commands
from gradcheck_cli.errors import UsageError
from gradcheck_cli.hooks import REPORTS, extensions
from gradcheck_cli.reporting.formats import FORMATS, TO_FILES, render

if TYPE_CHECKING:
    from gradcheck_cli.results import Report

Function = TypeVar("Function", bound="Callable[..., Any]")

FORMS = ", ".join(f"{kind}=FILE" for kind in TO_FILES) + (" or github" if "github" in FORMATS else "")


@dataclass(frozen=True)
class ReportTarget:
    """One `--report`: its kind, and its file; `None` for GitHub's annotations."""

    kind: str
    file: Path | None = None

    def __str__(self) -> str:
        return self.kind if self.file is None else f"{self.kind}={self.file}"


def _read_reports(
    _ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[ReportTarget, ...]:
    """Read `KIND=FILE`, and check before the run that FILE can be written after it."""
    targets: list[ReportTarget] = []
    for value in values:
        kind, separator, name = value.partition("=")
        if value == "github" and value in FORMATS:
            targets.append(ReportTarget("github"))
            continue
        if not separator or not name or (kind not in TO_FILES and kind not in extensions(REPORTS)):
            raise click.BadParameter(f"must be {FORMS}, but got '{value}'.")
        file = Path(name)
        _require_place(file)
        for target in targets:
            if target.file is not None and target.file.absolute() == file.absolute():
                raise click.BadParameter(
                    f"'{name}' is to hold two reports, {target.kind} and {kind}; name two files."
                )
        targets.append(ReportTarget(kind, file))
    return tuple(targets)


def _require_place(file: Path) -> None:
    try:
        if stat.S_ISDIR(file.stat().st_mode):
            raise click.BadParameter(f"'{file}' is a folder; name a file in it.")
    except FileNotFoundError:
        if not file.parent.is_dir():
            raise click.BadParameter(
                f"there is no folder '{file.parent}' to write '{file.name}' into."
            ) from None
    except OSError as error:  # a name that is too long, or a folder that is none
        raise click.BadParameter(f"'{file}' can't be written: {error.strerror or error}.") from error


def report_options(function: Function) -> Function:
    """Add `--format` and `--report`, as `form` and `reports`."""
    for option in (
        click.option(
            "--report",
            "reports",
            multiple=True,
            metavar="KIND=FILE",
            callback=_read_reports,
            help=f"Also write a report: {FORMS}; repeatable. github prints annotations, and appends the "
            "markdown to $GITHUB_STEP_SUMMARY.",
        ),
        click.option(
            "--format", "form", type=click.Choice(["table", *FORMATS]), default="table", help="What to print."
        ),
    ):
        function = option(function)
    return function


def root_folder() -> Path:
    """Return the folder relative to which reports name files: the repository's, as far as it is known.

    In GitHub's jobs that is $GITHUB_WORKSPACE; elsewhere the nearest parent folder with `.git`.
    """
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if workspace:
        return Path(workspace)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def print_report(form: str, report: Report) -> None:
    """Print a report on standard output, in a format other than the table."""
    text = render(form, report, root_folder())
    if form == "github":
        print_commands(text, err=False)
        return
    if FORMATS[form].is_json:  # the same text in JSON, but no command for a CI service that reads it
        text = text.replace("##", "\\u0023#")
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a terminal or pipe that can't show a character
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def write_reports(reports: Sequence[ReportTarget], form: str, report: Report) -> int:
    """Write the requested reports, and report those that can't be written.

    Args:
        form: the form of standard output: GitHub's annotations are printed there beside a table, but
            otherwise on standard error, since another program then reads standard output.

    Returns:
        The report's own exit code; 2 instead of 0 if a file can't be written.
    """
    failures = []
    for target in reports:
        if target.file is not None:
            failures += write_file(target.file, render(target.kind, report, root_folder()))
        elif form != "github":
            print_commands(render("github", report, root_folder()), err=form != "table")
    if form == "github" or any(target.kind == "github" for target in reports):
        failures += _append_summary(report)
    for failure in failures:
        click.echo(failure, err=True)
    return report.exit_code or (UsageError.exit_code if failures else 0)


def write_file(file: Path, text: str) -> list[str]:
    """Write a report, and return why it can't be written; empty if it was."""
    from gradcheck_cli.plain_files import write_text

    try:
        write_text(file, text)
    except OSError as error:
        return [f"can't write the report to '{file}': {error.strerror or error}"]
    return []


def _append_summary(report: Report) -> list[str]:
    """Append the Markdown to the page that GitHub shows for a job: other steps write to it too."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return []
    try:
        with Path(name).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(render("markdown", report, root_folder()) + "\n")
    except OSError as error:
        return [f"can't append to $GITHUB_STEP_SUMMARY '{name}': {error.strerror or error}"]
    return []
