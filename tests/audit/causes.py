"""The pages of causes, one in docs/findings/FAMILY/ each, and the lists of them that other pages have.

python -m tests.audit.causes

writes the lists between their marks: in docs/gradcheck_findings.md, in the page of each family and in the
navigation. Tests compare them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from tests.audit.audit_table import between
from tests.audit.reports import REQUESTS, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "docs" / "findings"
PAGE, NAVIGATION = ROOT / "docs" / "gradcheck_findings.md", ROOT / ".mkdocs.yml"
UPSTREAM = ROOT / "docs" / "upstream.md"
KINDS = ("fault", "loud", "crash", "undefined", "convention")
SEVERITIES = ("severe", "moderate", "mild")
ORDERS = ("first order", "second order", "third order")
TRACKERS = {
    "tensorflow_probability/": "TensorFlow Probability",
    "keras/": "Keras",
    "tensorflow/": "TensorFlow",
}
STATES = ("known", "mended", "new")
ROWS = ("kind", "for whom", "reached through", "where", "tried", "upstream", "in the specs")


@dataclass(frozen=True)
class Cause:
    """A page: its facts by the names of the rows, its program, what that prints, and what it should."""

    path: Path
    title: str
    facts: dict[str, str]
    program: str
    printed: str
    expected: str

    @property
    def family(self) -> str:
        return self.path.parent.name

    @property
    def kind(self) -> str:
        return self.facts["kind"].split(", ")[0]

    @property
    def severity(self) -> str:
        return self.facts["kind"].split(", ")[1]

    @property
    def order(self) -> str:
        return self.facts["kind"].split(", ")[2]

    @property
    def tracker(self) -> str:
        """Whose line is at fault, or who offers the function."""
        where = self.facts.get("where", "").lstrip("`")
        if self.family == "probability":
            return "TensorFlow Probability"
        for start, tracker in TRACKERS.items():
            if where.startswith(start):
                return tracker
        return "Keras" if self.facts["reached through"].startswith("`keras.") else "TensorFlow"

    @property
    def state(self) -> str:
        """Whether upstream knows of it, has mended it, or a search found nothing."""
        upstream = self.facts["upstream"]
        if upstream.startswith("mended"):
            return "mended"
        if upstream.startswith("none found"):
            return "new"
        return "known"

    @property
    def rank(self) -> tuple[int, int, str]:
        """Where it stands in a list: severe ones first."""
        return KINDS.index(self.kind), SEVERITIES.index(self.severity), self.title.lower()


def read(path: Path) -> Cause:
    text = path.read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)
    printed, expected = (
        re.search(rf"{heading}:\n\n```text\n(.*?)```", text, flags=re.DOTALL)
        for heading in ("It prints", "Expected")
    )
    return Cause(
        path=path,
        title=text.partition("\n")[0].removeprefix("# "),
        facts=dict(re.findall(r"^\| (\w[\w ]*) \| (.*) \|$", text.split("```")[0], flags=re.MULTILINE)),
        program=program[1] if program else "",
        printed=printed[1].rstrip("\n") if printed else "",
        expected=expected[1].rstrip("\n") if expected else "",
    )


def causes() -> list[Cause]:
    """Return what each page says, by family and, in a family, severe ones first."""
    found = map(read, FINDINGS.glob("*/*.md"))
    return sorted(found, key=lambda cause: (cause.family, cause.rank))


def tables() -> str:
    """Return the counts, and a table of each kind, severe causes first."""
    listed = causes()
    counts = Counter((cause.kind, cause.severity) for cause in listed)
    lines = [
        f"{len(listed)} causes:",
        "",
        "| kind | " + " | ".join(SEVERITIES) + " | all |",
        "|---|--:|--:|--:|--:|",
    ]
    for kind in KINDS:
        row = [counts[kind, severity] for severity in SEVERITIES]
        lines.append(f"| {kind} | " + " | ".join(map(str, row)) + f" | {sum(row)} |")
    lines += ["", *_by_family(listed), "", *_by_tracker(listed)]
    for kind in KINDS:
        lines += [
            "",
            f"## {kind.capitalize()}",
            "",
            "| cause | severity | order | reached through | tracker | upstream |",
        ]
        of_kind = sorted((cause for cause in listed if cause.kind == kind), key=lambda cause: cause.rank)
        lines += ["|---|---|---|---|---|---|", *map(_row, of_kind)]
    return "\n".join(lines)


def _by_family(listed: list[Cause]) -> Iterator[str]:
    yield "| family | " + " | ".join(KINDS) + " | of these beyond first order |"
    yield "|---|" + "--:|" * (len(KINDS) + 1)
    for family, members in groupby(listed, key=lambda cause: cause.family):
        of_family = list(members)
        counts = Counter(cause.kind for cause in of_family)
        beyond = sum(cause.order != ORDERS[0] for cause in of_family)
        row = " | ".join(str(counts[kind]) for kind in KINDS)
        yield f"| [{family}](findings/{family}.md) | {row} | {beyond} |"


def _by_tracker(listed: list[Cause]) -> Iterator[str]:
    yield "| tracker | " + " | ".join(STATES) + " | all |"
    yield "|---|" + "--:|" * (len(STATES) + 1)
    for tracker in sorted(TRACKERS.values(), key=len):
        counts = Counter(cause.state for cause in listed if cause.tracker == tracker)
        row = [*(counts[state] for state in STATES), counts.total()]
        yield f"| {tracker} | " + " | ".join(map(str, row)) + " |"
    with_programs = sum(bool(cause.program) for cause in listed)
    yield ""
    yield (
        f"{with_programs} of the pages have a program; a test runs it. *Known* has an issue or a pull "
        "request, *mended* a merged one, *new* was searched for and not found."
    )


def _row(cause: Cause) -> str:
    numbers = ", ".join(
        re.findall(r"(?<=tensorflow)(?:/tensorflow)?((?:/probability)?#\d+)", cause.facts["upstream"])
    )
    link = cause.path.relative_to(PAGE.parent).as_posix()
    upstream = f"{cause.state}: {numbers}" if numbers else cause.state
    facts = (cause.severity, cause.order.split()[0], cause.facts["reached through"], cause.tracker, upstream)
    return f"| [{cause.title}]({link}) | " + " | ".join(facts) + " |"


def reports() -> str:
    """Return the ten reports in the form that the trackers ask for."""
    by_stem = {cause.path.stem: cause for cause in causes()}
    lines = ["| | tracker | what is asked |", "|--:|---|---|"]
    for number, request in enumerate(REQUESTS, 1):
        tracker = by_stem[request.cause].tracker
        lines.append(f"| {number} | {tracker} | {request.title}: {request.ask} |")
    for number, request in enumerate(REQUESTS, 1):
        lines += ["", *_report(number, request, by_stem[request.cause])]
    return "\n".join(lines)


def _report(number: int, request: Request, cause: Cause) -> Iterator[str]:
    text = cause.path.read_text(encoding="utf-8")
    yield f"## {number}. {request.title}"
    yield ""
    yield f"- Tracker: {cause.tracker}. Known there: {cause.facts['upstream']}."
    yield f"- Versions: {cause.facts['tried']}."
    yield f"- At fault: {cause.facts['where']}."
    yield f"- Page: [{cause.title}]({cause.path.relative_to(UPSTREAM.parent).as_posix()})."
    yield ""
    yield text[text.index("```python") :].rstrip()
    if request.old:
        yield ""
        yield "A mend, which was tried:"
        yield ""
        yield "```diff"
        yield from (f"- {line.strip()}" for line in request.old.splitlines())
        yield from (f"+ {line.strip()}" for line in request.new.splitlines())
        yield "```"


def members(family: str) -> str:
    """Return a family's causes as a list of links."""
    return "\n".join(
        f"- [{cause.title}]({cause.path.relative_to(FINDINGS).as_posix()}): {cause.facts['kind']}"
        for cause in causes()
        if cause.family == family
    )


def navigation() -> str:
    """Return the pages of findings as entries of the site's navigation."""
    found = causes()
    lines = []
    for page in sorted(FINDINGS.glob("*.md")):
        lines += [f"          - {page.stem}:", f"              - findings/{page.name}"]
        lines += [
            f"              - findings/{cause.path.relative_to(FINDINGS).as_posix()}"
            for cause in found
            if cause.family == page.stem
        ]
    return "\n".join(lines)


def written() -> dict[Path, str]:
    """Return each page that lists causes, with its list between its marks."""
    lists = {PAGE: ("<!-- {} -->", tables()), NAVIGATION: ("          # {}", navigation())}
    lists[UPSTREAM] = ("<!-- {} -->", reports())
    for family in {cause.family for cause in causes()}:
        lists[FINDINGS / f"{family}.md"] = ("<!-- {} -->", members(family))
    marks = ("causes: begin", "causes: end")
    return {
        path: between(path.read_text(encoding="utf-8"), *map(mark.format, marks), text)
        for path, (mark, text) in lists.items()
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
