"""A report as text for people; computes nothing.

A case's table is printed as soon as it ends, so nothing in it may depend on later cases. The lines after all
tables say what was slow, what has changed, what wasn't checked; the summary is the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from gradcheck_cli import hooks, results, visible
from gradcheck_cli.clock import Work
from gradcheck_cli.gate import Change, side_counts
from gradcheck_cli.reporting.codes import code_for, code_of
from gradcheck_cli.reporting.exchange.findings import (
    BAD,
    Outcome,
    findings_of,
    group_alike,
    inputs_of,
    placed_name_of,
    search_summary,
)
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import pair_lines, verdict_text

SUMMARY_ORDER = (
    *("passed", "expected_mismatch", "mismatched", "unexpected_pass", "inconclusive", "error"),
    *("known", "ignored", "skipped"),
)
_FEW = 3  # sides and warnings that a table names; `--verbose` and the reports name all
_MOST_FAILED = 100  # a terminal's memory; reports have all


def case_lines(case: results.CaseResult, *, width: int = 80, verbose: bool = False) -> list[Text]:
    """Lay out one case: a heading, a row per pair, and notes on each.

    Args:
        width: columns there are; a label or a path wider than that isn't cut.
        verbose: also show passed checks, methods, counts of evaluations and uncertainties, and the output of
            cases that are all right.
    """
    lines = _heading(case, min(width, layout.MAX_WIDTH))
    if case.error is not None:
        lines += _error(case.error, width)
    # Before the pairs: a pair's own numbers may be right, and its "pass" isn't the answer then.
    failed = [check for check in case.checks if check.status is not results.Status.PASSED]
    lines += [line for check in failed for line in _check(check, width)]
    if case.pairs:
        lines += [
            *pair_lines(case, width, verbose=verbose),
            *_lines_beside_pairs(case, width, verbose=verbose),
        ]
    if verbose:
        lines += _lines_beside_checks(case, width)
    for check in case.checks:
        if check.status is results.Status.PASSED and verbose and check.message:
            lines += _check(check, width)
    lines += _warnings(case.warnings, width, verbose=verbose)
    if case.how.reason:
        lines += layout.wrap(f"reason: {case.how.reason}", width)
    if case.ran.output is not None and (verbose or case.status not in results.GREEN):
        lines += _output(case.ran.output)
    if case.status not in results.GREEN and case.ran.reproduce:
        lines += _command_lines(case.ran.reproduce, width)
    return lines


def _warnings(warnings: Sequence[str], width: int, *, verbose: bool) -> list[Text]:
    shown = warnings[: None if verbose else _FEW]
    messages = [f"warning {code_of('precision').number}: {warning}" for warning in shown]
    if left := len(warnings) - len(shown):
        messages.append(f"and {left:,} more such warnings: -v shows all")
    return [line for message in messages for line in layout.wrap(message, width, style="yellow")]


def _command_lines(command: str, width: int) -> list[Text]:
    """Lay out how to run a case again, so that a shell takes what is copied as one line."""
    text = f"reproduce: {layout.clean(command)}"
    if "'" in text:  # a line break would become part of what is quoted
        return [Text(f"    {text}")]
    *lines, last = layout.wrap(text, width - 2)
    return [*(line + Text(" \\") for line in lines), last]


def summary_lines(report: results.Report, *, width: int = 80, verbose: bool = False) -> list[Text]:
    """Lay out the run's last line: how many ops, cases and pairs there were, and their outcome.

    It is one line if that fits. With `verbose`, a line before it says how many evaluations an input element
    cost.
    """
    width = min(width, layout.MAX_WIDTH)
    summary = report.summary
    parts = [
        visible.count(summary["specs"], "op"),
        visible.count(summary["cases"], "case"),
        visible.count(summary["pairs"], "pair"),
    ]
    if report.interrupted:
        parts.insert(0, "interrupted")
    outcomes = [f"{summary[word]:,} {word.replace('_', ' ')}" for word in SUMMARY_ORDER if summary[word]]
    if summary["failed_checks"]:
        outcomes.append(visible.count(summary["failed_checks"], "failed check"))
    duration = f"{report.duration_s:.1f} s"
    texts = [" · ".join(parts)]
    if outcomes:
        texts[0] += ":"
        room = width - len(duration) - 2
        texts = layout.pack([texts[0], ", ".join(outcomes)], separator=" ", width=room, indent=2)
    style = "bold red" if report.exit_code else "bold yellow" if left_out(report) else "bold green"
    lines = [Text(text, style=style) for text in texts]
    lines[-1] = layout.with_right(lines[-1], duration, width=width)
    if verbose and report.evaluations_per_element:
        cost = f"{report.evaluations_per_element:.2f} evaluations of the forward per input element"
        lines.insert(0, Text(cost, style="dim"))
    return lines


def all_right(report: results.Report) -> str:
    """Say of a run that ends with 0 that all is right, and what of it was left out."""
    but = left_out(report)
    return f"all right but {' and '.join(but)}" if but else "all right"


def left_out(report: results.Report) -> list[str]:
    """Say what isn't right, and doesn't fail the run."""
    known_count = sum(finding.change is Change.KNOWN for finding in report.baseline)
    ignored = report.summary["ignored"]
    said = {
        f"{visible.count(known_count, 'known fault')}": known_count,
        f"{visible.count(ignored, 'pair')} ignored": ignored,
    }
    return [text for text, count in said.items() if count]


def render_report(report: results.Report, *, width: int = 80, verbose: bool = False) -> str:
    """Render a whole report as plain text, for notebooks and tests."""
    lines = [line for case in report.cases for line in case_lines(case, width=width, verbose=verbose)]
    return layout.plain([*lines, *summary_lines(report, width=width, verbose=verbose)])


def _heading(case: results.CaseResult, width: int) -> list[Text]:
    dtype = case.dtype
    if case.how.numeric_dtype and case.how.numeric_dtype != dtype:
        dtype += f" (numeric: {case.how.numeric_dtype})"
    parts = [case.file, case.op, dtype, case.mode]
    if case.case != "default":
        parts.append(f"case {case.case}")
    duration = f"{case.ran.duration_s:.2f} s"
    room = width - len(duration) - 2
    parts = [layout.clean(part) for part in parts]
    packed = layout.pack(parts, separator=" · ", width=room, indent=4)
    if len(packed) > 1:  # the description of the case on one line, and how it was run on the next
        rest = layout.pack(["    " + parts[2], *parts[3:]], separator=" · ", width=room, indent=4)
        packed = layout.pack(parts[:2], separator=" · ", width=width, indent=4) + rest
    lines = [Text(line, style="bold") for line in packed]
    lines[-1] = layout.with_right(lines[-1], duration, width=width)
    return lines


def _lines_beside_pairs(case: results.CaseResult, width: int, *, verbose: bool) -> list[Text]:
    """Name the outputs without a pair, what was held while the inputs moved, and sides that no point took."""
    lines = []
    if case.how.not_differentiated:
        named = ", ".join(f"{left.output} ({left.dtype})" for left in case.how.not_differentiated)
        lines += layout.wrap(f"not differentiated: {named}", width, 2, style="dim")
    if case.how.held:
        lines += layout.wrap(f"held: {', '.join(case.how.held)}", width, 2)
    branches = case.seen.branches
    if any(branch.unseen for branch in branches) or (verbose and branches) or case.seen.sides_unknown:
        lines += layout.wrap(branch_line(case, most=None if verbose else _FEW), width, 2)
    if case.search is not None:
        lines += layout.wrap(search_summary(case.search), width, 2)
        inputs = [] if case.search.found is None else inputs_of(case.search.found)
        lines += [Text(f"    {layout.clean(line)}") for line in inputs]
    return lines


def _lines_beside_checks(case: results.CaseResult, width: int) -> list[Text]:
    """Name the checks that passed without a message, and the cost of the case."""
    quiet = [
        check.name for check in case.checks if check.status is results.Status.PASSED and not check.message
    ]
    messages = [f"checks passed: {', '.join(quiet)}"] if quiet else []
    messages += [f"work: {_work(case.ran.work)}"] if case.ran.work.calls else []
    messages += [parts] if (parts := _parts(case)) else []
    return [line for message in messages for line in layout.wrap(message, width, 2, style="dim")]


def _work(work: Work) -> str:
    calls, points = visible.count(work.calls, "call"), visible.count(work.points, "point")
    return f"{visible.count(work.traces, 'trace')}, {calls} for {points}"


def _parts(case: results.CaseResult) -> str:
    """Say what part of a case's processor time each part of its check took, the longest first."""
    parts, whole = case.ran.parts_s, sum(case.ran.parts_s.values())
    longest = sorted(parts, key=lambda part: -parts[part])
    shares = [f"{part} {parts[part] / whole:.0%}" for part in longest if parts[part] >= 0.01 * whole > 0]
    return f"processor time {whole:.2f} s: {', '.join(shares)}" if shares else ""


