from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import Status, case_status
from gradcheck_cli.spec.case import PairRule
from tests.support.numpy_op import Numpy, check, product, tanh


def slope(x):
    return 1 - np.tanh(x) ** 2


def only(findings):
    (pair,) = findings.pairs
    return pair


def statuses(findings):
    return {pair.label: str(pair.status) for pair in findings.pairs}


def test_a_right_gradient_passes_every_check():
    findings = check(tanh())
    assert statuses(findings) == {"dy/dx": "passed"}
    assert {check.name: str(check.status) for check in findings.checks} == dict.fromkeys(
        [
            "form",
            "finite",
            "connected",
            "second_point",
            "all_zero",
            "linearity",
            "zero_upstream",
            "repeat",
            "retrace",
        ],
        "passed",
    )
    assert (findings.warnings, findings.numeric_dtype) == ((), "float64")
    pair = only(findings)
    assert (pair.numbers.elements, pair.numbers.wrong_elements, pair.numbers.kinks, pair.connected) == (
        9,
        0,
        0,
        True,
    )
    assert pair.numbers.max_abs_error < 1e-9


def test_one_wrong_element_is_named_with_both_values():
    pair = only(check(tanh(lambda u, x: slope(x) * u * np.array([1, 1, 1.5]))))
    assert (pair.numbers.wrong_elements, pair.note) == (1, "1 of 9 elements")
    assert (pair.numbers.worst.output_index, pair.numbers.worst.input_index) == ((2,), (2,))
    # The worst of both sample points: x = 0.25 there has the larger slope.
    assert pair.numbers.worst.numeric == pytest.approx(slope(0.25), abs=1e-9)
    assert pair.numbers.worst.analytic == pytest.approx(1.5 * slope(0.25), abs=1e-9)
    assert pair.numbers.max_abs_error == pytest.approx(0.5 * slope(0.25), rel=1e-6)
    assert pair.numbers.max_rel_error == pytest.approx(1 / 3, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_point_that_has_no_neighbours_is_refused(value):
    with pytest.raises(CaseFailedError) as caught:
        check(tanh(points={"x": [0.5, value]}))
    assert caught.value.kind == "values"
    assert caught.value.message == (
        f"input x is {value} at [1]: there is no difference to take there; give a finite value, or say "
        "'differentiate: false'."
    )


def test_a_gradient_of_another_shape_is_a_mismatch_of_its_own_pair():
    findings = check(product(lambda u, a, b: (u * b, np.sum(u * a, keepdims=True))))
    assert statuses(findings) == {"dy/da": "inconclusive", "dy/db": "mismatched"}
    first, second = findings.pairs
    assert first.message == "not checked, since another gradient has the wrong form."
    assert second.message == (
        "the gradient for b must have shape [2], as its input has, but has [1] when it runs."
    )


def test_a_fault_of_form_that_names_no_input_is_every_pairs():
    def gradient(*_):
        raise GradientFormError((), "a gradient has another shape than its input")

    op = product(gradient)
    findings = check(op, pairs=(PairRule("dy/db", "skip"),))
    assert statuses(findings) == {"dy/da": "mismatched", "dy/db": "skipped"}
    assert findings.pairs[0].judged_by.method == "none"


def test_a_fault_of_form_fails_the_case_unless_the_input_is_skipped_for_every_output():
    op = product(lambda u, a, b: (u * b, u * a), facts={"dtype_faults": {1: "must have shape [3]."}})
    assert case_status(*_pairs_and_checks(op, PairRule("dy/da", "skip"))) is Status.MISMATCHED
    assert case_status(*_pairs_and_checks(op, PairRule("dy/db", "skip"))) is Status.PASSED


def _pairs_and_checks(op, rule):
    findings = check(op, pairs=(rule,))
    return findings.pairs, findings.checks


def test_a_reference_of_other_shapes_is_refused():
    with pytest.raises(CaseFailedError) as caught:
        check(tanh(reference=np.sum))
    assert (caught.value.kind, caught.value.message) == (
        "outputs",
        "the reference's outputs must have the forward's shapes [[3]], but have [[]].",
    )


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_zero_size_tensors_are_checked_for_shape(shape):
    pair = only(check(Numpy(lambda x: 2 * x, lambda u, _: 2 * u, {"x": np.zeros(shape)})))
    assert (pair.status, pair.numbers.elements, pair.note, pair.numbers.worst) == (
        Status.PASSED,
        0,
        "zero-size: shape only",
        None,
    )


def test_a_wrong_imaginary_part_is_named():
    op = Numpy(lambda z: 3 * z, lambda u, _: 3 * u.real + 2j * u.imag, {"z": np.array([1 + 2j])})
    pair = only(check(op))
    assert (pair.numbers.worst.output_part, pair.numbers.worst.input_part) == ("im", "im")
    assert (pair.numbers.worst.output_index, pair.numbers.worst.input_index) == ((0,), (0,))


def test_the_domain_is_never_left():
    op = Numpy(np.sqrt, lambda u, x: u / (2 * np.sqrt(x)), {"x": [1e-3, 1.0]})
    assert only(check(op, domains={"x": (0.0, 1.0)})).status is Status.PASSED
    points = np.array([point[0] for made in op.opened for point in made.evaluated])
    assert points.min() >= 0
    assert points.max() <= 1


def test_a_structural_fault_of_any_point_is_kept():
    # Linear at the first point, where every x is positive; at the second the upstream's sign is lost.
    op = tanh(
        lambda u, x: slope(x) * (u if (x > 0).all() else np.where(u == 1, u, np.abs(u))),
        points=[{"x": [0.5, 1.0]}, {"x": [0.5, -1.0]}],
    )
    findings = check(op)
    assert only(findings).status is Status.PASSED
    (linearity,) = [found for found in findings.checks if found.name == "linearity"]
    assert linearity.status is Status.MISMATCHED
