"""A hint is told where it explains the gradient, and not where it only nearly does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradcheck_cli.checking.ops.jacobian import hint_on_triangle
from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.features.diagnosis.hints import Pair, hint


def views(numeric, analytic, points=2):
    """The pair at some points; `numeric` and `analytic` are functions of a generator."""
    found = []
    for seed in range(points):
        values = numeric(np.random.default_rng(seed))
        wrong = analytic(values, np.random.default_rng(100 + seed))
        generator = np.random.default_rng(200 + seed)
        point = {"x": generator.standard_normal(values.shape[1])}
        slack = np.full(values.shape, 1e-7)
        known = np.ones(values.shape, dtype=bool)
        found.append((wrong, values, slack, known, point["x"], generator.standard_normal(values.shape[0])))
    wrong, values, slack, known, point, value = map(np.stack, zip(*found, strict=True))
    return wrong, values, slack, known, {"x": point}, value, {}


def told(numeric, analytic, output, taken, points=2):
    infos = TensorInfo("y", "float64", output), TensorInfo("x", "float64", taken)
    return hint(Pair(*infos, *views(numeric, analytic, points)))


def dense(rows, columns):
    return lambda generator: generator.standard_normal((rows, columns))


def diagonal(size):
    return lambda generator: np.diag(generator.standard_normal(size))


def transposed(jacobian):
    return jacobian.reshape(2, 3, 3).swapaxes(1, 2).reshape(2, 9)


MISTAKES = {
    "factor": (dense(3, 4), lambda j, _: 2 * j, (3,), (4,), "2 times"),
    "nearly right": (dense(3, 4), lambda j, _: j * (1 + 3e-6), (3,), (4,), "is (1 + 3e-06) times"),
    "a size": (dense(3, 4), lambda j, _: j / 4, (3,), (4,), "the sum is meant"),
    "transposed": (dense(2, 9), lambda j, _: transposed(j), (2,), (3, 3), "transposed"),
    "reversed": (dense(3, 4), lambda j, _: j[:, ::-1], (3,), (4,), "reverse"),
    "shifted": (dense(3, 4), lambda j, _: np.roll(j, 1, 1), (3,), (4,), "shifted by 1"),
    "forwards": (dense(4, 4), lambda j, _: j.T, (4,), (4,), "does a step run forwards"),
    "rows": (dense(4, 4), lambda j, _: j * [[1], [1], [3], [1]], (4,), (4,), "counts 3 times"),
    "columns": (dense(4, 4), lambda j, _: j * [1, 1, 0, 1], (4,), (4,), "zero for x[2]"),
    "sign": (dense(4, 4), lambda j, _: np.abs(j), (4,), (4,), "absolute value"),
    "mask": (lambda g: np.diag([1.0, 0, 0, 2, 0.5]) + 0 * g.random(), lambda j, _: j + np.diag([0, 1, 1, 0, 0]), (5,), (5,), "missing"),  # noqa: E501 (a row of the table)
    "rank one": (dense(4, 4), lambda j, g: j + np.outer(g.random(4), g.random(4)), (4,), (4,), "of rank one"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_what_explains_the_gradient_is_told(name):
    numeric, analytic, output, taken, words = MISTAKES[name]
    assert words in told(numeric, analytic, output, taken)


@pytest.mark.parametrize("name", sorted(set(MISTAKES) - {"rank one"}))
def test_a_hint_that_one_element_contradicts_is_not_told(name):
    numeric, analytic, output, taken, words = MISTAKES[name]

    def with_another(values, generator):
        wrong = analytic(values, generator).copy()
        wrong.flat[np.argmax(np.abs(wrong))] *= 1.01
        return wrong

    assert words not in told(numeric, with_another, output, taken)


@pytest.mark.parametrize("name", sorted(set(MISTAKES) - {"rank one"}))
def test_a_hint_must_hold_at_every_point(name):
    numeric, analytic, output, taken, words = MISTAKES[name]
    infos = TensorInfo("y", "float64", output), TensorInfo("x", "float64", taken)
    pair = Pair(*infos, *views(numeric, analytic))
    generator = np.random.default_rng(7)
    second = pair.numeric[1]
    moved = second + np.where(second != 0, generator.standard_normal(second.shape), 0)
    assert words not in hint(replace(pair, analytic=np.stack([pair.analytic[0], moved])))


SHAPES = [((), (5,)), ((3,), (4,)), ((4,), (4,)), ((2, 3), (2, 3)), ((2, 2), (2, 2)), ((3,), (3, 3))]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("output", "taken"), SHAPES)
def test_of_a_gradient_that_is_wrong_in_no_known_way_nothing_is_told(output, taken, seed):
    size = int(np.prod(output)), int(np.prod(taken))

    def numeric(generator):
        return np.random.default_rng([seed, generator.integers(99)]).standard_normal(size)

    assert told(numeric, lambda j, g: j + g.standard_normal(j.shape), output, taken) == ""


def test_one_triangle_is_told_where_the_rest_is_what_memory_held():
    """A batch of two: of one matrix the lower triangle is read, and the other is unwritten memory."""
    differences, gradient = np.zeros((2, 8)), np.zeros((2, 8))
    differences[0, 2], gradient[0, 1:3] = 2.0, 1.0
    differences[1, 4:] = [0.0, 5e-324, 1e-310, 0.0]
    taken = TensorInfo("x", "float64", (2, 2, 2))
    assert "zero above the diagonal of x" in hint_on_triangle(gradient, differences, taken)
    differences[0, 1] = 1e-6
    assert hint_on_triangle(gradient, differences, taken) == ""
