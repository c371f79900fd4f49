"""`gradcheck validate`: reads specs and nothing else; never imports TensorFlow, nor the code under test."""

from __future__ import annotations

import json

import click

from gradcheck_cli.cli import completing
from gradcheck_cli.errors import SpecError


@click.command("validate", short_help="Read specs and report every fault.")
@click.argument("paths", nargs=-1, type=click.Path(), shell_complete=completing.spec_files)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to print."
)
def command(*, paths: tuple[str, ...], form: str) -> None:
    """Read the specs in PATHS and report every fault of every file at once.

    Nothing is run and TensorFlow isn't loaded. PATHS default as in `gradcheck run`.
    """
    # Late imports: `validate --help` shouldn't wait for the spec models.
    from gradcheck_cli.cli.project import default_paths  # noqa: PLC0415
    from gradcheck_cli.spec.load import load  # noqa: PLC0415

    try:
        loaded = load(paths or default_paths())
    except SpecError as error:
        if form == "json":
            click.echo(_as_json(error))
        raise
    cases, exceptions = loaded.cases, len(loaded.exceptions)
    specs = len({case.spec for case in cases})
    if form == "json":
        click.echo(json.dumps({"specs": specs, "cases": len(cases), "faults": []}, indent=2))
    elif exceptions and not cases:
        click.echo(f"{_count(exceptions, 'exception')}: ok")
    else:
        click.echo(f"{_count(specs, 'spec')}, {_count(len(cases), 'case')}: ok")


def _as_json(error: SpecError) -> str:
    faults = [
        {"path": fault.path, "line": fault.line, "place": fault.place, "message": fault.message}
        for fault in error.faults
    ]
    return json.dumps({"faults": faults}, indent=2, ensure_ascii=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
