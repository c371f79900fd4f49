"""One element of a large Jacobian, judged alone: what the gradient's own rounding explains is no mismatch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradcheck_cli.checking.judging import ledger
from gradcheck_cli.checking.judging.probe_group import Group
from gradcheck_cli.checking.judging.probe_search import judge_element
from gradcheck_cli.checking.ops.budget import Budget, OverBudgetError
from gradcheck_cli.checking.pairs.pair import Pair
from gradcheck_cli.numerics import Verdict
from tests.support.numpy_op import Numpy

POINT = {"x": [0.5, -1.0, 0.25]}


def forward(x):
    return np.array([1.0, *np.sin(x[1:])])


def gradient(first):
    """The gradient of `forward`, whose first output doesn't move, with something in its first element."""

    def pull(upstream, x):
        return np.array([first(upstream[0]), *(upstream[1:] * np.cos(x[1:]))])

    return pull


def judge_first(first):
    op = Numpy(forward, gradient(first), POINT)
    pair = Pair(op.case(), op.operations(), (0, 0), None)
    return judge_element(Group.of_pair(pair), (0, 0), Budget()).verdict


def leave_rounding(size):
    """Return terms of a size that cancel but for their rounding."""
    return lambda u: (u * (0.1 * size) + u * (0.2 * size)) - u * (0.3 * size)


@pytest.mark.parametrize("size", [2.0**14, 2.0**17, 2.0**20])
def test_a_remainder_of_terms_that_cancel_is_no_mismatch(size):
    assert leave_rounding(size)(1.0) != 0
    assert judge_first(leave_rounding(size)) == Verdict.PASS


@pytest.mark.parametrize("slope", [1e-9, 1e-3, 1.0])
def test_a_slope_that_is_computed_well_is_one(slope):
    assert judge_first(lambda u: u * slope) == Verdict.MISMATCH


def test_an_entry_without_time_decides_nothing(monkeypatch):
    def spend(_pair, _sample, _evidence):
        raise OverBudgetError

    spent = [replace(entry, run=ledger._each(spend)) for entry in ledger.ALLOWANCES if entry.at_elements]
    monkeypatch.setattr(ledger, "ALLOWANCES", spent)
    with pytest.raises(OverBudgetError):
        judge_first(lambda u: u)
