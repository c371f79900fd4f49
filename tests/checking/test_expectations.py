"""What a rule makes of a pair, and what is said of it; rows `expectations` have each kind of mismatch."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import Status, case_status
from gradcheck_cli.spec.case import PairRule
from tests.support.numpy_op import Numpy, check, product

UNUSED = {"a": [2.0, -3.0], "b": [0.5, 4.0]}
RIGHT = product()
WRONG = product(lambda u, a, b: (1.5 * u * b, u * a))


def first_alone(second):
    """a alone matters; `second` is the gradient for b."""
    return Numpy(lambda a, b: 3 * a + 0 * b, lambda u, *_: (3 * u, second(u)), UNUSED)


NONE, ZEROS = first_alone(lambda _: None), first_alone(lambda u: 0 * u)
NO_GRADIENT = product(lambda u, a, _: (None, u * a))


def pair_of(op, label, expect, **changes):
    findings = check(op, pairs=(PairRule(label, expect, **changes),))
    return next(pair for pair in findings.pairs if pair.label == label)


# An op, a pair, what is expected of it, what comes of it, and the end of what is said.
SAID = [
    (RIGHT, "dy/da", "pass", Status.PASSED, ""),
    (WRONG, "dy/da", "pass", Status.MISMATCHED, ""),
    (NONE, "dy/db", "pass", Status.PASSED, ""),
    (NONE, "dy/db", "mismatch", Status.UNEXPECTED_PASS, ""),
    (ZEROS, "dy/db", "disconnected", Status.MISMATCHED, ""),
    (ZEROS, "dy/db", "pass", Status.INCONCLUSIVE, ""),
    (first_alone(lambda u: u), "dy/db", "zero", Status.MISMATCHED, ""),
    (first_alone(lambda u: u), "dy/db", "mismatch", Status.EXPECTED_MISMATCH, ""),
    # None or zeros where the derivative isn't zero: expected or not, the numbers say otherwise.
    (NO_GRADIENT, "dy/da", "disconnected", Status.MISMATCHED, ""),
    (product(lambda u, a, _: (0 * u, u * a)), "dy/da", "zero", Status.MISMATCHED, ""),
    (RIGHT, "dy/da", "mismatch", Status.UNEXPECTED_PASS, "the gradient is right; remove 'expect: mismatch'."),
    (
        RIGHT,
        "dy/da",
        "disconnected",
        Status.MISMATCHED,
        "a disconnected pair (None), but the gradient is a tensor.",
    ),
    (RIGHT, "dy/da", "zero", Status.MISMATCHED, "the spec expects zeros, but the gradient isn't zero."),
    (NONE, "dy/db", "zero", Status.MISMATCHED, "but it is None (disconnected); they aren't the same."),
    (WRONG, "dy/da", "mismatch", Status.EXPECTED_MISMATCH, "as expected: a known fault"),
    (NONE, "dy/db", "disconnected", Status.PASSED, "as expected"),
    (ZEROS, "dy/db", "zero", Status.PASSED, "zero, as expected"),
    (first_alone(lambda u: 1e-17 * u), "dy/db", "zero", Status.PASSED, "zero up to rounding, as expected"),
    (RIGHT, "dy/da", "skip", Status.SKIPPED, "a known fault"),
]


@pytest.mark.parametrize(("op", "label", "expect", "status", "said"), SAID)
def test_what_is_said_of_what_was_expected(op, label, expect, status, said):
    pair = pair_of(op, label, expect, reason="a known fault")
    assert pair.status is status
    assert (pair.message or pair.note).endswith(said)


def test_a_skip_without_a_reason_says_what_asked_for_it():
    assert pair_of(product(), "dy/da", "skip").note == "expect: skip"


def stairs(gradient):
    return Numpy(
        lambda a, b: a + np.floor(64 * b), lambda u, *_: (u, gradient(u)), {"a": [1.0, 2.0], "b": [0.3, 1.1]}
    )


def test_steps_are_meant_where_the_spec_expects_zeros():
    flat = stairs(lambda u: 0 * u)
    assert pair_of(flat, "dy/db", "pass").status is Status.INCONCLUSIVE
    assert pair_of(flat, "dy/db", "zero").status is Status.PASSED
    assert pair_of(stairs(lambda u: 64 * u), "dy/db", "zero").status is Status.MISMATCHED
    # Zeros are no excuse for what couldn't be decided.
    jump = Numpy(lambda a, b: a + (b > 0), lambda u, *_: (u, 0 * u), {"a": [1.0, 2.0], "b": [0.0, 1.0]})
    assert pair_of(jump, "dy/db", "zero").status is Status.INCONCLUSIVE


def test_the_last_rule_that_matches_governs():
    rules = (PairRule("dy/d*", "mismatch"), PairRule("dy/db", "pass"))
    findings = check(WRONG, pairs=rules)
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.PASSED]


def test_every_pair_of_an_op_expected_to_be_wrong_must_be_wrong():
    findings = check(WRONG, expect="mismatch")
    assert case_status(findings.pairs, findings.checks) is Status.UNEXPECTED_PASS
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.UNEXPECTED_PASS]
    assert findings.pairs[1].message == (
        "the spec expects a mismatch, but the gradient is right; say 'expect: mismatch' of the pairs that "
        "are wrong alone, under 'pairs'."
    )


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
    findings = check(Numpy(lambda x: x * 0, lambda u, _: 0 * u, {"x": [1.0]}), expect="mismatch")
    assert case_status(findings.pairs, findings.checks) is Status.INCONCLUSIVE


def test_a_mismatch_of_another_kind_is_said():
    assert pair_of(NO_GRADIENT, "dy/da", "mismatch", kind="value").message.startswith(
        "the spec expects a mismatch of the kind value, but this one is of the kind none. the gradient is"
    )


def test_of_the_pairs_beside_one_that_may_raise_nothing_is_known():
    def raising(*_):
        raise CaseFailedError("gradient", "the gradient function raised ValueError: not for training.")

    findings = check(product(raising), pairs=(PairRule("dy/da", "mismatch", kind="raises"),))
    assert [pair.status for pair in findings.pairs] == [Status.EXPECTED_MISMATCH, Status.ERROR]
    assert findings.pairs[1].message.startswith("not checked: the gradient function raised ValueError")


def test_the_worst_element_of_a_broken_zero_is_one_that_is_not_zero():
    # The stairs make y[0] / b[0] uncertain, which isn't what the spec expects zeros of.
    pair = pair_of(first_alone(lambda u: u * [0.0, 3.0]), "dy/db", "zero")
    worst = pair.numbers.worst
    assert (worst.output_index, worst.input_index, worst.analytic) == ((1,), (1,), 3.0)
    assert (pair.error, pair.numbers.wrong_elements) == (3.0, 1)
