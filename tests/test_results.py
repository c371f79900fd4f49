from dataclasses import replace

import pytest

from gradcheck_cli.gate import Shard
from gradcheck_cli.results import (
    ZERO_SIZE,
    CaseError,
    CheckResult,
    Report,
    Status,
    case_status,
    judge_empty_pairs,
)
from tests.support.flat_results import altered, make_case, make_pair

PASSED, MISMATCHED, INCONCLUSIVE = Status.PASSED, Status.MISMATCHED, Status.INCONCLUSIVE
ERROR, SKIPPED = Status.ERROR, Status.SKIPPED
EXPECTED, UNEXPECTED = Status.EXPECTED_MISMATCH, Status.UNEXPECTED_PASS


def pairs(*statuses):
    return tuple(
        make_pair(f"dy/dx{number}", "y", f"x{number}", status) for number, status in enumerate(statuses)
    )


def checks(*statuses):
    return tuple(CheckResult(f"check{number}", status) for number, status in enumerate(statuses))


def case(status, pair=(), check=(), error=None, spec="a.yaml:1"):
    groups = {"pairs": pairs(*pair), "checks": checks(*check)}
    return make_case("op", "default", spec, "graph", "float64", status, 0.1, "", error=error, **groups)


def report(*cases, **changes):
    return altered(Report("0.1.0", "2.21.0", "3.11.7", 0, cases), **changes)


@pytest.mark.parametrize(
    ("pair", "check", "status"),
    [
        ([PASSED], [], PASSED),
        ([PASSED, PASSED], [PASSED], PASSED),
        ([PASSED, MISMATCHED, INCONCLUSIVE], [], MISMATCHED),
        ([PASSED, INCONCLUSIVE], [], INCONCLUSIVE),
        ([PASSED], [MISMATCHED], MISMATCHED),
        ([PASSED], [INCONCLUSIVE], INCONCLUSIVE),
        ([INCONCLUSIVE], [MISMATCHED], MISMATCHED),
        ([EXPECTED, PASSED], [], EXPECTED),
        ([EXPECTED, INCONCLUSIVE], [], INCONCLUSIVE),
        ([EXPECTED, MISMATCHED], [], MISMATCHED),
        ([UNEXPECTED, PASSED], [], UNEXPECTED),
        ([PASSED], [UNEXPECTED], UNEXPECTED),
        ([PASSED, SKIPPED], [], PASSED),
        ([PASSED], [SKIPPED], PASSED),
        # Nothing unchecked is green.
        ([SKIPPED], [], SKIPPED),
        ([SKIPPED, SKIPPED], [PASSED], SKIPPED),
        ([], [], INCONCLUSIVE),
        ([], [PASSED], INCONCLUSIVE),
        ([], [INCONCLUSIVE], INCONCLUSIVE),
        ([], [MISMATCHED], MISMATCHED),
    ],
)
def test_a_case_is_as_grave_as_the_gravest_in_it(pair, check, status):
    assert case_status(pairs(*pair), checks(*check)) is status


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 0),
        ([PASSED, EXPECTED], 0),
        ([PASSED, MISMATCHED], 1),
        ([UNEXPECTED], 1),
        ([PASSED, INCONCLUSIVE], 3),
        ([ERROR], 3),
        ([SKIPPED, PASSED], 3),
        ([ERROR, INCONCLUSIVE, MISMATCHED], 1),
    ],
)
def test_exit_codes(statuses, code):
    cases = [altered(case(status), case=f"case{index}") for index, status in enumerate(statuses)]
    assert report(*cases).exit_code == code
    assert report(*cases, interrupted=True).exit_code == 130


def test_the_summary_counts_ops_cases_pairs_by_status_and_failed_checks():
    found = report(
        case(MISMATCHED, [PASSED, MISMATCHED, SKIPPED]),
        case(MISMATCHED, [PASSED], [MISMATCHED, PASSED, SKIPPED]),
        case(ERROR, error=CaseError("forward", "no"), spec="b.yaml:1"),
    ).summary
    counts = {"specs": 2, "cases": 3, "pairs": 4, "passed": 2, "mismatched": 1, "error": 1, "skipped": 1}
    assert {word: count for word, count in found.items() if count} == {**counts, "failed_checks": 1}
    assert found.keys() >= {"known", "inconclusive", "expected_mismatch", "ignored", "unexpected_pass"}


def in_modes(**statuses):
    return report(*(replace(case(status), mode=mode) for mode, status in statuses.items()))


def test_a_mode_that_is_skipped_is_no_matter_where_another_is_checked():
    assert in_modes(graph=PASSED, xla=SKIPPED).exit_code == 0
    assert in_modes(eager=SKIPPED, xla=SKIPPED).exit_code == 3
    assert in_modes(graph=INCONCLUSIVE, xla=SKIPPED).exit_code == 3
    assert in_modes(graph=MISMATCHED, xla=SKIPPED).exit_code == 1


def test_a_case_for_other_versions_fails_a_run_that_is_strict_or_has_nothing_else():
    other = replace(case(SKIPPED), checks=(CheckResult("tensorflow", SKIPPED),))
    assert other.is_for_another_version
    assert report(other).exit_code == 3
    assert report(other, shard=Shard(1, 2, ())).exit_code == 0  # the other part may have run some
    assert report().exit_code == 0  # nothing was to be checked
    run = report(other, case(PASSED, [PASSED]))
    assert (run.exit_code, run.is_fine(other), run.summary["skipped"]) == (0, True, 1)
    strict = report(other, case(PASSED, [PASSED]), strict=True)
    assert strict.exit_code == 3
    assert not strict.is_fine(other)
    # Only what is skipped as a whole: of a case that ran, nothing may go unsaid.
    ran = replace(case(PASSED, [PASSED]), checks=(CheckResult("tensorflow", SKIPPED),))
    assert not ran.is_for_another_version


def case_of(name, elements, status=PASSED, op="op", **values):
    note = "" if elements else ZERO_SIZE
    boxes = make_pair("dy/dboxes", "y", "boxes", status, elements=elements, note=note)
    scores = make_pair("dy/dscores", "y", "scores", PASSED, elements=6)
    return make_case(op, name, "a.yaml:1", status=PASSED, pairs=(boxes, scores), **values)


EMPTY = case_of("empty", 0)


@pytest.mark.parametrize(
    ("case", "others", "status"),
    [
        (EMPTY, [], INCONCLUSIVE),  # the pair beside it has elements, and says nothing of this one
        (EMPTY, [case_of("full", 8)], PASSED),
        (EMPTY, [case_of("full", 8, INCONCLUSIVE)], PASSED),  # which fails the run by itself
        (EMPTY, [case_of("full", 0, SKIPPED)], INCONCLUSIVE),
        (EMPTY, [case_of("other op", 8, op="other")], INCONCLUSIVE),
        (case_of("empty", 0, checks_off=("all_zero",)), [], PASSED),
        (case_of("empty", 0, EXPECTED), [], EXPECTED),
    ],
)
def test_a_pair_without_elements_passes_only_beside_a_case_in_which_it_has_some(case, others, status):
    judged = judge_empty_pairs(case, [case, *others])
    assert judged.pairs[0].status is status
    assert judged.pairs[1].status is PASSED
    assert judged.status is (status if status is not SKIPPED else PASSED)
    if status is INCONCLUSIVE:
        assert judged.pairs[0].message == (
            "no case that ran has an element of this pair: its shape alone was checked; add a case with "
            "elements."
        )
