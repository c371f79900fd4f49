"""`gradcheck run`: checks cases and streams what it finds."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli.cli.extent import extent_options, with_extent
from gradcheck_cli.cli.processes import case_runner, process_options
from gradcheck_cli.errors import UsageError

if TYPE_CHECKING:
    from gradcheck_cli.results import CaseResult, Report
    from gradcheck_cli.spec.case import Power

SKIPPED_UNDER_STRICT = 3
PRECISION_UNDER_STRICT = 1


def _report_file(
    _ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Path, ...]:
    """Read `json=FILE`, and find out before the run whether FILE can be written after it."""
    files = []
    for value in values:
        kind, separator, name = value.partition("=")
        if kind != "json" or not separator or not name:
            raise click.BadParameter(f"must be json=FILE, but got '{value}'.")
        file = Path(name)
        if file.is_dir():
            raise click.BadParameter(f"'{name}' is a folder; name a file in it.")
        if not file.parent.is_dir():
            raise click.BadParameter(f"there is no folder '{file.parent}' to write '{file.name}' into.")
        files.append(file)
    return tuple(files)


def _device(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from gradcheck_cli.spec.leaf_types import DEVICE  # noqa: PLC0415 (loads pydantic)

    if not DEVICE.fullmatch(value):
        raise click.BadParameter(f"must be a device with its number, such as GPU:0, but got '{value}'.")
    return value


@click.command("run", short_help="Check the gradients that specs describe.")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--seed", type=click.IntRange(min=0), help="Draw inputs from this seed, whatever specs say.")
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(["graph", "dynamic", "eager", "xla"]),
    help="Check in this mode, whatever specs say; repeatable.",
)
@click.option(
    "--device",
    metavar="DEVICE",
    callback=_device,
    help="Run on this device, such as GPU:0; skipped where there is none.",
)
@click.option("--case", "names", multiple=True, metavar="NAME", help="Check this case only; repeatable.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to print."
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="json=FILE",
    callback=_report_file,
    help="Also write a report to FILE; repeatable.",
)
@click.option("--strict", is_flag=True, help="Count whatever was skipped as a failure (exit 3).")
@click.option(
    "--strict-precision",
    is_flag=True,
    help="Count a precision warning (right in float64, too few digits as declared) as a failure (exit 1).",
)
@extent_options
@process_options
@click.option("-q", "--quiet", is_flag=True, help="Print failing tables and the summary only.")
@click.option("-v", "--verbose", is_flag=True, help="Add checks, methods and counts of evaluations.")
@click.pass_context
def command(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    seed: int | None,
    names: tuple[str, ...],
    modes: tuple[str, ...],
    device: str | None,
    form: str,
    reports: tuple[Path, ...],
    strict: bool,
    strict_precision: bool,
    power: Power | None,
    require: str | None,
    quiet: bool,
    verbose: bool,
    **processes: Any,  # noqa: ANN401 (the options of process_options)
) -> None:
    """Check the gradients that the specs in PATHS describe.

    PATHS are spec files and folders of them; default: `specs` under [tool.gradcheck] in the nearest
    pyproject.toml, else specs/.
    """
    if quiet and verbose:
        raise click.UsageError("-q and -v exclude each other.", ctx)
    run = case_runner(ctx, reports, **processes)  # first: TensorFlow is imported beside all that follows
    # Late imports: `run --help` and a mistyped option shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width  # noqa: PLC0415
    from gradcheck_cli.cli.progress import progress_bar  # noqa: PLC0415
    from gradcheck_cli.cli.project import default_paths  # noqa: PLC0415
    from gradcheck_cli.cli.selection import select_cases  # noqa: PLC0415
    from gradcheck_cli.reporting.json_report import to_json  # noqa: PLC0415
    from gradcheck_cli.reporting.terminal import case_lines, summary_lines  # noqa: PLC0415
    from gradcheck_cli.spec.load import load_cases  # noqa: PLC0415
    from gradcheck_cli.spec.modes import in_each_mode  # noqa: PLC0415

    cases = select_cases(load_cases(paths or default_paths(), seed=seed), names)
    cases = with_extent(in_each_mode(cases, modes, device), power, require)
    console = console_for(sys.stdout)
    width = terminal_width()

    # A forward that prints would break the results' JSON, or stand between rows: it prints to stderr.
    with redirect_stdout(sys.stderr), progress_bar(len(cases)) as bar:

        def on_case(case: CaseResult) -> None:
            bar.end_case()
            if form == "table" and not (quiet and _is_fine(case, strict, strict_precision)):
                with bar.paused():
                    print_lines(console, case_lines(case, width=width, verbose=verbose))

        report = run(cases, seed=seed, on_case=on_case, on_start=bar.start_case)

    exit_code = _exit_code(report, strict=strict, strict_precision=strict_precision)
    for notice in report.notices:
        click.echo(notice, err=True)
    if form == "json":
        click.echo(to_json(report, exit_code), nl=False)
    else:
        print_lines(console, summary_lines(report, width=width, exit_code=exit_code, verbose=verbose))
    for file in reports:
        _write(file, to_json(report, exit_code))
    ctx.exit(exit_code)


def _write(file: Path, text: str) -> None:
    from gradcheck_cli.reporting.files import write_text  # noqa: PLC0415 (only with --report)

    try:
        write_text(file, text)
    except OSError as error:
        raise UsageError(f"can't write the report to '{file}': {error.strerror or error}") from error


def _skipped(case: CaseResult) -> bool:
    """Whether anything of the case was skipped."""
    from gradcheck_cli.results import Status  # noqa: PLC0415 (after the command line is read)

    found = {case.status, *(pair.status for pair in case.pairs), *(check.status for check in case.checks)}
    return Status.SKIPPED in found


def _exit_code(report: Report, *, strict: bool, strict_precision: bool) -> int:
    if strict_precision and not report.interrupted and any(case.warnings for case in report.cases):
        return PRECISION_UNDER_STRICT
    if strict and report.exit_code == 0 and any(_skipped(case) for case in report.cases):
        return SKIPPED_UNDER_STRICT
    return report.exit_code


def _is_fine(case: CaseResult, strict: bool, strict_precision: bool) -> bool:  # noqa: FBT001 (options)
    """Whether `-q` may leave the case out: nothing about it would fail the run."""
    from gradcheck_cli.results import Status  # noqa: PLC0415 (after the command line is read)

    green = case.status in (Status.PASSED, Status.EXPECTED_MISMATCH)
    return green and not (strict and _skipped(case)) and not (strict_precision and case.warnings)
