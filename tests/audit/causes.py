"""Writes the tables of docs/gradcheck_findings.md from docs/findings/causes.yaml; a test compares them.

python tests/audit/causes.py
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "gradcheck_findings.md"
BEGIN, END = "<!-- causes: begin -->", "<!-- causes: end -->"
KINDS = ("fault", "loud", "crash", "undefined", "convention")
SEVERITIES = ("severe", "moderate", "mild")
ORDERS = {1: "first", 2: "second", 3: "third"}


def causes() -> list[dict[str, Any]]:
    """Return what docs/findings/causes.yaml lists."""
    listed: list[dict[str, Any]] = yaml.safe_load((DOCS / "findings" / "causes.yaml").read_text())["causes"]
    return listed


def tables() -> str:
    """Return the counts, and a table of each kind, severe causes first."""
    listed = causes()
    counts = Counter((cause["kind"], cause["severity"]) for cause in listed)
    lines = [
        f"{len(listed)} causes:",
        "",
        "| kind | " + " | ".join(SEVERITIES) + " | all |",
        "|---|--:|--:|--:|--:|",
    ]
    for kind in KINDS:
        row = [counts[kind, severity] for severity in SEVERITIES]
        lines.append(f"| {kind} | " + " | ".join(map(str, row)) + f" | {sum(row)} |")
    lines += ["", *_by_family(listed)]
    for kind in KINDS:
        of_kind = [cause for cause in listed if cause["kind"] == kind]
        lines += [
            "",
            f"## {kind.capitalize()}",
            "",
            "| cause | severity | order | reached through | where | upstream |",
        ]
        lines += ["|---|---|---|---|---|---|", *map(_row, sorted(of_kind, key=_severity))]
    return "\n".join(lines)


def _by_family(listed: list[dict[str, Any]]) -> list[str]:
    """Return the counts of each family, which is a page, as the rows of a table."""
    counts = Counter((cause["page"], cause["kind"]) for cause in listed)
    second = Counter(cause["page"] for cause in listed if cause["order"] > 1)
    lines = ["| family | " + " | ".join(KINDS) + " | of these beyond first order |"]
    lines.append("|---|" + "--:|" * (len(KINDS) + 1))
    for page in sorted({cause["page"] for cause in listed}):
        row = " | ".join(str(counts[page, kind]) for kind in KINDS)
        lines.append(f"| [{page}](findings/{page}.md) | {row} | {second[page]} |")
    return lines


def _severity(cause: dict[str, Any]) -> int:
    return SEVERITIES.index(cause["severity"])


def _row(cause: dict[str, Any]) -> str:
    upstream = ", ".join(f"#{number}" for number in cause.get("upstream", ()))
    return (
        f"| [{cause['cause']}](findings/{cause['page']}.md) | {cause['severity']} | {ORDERS[cause['order']]} "
        f"| {cause['through']} | {cause.get('where', '')} | {upstream} |"
    )


def written(page: str) -> str:
    """Return a page with the tables between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
