"""A report as one HTML page: verdict, a table of pairs, and pictures of what isn't a plain pass."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from gradcheck_cli import optional, visible
from gradcheck_cli.errors import UsageError
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.reporting.codes import code_for
from gradcheck_cli.reporting.exchange.findings import (
    BAD,
    SPEC_COLUMNS,
    Finding,
    Outcome,
    counterexample_lines,
    findings_of,
    group_alike,
    name_of,
    pair_lines,
    path_from_root,
    sort_by_gravity,
    split_place,
    summarize_specs,
)
from gradcheck_cli.reporting.exchange.templates import templates
from gradcheck_cli.reporting.report_text import all_right, branch_line, left_out, summary_lines
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import describe_rules, is_plain, number_cells
from gradcheck_cli.results import CaseResult, Figure, HeatMap, PairResult, Report, Status

if TYPE_CHECKING:
    from gradcheck_cli.features.page.pictures import Picture

# Their classes: `rank` sorts by gravity, and a small screen has no room for `more`.
COLUMNS = (
    ("status", "rank"),
    ("op", ""),
    ("pair", ""),
    ("error", "number"),
    ("ratio", "number"),
    ("allowed", "number more"),
    ("code", "more"),
    ("seconds", "number more"),
)
# How pictures are asked for: the module that draws them, what it is for, and the package that it needs.
PICTURES = ("gradcheck_cli.features.page.pictures", "drawing", "matplotlib")
# Each takes a fifth of a second to draw and 80 KB, and nobody looks at more before correcting the first.
MOST_DRAWN = 24
_MOST_WRONG = 8
_MOST_DETAILS = 1000
_BLAMED = re.compile(r"blame: op .* gradient \S+ at (.+?:\d+)")  # and the place of its gradient
_BEFORE, _AFTER = 2, 20  # lines of source around the gradient's first
_SOURCE_LIMIT = 2 * MIB


def to_html(report: Report, root: Path) -> str:
    """Render a report as one HTML page that fetches nothing."""
    findings = findings_of(report)
    anchors = {id(finding): f"f{index}" for index, finding in enumerate(findings)}
    gravest_first = sort_by_gravity(sorted(findings, key=_ratio, reverse=True))
    detailed = [finding for finding in gravest_first if _needs_details(finding)]
    draw, lacking = _load_drawing(detailed)
    details = [
        _detail(finding, anchors[id(finding)], root, draw if lacking or index < MOST_DRAWN else None)
        for index, finding in enumerate(detailed[:_MOST_DETAILS])
    ]
    others = group_alike(
        [
            finding
            for finding in findings
            if finding.pair is None and (finding.outcome is not Outcome.PASSED or finding.text)
        ]
    )
    # Where each row leads: to a pair's details if they are shown, or to the text that others share.
    places = {id(finding): anchors[id(alike[0])] for alike in others for finding in alike}
    places |= {id(finding): anchors[id(finding)] for finding in detailed[:_MOST_DETAILS]}
    # The gravest come first: of thousands, a page shows the first few hundred until all are requested.
    rows = [
        (finding, finding.pair or finding.case, places.get(id(finding), ""))
        for finding in gravest_first
        # An error says why a case has no pairs.
        if finding.case is not None and (finding.pair is not None or finding.rule.startswith("error/"))
    ]
    first = next((finding for finding in sort_by_gravity(findings) if finding.outcome in BAD), None)
    return render(
        "page.html",
        title=f"gradcheck: {_verdict(report)}",
        verdict=_verdict(report),
        tone="bad" if report.exit_code else "partly" if left_out(report) else "good",
        # Ops, cases, pairs, and their outcomes, as in the last line of a table.
        counts=" ".join(line.plain.strip() for line in summary_lines(report, width=layout.MAX_WIDTH)).rsplit(
            "  ", 1
        )[0],
        versions=", ".join(f"{name} {value}" for name, value in report.facts.items()),
        first=first,
        first_anchor=places.get(id(first), ""),
        others=[(alike, places[id(alike[0])]) for alike in others],
        relative=partial(path_from_root, root=root),
        rows=rows,
        columns=COLUMNS,
        statuses=dict.fromkeys(judged.status for _, judged, _ in rows),
        number_cells=number_cells,
        specs=summarize_specs(report, findings),
        spec_columns=SPEC_COLUMNS,
        details=details,
        lacking=lacking,
        footer=f"Exit code {report.exit_code}, after {report.duration_s:.1f} s.",
    )


def render(template: str, **context: Any) -> str:  # noqa: ANN401 (whatever a template names)
    """Render a template, with the style and the script that every page contains."""
    frame = {"style": Markup(_asset("style.css")), "script": Markup(_asset("page.js"))}  # noqa: S704 (our own)
    environment = templates("gradcheck_cli.features.page", _clean_text)
    environment.filters["clean"] = _clean_text  # before other filters; `finalize` comes after them
    return environment.get_template(template).render(**frame, **context)


def _clean_text(value: object) -> object:
    """Return text for a page; control characters are spelt out, since browsers show none."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "\n".join(layout.lines_of(value))


