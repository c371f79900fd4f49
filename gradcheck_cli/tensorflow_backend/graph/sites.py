"""Finds where a forward's gradient could be wrong unseen at its points: branches, axes, factors, indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Site
from gradcheck_cli.tensorflow_backend import dtypes, frames
from gradcheck_cli.tensorflow_backend.paths import graph_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase

    Array = np.ndarray[Any, Any]

_SMALL = 2  # how many inputs an op that combines two has


def _signs(values: Sequence[Array]) -> tuple[str, ...]:
    x = values[0]
    return _missing({"no element is below 0": x < 0, "no element is above 0": x > 0})


def _relu6(values: Sequence[Array]) -> tuple[str, ...]:
    x = values[0]
    sides = {
        "no element is below 0": x < 0,
        "no element is between 0 and 6": (x > 0) & (x < 6),  # noqa: PLR2004 (its name)
        "no element is above 6": x > 6,  # noqa: PLR2004 (its name)
    }
    return _missing(sides)


def _larger(values: Sequence[Array]) -> tuple[str, ...]:
    first, second = values
    return _missing(
        {
            "the first operand is nowhere the larger": first > second,
            "the second operand is nowhere the larger": first < second,
        }
    )


def _sides(values: Sequence[Array]) -> tuple[str, ...]:
    return _missing({"it is nowhere true": values[-1], "it is nowhere false": ~values[-1]})


def _missing(sides: dict[str, Array]) -> tuple[str, ...]:
    return tuple(message for message, is_there in sides.items() if not np.any(is_there))


def _members(values: Sequence[Array]) -> tuple[str, ...]:
    """Say whether no index occurs twice."""
    kept = values[0][values[0] >= 0]
    twice = np.unique(kept, return_counts=True)[1]
    return (
        ()
        if (twice > 1).any()
        else ("no index comes twice, so that adding up, a mean and the last look alike",)
    )


_KINKED = {"Relu": _signs, "Elu": _signs, "Selu": _signs, "LeakyRelu": _signs, "Abs": _signs, "Relu6": _relu6}
_COMPARED = frozenset({"Maximum", "Minimum"})
_COMPARISONS = frozenset({"Greater", "GreaterEqual", "Less", "LessEqual"})
_REDUCTIONS = frozenset({"Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"})
_ALONG_LAST = frozenset({"Softmax", "LogSoftmax"})
_BROADCAST = frozenset({"Add", "AddV2", "BiasAdd", "Mul", "RealDiv", "Sub"})
_SELECTS = frozenset({"Select", "SelectV2"})
# Op type -> which of its inputs holds indices; the gradient adds up what several equal indices name.
_INDICES = {
    **dict.fromkeys(("GatherV2", "SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"), 1),
    **dict.fromkeys(("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin"), 1),
    **dict.fromkeys(("UnsortedSegmentProd", "ResourceGather"), 1),
    **dict.fromkeys(("SparseSegmentSum", "SparseSegmentMean"), 2),
}
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_BY_BATCH = frozenset({"MatMul", "Conv2D", "Conv1D", "Conv3D", "DepthwiseConv2dNative"})


@dataclass(frozen=True)
class _Look:
    """What to examine about an op: what the values of some tensors don't show.

    Attributes:
        op: the op.
        corruption: the corruption that might not show.
        unseen: says in words what the values of `tensors` don't show.
        tensors: the tensors whose values it takes.
        input_index: the index of the op's input whose gradient it concerns; `None` for all.
    """

    op: Any
    corruption: str
    unseen: Callable[[Sequence[Array]], tuple[str, ...]]
    tensors: tuple[Any, ...] = ()
    input_index: int | None = None


def sites_of(traced: TracedCase, pairs: Sequence[tuple[int, int]]) -> list[Site]:
    """Return the sites of a traced forward, with what its point doesn't show at each.

    Args:
        traced: the case, in its declared dtypes.
        pairs: the pairs of interest.
    """
    outputs = traced.forward.outputs
    ways = {pair: set(graph_path.ops_between(traced.starts(pair[1]), [outputs[pair[0]]])) for pair in pairs}
    fed = [tensor for input_index in range(traced.at.count) for tensor in traced.starts(input_index)]
    moved = {id(output) for op in graph_path.ops_after(fed) for output in op.outputs} | {
        id(tensor) for tensor in fed
    }
    sizes = {size for tensor in fed for size in _sizes_of(tensor)}
    looks = []
    for op in dict.fromkeys(op for way in ways.values() for op in way):
        looks += [*_by_values(op, moved), *_by_shapes(op), *_by_inputs(op, fed), *_by_sizes(op, sizes, moved)]
    tensors = list({id(tensor): tensor for look in looks for tensor in look.tensors}.values())
    fetched = traced.values_at_point(tensors)
    values = {id(tensor): value for tensor, value in zip(tensors, fetched, strict=True)}
    sites = []
    for look in looks:
        way = frozenset(
            pair
            for pair, ops in ways.items()
            if look.op in ops
            and (look.input_index is None or _leads(traced, pair, look.op.inputs[look.input_index]))
        )
        unseen = look.unseen([values[id(tensor)] for tensor in look.tensors])
        sites.append(Site(look.corruption, _describe(look.op), way, unseen))
    return sites


def _describe(op: Any) -> str:
    place = frames.place_in_users_code(op)
    return f"{op.type} '{op.name}'" + (f" at {place}" if place else "")


def _leads(traced: TracedCase, pair: tuple[int, int], tensor: Any) -> bool:
    """Whether an input of the case moves a tensor."""
    starts = traced.starts(pair[1])
    return any(start is tensor for start in starts) or tensor.op in graph_path.ops_after(starts)


def _by_values(op: Any, moved: set[int]) -> list[_Look]:
    """Return the sites where an op selects a side, an index or a factor by value."""
    if op.type in _INDICES:
        return [_Look(op, "repeats", _members, (op.inputs[_INDICES[op.type]],))]
    if op.type in _SELECTS and op.inputs[0].op.type not in _COMPARISONS:
        return [_Look(op, "branch", _sides, (op.inputs[0],))]
    if not op.inputs or not dtypes.is_differentiable(op.inputs[0].dtype):
        return []
    if op.type in _KINKED:
        return [_Look(op, "branch", _KINKED[op.type], (op.inputs[0],))]
    if op.type in _COMPARED | _COMPARISONS:
        look, tensors = (_larger, op.inputs) if op.type in _COMPARED else (_sides, op.outputs)
        return [_Look(op, "branch", look, tuple(tensors))]
    # A factor that the case states: a mask, weights. The numerator of a quotient is no factor that could be
    # left out.
    sides = {"Mul": (0, 1), "RealDiv": (1,)}.get(op.type, ())
    return [
        _Look(op, "ones", _is_one, (op.inputs[side],), 1 - side)
        for side in sides
        if id(op.inputs[side]) in moved
    ]


def _is_one(values: Sequence[Array]) -> tuple[str, ...]:
    is_one = bool(values[0].size) and bool((values[0] == 1).all())
    return ("a factor of it is 1 throughout: leaving that out looks the same",) if is_one else ()


def _by_inputs(op: Any, fed: Sequence[Any]) -> list[_Look]:
    """Return the sites where an input's values may hide that it is transposed or conjugated."""
    own = [tensor for tensor in op.inputs if any(tensor is start for start in fed)]
    looks = [_Look(op, "conjugate", _is_real, (tensor,)) for tensor in own if tensor.dtype.is_complex]
    if op.type in _PRODUCTS:
        looks += [_Look(op, "transpose", _is_symmetric, (tensor,)) for tensor in own]
    return looks


