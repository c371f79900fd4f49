"""Covered is what a pair that passed ran; everything else is missing, or excused with a reason."""

import pytest

from gradcheck_cli.features.coverage.gradients_in_text import GradientInText, Package
from gradcheck_cli.features.coverage.measure import Imported, measure
from gradcheck_cli.features.watch.merge_command import join_coverage
from gradcheck_cli.gate import CoverageStatus, GradientCoverage, GradientRun, WrittenGradient
from gradcheck_cli.results import Status
from tests.support.flat_results import make_case, make_pair

F = GradientInText("m", "f", "custom_gradient", "m.py", 4, frozenset({3, 4}))
G = GradientInText("m", "g", "RegisterGradient", "m.py", 9, frozenset({8, 9}), "Mine")


def package(*finds, unreadable=()):
    return Package("m", {"m": "m.py"}, {}, finds, unreadable)


def case(run, *pairs, name="default", reason=""):
    found = tuple(make_pair(label, "y", "x", status, connected=on) for label, status, on in pairs)
    more = {"reason": reason, "pairs": found, "custom_gradients": (run,)}
    return make_case("op", name, "a:1", status=Status.PASSED, duration_s=0.1, **more)


def ran(*pairs, places=("m.py:3",), makers=(), function="m:f"):
    return GradientRun(function, places, makers, pairs)


def status(*cases, finds=(F,), excuses=None, imported=None):
    found = measure([package(*finds)], cases, imported or Imported(), excuses or {})
    return {one.name: (str(one.status), one.reason or ", ".join(one.cases)) for one in found.gradients}


PASSED, MISMATCHED = ("dy/dx", Status.PASSED, True), ("dy/dx", Status.MISMATCHED, True)


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([], ("missing", "no case reaches it")),
        ([case(ran("dy/dx"), PASSED)], ("covered", "op")),
        ([case(ran("dy/dx"), PASSED, name="wide")], ("covered", "op · wide")),
        ([case(ran("dy/dw"), PASSED)], ("missing", "a case makes it, but no pair's gradient runs it")),
        ([case(ran(), PASSED)], ("missing", "a case makes it, but no pair's gradient runs it")),
        ([case(ran("dy/dx"), MISMATCHED)], ("missing", "dy/dx of op ran it, and is mismatched")),
        (
            [case(ran("dy/dx"), ("dy/dx", Status.PASSED, False))],
            ("missing", "a case makes it, but no pair's gradient runs it"),
        ),
        (
            [case(ran("dy/dx"), ("dy/dx", Status.EXPECTED_MISMATCH, True), reason="by design")],
            ("excused", "op: by design"),
        ),
        ([case(ran("dy/dx"), MISMATCHED), case(ran("dy/dx"), PASSED)], ("covered", "op")),
        # A library's wrapper: what was given to TensorFlow is the wrapper's, which closes over the user's.
        ([case(ran("dy/dx", places=("lib.py:80", "m.py:3")), PASSED)], ("covered", "op")),
        # A lambda in a call: the line that made it tells.
        (
            [case(ran("dy/dx", places=(), makers=("other.py:1", "m.py:4", "m.py:9")), PASSED)],
            ("covered", "op"),
        ),
        ([case(ran("dy/dx", places=("other.py:3",)), PASSED)], ("missing", "no case reaches it")),
    ],
)
def test_what_becomes_of_a_gradient(cases, expected):
    assert status(*cases) == {"m:f": expected}


@pytest.mark.parametrize("name", ["m:g", "Mine", "m"])
def test_an_excuse_names_the_function_or_what_is_registered_or_the_module(name):
    assert status(finds=(G,), excuses={name: "gpu: needs one"}) == {"m:g": ("excused", "gpu: needs one")}
    covered = status(case(ran("dy/dx", places=("m.py:8",)), PASSED), finds=(G,), excuses={name: "other"})
    assert covered["m:g"][0] == "covered"


def test_each_pair_of_functions_that_a_factory_is_given_counts():
    good = ran("dy/dx", places=("m.py:3", "m.py:20", "lib.py:8"))
    bad = ran(places=("m.py:3", "m.py:31", "m.py:30"))
    assert status(case(good, PASSED), imported=Imported(made=[good, bad])) == {
        "m:f": ("covered", "op"),
        "m:f with line 20": ("covered", "op"),
        "m:f with lines 30, 31": ("missing", "no case reaches it"),
    }
    # One alone is the text itself; so is one that is given none of the package's functions.
    assert status(case(good, PASSED)) == {"m:f": ("covered", "op")}
    plain = Imported(made=[ran(places=("m.py:3", "lib.py:9"))])
    assert status(case(good, PASSED), imported=plain)["m:f"] == ("missing", "no case reaches it")


@pytest.mark.parametrize(
    "name", ["m.tests.test_a", "m.conftest", "m.deep.test_it.x", "m.it_test", "m.test.x"]
)
def test_a_module_of_tests_that_can_not_be_imported_does_not_count(name):
    planted = GradientInText(name, "f", "custom_gradient", "t.py", 4, frozenset({4}))
    found = status(finds=(planted,), imported=Imported(failures={name: "no pytest"}))
    assert {word for word, _ in found.values()} == {"excused"}
    assert status(finds=(planted,))[f"{name}:f"][0] == "missing"  # imported, it counts


def test_shards_add_up():
    def part(first, second):
        found = (
            WrittenGradient(
                "m:f", "custom_gradient", "m.py", 4, first, ("a",) if first is CoverageStatus.COVERED else ()
            ),
            WrittenGradient("m:g", "custom_gradient", "m.py", 9, second),
        )
        return GradientCoverage(("m",), found, 90)

    covered, missing = CoverageStatus.COVERED, CoverageStatus.MISSING
    whole = join_coverage([part(covered, missing), part(missing, CoverageStatus.EXCUSED)])
    assert [(one.status, one.cases) for one in whole.gradients] == [
        (covered, ("a",)),
        (CoverageStatus.EXCUSED, ()),
    ]
    assert whole.fail_under == 90
    assert join_coverage([]) is None
