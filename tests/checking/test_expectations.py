from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import Status, case_status
from gradcheck_cli.spec.case import PairRule
from tests.support.numpy_op import Numpy, check, product, tanh

UNUSED = {"a": [2.0, -3.0], "b": [0.5, 4.0]}


def connected(u, a, b):
    return u * b, u * a


def wrong(u, a, b):
    return 1.5 * u * b, u * a


def first_alone(second):
    """a alone matters; `second` is the gradient for b."""
    return Numpy(lambda a, b: 3 * a + 0 * b, lambda u, *_: (3 * u, second(u)), UNUSED)


def pair_of(op, label, expect, **changes):
    findings = check(op, pairs=(PairRule(label, expect, **changes),))
    return next(pair for pair in findings.pairs if pair.label == label)


@pytest.mark.parametrize(
    ("op", "label", "expect", "status"),
    [
        (product(connected), "dy/da", "pass", Status.PASSED),
        (product(wrong), "dy/da", "pass", Status.MISMATCHED),
        (product(wrong), "dy/da", "mismatch", Status.EXPECTED_MISMATCH),
        (product(connected), "dy/da", "mismatch", Status.UNEXPECTED_PASS),
        (product(connected), "dy/da", "skip", Status.SKIPPED),
        (product(connected), "dy/da", "disconnected", Status.MISMATCHED),
        (product(connected), "dy/da", "zero", Status.MISMATCHED),
        (first_alone(lambda _: None), "dy/db", "disconnected", Status.PASSED),
        (first_alone(lambda _: None), "dy/db", "zero", Status.MISMATCHED),
        (first_alone(lambda _: None), "dy/db", "pass", Status.PASSED),
        (first_alone(lambda _: None), "dy/db", "mismatch", Status.UNEXPECTED_PASS),
        (first_alone(lambda u: 0 * u), "dy/db", "zero", Status.PASSED),
        (first_alone(lambda u: 0 * u), "dy/db", "disconnected", Status.MISMATCHED),
        (first_alone(lambda u: 0 * u), "dy/db", "pass", Status.INCONCLUSIVE),
        (first_alone(lambda u: u), "dy/db", "zero", Status.MISMATCHED),
        (first_alone(lambda u: u), "dy/db", "mismatch", Status.EXPECTED_MISMATCH),
        # None where the derivative isn't zero: expected or not, the numbers say otherwise.
        (product(lambda u, a, _: (None, u * a)), "dy/da", "disconnected", Status.MISMATCHED),
        (product(lambda u, a, _: (None, u * a)), "dy/da", "mismatch", Status.EXPECTED_MISMATCH),
        # Zeros where the derivative isn't zero.
        (product(lambda u, a, _: (0 * u, u * a)), "dy/da", "zero", Status.MISMATCHED),
    ],
)
def test_what_is_expected_is_strict(op, label, expect, status):
    assert pair_of(op, label, expect).status is status


@pytest.mark.parametrize(
    ("op", "label", "expect", "message"),
    [
        (
            product(connected),
            "dy/da",
            "mismatch",
            "the spec expects a mismatch, but the gradient is right; remove 'expect: mismatch'.",
        ),
        (
            product(connected),
            "dy/da",
            "disconnected",
            "the spec expects a disconnected pair (None), but the gradient is a tensor.",
        ),
        (product(connected), "dy/da", "zero", "the spec expects zeros, but the gradient isn't zero."),
        (
            first_alone(lambda _: None),
            "dy/db",
            "zero",
            "the spec expects a gradient of zeros, but it is None (disconnected); they aren't the same.",
        ),
    ],
)
def test_what_comes_instead_is_said(op, label, expect, message):
    assert pair_of(op, label, expect).message == message


@pytest.mark.parametrize(
    ("op", "label", "expect", "note"),
    [
        (product(wrong), "dy/da", "mismatch", "as expected: a known fault"),
        (first_alone(lambda _: None), "dy/db", "disconnected", "as expected"),
        (first_alone(lambda u: 0 * u), "dy/db", "zero", "zero, as expected"),
        (first_alone(lambda u: 1e-17 * u), "dy/db", "zero", "zero up to rounding, as expected"),
        (product(connected), "dy/da", "skip", "a known fault"),
    ],
)
def test_what_was_expected_is_noted(op, label, expect, note):
    pair = pair_of(op, label, expect, reason="a known fault")
    assert (pair.note, pair.message) == (note, "")


