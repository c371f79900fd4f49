"""One op checked alone: what is wrong with it is found, and told; what is right is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.judging.op_alone import check_alone
from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from tests.support.numpy_op import Numpy

POINT = np.array([0.3, -0.7, 1.1])


def check_op(forward, gradients, points=POINT, **changes):
    points = points if isinstance(points, dict) else {"x": points}
    op = Numpy(forward, gradients, points, **changes).open(Opening())
    return check_alone(op)


@pytest.mark.parametrize("size", [1, 3, 200])
def test_a_right_gradient(size):
    found = check_op(np.sin, lambda u, x: np.cos(x) * u, np.linspace(-1.0, 2.0, size))
    assert found.status is Status.PASSED


WRONG = {
    "factor": (lambda u, x: 1.01 * np.cos(x) * u, "the gradient is 1.01 times the derivative"),
    "sign": (lambda u, x: -np.cos(x) * u, "the sign is flipped"),
    "none": (lambda u, x: None, "its gradient for x is None, but y moves with it"),
    "nan": (lambda u, x: np.nan * x * u, "it is nan, differences give"),
    "ignoring": (lambda u, x: np.cos(x), "differences give"),
    "squaring": (lambda u, x: np.cos(x) * u**2, "isn't linear in the upstream"),
}


DIAGNOSED = ("factor", "sign")  # what is said of these, the feature `diagnosis` says
NAMES = [pytest.param(name, marks=pytest.mark.feature) if name in DIAGNOSED else name for name in WRONG]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_gradient_and_what_is_said_of_it(name):
    gradient, wording = WRONG[name]
    found = check_op(np.sin, gradient)
    assert found.status is Status.MISMATCHED
    assert wording in found.evidence


def test_an_op_that_draws_can_not_be_told():
    found = check_op(np.sin, lambda u, x: np.cos(x) * u, facts={"random_types": ("RandomUniform",)})
    assert (found.status, found.reason) == (Status.INCONCLUSIVE, "it draws anew at each call (RandomUniform)")
