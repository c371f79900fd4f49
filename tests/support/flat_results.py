"""Makes results and cases from all of their fields by name, those of their groups too."""

from __future__ import annotations

from dataclasses import fields, replace

from gradcheck_cli.results import CaseResult, PairResult, Report
from gradcheck_cli.spec.case import Case

GROUPS = {
    PairResult: ("numbers", "judged_by", "cause"),
    CaseResult: ("how", "ran", "seen"),
    Report: ("policy", "machine"),
    Case: ("code", "expected", "judging", "running", "origin", "wanted"),
}


def altered(result, **changes):
    """Return a result or a case with other values in some of its fields, or of its groups' fields."""
    for name in GROUPS.get(type(result), ()):
        group = getattr(result, name)
        own = {field.name: changes.pop(field.name) for field in fields(group) if field.name in changes}
        changes[name] = replace(changes.get(name, group), **own)
    return replace(result, **changes)


def make_pair(label, output, input_name, status, **values):
    return altered(PairResult(label, output, input_name, status), **values)


def make_case(*names, op="", case="", spec="", mode="graph", dtype="float64", status=None, **values):  # noqa: PLR0913
    """Return a case's result; by position: op, case, spec, mode, dtype, status, duration_s, reproduce."""
    own = dict(zip(("op", "case", "spec", "mode", "dtype", "status"), names, strict=False))
    own = {"op": op, "case": case, "spec": spec, "mode": mode, "dtype": dtype, "status": status, **own}
    ran = dict(zip(("duration_s", "reproduce"), names[6:], strict=False))
    return altered(CaseResult(**own), **ran, **values)