def test_a_skip_without_a_reason_says_what_asked_for_it():
    assert pair_of(product(), "dy/da", "skip").note == "expect: skip"


def test_zeros_are_no_excuse_for_what_could_not_be_decided():
    jump = Numpy(lambda a, b: a + (b > 0), lambda u, *_: (u, 0 * u), {"a": [1.0, 2.0], "b": [0.0, 1.0]})
    assert pair_of(jump, "dy/db", "zero").status is Status.INCONCLUSIVE


def stairs(gradient):
    return Numpy(
        lambda a, b: a + np.floor(64 * b), lambda u, *_: (u, gradient(u)), {"a": [1.0, 2.0], "b": [0.3, 1.1]}
    )


def test_steps_are_meant_where_the_spec_expects_zeros():
    flat = stairs(lambda u: 0 * u)
    assert pair_of(flat, "dy/db", "pass").status is Status.INCONCLUSIVE
    assert pair_of(flat, "dy/db", "zero").status is Status.PASSED
    assert pair_of(stairs(lambda u: 64 * u), "dy/db", "zero").status is Status.MISMATCHED


def test_a_mismatch_expected_of_one_pair_excuses_no_other():
    both_wrong = product(lambda u, a, b: (2 * u * b, 2 * u * a))
    findings = check(both_wrong, pairs=(PairRule("dy/da", "mismatch"),))
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.MISMATCHED]
    assert case_status(findings.pairs, findings.checks) is Status.MISMATCHED


def test_the_upstream_of_a_pair_expected_to_be_wrong_is_of_no_interest():
    findings = check(product(lambda u, a, b: (b + 0 * u, u * a)), pairs=(PairRule("dy/da", "mismatch"),))
    assert all(found.status is Status.PASSED for found in findings.checks)


def test_the_last_rule_that_matches_governs():
    rules = (PairRule("dy/d*", "mismatch"), PairRule("dy/db", "pass"))
    findings = check(product(wrong), pairs=rules)
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.PASSED]


def case_of(op):
    findings = check(op, expect="mismatch")
    return case_status(findings.pairs, findings.checks), findings


def test_every_pair_of_an_op_expected_to_be_wrong_must_be_wrong():
    status, findings = case_of(product(wrong))
    assert status is Status.UNEXPECTED_PASS
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.UNEXPECTED_PASS]
    assert findings.pairs[1].message == (
        "the spec expects a mismatch, but the gradient is right; say 'expect: mismatch' of the pairs that "
        "are wrong alone, under 'pairs'."
    )


def test_a_rule_for_a_pair_is_an_exception_to_what_is_expected_of_the_op():
    findings = check(product(wrong), expect="mismatch", pairs=(PairRule("dy/db", "pass"),))
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.PASSED]


def test_a_tolerance_for_a_pair_says_nothing_of_what_is_expected_of_it():
    findings = check(product(wrong), expect="mismatch", pairs=(PairRule("dy/da", "", rtol=1e-3),))
    assert findings.pairs[0].status is Status.EXPECTED_MISMATCH


def test_a_gradient_that_uses_its_upstream_wrongly_is_a_mismatch_too():
    status, findings = case_of(tanh(lambda u, x: (1 - np.tanh(x) ** 2) * u * u))
    assert status is Status.EXPECTED_MISMATCH
    assert findings.pairs[0].mismatch == "value"


def test_so_is_one_that_mixes_the_upstreams_of_two_outputs():
    op = Numpy(
        lambda a: (2 * a, 3 * a),
        (lambda u, _: 2 * u, lambda u, _: 3 * u),
        {"a": [1.0, 2.0]},
        outputs=("y0", "y1"),
        facts={"joint": lambda flows, _: [2 * flows[0] + 3 * flows[1] + flows[0] * flows[1]]},
    )
    findings = check(op, pairs=(PairRule("*/da", "mismatch"),))
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH] * 2


