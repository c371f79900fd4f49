"""`gradcheck completion`: the script that a shell reads to complete gradcheck's commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_GRADCHECK_COMPLETE"
PROGRAM = "gradcheck"


@click.command("completion", short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes gradcheck's commands, options, specs and op types in SHELL.

    \b
    bash:  eval "$(gradcheck completion bash)"          in ~/.bashrc
    zsh:   eval "$(gradcheck completion zsh)"           in ~/.zshrc, after compinit
    fish:  gradcheck completion fish | source           in ~/.config/fish/config.fish
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}.", ctx)
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