def _asset(name: str) -> str:
    folder = resources.files("gradcheck_cli.features.page").joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


def _needs_details(finding: Finding) -> bool:
    """Whether there is something to see: neither a plain pass nor something that wasn't checked."""
    pair = finding.pair
    if pair is None or pair.status is Status.SKIPPED:
        return False
    return (
        pair.status is not Status.PASSED
        or pair.figure is not None
        or bool(pair.numbers.kinks or pair.judged_by.not_float64)
        or not is_plain(pair)
    )


def _ratio(finding: Finding) -> float:
    """Return how far a finding is off; an error, or a check that fails, has no numbers and comes first."""
    ratio = None if finding.pair is None else finding.pair.ratio
    return math.inf if ratio is None or math.isnan(ratio) else ratio


def _verdict(report: Report) -> str:
    """Say briefly how the run ended: everything that is wrong, or wasn't decided."""
    summary = report.summary
    if report.interrupted:
        return "interrupted"
    if not report.exit_code:
        return all_right(report)
    wrong = summary["mismatched"] + summary["unexpected_pass"]
    worse = sum(finding.is_failure for finding in report.baseline)
    verb = "is" if wrong == 1 else "are"
    counted = (
        (wrong, f"{wrong:,} of {visible.count(summary['pairs'], 'pair')} {verb} wrong"),
        (summary["error"], visible.count(summary["error"], "error")),
        (summary["failed_checks"], visible.count(summary["failed_checks"], "failed check")),
        (summary["inconclusive"], f"{summary['inconclusive']:,} undecided"),
        (worse, f"{visible.count(worse, 'change')} for the worse since the baseline"),
    )
    headline = ", ".join(text for count, text in counted if count)
    return headline or ("something could not be decided" if report.exit_code != 1 else "too few digits")


_Draw = Callable[..., Sequence["Picture"]]  # draws the contents of a figure, as `pictures_of` does


def _load_drawing(detailed: Sequence[Finding]) -> tuple[_Draw, str]:
    """Return what draws figures; without matplotlib it draws nothing, and the text says what brings it."""
    lacking = ""
    if any(finding.pair is not None and finding.pair.figure is not None for finding in detailed):
        try:
            return optional.load(*PICTURES).pictures_of, ""
        except UsageError as error:
            lacking = f"No pictures: {error}"
    return lambda *_, **__: (), lacking


