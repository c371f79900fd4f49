"""Every finding has a code, and every code a page that says what to do."""

import re
from pathlib import Path

import pytest

from gradcheck_cli.gate import Change
from gradcheck_cli.numerics.reasons import Reason
from gradcheck_cli.reporting import codes
from gradcheck_cli.results import CheckResult, Status
from tests.support.flat_results import make_pair

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gradcheck_cli"
GENERIC = {"GC115", "GC200", "GC300"}


def written(pattern):
    """Return what a pattern finds in the package's own code."""
    sources = [file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")]
    return {match for text in sources for match in re.findall(pattern, text)}


def test_codes_and_names_are_there_once():
    assert len({code.number for code in codes.CODES}) == len(codes.CODES)
    assert len({code.name for code in codes.CODES}) == len(codes.CODES)


@pytest.mark.parametrize("code", codes.CODES, ids=str)
def test_each_page_says_what_to_do_and_how_to_excuse(code):
    page = codes.page_of(code)
    assert page.startswith(f"## {code.number} {code.name}\n")
    assert "**Do.**" in page
    assert "**Excuse.**" in page


def test_the_page_of_the_documentation_is_the_packages_own():
    """Else: `cp gradcheck_cli/reporting/codes.md docs/codes.md`."""
    assert (ROOT / "docs" / "codes.md").read_text(encoding="utf-8") == (
        PACKAGE / "reporting" / "codes.md"
    ).read_text(encoding="utf-8")


def test_every_check_that_is_made_has_its_code():
    names = written(r'\b(?:CheckResult|report)\(\s*"(\w+)"') | {
        "repeat",
        "retrace",
        "variables_order",
        "tensorflow",
    }
    assert len(names) > 15
    for name in names:
        assert codes.code_of(f"check/{name}").number not in GENERIC, name


def test_every_kind_of_error_has_its_code():
    kinds = written(r'Case(?:Failed)?Error\(\s*"(\w+)"')
    assert len(kinds) > 12
    for kind in kinds:
        assert codes.code_of(f"error/{kind}").number not in GENERIC, kind


def test_every_reason_and_change_has_its_code():
    for reason in set(Reason) - {Reason.NONE}:
        assert codes.code_of(f"undecided/{reason.name.lower()}").number not in GENERIC, reason
    for change in Change:
        assert codes.code_of(f"baseline/{change}").number.startswith("GC5")


def pair(status, **found):
    return make_pair("dy/dx", "y", "x", status, **found)


def test_pairs_and_checks_are_told_apart():
    assert codes.code_for(pair(Status.PASSED)) is None
    assert str(codes.code_for(pair(Status.MISMATCHED))) == "GC101 value"
    assert str(codes.code_for(pair(Status.MISMATCHED, mismatch="nonfinite and value"))) == "GC104 nonfinite"
    assert str(codes.code_for(pair(Status.EXPECTED_MISMATCH, mismatch="none"))) == "GC103 none"
    assert str(codes.code_for(pair(Status.INCONCLUSIVE))) == "GC200 undecided"
    assert str(codes.code_for(pair(Status.INCONCLUSIVE, undecided="jump"))) == "GC211 jump"
    second = CheckResult("second_order.linearity", Status.MISMATCHED)
    assert str(codes.code_for(second)) == "GC102 linearity"
    assert codes.code_for(CheckResult("linearity", Status.PASSED)) is None
