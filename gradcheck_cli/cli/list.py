"""`gradcheck list`: which op types have a gradient, where it is, and which specs cover it."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gradcheck_cli.cli import completing
from gradcheck_cli.cli.configured import ListCommand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.spec.coverage import Coverage
    from gradcheck_cli.tensorflow_backend.registry import GradientEntry

UNCHECKED = 3
STATUSES = {
    "gradient": "gradient",
    "not-differentiable": "not differentiable",
    "none": "none",
    "custom_gradient": "custom_gradient",
}


@click.command("list", cls=ListCommand, short_help="List registered gradients and where they are.")
@click.argument("pattern", required=False, shell_complete=completing.op_types)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([*STATUSES, "all"]),
    help="Only these; repeatable. Default: all but op types of which nothing is registered ('none').",
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
    help="Show what specs cover, except (a document with 'exceptions') and miss, and what they say of each "
    "input.",
)
@click.option(
    "--coverage",
    "words",
    multiple=True,
    type=click.Choice(["covered", "unproven", "excepted", "missing", "gone"]),
    help="Only these; repeatable; needs --specs. unproven: a spec covers it, but --report holds no case that "
    "was right and saw its gradient. gone: a spec or an exception names it, but this TensorFlow has no such "
    "gradient.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A JSON report of a run of these specs: only what it found right counts as covered; needs --specs.",
)
@click.option(
    "--uncovered",
    is_flag=True,
    help="List only gradients that no spec checks; needs --specs. With --import, those of the package: all "
    "of its modules are imported.",
)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 3 where specs check less than this share of the gradients; needs --specs.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="What to print."
)
@click.pass_context
def command(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    *,
    pattern: str | None,
    statuses: tuple[str, ...],
    modules: tuple[str, ...],
    folder: str | None,
    words: tuple[str, ...],
    report_file: Path | None,
    uncovered: bool,
    fail_under: float | None,
    form: str,
) -> None:
    """List the gradients in TensorFlow's registry, and those that --import brings.

    PATTERN is a glob such as '*matmul*', in any case; a name without * or ? is looked up as it is, op
    types without a gradient included.

    A spec covers an op type whose gradient it names (a raw op_type, or covers). --uncovered and --fail-under
    leave excepted ones out. They look at registered gradients, and at functions with tf.custom_gradient that
    stand in a module or a class. Those that a factory makes when it is called can't be seen.
    """
    dropped = _unasked(ctx)
    uncovered = uncovered and "uncovered" not in dropped
    fail_under = None if "fail_under" in dropped else fail_under
    words = () if "words" in dropped else words
    report_file = None if "report_file" in dropped else report_file
    measures = uncovered or fail_under is not None
    if measures and folder is None:
        raise click.UsageError("--uncovered and --fail-under need --specs DIR.", ctx)
    if (words or report_file is not None) and folder is None:
        raise click.UsageError("--coverage and --report need --specs DIR.", ctx)
    if measures:
        if words or report_file is not None:
            raise click.UsageError("--coverage and --report go without --uncovered and --fail-under.", ctx)
        ctx.exit(_measure(str(folder), modules, pattern, form, uncovered=uncovered, fail_under=fail_under))
    from gradcheck_cli.cli.covering import Specs  # noqa: PLC0415 (loads the spec models)

    specs = None if folder is None else Specs.read(folder, report_file)
    # Late imports: `list --help` and a bad option shouldn't wait for TensorFlow.
    from gradcheck_cli.running.session import start_tensorflow  # noqa: PLC0415

    start_tensorflow()
    with redirect_stdout(sys.stderr):  # what an imported module prints is no part of the list
        from gradcheck_cli.tensorflow_backend.registry import op_types, read_gradients  # noqa: PLC0415

        entries = read_gradients(modules)
    if specs is not None:
        gone = {entry.name: entry for entry in specs.gone(entries)}
        entries = (*(entry for entry in entries if entry.name not in gone), *gone.values())
    chosen = _choose(entries, pattern, statuses)
    coverage = None if specs is None else specs.coverage(chosen)
    if words and coverage is not None:
        chosen = [entry for entry in chosen if coverage[entry.name].word in words]
    if not chosen:
        from gradcheck_cli.cli.selection import meant  # noqa: PLC0415 (only where nothing matches)

        hint = meant(pattern, [entry.name for entry in entries]) if pattern and not _is_glob(pattern) else ""
        click.echo(f"nothing matches{f' {pattern!r}' if pattern else ''}.{hint}", err=True)
    _print(chosen, coverage, form, len(op_types()))
    ctx.exit(0)


_MEASURING, _COVERING = ("uncovered", "fail_under"), ("words", "report_file")


def _unasked(ctx: click.Context) -> set[str]:
    """Return the options of a project's settings that don't go with what the command line asks for.

    The settings say how a project measures what its specs cover. Who looks up an op type asks for no measure,
    nor does who asks for another one.
    """
    asked = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    configured = {*_MEASURING, *_COVERING} - asked
    if ctx.params["folder"] is None or (
        ctx.params["pattern"] is not None and not asked & {"folder", *_MEASURING, *_COVERING}
    ):
        return configured
    if asked & {*_MEASURING}:
        return configured & {*_COVERING}
    return configured & {*_MEASURING} if asked & {*_COVERING} else set()


def _measure(  # noqa: PLR0913 (one argument per option)
    folder: str,
    packages: Sequence[str],
    pattern: str | None,
    form: str,
    *,
    uncovered: bool,
    fail_under: float | None,
) -> int:
    """Print which gradients of packages specs check, or which they don't, and return the exit code."""
    from gradcheck_cli.cli.covering import measure  # noqa: PLC0415
    from gradcheck_cli.reporting.gradient_list import coverage_line  # noqa: PLC0415 (late, as below)
    from gradcheck_cli.spec.coverage import Coverage  # noqa: PLC0415

    measured = measure(folder, packages, lambda found: _choose(found, pattern, ()))
    from gradcheck_cli.tensorflow_backend.registry import op_types  # noqa: PLC0415 (TensorFlow, by now)

    entries, bare = measured.entries, measured.bare
    for failure in measured.failures:
        click.echo(failure, err=True)
    found = {name: Coverage("covered", tuple(places)) for name, places in measured.specs.items()}
    found |= {entry.name: Coverage("missing") for entry in bare}
    _print(bare if uncovered else entries, found, form, len(op_types()), counted=False)
    percent = 100 * (1 - len(bare) / len(entries)) if entries else 0.0
    click.echo(coverage_line(len(entries), len(bare), len(measured.left_out)), err=form != "table")
    if measured.failures:  # what couldn't be imported wasn't looked at
        return UNCHECKED
    if fail_under is None:
        return 0
    # A package without gradients isn't covered either.
    return UNCHECKED if percent < fail_under or not entries else 0


