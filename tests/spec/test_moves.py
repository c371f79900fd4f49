"""Weights and stated values at the points beside their own values."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.spec.case import InputSpec, Source
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.values.moves import MOVED, WAYS, value_beside, variable_value

CASE = load_mapping({"op": "square", "forward": "numpy:square", "inputs": {"x": {"shape": [2]}}})[0]


def moved(value):
    value = np.array(value)
    return variable_value(
        CASE, InputSpec("w", "float64", value.shape, Source("variable", {"value": value})), 1
    )


@pytest.mark.parametrize("gate", [1e-6, -1e-4, 0.0])
def test_a_gate_that_is_nearly_closed_is_opened_as_one_that_is_closed(gate):
    for gates in ([gate] * 8, [gate, -gate / 2] * 4):
        opened = moved(gates)
        assert (np.abs(opened) > 0.1).all()
        assert (opened > 0).any()
        assert (opened < 0).any()


@pytest.mark.parametrize("values", [[1e-6, 2e-3, 1e-6], [0.5, 0.5, 0.5]])
def test_other_weights_move_by_a_part_of_themselves(values):
    share = np.abs(moved(values) / np.array(values) - 1)
    assert ((share >= 0.2) & (share <= 0.5)).all()


def test_stated_values_that_ascend_leave_their_order_for_one_that_is_not_its_own_inverse():
    inputs = {"x": {"value": [-1.0, 0.0, 0.5, 2.0]}}
    case = load_mapping({"op": "square", "forward": "numpy:square", "inputs": inputs})[0]
    order = np.argsort(value_beside(case, case.tensors[0], MOVED))
    assert (order[order] != np.arange(4)).any()
    in_order = MOVED - len(WAYS)  # the first point that keeps a structure
    assert (np.diff(value_beside(case, case.tensors[0], in_order)) > 0).all()
