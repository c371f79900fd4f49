from __future__ import annotations

import json

import numpy as np
import pytest

from gradcheck_cli.reporting.exchange.json_report import to_json
from gradcheck_cli.results import Report, Status, WorstElement
from gradcheck_cli.serial import plain
from tests.support.flat_results import altered

# The contract of the JSON report: these fields must be there, others may be.
TOP = {
    "schema_version",
    "gradcheck_version",
    "tensorflow_version",
    "python_version",
    "seed",
    "exit_code",
    "summary",
    "cases",
}
CASE = {
    "op",
    "case",
    "spec",
    "mode",
    "dtype",
    "status",
    "duration_s",
    "error",
    "output",
    "reproduce",
    "checks",
    "pairs",
}
PAIR = {
    "label",
    "output",
    "input",
    "status",
    "connected",
    "method",
    "reference_dtype",
    "evaluations",
    "miss_probability",
    "max_abs_error",
    "max_rel_error",
    "allowed",
    "uncertainty",
    "kinks",
    "elements",
    "wrong_elements",
    "worst",
    "diagnosis",
}


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def read(report):
    return json.loads(to_json(report), parse_constant=refuse)


def test_the_contracts_fields_are_there(report):
    content = read(report)
    assert set(content) >= TOP
    assert set(content["summary"]) == {"specs", "cases", "pairs", *map(str, Status), "failed_checks"}
    assert all(set(case) >= CASE for case in content["cases"])
    assert all(set(pair) >= PAIR for case in content["cases"] for pair in case["pairs"])


def test_values_come_back(report):
    content = read(report)
    case = content["cases"][1]
    assert (content["schema_version"], content["seed"], content["exit_code"]) == (1, 0, 1)
    assert (case["op"], case["case"], case["spec"]) == ("huber", "wide", "specs/huber.yaml:12")
    assert (case["dtype"], case["numeric_dtype"]) == ("float32", "float64")
    assert case["pairs"][0]["worst"] == {
        "output_index": [2, 5],
        "input_index": [2, 5],
        "analytic": 1.0,
        "numeric": 0.998,
        "uncertainty": 3.1e-9,
        "output_part": "",
        "input_part": "",
    }
    assert case["checks"] == [
        {"name": "linearity", "status": "mismatched", "message": "vjp(2 u) isn't 2 vjp(u)", "code": "GC102"}
    ]


def test_an_error_is_an_object(report):
    cases = read(report)["cases"]
    assert cases[0]["error"] is None
    assert cases[2]["error"]["kind"] == "import"
    assert cases[2]["error"]["traceback"] == ['File "ops.py", line 3, in <module>', "  import numpi"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (3, 3),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (1 - 2j, [1.0, -2.0]),
        (complex(float("nan"), float("-inf")), ["nan", "-inf"]),
        (np.float64(0.1), 0.1),
        (np.complex128(1j), [0.0, 1.0]),
    ],
)
def test_numbers(value, expected):
    assert plain(value) == expected


def test_no_number_of_a_report_breaks_json(with_pair):
    nan = float("nan")
    case = with_pair(
        Status.MISMATCHED,
        max_abs_error=float("inf"),
        max_rel_error=nan,
        allowed=nan,
        uncertainty=nan,
        miss_probability=nan,
        worst=WorstElement((0,), (0,), complex(nan, 1), float("-inf"), nan),
    )
    pair = read(Report("0", "2", "3", 0, (case,)))["cases"][0]["pairs"][0]
    assert pair["max_abs_error"] == "inf"
    assert pair["miss_probability"] == "nan"
    assert pair["worst"]["analytic"] == ["nan", 1.0]
    assert pair["worst"]["numeric"] == "-inf"


def test_text_is_readable_and_ends_in_a_newline(report, mismatched):
    text = to_json(altered(report, cases=(altered(mismatched, op="größe"),)))
    assert '"op": "größe"' in text
    assert text.endswith("}\n")
