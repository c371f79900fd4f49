"""What is said of the tensors of a backward pass, and where something first appears in it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import OpPass, OpPlace
from gradcheck_cli.features.blame.backward_pass import SMALL, summarise_pass, summarise_tensor


def passing(name, upstream, gradient):
    return OpPass(OpPlace(name, "Op"), ((0, upstream),), ((0, gradient),))


def test_a_small_tensor_is_shown_whole_a_large_one_by_shape_norm_and_range():
    assert summarise_tensor(np.array(3.0)).values == 3.0
    assert summarise_tensor(np.ones((2, 2))).values == [[1.0, 1.0], [1.0, 1.0]]
    large = summarise_tensor(np.array([3.0, -4.0] + [0.0] * SMALL))
    assert (large.values, large.shape, large.norm) == (None, (2 + SMALL,), 5.0)
    assert (large.low, large.high) == (-4.0, 3.0)


def test_what_is_not_finite_is_counted_and_left_out_of_the_range():
    summary = summarise_tensor(np.array([np.nan, 1.0, np.inf, 2.0, 3.0]))
    assert (summary.nans, summary.infinities, summary.low, summary.high) == (1, 1, 1.0, math.inf)
    assert math.isnan(summary.norm)
    nothing = summarise_tensor(np.full(5, np.nan))
    assert math.isnan(nothing.low)


def test_a_complex_tensors_range_is_that_of_its_magnitudes():
    summary = summarise_tensor(np.array([3 + 4j, 1.0, 0, 0, 0]))
    assert (summary.low, summary.high) == (0.0, 5.0)


def test_the_chain_of_three_squares():
    ops = summarise_pass(
        [
            passing("c", np.array(1.0), np.array(32.0)),
            passing("b", np.array(32.0), np.array(256.0)),
            passing("a", np.array(256.0), np.array(1024.0)),
        ]
    )
    assert [op.upstreams[0][1].values for op in ops] == [1.0, 32.0, 256.0]
    assert [op.local for op in ops] == [(32.0,), (8.0,), (4.0,)]
    assert [op.gradients[0][1].values for op in ops] == [32.0, 256.0, 1024.0]
    assert not any(op.marks for op in ops)


@pytest.mark.parametrize(
    ("upstream", "gradient"),
    [(np.ones(2), np.ones(2)), (np.array(0.0), np.array(0.0)), (np.array(1j), np.array(2j)), (None, None)],
    ids=["several", "zero", "complex", "none"],
)
def test_where_there_is_no_quotient_there_is_no_local_derivative(upstream, gradient):
    (op,) = summarise_pass([passing("a", upstream, gradient)])
    assert op.local == (None,)


@pytest.mark.parametrize(
    ("ill", "mark"),
    [(np.array([np.nan, 1.0]), "NaN"), (np.array([-np.inf, 1.0]), "infinity"), (None, "None")],
)
def test_the_first_op_that_makes_it_is_marked_and_no_other(ill, mark):
    well = np.ones(2)
    ops = summarise_pass([passing("c", well, well), passing("b", well, ill), passing("a", ill, ill)])
    assert [op.marks for op in ops] == [(), (mark,), ()]


def test_what_flows_in_ill_from_nowhere_is_marked_too():
    ill = np.array([np.nan])
    ops = summarise_pass([passing("b", np.ones(1), np.ones(1)), passing("a", ill, ill)])
    assert [op.marks for op in ops] == [(), ("NaN",)]
