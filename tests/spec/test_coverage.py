"""What specs cover by what is written, and what they say of each input."""

from __future__ import annotations

import pytest

from gradcheck_cli.results import CaseResult, Report, Status
from gradcheck_cli.spec.coverage import cases_by_type, coverage_of, proven
from gradcheck_cli.spec.exceptions import Excepted
from gradcheck_cli.spec.load import load_mapping

X = {"x": {"shape": [2]}}


def of(*specs, op_type="Tanh", version="2.21.0"):
    named = [{"op": f"op{number}", **spec} for number, spec in enumerate(specs)]
    cases = [case for spec in named for case in load_mapping(spec)]
    return coverage_of(op_type, cases_by_type(cases, version).get(op_type, []), None)


def states(found):
    return {one.name: one.state for one in found.inputs}


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"op_type": "Tanh"}, "covered"),
        ({"forward": "m:f", "covers": ["Tanh"]}, "covered"),
        ({"op_type": "Sin", "covers": ["Tanh"]}, "covered"),
        ({"forward": "m:f"}, "missing"),
        ({"op_type": "Tanh", "gradient": "m:g"}, "missing"),  # TensorFlow's own isn't what is checked
        ({"op_type": "Tanh", "forward": "m:f", "gradient": "m:g", "binding": "override"}, "missing"),
        ({"op_type": "Tanh", "tensorflow": "<2.20"}, "missing"),
    ],
)
def test_what_covers(spec, word):
    assert of({**spec, "inputs": X}).word == word


def test_an_exception_says_why_nothing_covers():
    exception = Excepted("Tanh", "gpu", "reason", "a.yaml:1")
    assert coverage_of("Tanh", [], exception).word == "excepted"
    assert coverage_of("Tanh", [], exception).exception is exception
    assert coverage_of("Tanh", [], None, specs=["a.yaml:1"]).word == "covered"


@pytest.mark.parametrize(
    ("keys", "state"),
    [
        ({}, "gradient"),
        ({"pairs": {"dy/dx": {"expect": "mismatch"}}}, "gradient"),
        ({"pairs": {"*": {"expect": "zero"}}}, "gradient"),
        ({"pairs": {"dy/dx": {"expect": "disconnected"}}}, "None"),
        ({"pairs": {"*": {"expect": "skip", "reason": "why"}}}, "skipped"),
        ({"pairs": {"dy1/dx": {"expect": "skip"}}}, "gradient"),  # y0 is compared
        ({"outputs": ["a", "b"], "pairs": {"da/dx": {"expect": "skip"}}}, "gradient"),
        ({"outputs": ["a", "b"], "pairs": {"d?/dx": {"expect": "skip"}}}, "skipped"),
        ({"reference": "m:f"}, "straight-through"),
        ({"inputs": {"x": {"shape": [2], "differentiate": False}}}, "not differentiable"),
        ({"inputs": {"x": {"shape": [2], "dtype": "int32"}}}, "not differentiable"),
    ],
)
def test_an_inputs_state(keys, state):
    assert states(of({"op_type": "Tanh", "inputs": X, **keys})) == {"x": state}


def test_a_reason_goes_with_what_is_not_compared():
    rules = {"*": {"expect": "skip", "reason": "why"}}
    (found,) = of({"op_type": "Tanh", "inputs": X, "pairs": rules}).inputs
    assert found.reason == "why"


def test_of_several_cases_the_one_that_compares_counts():
    skipped = {"op_type": "Tanh", "inputs": X, "pairs": {"*": {"expect": "skip"}}}
    assert states(of(skipped, {"op_type": "Tanh", "inputs": X})) == {"x": "gradient"}


def test_a_raw_ops_own_inputs_come_before_those_of_composites():
    composite = {"forward": "m:f", "covers": ["Tanh"], "inputs": {"other": {"shape": [2]}}}
    assert states(of(composite)) == {"other": "gradient"}
    assert states(of(composite, {"op_type": "Tanh", "inputs": X})) == {"x": "gradient"}


def test_a_list_argument_is_one_input():
    values = [{"shape": [2]}, {"shape": [2]}]
    rules = {"dy/dinputs[1]": {"expect": "disconnected"}}
    found = of({"op_type": "AddN", "inputs": {"inputs": values}, "pairs": rules}, op_type="AddN")
    assert states(found) == {"inputs": "gradient"}


@pytest.mark.parametrize(
    ("status", "seen", "is_proven"),
    [
        ("passed", {"Tanh": 1}, True),
        ("expected_mismatch", {"Tanh": 1}, True),
        ("inconclusive", {"Tanh": 1}, False),
        ("skipped", {}, False),
        ("passed", {"Sin": 1}, False),
    ],
)
def test_a_report_proves_what_was_right_and_seen(status, seen, is_proven):
    cases = load_mapping({"op": "f", "op_type": "Tanh", "inputs": X})
    result = CaseResult(
        "f", "default", "a:1", "graph", "float64", Status(status), 0.0, "", gradients_seen=seen
    )
    found = proven(cases_by_type(cases, "2.21.0"), Report("0", "2", "3", 0, (result,)))
    assert found == ({"Tanh"} if is_proven else set())
    other = Report("0", "2", "3", 0, ())
    assert proven(cases_by_type(cases, "2.21.0"), other) == set()