def _is_real(values: Sequence[Array]) -> tuple[str, ...]:
    is_real = bool(values[0].size) and not values[0].imag.any()
    return ("an operand has no imaginary parts: conjugated it looks the same",) if is_real else ()


def _is_symmetric(values: Sequence[Array]) -> tuple[str, ...]:
    matrix = values[0]
    is_square = matrix.ndim >= _SMALL and matrix.shape[-1] == matrix.shape[-2] > 1
    if not is_square or not np.array_equal(matrix, np.swapaxes(matrix, -1, -2)):
        return ()
    return ("an operand is a symmetric matrix: transposed it looks the same",)


def _sizes_of(tensor: Any) -> list[int]:
    """Return a tensor's sizes along its axes, and how many elements it has."""
    shape = tensor.shape.as_list() if tensor.shape.rank else []
    return [] if None in shape or not shape else [*shape, int(np.prod(shape))]


def _by_sizes(op: Any, sizes: set[int], moved: set[int]) -> list[_Look]:
    """Return the site where an op divides by a constant that may be a size, or stand for one."""
    if op.type not in {"RealDiv", "DivNoNan"} or id(op.inputs[1]) in moved:
        return []
    return [_Look(op, "size", lambda values: _is_a_size(values[0], sizes), (op.inputs[1],), 0)]


