from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gradcheck_cli.checking.ops.jacobian import working_precision
from gradcheck_cli.numerics import FLOAT32
from gradcheck_cli.results import Status
from tests.checking.float32_campaign import ERROR, outcome
from tests.numerics.numerics_random import draw_example
from tests.support.numpy_op import Numpy, check, tanh


def only(findings):
    (pair,) = findings.pairs
    return pair


def losing_digits(u, x):
    # Right, but 1 - 1 / (1 + e^x) keeps two digits of 6e-6 in float32.
    return (1 - 1 / (1 + np.exp(x))) * u


def softplus(gradient, points=None):
    return Numpy(
        lambda x: np.log1p(np.exp(x)), gradient, points or {"x": [-12.0, 0.5]}, dtypes={"x": "float32"}
    )


def test_a_right_formula_that_loses_digits_passes_with_a_warning():
    findings = check(softplus(losing_digits))
    assert only(findings).status is Status.PASSED
    (warning,) = findings.warnings
    assert warning.startswith(
        "precision: dy/dx: the formula is right in float64, but 1 of 4 elements lose more "
        "than float32's tolerance; output [0], input [0]: "
    )
    assert warning.endswith(f"in float64 {1 / (1 + np.exp(12.0)):.6e}.")


@pytest.mark.parametrize("factor", [2.0, -1.0, np.nan])
@pytest.mark.parametrize("off", [(), ("precision",)])
def test_a_declared_dtype_that_is_wrong_outright_is_a_mismatch(factor, off):
    def gradient(u, x):
        return np.asarray((factor if x.dtype == np.float32 else 1) * (1 - np.tanh(x) ** 2) * u, x.dtype)

    pair = only(check(tanh(gradient, points={"x": [0.5, -1.0]}, dtypes={"x": "float32"}), checks_off=off))
    assert (pair.status, pair.judged_by.reference_dtype) == (Status.MISMATCHED, "float32")


def test_the_precision_check_can_be_turned_off():
    assert check(softplus(losing_digits), checks_off=("precision",)).warnings == ()


def test_random_compositions_in_float32_are_never_wrong():
    """A sample of what `float32_campaign.py` runs by the ten thousand, with figures in docs/verdicts.md."""
    tally = Counter()
    for seed in range(40):
        example = draw_example(seed, FLOAT32)
        tally["right: " + outcome(example).split(" (")[0]] += 1
        tally["wrong: " + outcome(example, ERROR)] += 1
    assert tally["right: mismatched"] == 0, tally
    assert tally["wrong: passed"] == 0, tally
    assert tally["right: passed"] >= 38, tally


@pytest.mark.parametrize(
    ("low", "dtype", "expected"),
    [
        ((), "complex64", "float32"),
        (("float32", "bfloat16"), "float64", "bfloat16"),
        (("float32", "float16"), "float32", "float16"),
        (("complex64",), "complex128", "float32"),
    ],
)
def test_the_coarsest_precision_on_the_path_rules(low, dtype, expected):
    op = tanh(facts={"low_precision": low}).operation()
    assert working_precision(op, dtype).name == expected
