from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.ops import jacobian
from gradcheck_cli.checking.ops.jacobian import (
    analytic_rows,
    packed_point,
    pull_back,
    working_precision,
)
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.ops.space import function_between
from tests.support.numpy_op import Numpy, product, tanh


def matrix_product(points=None):
    return Numpy(
        lambda a, b: a @ b,
        lambda u, a, b: (u @ b.T, a.T @ u),
        points or {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(12.0).reshape(3, 4)},
    )


def test_rows_are_elements_of_the_output_and_columns_of_the_input():
    op = matrix_product().operation()
    a, b = op.point
    rows = analytic_rows(op, 0, [0, 1])
    np.testing.assert_array_equal(rows[0], np.kron(np.eye(2), b.T))
    np.testing.assert_array_equal(rows[1], np.kron(a, np.eye(4)))


@pytest.mark.parametrize("elements", [1, 20, 30])
def test_rows_come_in_blocks_that_join_without_a_seam(monkeypatch, elements):
    op = matrix_product().operation()
    whole = analytic_rows(op, 0, [0, 1])
    monkeypatch.setattr(jacobian, "FLOATS_AT_ONCE", elements)
    for number, matrix in analytic_rows(op, 0, [0, 1]).items():
        np.testing.assert_array_equal(matrix, whole[number])


def test_only_the_inputs_asked_about_have_rows():
    op = Numpy(
        lambda x, n: x * n, lambda u, _, n: (u * n, None), {"x": [1.0, 2.0], "n": np.array(3)}
    ).operation()
    assert list(analytic_rows(op, 0, [0])) == [0]
    np.testing.assert_array_equal(analytic_rows(op, 0, [0])[0], 3 * np.eye(2))


def test_disconnected_is_none_and_zero_is_not():
    op = product(lambda u, *_: (0 * u, None)).operation()
    rows = analytic_rows(op, 0, [0, 1])
    np.testing.assert_array_equal(rows[0], np.zeros((2, 2)))
    assert rows[1] is None
    assert analytic_rows(product(lambda *_: (None, None)).operation(), 0, [0, 1]) == {0: None, 1: None}


def test_a_gradient_of_another_shape_names_its_input():
    op = product(lambda u, a, _: (u, np.outer(u, a))).operation()
    with pytest.raises(GradientFormError) as caught:
        pull_back(op, 0, np.eye(2))
    assert caught.value.inputs == (1,)
    assert caught.value.message == (
        "the gradient for b must have shape [2], as its input has, but has [2, 2] when it runs."
    )


def test_a_packed_function_moves_one_input_and_joins_the_outputs():
    op = Numpy(
        lambda a, b: (a + b, a * b),
        [lambda u, *_: (u, u), lambda u, a, b: (u * b, u * a)],
        {"a": [2.0, 3.0], "b": [0.5, 4.0]},
        outputs=("s", "p"),
    ).operation()
    np.testing.assert_array_equal(
        function_between(op, [1], [0, 1])(np.array([[1.0, 2.0], [0.0, 0.0]])), [[3, 5, 2, 6], [2, 3, 0, 0]]
    )
    np.testing.assert_array_equal(function_between(op, [0], [1])(np.array([[1.0, 2.0]])), [[0.5, 8]])
    np.testing.assert_array_equal(packed_point(op, 1), [0.5, 4])


def test_complex_tensors_move_as_two_parts():
    op = Numpy(lambda z: z * 1j, lambda u, _: u * -1j, {"z": np.array([1 + 2j])}).operation()
    np.testing.assert_array_equal(packed_point(op, 0), [1, 2])
    np.testing.assert_array_equal(function_between(op, [0], [0])(np.array([[1.0, 2.0]])), [[-2, 1]])
    np.testing.assert_array_equal(analytic_rows(op, 0, [0])[0], [[0, -1], [1, 0]])


@pytest.mark.parametrize(
    ("low", "dtype", "expected"),
    [
        ((), "float64", "float64"),
        ((), "complex64", "float32"),
        (("float32",), "float64", "float32"),
        (("float32", "bfloat16"), "float64", "bfloat16"),
        (("float32", "float16"), "float32", "float16"),
        (("complex64",), "complex128", "float32"),
    ],
)
def test_the_coarsest_precision_on_the_path_rules(low, dtype, expected):
    op = tanh(facts={"low_precision": low}).operation()
    assert working_precision(op, dtype).name == expected
