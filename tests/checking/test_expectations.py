from __future__ import annotations

import numpy as np
import pytest
from numpy_op import Numpy, check, product, tanh

from gradcheck_cli.results import Status, case_status
from gradcheck_cli.spec.case import PairRule

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


def test_one_mismatch_is_what_an_op_expected_to_be_wrong_needs():
    status, findings = case_of(product(wrong))
    assert status is Status.EXPECTED_MISMATCH
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.PASSED]


def test_a_failing_check_is_a_mismatch_too():
    status, findings = case_of(tanh(lambda u, x: (1 - np.tanh(x) ** 2) * u * u))
    assert status is Status.EXPECTED_MISMATCH
    assert Status.EXPECTED_MISMATCH in {found.status for found in findings.checks}


def test_an_op_expected_to_be_wrong_that_is_right_fails():
    status, findings = case_of(product(connected))
    assert status is Status.UNEXPECTED_PASS
    (found,) = [found for found in findings.checks if found.name == "expect"]
    assert found.message == "the spec expects a mismatch, but every pair passed; remove 'expect: mismatch'."


def test_an_op_expected_to_be_wrong_that_can_not_be_decided_stays_so():
    status, _ = case_of(Numpy(lambda x: x * 0, lambda u, _: 0 * u, {"x": [1.0]}))
    assert status is Status.INCONCLUSIVE
