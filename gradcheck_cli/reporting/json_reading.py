"""A JSON report read back as the values it was written from, or a fault that names what isn't one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import BaselineFinding, Change, Fingerprint, Projection, Shard, Tolerance
from gradcheck_cli.reporting.json_report import SCHEMA_VERSION
from gradcheck_cli.results import (
    CaseError,
    CaseResult,
    CheckResult,
    PairResult,
    Report,
    Status,
    WorstElement,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Object = dict[str, Any]

Value = TypeVar("Value")


def read_report(file: Path) -> Report:
    """Read a report that `--report json=FILE` wrote.

    Raises:
        UsageError: it can't be read, or isn't such a report.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: isn't JSON: {error}") from error
    if not isinstance(content, dict) or "schema_version" not in content or "cases" not in content:
        raise UsageError(f"{file}: isn't a report of gradcheck's; write one with --report json=FILE.")
    if content["schema_version"] != SCHEMA_VERSION:
        raise UsageError(
            f"{file}: must have schema_version {SCHEMA_VERSION}, but has {content['schema_version']!r}."
        )
    try:
        return _report(content)
    except KeyError as error:
        raise UsageError(f"{file}: lacks {error}; was it written by an older gradcheck?") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{file}: isn't a report of gradcheck's: {error}") from error


def _report(content: Object) -> Report:
    return Report(
        gradcheck_version=content["gradcheck_version"],
        tensorflow_version=content["tensorflow_version"],
        python_version=content["python_version"],
        seed=content["seed"],
        cases=tuple(_case(one) for one in content["cases"]),
        duration_s=_float(content["duration_s"]),
        interrupted=content["interrupted"],
        notices=tuple(content["notices"]),
        strict=content["strict"],
        strict_precision=content["strict_precision"],
        unchecked=tuple(content["unchecked"]),
        baseline=tuple(_finding(one) for one in content["baseline"]),
        shard=_optional(content["shard"], _shard),
    )


def _optional(content: Any, read: Callable[[Any], Value]) -> Value | None:  # noqa: ANN401 (JSON)
    return None if content is None else read(content)


def _float(value: object) -> float:
    """Read a number; "nan", "inf" and "-inf" are those."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _number(value: object) -> float | complex:
    """Read a number that may be complex: `[re, im]`."""
    if isinstance(value, list):
        real, imaginary = value
        return complex(_float(real), _float(imaginary))
    return _float(value)


def _shard(content: Object) -> Shard:
    return Shard(
        content["index"], content["count"], tuple((op, case, dtype) for op, case, dtype in content["plan"])
    )


def _finding(content: Object) -> BaselineFinding:
    return BaselineFinding(
        op=content["op"],
        case=content["case"],
        dtype=content["dtype"],
        mode=content["mode"],
        pair=content["pair"],
        change=Change(content["change"]),
        message=content["message"],
        spec=content["spec"],
    )


def _case(content: Object) -> CaseResult:
    output = content["output"] or {"lines": [], "file": None}
    dtype = content["dtype"]
    return CaseResult(
        op=content["op"],
        case=content["case"],
        spec=content["spec"],
        mode=content["mode"],
        dtype=dtype,
        status=Status(content["status"]),
        duration_s=_float(content["duration_s"]),
        reproduce=content["reproduce"],
        numeric_dtype=content["numeric_dtype"],
        reason=content["reason"],
        error=_optional(content["error"], _error),
        checks=tuple(
            CheckResult(one["name"], Status(one["status"]), one["message"]) for one in content["checks"]
        ),
        pairs=tuple(_pair(one) for one in content["pairs"]),
        warnings=tuple(content["warnings"]),
        not_differentiated=tuple((one["output"], one["dtype"]) for one in content["not_differentiated"]),
        output=tuple(output["lines"]),
        output_file=output["file"] or "",
        source=content["source"] or "",
        checks_off=tuple(content["checks_off"]),
        samples=content["samples"],
        gradients_seen=dict(content.get("gradients_seen", {})),  # reports from before it was counted lack it
    )


def _error(content: Object) -> CaseError:
    return CaseError(content["kind"], content["message"], tuple(content["traceback"]))


def _pair(content: Object) -> PairResult:
    return PairResult(
        label=content["label"],
        output=content["output"],
        input=content["input"],
        status=Status(content["status"]),
        connected=content["connected"],
        method=content["method"],
        reference_dtype=content["reference_dtype"],
        evaluations=content["evaluations"],
        columns=content["columns"],
        miss_probability=_optional(content["miss_probability"], _float),
        miss_size=_optional(content["miss_size"], _float),
        max_abs_error=_float(content["max_abs_error"]),
        max_rel_error=_float(content["max_rel_error"]),
        allowed=_float(content["allowed"]),
        uncertainty=_float(content["uncertainty"]),
        kinks=content["kinks"],
        elements=content["elements"],
        wrong_elements=content["wrong_elements"],
        worst=_optional(content["worst"], _worst),
        diagnosis=tuple(content["diagnosis"]),
        note=content["note"],
        message=content["message"],
        tolerance=_optional(content["tolerance"], _tolerance),
        fingerprint=_optional(content["fingerprint"], _fingerprint),
        order=content["order"],
    )


def _worst(content: Object) -> WorstElement:
    return WorstElement(
        output_index=tuple(content["output_index"]),
        input_index=tuple(content["input_index"]),
        analytic=_number(content["analytic"]),
        numeric=_number(content["numeric"]),
        uncertainty=_float(content["uncertainty"]),
        output_part=content["output_part"],
        input_part=content["input_part"],
    )


def _tolerance(content: Object) -> Tolerance:
    return Tolerance(_float(content["rtol"]), _float(content["scaled"]), _optional(content["atol"], _float))


def _fingerprint(content: Object) -> Fingerprint:
    return Fingerprint(
        analytic=tuple(Projection(_float(value), _float(slack)) for value, slack in content["analytic"]),
        forward=tuple(Projection(_float(value), _float(slack)) for value, slack in content["forward"]),
    )