def _is_a_size(number: Array, sizes: set[int]) -> tuple[str, ...]:
    if np.ndim(number) or float(np.real(number)) not in sizes:
        return ()
    message = f"it divides by {float(np.real(number)):g} in every case, which is also a size of an input"
    return (f"{message}: one for the other looks the same",)


def _by_shapes(op: Any) -> list[_Look]:
    """Return what axes of size one hide, and sizes that stay the same."""
    shapes: list[Any] = [
        tensor.shape.as_list() if tensor.shape.rank is not None else [None] for tensor in op.inputs
    ]
    if not shapes or None in shapes[0]:
        return []
    first: list[int] = shapes[0]
    if op.type in _REDUCTIONS or op.type in _ALONG_LAST:
        axes = _axes(op, len(first)) if first else None
        return [] if axes is None else _of_reduction(op, first, axes)
    if len(shapes) < _SMALL or None in shapes[1]:
        return []
    second, batch = shapes[1], first[:1]
    if op.type == "MatMul":
        batch = [first[1 if op.get_attr("transpose_a") else 0]]
    if op.type in _BY_BATCH and batch == [1]:
        return [
            _constant_look(op, "mean", "the batch has size 1: a mean over it for a sum looks the same", 1)
        ]
    if op.type in _BROADCAST and len(first) != len(second) and first and second:
        small = 0 if len(first) < len(second) else 1
        if np.prod(first) == np.prod(second):
            message = "it broadcasts over axes of size 1: a mean over them for a sum looks the same"
            return [_constant_look(op, "mean", message, small)]
    return []


def _constant_look(op: Any, corruption: str, message: str, input_index: int | None = None) -> _Look:
    return _Look(op, corruption, lambda _: (message,), input_index=input_index)


def _axes(op: Any, rank: int) -> list[int] | None:
    """Return the axes that an op works along; `None` where the graph doesn't say."""
    if op.type in _ALONG_LAST:
        return [rank - 1]
    axes = tf.get_static_value(op.inputs[1])
    return None if axes is None else [int(axis) % rank for axis in np.ravel(axes)]


def _of_reduction(op: Any, shape: Sequence[int], axes: Sequence[int]) -> list[_Look]:
    along = int(np.prod([shape[axis] for axis in axes]))
    other_sizes = [size for axis, size in enumerate(shape) if axis not in axes]
    if along == 1:
        return [_constant_look(op, "mean", "it goes along axes of size 1: a mean for a sum looks the same")]
    if other_sizes and int(np.prod(other_sizes)) == 1:
        return [_constant_look(op, "axis", "all other axes have size 1: one along these too looks the same")]
    if op.type == "Mean":
        message = f"it divides by {along} in every case: the number in its place looks the same"
        return [_constant_look(op, "size", message)]
    return []
