"""The one list of structural checks: what a spec may turn off, and that each stage has its own."""

from __future__ import annotations

from gradcheck_cli.checking.checks.all_checks import CHECKS, keep_one_each
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec import words
from gradcheck_cli.spec.spec_format import model_of


def test_a_spec_may_turn_off_what_the_list_says():
    assert set(words.CHECKS) < {check.name for check in CHECKS}
    assert set(words.CHECKS) == set(model_of("ChecksModel")["properties"])


def test_of_results_under_one_name_the_first_that_did_not_pass_is_kept():
    passed, first, second = (
        CheckResult("repeat", status, message)
        for status, message in [
            (Status.PASSED, ""),
            (Status.INCONCLUSIVE, "first"),
            (Status.MISMATCHED, "second"),
        ]
    )
    other = CheckResult("form", Status.PASSED)
    assert keep_one_each([passed, other, first, second]) == [first, other]
