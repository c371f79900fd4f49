"""The list of causes says what the pages of findings say, and the page to be filed is made of it."""

import re

from causes import DOCS, KINDS, PAGE, SEVERITIES, causes, written

# Sections that tell of no single cause.
GENERAL = (
    "Faults",
    "The rest",
    "Not supported, with a message",
    "No second order",
    "No second order, with a message",
    "What is no fault",
)


def headings():
    for page in sorted((DOCS / "findings").glob("*.md")):
        for heading in re.findall(r"^#{2,3} (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if heading not in GENERAL:
                yield page.stem, heading.replace("`", "")


def test_every_section_is_a_cause_and_every_cause_a_section():
    listed = [(cause["page"], cause["cause"]) for cause in causes()]
    assert sorted(listed) == sorted(headings())


def test_kinds_and_severities_are_known():
    assert {cause["kind"] for cause in causes()} <= set(KINDS)
    assert {cause["severity"] for cause in causes()} <= set(SEVERITIES)


def test_the_tables_are_of_the_list():
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run python tests/audit/causes.py"
