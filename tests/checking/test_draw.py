"""What pictures are drawn from: few cells of a Jacobian, and the differences of its worst element by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradcheck_cli.features.page.figure_data import figure_of, is_plain, ladder_of
from gradcheck_cli.results import MOST_CELLS, Status
from tests.support.numpy_op import Numpy, check, product, tanh


def drawn(op, label="dy/dx", **changes):
    """Check an op and return one pair's figure, what was judged, and its result."""
    found = check(op, **changes)
    judged = found.judged[label]
    result = next(pair for pair in found.pairs if pair.label == label)
    return figure_of(judged), judged, result


def one_off(upstream, x):
    return (1 - np.tanh(x) ** 2) * upstream * np.array([1.0, 1.0, 1.5])


def test_a_small_jacobian_is_drawn_whole():
    figure, _, _ = drawn(tanh(one_off))
    assert figure.shape == (3, 3)
    assert figure.map.rows == ("y[0]", "y[1]", "y[2]")
    assert figure.map.columns == ("x[0]", "x[1]", "x[2]")
    assert figure.map.verdicts == ("...", "...", "..x")
    assert figure.map.analytic[2][2] == pytest.approx(1.5 * figure.map.numeric[2][2], rel=1e-4)
    assert figure.map.share[2][2] > 1
    assert figure.map.share[0][1] == 0


def test_a_large_jacobian_is_drawn_by_its_worst_elements():
    size = 3 * MOST_CELLS

    def off(upstream, x):
        factor = np.ones(size)
        factor[40] = 2.0
        return 2 * x * upstream * factor

    figure, _, _ = drawn(Numpy(np.square, off, {"x": np.linspace(1, 2, size)}))
    assert (len(figure.map.rows), figure.map.row_step) == (MOST_CELLS, 3)
    assert [row.count("x") for row in figure.map.verdicts].count(1) == 1
    assert figure.map.verdicts[13][13] == "x"
    assert figure.map.rows[13] == "y[39]"


def ladder(op, label="dy/dx", domains=None, **changes):
    figure, judged, _ = drawn(op, label, domains=domains, **changes)
    opened = op.operations(figure.point)
    return ladder_of(op.case(domains), opened.differenced, (0, 0), judged.samples[figure.point])


def test_the_ladder_comes_nearer_and_drowns_in_rounding():
    found = ladder(tanh(one_off))
    assert found.element == "y[2] / x[2]"
    error = np.abs(np.array(found.central) - found.numeric)
    assert error[0] > 1e-3
    assert error.min() < 1e-9
    assert error[-1] > error.min()
    assert found.steps[0] > found.first_step > found.steps[-1]
    assert abs(found.analytic - found.numeric) > found.allowed


def test_both_sides_of_a_kink_are_told_apart():
    op = Numpy(np.abs, lambda u, x: 0.5 * u + 0 * x, {"x": [0.0]})
    found = ladder(op)
    assert {round(slope, 6) for slope in found.above} == {1.0}
    assert {round(slope, 6) for slope in found.below} == {-1.0}


def test_no_step_leaves_the_domain():
    evaluated = []

    def root(x):
        evaluated.append(x)
        return np.sqrt(x)

    op = Numpy(root, lambda u, x: u / np.sqrt(x), {"x": [0.25]})
    found = ladder(op, domains={"x": (0.0, np.inf)})
    assert min(float(np.min(points)) for points in evaluated) >= 0
    assert math.isnan(found.below[0]) or found.below[0] > 0


def test_what_is_a_plain_pass_needs_no_picture():
    plain = check(product()).pairs
    assert [is_plain(pair) for pair in plain] == [True, True]
    (wrong,) = check(tanh(one_off)).pairs
    assert wrong.status is Status.MISMATCHED
    assert not is_plain(wrong)
    (kink,) = check(Numpy(np.abs, lambda u, x: np.sign(x) * u, {"x": [0.0, 1.0]})).pairs
    assert kink.numbers.kinks
    assert not is_plain(kink)