def branch_line(case: results.CaseResult, *, most: int | None = None) -> str:
    """Say how many sides of a case's branches were seen, and which never were: `most` of them, or all."""
    seen_count, side_count = side_counts(case.seen.branches)
    never = [branch.label(side) for branch in case.seen.branches for side in branch.unseen]
    shown = never[:most]
    if not side_count:
        return f"branches {case.seen.sides_unknown}"
    text = f"branches {seen_count} of {side_count}"
    if case.seen.sides_unknown:
        text += f", {case.seen.sides_unknown}"
    if case.how.chosen_points:
        text += f", with {visible.count(case.how.chosen_points, 'point')} judged beside the samples"
    text += f" · never: {', '.join(shown)}" if shown else ""
    text += f" and {len(never) - len(shown)} more" if len(never) > len(shown) else ""
    excused = [
        f"{branch.label(side)}: {reason}" for branch in case.seen.branches for side, reason in branch.excused
    ]
    return f"{text} · {len(excused)} excused: {', '.join(excused[:most])}" if excused else text


def _check(check: results.CheckResult, width: int) -> list[Text]:
    lines = [Text(f"  check {layout.clean(check.name)}  ") + verdict_text(check.status, code_for(check))]
    if check.message:
        lines += layout.wrap(check.message, width)
    return lines


