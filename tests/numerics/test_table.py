"""Every smooth function of the table, beyond its rows: in half precision, and how sure estimates are."""

import numpy as np
import pytest

from gradcheck_cli.numerics import BFLOAT16, FLOAT16, FLOAT64, Problem, Verdict, estimate, judge
from tests.numerics.numerics_table import evaluator, smooth_rows, true_jacobian

ROWS = smooth_rows()


def test_table_has_at_least_a_hundred_rows():
    assert len({row.name for row in ROWS}) == len(ROWS) >= 100


@pytest.mark.parametrize("precision", [FLOAT16, BFLOAT16], ids=lambda p: p.name)
def test_half_precision_never_calls_a_right_gradient_wrong(precision):
    outcomes = []
    for row in ROWS:
        point = precision.round(np.array(row.point))
        if not np.isfinite(point).all():
            continue
        right = true_jacobian(row.function, point)
        found = judge(Problem(evaluator(row.function, precision), point, precision, precision), right)
        assert not (found.verdict == Verdict.MISMATCH).any(), (row.name, found)
        outcomes.append((found.verdict == Verdict.PASS).all())
    assert np.mean(outcomes) > 0.7


@pytest.mark.parametrize("precision", [FLOAT16, BFLOAT16], ids=lambda p: p.name)
def test_half_precision_tells_a_wrong_sign(precision):
    outcomes = []
    for row in ROWS:
        point = precision.round(np.array(row.point))
        right = true_jacobian(row.function, point) if np.isfinite(point).all() else np.zeros((1, 1))
        if not right.any():
            continue
        found = judge(Problem(evaluator(row.function, precision), point, precision, precision), -right)
        assert not (found.verdict[right != 0] == Verdict.PASS).all(), row.name
        outcomes.append((found.verdict == Verdict.MISMATCH).any())
    assert np.mean(outcomes) > 0.6


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_estimates_are_within_their_uncertainty(row):
    point = np.array(row.point)
    evaluate, right = evaluator(row.function, FLOAT64), true_jacobian(row.function, point)
    found = estimate(Problem(evaluate, point, FLOAT64, FLOAT64), method="ladder")
    # Twice: a sum may round by more than a handful of noise points show. Verdicts leave five times.
    assert (np.abs(found.numeric - right) <= 2 * found.uncertainty + 1e-15 * np.abs(right)).all()
    # The first pass alone promises less: its truncation error is estimated from the bend, not measured.
    found = estimate(Problem(evaluate, point, FLOAT64, FLOAT64))
    assert (np.abs(found.numeric - right) <= found.uncertainty + 1e-6 * np.abs(right)).all()


def test_smooth_functions_cost_little_more_than_two_evaluations_an_element():
    evaluations = inputs = 0
    for row in ROWS:
        point = np.array(row.point)
        right = true_jacobian(row.function, point)
        if point.size > 1:
            found = judge(Problem(evaluator(row.function, FLOAT64), point, FLOAT64, FLOAT64), right)
            evaluations, inputs = evaluations + found.evaluations, inputs + point.size
    # Two each and one for the point; of a function with flat elements eleven more in all, which tell ramps
    # from stairs. Rows of four or five inputs pay those dearly.
    assert evaluations / inputs < 3.1
