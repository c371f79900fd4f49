from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck_cli.checking.checks.deterministic import find_other_function
from gradcheck_cli.results import Status
from tests.support.numpy_op import product


class Other:
    """Another trace of a forward, with values of its own."""

    def __init__(self, values):
        self.facts = SimpleNamespace(values_beside_gradient=values)


def compared(change):
    op = product().operation()
    return find_other_function(op, [op, Other([change(value) for value in op.base_values])])


def test_the_same_values_say_nothing():
    assert compared(lambda value: value) == []


def test_rounding_says_nothing():
    assert compared(lambda value: value * (1 + 1e-12) + 1e-14) == []


@pytest.mark.parametrize(
    "change", [lambda value: value * 1.01, lambda value: value + 1.0, lambda value: value * np.nan]
)
def test_other_values_are_inconclusive(change):
    (check,) = compared(change)
    assert (check.name, check.status) == ("deterministic", Status.INCONCLUSIVE)
    assert "has another value each time the forward is traced" in check.message


def test_another_shape_is_inconclusive():
    (check,) = compared(lambda value: value[..., None])
    assert check.status is Status.INCONCLUSIVE
