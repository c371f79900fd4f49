"""A first day with wrong gradients: they are recorded as they are, and listed while they last."""

import json

import pytest

from gradcheck_cli.results import CheckResult, Status, case_status
from tests.support.flat_results import altered

pytestmark = pytest.mark.feature


@pytest.fixture
def project(engine, a_case, a_result, tmp_path, monkeypatch):
    """One right op; three with a wrong pair, a failed check and an error."""
    monkeypatch.chdir(tmp_path)
    names = ("right", "wrong", "curved", "broken")
    engine.cases = [a_case(name) for name in names]
    wrong = altered(a_result("wrong", Status.MISMATCHED))
    wrong = altered(wrong, pairs=tuple(altered(pair, mismatch="value") for pair in wrong.pairs))
    check = CheckResult("linearity", Status.MISMATCHED, "it isn't linear")
    curved = altered(a_result("curved"), checks=(check,), status=Status.MISMATCHED)
    engine.results = [a_result("right"), wrong, curved, a_result("broken", Status.ERROR)]
    return engine


@pytest.fixture
def recorded(project, invoke):
    result = invoke("run", "--update-baseline", "g.lock", "--accept")
    assert result.code == 1  # the run itself says what it found
    told = "g.lock: 5 new, 3 of them known faults: write the reason of each into its line\n"
    assert result.err == told
    return project


def with_pair(result, **changes):
    pairs = tuple(altered(pair, **changes) for pair in result.pairs)
    return altered(result, pairs=pairs, status=case_status(pairs, result.checks))


def lines_of(tmp_path):
    return [json.loads(line) for line in (tmp_path / "g.lock").read_text().splitlines()[1:]]


def test_each_fault_has_a_line_with_its_day_and_a_reason_to_fill_in(recorded, tmp_path):
    known = {line["op"]: line for line in lines_of(tmp_path) if "since" in line}
    assert {op: (line["pair"], line["status"], line["fault"]) for op, line in known.items()} == {
        "wrong": ("dy/dx", "mismatched", "value"),
        "curved": ("check linearity", "mismatched", "linearity"),
        "broken": ("case", "error", "forward"),
    }
    assert all(len(line["since"]) == 10 and not line["reason"] for line in known.values())


def test_what_is_known_is_listed_and_green(recorded, invoke, tmp_path):
    lock = tmp_path / "g.lock"
    lock.write_text(lock.read_text().replace('"reason": ""', '"reason": "old code"', 1))
    result = invoke("run", "--baseline", "g.lock", "--report", f"json={tmp_path / 'r.json'}")
    assert result.code == 0
    assert "known GC101" in result.out
    assert "check linearity  known GC102" in result.out
    assert "check case  known GC300\n    forward: ValueError: no" in result.out
    assert "known GC512  broken · case\n    since 2" in result.out
    assert result.out.count(": old code\n") == 1
    assert result.out.count(": no reason is written down yet\n") == 2
    assert "since the baseline: 3 known\n" in result.out
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["exit_code"], report["summary"]["known"]) == (0, 1)
    assert invoke("merge", str(tmp_path / "r.json")).code == 0
    assert "all right but 3 known faults" in invoke("run", "--baseline", "g.lock", "--format", "html").out


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"max_abs_error": 9.0, "worst": None}, 0),
        ({"max_abs_error": 11.0, "worst": None}, 1),
        ({"mismatch": "nonfinite"}, 1),
        ({"status": Status.INCONCLUSIVE, "mismatch": "", "undecided": "noise"}, 3),
    ],
)
def test_what_is_worse_or_another_fault_fails(recorded, invoke, changes, code):
    recorded.results[1] = with_pair(recorded.results[1], **changes)
    assert invoke("run", "--baseline", "g.lock").code == code


def test_a_check_that_fails_in_another_way_is_not_mended(recorded, invoke):
    failing = CheckResult("linearity", Status.ERROR, "it raises")
    recorded.results[2] = altered(recorded.results[2], checks=(failing,), status=Status.ERROR)
    result = invoke("run", "--baseline", "g.lock")
    assert result.code == 3
    assert "mended" not in result.out


def test_what_is_mended_says_so_until_it_is_recorded(recorded, invoke, a_result, tmp_path):
    before = (tmp_path / "g.lock").read_text()
    recorded.results[1], recorded.results[2] = a_result("wrong"), a_result("curved")
    result = invoke("run", "--baseline", "g.lock")
    assert result.code == 0
    assert "mended GC511  wrong · dy/dx\n    it is right, and was known since 2" in result.out
    assert "mended GC511  curved · check linearity\n    it is gone, and was known since 2" in result.out
    result = invoke("run", "--update-baseline", "g.lock")
    assert result.err == "g.lock: 1 changed, 1 removed, 3 as they were\n"
    assert [line["op"] for line in lines_of(tmp_path) if "since" in line] == ["broken"]
    kept = [line for line in before.splitlines() if '"broken"' in line]
    assert kept[0] in (tmp_path / "g.lock").read_text().splitlines()


def test_a_second_recording_keeps_days_and_reasons(recorded, invoke, tmp_path):
    lock = tmp_path / "g.lock"
    text = (
        lock.read_text()
        .replace('"reason": ""', '"reason": "old code"')
        .replace('"since": "20', '"since": "19')
    )
    lock.write_text(text)
    assert invoke("run", "--update-baseline", "g.lock", "--accept").err == "g.lock: 5 as they were\n"
    assert lock.read_text() == text


def test_without_accept_nothing_wrong_is_recorded(project, invoke):
    result = invoke("run", "--update-baseline", "g.lock")
    assert result.err == "g.lock: 2 new, 3 not right, so not recorded (--accept records them as known)\n"
    assert invoke("run", "--accept").err.endswith("--accept goes with --update-baseline FILE.\n")
