"""What became of corrupted gradients, as a table, JSON and CSV."""

import pytest

from gradcheck_cli.features.mutation.mutate_command import Tally, case_lines, tally_lines
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import CaseError, CheckResult, Mutant, Report, Status
from tests.support.flat_results import make_case

CAUGHT = Mutant("dy/dx", "sign", "caught", 1, 2.0, 1e-6)
MISSED = Mutant("dy/dx", "factor", "missed", 1, 1e-2, 0.1, 2)
OPEN = Mutant("d2y/dx.dx", "none", "undecided", 2, message="the numbers can't decide.")


def case(*mutants, name="default", **changes):
    fields = {"status": Status.PASSED, "mutants": mutants, **changes}
    return make_case("huber", name, "specs/huber.yaml:1", duration_s=0.1, **fields)


def report(*cases):
    return Report("0.1.0", "2.21.0", "3.11.7", 0, cases, duration_s=2.0)


ALL = report(case(CAUGHT, MISSED, OPEN))


def test_a_case_that_could_not_be_tried_says_why():
    failed = case(status=Status.ERROR, error=CaseError("forward", "the forward raised."), name="wide")
    assert layout.plain(case_lines(failed, width=100)) == (
        "specs/huber.yaml · huber · float64 · graph · case wide\n  not tried: forward: the forward raised.\n"
    )
    skipped = case(status=Status.SKIPPED, checks=(CheckResult("tensorflow", Status.SKIPPED, "it is old."),))
    assert "not tried: it is old." in layout.plain(case_lines(skipped, width=100))


def test_the_tally():
    lines = layout.plain(tally_lines(ALL, Tally(ALL), width=99)).splitlines()
    assert lines == [
        "corruption                  tried  caught  undecided  missed",
        "factor: multiplied by 1.01      1       0          0       1",
        "sign: its sign flipped          1       1          0       0",
        "none: None in its place         1       0          1       0",
        "1 case · 1 of 3 corruptions called a mismatch (33.3 %), 1 undecided, 1 missed                 2.0 s",
    ]


@pytest.mark.parametrize(("caught", "shown"), [(9999, "99.9 %"), (10000, "100.0 %")])
def test_all_is_only_said_of_all(caught, shown):
    every = report(case(*[CAUGHT] * caught, *[MISSED] * (10000 - caught)))
    assert f"({shown})" in layout.plain(tally_lines(every, Tally(every), width=100))
