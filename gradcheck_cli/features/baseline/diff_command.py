"""`gradcheck diff`: compares two JSON reports as `run --baseline` compares a run with its lock file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.configured import takes_form
from gradcheck_cli.features.baseline.lock import Expected, as_in_run, compare, locked_pairs_of
from gradcheck_cli.gate import BaselineFinding, Change
from gradcheck_cli.results import FAILING, GREEN, UNDECIDED, CaseResult, Report

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
    old, new = locked_pairs_of(before.cases), locked_pairs_of(after.cases)
    is_expected, was_expected = Expected(after), Expected(before)
    lost, were_lost = _explain_unchecked(after), _explain_unchecked(before)
    findings: list[BaselineFinding] = []
    for finding in compare(old, new, is_expected=is_expected, breaks=True):
        key = finding.key
        if finding.change is Change.NEW and key[:4] in were_lost:
            message = f"{were_lost[key[:4]]}, and is {new[key].status} now"
            findings.append(replace(finding, change=Change.MENDED, message=message))
        elif not (finding.change is Change.NEW and not was_expected(new[key])) and key[:4] not in lost:
            findings.append(finding)
    gone = {key: entry for key, entry in old.items() if key not in new}
    for key, entry in gone.items():
        if key[:4] in lost and entry.status in GREEN:
            message = f"was {entry.status}, and {lost[key[:4]]} now"
            findings.append(BaselineFinding(*key, Change.BROKE, message, entry.spec))
    findings += _changed_checks(before, after)
    unasked = sum(key[:4] not in lost and not is_expected(entry) for key, entry in gone.items())
    return tuple(sorted(findings)), unasked


def _explain_unchecked(report: Report) -> dict[tuple[str, str, str, str], str]:
    """Return why cases have no pairs that should have been checked, by case."""
    reasons = {}
    for case in report.cases:
        if not case.pairs:
            failing = next((check.message for check in case.checks), "")
            why = failing if case.error is None else f"{case.error.kind}: {case.error.message}"
            reasons[case.mode_key] = f"couldn't be checked ({case.status}{why and ', '}{why})"
    return reasons


def _changed_checks(before: Report, after: Report) -> Iterator[BaselineFinding]:
    """Yield the checks that fail now and didn't, or no longer fail."""
    earlier = {case.mode_key: _failing_checks(case) for case in before.cases if case.pairs}
    for case in after.cases:
        old, new = earlier.get(case.mode_key), _failing_checks(case)
        if old is None or not case.pairs:
            continue
        for name in {**old, **new}:
            change = None
            if name not in old:
                change = Change.BROKE, f"didn't fail, and is {new[name]} now"
            elif name not in new:
                change = Change.MENDED, f"was {old[name]}, and no longer is"
            if change is not None:
                yield BaselineFinding(*case.mode_key, f"check {name}", *change, case.file)


def _failing_checks(case: CaseResult) -> Mapping[str, str]:
    return {check.name: str(check.status) for check in case.checks if check.status in FAILING | UNDECIDED}
