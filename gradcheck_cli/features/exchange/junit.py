"""Results as JUnit XML in pytest's form: a test case per pair, and one for each other failure."""

from __future__ import annotations

import platform
from collections import Counter
from datetime import datetime, timezone
from typing import Any

from markupsafe import Markup, escape

from gradcheck_cli.reporting.exchange.findings import Finding, Outcome, findings_of
from gradcheck_cli.reporting.exchange.templates import templates
from gradcheck_cli.results import Report

_TAGS = {Outcome.FAILED: "failure", Outcome.UNDECIDED: "error", Outcome.SKIPPED: "skipped"}
# XML 1.0, production 2: the characters that may occur in a document. The rest has no escape, so it is spelt
# out.
_ALLOWED = ((0x9, 0xA), (0xD, 0xD), (0x20, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x10FFFF))


def to_junit(report: Report, *, now: datetime | None = None) -> str:
    """Render a report as JUnit XML.

    What failed is a `failure`; what couldn't be decided or run is an `error`. JUnit has a time for each test
    case, which is a pair here; the pairs of a case share its time evenly.
    """
    findings = findings_of(report)
    template = templates(__package__, _to_xml).get_template("junit.xml")
    return template.render(
        report=report,
        findings=findings,
        counts=Counter(_TAGS.get(finding.outcome, "") for finding in findings),
        tags=_TAGS,
        shares=Counter(id(finding.case) for finding in findings),
        id_of=id,
        name_of=_name_of,
        classname_of=_classname,
        timestamp=(now or datetime.now(timezone.utc)).isoformat(),
        hostname=platform.node(),
    )


def _name_of(finding: Finding) -> Markup:
    """Return the case's name, then in brackets, like pytest's parameters, the rest without default values."""
    case, name = finding.case, finding.name
    if case is not None:
        parts = [part for part in (case.dtype, case.mode) if part not in ("float64", "graph")]
        name = f"{case.case}[{'-'.join([*parts, name])}]"
    # In an attribute, a line break alone would be read as a blank.
    return Markup("&#10;").join(map(_to_xml, name.split("\n")))


def _classname(finding: Finding) -> str:
    """Return the name that viewers group by: the spec's path with dots, as in a module's name, and the op."""
    if finding.case is None:
        return "gradcheck.baseline" if finding.rule.startswith("baseline/") else "gradcheck"
    path = finding.case.file.rpartition(".")[0] or finding.case.spec
    return ".".join([*(part for part in path.split("/") if part not in ("", ".", "..")), finding.case.op])


def _to_xml(value: Any) -> Any:  # noqa: ANN401 (whatever a template writes)
    """Return text as XML; the characters that it can't hold are spelt out as pytest does: `#x1B`."""
    if type(value) is not str:
        return value
    allowed = (
        char if any(low <= ord(char) <= high for low, high in _ALLOWED) else f"#x{ord(char):02X}"
        for char in value
    )
    return Markup(escape("".join(allowed)))  # noqa: S704 (it is escaped)