def _tensorflow() -> str:
    from importlib.metadata import version  # noqa: PLC0415 (only here)

    return version("tensorflow")


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


def _choose(
    entries: Sequence[GradientEntry], pattern: str | None, statuses: Sequence[str]
) -> list[GradientEntry]:
    wanted = {*STATUSES.values(), "gone"}
    if statuses and "all" not in statuses:
        wanted = {STATUSES[status] for status in statuses}
    elif not statuses and (pattern is None or _is_glob(pattern)):
        wanted.discard("none")
    # Brackets are literal: `module:Class.method` and op types hold none, and nobody should have to escape.
    glob = re.escape(pattern or "*").replace(r"\*", ".*").replace(r"\?", ".")
    matches = re.compile(glob, re.IGNORECASE | re.DOTALL).fullmatch
    return [entry for entry in entries if entry.status in wanted and matches(entry.name)]


def _print(
    entries: Sequence[GradientEntry],
    coverage: Mapping[str, Coverage] | None,
    form: str,
    op_types: int,
    *,
    counted: bool = True,
) -> None:
    from gradcheck_cli.reporting.gradient_list import (  # noqa: PLC0415 (late with the rest)
        gradients_csv,
        gradients_json,
        gradients_table,
    )

    if form == "csv":
        click.echo(gradients_csv(entries, coverage or {}), nl=False)
        return
    if form == "json":
        text = gradients_json(entries, coverage or {}, tensorflow_version=_tensorflow(), op_types=op_types)
        click.echo(text, nl=False)
        return
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width  # noqa: PLC0415

    width = terminal_width() if sys.stdout.isatty() else None
    lines = gradients_table(entries, coverage, op_types=op_types, width=width, counted=counted)
    print_lines(console_for(sys.stdout), lines)
