"""Which axes go together is guessed from a few rows, and kept only where it holds on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.ops import analytic
from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Case, Judging
from tests.support.numpy_op import Numpy, check

X = np.random.default_rng(0).normal(size=(6, 7))
B = np.random.default_rng(1).normal(size=(7, 5))


@pytest.fixture(autouse=True)
def _small_ones_are_worth_it(monkeypatch):
    monkeypatch.setattr(analytic, "WORTH", 1)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def softmax_gradient(u, x):
    s = softmax(x)
    return s * (u - (u * s).sum(axis=1, keepdims=True))


OPS = {
    "elementwise": (Numpy(np.tanh, lambda u, x: u * (1 - np.tanh(x) ** 2), {"x": X}), 0, (42, 1)),
    "relu": (Numpy(lambda x: np.maximum(x, 0), lambda u, x: u * (x > 0), {"x": X}), 0, (42, 1)),
    "softmax": (Numpy(softmax, softmax_gradient, {"x": X}), 0, (6, 7)),
    "transpose": (Numpy(lambda x: x.T, lambda u, _: u.T, {"x": X}), 0, (42, 1)),
    "matmul a": (Numpy(lambda a, b: a @ b, lambda u, a, b: (u @ b.T, a.T @ u), {"a": X, "b": B}), 0, (6, 7)),
    "matmul b": (Numpy(lambda a, b: a @ b, lambda u, a, b: (u @ b.T, a.T @ u), {"a": X, "b": B}), 1, (5, 7)),
    "sum over rows": (
        Numpy(lambda x: x.sum(axis=1), lambda u, x: np.repeat(u[:, None], x.shape[1], 1), {"x": X}),
        0,
        (6, 7),
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_a_right_op_passes_in_few_evaluations(name):
    op, _, (_, slots) = OPS[name]
    found = check(op)
    assert all(pair.status is Status.PASSED for pair in found.pairs)
    assert min(pair.judged_by.evaluations for pair in found.pairs) <= 2 * (2 * slots + 1 + 6 + 60)


WRONG = {
    "softmax without its sum": (softmax, lambda u, x: u * softmax(x)),
    "mean forgotten": (lambda x: x - x.mean(), lambda u, _: u),
    "mean of a row forgotten": (lambda x: x - x.mean(axis=1, keepdims=True), lambda u, _: u),
    "weak coupling forgotten": (
        lambda x: np.tanh(x) + 1e-4 * x.sum(),
        lambda u, x: u * (1 - np.tanh(x) ** 2),
    ),
    "coupling made up": (np.tanh, lambda u, x: u * (1 - np.tanh(x) ** 2) + 1e-4 * u.sum()),
    "neighbours that cancel": (lambda x: x + 0.1 * (np.roll(x, 1, 0) - np.roll(x, 2, 0)), lambda u, _: u),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_coupling_that_only_one_side_knows_is_a_mismatch(name):
    pair = check(Numpy(*WRONG[name], {"x": X})).pairs[0]
    assert pair.status is Status.MISMATCHED


@pytest.mark.parametrize(
    ("name", "method", "kept"), [("elementwise", "auto", 1), ("softmax", "auto", 0), ("softmax", "full", 1)]
)
def test_classes_that_are_too_large_even_so_are_left_to_probes(monkeypatch, name, method, kept):
    monkeypatch.setattr(analytic, "MOST_ELEMENTS", 42)  # of softmax, 42 rows with 7 columns each are left
    op = OPS[name][0].open(Opening())
    case = Case(op="op", name="one", dtype="float64", arguments=(), judging=Judging(method=method))
    assert len(analytic.guess_sparsities(case, op, [(0, 0)])) == kept
