"""What mismatches by little in float64, and a narrower dtype accounts for."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.results import Status
from tests.support.numpy_op import Numpy, check


def cut(u, x):
    return np.where(x < -9, np.exp(x), 1 / (1 + np.exp(-x))).astype(x.dtype) * u


def softplus(dtype):
    points = {"x": [-9.5, -2.0, 1.0]}
    return Numpy(lambda x: np.logaddexp(x, x.dtype.type(0)), cut, points, dtypes={"x": dtype})


def test_a_formula_that_is_tuned_to_float32_passes_with_a_warning():
    found = check(softplus("float32"))
    assert [pair.status for pair in found.pairs] == [Status.PASSED]
    (warning,) = found.warnings
    assert warning.startswith(
        "precision: dy/dx: 1 of 9 elements are right as an approximation for float32 only, by up to 7.5e-05 "
        "off; output [0], input [0]: "
    )


def with_error(error):
    """Check tanh at the middle of its range and in its tail, with these errors in its gradient."""

    def gradient(u, x):
        return ((1 - np.tanh(x) ** 2 + np.asarray(error, x.dtype)) * u).astype(x.dtype)

    found = check(Numpy(np.tanh, gradient, {"x": [0.3, 5.0]}, dtypes={"x": "float32"}))
    return found.pairs[0].status, len(found.warnings)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ((0.0, 0.0), (Status.PASSED, 0)),
        ((1e-4, 0.0), (Status.PASSED, 1)),
        # In the tail, where the slope is 1.8e-4, it is 3 % off: a larger error elsewhere excuses nothing.
        ((1e-4, 5e-6), (Status.MISMATCHED, 1)),
        ((1e-4, 5e-8), (Status.PASSED, 1)),
        ((0.0, 5e-6), (Status.MISMATCHED, 0)),
        ((1e-3, 0.0), (Status.MISMATCHED, 0)),
    ],
)
def test_each_element_is_an_approximation_by_itself(error, outcome):
    assert with_error(error) == outcome
