"""The worked examples, each with what it must show."""

import json

import numpy as np
import pytest

from gradcheck_cli.spec.load import load_cases
from gradcheck_cli.spec.values.draw_values import draw
from tests.support.processes import ROOT


@pytest.fixture
def pairs(seeds):
    """Return a function that gives the pairs of an op's case by label, and the case itself."""

    def find(op, case="default", dtype=None):
        (found,) = [
            one
            for one in seeds.report["cases"]
            if (one["op"], one["case"], one["mode"]) == (op, case, "graph") and dtype in (None, one["dtype"])
        ]
        return {pair["label"]: pair for pair in found["pairs"]}, found

    return find


def test_the_folder_is_green(seeds):
    assert (seeds.code, seeds.report["exit_code"], seeds.err) == (0, 0, "")
    summary = seeds.report["summary"]
    assert [
        summary[word] for word in ("mismatched", "inconclusive", "error", "skipped", "unexpected_pass")
    ] == [0] * 5
    assert {case["status"] for case in seeds.report["cases"]} == {"passed", "expected_mismatch"}
    assert seeds.report["summary"]["expected_mismatch"] > 0
    passed = [case for case in seeds.report["cases"] if case["status"] == "passed"]
    assert {check["status"] for case in passed for check in case["checks"]} == {"passed"}


@pytest.mark.parametrize("case", ["default", "ground_state"])
def test_the_sparse_convolution_is_exact_to_1e_10(pairs, case):
    rows, _ = pairs("sparse_conv_2layer", case)
    for label in ("dM1/dM0", "dM1/dt0", "dM2/dM0", "dM2/dt0", "dt1/dt0", "dt2/dt0"):
        assert (rows[label]["status"], rows[label]["connected"]) == ("passed", True)
        assert 0 <= rows[label]["max_abs_error"] <= 1e-10


@pytest.mark.parametrize(
    ("op", "label", "value"),
    [
        ("chain", "dy/dx", 1024.0),
        ("hard_sign", "dy/dx", 0.0451766551),
        ("hard_sign_loss", "dy/dx", 0.0903533101),
        ("product", "dp/dx", -4.0),
        ("product", "dp/dy", 3.0),
    ],
)
def test_the_values_that_are_known(pairs, op, label, value):
    worst = pairs(op)[0][label]["worst"]
    # The two of the logistic function are known as float32 printed them; 2e-7 is its rounding.
    assert worst["analytic"] == pytest.approx(value, rel=2e-7)
    assert worst["numeric"] == pytest.approx(worst["analytic"], rel=1e-8)


def test_one_row_of_matmuls_jacobian_is_a_column_of_b(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    row = ("--pair", "dc/da", "--case", "default", "--output", "0,0", "--format", "json")
    shown = command("show", "specs/seeds/matmul.yaml", *row)
    assert shown.code == 0
    view = next(one for one in map(json.loads, shown.out.splitlines()) if one["dtype"] == "float64")
    case = next(
        one
        for one in load_cases(["specs/seeds/matmul.yaml"])
        if (one.name, one.dtype) == ("default", "float64")
    )
    b = draw(case, case.tensors[1], 0)
    expected = np.zeros((2, 3))
    expected[0] = b[:, 0]
    np.testing.assert_allclose(np.array(view["analytic"]), expected, rtol=1e-15)
    np.testing.assert_allclose(np.array(view["numeric"]), expected, atol=1e-6)
