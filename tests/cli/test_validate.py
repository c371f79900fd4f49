import json

from gradcheck_cli.errors import Fault, SpecError


def test_good_specs_are_counted(invoke, engine, a_case):
    engine.cases = [a_case("a"), a_case("a", "wide"), a_case("b")]
    result = invoke("validate", "specs")
    assert (result.code, result.out, result.err) == (0, "2 specs, 3 cases: ok\n", "")
    engine.cases = [a_case("a")]
    assert invoke("validate").out == "1 spec, 1 case: ok\n"


def test_counts_as_json(invoke, engine):
    result = invoke("validate", "--format", "json")
    assert json.loads(result.out) == {"specs": 1, "cases": 1, "faults": []}


def test_faults_as_json(invoke, engine):
    engine.load_error = SpecError([Fault("a.yaml", 12, "inputs.x.dtype", "must be a TensorFlow dtype")])
    result = invoke("validate", "--format", "json")
    assert result.code == 2
    assert json.loads(result.out)["faults"] == [
        {"path": "a.yaml", "line": 12, "place": "inputs.x.dtype", "message": "must be a TensorFlow dtype"}
    ]
    assert result.err == "a.yaml:12: inputs.x.dtype: must be a TensorFlow dtype\n"
