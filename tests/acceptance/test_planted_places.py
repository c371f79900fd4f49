"""Faults in one place alone are blamed on it, and those of second order are green without it."""

import json

import pytest
import yaml

from tests.support.processes import ROOT

FOLDER = ROOT / "tests" / "planted"
FUNCTIONS = (FOLDER / "faults_in_places.py").read_text().splitlines()


def ops_of(name):
    """(op's name, a spec of this op alone) of every op of a file."""
    (document,) = yaml.safe_load_all((FOLDER / name).read_text())
    for op in document["ops"]:
        yield op["op"], {"defaults": document.get("defaults", {}), "ops": [op]}


PLACES, TWICE = dict(ops_of("wrong_in_places.yaml")), dict(ops_of("wrong_twice.yaml"))
RIGHT_ONCE = sorted(set(TWICE) - {"penalty", "nested_right"})


@pytest.fixture
def ask(tmp_path, monkeypatch, command):
    """Return a function that runs a command on one planted op, and returns its exit code and its JSON."""
    monkeypatch.chdir(FOLDER)  # its functions are beside it

    def run(name, spec, *arguments):
        file = tmp_path / "spec.yaml"
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        done = command(name, file, *arguments, "--format", "json")
        return done.code, json.loads(done.out)

    return run


def with_line(place):
    """Return (function's own name, its line's text) of a place that a report names."""
    return place["function"].rpartition(".")[2], FUNCTIONS[place["line"] - 1].strip()


@pytest.mark.on_change("of_a_variable", "of_the_forwards_point", "through_bits")
@pytest.mark.parametrize("op", RIGHT_ONCE)
def test_what_is_wrong_twice_is_green_once(ask, op):
    spec = TWICE[op]
    code, report = ask("run", {**spec, "defaults": {**spec["defaults"], "second_order": False}})
    assert (code, {case["status"] for case in report["cases"]}) == (0, {"passed"})
    assert {check["status"] for case in report["cases"] for check in case["checks"]} <= {"passed", "skipped"}


def test_a_branch_is_named_with_the_gradients_inside_it(ask):
    code, found = ask("blame", PLACES["one_branch"])
    (path,) = found["paths"]
    assert (code, path["named"]) == (1, "cond")
    (wrong,) = [op for op in path["ops"] if op["status"] == "mismatched"]
    assert wrong["type"] in {"If", "StatelessIf"}
    assert ("bad_cube_grad", "def bad_cube_grad(upstream):") in map(with_line, wrong["inside"])
    assert ask("blame", PLACES["other_branch"])[0] == 0


def test_one_element_of_the_31st_of_fifty(ask):
    code, found = ask("blame", PLACES["one_element_of_the_31st"])
    (path,) = found["paths"]
    assert code == 1
    assert path["named"].startswith("op31/")
    statuses = [op["status"] for op in path["ops"]]
    assert (statuses.count("mismatched"), statuses.count("inconclusive")) == (1, 0)
    (wrong,) = [op for op in path["ops"] if op["status"] == "mismatched"]
    assert wrong["type"] == "IdentityN"
    assert with_line(wrong["gradient"]) == ("sine_grad", "def sine_grad(upstream):")
    assert wrong["evidence"].startswith("at out[2] / in[2] it is ")


@pytest.mark.parametrize(
    ("op", "start"),
    [
        ("the_31st_stops", "    return fifty(lambda x: tf.stop_gradient(tf.cos(x)))"),
        ("stopped_in_part", "    return x**3, lambda upstream: upstream * 3 * x * tf.stop_gradient(x)"),
    ],
)
def test_a_gradient_that_stops_when_taken_twice_is_told_of_by_its_line(ask, op, start):
    code, found = ask("blame", TWICE[op], "--pair", "d2y/dx.dx")
    (path,) = found["paths"]
    assert (code, path["named"]) == (3, None)
    assert path["message"].startswith(
        "no op can be blamed: a stop_gradient inside the custom gradient at "
        f"faults_in_places.py:{1 + FUNCTIONS.index(start)} lets the gradient count as constant"
    )


@pytest.mark.parametrize("op", ["nested", "penalty"])
def test_a_wrong_gradient_of_a_gradient_is_named(ask, op):
    code, report = ask("run", TWICE[op], "--mode", "graph")
    pair = next(pair for pair in report["cases"][0]["pairs"] if pair["status"] == "mismatched")
    assert code == 1
    assert "gradient _bad_slope.<locals>.<lambda> at faults_in_places.py" in pair["diagnosis"][-1]
