"""The audit's table of families: what specs say, and what a run of them found.

    gradcheck run specs/tensorflow --report json=audit.json
    python -m tests.audit.audit_table audit.json --write

writes it between the marks in docs/audit.md; without --write it is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from gradcheck_cli.features.coverage.list_command import cases_by_type
from gradcheck_cli.reporting.exchange.json_report import read_report
from gradcheck_cli.results import Status
from gradcheck_cli.spec.load import load

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "specs" / "tensorflow"
PAGE = ROOT / "docs" / "audit.md"
BEGIN, END = "<!-- audit: begin -->", "<!-- audit: end -->"
HEADING = ("family", "op types", "cases", "pairs", "second order", "findings")
JUDGED = (Status.PASSED, Status.EXPECTED_MISMATCH)


@dataclass
class Family:
    """One file of specs: op types and cases as written; pairs and findings as a run has them."""

    op_types: set[str] = field(default_factory=set)
    cases: int = 0
    pairs: int = 0
    second_order: set[str] = field(default_factory=set)
    findings: set[str] = field(default_factory=set)


def stem(spec):
    """Return the family that a spec (`path:line`) belongs to."""
    return Path(spec.rpartition(":")[0]).stem


def written(version):
    """Return each family's op types and cases, and the exceptions, that are for a version of TensorFlow."""
    loaded = load([SPECS])
    families = defaultdict(Family)
    for case in loaded.cases:
        families[stem(case.spec)].cases += len(case.running.modes)
    for op_type, cases in cases_by_type(loaded.cases, version).items():
        for case in cases:
            families[stem(case.spec)].op_types.add(op_type)
    return dict(sorted(families.items())), [one for one in loaded.exceptions if one.holds(version)]


def with_findings(families, report, cases):
    """Add what a run has found of each family."""
    by_op = {case.op: case for case in cases}  # names are unique; lines move
    for one in report.cases:
        family = families[stem(one.spec)]
        case = by_op.get(one.op)
        is_raw = case is not None and case.code.is_raw_op
        names = set() if case is None else {*case.code.covers, *([case.code.op_type] if is_raw else [])}
        family.pairs += len(one.pairs)
        if any(pair.order > 1 and pair.status in JUDGED for pair in one.pairs):
            family.second_order |= names & family.op_types
        if one.status is Status.EXPECTED_MISMATCH:
            family.findings.add(case.code.op_type if is_raw else one.op.removeprefix("tf_"))


def table(report):
    """Return the table as Markdown.

    Args:
        report: of a run of all families.
    """
    version = report.tensorflow_version
    families, exceptions = written(version)
    with_findings(families, report, load([SPECS]).cases)
    total = Family()
    for family in families.values():
        total.op_types |= family.op_types
        total.second_order |= family.second_order
        total.findings |= family.findings
        total.cases += family.cases
        total.pairs += family.pairs
    rows = [HEADING, *(_row(name, family) for name, family in families.items())]
    rows.append(tuple(f"**{cell}**" for cell in _row("all", total, names=False)))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---|--:|--:|--:|--:|---|")
    excepted = f"Excepted by name: {len(exceptions)} (why: `specs/tensorflow/exceptions.yaml`)."
    counts = ", ".join(f"{number:,} {word}" for word, number in _statuses(report) if number)
    return "\n".join([f"TensorFlow {version}, on its CPU. {excepted} Pairs: {counts}.", "", *lines])


def _row(name, family, *, names=True):
    found = f"{len(family.findings)}"
    if names and family.findings:
        found += ": " + ", ".join(sorted(family.findings))
    numbers = (len(family.op_types), family.cases, family.pairs, len(family.second_order))
    return (name, *(f"{number:,}" for number in numbers), found if family.findings else "")


def _statuses(report):
    return [(str(status).replace("_", " "), report.summary[str(status)]) for status in Status]


def between(text, begin, end, content):
    """Return a document with a content between its marks."""
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def main(arguments=None):
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="JSON report of gradcheck run specs/tensorflow")
    parser.add_argument("--write", action="store_true", help="write it into docs/audit.md")
    options = parser.parse_args(arguments)
    content = table(read_report(options.report))
    if not options.write:
        sys.stdout.write(content + "\n")
        return
    PAGE.write_text(between(PAGE.read_text(), BEGIN, END, content))


if __name__ == "__main__":
    main()
