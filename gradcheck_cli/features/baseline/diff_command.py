"""`gradcheck diff`: compares two JSON reports as `run --baseline` compares a run with its lock file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from gradcheck_cli import hooks


@click.command("diff", short_help="Compare two JSON reports.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "html"]), default="table", help="What to print."
)
@click.pass_context
def command(ctx: click.Context, /, *, old: Path, new: Path, form: str) -> None:
    """Compare the JSON reports OLD and NEW (`run --report json=FILE`), pair by pair.

    Exit code 1 if NEW is worse: a pair is gone or no longer right, a check or a case fails, an error grew
    tenfold above the noise, a tolerance is looser, a gradient changed though its forward didn't. New and
    corrected pairs, and gradients that changed together with their forward, are listed. Pairs that weren't
    requested in NEW (-k, --op, --shard, other paths) aren't compared; their number is printed.
    """
    # Late imports: `diff --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.features.baseline.compare import compare_reports
    from gradcheck_cli.reporting.closing import baseline_lines, version_lines
    from gradcheck_cli.reporting.exchange.json_report import LAYOUTS, read_report
    from gradcheck_cli.serial import plain

    before, after = read_report(old), read_report(new)
    findings, unasked = compare_reports(before, after)
    if unasked:
        asked = (
            "" if after.selection is None else " ".join([*after.selection.paths, *after.selection.options])
        )
        click.echo(f"{new}: wasn't asked for {unasked:,} of the pairs in {old} (it is of {asked})", err=True)
    if form == "json":
        content = {"schema_version": 1, "changes": plain(list(findings), LAYOUTS)}
        content |= {"old": before.facts, "new": after.facts}
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
    elif form == "html":
        click.echo(hooks.compare_on_page((str(old), before), (str(new), after), findings), nl=False)
    else:
        lines = version_lines((str(old), before), (str(new), after))
        lines += baseline_lines(findings, terminal_width(), title=f"{old} -> {new}")
        print_lines(console_for(sys.stdout), lines)
    ctx.exit(1 if any(finding.is_failure for finding in findings) else 0)
