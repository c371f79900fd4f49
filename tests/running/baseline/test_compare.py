"""What counts as a change since a baseline, and what doesn't."""

import pytest

from gradcheck_cli.features.baseline.lock import Extent, LockedPair, compare, entries_of, is_same
from gradcheck_cli.gate import Change, Fingerprint, Projection, Tolerance
from gradcheck_cli.results import Status, WorstElement
from tests.support.flat_results import altered, make_case, make_pair


def print_of(analytic, forward):
    return Fingerprint((Projection(analytic, 1e-8),), (Projection(forward, 1e-8),))


GRADIENT_MESSAGE = "the gradient has changed, its forward hasn't: a projection of it was 1.00000000e+00, and is 1.00100000e+00"  # noqa: E501 (one message)
NAME = ("huber", "default", "float64", "graph", "dy/dx", "specs/huber.yaml")
BASE = LockedPair(
    *NAME, status=Status.PASSED, connected=True, error=1e-13, noise=3e-12, allowed=1e-6,
    tolerance=Tolerance(1e-6, 1e-10), fingerprint=print_of(1.0, 2.0),
)  # fmt: skip


def changes(old, new, **options):
    found = compare({old.key: old}, {new.key: new} if new else {}, **options)
    return [(finding.change, finding.message) for finding in found]


def kinds(new, old=BASE, **options):
    return [change for change, _ in changes(old, new, **options)]


@pytest.mark.parametrize(
    "different",
    [
        {},
        {"error": 1e-12},  # within the noise
        {"error": 2.9e-11},  # ten times the noise, and not beyond
        {"error": 0.0},  # better
        {"noise": 1e-8, "error": 9e-8},  # the numeric value itself is worth no more
        {"allowed": 5e-6},  # of another worst element
        {"allowed": 1e-9},
        {"spec": "specs/moved.yaml"},
        {"tolerance": Tolerance(1e-7, 1e-11)},  # tighter
        {"tolerance": Tolerance(1e-6, 0.0, 1e-9)},
        {"fingerprint": print_of(1.0 + 1.9e-8, 2.0 - 1.9e-8)},  # another machine's rounding
        {"fingerprint": None, "tolerance": None},
    ],
)
def test_no_change(different):
    assert kinds(altered(BASE, **different)) == []


@pytest.mark.parametrize(
    ("different", "change", "message"),
    [
        ({"error": 1e-7}, Change.DRIFTED, "error 1.0e-13 -> 1.0e-07, still within the tolerance of 1.0e-06"),
        (
            {"error": 1.1e-9},
            Change.DRIFTED,
            "error 1.0e-13 -> 1.1e-09, still within the tolerance of 1.0e-06",
        ),
        ({"tolerance": Tolerance(1e-3, 1e-10)}, Change.LOOSENED, "rtol 1.0e-06 -> 1.0e-03"),
        (
            {"tolerance": Tolerance(1e-6, 0.0, 1e-2)},
            Change.LOOSENED,
            "atol scaled (1.0e-06 at the worst element) -> 1.0e-02",
        ),
        (
            {"tolerance": Tolerance(1e-6, 1e-5)},
            Change.LOOSENED,
            "scaled tolerance 1.0e-10 -> 1.0e-05 of the row",
        ),
        ({"fingerprint": print_of(1.001, 2.0)}, Change.GRADIENT, GRADIENT_MESSAGE),
        (
            {"fingerprint": print_of(1.0, 2.001), "error": 1e-7},
            Change.FORWARD,
            "the forward has changed (error 1.0e-13 -> 1.0e-07)",
        ),
        (
            {"fingerprint": print_of(-1.0, -2.0)},
            Change.BOTH,
            "the forward and the gradient have changed (error 1.0e-13 -> 1.0e-13)",
        ),
        ({"status": Status.SKIPPED}, Change.WEAKENED, "was passed, and is skipped now"),
        (
            {"status": Status.EXPECTED_MISMATCH},
            Change.WEAKENED,
            "was right, and the spec expects it to be wrong now",
        ),
        ({"connected": False, "fingerprint": None}, Change.WEAKENED, "had a gradient, and has None now"),
    ],
)
def test_a_change(different, change, message):
    assert changes(BASE, altered(BASE, **different)) == [(change, message)]


def test_a_loosened_tolerance_does_not_raise_what_counts_as_drift():
    loose = altered(BASE, error=1e-7, allowed=1.0, tolerance=Tolerance(1e-6, 0.0, 1.0))
    assert set(kinds(loose)) == {Change.LOOSENED, Change.DRIFTED}


