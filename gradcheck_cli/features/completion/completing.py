"""What the shell offers after a Tab, and `gradcheck completion`, whose script makes it ask.

Spec files, op types, tags, cases and pairs are offered. TensorFlow is never imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from gradcheck_cli.errors import GradcheckError

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case


# TensorFlow's own list of its ops, a text of 1,400 imports.
_RAW_OPS = ("_api", "v2", "raw_ops", "__init__.py")
_IMPORTED = re.compile(r"^from \S+ import (\w+)", re.MULTILINE)


def _spec_files(incomplete: str) -> list[CompletionItem]:
    """Offer YAML files, and folders that may contain some."""
    folder, _, begun = incomplete.rpartition("/")
    where = Path(f"{folder}/" if folder or incomplete.startswith("/") else ".")
    items = []
    with suppress(OSError):  # no such folder: nothing to offer
        for entry in sorted(os.scandir(where), key=lambda entry: entry.name):
            is_hidden = entry.name.startswith(".") and not begun.startswith(".")
            if is_hidden or not entry.name.startswith(begun):
                continue
            shown = incomplete[: len(incomplete) - len(begun)] + entry.name
            if entry.is_dir():
                items.append(CompletionItem(f"{shown}/"))
            elif entry.name.endswith((".yaml", ".yml")):
                items.append(CompletionItem(shown))
    return items


def known_op_types() -> list[str]:
    """Return the op types that TensorFlow exports, read from its package's text; none if it is missing."""
    package = find_spec("tensorflow")  # finds a package without importing it
    for folder in (package.submodule_search_locations or ()) if package else ():
        with suppress(OSError):
            return sorted(set(_IMPORTED.findall(Path(folder, *_RAW_OPS).read_text(encoding="utf-8"))))
    return []


def _cases(ctx: click.Context) -> Sequence[Case]:
    from gradcheck_cli.cli.options.configured import default_paths
    from gradcheck_cli.spec.load import load_cases

    paths = ctx.params.get("paths") or ctx.params.get("spec") or default_paths()
    try:
        return load_cases([paths] if isinstance(paths, str) else list(paths))
    except GradcheckError:  # faults of a spec can't be reported during completion
        return ()


# The words of a case that can be completed; its pairs only as far as the spec names its outputs.
_OF_A_CASE: dict[str, Callable[[Case], Iterable[str]]] = {
    "tags": lambda case: case.origin.tags,
    "names": lambda case: (case.name,),
    "ops": lambda case: (case.op,),
    "pairs": lambda case: case.labels,
}


def complete(kind: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Offer what begins as a word does, in upper or lower case; see `hooks.completing`."""
    if kind == "spec_files":
        return _spec_files(incomplete)
    if kind == "op_types":
        names: Iterable[str] = known_op_types()
    else:  # of the specs in the command line, or of all
        names = (name for case in _cases(ctx) for name in _OF_A_CASE[kind](case))
    begun = incomplete.lower()
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.lower().startswith(begun)]


VARIABLE = "_GRADCHECK_COMPLETE"
PROGRAM = "gradcheck"


@click.command("completion")
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
