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


def test_results_for_code_scanning_differ(norms, invoke):
    def fingerprints(**status_of):
        norms(**status_of)
        invoke("run", "specs", "--report=sarif=r.sarif")
        results = json.loads(Path("r.sarif").read_text())["runs"][0]["results"]
        return [result["partialFingerprints"]["gradcheck/v1"] for result in results]

    assert len(set(fingerprints(p=WRONG, q=WRONG))) == 2
    assert fingerprints(p=WRONG) == fingerprints(q=WRONG)  # a name that is alone: the file doesn't count


def test_updating_one_keeps_the_line_of_the_other(norms, invoke):
    norms(p=RIGHT, q=WRONG)
    invoke("run", "specs", "--update-baseline", "g.lock", "--accept")
    norms(q=RIGHT)
    assert invoke("run", Q, "--update-baseline", "g.lock").err == "g.lock: 1 changed, 1 as they were\n"
    assert lines() == [("norm", P, "passed"), ("norm", Q, "passed")]


def test_an_op_has_moved_if_its_name_is_in_no_other_file(norms, invoke):
    norms(p=WRONG)
    invoke("run", "specs", "--update-baseline", "g.lock", "--accept")
    norms(r=WRONG)  # the old file is there, and wasn't read: it has its own `norm`, as far as is known
    assert changes_of(invoke, "other")[0] == 1
    assert changes_of(invoke, "other", "specs") == (0, {("norm", R): "known"})  # it was read
    Path(P).unlink()
    assert changes_of(invoke, "other") == (0, {("norm", R): "known"})


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
