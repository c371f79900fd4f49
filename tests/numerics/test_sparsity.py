"""Jacobians of independent classes: judged by few evaluations, and never on a guess that doesn't hold."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.numerics import FLOAT64, Problem, Verdict, judge
from gradcheck_cli.numerics.sampling import Moves, Sparsity

CLASSES, SLOTS = 40, 3
BITS = 6  # 40 < 2^6
N = CLASSES * SLOTS
BLOCKS = Sparsity(
    np.arange(CLASSES), np.repeat(np.arange(CLASSES), SLOTS), np.arange(N).reshape(CLASSES, SLOTS)
)
X = np.random.default_rng(3).normal(size=N)


def blocks(x):
    return np.prod(x.reshape(-1, CLASSES, SLOTS), axis=2) + np.sin(x.reshape(-1, CLASSES, SLOTS)).sum(axis=2)


def slopes(x=X):
    y = x.reshape(CLASSES, SLOTS)
    return np.prod(y, axis=1)[:, None] / y + np.cos(y)


def judged(function, analytic=None, point=X, **changes):
    counted = []

    def evaluate(points):
        counted.append(len(points))
        return function(points)

    precision = changes.pop("precision", FLOAT64)
    method = changes.pop("method", "auto")
    problem = Problem(evaluate, point, precision, precision, sparsity=BLOCKS, **changes)
    found = judge(problem, slopes() if analytic is None else analytic, method=method)
    assert found.evaluations == sum(counted)
    return found


def test_a_class_costs_what_its_own_columns_cost():
    found = judged(
        lambda x: np.square(x.reshape(-1, CLASSES, SLOTS)).sum(axis=2), 2 * X.reshape(CLASSES, SLOTS)
    )
    assert found.is_sparse
    assert (found.verdict == Verdict.PASS).all()
    assert (
        found.evaluations == 1 + 2 * SLOTS + 1 + 2 * BITS
    )  # the first pass, and each bit of the classes' numbers


def test_doubtful_elements_of_different_classes_are_looked_at_together():
    found = judged(blocks)
    assert found.is_sparse
    assert (found.verdict == Verdict.PASS).all()
    assert found.method == "ladder"
    assert found.evaluations <= 1 + 2 * SLOTS + 1 + 2 * BITS + 60
    np.testing.assert_allclose(found.numeric, slopes(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("element", [(0, 0), (17, 2), (39, 1)])
def test_a_wrong_element_is_found_in_its_place(element):
    analytic = slopes()
    analytic[element] *= 1.001
    found = judged(blocks, analytic)
    assert [tuple(where) for where in np.argwhere(found.verdict == Verdict.MISMATCH)] == [element]


def outside(strength, row, column):
    """The blocks, with one element outside of them."""

    def function(x):
        y = blocks(x)
        y[:, row] += strength * x[:, column]
        return y

    return function


@pytest.mark.parametrize("strength", [1.0, 1e-3, 1e-5])
@pytest.mark.parametrize(("row", "column"), [(0, N - 1), (20, 0), (39, 57)])
def test_an_element_outside_of_its_class_refutes_the_sparsity(strength, row, column):
    # Columns of one rank move together, so an element of its own class may be judged wrong in its place: what
    # matters is that the guess isn't kept.
    assert not judged(outside(strength, row, column)).is_sparse


def test_elements_outside_that_cancel_in_every_evaluation_of_the_first_pass():
    """All columns of a rank move by one step here: what a row has outside of its class adds up to nothing."""
    point = np.ones(N)

    def function(x):
        y = blocks(x)
        y[:, 5] += x[:, 90] - x[:, 93]  # both of rank 0
        return y

    found = judged(function, slopes(point), point)
    assert (found.verdict == Verdict.PASS).all()
    assert not found.is_sparse


def test_a_row_at_a_kink_keeps_its_sparsity_and_one_that_leaks_does_not():
    point = X.copy()
    point[4] = 0.0  # the kink of row 1

    def function(x, leak=0.0):
        y = np.abs(x.reshape(-1, CLASSES, SLOTS)).sum(axis=2)
        y[:, 1] += leak * x[:, 60]
        return y

    analytic = np.sign(point).reshape(CLASSES, SLOTS)
    found = judged(function, analytic, point)
    assert found.is_sparse
    assert found.verdict[1, 1] == Verdict.KINK
    assert not judged(lambda x: function(x, 1e-6), analytic, point).is_sparse


def test_many_kinks_close_by_cost_no_verdict():
    """Relu of 120 elements, each a few steps from its kink: a random direction crosses some."""
    point = np.random.default_rng(1).uniform(-1, 1, N) * 2.0**-14
    point[0] = 1.0  # sets the scale
    found = judged(
        lambda x: np.maximum(x.reshape(-1, CLASSES, SLOTS), 0).sum(axis=2),
        (point > 0).astype(float).reshape(CLASSES, SLOTS),
        point,
        scale=1.0,
    )
    assert found.is_sparse
    assert (found.verdict == Verdict.PASS).all()


def test_nothing_leaves_the_domain():
    low, high = X.min(), X.max()

    def function(x):
        assert (x >= low).all()
        assert (x <= high).all()
        return blocks(x)

    assert judged(function, low=low, high=high).is_sparse


def test_moves_are_the_points_that_they_describe():
    moves = Moves(
        np.arange(5.0),
        np.array([0, 1, 0, -1, 1], np.int32),
        np.array([[10.0] * 5, [20.0] * 5]),
        np.array([-1, 0, 1], np.int32),
        np.array([0, 1, 0], np.int32),
    )
    expected = [[0, 1, 2, 3, 4], [20, 1, 20, 3, 4], [0, 10, 2, 3, 10]]
    np.testing.assert_array_equal(moves.points(), expected)
    np.testing.assert_array_equal([moves.point(number) for number in range(3)], expected)
    np.testing.assert_array_equal(moves[1:3].points(), expected[1:])


def test_a_weak_coupling_to_all_is_seen():
    assert not judged(lambda x: blocks(x) + 1e-7 * x.mean(axis=1, keepdims=True)).is_sparse
