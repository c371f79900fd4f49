from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

from gradcheck_cli.reporting.jacobian import jacobian_json, jacobian_text
from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class View:
    output_shape: tuple[int, ...]
    input_shape: tuple[int, ...]
    analytic: np.ndarray
    numeric: np.ndarray
    uncertainty: np.ndarray
    label: str = "dc/da"
    output: str = "c"
    input: str = "a"


CASE = Case(
    "matmul", "default", "specs/matmul.yaml", "/specs", 1, None, "MatMul", "autodiff", None, (), "float64"
)


def view(output_shape, input_shape, matrix, error=None):
    analytic = np.asarray(matrix)
    numeric = analytic if error is None else analytic + error
    return View(output_shape, input_shape, analytic, numeric, np.full(analytic.shape, 1e-9))


def matmul_view():
    """The Jacobian of c = a b for 2 x 2 matrices, b = [[5, 6], [7, 8]]."""
    return view((2, 2), (2, 2), np.kron(np.eye(2), np.array([[5.0, 7.0], [6.0, 8.0]])))


def test_the_whole_jacobian():
    assert jacobian_text(CASE, matmul_view()) == (
        "specs/matmul.yaml · matmul · float64 · dc/da  (c (2, 2), a (2, 2))\n"
        "analytic\n"
        "  c[0,0]  5  7  0  0\n"
        "  c[0,1]  6  8  0  0\n"
        "  c[1,0]  0  0  5  7\n"
        "  c[1,1]  0  0  6  8\n"
        "numeric\n"
        "  c[0,0]  5  7  0  0\n"
        "  c[0,1]  6  8  0  0\n"
        "  c[1,0]  0  0  5  7\n"
        "  c[1,1]  0  0  6  8\n"
        "equal within the numeric values' uncertainty, largest difference 0.000e+00\n"
    )


def test_one_row_has_the_inputs_shape():
    text = jacobian_text(CASE, matmul_view(), (0, 0))
    assert "dc[0,0]/da" in text
    assert "analytic\n    5  7\n    0  0\nnumeric\n    5  7\n    0  0\n" in text


def test_differences_are_named_largest_first():
    error = np.zeros((4, 4))
    error[1, 2], error[3, 0] = 1e-3, np.nan
    text = jacobian_text(CASE, view((2, 2), (2, 2), np.ones((4, 4)), error))
    first, second = text.splitlines()[-2:]
    assert "apart by more than the numeric value's uncertainty: 2 of 16\n" in text
    assert first.startswith("  c[1,1] / a[0,0]   analytic 1.000e+00   numeric nan")
    assert second.startswith("  c[0,1] / a[1,0]   analytic 1.000e+00   numeric 1.001e+00 ± 1.0e-09")


def test_differences_in_other_rows_stay_out_of_one_row():
    error = np.zeros((4, 4))
    error[3, 0] = 1.0
    text = jacobian_text(CASE, view((2, 2), (2, 2), np.ones((4, 4)), error), (0, 0))
    assert "equal within" in text


def test_a_large_jacobian_is_elided_with_a_notice():
    text = jacobian_text(CASE, view((100,), (50,), np.ones((100, 50)) * np.pi))
    assert "  elided: 76 of 100 rows, 43 of 50 columns; --format json has all\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_fits_is_not_elided():
    assert "elided" not in jacobian_text(CASE, view((24,), (4,), np.ones((24, 4)) * np.pi))


def test_inputs_of_higher_rank_print_slice_by_slice():
    text = jacobian_text(CASE, view((1,), (20, 2, 2), np.arange(80.0)[None]), (0,))
    assert "  a[0,:,:]\n    0  1\n    2  3\n" in text
    assert "  elided: 12 of 20 slices; --format json has all\n" in text


@pytest.mark.parametrize("shapes", [((0,), (3,)), ((2,), (0, 4)), ((0,), (0,))])
def test_zero_size(shapes):
    matrix = np.zeros((int(np.prod(shapes[0])), int(np.prod(shapes[1]))))
    text = jacobian_text(CASE, view(*shapes, matrix))
    assert "(no elements)" in text
    assert text.endswith("equal within the numeric values' uncertainty\n")


def test_scalars():
    text = jacobian_text(CASE, view((), (), [[2.0]]), ())
    assert "dc/da  (c (), a ())" in text
    assert "analytic\n    2\n" in text


def test_complex():
    assert "1+2j" in jacobian_text(CASE, view((1,), (1,), [[1 + 2j]]))


def test_json_holds_everything():
    whole = json.loads(jacobian_json(CASE, view((100,), (50,), np.ones((100, 50)))))
    assert np.shape(whole["analytic"]) == (100, 50)
    assert whole["output_index"] is None
    row = json.loads(jacobian_json(CASE, matmul_view(), (0, 0)))
    assert row["analytic"] == [[5.0, 7.0], [0.0, 0.0]]
    assert row["output_index"] == [0, 0]


def test_json_words_for_numbers():
    content = json.loads(jacobian_json(CASE, view((2,), (1,), [[complex(np.nan, 1)], [1j]])))
    assert content["analytic"] == [[["nan", 1.0]], [[0.0, 1.0]]]
