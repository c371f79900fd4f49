"""The outcome of gradients that were corrupted on purpose, as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.text import Text

from gradcheck_cli import results
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.serial import plain
from gradcheck_cli.spec.words import CORRUPTIONS

OUTCOMES = (results.CAUGHT, results.LEFT_OPEN, results.MISSED, results.HIDES)
STYLES = {
    results.CAUGHT: "green",
    results.LEFT_OPEN: "yellow",
    results.MISSED: "red",
    results.HIDES: "yellow",
}
FIELDS = (
    *("op", "case", "spec", "mode", "dtype", "pair", "order"),
    *("corruption", "outcome", "change", "allowed"),
)


@dataclass(frozen=True)
class Tally:
    """How many corruptions of each kind there were, by outcome; and the cases that couldn't be tried."""

    by_kind: Mapping[str, Mapping[str, int]]
    untried: int

    @classmethod
    def of(cls, report: results.Report) -> Tally:
        """Count those of a report."""
        by_kind: dict[str, Counter[str]] = {}
        for _, mutant in _mutants(report):
            by_kind.setdefault(mutant.corruption, Counter())[mutant.outcome] += 1
        untried = [
            case
            for case in report.cases
            if case.status is results.Status.ERROR
            or (case.status is not results.Status.SKIPPED and _why_untried(case))
        ]
        return cls(by_kind, len(untried))

    @property
    def total(self) -> int:
        """How many corruptions there were, including those that no point could show."""
        return sum(sum(counts.values()) for counts in self.by_kind.values())

    def count(self, outcome: str) -> int:
        """Return how many of all kinds had this outcome."""
        return sum(counts.get(outcome, 0) for counts in self.by_kind.values())

    @property
    def share(self) -> float | None:
        """The share that was called a mismatch; `None` if none was tried."""
        return self.count(results.CAUGHT) / self.total if self.total else None


def _mutants(report: results.Report) -> Iterator[tuple[results.CaseResult, results.Mutant]]:
    for case in report.cases:
        for mutant in case.mutants:
            yield case, mutant


def case_lines(case: results.CaseResult, *, width: int, verbose: bool = False) -> list[Text]:
    """Lay out the missed corruptions of one case, or all of them; nothing if there is nothing to report."""
    shown = [mutant for mutant in case.mutants if verbose or mutant.outcome != results.CAUGHT]
    untried = _why_untried(case)
    if not shown and not untried:
        return []
    name = f"{case.spec.rpartition(':')[0]} · {case.op} · {case.dtype} · {case.mode}"
    lines = [
        Text(layout.clean(name if case.case == "default" else f"{name} · case {case.case}"), style="bold")
    ]
    if untried:
        lines += layout.wrap(untried, width=width, indent=2, style="yellow")
    for mutant in shown:
        message = f"{mutant.pair}  {mutant.corruption}: {mutant.outcome}{_why(mutant)}"
        lines += layout.wrap(message, width=width, indent=2, hanging=4, style=STYLES[mutant.outcome])
    return lines


def _why_untried(case: results.CaseResult) -> str:
    """Say why a case, or one of its pairs, wasn't tried; empty if everything was."""
    if case.error is not None:
        return f"not tried: {case.error.kind}: {case.error.message}"
    if case.status is results.Status.SKIPPED and not case.pairs:
        return f"not tried: {next((check.message for check in case.checks), 'skipped')}"
    wrong = [
        f"{pair.label} is {pair.status}"
        for pair in case.pairs
        if pair.status in results.FAILING | results.UNDECIDED
    ]
    wrong += [
        f"check {check.name} is {check.status}" for check in case.checks if check.status in results.FAILING
    ]
    if wrong:
        return f"not tried: {', '.join(wrong)} before anything is corrupted; correct that first"
    return ""


def _why(mutant: results.Mutant) -> str:
    if mutant.outcome == results.CAUGHT:
        return ""
    reasons = [mutant.message] if mutant.message else []
    if mutant.outcome == results.MISSED:
        reasons.append(f"off by {mutant.change:.1e} where {mutant.allowed:.1e} is allowed")
        if mutant.kinks:
            reasons.append(f"{layout.count(mutant.kinks, 'element')} between one-sided slopes")
    return f" ({'; '.join(reasons)})" if reasons else ""


def tally_lines(report: results.Report, tally: Tally, *, width: int) -> list[Text]:
    """Lay out the counts of each kind, and of all."""
    outcomes = OUTCOMES if tally.count(results.HIDES) else OUTCOMES[:-1]
    rows: list[tuple[str, ...]] = [("corruption", "tried", *outcomes)]
    kinds = [kind for kind in CORRUPTIONS if kind in tally.by_kind]
    for kind in kinds:
        counts = tally.by_kind[kind]
        numbers = [f"{counts.get(outcome, 0):,}" for outcome in outcomes]
        tried = sum(counts.values()) - counts.get(results.HIDES, 0)
        rows.append((f"{kind}: {CORRUPTIONS[kind]}", f"{tried:,}", *numbers))
    widths = [max(layout.cells(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for index, row in enumerate(rows if kinds else []):
        cells = [layout.pad(row[0], widths[0])]
        cells += [cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True)]
        lines.append(Text("  ".join(cells), style="" if index else "bold"))
    # Rounded down: 99.97 % isn't all.
    share = "" if tally.share is None else f" ({int(tally.share * 1000) / 10:.1f} %)"
    every = layout.count(tally.total, "corruption")
    share_text = f"{tally.count(results.CAUGHT):,} of {every} called a mismatch{share}"
    parts = [f"{layout.count(len(report.cases), 'case')} · {share_text}"]
    parts += [f"{tally.count(outcome):,} {outcome}" for outcome in OUTCOMES[1:] if tally.count(outcome)]
    if tally.untried:
        parts.append(f"{layout.count(tally.untried, 'case')} not tried")
    summary = Text(", ".join(parts), style="bold")
    return [*lines, layout.with_right(summary, f"{report.duration_s:.1f} s", width=width)]


def mutants_json(report: results.Report) -> str:
    """Render the outcomes as JSON text that ends in a newline."""
    tally = Tally.of(report)
    content = {
        "schema_version": 1,
        "gradcheck_version": report.gradcheck_version,
        "tensorflow_version": report.tensorflow_version,
        "python_version": report.python_version,
        "seed": report.seed,
        "duration_s": plain(report.duration_s),
        "summary": {
            "cases": len(report.cases),
            "untried": tally.untried,
            "corruptions": tally.total,
            **{outcome: tally.count(outcome) for outcome in OUTCOMES},
        },
        "kinds": {
            kind: {outcome: counts.get(outcome, 0) for outcome in OUTCOMES}
            for kind, counts in tally.by_kind.items()
        },
        "untried": [
            {"op": case.op, "case": case.case, "dtype": case.dtype, "spec": case.spec, "reason": reason}
            for case in report.cases
            if (reason := _why_untried(case))
        ],
        "mutants": [
            {
                **dict(zip(FIELDS, _row(case, mutant), strict=True)),
                "kinks": mutant.kinks,
                "message": mutant.message,
            }
            for case, mutant in _mutants(report)
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def mutants_csv(report: results.Report) -> str:
    """Render the outcomes as CSV with a heading."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows(_row(case, mutant) for case, mutant in _mutants(report))
    return stream.getvalue()


def _row(case: results.CaseResult, mutant: results.Mutant) -> list[object]:
    cells_of_case = [case.op, case.case, case.spec, case.mode, case.dtype, mutant.pair, mutant.order]
    return [*cells_of_case, mutant.corruption, mutant.outcome, plain(mutant.change), plain(mutant.allowed)]
