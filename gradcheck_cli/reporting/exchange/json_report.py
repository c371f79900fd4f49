"""The JSON report (DESIGN §6): field names, and words for the numbers that JSON has no word for."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from gradcheck_cli.reporting.codes import code_of_change, code_of_check, code_of_error, code_of_pair
from gradcheck_cli.reporting.exchange.coverage_report import coverage_object
from gradcheck_cli.results import Status

if TYPE_CHECKING:
    from gradcheck_cli.gate import BaselineFinding, Fingerprint, Projection, Selection, Shard, Tolerance
    from gradcheck_cli.reporting.codes import Code
    from gradcheck_cli.results import CaseResult, CheckResult, PairResult, Report, WorstElement

SCHEMA_VERSION = 1


def to_json(report: Report, exit_code: int | None = None) -> str:
    """Render a report as JSON text that ends in a newline.

    Args:
        report: the run.
        exit_code: the process's exit code where an option such as `--strict` changed it.

    Returns:
        The text; it holds no NaN or Infinity literal, so that every JSON reader takes it.
    """
    return json.dumps(to_dict(report, exit_code), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_dict(report: Report, exit_code: int | None = None) -> dict[str, object]:
    """Return the report as plain dictionaries, lists, strings and finite numbers."""
    return {
        "schema_version": SCHEMA_VERSION,
        "gradcheck_version": report.gradcheck_version,
        "tensorflow_version": report.tensorflow_version,
        "python_version": report.python_version,
        "keras_version": report.keras_version,
        "numpy_version": report.numpy_version,
        "platform": report.platform,
        "seed": report.seed,
        "exit_code": report.exit_code if exit_code is None else exit_code,
        "interrupted": report.interrupted,
        "strict": report.strict,
        "strict_precision": report.strict_precision,
        "unchecked": list(report.unchecked),
        "duration_s": number(report.duration_s),
        "summary": report.summary,
        "evaluations_per_element": round(report.evaluations_per_element, 3),
        "notices": list(report.notices),
        "shard": None if report.shard is None else _shard(report.shard),
        "selection": None if report.selection is None else _selection(report.selection),
        "baseline": [_finding(finding) for finding in report.baseline],
        "sides": {"seen": report.sides[0], "all": report.sides[1]},
        "branch_fail_under": report.branch_fail_under,
        "coverage": None if report.coverage is None else coverage_object(report.coverage),
        "cases": [_case(case) for case in report.cases],
    }


def _shard(shard: Shard) -> dict[str, object]:
    return {"index": shard.index, "count": shard.count, "plan": [list(one) for one in shard.plan]}


def _selection(selection: Selection) -> dict[str, object]:
    return {
        "paths": list(selection.paths),
        "options": list(selection.options),
        "modes": list(selection.modes),
        "left_out": [list(one) for one in selection.left_out],
    }


def _finding(finding: BaselineFinding) -> dict[str, object]:
    return {
        "op": finding.op,
        "case": finding.case,
        "dtype": finding.dtype,
        "mode": finding.mode,
        "pair": finding.pair,
        "change": str(finding.change),
        "failure": finding.is_failure,
        "code": _code(code_of_change(finding)),
        "message": finding.message,
        "spec": finding.spec,
    }


def number(value: complex) -> object:
    """Return a number as JSON holds it: "nan", "inf", "-inf" as strings, complex as `[re, im]`."""
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return float(value)  # a NumPy float64 is a float too, and prints otherwise
    return [number(value.real), number(value.imag)]


def _case(case: CaseResult) -> dict[str, object]:
    return {
        "op": case.op,
        "case": case.case,
        "spec": case.spec,
        "mode": case.mode,
        "dtype": case.dtype,
        "numeric_dtype": case.numeric_dtype or case.dtype,
        "status": str(case.status),
        "duration_s": number(case.duration_s),
        "reason": case.reason,
        "error": None
        if case.error is None
        else {
            "kind": case.error.kind,
            "code": _code(code_of_error(case.error)),
            "message": case.error.message,
            "traceback": list(case.error.traceback),
        },
        "output": _output(case),
        "source": case.source or None,
        "held": list(case.held),
        "checks_off": list(case.checks_off),
        "samples": case.samples,
        "gradients_seen": case.gradients_seen,
        "work": asdict(case.work),
        "custom_gradients": [
            {
                "function": run.function,
                "places": list(run.places),
                "makers": list(run.makers),
                "pairs": list(run.pairs),
            }
            for run in case.custom_gradients
        ],
        "chosen_points": case.chosen_points,
        "branches": [
            {
                "text": branch.text,
                "place": branch.place,
                "part": branch.part,
                "sides": list(branch.sides),
                "seen": list(branch.seen),
                "excused": [list(one) for one in branch.excused],
            }
            for branch in case.branches
        ],
        "reproduce": case.reproduce,
        "host": case.host or None,
        "worker": case.worker or None,
        "warnings": list(case.warnings),
        "not_differentiated": [{"output": name, "dtype": dtype} for name, dtype in case.not_differentiated],
        "checks": [_check(check) for check in case.checks],
        "pairs": [_pair(pair) for pair in case.pairs],
    }


def _output(case: CaseResult) -> object:
    """Return what a failed case printed, as far as that was caught: where it isn't green."""
    if case.status in (Status.PASSED, Status.EXPECTED_MISMATCH) or not case.output:
        return None
    return {"lines": list(case.output), "file": case.output_file or None}


