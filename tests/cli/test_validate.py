import json

from gradcheck_cli.errors import Fault, SpecError


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
