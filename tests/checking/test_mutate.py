"""Corrupted gradients: which are tried, which are caught, and that a blunt spec misses them."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import Opening, OpForms
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
    kinds = set(ALL) - {"conjugate", "axis", "branch", "ones", "repeats", "size"}
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


def test_every_form_of_an_op_has_the_corrupted_gradient():
    op = tanh().open(Opening())
    names = {one.name for one in fields(OpForms)} - {"place_of_rounding"}
    right = replace(op, forms=OpForms(**dict.fromkeys(names, lambda *_: op)))
    wrong = Corruption("sign", frozenset([0])).corrupt(right)
    upstream = np.ones((1, *op.outputs[0].shape))
    for name in names:
        form = getattr(wrong.forms, name)(frozenset())
        np.testing.assert_array_equal(form.vjp(0, upstream)[0], -op.vjp(0, upstream)[0])


def of(forward, gradient, *values):
    """Return an op of x, and of y if there are two values."""
    return Numpy(forward, gradient, dict(zip("xy", map(np.array, values), strict=False)))


LEFT = itertools.count(1.0)  # in memory, which nothing was written to
ZERO = {"pairs": (PairRule("dy/dx", "zero"),)}
PLUS_ONE = np.ones((2, 2)) + np.eye(2)
SUM = of(lambda x: (x**2).sum(), lambda u, x: 2 * x * u, [1.0, 2.0])
OF_TWO = of(
    lambda x, y: (x**2).sum() + 0 * y.sum(), lambda u, x, y: (2 * x * u, 0 * y * u), [1.0, 2.0], [1.0, 2.0]
)
TRIED = {
    "a vector has nothing to transpose": (tanh(), ("transpose", "swap", "conjugate"), {}, ""),
    "a symmetric gradient": (
        of(lambda x: (x * x).sum(), lambda u, x: 2 * x * u, PLUS_ONE),
        ("transpose",),
        {},
        "",
    ),
    "two gradients that are the same": (
        of(lambda x, y: x + y, lambda u, *_: (u, u), [1.0, 2.0], [3.0, 4.0]),
        ("swap",),
        {},
        "",
    ),
    "zeros": (of(lambda x: 0 * x + 1, lambda u, x: 0 * x * u, [1.0, 2.0]), ALL, ZERO, ""),
    "zeros but for rounding": (
        of(lambda x: 0 * x + 1, lambda u, x: 1e-17 * x * u, [1.0, 2.0]),
        ALL,
        ZERO,
        "",
    ),
    "an output without elements": (
        of(lambda x: x[:0], lambda _, x: 0 * x + next(LEFT), [1.0, 2.0]),
        ALL,
        {},
        "",
    ),
    "a deaf gradient of one element": (SUM, ("upstream",), {}, "caught"),
    "of which nobody looks at the upstream": (
        SUM,
        ("upstream",),
        {"checks_off": frozenset({"linearity", "zero_upstream"})},
        "missed",
    ),
    "a deaf one beside zeros": (OF_TWO, ("upstream",), {"pairs": (PairRule("dy/dy", "zero"),)}, "caught"),
    # The largest element is the one that changes: any tolerance hides an error of the first.
    "elements of all sizes": (of(np.square, lambda u, x: 2 * x * u, [1e-9, 2.0]), ("element",), {}, "caught"),
    "complex": (
        of(np.square, lambda u, x: 2 * np.conj(x) * u, [1 + 2j, 3 - 1j]),
        ("conjugate",),
        {},
        "caught",
    ),
    "float32 and its formula alike": (tanh(dtypes={"x": "float32"}), ("sign", "factor"), {}, "caught"),
}


@pytest.mark.parametrize(("made", "corruptions", "changes", "outcome"), TRIED.values(), ids=TRIED)
def test_what_becomes_of_corruptions_of_x(made, corruptions, changes, outcome):
    outcomes, findings, _ = tried(made, corruptions, **changes)
    assert outcomes == ({("dy/dx", kind): outcome for kind in corruptions} if outcome else {})
    assert {pair.status for pair in findings.pairs} == {Status.PASSED}


def test_a_wrong_gradient_is_not_corrupted_but_its_neighbour_is():
    outcomes, findings, _ = tried(product(lambda u, a, b: (u * b, 2 * u * a)), ("sign",))
    assert [str(pair.status) for pair in findings.pairs] == ["passed", "mismatched"]
    assert outcomes == {("dy/da", "sign"): "caught"}


def test_a_wide_tolerance_and_a_kink_miss_what_is_smaller():
    outcomes, _, mutants = tried(tanh(), ("factor", "sign"), tolerance=StatedTolerance(rtol=0.1))
    assert outcomes == {("dy/dx", "factor"): "missed", ("dy/dx", "sign"): "caught"}
    (missed,) = [one for one in mutants if one.outcome == "missed"]
    assert 0 < missed.change < missed.allowed
    kink = of(np.abs, lambda u, x: 0.5 * u * np.ones_like(x), [0.0])
    outcomes, _, (mutant,) = tried(kink, ("factor",))
    assert (outcomes, mutant.kinks) == ({("dy/dx", "factor"): "missed"}, 1)


@pytest.mark.parametrize("name", [name for name in ALL if name not in {"ones", "repeats", "size", "small"}])
def test_a_corrupted_gradient_is_wrong_beside_the_point_too(name):
    # Else what rounding does to the gradient is measured on the right one, which may excuse the wrong one.
    op = matmul().open(Opening(0))
    wrong = Corruption(name, frozenset({0, 1}), {(0, 0): 4, (0, 1): 2}).corrupt(op)
    upstream = GENERATOR.normal(size=(2, 3, 3))
    point = {index: np.stack([value, value]) for index, value in enumerate(op.point)}
    for at, beside in zip(wrong.vjp(0, upstream), wrong.vjp_beside(0, upstream, point), strict=True):
        np.testing.assert_array_equal(at, beside)
