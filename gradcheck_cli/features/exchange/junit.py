"""Results as JUnit XML in pytest's form: a test case per pair, and one for each other failure."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from xml.etree import ElementTree as ET

from gradcheck_cli.reporting.exchange.findings import Finding, Outcome, findings_of
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
    counts = {
        "errors": sum(finding.outcome is Outcome.UNDECIDED for finding in findings),
        "failures": sum(finding.outcome is Outcome.FAILED for finding in findings),
        "skipped": sum(finding.outcome is Outcome.SKIPPED for finding in findings),
        "tests": len(findings),
    }
    root = ET.Element("testsuites", name="gradcheck")
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "name": "gradcheck",
            **{name: str(count) for name, count in counts.items()},
            "time": f"{report.duration_s:.3f}",
            "timestamp": (now or datetime.now(timezone.utc)).isoformat(),
            "hostname": _clean(platform.node()),
        },
    )
    shares: dict[int, int] = {}
    for finding in findings:
        shares[id(finding.case)] = shares.get(id(finding.case), 0) + 1
    for finding in findings:
        seconds = 0.0 if finding.case is None else finding.case.ran.duration_s / shares[id(finding.case)]
        _add(suite, finding, seconds)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add(suite: ET.Element, finding: Finding, seconds: float) -> None:
    case = finding.case
    name = finding.name
    if case is not None:
        # In brackets, like pytest's parameters; default values are left out.
        parts = [part for part in (case.dtype, case.mode) if part not in ("float64", "graph")]
        name = f"{case.case}[{'-'.join([*parts, finding.name])}]"
    element = ET.SubElement(
        suite, "testcase", classname=_classname(finding), name=_clean(name), time=f"{seconds:.3f}"
    )
    if finding.outcome in _TAGS:
        kind = {"type": "gradcheck.skip"} if finding.outcome is Outcome.SKIPPED else {}
        tag = ET.SubElement(element, _TAGS[finding.outcome], kind, message=_clean(finding.headline))
        tag.text = _clean(finding.text)
    elif finding.text:
        ET.SubElement(element, "system-out").text = _clean(finding.text)


def _classname(finding: Finding) -> str:
    """Return the name that viewers group by: the spec's path with dots, as in a module's name, and the op."""
    if finding.case is None:
        return "gradcheck.baseline" if finding.rule.startswith("baseline/") else "gradcheck"
    path = finding.case.file.rpartition(".")[0] or finding.case.spec
    return _clean(
        ".".join([*(part for part in path.split("/") if part not in ("", ".", "..")), finding.case.op])
    )


def _clean(text: str) -> str:
    """Spell out, as pytest does, the characters that XML can't hold: `#x1B`."""
    return "".join(
        char if any(low <= ord(char) <= high for low, high in _ALLOWED) else f"#x{ord(char):02X}"
        for char in text
    )
