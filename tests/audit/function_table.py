"""The audit's table of public functions, Keras and TensorFlow Probability, as the specs are written.

python -m tests.audit.function_table

writes it between its marks in docs/audit.md; a test compares it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from gradcheck_cli.spec.load import load
from tests.audit import test_functions, test_keras
from tests.audit.audit_table import PAGE, ROOT, between

BEGIN, END = "<!-- functions: begin -->", "<!-- functions: end -->"
WORDS = ("covered", "excepted", "missing")
HEADING = ("family", "offered", *WORDS, "cases", "second order", "found wrong")
FOLDERS = ("functions", "keras", "probability")


@dataclass
class Family:
    """A module: names by whether they are covered, excepted or missing; and what the specs have of it."""

    names: Counter = field(default_factory=Counter)
    cases: int = 0
    second_order: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)

    def __add__(self, other):
        return Family(
            self.names + other.names,
            self.cases + other.cases,
            self.second_order | other.second_order,
            self.wrong | other.wrong,
        )


def families():
    """Return each family by its name, in the order of the modules."""
    found = defaultdict(Family)
    for family, is_checked, is_excepted in _names():
        found[family].names["covered" if is_checked else "excepted" if is_excepted else "missing"] += 1
    for case in load([ROOT / "specs" / folder for folder in FOLDERS]).cases:
        family = found[_family_of(case)]
        family.cases += len(case.running.modes)
        if case.judging.second_order:
            family.second_order.add(case.op)
        if "mismatch" in {case.expected.expect, *(rule.expect for rule in case.expected.pairs)}:
            family.wrong.add(case.op)
    return found


def _names():
    checked, excepted = test_functions.checked_functions(), test_functions.excepted_names()
    for names in test_functions.offered_functions():
        short = {name.partition(":")[2] for name in names}
        yield names[0].partition(":")[0], set(names) & checked, (short | set(names)) & excepted
    parts = test_keras.checked_parts()
    for names in test_keras.offered_parts():
        family = f"keras.{names[0].partition('.')[0]}"
        yield family, set(names) & parts, set(names) & test_keras.EXCEPTIONS.keys()


def _family_of(case):
    """Return the module that a case's function is of, or what functions beside the specs are there for."""
    folder = Path(case.origin.path).parent.name
    module = case.code.forward.target.partition(":")[0]
    if folder == "functions":
        return module if module in test_functions.MODULES else "several of these at once"
    if folder == "keras":
        return module if module.startswith("keras.") else "keras.layers"
    return "tensorflow_probability"


def table():
    """Return the table as Markdown."""
    found = families()
    rows = [_row(name, family) for name, family in found.items()]
    rows.append(tuple(f"**{cell}**" for cell in _row("all", sum(found.values(), Family()))))
    lines = ["| " + " | ".join(row) + " |" for row in (HEADING, *rows)]
    lines.insert(1, "|---|" + "--:|" * (len(HEADING) - 1))
    return "\n".join(lines)


def _row(name, family):
    names = (family.names.total(), *(family.names[word] for word in WORDS)) if family.names else ("",) * 4
    found = (family.cases, len(family.second_order), len(family.wrong))
    return (name, *(f"{count:,}" if count != "" else "" for count in (*names, *found)))


def written(page):
    """Return a page with the table between its marks."""
    return between(page, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
