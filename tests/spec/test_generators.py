"""The structure that each generator promises."""

import numpy as np
import pytest


def test_one_hot(drawn):
    found = drawn("{shape: [50, 3], one_hot: true}")
    assert np.all(found.sum(axis=-1) == 1)
    assert set(found.ravel()) == {0.0, 1.0}
    assert np.all(found.sum(axis=0) > 0)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_spd(drawn, dtype):
    found = drawn(f"{{shape: [2, 3, 5, 5], spd: true, dtype: {dtype}}}")
    np.testing.assert_array_equal(found, np.conj(np.swapaxes(found, -1, -2)))
    eigenvalues = np.linalg.eigvalsh(found)
    assert eigenvalues.min() > 0.5
    assert eigenvalues.max() < 2
    assert np.diff(eigenvalues, axis=-1).min() > 0.1
    assert np.iscomplexobj(found) == dtype.startswith("complex")


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("side", "keep"), [("lower", np.tril), ("upper", np.triu)])
@pytest.mark.parametrize("shape", [(2, 4, 4), (3, 5), (5, 3)])
def test_triangular(drawn, dtype, side, keep, shape):
    found = drawn(f"{{shape: {list(shape)}, triangular: {side}, dtype: {dtype}}}")
    np.testing.assert_array_equal(found, keep(found))
    diagonal = np.diagonal(found, axis1=-2, axis2=-1)
    assert np.abs(diagonal).min() >= 1
    assert np.count_nonzero(found) == np.count_nonzero(keep(np.ones(shape)))


def test_probabilities(drawn):
    found = drawn("{shape: [20, 7], probabilities: true}")
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-14)
    assert found.min() > 0.001


@pytest.mark.parametrize("kind", ["one_hot", "probabilities", "triangular: lower", "spd"])
def test_structures_without_elements(drawn, kind):
    key = kind if ":" in kind else f"{kind}: true"
    assert drawn(f"{{shape: [2, 0, 0], {key}}}").shape == (2, 0, 0)
