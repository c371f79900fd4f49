"""`gradcheck validate`: only reads specs; imports neither TensorFlow nor the code under test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module

import click

from gradcheck_cli import hooks
from gradcheck_cli.cli.options.configured import default_paths, takes_form
from gradcheck_cli.cli.options.typed_words import SpecPath
from gradcheck_cli.errors import Fault, SpecError
from gradcheck_cli.visible import count

FORMATS = {name: form for name, form in hooks.formats().items() if form.of_faults}


@click.command("validate")
@click.argument("paths", nargs=-1, type=SpecPath())
@takes_form("json", *FORMATS, more=": github for annotations on a change's lines, sarif for code scanning")
def command(*, paths: tuple[str, ...], form: str) -> None:
    """Read the specs in PATHS and report every fault of every file at once.

    Nothing is run and TensorFlow isn't loaded. The default of PATHS is that of `gradcheck run`.
    """
    # Late imports: `validate --help` shouldn't wait for the spec models.
    from gradcheck_cli.spec.load import load

    try:
        loaded = load(paths or default_paths())
    except SpecError as error:
        _print(form, error.faults)
        raise
    cases, exceptions = loaded.cases, len(loaded.exceptions)
    specs = len({case.spec for case in cases})
    if form in FORMATS:
        _print(form, ())
    elif form == "json":
        click.echo(json.dumps({"specs": specs, "cases": len(cases), "faults": []}, indent=2))
    elif exceptions and not cases:
        click.echo(f"{count(exceptions, 'exception')}: ok")
    else:
        click.echo(f"{count(specs, 'spec')}, {count(len(cases), 'case')}: ok")


def _print(form: str, faults: Sequence[Fault]) -> None:
    """Print faults for another program; for people they are printed when the command ends."""
    from gradcheck_cli.cli.console import print_commands
    from gradcheck_cli.cli.options.running_options import root_folder
    from gradcheck_cli.reporting.formats import faults_json

    if form == "json":
        click.echo(faults_json(faults), nl=False)
    elif form in FORMATS:
        written = FORMATS[form]
        text = str(getattr(import_module(written.module), written.of_faults)(faults, root_folder()))
        if written.is_json:
            click.echo(text, nl=False)
        else:
            print_commands(text, err=False)
