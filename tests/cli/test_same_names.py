"""Two files that have an op of one name: the file tells them apart; a name that is alone stays."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck_cli.gate import tell_apart
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Origin
from tests.support.flat_results import altered

pytestmark = pytest.mark.feature

P, Q, R = "specs/p.yaml", "specs/q.yaml", "other/r.yaml"


@pytest.fixture
def norms(engine, a_case, a_result, tmp_path, monkeypatch):
    """Return a function that sets the files in which there is an op `norm`, and how each of them is."""
    monkeypatch.chdir(tmp_path)

    def hold(**status_of):
        files = {"p": P, "q": Q, "r": R}
        names = tell_apart(("norm", files[name]) for name in status_of)
        engine.cases, engine.results = [], []
        for name, status in status_of.items():
            file = files[name]
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).touch()
            full_op = names["norm", file]
            case = replace(a_case("norm"), origin=Origin(file, str(Path(file).parent), 1), full_op=full_op)
            result = replace(a_result("norm", status), spec=f"{file}:1", full_op=full_op)
            pairs = tuple(altered(pair, mismatch="value") for pair in result.pairs)
            engine.cases.append(case)
            engine.results.append(result if status is Status.PASSED else altered(result, pairs=pairs))

    return hold


RIGHT, WRONG = Status.PASSED, Status.MISMATCHED


def changes_of(invoke, *arguments):
    """Return how a run with a baseline ended, and what it says of which op in which file."""
    result = invoke("run", *arguments, "--baseline", "g.lock", "--report=json=r.json")
    found = json.loads(Path("r.json").read_text())["baseline"]
    return result.code, {(one["op"], one["spec"]): one["change"] for one in found}


def lines():
    read = [json.loads(line) for line in Path("g.lock").read_text().splitlines()[1:]]
    return [(line["op"], line["spec"], line["status"]) for line in read]


def test_each_report_tells_them_apart(norms, invoke):
    norms(p=RIGHT, q=WRONG)
    reports = [f"--report={kind}=r.{kind}" for kind in ("json", "junit", "sarif")]
    result = invoke("run", "specs", *reports, "--report=github", "--durations", "2")
    assert result.code == 1
    assert f"{P} · norm · float64 · graph" in result.out
    assert f"  GC101 value  {Q} · norm · dy/dx\n" in result.out
    assert f"0.10 s  {P} · norm\n" in result.out
    assert f"title=gradcheck%3A {Q}%3A%3Anorm%3A" in result.out
    cases = json.loads(Path("r.json").read_text())["cases"]
    assert [(case["op"], case["full_op"]) for case in cases] == [
        ("norm", f"{P}::norm"),
        ("norm", f"{Q}::norm"),
    ]
    junit = Path("r.junit").read_text()
    assert 'classname="specs.p.norm" name="default[dy/dx]"' in junit
    assert 'classname="specs.q.norm" name="default[dy/dx]"' in junit


def test_results_for_code_scanning_differ(norms, invoke):
    def fingerprints(**status_of):
        norms(**status_of)
        invoke("run", "specs", "--report=sarif=r.sarif")
        results = json.loads(Path("r.sarif").read_text())["runs"][0]["results"]
        return [result["partialFingerprints"]["gradcheck/v1"] for result in results]

    assert len(set(fingerprints(p=WRONG, q=WRONG))) == 2
    assert fingerprints(p=WRONG) == fingerprints(q=WRONG)  # a name that is alone: the file doesn't count


def test_a_baseline_of_both(norms, invoke):
    norms(p=RIGHT, q=WRONG)
    invoke("run", "specs", "--update-baseline", "g.lock", "--accept")
    assert lines() == [("norm", P, "passed"), ("norm", Q, "mismatched")]
    assert changes_of(invoke, "specs") == (0, {(f"{Q}::norm", Q): "known"})
    norms(q=WRONG)  # one file alone, by whose name it is the only one
    assert changes_of(invoke, Q) == (0, {("norm", Q): "known"})
    norms(p=WRONG)
    assert changes_of(invoke, P) == (1, {})
    norms(p=WRONG, q=RIGHT)  # the other way round: what is known of one excuses nothing in the other
    assert changes_of(invoke, "specs") == (1, {(f"{Q}::norm", Q): "mended"})


def test_updating_one_keeps_the_line_of_the_other(norms, invoke):
    norms(p=RIGHT, q=WRONG)
    invoke("run", "specs", "--update-baseline", "g.lock", "--accept")
    norms(q=RIGHT)
    assert invoke("run", Q, "--update-baseline", "g.lock").err == "g.lock: 1 changed, 1 as they were\n"
    assert lines() == [("norm", P, "passed"), ("norm", Q, "passed")]


def test_an_old_baseline_is_that_of_the_file_in_its_line(norms, invoke):
    norms(p=WRONG)
    invoke("run", "specs", "--update-baseline", "g.lock", "--accept")
    norms(p=WRONG, q=WRONG)
    known = {(f"{P}::norm", P): "known", (f"{Q}::norm", Q): "new"}
    assert changes_of(invoke, "specs") == (1, known)
    norms(p=WRONG, q=RIGHT)
    assert changes_of(invoke, "specs") == (0, known)


def test_an_op_has_moved_if_its_name_is_in_no_other_file(norms, invoke):
    norms(p=WRONG)
    invoke("run", "specs", "--update-baseline", "g.lock", "--accept")
    norms(r=WRONG)  # the old file is there, and wasn't read: it has its own `norm`, as far as is known
    assert changes_of(invoke, "other")[0] == 1
    assert changes_of(invoke, "other", "specs") == (0, {("norm", R): "known"})  # it was read
    Path(P).unlink()
    assert changes_of(invoke, "other") == (0, {("norm", R): "known"})


def test_what_was_not_selected_is_not_missed(norms, invoke, engine):
    norms(p=RIGHT)
    invoke("run", "specs", "--update-baseline", "g.lock")
    norms(p=RIGHT, q=RIGHT)
    engine.results = engine.results[1:]
    assert changes_of(invoke, "specs", "-k", "q.yaml") == (0, {(f"{Q}::norm", Q): "new"})
    assert [case.file for case in engine.asked["cases"]] == [Q]
    invoke("run", "specs", "-k", "q.yaml", "--update-baseline", "g.lock")
    assert lines() == [("norm", P, "passed"), ("norm", Q, "passed")]


def test_shards_take_one_each_and_are_a_whole_again(norms, invoke, engine):
    norms(p=RIGHT, q=WRONG)
    both = dict(zip((P, Q), engine.results, strict=True))
    for index in (1, 2):
        # Each run of the stand-in returns what the shard is to find.
        engine.results = list(both.values())[index - 1 : index]
        invoke("run", "specs", "--shard", f"{index}/2", f"--report=json={index}.json")
        assert both[engine.asked["cases"][0].file] is engine.results[0]
    merged = invoke("merge", "1.json", "2.json")
    assert merged.code == 1
    assert "2 ops · 2 cases · 2 pairs: 1 passed, 1 mismatched" in merged.out
    assert "NOT CHECKED" not in merged.out


def test_diff_knows_a_file_by_either_name(norms, invoke):
    norms(p=RIGHT, q=WRONG)
    invoke("run", "specs", "--report=json=old.json")
    norms(q=WRONG)
    invoke("run", Q, "--report=json=new.json")
    result = invoke("diff", "old.json", "new.json")
    assert (result.code, result.out) == (0, "old.json -> new.json: no change\n")
    norms(p=WRONG)
    invoke("run", P, "--report=json=new.json")
    assert "BROKE" in invoke("diff", "old.json", "new.json").out
