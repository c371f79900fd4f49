"""SparseTensor and RaggedTensor inputs as the tensors they are made of: values, and where these stand.

The values are an input like any other. Indices, dense shape and row splits are integers beside them, as the
ops of TensorFlow take them; nothing moves them, and nothing is differentiated by them.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from gradcheck_cli.spec.case import InputSpec, Source
from gradcheck_cli.spec.cases.argument_form import Form
from gradcheck_cli.spec.faults import FaultLog, show
from gradcheck_cli.spec.values.literal_checks import MAX_ELEMENTS

if TYPE_CHECKING:
    from gradcheck_cli.spec.cases.inputs import InputReader
    from gradcheck_cli.spec.models.input_model import InputModel, Sparse
    from gradcheck_cli.spec.yaml.yaml_nodes import Node

Read = tuple[Form, tuple[InputSpec, ...]]


def read_sparse(reader: InputReader, name: str, node: Node, model: InputModel) -> Read | None:
    """Return a SparseTensor's indices, values and dense shape; `None` where there are faults, all logged.

    Args:
        reader: reads the values.
        name: the input's label.
        node: where it is written.
        model: what is written, with `sparse`.
    """
    sparse = model.sparse
    if sparse is None or not model.shape:
        found = "is missing" if model.shape is None else "must have a dimension, but got []"
        remedy = "write the dense shape of the sparse tensor, such as [3, 4]"
        reader.log.add(node, f"{found}; {remedy}", "shape")
        return None
    shape = tuple(model.shape)
    count = _count(reader.log, node, sparse, shape)
    if count is None:
        return None
    values = reader.read(f"{name}.values", node, model.model_copy(update={"shape": [count], "sparse": None}))
    if values is None:
        return None
    is_written = sparse.indices is not None and count > 0
    source = Source("value", {"value": sparse.indices}) if is_written else Source("places", {"shape": shape})
    indices = InputSpec(f"{name}.indices", "int64", (count, len(shape)), source)
    dense = InputSpec(f"{name}.dense_shape", "int64", (len(shape),), Source("value", {"value": list(shape)}))
    return Form("sparse", shape=shape), (indices, values, dense)


def _count(log: FaultLog, node: Node, sparse: Sparse, shape: tuple[int, ...]) -> int | None:
    """Return the number of nonzeros, or `None` where they have no place, which is logged."""
    elements = math.prod(shape)
    if (sparse.indices is None) == (sparse.nnz is None):
        got = "neither" if sparse.nnz is None else "both"
        log.add(node, f"must have one of indices and nnz, but got {got}. Write nnz: 5, for example", "sparse")
        return None
    if elements > MAX_ELEMENTS:
        log.add(node, f"must hold at most 2**31 elements, but got {show(shape)}", "shape")
        return None
    if sparse.indices is not None:
        return len(sparse.indices) if _are_places(log, node, sparse.indices, shape) else None
    count = sparse.nnz or 0
    if count > elements:
        log.add(
            node,
            f"must be at most {elements}, the elements of shape {show(shape)}, but got {count}",
            "sparse",
            "nnz",
        )
        return None
    return count


def _are_places(log: FaultLog, node: Node, places: list[list[int]], shape: tuple[int, ...]) -> bool:
    for number, place in enumerate(places):
        fits = len(place) == len(shape) and all(
            index < size for index, size in zip(place, shape, strict=True)
        )
        if not fits:
            log.add(
                node,
                f"must be a place in the shape {show(shape)}, but got {show(place)}. "
                "Write one index for each dimension, from 0",
                "sparse",
                "indices",
                number,
            )
            return False
    return True


def read_ragged(reader: InputReader, name: str, node: Node, model: InputModel) -> Read | None:
    """Return a RaggedTensor's flat values and row splits; `None` where there are faults, all logged.

    Args:
        reader: reads the values.
        name: the input's label.
        node: where it is written.
        model: what is written, with `ragged`.
    """
    log, ragged = reader.log, model.ragged
    if ragged is None:
        return None
    if model.shape is not None:
        log.add(
            node,
            "must be left out for a ragged tensor, whose rows ragged.row_lengths says. "
            "Write ragged.inner_shape for the dimensions of each value",
            "shape",
        )
        return None
    nested = _nested(ragged.row_lengths)
    for outer, (above, lengths) in enumerate(itertools.pairwise(nested)):
        if len(lengths) != sum(above):
            log.add(
                node,
                f"must have as many rows as the dimension before, {sum(above)}, but got {len(lengths)}",
                "ragged",
                "row_lengths",
                outer + 1,
            )
            return None
    shape = [sum(nested[-1]), *ragged.inner_shape]
    values = reader.read(
        f"{name}.flat_values", node, model.model_copy(update={"shape": shape, "ragged": None})
    )
    if values is None:
        return None
    names = (
        [f"{name}.row_splits"]
        if len(nested) == 1
        else [f"{name}.nested_row_splits[{number}]" for number in range(len(nested))]
    )
    splits = tuple(
        InputSpec(
            split,
            "int64",
            (len(lengths) + 1,),
            Source("value", {"value": list(itertools.accumulate(lengths, initial=0))}),
        )
        for split, lengths in zip(names, nested, strict=True)
    )
    return Form("ragged", splits=len(splits)), (values, *splits)


def _nested(lengths: list[int] | list[list[int]]) -> list[list[int]]:
    """Return row lengths as one list for each ragged dimension."""
    rows = [row for row in lengths if isinstance(row, list)]
    return rows or [[length for length in lengths if isinstance(length, int)]]
