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


def by_one_minus_square(u, x):
    return (1 - np.tanh(x) ** 2) * u


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


def wrong_in_float32(factor):
    def gradient(u, x):
        return np.asarray((factor if x.dtype == np.float32 else 1) * (1 - np.tanh(x) ** 2) * u, x.dtype)

    return tanh(gradient, points={"x": [0.5, -1.0]}, dtypes={"x": "float32"})


@pytest.mark.parametrize("factor", [2.0, -1.0, 0.0, 1.5, np.nan])
def test_a_declared_dtype_that_is_wrong_outright_is_a_mismatch(factor):
    pair = only(check(wrong_in_float32(factor)))
    assert (pair.status, pair.judged_by.reference_dtype) == (Status.MISMATCHED, "float32")


def test_where_the_forward_refuses_float64_its_own_dtype_decides():
    right = check(
        tanh(by_one_minus_square, points={"x": [0.5, -1.0]}, dtypes={"x": "float32"}, refuses_float64=True)
    )
    assert (only(right).status, right.numeric_dtype) == (Status.PASSED, "float32")
    wrong = check(
        tanh(
            lambda u, x: 1.02 * (1 - np.tanh(x) ** 2) * u,
            points={"x": [0.5, -1.0]},
            dtypes={"x": "float32"},
            refuses_float64=True,
        )
    )
    assert only(wrong).status is Status.MISMATCHED


def test_warnings_are_not_repeated():
    points = {"x": [-12.0, 0.5]}
    findings = check(softplus(losing_digits, [points, points]))
    assert len(findings.warnings) == 1


def test_a_surrogates_own_differences_say_nothing_of_its_precision():
    def gradient(u, x):
        logistic = 1 / (1 + np.exp(-x))
        return logistic * (1 - logistic) * u

    # 1 - logistic loses its digits at 18 in float32; the sign's own slope is 0 there, and no judge of that.
    op = Numpy(
        np.sign,
        gradient,
        {"x": [16.5, 0.5]},
        dtypes={"x": "float32"},
        reference=lambda x: 1 / (1 + np.exp(-x)),
    )
    findings = check(op)
    assert only(findings).status is Status.PASSED


def test_the_precision_check_can_be_turned_off():
    assert check(softplus(losing_digits), checks_off=("precision",)).warnings == ()


def test_turning_the_precision_check_off_hides_no_fault_of_the_declared_dtype():
    pair = only(check(wrong_in_float32(np.nan), checks_off=("precision",)))
    assert (pair.status, pair.judged_by.reference_dtype) == (Status.MISMATCHED, "float32")


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
