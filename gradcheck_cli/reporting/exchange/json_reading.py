"""A JSON report read back as the values it was written from, or a fault that names what isn't one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gradcheck_cli import typed_json
from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import Projection
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.reporting.exchange.json_report import SCHEMA_VERSION
from gradcheck_cli.results import FAILING, UNDECIDED, CaseResult, PairResult, Report, Status, Work
from gradcheck_cli.typed_json import TypeFault

if TYPE_CHECKING:
    from pathlib import Path

    Object = dict[str, Any]

_LIMIT = 1024 * MIB  # the report of TensorFlow's own gradients has 5 MiB
_GREEN = (Status.PASSED, Status.EXPECTED_MISMATCH)
# What a report and a pair are without the fields that older ones lack.
_REPORT_BEFORE: Object = {
    **dict.fromkeys(("selection", "coverage", "branch_fail_under")),
    **dict.fromkeys(("keras_version", "numpy_version", "platform"), ""),
}
_PAIR_BEFORE: Object = {
    **dict.fromkeys(("mismatch", "undecided", "worst_error", "worst_bound", "stop_change", "figure")),
    "not_float64": "",
    "stops": [],
}


def read_report(file: Path) -> Report:
    """Read a report that `--report json=FILE` wrote.

    Raises:
        UsageError: it can't be read, isn't such a report, or doesn't add up to what it says of itself.
    """
    try:
        text = read_plain(file, _LIMIT)
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror or error}") from error
    try:
        content = typed_json.parse(text)
    except TypeFault as error:
        raise UsageError(f"{file}: isn't JSON: {error}") from error
    if not isinstance(content, dict) or "schema_version" not in content or "cases" not in content:
        raise UsageError(f"{file}: isn't a report of gradcheck's; write one with --report json=FILE.")
    if content["schema_version"] != SCHEMA_VERSION or isinstance(content["schema_version"], bool):
        raise UsageError(
            f"{file}: must have schema_version {SCHEMA_VERSION}, but has {content['schema_version']!r}."
        )
    try:
        plain = {**_REPORT_BEFORE, **content}
        report = typed_json.read(Report, plain, special={CaseResult: _case, Projection: _projection})
        _require_sums(content, report)
    except TypeFault as error:
        old = "; was it written by an older gradcheck?" if " lacks " in str(error) else ""
        raise UsageError(f"{file}: isn't a report of gradcheck's: {error}{old}") from error
    return report  # type: ignore[no-any-return]


def _require_sums(content: Object, report: Report) -> None:
    """Refuse a report of which a part was changed or lost: it says what its parts add up to."""
    for key, found in (("summary", report.summary), ("exit_code", report.exit_code)):
        if key not in content:
            raise TypeFault(f"it lacks {key!r}")
        if content[key] != found:
            raise TypeFault(f"{key} says otherwise than the cases do: a part of it was changed or lost")


def _projection(content: object, place: str) -> Projection:
    return Projection(*typed_json.read(tuple[float, float], content, place))


def _case(content: object, place: str) -> CaseResult:
    """Read a case, of which some fields are written in another form than they have."""
    if not isinstance(content, dict):
        raise TypeFault(f"{place} must be a mapping, but is {type(content).__name__}")
    output = {"lines": [], "file": None} if content.get("output") is None else content["output"]
    # What reports don't hold, or those from before it was counted.
    plain = {
        "mutants": [],
        "gradients_seen": {},
        "held": [],
        "work": asdict(Work()),
        "host": None,
        "worker": None,
        "custom_gradients": [],
        "branches": [],
        "chosen_points": 0,
        **content,
    }
    for key in ("output", "source", "not_differentiated"):
        if key not in content:
            raise TypeFault(f"{place} lacks {key!r}")
    where = f"{place}.not_differentiated"
    outputs = typed_json.read(tuple[dict[str, str], ...], content["not_differentiated"], where)
    try:
        plain["not_differentiated"] = [[one["output"], one["dtype"]] for one in outputs]
    except KeyError as error:
        raise TypeFault(f"{where} lacks {error}") from None
    if not isinstance(output, dict) or not {"lines", "file"} <= output.keys():
        raise TypeFault(f"{place}.output must be null, or lines and a file")
    plain["output"], plain["output_file"] = output["lines"], _or_empty(output["file"])
    for key in ("source", "host", "worker"):
        plain[key] = _or_empty(plain[key])
    case = typed_json.read(CaseResult, plain, place, special={PairResult: _pair, Projection: _projection})
    _require_agreement(case, place)
    return case  # type: ignore[no-any-return]


def _pair(content: object, place: str) -> PairResult:
    if not isinstance(content, dict):
        raise TypeFault(f"{place} must be a mapping, but is {type(content).__name__}")
    plain = {**_PAIR_BEFORE, **content}
    plain |= {key: _or_empty(plain[key]) for key in ("mismatch", "undecided")}
    return typed_json.read(PairResult, plain, place, special={Projection: _projection})  # type: ignore[no-any-return]


def _or_empty(content: object) -> object:
    return "" if content is None else content


def _require_agreement(case: CaseResult, place: str) -> None:
    """Refuse a case that is called green, though nothing of it was checked, or something isn't."""
    if case.status not in _GREEN:
        return
    found = {*(pair.status for pair in case.pairs), *(check.status for check in case.checks)}
    if found & (FAILING | UNDECIDED):
        why = f"something of it is {min(found & (FAILING | UNDECIDED))}"
    elif case.error is not None:
        why = "it has an error"
    else:
        why = "" if case.pairs else "it has no pairs"
    if why:
        raise TypeFault(f"{place}.status must not be {case.status}: {why}")
