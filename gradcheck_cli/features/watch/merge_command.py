"""`gradcheck merge`: merges the JSON reports of shards into the one that a single run would have given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from gradcheck_cli.cli.console import go_on_without_output, print_lines, terminal_width
from gradcheck_cli.cli.options.case_options import cache_option, default_cache
from gradcheck_cli.cli.options.configured import SharingCommand, argument, group, option, takes
from gradcheck_cli.cli.options.running_options import (
    ReportOptions,
    print_report,
    write_reports,
)
from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import CoverageStatus, GradientCoverage, Selection, Shard, WrittenGradient, tell_apart
from gradcheck_cli.results import CaseResult, Machine, Policy, Report, count_nothing_left, judge_empty_pairs

_SHOWN = 5  # cases that a message names; they fit a line


@dataclass(frozen=True)
class MergeOptions:
    """The options of `merge`."""

    files: tuple[Path, ...] = argument(
        nargs=-1, required=True, type=click.Path(path_type=Path), metavar="REPORT..."
    )
    reporting: ReportOptions = group(ReportOptions)
    cache: Path | None = cache_option()
    quiet: bool = option("-q --quiet", bool, "Print failing tables and the summary only.")


@click.command("merge", cls=SharingCommand)
@takes(MergeOptions)
@click.pass_context
def command(ctx: click.Context, /, *, options: MergeOptions) -> None:
    """Merge the JSON reports of shards (`run --shard K/N --report json=FILE`), or of runs of different specs.

    It ends with the exit code of a single run. A missing shard, or one from another selection of cases,
    doesn't count as one without findings.
    """
    # Late imports: `merge --help` shouldn't wait for them.
    from gradcheck_cli.reporting.exchange.json_report import read_report
    from gradcheck_cli.reporting.report_text import case_lines, closing_lines
    from gradcheck_cli.running.selection import write_history

    if options.reporting.reports:
        go_on_without_output()
    report_by_file = {str(file): read_report(file) for file in options.files}
    if len(report_by_file) < len(options.files):
        raise click.UsageError("a report is named twice.", ctx)
    report = merge(report_by_file)
    width, unwritten = terminal_width(), 0
    if options.reporting.form == "table":
        for case in report.cases:
            if not (options.quiet and report.is_fine(case)):
                print_lines(case_lines(case, width=width))
        print_lines(closing_lines(report, width))
    else:
        unwritten = print_report(options.reporting.form, report)
    for notice in report.notices:
        click.echo(notice, err=True)
    # The next run's shards read there how long each case took.
    write_history(options.cache or default_cache(), report)
    ctx.exit(write_reports(options.reporting, report) or unwritten)


def merge(reports: Mapping[str, Report]) -> Report:
    """Merge reports of the shards of a run, or of runs of different cases.

    Returns:
        The report, with the cases in the order of a single run. `unchecked` names missing shards, so the exit
        code is at least 3.

    Raises:
        UsageError: they don't fit together: two contain the same case, or are shards of different runs.
    """
    several = list(reports.values())
    first, policies = several[0], [report.policy for report in several]
    unchecked = [text for report in several for text in report.unchecked]
    _require_disjoint(reports)
    cases = [case for report in several for case in report.cases]
    names = tell_apart((case.op, case.file) for case in cases)
    cases = [replace(case, full_op=case.full_op or names[case.op, case.file]) for case in cases]
    cut = next((report.shard for report in several if report.shard is not None), None)
    if cut is not None:
        missing = _require_one_cut(reports, cut)
        plan = {key: position for position, key in enumerate(cut.plan)}
        cases.sort(key=lambda case: plan.get(case.key, len(plan)))
        unchecked += [
            f"shard {begin}/{cut.count} is missing: its cases weren't checked"
            if begin == end
            else f"shards {begin} to {end} of {cut.count} are missing: their cases weren't checked"
            for begin, end in missing
        ]
        absent = plan.keys() - {case.key for case in cases}
        if absent and not missing and not unchecked:
            named = ", ".join(f"{op} ({case}, {dtype})" for op, case, dtype in sorted(absent)[:_SHOWN])
            unchecked.append(f"{len(absent)} planned cases are in no shard's report: {named}")
    notices = dict.fromkeys(text for report in several for text in report.notices)
    merged = replace(
        first,
        cases=tuple(judge_empty_pairs(case, cases) for case in cases),
        duration_s=sum(report.duration_s for report in several),
        **_join_texts(several, "tensorflow_version", "gradcheck_version", "python_version"),
        machine=Machine(**_join_texts([report.machine for report in several], *vars(first.machine))),
        interrupted=any(report.interrupted for report in several),
        policy=Policy(
            any(policy.strict for policy in policies),
            any(policy.strict_precision for policy in policies),
            _largest(policy.branch_fail_under for policy in policies),
        ),
        notices=tuple(notices),
        unchecked=tuple(dict.fromkeys(unchecked)),
        baseline=tuple(sorted({finding for report in several for finding in report.baseline})),
        shard=None,
        coverage=join_coverage([report.coverage for report in several if report.coverage is not None]),
        selection=_merge_selections(several, cases),
    )
    return count_nothing_left(merged)


def _largest(shares: Iterable[float | None]) -> float | None:
    return max((share for share in shares if share is not None), default=None)


def join_coverage(parts: Sequence[GradientCoverage]) -> GradientCoverage | None:
    """Join the coverage of several parts of a run: what one part covers is covered. `None` for no parts."""
    if not parts:
        return None
    order = (CoverageStatus.COVERED, CoverageStatus.EXCUSED, CoverageStatus.MISSING)
    best: dict[tuple[str, int, str], WrittenGradient] = {}
    for gradient in (gradient for part in parts for gradient in part.gradients):
        key = (gradient.file, gradient.line, gradient.name)
        so_far = best.setdefault(key, gradient)
        better, worse = sorted((so_far, gradient), key=lambda candidate: order.index(candidate.status))
        best[key] = replace(better, cases=tuple(sorted({*better.cases, *worse.cases})))
    return replace(
        parts[0],
        packages=tuple(dict.fromkeys(name for part in parts for name in part.packages)),
        gradients=tuple(best[key] for key in sorted(best)),
        fail_under=_largest(part.fail_under for part in parts),
    )


def _merge_selections(reports: Sequence[Report], cases: Iterable[CaseResult]) -> Selection | None:
    """Merge what was requested of reports; `None` if one of them doesn't say."""
    selections = [report.selection for report in reports if report.selection is not None]
    if len(selections) < len(reports):
        return None
    paths, options, modes, left_out = (
        dict.fromkeys(item for selection in selections for item in getattr(selection, name))
        for name in ("paths", "options", "modes", "left_out")
    )
    done = {case.key for case in cases if case.pairs}
    return Selection(
        tuple(paths),
        tuple(word for word in options if not word.startswith("--shard ")),
        tuple(modes) if all(selection.modes for selection in selections) else (),
        tuple(key for key in left_out if key not in done),
    )


