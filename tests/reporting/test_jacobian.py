import json

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.checking.pairs.pair import Differencing, PairSample, PairVerdicts
from gradcheck_cli.checking.verdicts.summary import summarise
from gradcheck_cli.features.page.jacobian_text import PairView, jacobian_json, jacobian_text
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.spec.case import Case, Origin

CASE = Case("matmul", "default", "float64", (), origin=Origin("specs/matmul.yaml", "/specs", 1))


def view(output_shape, input_shape, matrix, error=None, **known):
    """A pair with `matrix` for its packed Jacobian; where its `error` isn't 0, its elements mismatch."""
    dtype, verdict = known.get("dtype", "float64"), known.get("verdict")
    analytic = np.asarray(matrix, float)
    numeric = analytic if error is None else analytic + error
    if verdict is None:
        verdict = np.where(analytic == numeric, Verdict.PASS, Verdict.MISMATCH)
    output, taken = TensorInfo("c", dtype, output_shape), TensorInfo("a", dtype, input_shape)
    sample = PairSample(
        analytic=analytic,
        numeric=numeric,
        uncertainty=np.full(analytic.shape, 1e-9),
        allowed=np.full(analytic.shape, 1e-6),
        verdict=np.asarray(verdict, np.int8),
        reason=np.zeros(analytic.shape, np.int8),
        is_connected=True,
        differencing=Differencing("central", 1, "float64"),
    )
    return PairView("dc/da", output, taken, 0, sample, summarise(PairVerdicts(output, taken, [sample])))


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
        "equal: the largest difference is 0.000e+00, where 1.0e-06 is allowed\n"
        "run: pass\n"
    )


def test_differences_are_named_largest_first():
    error = np.zeros((4, 4))
    error[1, 2], error[3, 0] = 1e-3, np.nan
    text = jacobian_text(CASE, view((2, 2), (2, 2), np.ones((4, 4)), error), width=200)
    first, second, run = text.splitlines()[-3:]
    assert "of 16 elements: 14 pass, 2 MISMATCH\n" in text
    assert first.startswith("  c[1,1] / a[0,0]   analytic 1.000e+00   numeric nan")
    assert second == (
        "  c[0,1] / a[1,0]   analytic 1.000e+00   numeric 1.001e+00 ± 1.0e-09   difference 1.000e-03"
        "   allowed 1.0e-06   MISMATCH"
    )
    assert run == "run: MISMATCH GC101  2 of 16 elements"


def test_a_kink_and_what_is_undecided_are_called_so_after_what_is_wrong():
    verdict = [[Verdict.KINK, Verdict.INCONCLUSIVE], [Verdict.PASS, Verdict.MISMATCH]]
    text = jacobian_text(
        CASE, view((2,), (2,), np.ones((2, 2)), [[0.5, 0.2], [0.0, 0.1]], verdict=verdict), width=200
    )
    words = [line.rpartition("   ")[2] for line in text.splitlines() if line.startswith("  c[")][-3:]
    assert words == ["MISMATCH", "INCONCLUSIVE", "kink"]


def test_a_large_jacobian_is_elided_with_a_notice():
    text = jacobian_text(CASE, view((100,), (50,), np.ones((100, 50)) * np.pi))
    assert "  elided: 76 of 100 rows, 43 of 50 columns; --format json has all\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_inputs_of_higher_rank_print_in_lines_along_the_last_axis():
    text = jacobian_text(CASE, view((1,), (20, 2, 2), np.arange(80.0)[None]), (0,))
    assert "  a[0,0]    0   1\n  a[0,1]    2   3\n  a[1,0]    4   5\n" in text
    assert "  elided: 16 of 40 rows; --format json has all\n" in text


@pytest.mark.parametrize("shapes", [((0,), (3,)), ((2,), (0, 4)), ((0,), (0,))])
def test_zero_size(shapes):
    matrix = np.zeros((int(np.prod(shapes[0])), int(np.prod(shapes[1]))))
    text = jacobian_text(CASE, view(*shapes, matrix))
    assert "(no elements)" in text
    assert "no elements\n" in text


def of_conjugate():
    """z -> z conj of itself in its gradient: the imaginary upstream alone shows the sign."""
    return view((1,), (1,), [[1, 2], [-2, 1]], [[0, 0], [4, -2]], dtype="complex128")


def test_a_complex_output_has_a_row_for_each_part_of_its_upstream():
    text = jacobian_text(CASE, of_conjugate())
    assert "analytic, upstream 1\n  c[0]  1+2j\nnumeric, upstream 1\n  c[0]  1+2j\n" in text
    assert "analytic, upstream 1j\n  c[0]  -2+1j\nnumeric, upstream 1j\n  c[0]  2-1j\n" in text
    assert "of 4 elements: 2 pass, 2 MISMATCH\n  im c[0] / re a[0] " in text


def test_json_of_a_complex_output():
    content = json.loads(jacobian_json(CASE, of_conjugate()))
    assert content["numeric"] == [[[1.0, 2.0]]]
    assert content["verdict"] == [["pass"]]
    assert content["imaginary"]["numeric"] == [[[2.0, -1.0]]]
    assert content["imaginary"]["verdict"] == [["mismatch"]]
    assert content["status"] == "mismatched"


def test_json_words_for_numbers():
    content = json.loads(jacobian_json(CASE, view((2,), (1,), [[np.nan], [-np.inf]])))
    assert content["analytic"] == [["nan"], ["-inf"]]
