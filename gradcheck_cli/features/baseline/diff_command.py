"""`gradcheck diff`: compares two JSON reports as `run --baseline` compares a run with its lock file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.configured import takes_form
from gradcheck_cli.features.baseline.lock import LockedPair, as_in_run, compare, entries_of, expected_in
from gradcheck_cli.gate import BaselineFinding
from gradcheck_cli.results import Report

if TYPE_CHECKING:
    from rich.text import Text


@click.command("diff")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@takes_form("json")
@click.pass_context
def command(ctx: click.Context, /, *, old: Path, new: Path, form: str) -> None:
    """Compare the JSON reports OLD and NEW (`run --report json=FILE`), pair by pair.

    Exit code 1 if NEW is worse: a pair is gone or no longer right, a check or a case fails, an error grew
    tenfold above the noise, a tolerance is looser, a gradient changed though its forward didn't. New and
    corrected pairs, and gradients that changed together with their forward, are listed. Pairs that weren't
    requested in NEW (-k, --op, --shard, other paths) aren't compared; their number is printed.
    """
    # Late imports: `diff --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import print_lines, terminal_width
    from gradcheck_cli.features.baseline.changes_text import baseline_lines
    from gradcheck_cli.reporting.exchange.json_report import LAYOUTS, read_report
    from gradcheck_cli.serial import write

    before, after = read_report(old), read_report(new)
    findings, unasked = compare_reports(before, after)
    if unasked:
        asked = (
            "" if after.selection is None else " ".join([*after.selection.paths, *after.selection.options])
        )
        click.echo(f"{new}: wasn't asked for {unasked:,} of the pairs in {old} (it is of {asked})", err=True)
    if form == "json":
        content = {"schema_version": 1, "changes": list(findings)}
        content |= {"old": before.facts, "new": after.facts}
        click.echo(write(content, LAYOUTS), nl=False)
    else:
        lines = _version_lines((str(old), before), (str(new), after))
        lines += baseline_lines(findings, terminal_width(), title=f"{old} -> {new}")
        print_lines(lines)
    ctx.exit(1 if any(finding.is_failure for finding in findings) else 0)


def _version_lines(old: tuple[str, Report], new: tuple[str, Report]) -> list[Text]:
    """Say how the versions of two reports differ."""
    from rich.text import Text

    from gradcheck_cli.reporting.terminal import layout

    facts = [report.facts for _, report in (old, new)]
    differing = [name for name in {**facts[0], **facts[1]} if facts[0].get(name) != facts[1].get(name)]
    texts = [", ".join(f"{what} {own.get(what) or '?'}" for what in differing) for own in facts]
    names = [name for name, _ in (old, new)] if differing else []
    return [Text(layout.clean(f"{name}: {text}")) for name, text in zip(names, texts, strict=False)]


def compare_reports(before: Report, after: Report) -> tuple[tuple[BaselineFinding, ...], int]:
    """Compare two reports, which may be of different selections.

    Returns the changes, sorted, and how many pairs of `before` weren't requested in `after`.
    """
    paths = () if after.selection is None else after.selection.paths
    before = replace(before, cases=tuple(as_in_run(before.cases, after.cases, paths)))
    (old, was_asked), (new, is_asked) = (
        (entries_of(report.cases), _asked_in(report)) for report in (before, after)
    )
    unasked = sum(not (entry.is_beside_pairs or key in new or is_asked(entry)) for key, entry in old.items())
    return compare(old, new, is_expected=is_asked, was_expected=was_asked), unasked


def _asked_in(report: Report) -> Callable[[LockedPair], bool]:
    """Return what tells whether a report says what became of a pair, or of a check or a case that failed."""
    cases, is_expected = {case.mode_key for case in report.cases}, expected_in(report)
    return lambda entry: entry.key[:4] in cases or (not entry.is_beside_pairs and is_expected(entry))