def _join_texts(records: Sequence[object], *names: str) -> dict[str, Any]:
    """Return what fields of several records say, each once, by the fields' names."""
    said = {name: dict.fromkeys(getattr(record, name) for record in records) for name in names}
    return {name: ", ".join(filter(None, texts)) for name, texts in said.items()}


def _require_disjoint(reports: Mapping[str, Report]) -> None:
    """Refuse two reports of the same case: it isn't clear which of them counts."""
    seen: dict[tuple[str, ...], str] = {}
    for name, report in reports.items():
        for case in report.cases:
            other = seen.setdefault((*case.mode_key, case.file), name)
            if other != name:
                op, own, dtype = case.key
                raise UsageError(
                    f"{other} and {name} both hold {op}, case {own}, {dtype}: merge joins "
                    "reports of different cases; `gradcheck diff` compares two of the same."
                )


def _require_one_cut(reports: Mapping[str, Report], cut: Shard) -> Sequence[tuple[int, int]]:
    """Refuse shards of different runs, and return which are missing: the first and the last of each gap."""
    whole = [name for name, report in reports.items() if report.shard is None]
    if whole:
        raise UsageError(f"{', '.join(whole)}: isn't a shard's report, as the others are.")
    names: dict[int, str] = {}
    for name, report in reports.items():
        shard = report.shard or cut
        if (shard.count, shard.plan) != (cut.count, cut.plan):
            raise UsageError(
                f"{next(iter(reports))} and {name} are shards of different runs: of {cut.count} with "
                f"{len(cut.plan)} cases, and of {shard.count} with {len(shard.plan)}. Each must select the "
                "same cases."
            )
        other = names.setdefault(shard.index, name)
        if other != name:
            raise UsageError(f"{other} and {name} are both shard {shard.index}/{shard.count}.")
    there = [0, *sorted(names), cut.count + 1]  # a damaged report may state any count
    return [(before + 1, after - 1) for before, after in pairwise(there) if after - before > 1]