def _detail(finding: Finding, anchor: str, root: Path, draw: _Draw | None) -> dict[str, Any]:
    """Return what a page shows about one pair."""
    case, pair = cast("CaseResult", finding.case), cast("PairResult", finding.pair)
    code, figure = code_for(pair), pair.figure
    rules = "" if is_plain(pair) else describe_rules(pair)
    pictures, undrawn = _pictures(pair, figure, case, draw)
    # TensorFlow's own gradients can't be read from here.
    blamed = [match[1] for line in pair.cause.diagnosis if (match := _BLAMED.match(line))]
    sources = [*blamed, case.seen.source]
    return {
        "anchor": anchor,
        "case": case,
        "pair": pair,
        "op": name_of(case),
        "code": code,
        "lines": [*filter(None, [pair.note, rules]), *pair_lines(pair), *counterexample_lines(case, pair)],
        # Unchanged: matplotlib escapes what it writes.
        "pictures": [picture._replace(svg=Markup(picture.svg)) for picture in pictures],  # noqa: S704 (our own)
        "undrawn": undrawn,
        "wrong": figure and figure.map and _worst_cells(figure.map),
        "checks": [(check, code) for check in case.checks if (code := code_for(check)) is not None],
        "branches": branch_line(case) if case.seen.branches or case.seen.sides_unknown else "",
        "source": next(filter(None, (_source(where, root) for where in sources)), None),
    }


def _pictures(
    pair: PairResult, figure: Figure | None, case: CaseResult, draw: _Draw | None
) -> tuple[Sequence[Picture], str]:
    """Draw a pair, or say why it isn't drawn."""
    on_demand = f"gradcheck show {case.file} --op {case.op} --case {case.case} --pair '{pair.label}' --plot"
    if figure is None:
        undrawn = f"No picture was made in the run; {on_demand} FILE.html makes one."
        return (), undrawn if pair.numbers.elements else ""
    if draw is None:
        return (), f"The first {MOST_DRAWN} are drawn; {on_demand} FILE.html draws this one."
    try:
        return draw(f"{case.op}{pair.label}", figure, kinks=needs_slopes(pair)), ""
    except Exception as error:  # noqa: BLE001 (matplotlib raises anything near the largest float)
        return (), f"The picture can't be drawn: {type(error).__name__}: {error}"


def needs_slopes(pair: PairResult) -> bool:
    """Whether the slopes on either side are informative: at a kink, or where no slope was settled on."""
    return bool(pair.numbers.kinks) or pair.status is Status.INCONCLUSIVE


def _worst_cells(heat_map: HeatMap) -> list[tuple[float, int, int]]:
    """List the cells that are furthest off: the content of heat maps, for readers who can't see them."""
    cells = [
        (share, row, column)
        for row, line in enumerate(heat_map.share)
        for column, share in enumerate(line)
        if not share <= 1 or heat_map.verdicts[row][column] != "."
    ]
    return sorted(cells, key=lambda cell: -math.inf if math.isnan(cell[0]) else -cell[0])[:_MOST_WRONG]


def _source(where: str, root: Path) -> dict[str, Any] | None:
    """Return the lines around a gradient function's first line; `None` if they can't be read.

    The place may come from somebody else's report, and the page may be published. So only plain Python files
    below the repository's root are opened: nothing of the system, no credentials in `.git`, no link that
    leads out.
    """
    file, line = split_place(where)
    try:
        path = Path(file).resolve()
        if not line or path.suffix != ".py" or not path.is_relative_to(root.resolve()):
            return None
        lines = read_plain(path, _SOURCE_LIMIT).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError, RuntimeError):  # also a name with a null character, and a circle of links
        return None
    block = [f"{own}\n" for own in lines[line - 1 :]]
    with suppress(SyntaxError, TokenError):  # the file has changed since, or isn't Python
        block = inspect.getblock(block)
    start, stop = max(0, line - 1 - _BEFORE), min(line - 1 + len(block), line + _AFTER, len(lines))
    shown = [(index + 1, layout.clean(lines[index].expandtabs(4))) for index in range(start, stop)]
    place = f"{path_from_root(file, root)}:{line}"
    return {"place": place, "line": line, "lines": shown, "width": len(str(stop))}
