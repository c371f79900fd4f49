"""Two reports as one HTML page, pair by pair, with what has changed."""

from __future__ import annotations

from collections.abc import Sequence

from gradcheck_cli.features.page.html.page import counts_of, render, words_of
from gradcheck_cli.gate import BaselineFinding
from gradcheck_cli.reporting.exchange.findings import join_name
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import named_numbers
from gradcheck_cli.results import PairResult, Report

Side = tuple[str, Report]
Key = tuple[str, str, str, str, str]  # op, case, dtype, mode, pair

COLUMNS = (
    ("op", "text"),
    ("pair", "text"),
    ("change", "text"),
    ("old", "text"),
    ("old ratio", "number"),
    ("new", "text"),
    ("new ratio", "number"),
    ("what", "text"),
)


def to_html(old: Side, new: Side, findings: Sequence[BaselineFinding]) -> str:
    """Render two reports, each with the name of its file, side by side, with what has changed."""
    changes: dict[Key, BaselineFinding] = {}
    # Of several changes of a pair, a failure is shown.
    for finding in sorted(findings, key=lambda finding: not finding.is_failure):
        changes.setdefault((finding.op, finding.case, finding.dtype, finding.mode, finding.pair), finding)
    before, after = _pairs(old[1]), _pairs(new[1])
    rows = [
        _row(key, before.get(key), after.get(key), changes.get(key))
        for key in sorted({*before, *after, *changes})
    ]
    rows.sort(key=lambda row: (not row["is_failure"], not row["change"]))
    failed = sum(finding.is_failure for finding in findings)
    verdict = f"{layout.count(failed, 'change')} for the worse" if failed else "nothing is worse"
    sides = [{"name": name, "facts": report.facts} for name, report in (old, new)]
    names = list(dict.fromkeys(name for side in sides for name in side["facts"]))
    for side in sides:
        side["facts"] = {name: side["facts"].get(name, "") for name in names}  # type: ignore[attr-defined]
    return render(
        "diff.html",
        title=f"gradcheck diff: {verdict}",
        verdict=verdict,
        failed=failed,
        counts=f"old: {counts_of(old[1])}; new: {counts_of(new[1])}",
        sides=sides,
        side_names=names,
        rows=rows,
        columns=COLUMNS,
        statuses=sorted({str(row["change"] or "same") for row in rows}),
        footer=f"gradcheck {new[1].gradcheck_version}",
    )


def _pairs(report: Report) -> dict[Key, PairResult]:
    return {
        (case.op, case.case, case.dtype, case.mode, pair.label): pair
        for case in report.cases
        for pair in case.pairs
    }


def _row(
    key: Key, before: PairResult | None, after: PairResult | None, change: BaselineFinding | None
) -> dict[str, object]:
    return {
        "op": join_name(*key[:4]),
        "pair": key[4],
        "change": "" if change is None else str(change.change).replace("_", " "),
        "is_failure": change is not None and change.is_failure,
        "message": "" if change is None else change.message,
        "sides": [_side(before), _side(after)],
    }


def _side(pair: PairResult | None) -> dict[str, str] | None:
    if pair is None:
        return None
    ratio = named_numbers(pair)["ratio"] if pair.connected and pair.numbers.elements else "-"
    return {"status": str(pair.status), "word": words_of(pair.status), "ratio": ratio}
