from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass

from gradcheck_cli.reporting import layout
from gradcheck_cli.reporting.gradient_list import gradients_csv, gradients_json, gradients_table
from gradcheck_cli.spec.coverage import Coverage, InputState
from gradcheck_cli.spec.exceptions import Excepted


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
SPECS = {
    "MatMul": Coverage(
        "covered",
        ("specs/a.yaml:1", "specs/b.yaml:7"),
        (
            InputState("a", "gradient"),
            InputState("b", "gradient"),
            InputState("k", "not differentiable"),
            InputState("c", "None", "by convention"),
        ),
    ),
    "Rank": Coverage(),
    "ops:f": Coverage("missing"),
    "Nccl": Coverage("excepted", exception=Excepted("Nccl", "gpu", "needs two of them", "specs/e.yaml:2")),
}
NCCL = Entry("Nccl", "gradient")


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


def test_specs_are_a_column_where_asked_for():
    lines = layout.plain(gradients_table(ENTRIES, SPECS, op_types=1, width=None)).splitlines()
    assert lines[0].split()[-1] == "specs"
    assert lines[1].endswith(
        "  covered   a, b gradient; c None; k not differentiable  specs/a.yaml:1 specs/b.yaml:7"
    )
    assert lines[3].endswith("  missing")
    assert lines[-1] == "specs: 1 covered, 1 excepted, 1 missing"


def test_an_exception_has_its_reason_where_inputs_stand():
    lines = layout.plain(gradients_table([NCCL], SPECS, op_types=1, width=None)).splitlines()
    assert lines[1] == "Nccl     gradient                   excepted  gpu: needs two of them"


def test_the_counts_can_be_left_to_another_line():
    lines = layout.plain(gradients_table([NCCL], SPECS, op_types=1, width=None, counted=False))
    assert "covered," not in lines


def test_a_narrow_table_folds():
    lines = layout.plain(gradients_table(ENTRIES, SPECS, op_types=1, width=60)).splitlines()[:-2]
    assert max(map(len, lines)) <= 60
    assert "    tensorflow/python/ops/math_grad.py:9  covered" in lines


def test_csv_reads_back():
    rows = list(csv.DictReader(io.StringIO(gradients_csv(ENTRIES, SPECS))))
    assert [row["op_type"] for row in rows] == ["MatMul", "Rank", "ops:f"]
    assert rows[0]["specs"] == "specs/a.yaml:1 specs/b.yaml:7"
    assert rows[0]["function"] == "tensorflow.python.ops.math_grad:_MatMulGrad"
    assert rows[1]["line"] == ""
    assert rows[0]["coverage"] == "covered"
    assert rows[0]["inputs"] == "a, b gradient; c None; k not differentiable"
    (row,) = csv.DictReader(io.StringIO(gradients_csv([NCCL], SPECS)))
    assert row["reason"] == "gpu: needs two of them"


def test_json_reads_back():
    content = json.loads(gradients_json(ENTRIES, SPECS, tensorflow_version="2.21.0", op_types=1910))
    assert content["counts"] == {"gradient": 1, "not differentiable": 1, "custom_gradient": 1}
    assert content["op_types"] == 1910
    assert content["gradients"][0]["specs"] == ["specs/a.yaml:1", "specs/b.yaml:7"]
    assert content["gradients"][1]["line"] is None
    assert content["coverage"] == {"covered": 1, "unproven": 0, "excepted": 1, "missing": 1, "gone": 0}
    assert content["gradients"][0]["inputs"][3] == {"name": "c", "state": "None", "reason": "by convention"}
    assert content["gradients"][1]["coverage"] is None
    (entry,) = json.loads(gradients_json([NCCL], SPECS, tensorflow_version="2.21.0", op_types=1))["gradients"]
    assert entry["exception"] == {
        "kind": "gpu",
        "reason": "needs two of them",
        "tensorflow": "",
        "place": "specs/e.yaml:2",
    }
    assert content["gradients"][2]["origin"] == "ops"
