"""The JSON report: how each result is written, how a report is read back or refused, and its JSON Schema."""

from __future__ import annotations

import math
from operator import methodcaller
from pathlib import Path
from typing import Any

from gradcheck_cli import results, serial
from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import BaselineFinding, CoverageStatus, GradientCoverage, Projection
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.reporting.codes import code_for
from gradcheck_cli.results import HeatMap, Ladder
from gradcheck_cli.serial import Layout, TypeFault

Object = dict[str, Any]

SCHEMA_VERSION = 1
_LIMIT = 1024 * MIB  # the report of TensorFlow's own gradients has 5 MiB


def _number_of(found: Any) -> str | None:  # noqa: ANN401 (a result, an error or a change)
    """Return the number of a code, such as `GC102`."""
    return getattr(code_for(found), "number", None)


def _require_agreement(case: results.CaseResult, place: str) -> None:
    """Refuse a case that is called green although nothing in it was checked, or something isn't green."""
    if case.status not in results.GREEN | results.EXCUSED:
        return
    statuses = {*(pair.status for pair in case.pairs), *(check.status for check in case.checks)}
    if statuses & (results.FAILING | results.UNDECIDED):
        why = f"something of it is {min(statuses & (results.FAILING | results.UNDECIDED))}"
    elif case.error is not None:
        why = "it has an error"
    else:
        why = "" if case.pairs or results.Status.KNOWN in statuses else "it has no pairs"
    if why:
        raise TypeFault(f"{place}.status must not be {case.status}: {why}")


def _require_cells(heat_map: HeatMap, place: str) -> None:
    """Refuse a heat map whose tables haven't a cell for each of its rows and columns."""
    shape = len(heat_map.rows), len(heat_map.columns)
    for name in ("analytic", "numeric", "share", "verdicts"):
        table = getattr(heat_map, name)
        if (len(table), *{len(row) for row in table}) != shape:
            raise TypeFault(f"{place}.{name} must have {shape[0]} x {shape[1]} cells")


def _require_rungs(ladder: Ladder, place: str) -> None:
    """Refuse a ladder without a slope of each kind for each of its steps, or with a step that is none."""
    for name in ("central", "above", "below"):
        if len(getattr(ladder, name)) != len(ladder.steps):
            raise TypeFault(f"{place}.{name} must have a number for each of {len(ladder.steps)} steps")
    if not all(0 < step < math.inf for step in ladder.steps):
        raise TypeFault(f"{place}.steps must be larger than 0")


LAYOUTS: serial.Layouts = {
    results.Report: Layout(
        order=(
            *("schema_version", "gradcheck_version", "tensorflow_version", "python_version"),
            *("keras_version", "numpy_version", "platform", "seed", "exit_code", "interrupted", "strict"),
            *("strict_precision", "unchecked", "duration_s", "summary", "evaluations_per_element"),
            *("notices", "shard", "selection", "baseline", "sides", "branch_fail_under", "coverage", "cases"),
        ),
        inline=frozenset({"policy", "machine"}),
        computed={
            "schema_version": lambda _: SCHEMA_VERSION,
            "exit_code": lambda report: report.exit_code,
            "summary": lambda report: report.summary,
            "evaluations_per_element": lambda report: round(report.evaluations_per_element, 3),
            "sides": lambda report: dict(zip(("seen", "all"), report.sides, strict=True)),
        },
    ),
    results.CaseResult: Layout(
        inline=frozenset({"how", "ran", "seen"}),
        left_out=frozenset({"mutants", "read"}),
        null=frozenset({"source", "host", "worker"}),
        computed={
            "numeric_dtype": lambda case: case.how.numeric_dtype or case.dtype,
            "output": lambda case: None if case.status in results.GREEN else case.ran.output,
        },
        require=_require_agreement,
    ),
    results.PairResult: Layout(
        inline=frozenset({"numbers", "judged_by", "cause"}),
        left_out=frozenset({"analytic", "numeric"}),
        null=frozenset({"mismatch", "undecided"}),
        computed={
            "worst_error": lambda pair: pair.error,
            "worst_bound": lambda pair: pair.bound,
            "worst_ratio": lambda pair: pair.ratio,
            "relative_error": lambda pair: pair.relative_error,
            "code": _number_of,
        },
    ),
    results.Printed: Layout(null=frozenset({"file"})),
    results.CheckResult: Layout(computed={"code": _number_of}),
    results.CaseError: Layout(order=("kind", "code"), computed={"code": _number_of}),
    BaselineFinding: Layout(
        computed={"failure": lambda finding: finding.is_failure, "code": _number_of},
    ),
    GradientCoverage: Layout(
        order=("packages", "changed", "fail_under", "percent", *map(str, CoverageStatus)),
        computed={
            "percent": lambda coverage: round(coverage.percent, 3),
            **{str(status): methodcaller("count", status) for status in CoverageStatus},
        },
    ),
    Projection: Layout(is_list=True),
    HeatMap: Layout(require=_require_cells),
    Ladder: Layout(require=_require_rungs),
}


def to_json(report: results.Report) -> str:
    """Render a report as JSON text that ends in a newline, without NaN or Infinity, which few can read."""
    return serial.write(report, LAYOUTS)


def read_report(file: Path) -> results.Report:
    """Read a report that `--report json=FILE` wrote.

    Raises:
        UsageError: it can't be read, isn't such a report, or its parts don't add up to its own totals.
    """
    try:
        text = read_plain(file, _LIMIT)
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror or error}") from error
    try:
        content = serial.parse(text)
    except TypeFault as error:
        raise UsageError(f"{file}: isn't JSON: {error}") from error
    if not isinstance(content, dict) or "schema_version" not in content or "cases" not in content:
        raise UsageError(f"{file}: isn't a report of gradcheck's; write one with --report json=FILE.")
    if content["schema_version"] != SCHEMA_VERSION or isinstance(content["schema_version"], bool):
        raise UsageError(
            f"{file}: must have schema_version {SCHEMA_VERSION}, but has {content['schema_version']!r}."
        )
    try:
        report: results.Report = serial.read(results.Report, content, layouts=LAYOUTS)
        _require_sums(content, report)
    except TypeFault as error:
        old = "; was it written by an older gradcheck?" if " lacks " in str(error) else ""
        raise UsageError(f"{file}: isn't a report of gradcheck's: {error}{old}") from error
    return report


def _require_sums(content: Object, report: results.Report) -> None:
    """Refuse a report whose parts don't add up to its totals: one of them was changed or lost."""
    for key, expected in (("summary", report.summary), ("exit_code", report.exit_code)):
        if key not in content:
            raise TypeFault(f"it lacks {key!r}")
        if content[key] != expected:
            raise TypeFault(f"{key} says otherwise than the cases do: a part of it was changed or lost")
