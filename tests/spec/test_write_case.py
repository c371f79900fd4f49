"""A counterexample is added to a spec's file, which stays as it was otherwise."""

from __future__ import annotations

import pytest

from gradcheck_cli.features.search.write_case import WriteError, write_case
from gradcheck_cli.results import Counterexample
from gradcheck_cli.spec.load import load_cases

FOUND = Counterexample((("x", "[1.0, -2.5e-07]"),))
PLAIN = """\
# a comment
op: first
forward: m:f  # kept
inputs: {x: {shape: [2], domain: {low: -5}}}
"""
BLOCK = (
    PLAIN
    + """\
cases:
  - {name: wide, inputs: {x: {shape: [9]}}}
  - name: other
    inputs:
      x:
        shape: [3]

# the end
"""
)
FLOW = PLAIN + "cases: [{name: wide, inputs: {x: {shape: [9]}}}]\ntags: [slow]"
OPS = """\
defaults: {forward: "m:f"}
ops:
  - op: zero
    inputs: {x: {shape: [2]}}
  - op: first
    inputs:
      x: {shape: [2]}
  - op: last
    inputs: {x: {shape: [2]}}
"""


@pytest.mark.parametrize("text", [PLAIN, PLAIN.rstrip(), BLOCK, FLOW, OPS, f"{PLAIN}---\n{OPS}"])
def test_it_is_a_case_of_its_own_beside_all_else(tmp_path, text):
    text = text.replace("op: first", "op: unlike", 1) if text.count("op: first") > 1 else text
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    before = load_cases([file])
    (case,) = [case for case in before if case.op == "first" and case.name == "default"]
    assert write_case(case, FOUND) == "found-1"
    after = load_cases([file])
    added = [one for one in after if one.name == "found-1"]
    assert [one.op for one in added] == ["first"]
    assert added[0].tensors[0].source.arguments["value"] == [1.0, -2.5e-07]
    assert len(after) == len(before) + 1
    kept = {line.strip() for line in text.splitlines() if not line.startswith("cases: [")}
    assert kept <= {line.strip() for line in file.read_text().splitlines()}
    assert write_case(next(one for one in after if one.origin.line == case.origin.line), FOUND) == "found-2"


def test_another_shape(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(PLAIN)
    (case,) = load_cases([file])
    write_case(case, Counterexample((("x", "[1.0]"),), (("x", (1,)),)))
    assert load_cases([file])[-1].tensors[0].shape == (1,)


def test_lists_and_variants(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(
        "op: first\nforward: m:f\ndtypes: [float32, float64]\ninputs:\n  v: [{shape: []}, {shape: [1]}]\n"
    )
    (_, case) = load_cases([file])
    write_case(case, Counterexample((("v[0]", "0.5"), ("v[1]", "[2.0]"))))
    added = [one for one in load_cases([file]) if one.name == "found-1"]
    assert {tensor.source.kind for one in added for tensor in one.tensors} == {"value"}


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("{op: first, forward: 'm:f', inputs: {x: {shape: [2]}}}\n", FOUND),
        (PLAIN, Counterexample((("x", "[1.0, -9.0]"),))),  # outside the domain: refused as it is read again
    ],
)
def test_what_cannot_be_written_leaves_the_file_and_says_the_case(tmp_path, text, example):
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    (case,) = load_cases([file])
    with pytest.raises(WriteError, match="found-1"):
        write_case(case, example)
    assert file.read_text() == text