def _check(check: CheckResult) -> dict[str, object]:
    return {
        "name": check.name,
        "status": str(check.status),
        "message": check.message,
        "code": _code(code_of_check(check)),
    }


def _code(code: Code | None) -> str | None:
    return None if code is None else code.number


def _pair(pair: PairResult) -> dict[str, object]:
    return {
        "label": pair.label,
        "order": pair.order,
        "output": pair.output,
        "input": pair.input,
        "status": str(pair.status),
        "connected": pair.connected,
        "method": pair.method,
        "reference_dtype": pair.reference_dtype,
        "not_float64": pair.not_float64,
        "evaluations": pair.evaluations,
        "columns": pair.columns,
        "miss_probability": None if pair.miss_probability is None else number(pair.miss_probability),
        "miss_size": None if pair.miss_size is None else number(pair.miss_size),
        "max_abs_error": number(pair.max_abs_error),
        "max_rel_error": number(pair.max_rel_error),
        "allowed": number(pair.allowed),
        "uncertainty": number(pair.uncertainty),
        "kinks": pair.kinks,
        "elements": pair.elements,
        "wrong_elements": pair.wrong_elements,
        "worst": None if pair.worst is None else _worst(pair.worst),
        "diagnosis": list(pair.diagnosis),
        "note": pair.note,
        "message": pair.message,
        "stops": list(pair.stops),
        "stop_change": None if pair.stop_change is None else number(pair.stop_change),
        "mismatch": pair.mismatch or None,
        "undecided": pair.undecided or None,
        "code": _code(code_of_pair(pair)),
        "worst_error": number(pair.error),
        "worst_bound": number(pair.bound),
        "worst_ratio": None if pair.ratio is None else number(pair.ratio),
        "relative_error": None if pair.relative_error is None else number(pair.relative_error),
        "tolerance": None if pair.tolerance is None else _tolerance(pair.tolerance),
        "fingerprint": None if pair.fingerprint is None else _fingerprint(pair.fingerprint),
        "figure": None if pair.figure is None else _plain(asdict(pair.figure)),
    }


def _plain(value: object) -> object:
    """Return nested values as JSON holds them."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return number(value) if isinstance(value, float) else value


def _tolerance(tolerance: Tolerance) -> dict[str, object]:
    atol = None if tolerance.atol is None else number(tolerance.atol)
    return {"rtol": number(tolerance.rtol), "scaled": number(tolerance.scaled), "atol": atol}


def _fingerprint(fingerprint: Fingerprint) -> dict[str, object]:
    return {
        "analytic": [_projection(one) for one in fingerprint.analytic],
        "forward": [_projection(one) for one in fingerprint.forward],
    }


def _projection(projection: Projection) -> list[object]:
    return [number(projection.value), number(projection.slack)]


def _worst(worst: WorstElement) -> dict[str, object]:
    return {
        "output_index": list(worst.output_index),
        "input_index": list(worst.input_index),
        "analytic": number(worst.analytic),
        "numeric": number(worst.numeric),
        "uncertainty": number(worst.uncertainty),
        "output_part": worst.output_part,
        "input_part": worst.input_part,
    }