@pytest.mark.parametrize(
    ("was", "now", "error", "change"),
    [
        (Status.MISMATCHED, Status.MISMATCHED, 0.15, [Change.DRIFTED]),  # 150 times larger
        (Status.MISMATCHED, Status.MISMATCHED, 5e-3, []),
        (Status.MISMATCHED, Status.MISMATCHED, float("inf"), [Change.DRIFTED]),
        (Status.MISMATCHED, Status.MISMATCHED, 1e-9, []),
        (Status.INCONCLUSIVE, Status.MISMATCHED, 1e-3, [Change.BROKE]),
        (Status.MISMATCHED, Status.INCONCLUSIVE, 1.0, []),
        (Status.INCONCLUSIVE, Status.INCONCLUSIVE, 1.0, []),
    ],
)
def test_between_two_reports_what_was_wrong_may_get_worse(was, now, error, change):
    old = altered(BASE, status=was, error=1e-3)
    new = altered(old, status=now, error=error)
    assert kinds(new, old, was_expected=lambda _: True) == change
    assert kinds(new, old) == []


def test_a_pair_that_is_gone_or_new():
    other = altered(BASE, pair="dy/dz")
    found = compare({BASE.key: BASE}, {other.key: other})
    assert [(one.pair, one.change, one.is_failure) for one in found] == [
        ("dy/dx", Change.VANISHED, True),
        ("dy/dz", Change.NEW, False),
    ]
    assert found[0].message == "was checked in specs/huber.yaml, and no longer is"
    assert compare({BASE.key: BASE}, {}, is_expected=lambda _: False) == ()


@pytest.mark.parametrize(
    ("different", "message"),
    [
        ({"extent": Extent(("linearity",), samples=2)}, "check linearity is turned off now"),
        ({"extent": Extent(samples=1)}, "was checked at 2 points, and is at 1 now"),
    ],
)
def test_less_of_a_case_is_checked(different, message):
    old = [altered(BASE, extent=Extent(samples=2), pair=pair) for pair in ("dy/dx", "dy/dz")]
    new = [altered(entry, **different) for entry in old]
    keyed = [{entry.key: entry for entry in entries} for entries in (old, new)]
    (found,) = compare(*keyed)  # once, not for each pair
    assert (found.change, found.message) == (Change.WEAKENED, message)
    assert compare(*reversed(keyed)) == ()
    assert not is_same(new[0], old[0])


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (float("inf"), float("inf"), False),
        (float("nan"), float("nan"), False),
        (float("inf"), float("-inf"), True),
        (1.0, float("nan"), True),
    ],
)
def test_projections_that_are_not_finite(before, after, changed):
    old = altered(BASE, fingerprint=print_of(before, 2.0))
    new = altered(BASE, fingerprint=print_of(after, 2.0))
    assert kinds(new, old) == ([Change.GRADIENT] if changed else [])


@pytest.mark.parametrize(
    ("different", "same"),
    [
        ({}, True),
        ({"error": 1e-12, "noise": 5e-12, "allowed": 1.1e-6}, True),
        ({"error": 1e-7}, False),
        ({"spec": "elsewhere.yaml"}, False),
        ({"tolerance": Tolerance(1e-7, 1e-10)}, False),  # tightened: from now on that counts
        ({"fingerprint": None}, False),
        ({"fingerprint": print_of(1.5, 2.5)}, False),
        ({"status": Status.EXPECTED_MISMATCH}, False),
    ],
)
def test_what_a_baseline_keeps_as_it_is(different, same):
    assert is_same(BASE, altered(BASE, **different)) is same


def test_entries_tell_of_the_worst_element():
    worst = WorstElement((0,), (0,), 1.0, 1.5, 1e-9)
    pair = make_pair("dy/dx", "y", "x", Status.PASSED, max_abs_error=7.0, uncertainty=1e-9, worst=worst)
    case = make_case(
        "huber", "wide", "a/b.yaml:12", "graph", "float64", Status.PASSED, 1.0, "", pairs=(pair,)
    )
    (entry,) = entries_of([case]).values()
    assert entry.key == ("huber", "wide", "float64", "graph", "dy/dx")
    assert (entry.error, entry.noise, entry.spec) == (0.5, 1e-9, "a/b.yaml")
    infinite = altered(pair, worst=altered(worst, analytic=float("nan")))
    (entry,) = entries_of([altered(case, pairs=(infinite,))]).values()
    assert entry.error == float("inf")
    equal = altered(pair, worst=altered(worst, analytic=float("inf"), numeric=float("inf")))
    (entry,) = entries_of([altered(case, pairs=(equal,))]).values()
    assert entry.error == 0.0


@pytest.mark.parametrize(
    ("before", "after", "weakened"),
    [
        ((4, 4), (3, 4), True),
        ((4, 4), (2, 4), True),
        ((4, 4), (2, 2), False),  # a branch was taken out of the code
        ((3, 4), (4, 4), False),
        ((3, 4), (3, 6), False),  # one was added, and isn't seen yet
        (None, (3, 4), False),
        ((4, 4), None, False),
    ],
)
def test_fewer_sides_of_branches_are_less(before, after, weakened):
    found = changes(altered(BASE, extent=Extent(sides=before)), altered(BASE, extent=Extent(sides=after)))
    assert [change for change, _ in found] == [Change.WEAKENED] * weakened
    if weakened:
        assert found[0][1] == f"saw 4 of 4 sides of branches, and sees {after[0]} of 4 now"
