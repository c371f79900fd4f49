# ruff: noqa: E501 (a document stands on one line, where a search finds it)

from dataclasses import fields

import jsonschema
import pytest
import yaml

from gradcheck_cli.features.schema.json_schema import json_schema
from gradcheck_cli.spec.case import Case, Expectations, InputSpec, Judging, Origin, Reference, Running


@pytest.fixture(scope="module")
def validator():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


GOOD = [
    "{op: f, forward: 'm:f', outputs: [M1], inputs: {M0: {shape: [3, 2], dtype: float64, value: [[1.5], [2]]}}}",
    "{forward: 'm:f', gradient: {numpy: 'm:g'}, binding: py_func, inputs: {x: {shape: [4]}}, outputs: {y: {shape: [null]}}}",
    "{op: c, op_type: C, inputs: {values: [{shape: [2]}, {value: 0}], axis: null}, dtypes: [float32], cases: [{name: a}]}",
    "{op_type: [Sin, Cos], dtypes: [floating, complex128], modes: eager, cases_from: s, inputs: {x: {shape: [2], uniform: [1, 2]}}, pairs: {dy/dx: {zero: flat, atol: 1}, a: {mismatch: none, reason: why}, b: zero}}",
    "{op: 'tf_{op_type}', module: m, forward: .f, covers: [F], inputs: {x: [2]}}",
    "{ops: [{op: a, forward: 'm:f'}], defaults: {samples: 3, inputs: {x: {bool: true}}}}",
    "{forward: 'm:f', inputs: {x: {shape: [2], bool: 0.5, domain: {low: 0}, away_from: [1]}}, pairs: {dy/dx: {expect: zero}}}",
]
BAD = [
    "{forwrd: 'm:f', inputs: {x: {shape: [2]}}}",
    "{forward: 'm:f'}",
    "{forward: 'mf', inputs: {x: {shape: [2]}}}",
    "{forward: 'm:f', inputs: {x: {shpe: [2]}}}",
    "{forward: 'm:f', inputs: {x: {dtype: flaot32}}}",
    "{forward: 'm:f', inputs: {x: {shape: [-1]}}}",
    "{forward: 'm:f', inputs: {x: {dtype: null}}}",
    "{forward: 'm:f', inputs: {x: {one_hot: false}}}",
    "{forward: 'm:f', inputs: {x: {shape: [2]}}, cases: [{}]}",
    "{forward: 'm:f', inputs: {x: {shape: [2]}}, modes: [grph]}",
    "{ops: [{op: a, frward: 'm:f'}]}",
    "{forward: 'm:f', inputs: {x: [2]}, modes: egaer}",
    "{forward: 'm:f', inputs: {x: {shape: [2], uniform: [1]}}}",
    "{op_type: [], inputs: {x: [2]}}",
    "{op_type: [Sin, 3], inputs: {x: [2]}}",
    "{forward: 'm:f', inputs: {x: [2]}, pairs: {dy/dx: {zero: a, reason: b}}}",
    "{forward: 'm:f', inputs: {x: [2]}, pairs: {dy/dx: {mismatch: valu}}}",
    "{ops: [{op: a}], default: {}}",
    "[1]",
]


@pytest.mark.parametrize("text", GOOD)
def test_accepts(validator, text):
    validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize("text", BAD)
def test_rejects(validator, text):
    assert not validator.is_valid(yaml.safe_load(text))


def test_a_default_is_that_of_the_record():
    records = {
        "OpModel": (Case, Judging, Running, Origin, Expectations, Reference),
        "InputModel": (InputSpec,),
    }
    for name, kinds in records.items():
        defaults = {field.name: field.default for kind in kinds for field in fields(kind)}
        for key, part in json_schema()["$defs"][name]["properties"].items():
            if "default" in part and key in defaults:
                written = part["default"]
                assert (
                    tuple(written) if isinstance(written, list) else written or defaults[key]
                ) == defaults[key]


def test_every_key_is_described_and_no_other_allowed():
    for name, definition in json_schema()["$defs"].items():
        assert definition["additionalProperties"] is False, name
        for key, part in definition["properties"].items():
            assert part.get("description"), f"{name}.{key}"
            assert part.get("default", 0) is not None
