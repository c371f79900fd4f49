"""Corrupted gradients: which are tried, which are caught, and that a blunt spec misses them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.features.mutation.mutate_case import Corruption, mutate
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import PairRule, StatedTolerance
from gradcheck_cli.spec.words import CORRUPTIONS
from tests.support.numpy_op import Numpy, product, tanh

ALL = tuple(CORRUPTIONS)
GENERATOR = np.random.default_rng(0)


def tried(made, corruptions=ALL, **changes):
    """Return what becomes of each corruption of each pair, and what is found without any."""
    findings = mutate(made.case(**changes), made, range(len(made.points)), corruptions)
    mutants = findings.mutants
    return {(one.pair, one.corruption): one.outcome for one in mutants}, findings, mutants


def matmul():
    return Numpy(
        lambda a, b: a @ b,
        lambda u, a, b: (u @ b.T, a.T @ u),
        {"a": GENERATOR.normal(size=(3, 3)), "b": GENERATOR.normal(size=(3, 3))},
    )


def test_each_way_of_being_wrong_is_caught():
    outcomes, findings, _ = tried(matmul())
    kinds = (
        "factor",
        "sign",
        "element",
        "upstream",
        "none",
        "transpose",
        "swap",
        "small",
        "mean",
        "row",
        "zero",
    )
    assert outcomes == {(pair, kind): "caught" for pair in ("dy/da", "dy/db") for kind in kinds}
    assert {pair.status for pair in findings.pairs} == {Status.PASSED}


def test_the_op_is_opened_once_a_point_and_asked_nothing_twice():
    once, often = tanh(), tanh()
    tried(once, ("factor",))
    tried(often, ("factor", "sign", "none", "upstream"))
    assert len(often.opened) == len(often.points)
    # Four corruptions cost little more than two would: most of what they ask is the same.
    spent = [sum(len(op.evaluated) for op in made.opened) for made in (once, often)]
    assert spent[1] < 2.2 * spent[0]


@pytest.mark.parametrize(
    ("made", "corruptions"),
    [
        # Elementwise, on a vector: nothing to transpose, to swap or to conjugate.
        (tanh(), ("transpose", "swap", "conjugate")),
        # A symmetric gradient is its own transpose.
        (
            Numpy(lambda a: (a * a).sum(), lambda u, a: 2 * a * u, {"a": np.ones((2, 2)) + np.eye(2)}),
            ("transpose",),
        ),
        # Both gradients are the same: nothing is wrong about swapping them.
        (
            Numpy(lambda a, b: a + b, lambda u, *_: (u, u), {"a": np.ones(2), "b": np.ones(2)}),
            ("swap",),
        ),
    ],
)
def test_what_changes_nothing_is_not_tried(made, corruptions):
    outcomes, findings, _ = tried(made, corruptions)
    assert outcomes == {}
    assert {pair.status for pair in findings.pairs} == {Status.PASSED}


@pytest.mark.parametrize("remainder", [0, 1e-17])
def test_a_zero_gradient_has_nothing_to_corrupt(remainder):
    made = Numpy(lambda x: 0 * x + 1, lambda u, x: remainder * x * u, {"x": np.array([1.0, 2.0])})
    outcomes, _, _ = tried(made, pairs=(PairRule("dy/dx", "zero"),))
    assert outcomes == {}


def test_of_an_output_without_elements_there_is_nothing_to_corrupt():
    left = itertools.count(1.0)  # in memory, which nothing was written to
    made = Numpy(lambda x: x[:0], lambda _, x: 0 * x + next(left), {"x": np.array([1.0, 2.0])})
    outcomes, _, _ = tried(made)
    assert outcomes == {}


def test_a_wrong_gradient_is_not_corrupted_but_its_neighbour_is():
    made = product()
    right = made.gradients[0]
    made.gradients = (lambda u, a, b: (right(u, a, b)[0], 2 * right(u, a, b)[1]),)
    outcomes, findings, _ = tried(made, ("sign",))
    assert [str(pair.status) for pair in findings.pairs] == ["passed", "mismatched"]
    assert outcomes == {("dy/da", "sign"): "caught"}


def test_a_wide_tolerance_misses_what_is_smaller():
    outcomes, _, mutants = tried(tanh(), ("factor", "sign"), tolerance=StatedTolerance(rtol=0.1))
    assert outcomes == {("dy/dx", "factor"): "missed", ("dy/dx", "sign"): "caught"}
    (missed,) = [one for one in mutants if one.outcome == "missed"]
    assert 0 < missed.change < missed.allowed


def test_a_deaf_gradient_of_one_element_is_caught_by_the_checks_of_its_upstream():
    made = Numpy(lambda x: (x**2).sum(), lambda u, x: 2 * x * u, {"x": np.array([1.0, 2.0])})
    assert tried(made, ("upstream",))[0] == {("dy/dx", "upstream"): "caught"}
    outcomes, _, _ = tried(made, ("upstream",), checks_off=frozenset({"linearity", "zero_upstream"}))
    assert outcomes == {("dy/dx", "upstream"): "missed"}


def test_a_deaf_gradient_is_told_input_by_input():
    made = Numpy(
        lambda x, y: (x**2).sum() + 0 * y.sum(),
        lambda u, x, y: (2 * x * u, 0 * y * u),
        {"x": np.array([1.0, 2.0]), "y": np.array([1.0, 2.0])},
    )
    outcomes, _, _ = tried(made, ("upstream",), pairs=(PairRule("dy/dy", "zero"),))
    assert outcomes == {("dy/dx", "upstream"): "caught"}


def test_the_largest_element_is_the_one_that_changes():
    # At the second point the first element's gradient is too small for any tolerance.
    made = Numpy(lambda x: x**2, lambda u, x: 2 * x * u, {"x": np.array([1e-9, 2.0])})
    assert tried(made, ("element",))[0] == {("dy/dx", "element"): "caught"}


def test_the_declared_dtype_and_its_formula_are_corrupted_alike():
    made = tanh(dtypes={"x": "float32"})
    outcomes, findings, _ = tried(made)
    assert findings.pairs[0].judged_by.reference_dtype == "float64"
    assert set(outcomes.values()) == {"caught"}


def test_a_complex_gradient_may_lack_its_conjugate():
    made = Numpy(
        lambda x: x**2,
        lambda u, x: 2 * np.conj(x) * u,
        {"x": np.array([1 + 2j, 3 - 1j])},
    )
    assert tried(made, ("conjugate",))[0] == {("dy/dx", "conjugate"): "caught"}


def test_a_kink_hides_what_lies_between_its_slopes():
    made = Numpy(np.abs, lambda u, x: 0.5 * u * np.ones_like(x), {"x": np.zeros(1)})
    outcomes, findings, mutants = tried(made, ("factor",))
    assert findings.pairs[0].numbers.kinks == 1
    assert outcomes == {("dy/dx", "factor"): "missed"}
    assert mutants[0].kinks == 1


@pytest.mark.parametrize("name", [name for name in ALL if name not in {"ones", "repeats", "size", "small"}])
def test_a_corrupted_gradient_is_wrong_beside_the_point_too(name):
    # Else what rounding does to the gradient is measured on the right one, which may excuse the wrong one.
    op = matmul().open(Opening(0))
    wrong = Corruption(name, frozenset({0, 1}), {(0, 0): 4, (0, 1): 2}).corrupt(op)
    upstream = GENERATOR.normal(size=(2, 3, 3))
    point = {index: np.stack([value, value]) for index, value in enumerate(op.point)}
    for at, beside in zip(wrong.vjp(0, upstream), wrong.vjp_beside(0, upstream, point), strict=True):
        np.testing.assert_array_equal(at, beside)
