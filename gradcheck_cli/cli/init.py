"""`gradcheck init`: writes a spec to start from."""

from __future__ import annotations

import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli import completing
from gradcheck_cli.errors import UsageError

if TYPE_CHECKING:
    from gradcheck_cli.running.drafting import Drafted

_TARGET = re.compile(r"[\w.]+:[\w.]+")
STANDARD_OUTPUT = "-"


@click.command("init", short_help="Write a spec to start from.")
@click.argument("target", required=False, metavar="[MODULE:FUNCTION]")
@click.option(
    "--op-type",
    metavar="TYPE",
    shell_complete=completing.op_types,
    help="Write one for this op type, from its definition.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write it; - for standard output. [default: NAME.yaml in specs/, if there is one]",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.pass_context
def command(
    ctx: click.Context, *, target: str | None, op_type: str | None, output: str | None, force: bool
) -> None:
    """Write a spec for MODULE:FUNCTION: a function, a layer, or what has a custom gradient.

    The module is imported from the working directory. Inputs come from the signature, shapes from annotations
    and defaults, or else from what the function takes when it is tried; whatever is a guess says so. What was
    written is run: domains and dtypes are tried until it tests something; what is still undecided is said.
    """
    if (target is None) == (op_type is None):
        raise click.UsageError("name either MODULE:FUNCTION or --op-type TYPE.", ctx)
    if target is not None and not _TARGET.fullmatch(target):
        raise click.UsageError(f"must be MODULE:FUNCTION, such as ops:huber, but got '{target}'.", ctx)
    from gradcheck_cli.running.drafting import draft_function, draft_op_type  # noqa: PLC0415 (late)

    with redirect_stdout(sys.stderr):  # what an imported module prints is no part of a spec
        drafted = draft_function(target) if target is not None else draft_op_type(str(op_type))
    text = drafted.draft.text()
    if output == STANDARD_OUTPUT:
        click.echo(text, nl=False)
    else:
        file = Path(output) if output is not None else _file_for(drafted)
        _write(file, text, force=force)
        click.echo(f"wrote {file}", err=True)
        click.echo(f"check it: gradcheck run {file}", err=True)
    if not drafted.is_right:
        _tell(drafted)


def _file_for(drafted: Drafted) -> Path:
    from gradcheck_cli.cli.project import default_paths  # noqa: PLC0415 (late)

    folders = [Path(path) for path in default_paths() if Path(path).is_dir()]
    return (folders[0] if folders else Path()) / f"{drafted.draft.op}.yaml"


def _write(file: Path, text: str, *, force: bool) -> None:
    if file.exists() and not force:
        raise UsageError(
            f"{file}: is there already; name another file with -o, or write over it with --force"
        )
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}; make it first")
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise UsageError(f"{file}: can't be written: {error.strerror}") from error


def _tell(drafted: Drafted) -> None:
    """Say why a run of what was written doesn't end with 0: what is wrong, undecided, or tests nothing."""
    if drafted.runs:
        click.echo("a run of it as it stands doesn't end with 0:", err=True)
    else:
        click.echo("it doesn't run as it stands; change what is a guess:", err=True)
    click.echo(f"  {drafted.trouble}" if drafted.trouble else "  no shape that was tried is taken", err=True)
