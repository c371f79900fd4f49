import json
from dataclasses import dataclass

from gradcheck_cli.features.coverage.list_command import gradients_json, gradients_table
from gradcheck_cli.reporting.terminal import layout


@dataclass(frozen=True)
class Entry:  # a GradientEntry without TensorFlow
    name: str
    status: str
    function: str = ""
    file: str = ""
    line: int = 0
    origin: str = "tensorflow"


ENTRIES = [
    Entry(
        "MatMul",
        "gradient",
        "tensorflow.python.ops.math_grad:_MatMulGrad",
        "tensorflow/python/ops/math_grad.py",
        9,
    ),
    Entry("Rank", "not differentiable"),
    Entry("ops:f", "custom_gradient", "ops:f", "ops.py", 4, "ops"),
]
SPECS = {"MatMul": ["specs/a.yaml:1", "specs/b.yaml:7"]}


def test_a_table():
    text = layout.plain(gradients_table(ENTRIES, None, op_types=1910, width=None))
    assert text == (
        "op type  status              function     where\n"
        "MatMul   gradient            _MatMulGrad  tensorflow/python/ops/math_grad.py:9\n"
        "Rank     not differentiable\n"
        "ops:f    custom_gradient     f            ops.py:4\n"
        "3 entries: 1 gradient, 1 custom_gradient, 1 not differentiable"
        " · 1,910 op types in this TensorFlow\n"
    )


def test_a_narrow_table_folds():
    lines = layout.plain(gradients_table(ENTRIES, SPECS, op_types=1, width=60)).splitlines()[:-1]
    assert max(map(len, lines)) <= 60
    assert "    specs/a.yaml:1 specs/b.yaml:7" in lines


def test_json_reads_back():
    content = json.loads(gradients_json(ENTRIES, SPECS, tensorflow_version="2.21.0", op_types=1910))
    assert content["counts"] == {"gradient": 1, "not differentiable": 1, "custom_gradient": 1}
    assert content["op_types"] == 1910
    assert content["gradients"][0]["specs"] == ["specs/a.yaml:1", "specs/b.yaml:7"]
    assert content["gradients"][1]["line"] is None
    assert content["gradients"][2]["origin"] == "ops"
