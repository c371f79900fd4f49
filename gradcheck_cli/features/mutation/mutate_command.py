"""`gradcheck mutate`: corrupts gradients in known ways, and says which corruptions the specs would miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from gradcheck_cli import results, visible
from gradcheck_cli.cli.console import print_lines, run_and_print, terminal_width
from gradcheck_cli.cli.options.case_options import NamedCases, seed_option
from gradcheck_cli.cli.options.configured import (
    PERCENT,
    SharingCommand,
    argument,
    default_paths,
    form_option,
    group,
    option,
    takes,
)
from gradcheck_cli.cli.options.running_options import WorkerOptions, start_workers
from gradcheck_cli.cli.options.typed_words import SpecPath
from gradcheck_cli.serial import plain, write
from gradcheck_cli.spec.words import CORRUPTIONS

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.spec.case import Case

# With their styles.
OUTCOMES = {
    results.CAUGHT: "green",
    results.LEFT_OPEN: "yellow",
    results.MISSED: "red",
    results.HIDES: "yellow",
}
UNCHECKED = 3


@dataclass(frozen=True)
class MutateOptions:
    """The options of `mutate`."""

    paths: tuple[str, ...] = argument(nargs=-1, type=SpecPath())
    kinds: tuple[str, ...] = option(
        "--kind",
        click.Choice(list(CORRUPTIONS)),
        "Corrupt gradients in this way only; repeatable. factor: by 1 %. element: one element by 1 %. small: "
        "the smallest element by what the tolerance claims to see. upstream: the upstream ignored. none: "
        "None instead. swap: another input's gradient. mean: divided by a size. axis: along another axis. "
        "row: a part of the upstream left out. branch: a mask left out. [default: all]",
        multiple=True,
    )
    seed: int | None = seed_option()
    named: NamedCases = group(NamedCases)
    fail_under: float | None = option(
        "--fail-under PERCENT",
        PERCENT,
        "Exit with 3 where a smaller share of the corruptions is called a mismatch.",
    )
    workers: WorkerOptions = group(WorkerOptions)
    form: str = form_option("json")
    verbose: bool = option("-v --verbose", bool, "Also list what is caught.")


@click.command("mutate", cls=SharingCommand)
@takes(MutateOptions)
@click.pass_context
def command(ctx: click.Context, /, *, options: MutateOptions) -> None:
    """Corrupt the gradients that the specs in PATHS describe, one way at a time, and check each again.

    A corruption that is called a mismatch is caught; one that leaves a pair undecided fails a run as well;
    one that passes is missed, because the spec's points or its tolerance don't show it. Only right gradients
    are corrupted, and only in ways that change them. What no point of a case could show is called out of
    sight and listed with its place: a side of a branch that no point takes, an axis of size one, a factor of
    ones, indices without repetition, a size that all cases share.

    \b
    Exit codes: 0 tried, 2 bad usage or a bad spec, 3 too few are caught
    (--fail-under), or a case couldn't be tried, 5 no spec matched, 130 interrupted.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late imports: `mutate --help` shouldn't wait for them.
    from gradcheck_cli.spec.load import load_cases

    paths = options.paths or default_paths(settings=ctx.obj)
    cases = options.named.choose(load_cases(paths, seed=options.seed), paths)
    cases = _add_corruptions(cases, options.kinds or tuple(CORRUPTIONS))
    workers = start_workers(ctx, options.workers)

    width = terminal_width()

    def lines_of(result: results.CaseResult) -> Sequence[Text]:
        return case_lines(result, width=width, verbose=options.verbose) if options.form == "table" else []

    report = run_and_print(workers, cases, lines_of)
    tally = Tally(report)
    if options.form == "json":
        click.echo(mutants_json(report), nl=False)
        for text in report.unchecked:
            click.echo(f"NOT CHECKED  {text}", err=True)
    else:
        from gradcheck_cli.reporting.report_text import unchecked_lines

        print_lines([*unchecked_lines(report, width), *tally_lines(report, tally, width=width)])
    if report.interrupted:
        ctx.exit(report.exit_code)
    least = options.fail_under
    too_few = least is not None and (tally.share is None or 100 * tally.share < least)
    ctx.exit(UNCHECKED if tally.untried or too_few or report.unchecked else 0)


