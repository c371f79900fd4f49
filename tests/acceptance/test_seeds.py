"""The worked examples, each with what it must show."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradcheck_cli.spec.load import load_cases
from gradcheck_cli.spec.values.draw_values import draw
from tests.acceptance.acceptance_root import ROOT


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


SIX = ["dM1/dM0", "dM1/dt0", "dM2/dM0", "dM2/dt0", "dt1/dt0", "dt2/dt0"]


@pytest.mark.parametrize("case", ["default", "ground_state"])
@pytest.mark.parametrize("label", SIX)
def test_the_sparse_convolution_is_exact_to_1e_10(pairs, case, label):
    rows, _ = pairs("sparse_conv_2layer", case)
    assert rows[label]["status"] == "passed"
    assert rows[label]["connected"]
    assert 0 <= rows[label]["max_abs_error"] <= 1e-10


def test_the_sparse_convolution_has_its_weights_and_biases_too(pairs):
    rows, _ = pairs("sparse_conv_2layer", "ground_state")
    for label in [
        "dM1/dW1",
        "dM1/db1",
        "dM2/dW1",
        "dM2/db1",
        "dM2/dW2",
        "dM2/db2",
        "dt1/dW1",
        "dt2/dW2",
        "dt2/db2",
    ]:
        assert (rows[label]["status"], rows[label]["connected"]) == ("passed", True)
        assert rows[label]["elements"] > 0


@pytest.mark.parametrize("label", ["dt1/dM0", "dt2/dM0"])
def test_a_ground_state_is_disconnected_from_the_sites(pairs, label):
    rows, _ = pairs("sparse_conv_2layer")
    assert (rows[label]["status"], rows[label]["connected"]) == ("passed", False)
    assert rows[label]["note"] == "as expected"


def test_the_dense_convolution_is_its_reference_in_values_too(pairs):
    _, found = pairs("sparse_conv_dense")
    assert {check["name"]: check["status"] for check in found["checks"]}["reference_forward"] == "passed"


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


def test_the_product_is_disconnected_where_it_should_be(pairs):
    rows, _ = pairs("product")
    assert (rows["dq/dx"]["connected"], rows["dq/dx"]["note"]) == (False, "as expected")
    assert rows["dq/dy"]["connected"]


@pytest.mark.parametrize("op", ["add_override", "hard_sign_without_reference"])
def test_expected_mismatches_have_their_reason(pairs, op):
    rows, found = pairs(op)
    assert found["status"] == "expected_mismatch"
    assert found["reason"]
    assert "expected_mismatch" in {pair["status"] for pair in rows.values()}


def test_the_tutorials_gradient_is_wrong_in_every_pair(pairs):
    rows, _ = pairs("add_override")
    # c = [0.5, -1.5], k = [2, 0.25], d = [3, -0.75]: (c + k + d) u where the derivative is u, and so on.
    assert {label: pair["status"] for label, pair in rows.items()} == dict.fromkeys(
        ["dy/dc", "dy/dk", "dy/dd"], "expected_mismatch"
    )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("case", ["default", "transpose_a", "transpose_b", "transpose_both"])
def test_matmul_in_its_four_transpose_cases(pairs, case, dtype):
    rows, found = pairs("matmul", case, dtype)
    assert found["status"] == "passed"
    assert list(rows) == ["dc/da", "dc/db"]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_batched_function_of_two_matrices(pairs, dtype):
    assert pairs("kronecker", "default", dtype)[1]["status"] == "passed"


def test_one_row_of_matmuls_jacobian_is_a_column_of_b(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = command(
        "show",
        "specs/seeds/matmul.yaml",
        "--pair",
        "dc/da",
        "--case",
        "default",
        "--output",
        "0,0",
        "--format",
        "json",
    )
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
