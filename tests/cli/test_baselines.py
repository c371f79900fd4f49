"""`--baseline`, `--update-baseline` and `gradcheck diff`, told what a run found."""

import json

import pytest

from gradcheck_cli.gate import Fingerprint, Projection, Tolerance
from gradcheck_cli.results import CheckResult, Status
from tests.support.flat_results import altered

pytestmark = pytest.mark.feature

MEMORY = {
    "tolerance": Tolerance(1e-6, 1e-10),
    "fingerprint": Fingerprint((Projection(1.0, 1e-8),), (Projection(2.0, 1e-8),)),
    "max_abs_error": 1e-13,
    "allowed": 1e-6,
}


def with_memory(result, **changes):
    pairs = tuple(altered(pair, **{**MEMORY, **changes}) for pair in result.pairs)
    return altered(result, pairs=pairs)


@pytest.fixture
def project(engine, a_case, a_result, tmp_path, monkeypatch):
    """Two ops with a baseline of both."""
    monkeypatch.chdir(tmp_path)
    engine.cases = [a_case("huber"), a_case("conv")]
    engine.results = [with_memory(a_result("huber")), with_memory(a_result("conv"))]
    return engine


@pytest.fixture
def recorded(project, invoke):
    result = invoke("run", "--update-baseline", "g.lock")
    assert (result.code, result.err) == (0, "g.lock: 2 new\n")
    return project


def test_what_is_new_is_told_and_fine(recorded, invoke, a_case, a_result):
    recorded.cases.append(a_case("fresh"))
    recorded.results.append(with_memory(a_result("fresh")))
    result = invoke("run", "--baseline", "g.lock")
    assert result.code == 0
    assert "  new GC509  fresh · dy/dx\nsince the baseline: 1 new\n" in result.out


def test_a_deleted_spec_fails_where_another_part_is_run_too(recorded, invoke):
    del recorded.cases[1], recorded.results[1]
    assert invoke("run", "--baseline", "g.lock", "-k", "huber", "specs").code == 1


def test_what_is_not_asked_for_has_not_vanished(recorded, invoke):
    recorded.results = recorded.results[:1]
    assert invoke("run", "--baseline", "g.lock", "-k", "huber", "specs").code == 0
    recorded.cases = recorded.cases[:1]
    assert invoke("run", "--baseline", "g.lock", "specs/huber.yaml").code == 0


def test_a_case_that_fails_is_not_said_to_have_vanished(recorded, invoke, a_result):
    recorded.results[0] = a_result("huber", Status.ERROR)
    result = invoke("run", "--baseline", "g.lock", "specs")
    assert result.code == 3
    assert "VANISHED" not in result.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--baseline", "none.lock"],
            "none.lock: can't be read: No such file or directory. Write it with --update",
        ),
        (["--baseline", "g.lock", "--update-baseline", "g.lock"], "--baseline and --update-baseline exclude"),
        (["--baseline", "g.lock", "--seed", "3"], "--seed draws other inputs than a baseline remembers"),
        (["--update-baseline", "no/such/g.lock"], "there is no folder 'no/such' to write 'g.lock' into."),
    ],
)
def test_what_can_not_be_compared(project, invoke, options, message):
    result = invoke("run", *options)
    assert result.code == 2
    assert message in result.err
    assert "cases" not in project.asked


def test_two_reports_are_compared(project, invoke, a_result):
    invoke("run", "--report", "json=old.json")
    project.results[0] = with_memory(a_result("huber"), max_abs_error=1e-7)
    project.results[1] = with_memory(a_result("conv", Status.MISMATCHED))
    invoke("run", "--report", "json=new.json")
    result = invoke("diff", "old.json", "new.json")
    assert result.code == 1
    assert result.out == (
        "  BROKE GC506  conv · dy/dx\n"
        "    was passed, and is mismatched now\n"
        "  DRIFTED GC503  huber · dy/dx\n"
        "    error 1.0e-13 -> 1.0e-07, still within the tolerance of 1.0e-06\n"
        "old.json -> new.json: 1 broke, 1 drifted\n"
    )
    changes = json.loads(invoke("diff", "old.json", "new.json", "--format", "json").out)["changes"]
    assert [change["change"] for change in changes] == ["broke", "drifted"]


def test_a_case_that_can_not_be_checked_any_more_is_broken(project, invoke, a_result):
    invoke("run", "--report", "json=old.json")
    project.results[0] = a_result("huber", Status.ERROR)
    invoke("run", "--report", "json=new.json")
    result = invoke("diff", "old.json", "new.json")
    assert result.code == 1
    assert "  BROKE GC506  huber · case\n    didn't fail, and is error now (" in result.out
    assert "  VANISHED GC501  huber · dy/dx\n" in result.out
    mended = invoke("diff", "new.json", "old.json")
    assert (mended.code, mended.err) == (0, "")
    assert mended.out.startswith("  mended GC511  huber · case\n")


def test_what_was_not_asked_for_has_not_vanished(project, invoke):
    invoke("run", "--report", "json=whole.json")
    project.results = project.results[:1]
    invoke("run", "--op", "huber", "--report", "json=part.json")
    result = invoke("diff", "whole.json", "part.json")
    assert (result.code, result.out) == (0, "whole.json -> part.json: no change\n")
    assert result.err == (
        "part.json: wasn't asked for 1 of the pairs in whole.json (it is of specs --op huber)\n"
    )
    # The other way round nothing is new: it was there, and wasn't asked for.
    assert invoke("diff", "part.json", "whole.json").out == "part.json -> whole.json: no change\n"


def test_a_check_that_has_come_to_fail_is_broken(project, invoke):
    invoke("run", "--report", "json=old.json")
    failing = CheckResult("linearity", Status.MISMATCHED, "not linear")
    project.results[0] = altered(project.results[0], checks=(failing,), status=Status.MISMATCHED)
    invoke("run", "--report", "json=new.json")
    result = invoke("diff", "old.json", "new.json")
    assert result.code == 1
    told = "  BROKE GC506  huber · check linearity\n    didn't fail, and is mismatched now (linearity)\n"
    assert told in result.out
    assert "mended GC511  huber · check linearity" in invoke("diff", "new.json", "old.json").out
