from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.judging.ledger import judge_pairs
from gradcheck_cli.checking.ops.analytic import analytic_jacobians
from gradcheck_cli.checking.pairs.pair import Pair, pair_keys, pairs_at
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.spec.case import PairRule, StatedTolerance
from tests.support.numpy_op import Numpy, tanh


def judged(op, rules=None, **changes):
    operations = op.operations()
    keys = pair_keys(operations.declared)
    analytic = analytic_jacobians(op.case(**changes), operations.formula, keys, {})
    pairs = pairs_at(op.case(**changes), operations, {key: (rules or {}).get(key) for key in keys})
    return judge_pairs(pairs, analytic)


def wrong_count(sample):
    return int(np.count_nonzero(sample.verdict == Verdict.MISMATCH))


def off_by(error):
    return tanh(lambda u, x: (1 - np.tanh(x) ** 2 + error) * u, points={"x": [0.5, -1.0, 0.25]})


@pytest.mark.parametrize(
    ("case", "pair", "wrong"),
    [
        (StatedTolerance(), None, 3),
        (StatedTolerance(atol=1e-2), None, 0),
        (StatedTolerance(rtol=1e-1), None, 0),
        (StatedTolerance(atol=1e-2), PairRule("dy/dx", atol=1e-4), 3),
        (StatedTolerance(atol=1e-5), PairRule("dy/dx", atol=1e-2), 0),
        (StatedTolerance(), PairRule("dy/dx", rtol=1e-1), 0),
        (StatedTolerance(), PairRule("dy/dx"), 3),
    ],
)
def test_the_pairs_tolerance_stands_before_the_cases_before_the_tables(case, pair, wrong):
    sample = judged(off_by(1e-3), {(0, 0): pair}, tolerance=case)[0, 0]
    assert wrong_count(sample) == wrong


def test_an_absolute_tolerance_is_taken_as_written():
    # Within the default tolerance, and beyond the user's own.
    assert wrong_count(judged(off_by(1e-7))[0, 0]) == 0
    sample = judged(off_by(1e-7), tolerance=StatedTolerance(atol=1e-8, rtol=0.0))[0, 0]
    assert wrong_count(sample) == 3
    np.testing.assert_array_equal(sample.allowed, np.full((3, 3), 1e-8))


@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float64", 1e-6), ("float32", 1e-6), ("float16", 1e-6), ("bfloat16", 1e-6)]
)
def test_a_formula_in_float64_is_held_to_float64(dtype, rtol):
    op = tanh(points={"x": [0.5, -1.0]}, dtypes={"x": dtype})
    assert Pair(op.case(), op.operations(), (0, 0)).tolerance.rtol == rtol


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-3), ("float16", 5e-2), ("bfloat16", 1e-1)])
def test_without_float64_the_declared_dtype_rules(dtype, rtol):
    op = tanh(points={"x": [0.5, -1.0]}, dtypes={"x": dtype}, refuses_float64=True)
    assert Pair(op.case(), op.operations(), (0, 0)).tolerance.rtol == rtol


def test_float32_points_stay_in_float32():
    op = tanh(points={"x": [0.5, -1.0]}, dtypes={"x": "float32"}, refuses_float64=True)
    sample = judged(op)[0, 0]
    assert sample.differencing.dtype == "float32"
    for made in op.opened:
        for point in made.evaluated:
            np.testing.assert_array_equal(point[0], point[0].astype(np.float32))


def rounded_spectrum(error):
    """Return x -> x (1 + 0i), rounded as a transform rounds: the imaginary part moves by some 1e-17."""
    rounding = 2.0**-56

    def forward(x):
        return x + 1j * rounding * np.where(np.abs(x - 1) > 1 / 64, 1.0, 0.0)

    return Numpy(forward, [lambda u, _: (u.real + error * u.imag,)], {"x": np.array([1.0])}, outputs=("z",))


def test_the_zero_part_of_a_complex_output_is_as_good_as_the_other():
    assert (judged(rounded_spectrum(2.0**-54))[0, 0].verdict == Verdict.PASS).all()
    assert wrong_count(judged(rounded_spectrum(1e-4))[0, 0]) == 1