def test_another_output_that_uses_its_upstream_wrongly_makes_no_right_pair_wrong():
    op = Numpy(
        lambda a: (2 * a, 3 * a),
        (lambda u, _: 2 * u, lambda u, _: 3 * u * u),
        {"a": [1.0, 2.0]},
        outputs=("y0", "y1"),
    )
    findings = check(op, expect="mismatch")
    assert [pair.status for pair in findings.pairs] == [Status.UNEXPECTED_PASS, Status.EXPECTED_MISMATCH]


def test_an_op_expected_to_be_wrong_that_can_not_be_decided_stays_so():
    status, _ = case_of(Numpy(lambda x: x * 0, lambda u, _: 0 * u, {"x": [1.0]}))
    assert status is Status.INCONCLUSIVE


NOT_A_NUMBER = product(lambda u, a, b: (u * b * np.nan, u * a))
NEITHER = product(lambda u, a, b: (u * b * [np.nan, 2], u * a))
NO_GRADIENT = product(lambda u, a, _: (None, u * a))


@pytest.mark.parametrize(
    ("op", "kind", "status"),
    [
        (product(wrong), "value", Status.EXPECTED_MISMATCH),
        (product(wrong), "none", Status.MISMATCHED),
        (product(wrong), "nonfinite", Status.MISMATCHED),
        (product(wrong), "form", Status.MISMATCHED),
        (product(wrong), "raises", Status.MISMATCHED),
        (NO_GRADIENT, "none", Status.EXPECTED_MISMATCH),
        (NO_GRADIENT, "value", Status.MISMATCHED),
        (NOT_A_NUMBER, "nonfinite", Status.EXPECTED_MISMATCH),
        (NOT_A_NUMBER, "value", Status.MISMATCHED),
        (NEITHER, "value", Status.MISMATCHED),
        (NEITHER, "nonfinite", Status.MISMATCHED),
        (NEITHER, "", Status.EXPECTED_MISMATCH),
        (product(connected), "none", Status.UNEXPECTED_PASS),
    ],
)
def test_a_mismatch_of_another_kind_is_a_failure(op, kind, status):
    assert pair_of(op, "dy/da", "mismatch", kind=kind).status is status


def test_the_other_kind_is_said():
    assert pair_of(NO_GRADIENT, "dy/da", "mismatch", kind="value").message.startswith(
        "the spec expects a mismatch of the kind value, but this one is of the kind none. the gradient is"
    )


def raising(*_):
    raise CaseFailedError("gradient", "the gradient function raised ValueError: not for training.")


def test_a_gradient_may_raise_by_design():
    findings = check(product(raising), expect="mismatch", kind="raises")
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH] * 2
    assert case_status(findings.pairs, findings.checks) is Status.EXPECTED_MISMATCH


def test_of_the_pairs_beside_it_nothing_is_known():
    findings = check(product(raising), pairs=(PairRule("dy/da", "mismatch", kind="raises"),))
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.ERROR]
    assert findings.pairs[1].message.startswith("not checked: the gradient function raised ValueError")


@pytest.mark.parametrize("kind", ["", "value", "none"])
def test_a_gradient_that_raises_otherwise_is_an_error(kind):
    with pytest.raises(CaseFailedError):
        check(product(raising), expect="mismatch", kind=kind)


def test_a_gradient_that_does_not_raise_though_it_should_fails():
    findings = check(product(connected), expect="mismatch", kind="raises")
    assert {pair.status for pair in findings.pairs} == {Status.UNEXPECTED_PASS}


def test_the_worst_element_of_a_broken_zero_is_one_that_is_not_zero():
    # The stairs make y[0] / b[0] uncertain, which isn't what the spec expects zeros of.
    pair = pair_of(first_alone(lambda u: u * [0.0, 3.0]), "dy/db", "zero")
    assert (pair.numbers.worst.output_index, pair.numbers.worst.input_index, pair.numbers.worst.analytic) == (
        (1,),
        (1,),
        3.0,
    )
    assert (pair.error, pair.numbers.wrong_elements) == (3.0, 1)
