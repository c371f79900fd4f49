"""`gradcheck explain`: prints what a finding's code means, and what to do about it."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem

from gradcheck_cli.errors import UsageError, suggest


def _codes(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from gradcheck_cli.reporting.codes import CODES

    return [
        CompletionItem(code.number, help=code.name)
        for code in CODES
        if code.number.startswith(incomplete.upper())
    ]


@click.command("explain")
@click.argument("code", required=False, shell_complete=_codes)
def command(code: str | None) -> None:
    """Explain the finding CODE, such as GC102 or linearity: an example, what to do, how to excuse it.

    Without CODE, list all codes.
    """
    # Late imports: `explain --help` shouldn't wait for them.
    from gradcheck_cli.reporting.codes import CODES, find_code, page_of

    if code is None:
        width = max(len(listed.name) for listed in CODES)
        for listed in CODES:
            click.echo(f"{listed.number}  {listed.name:{width}}  {listed.title}")
        return
    match = find_code(code)
    if match is None:
        hint = suggest(code, [word for listed in CODES for word in (listed.number, listed.name)])
        hint = hint.replace("Did", "did") or "`gradcheck explain` lists them all."
        raise UsageError(f"no finding has the code '{code}'; {hint}")
    if not sys.stdout.isatty():
        click.echo(page_of(match), nl=False)
        return
    from rich.markdown import Markdown

    from gradcheck_cli.cli.console import console_for

    console_for(sys.stdout).print(Markdown(page_of(match).removeprefix("#")))
