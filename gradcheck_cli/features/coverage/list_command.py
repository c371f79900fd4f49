"""`gradcheck list`: which op types have a gradient, where it is, and which specs cover it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli import completing

if TYPE_CHECKING:
    from gradcheck_cli.tensorflow_backend.registry import GradientEntry

STATUSES = {
    "gradient": "gradient",
    "not-differentiable": "not differentiable",
    "none": "none",
    "custom_gradient": "custom_gradient",
}


@click.command("list", short_help="List registered gradients and where they are.")
@click.argument("pattern", required=False, shell_complete=completing.op_types)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([*STATUSES, "all"]),
    help="List only gradients of this status; repeatable. [default: all but 'none', op types with nothing "
    "registered]",
)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import MODULE first, and list what it adds; repeatable.",
)
@click.option(
    "--specs",
    "folder",
    type=click.Path(),
    metavar="DIR",
    help="Show which specs below DIR cover each: a raw op_type, covers, or a function that they name.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="What to print."
)
def command(
    *, pattern: str | None, statuses: tuple[str, ...], modules: tuple[str, ...], folder: str | None, form: str
) -> None:
    """List the gradients in TensorFlow's registry, and those that --import adds.

    PATTERN is a glob such as '*matmul*', in upper or lower case. A name without * or ? is looked up exactly,
    also among op types without a gradient. `gradcheck run --cov PACKAGE` says which gradients a run has
    checked.
    """
    specs = None if folder is None else _specs_by_name(folder)
    # Late imports: `list --help` and a bad option shouldn't wait for TensorFlow.
    from gradcheck_cli.running.session import start_tensorflow

    start_tensorflow()
    with redirect_stdout(sys.stderr):  # what an imported module prints isn't part of the list
        from gradcheck_cli.tensorflow_backend.private.private_graphs import op_types
        from gradcheck_cli.tensorflow_backend.registry import read_gradients

        entries = read_gradients(modules)
    chosen = _choose(entries, pattern, statuses)
    if not chosen:
        from gradcheck_cli.running.selection import suggest_name

        hint = (
            suggest_name(pattern, [entry.name for entry in entries])
            if pattern and not _is_glob(pattern)
            else ""
        )
        click.echo(f"nothing matches{f' {pattern!r}' if pattern else ''}.{hint}", err=True)
    _print(chosen, specs, form, len(op_types()))


def _specs_by_name(folder: str) -> dict[str, list[str]]:
    """Return the specs that cover each op type, and each function that they name as forward."""
    from gradcheck_cli.spec.case import cases_by_type
    from gradcheck_cli.spec.load import load

    cases = load([folder]).cases
    specs = {
        name: [case.spec for case in covering]
        for name, covering in cases_by_type(cases, _tensorflow()).items()
    }
    for case in cases:
        if case.forward is not None:
            specs.setdefault(case.forward.target, []).append(case.spec)
    return {name: list(dict.fromkeys(places)) for name, places in specs.items()}


def _tensorflow() -> str:
    from importlib.metadata import version

    return version("tensorflow")


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


def _choose(
    entries: Sequence[GradientEntry], pattern: str | None, statuses: Sequence[str]
) -> list[GradientEntry]:
    chosen = set(STATUSES.values())
    if statuses and "all" not in statuses:
        chosen = {STATUSES[status] for status in statuses}
    elif not statuses and (pattern is None or _is_glob(pattern)):
        chosen.discard("none")
    # Brackets are literal: `module:Class.method` and op types contain none, and nobody should have to escape
    # them.
    glob = re.escape(pattern or "*").replace(r"\*", ".*").replace(r"\?", ".")
    matches = re.compile(glob, re.IGNORECASE | re.DOTALL).fullmatch
    return [entry for entry in entries if entry.status in chosen and matches(entry.name)]


def _print(
    entries: Sequence[GradientEntry], specs: Mapping[str, Sequence[str]] | None, form: str, op_types: int
) -> None:
    from gradcheck_cli.features.coverage.gradient_list import gradients_csv, gradients_json, gradients_table

    if form == "csv":
        click.echo(gradients_csv(entries, specs or {}), nl=False)
        return
    if form == "json":
        text = gradients_json(entries, specs or {}, tensorflow_version=_tensorflow(), op_types=op_types)
        click.echo(text, nl=False)
        return
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width

    width = terminal_width() if sys.stdout.isatty() else None
    lines = gradients_table(entries, specs, op_types=op_types, width=width)
    print_lines(console_for(sys.stdout), lines)