def _add_corruptions(cases: Sequence[Case], kinds: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases with the corruptions to try on each.

    A factor that should be the size, but is a constant, shows as soon as an op has cases of several sizes, so
    it isn't tried there.
    """
    shapes_of: dict[tuple[str, str], set[tuple[tuple[int, ...], ...]]] = {}
    for case in cases:
        shapes = tuple(tensor.shape for tensor in case.tensors)
        shapes_of.setdefault((case.origin.path, case.op), set()).add(shapes)
    without_sizes = tuple(kind for kind in kinds if kind != "size")
    return tuple(
        replace(case, wanted=replace(case.wanted, corruptions=own))
        for case in cases
        for own in [without_sizes if len(shapes_of[case.origin.path, case.op]) > 1 else tuple(kinds)]
    )


class Tally:
    """How many corruptions of each kind there were, by outcome; and how many cases couldn't be tried."""

    def __init__(self, report: results.Report) -> None:
        """Count those of a report."""
        self.counts = Counter(
            (mutant.corruption, mutant.outcome) for case in report.cases for mutant in case.mutants
        )
        self.untried = sum(
            case.status is results.Status.ERROR
            or (case.status is not results.Status.SKIPPED and bool(_why_untried(case)))
            for case in report.cases
        )

    def count(self, outcome: str = "", kind: str = "") -> int:
        """Return how many had this outcome, or any; of one kind, or of all."""
        return sum(
            count
            for (own_kind, own_outcome), count in self.counts.items()
            if kind in ("", own_kind) and outcome in ("", own_outcome)
        )

    @property
    def share(self) -> float | None:
        """The share that was called a mismatch; `None` if none was tried."""
        return self.count(results.CAUGHT) / self.count() if self.counts else None


def case_lines(case: results.CaseResult, *, width: int, verbose: bool = False) -> list[Text]:
    """Lay out the missed corruptions of one case, or all of them; nothing if there is nothing to report."""
    # Late imports: `mutate --help` shouldn't wait for them.
    from rich.text import Text

    from gradcheck_cli.reporting.terminal import layout

    untried = _why_untried(case)
    lines = layout.wrap(untried, width, 2, style="yellow") if untried else []
    for mutant in case.mutants:
        if verbose or mutant.outcome != results.CAUGHT:
            message = f"{mutant.pair}  {mutant.corruption}: {mutant.outcome}{_why(mutant)}"
            lines += layout.wrap(message, width, 2, hanging=4, style=OUTCOMES[mutant.outcome])
    name = f"{case.file} · {case.op} · {case.dtype} · {case.mode}"
    name += "" if case.case == "default" else f" · case {case.case}"
    return [Text(layout.clean(name), style="bold"), *lines] if lines else []


def _why_untried(case: results.CaseResult) -> str:
    """Say why a case, or one of its pairs, wasn't tried; empty if everything was."""
    if case.error is not None:
        return f"not tried: {case.error.kind}: {case.error.message}"
    if case.status is results.Status.SKIPPED and not case.pairs:
        return f"not tried: {next((check.message for check in case.checks), 'skipped')}"
    open_pairs = (pair for pair in case.pairs if pair.status in results.FAILING | results.UNDECIDED)
    wrong = [f"{pair.label} is {pair.status}" for pair in open_pairs]
    wrong += [
        f"check {check.name} is {check.status}" for check in case.checks if check.status in results.FAILING
    ]
    told = f"not tried: {', '.join(wrong)} before anything is corrupted; correct that first"
    return told if wrong else ""


def _why(mutant: results.Mutant) -> str:
    reasons = [mutant.message] if mutant.message and mutant.outcome != results.CAUGHT else []
    if mutant.outcome == results.MISSED:
        reasons.append(f"off by {mutant.change:.1e} where {mutant.allowed:.1e} is allowed")
        if mutant.kinks:
            reasons.append(f"{visible.count(mutant.kinks, 'element')} between one-sided slopes")
    return f" ({'; '.join(reasons)})" if reasons else ""


def tally_lines(report: results.Report, tally: Tally, *, width: int) -> list[Text]:
    """Lay out the counts of each kind, and of all."""
    from rich.text import Text

    from gradcheck_cli.reporting.terminal import layout

    outcomes = [outcome for outcome in OUTCOMES if outcome != results.HIDES or tally.count(outcome)]
    rows: list[tuple[str, ...]] = [("corruption", "tried", *outcomes)]
    for kind, text in CORRUPTIONS.items():
        if every := tally.count(kind=kind):
            numbers = [f"{tally.count(outcome, kind):,}" for outcome in outcomes]
            rows.append((f"{kind}: {text}", f"{every - tally.count(results.HIDES, kind):,}", *numbers))
    aligned = layout.align(rows, left=1) if tally.counts else []
    lines = [Text(line, style="" if index else "bold") for index, line in enumerate(aligned)]
    # Rounded down: 99.97 % isn't all.
    share = "" if tally.share is None else f" ({int(tally.share * 1000) / 10:.1f} %)"
    caught = f"{tally.count(results.CAUGHT):,} of {visible.count(tally.count(), 'corruption')}"
    parts = [f"{visible.count(len(report.cases), 'case')} · {caught} called a mismatch{share}"]
    parts += [f"{count:,} {outcome}" for outcome in list(OUTCOMES)[1:] if (count := tally.count(outcome))]
    parts += [f"{visible.count(tally.untried, 'case')} not tried"] if tally.untried else []
    summary = Text(", ".join(parts), style="bold")
    return [*lines, layout.with_right(summary, f"{report.duration_s:.1f} s", width=width)]


def mutants_json(report: results.Report) -> str:
    """Render the outcomes as JSON text that ends in a newline."""
    tally = Tally(report)
    facts = ("gradcheck_version", "tensorflow_version", "python_version", "seed", "duration_s")
    about = [
        ({name: getattr(case, name) for name in ("op", "case", "dtype", "spec", "mode")}, case)
        for case in report.cases
    ]
    content = {
        "schema_version": 1,
        **{name: getattr(report, name) for name in facts},
        "summary": {
            "cases": len(report.cases),
            "untried": tally.untried,
            "corruptions": tally.count(),
            **{outcome: tally.count(outcome) for outcome in OUTCOMES},
        },
        "kinds": {
            kind: {outcome: tally.count(outcome, kind) for outcome in OUTCOMES}
            for kind in CORRUPTIONS
            if tally.count(kind=kind)
        },
        "untried": [own | {"reason": reason} for own, case in about if (reason := _why_untried(case))],
        "mutants": [own | plain(mutant) for own, case in about for mutant in case.mutants],
    }
    return write(content)
