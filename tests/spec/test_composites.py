"""SparseTensor and RaggedTensor inputs: the tensors they are made of, their values, and their faults."""
# ruff: noqa: E501 (a fault's wording stands on one line, where a search finds it)

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.spec.values.draw_values import draw
from tests.spec.fault_table import faults_in

HEAD = "op: f\nforward: m:f\n"


@pytest.fixture
def read(cases_of):
    """Return a function from an input in flow style to the one case."""

    def read(written, head=HEAD):
        (case,) = cases_of(f"{head}inputs: {{x: {written}}}\n")
        return case

    return read


def described(case):
    return [(tensor.name, tensor.dtype, tensor.shape) for tensor in case.tensors]


def values(case, sample=0):
    return [draw(case, tensor, sample).tolist() for tensor in case.tensors]


def test_a_sparse_tensor_is_its_indices_values_and_dense_shape(read):
    case = read("{shape: [3, 4], sparse: {indices: [[0, 1], [2, 0]]}, value: [1.5, 2], dtype: float32}")
    assert described(case) == [
        ("x.indices", "int64", (2, 2)),
        ("x.values", "float32", (2,)),
        ("x.dense_shape", "int64", (2,)),
    ]
    assert values(case) == [[[0, 1], [2, 0]], [1.5, 2.0], [3, 4]]
    assert [tensor.is_differentiable for tensor in case.tensors] == [False, True, False]
    assert not case.is_generated


def test_places_are_drawn_in_order_and_differ_by_sample(read):
    case = read("{shape: [4, 5], sparse: {nnz: 6}}")
    assert case.is_generated
    drawn = [draw(case, case.tensors[0], sample) for sample in range(8)]
    for places in drawn:
        assert places.shape == (6, 2)
        flat = places @ [5, 1]
        assert (np.diff(flat) > 0).all()  # in order, and each once
        assert (places.min() >= 0) & (places < [4, 5]).all()
    assert len({places.tobytes() for places in drawn}) > 1
    assert (draw(case, case.tensors[0], 3) == drawn[3]).all()


@pytest.mark.parametrize("written", ["{nnz: 0}", "{indices: []}"])
def test_a_sparse_tensor_without_nonzeros(read, written):
    case = read(f"{{shape: [3, 4], sparse: {written}}}")
    assert [draw(case, tensor, 0).shape for tensor in case.tensors] == [(0, 2), (0,), (2,)]


def test_a_ragged_tensor_is_its_flat_values_and_row_splits(read):
    case = read("{ragged: {row_lengths: [2, 0, 3]}, value: 1.5}")
    assert described(case) == [("x.flat_values", "float64", (5,)), ("x.row_splits", "int64", (4,))]
    assert values(case) == [[1.5] * 5, [0, 2, 2, 5]]


def test_rows_of_rows_of_vectors(read):
    case = read("{ragged: {row_lengths: [[2, 1], [1, 3, 2]], inner_shape: [4]}}")
    assert described(case) == [
        ("x.flat_values", "float64", (6, 4)),
        ("x.nested_row_splits[0]", "int64", (3,)),
        ("x.nested_row_splits[1]", "int64", (4,)),
    ]
    assert values(case)[1:] == [[0, 2, 3], [0, 1, 4, 6]]
    assert case.arguments[0].form.splits == 2


FAULTS = faults_in(
    """
{sparse: {nnz: 2}} => shape: is missing; write the dense shape of the sparse tensor, such as [3, 4]
{shape: [], sparse: {nnz: 1}} => shape: must have a dimension, but got []; write the dense shape of the sparse tensor, such as [3, 4]
{shape: [3, 4], sparse: {}} => sparse: must have one of indices and nnz, but got neither. Write nnz: 5, for example
{shape: [3, 4], sparse: {nnz: 1, indices: [[0, 0]]}} => sparse: must have one of indices and nnz, but got both. Write nnz: 5, for example
{shape: [3, 4], sparse: {nnz: 13}} => sparse.nnz: must be at most 12, the elements of shape [3, 4], but got 13
{shape: [3, 4], sparse: {nnz: -1}} => sparse.nnz: must be an integer of 0 or more, but got -1
{shape: [3, 4], sparse: {indices: [[0, 0], [0, 4]]}} => sparse.indices[1]: must be a place in the shape [3, 4], but got [0, 4]. Write one index for each dimension, from 0
{shape: [3, 4], sparse: {indices: [[0]]}} => sparse.indices[0]: must be a place in the shape [3, 4], but got [0]. Write one index for each dimension, from 0
{shape: [3, 4], sparse: {nnz: 2}, value: [1, 2, 3]} => value: must broadcast to the shape [2], but got values of shape [3]. Change one of them
{shape: [65536, 65536], sparse: {nnz: 2}} => shape: must hold at most 2**31 elements, but got [65536, 65536]
{shape: [3], ragged: {row_lengths: [2, 1]}} => shape: must be left out for a ragged tensor: ragged.row_lengths says how long its rows are. Write ragged.inner_shape for the dimensions of each value
{ragged: {row_lengths: [[2, 1], [1, 3]]}} => ragged.row_lengths[1]: must have as many rows as the dimension before, 3, but got 2
{ragged: {row_lengths: [2, -1]}} => ragged.row_lengths: must be a list of row lengths, such as [2, 0, 3], or a list of such lists, but got [2, -1]
{ragged: {inner_shape: [2]}} => ragged.row_lengths: is missing; write the length of each row, such as [2, 0, 3]
{shape: [3], sparse: {nnz: 2}, ragged: {row_lengths: [2]}} => ragged: must not stand beside sparse. Keep one of them
"""
)


@pytest.mark.parametrize(("written", "said"), FAULTS)
def test_a_fault_names_its_place(faults_of, written, said):
    assert faults_of(f"{HEAD}inputs:\n  x: {written}\n") == [f"a.yaml:4: inputs.x.{said}"]