def _output(printed: results.Printed) -> list[Text]:
    """Lay out the user's output: its last lines, and the file with all of it."""
    where = f" last (all of it: {layout.clean(printed.file)})" if printed.file else ""
    # Never wrapped, like the frames: its layout is the author's.
    lines = [Text(f"    printed{where}:")]
    for line in printed.lines:
        lines += [Text(f"      {piece}", style="dim") for piece in layout.lines_of(line)]
    return lines


def _error(error: results.CaseError, width: int) -> list[Text]:
    first, *rest = error.message.splitlines() or [""]
    verdict = verdict_text(results.Status.ERROR, code_for(error))
    lines = layout.wrap(f"{verdict.plain}  {error.kind}: {first}", width, 2)
    # A wrapped line has no style of its own, so that of the verdict is added again.
    lines[0] = Text("  ") + verdict + Text(lines[0].plain[2 + len(verdict.plain) :])
    for line in rest:
        lines += layout.wrap(line, width)
    for frame in error.traceback:
        lines += [Text(f"      {line}", style="dim") for line in layout.lines_of(frame)]
    return lines


def failed_lines(report: results.Report, width: int) -> list[Text]:
    """List what fails the run, one line each, and where to read on: the tables may have scrolled away."""
    failed = [finding for finding in findings_of(report) if finding.outcome in BAD]
    # Changes since the baseline have a list of their own, and what a check says of a pair, the pair says.
    of_pairs = {(id(finding.case), finding.code) for finding in failed if finding.pair is not None}
    failed = [
        finding
        for finding in failed
        if finding.case is not None
        and not finding.rule.startswith("baseline/")
        and (finding.pair is not None or (id(finding.case), finding.code) not in of_pairs)
    ]
    if not failed:
        return []
    lines = [Text("failed:", style="bold")]
    code_width = 2 + max(len(str(finding.code or "")) for finding in failed)
    by_op = groupby(failed, lambda finding: finding.case and finding.case.key[0])
    groups = [alike for _, of_op in by_op for alike in group_alike(list(of_op))]
    for finding, *others in groups[:_MOST_FAILED]:
        style = "bold red" if finding.outcome is Outcome.FAILED else "bold yellow"
        more = f" and {len(others):,} more" if others else ""
        where = "" if finding.case is None else placed_name_of(finding.case)
        line = Text("  ") + Text(str(finding.code or "").ljust(code_width), style=style)
        line += Text(layout.clean(f"{where} · {finding.name}{more}"))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    if len(groups) > _MOST_FAILED:
        lines.append(Text(f"  ... and {len(groups) - _MOST_FAILED:,} more"))
    first = next((finding.code for finding in failed if finding.code is not None), None)
    if first is not None:
        lines.append(
            Text(f"  `gradcheck explain {first.number}` says what that means, and what to do", style="dim")
        )
    return lines


def duration_lines(report: results.Report, count: int, width: int) -> list[Text]:
    """Lay out the slowest cases, the slowest first."""
    if not count or not report.cases:
        return []
    slowest = sorted(report.cases, key=lambda case: -case.ran.duration_s)[:count]
    lines = [Text(f"slowest {visible.count(len(slowest), 'case')}:")]
    for case in slowest:
        lines.append(Text(f"  {case.ran.duration_s:8.2f} s  {layout.clean(placed_name_of(case))}"))
        lines += layout.wrap(parts, width, 14, style="dim") if (parts := _parts(case)) else []
    return lines


def unchecked_lines(report: results.Report, width: int) -> list[Text]:
    """Lay out what should have been checked but wasn't."""
    word = f"NOT CHECKED {code_of('unchecked').number}"
    return [
        line
        for text in report.unchecked
        for line in layout.wrap(f"{word}  {text}", width, 0, style="bold red")
    ]


def closing_lines(
    report: results.Report, width: int, *, verbose: bool = False, durations: int = 0
) -> list[Text]:
    """Lay out the end of a table: what was slow, what features add, what wasn't checked, and the summary."""
    is_covered = report.coverage is not None or report.policy.branch_fail_under is not None
    features = hooks.ask_each("closing_lines", report, width) if is_covered or report.baseline else ()
    return [
        *duration_lines(report, durations, width),
        *(line for lines in features for line in lines),
        *unchecked_lines(report, width),
        *summary_lines(report, width=width, verbose=verbose),
    ]
