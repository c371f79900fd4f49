"""What the shell offers after a Tab, and `gradcheck completion`, whose script makes it ask.

Ops, op types, tags, cases and pairs of the specs are offered; the shell itself offers files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from gradcheck_cli.errors import GradcheckError

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case


def _cases(ctx: click.Context) -> Sequence[Case]:
    from gradcheck_cli.cli.options.configured import default_paths
    from gradcheck_cli.spec.load import load_cases

    paths = ctx.params.get("paths") or ctx.params.get("spec") or default_paths()
    try:
        return load_cases([paths] if isinstance(paths, str) else list(paths))
    except GradcheckError:  # faults of a spec can't be reported during completion
        return ()


def complete(kind: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Offer what begins as a word does, in upper or lower case; see `hooks.completing`."""
    from gradcheck_cli.running.selection import WORDS

    # Of the specs in the command line, or of all; pairs only as far as a spec names its outputs.
    names = (
        name for case in _cases(ctx) for name in (case.labels if kind == "pairs" else WORDS[kind][2](case))
    )
    begun = incomplete.lower()
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.lower().startswith(begun)]


VARIABLE = "_GRADCHECK_COMPLETE"
PROGRAM = "gradcheck"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes gradcheck's commands, options, and what is in specs, in SHELL.

    \b
    bash:  eval "$(gradcheck completion bash)"          in ~/.bashrc
    zsh:   eval "$(gradcheck completion zsh)"           in ~/.zshrc, after compinit
    fish:  gradcheck completion fish | source           in ~/.config/fish/config.fish
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}.", ctx)
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
