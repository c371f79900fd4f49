from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import (
    TensorInfo,
    index_of,
    pack,
    packed_magnitude,
    packed_size,
    part_of,
    unpack,
)
from gradcheck_cli.errors import CaseFailedError

REAL = TensorInfo("x", "float64", (2, 3))
COMPLEX = TensorInfo("z", "complex128", (2, 3))


def random(info, rows=4):
    draw = np.random.default_rng(0).normal(size=(2, rows, *info.shape))
    return draw[0] + 1j * draw[1] if info.is_complex else draw[0]


@pytest.mark.parametrize(
    "info", [REAL, COMPLEX, TensorInfo("s", "complex64", ()), TensorInfo("e", "float32", (0, 2))]
)
def test_packing_loses_nothing(info):
    values = random(info)
    packed = pack(values, info)
    assert packed.shape == (4, packed_size(info))
    assert packed.dtype == np.float64
    np.testing.assert_array_equal(unpack(packed, info), values)


def test_real_parts_come_first():
    packed = pack(np.array([[1 + 4j, 2 + 5j, 3 + 6j]]), TensorInfo("z", "complex64", (3,)))
    np.testing.assert_array_equal(packed, [[1, 2, 3, 4, 5, 6]])


def test_positions_lead_back_to_elements():
    assert [index_of(position, REAL) for position in (0, 2, 3, 5)] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert [index_of(position, COMPLEX) for position in (5, 6, 11)] == [(1, 2), (0, 0), (1, 2)]
    assert [part_of(position, COMPLEX) for position in (5, 6)] == ["re", "im"]
    assert part_of(5, REAL) == ""
    assert index_of(0, TensorInfo("s", "float64", ())) == ()


def test_the_packed_dot_product_is_the_real_inner_product():
    # Re<u, v> = Re(sum conj(u) v): the identity on which the convention rests.
    u, v = random(COMPLEX), random(COMPLEX)[::-1]
    found = np.sum(pack(u, COMPLEX) * pack(v, COMPLEX), axis=1)
    np.testing.assert_allclose(found, np.sum(np.conj(u) * v, axis=(1, 2)).real)


def test_a_vjp_is_right_when_its_packed_form_is_the_transposed_jacobian():
    # J v = m v for a complex matrix m, so Re<vjp(u), v> = Re<u, m v> holds for vjp(u) = m^H u.
    generator = np.random.default_rng(1)
    m = generator.normal(size=(3, 2)) + 1j * generator.normal(size=(3, 2))
    taken, produced = TensorInfo("z", "complex128", (2,)), TensorInfo("y", "complex128", (3,))
    columns = pack(unpack(np.eye(4), taken) @ m.T, produced).T  # R, one packed tangent after another
    upstream = unpack(np.eye(6), produced)
    rows = pack(upstream @ np.conj(m), taken)  # vjp of each packed upstream
    np.testing.assert_allclose(rows, columns)
    wrong = pack(upstream @ m, taken)
    assert not np.allclose(wrong, columns)


def test_both_parts_of_a_complex_number_have_its_size():
    sizes = packed_magnitude(np.array([3 + 4j, -1]), TensorInfo("z", "complex128", (2,)))
    np.testing.assert_array_equal(sizes, [5, 1, 5, 1])
    np.testing.assert_array_equal(
        packed_magnitude(np.array([-2.0, 0.5]), TensorInfo("x", "float64", (2,))), [2, 0.5]
    )


def test_a_tensor_whose_shape_changes_is_named():
    """TensorFlow's FusedBatchNormV3 allocates its reserve_space_3 in one shape or another."""
    with pytest.raises(CaseFailedError, match=r"y5 has the shape \[0\] at the first evaluation, and \[\] at"):
        pack(np.zeros(7), TensorInfo("y5", "float32", (0,)))
