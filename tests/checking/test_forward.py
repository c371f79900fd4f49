from __future__ import annotations

import numpy as np

from gradcheck_cli.checking.checks.all_checks import compare_with_reference
from gradcheck_cli.checking.checks.check import OpenedView
from gradcheck_cli.checking.checks.deterministic import check_random
from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from tests.support.numpy_op import Numpy, tanh


def against(forward, reference, values, **changes):
    facts = {key: changes.pop(key) for key in ("dtypes",) if key in changes}
    op = Numpy(forward, lambda u, _: u, {"x": values}, reference=reference, **facts)
    return compare_with_reference(op.case(**changes), op.open(Opening()), op.open(Opening(of="reference")))


def test_a_random_forward_names_its_ops_and_the_remedy():
    drawn = tanh(facts={"random_types": ("RandomNormal", "RandomUniform")})
    (found,) = check_random(OpenedView(drawn.case(), drawn.operation()))
    assert found.status is Status.INCONCLUSIVE
    assert found.message == (
        "the forward draws random numbers (RandomNormal, RandomUniform), anew at each evaluation; use "
        "tf.random.stateless_* with a fixed seed, or pass the draw as an input with 'differentiate: false'."
    )


def test_another_order_of_sums_agrees():
    values = np.random.default_rng(0).normal(size=1000)
    assert against(np.sum, lambda x: np.sum(x[::-1]), values).status is Status.PASSED
    found = against(np.sum, lambda x: np.sum(x[::-1]), values, dtypes={"x": "float32"})
    assert found.status is Status.PASSED


def test_a_difference_is_named_with_both_values():
    found = against(lambda x: x * np.array([1, 1.001]), lambda x: x, [0.5, 2.0])
    assert (found.name, found.status) == ("reference_forward", Status.MISMATCHED)
    assert found.message == (
        "the forward isn't its reference: y[1] is 2.002000000e+00, but the reference's is 2.000000000e+00; "
        "allowed 2.0e-10."
    )


def test_nan_and_infinities_must_be_where_the_references_are():
    forward = lambda x: np.where(x > 0, np.where(x > 1, np.inf, x), np.nan)  # noqa: E731 (short)
    assert against(forward, forward, [-1.0, 0.5, 2.0]).status is Status.PASSED
    assert against(forward, lambda x: x, [-1.0, 0.5, 2.0]).status is Status.MISMATCHED
    assert against(lambda x: x, forward, [-1.0, 0.5, 2.0]).status is Status.MISMATCHED


def test_complex_values_are_compared_in_both_parts():
    values = np.array([1 + 2j, 3j])
    assert against(lambda z: z * 1j, lambda z: 1j * z, values).status is Status.PASSED
    assert against(np.conj, lambda z: z, values).status is Status.MISMATCHED
