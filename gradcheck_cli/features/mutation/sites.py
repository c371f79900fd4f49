"""Finds where a graph's gradient could be wrong unseen at its points: branches, axes, factors, indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, frames, graph_path
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase


@dataclass(frozen=True)
class Site:
    """A place in a forward where some corruption would show at one point and not at another.

    Examples are a side of a branch that no point takes, and an axis of size one. A gradient that is wrong
    only there passes at any tolerance, and no corruption of the visible part reveals it.
    """

    corruption: str  # its name, among `CORRUPTIONS`
    place: str  # the op, and the user's line that made it
    pairs: frozenset[tuple[int, int]]  # (output, input) indices of the pairs whose path contains it
    # what the points lack for the corruption to show, in words; empty if they lack nothing
    unseen: tuple[str, ...]

    @property
    def message(self) -> str:
        """The place, and what the points lack there, in words."""
        return f"{self.place}: {'; '.join(self.unseen)}"


_BINARY = 2  # the operands of a binary op, or the axes of a matrix


# Says in words what the values of some tensors don't show.
_Unseen = Callable[[Sequence[Array]], tuple[str, ...]]


# The sides that elements may take: a message if none takes it, and which elements do.
_Sides = dict[str, Callable[..., Array]]
_SIGNS: _Sides = {"no element is below 0": lambda x: x < 0, "no element is above 0": lambda x: x > 0}
_PARTS_OF_RELU6: _Sides = {
    "no element is below 0": lambda x: x < 0,
    "no element is between 0 and 6": lambda x: (x > 0) & (x < 6),  # noqa: PLR2004 (its name)
    "no element is above 6": lambda x: x > 6,  # noqa: PLR2004 (its name)
}
_ORDER: _Sides = {
    "the first operand is nowhere the larger": lambda first, second: first > second,
    "the second operand is nowhere the larger": lambda first, second: first < second,
}
_TRUTH: _Sides = {"it is nowhere true": lambda chosen: chosen, "it is nowhere false": lambda chosen: ~chosen}
_KINKED = {**dict.fromkeys(("Abs", "Elu", "LeakyRelu", "Relu", "Selu"), _SIGNS), "Relu6": _PARTS_OF_RELU6}
_COMPARED = frozenset({"Maximum", "Minimum"})
_COMPARISONS = frozenset({"Greater", "GreaterEqual", "Less", "LessEqual"})
_REDUCTIONS = frozenset({"Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"})
_ALONG_LAST = frozenset({"Softmax", "LogSoftmax"})
_BROADCAST = frozenset({"Add", "AddV2", "BiasAdd", "Mul", "RealDiv", "Sub"})
_SELECTS = frozenset({"Select", "SelectV2"})
# Op type -> which of its inputs holds indices. The gradient adds up the elements of equal indices.
_INDICES = {
    **dict.fromkeys(("GatherV2", "SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"), 1),
    **dict.fromkeys(("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin"), 1),
    **dict.fromkeys(("UnsortedSegmentProd", "ResourceGather"), 1),
    **dict.fromkeys(("SparseSegmentSum", "SparseSegmentMean"), 2),
}
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_BY_BATCH = frozenset({"MatMul", "Conv2D", "Conv1D", "Conv3D", "DepthwiseConv2dNative"})


@dataclass(frozen=True)
class _Candidate:
    """A possible site: an op, a corruption, and the tensors whose values may hide it."""

    op: Any
    corruption: str  # the corruption that might not show
    unseen: _Unseen  # says in words what the values of `tensors` don't show
    tensors: tuple[Any, ...] = ()  # the tensors whose values `unseen` takes
    input_index: int | None = None  # the index of the op's input whose gradient is concerned; `None` for all


def sites_of(traced: TracedCase, pairs: Sequence[tuple[int, int]]) -> list[Site]:
    """Return the sites of a traced forward, with what its point doesn't show at each.

    Args:
        traced: the case, in its declared dtypes.
        pairs: the pairs of interest.
    """
    outputs = traced.forward.outputs
    ops_by_pair = {
        (output, input_index): set(graph_path.ops_between(traced.starts(input_index), [outputs[output]]))
        for output, input_index in pairs
    }
    fed = [tensor for input_index in range(traced.at.count) for tensor in traced.starts(input_index)]
    moved = {id(output) for op in graph_path.ops_after(fed) for output in op.outputs} | {
        id(tensor) for tensor in fed
    }
    sizes = {size for tensor in fed for size in _sizes_of(tensor)}
    candidates = []
    for op in dict.fromkeys(op for ops in ops_by_pair.values() for op in ops):
        candidates += [*_value_candidates(op, moved), *_shape_candidates(op)]
        candidates += [*_input_candidates(op, fed), *_size_candidates(op, sizes, moved)]
    behind = _behind_switches(outputs[0].graph)
    candidates = [
        candidate for candidate in candidates if behind.isdisjoint(tensor.op for tensor in candidate.tensors)
    ]
    tensors = list({id(tensor): tensor for candidate in candidates for tensor in candidate.tensors}.values())
    fetched = traced.values_at_point(tensors)
    values = {id(tensor): value for tensor, value in zip(tensors, fetched, strict=True)}
    sites = []
    for candidate in candidates:
        pairs_through_op = frozenset(
            pair
            for pair, ops in ops_by_pair.items()
            if candidate.op in ops
            and (
                candidate.input_index is None
                or _moves(traced, pair[1], candidate.op.inputs[candidate.input_index])
            )
        )
        unseen = candidate.unseen([values[id(tensor)] for tensor in candidate.tensors])
        sites.append(Site(candidate.corruption, _describe(candidate.op), pairs_through_op, unseen))
    return sites


def unseen_sites(points: Iterable[Sequence[Site]]) -> list[Site]:
    """Return the sites of a forward at which no point shows the corruption.

    Args:
        points: the sites at each sample point, in the same order.
    """
    merged: list[Site] = []
    for sites in points:
        if not merged:
            merged = list(sites)
            continue
        if len(sites) != len(merged):  # another trace: each point has its own sites
            merged += sites
            continue
        merged = [
            replace(site, unseen=tuple(lack for lack in site.unseen if lack in other_site.unseen))
            for site, other_site in zip(merged, sites, strict=True)
        ]
    return [site for site in dict.fromkeys(merged) if site.unseen and site.pairs]


def _behind_switches(graph: Any) -> set[Any]:
    """Return the ops behind a `Switch` of TensorFlow 1; those on the side not taken have no value."""
    switches = [op for op in graph.get_operations() if op.type in {"Switch", "RefSwitch"}]
    return {*switches, *graph_path.ops_after(tensor for op in switches for tensor in op.outputs)}


def _describe(op: Any) -> str:
    place = frames.place_in_users_code(op)
    return f"{op.type} '{op.name}'" + (f" at {place}" if place else "")


def _moves(traced: TracedCase, input_index: int, tensor: Any) -> bool:
    """Whether an input of the case moves a tensor."""
    starts = traced.starts(input_index)
    return any(start is tensor for start in starts) or tensor.op in graph_path.ops_after(starts)


def _unseen_sides(sides: _Sides, values: Sequence[Array]) -> tuple[str, ...]:
    return tuple(message for message, takes in sides.items() if not np.any(takes(*values)))


def _value_candidates(op: Any, moved: set[int]) -> list[_Candidate]:
    """Return the sites where an op selects a side, an index or a factor by value."""
    if op.type in _INDICES:
        return [_Candidate(op, "repeats", _unseen_repeats, (op.inputs[_INDICES[op.type]],))]
    if op.type in _SELECTS and op.inputs[0].op.type not in _COMPARISONS:
        return [_Candidate(op, "branch", partial(_unseen_sides, _TRUTH), (op.inputs[0],))]
    if not op.inputs or not dtypes.is_differentiable(op.inputs[0].dtype):
        return []
    if op.type in _KINKED:
        return [_Candidate(op, "branch", partial(_unseen_sides, _KINKED[op.type]), (op.inputs[0],))]
    if op.type in _COMPARED | _COMPARISONS:
        sides, tensors = (_ORDER, op.inputs) if op.type in _COMPARED else (_TRUTH, op.outputs)
        return [_Candidate(op, "branch", partial(_unseen_sides, sides), tuple(tensors))]
    # Factors that the case states, such as a mask or weights. A quotient's numerator is no factor that a
    # gradient could leave out.
    factors = {"Mul": (0, 1), "RealDiv": (1,)}.get(op.type, ())
    return [
        _Candidate(op, "ones", _unseen_factor, (op.inputs[factor],), 1 - factor)
        for factor in factors
        if id(op.inputs[factor]) in moved
    ]


def _unseen_repeats(values: Sequence[Array]) -> tuple[str, ...]:
    indices = values[0][values[0] >= 0]
    if (np.unique(indices, return_counts=True)[1] > 1).any():
        return ()
    return ("no index comes twice, so that adding up, a mean and the last look alike",)


def _unseen_factor(values: Sequence[Array]) -> tuple[str, ...]:
    is_one = bool(values[0].size) and bool((values[0] == 1).all())
    return ("a factor of it is 1 throughout: leaving that out looks the same",) if is_one else ()


def _input_candidates(op: Any, fed: Sequence[Any]) -> list[_Candidate]:
    """Return the sites where an input's values may hide that it is transposed or conjugated."""
    own = [tensor for tensor in op.inputs if any(tensor is start for start in fed)]
    candidates = [
        _Candidate(op, "conjugate", _unseen_conjugation, (tensor,))
        for tensor in own
        if tensor.dtype.is_complex
    ]
    if op.type in _PRODUCTS:
        candidates += [_Candidate(op, "transpose", _unseen_transposition, (tensor,)) for tensor in own]
    return candidates


def _unseen_conjugation(values: Sequence[Array]) -> tuple[str, ...]:
    is_real = bool(values[0].size) and not values[0].imag.any()
    return ("an operand has no imaginary parts: conjugated it looks the same",) if is_real else ()


def _unseen_transposition(values: Sequence[Array]) -> tuple[str, ...]:
    matrix = values[0]
    is_square = matrix.ndim >= _BINARY and matrix.shape[-1] == matrix.shape[-2] > 1
    if not is_square or not np.array_equal(matrix, np.swapaxes(matrix, -1, -2)):
        return ()
    return ("an operand is a symmetric matrix: transposed it looks the same",)


def _sizes_of(tensor: Any) -> list[int]:
    """Return a tensor's sizes along its axes, and how many elements it has."""
    shape = tensor.shape.as_list() if tensor.shape.rank else []
    return [] if None in shape or not shape else [*shape, int(np.prod(shape))]


def _size_candidates(op: Any, sizes: set[int], moved: set[int]) -> list[_Candidate]:
    """Return the site where an op divides by a constant that may stand for a size."""
    if op.type not in {"RealDiv", "DivNoNan"} or id(op.inputs[1]) in moved:
        return []
    return [_Candidate(op, "size", lambda values: _unseen_size(values[0], sizes), (op.inputs[1],), 0)]


def _unseen_size(divisor: Array, sizes: set[int]) -> tuple[str, ...]:
    if np.ndim(divisor) or float(np.real(divisor)) not in sizes:
        return ()
    message = f"it divides by {float(np.real(divisor)):g} in every case, which is also a size of an input"
    return (f"{message}: one for the other looks the same",)


def _shape_candidates(op: Any) -> list[_Candidate]:
    """Return the sites where an axis of size 1, or a size that is always the same, may hide a fault."""
    shapes: list[Any] = [
        tensor.shape.as_list() if tensor.shape.rank is not None else [None] for tensor in op.inputs
    ]
    if not shapes or None in shapes[0]:
        return []
    first: list[int] = shapes[0]
    if op.type in _REDUCTIONS or op.type in _ALONG_LAST:
        axes = _axes(op, len(first)) if first else None
        return [] if axes is None else _reduction_candidates(op, first, axes)
    if len(shapes) < _BINARY or None in shapes[1]:
        return []
    second, batch = shapes[1], first[:1]
    if op.type == "MatMul":
        batch = [first[1 if op.get_attr("transpose_a") else 0]]
    if op.type in _BY_BATCH and batch == [1]:
        return [
            _constant_candidate(
                op, "mean", "the batch has size 1: a mean over it for a sum looks the same", 1
            )
        ]
    if op.type in _BROADCAST and len(first) != len(second) and first and second:
        shorter = 0 if len(first) < len(second) else 1
        if np.prod(first) == np.prod(second):
            message = "it broadcasts over axes of size 1: a mean over them for a sum looks the same"
            return [_constant_candidate(op, "mean", message, shorter)]
    return []


def _constant_candidate(op: Any, corruption: str, message: str, input_index: int | None = None) -> _Candidate:
    return _Candidate(op, corruption, lambda _: (message,), input_index=input_index)


def _axes(op: Any, rank: int) -> list[int] | None:
    """Return the axes that an op works along; `None` where the graph doesn't say."""
    if op.type in _ALONG_LAST:
        return [rank - 1]
    axes = tf.get_static_value(op.inputs[1])
    return None if axes is None else [int(axis) % rank for axis in np.ravel(axes)]


def _reduction_candidates(op: Any, shape: Sequence[int], axes: Sequence[int]) -> list[_Candidate]:
    along = int(np.prod([shape[axis] for axis in axes]))
    other_sizes = [size for axis, size in enumerate(shape) if axis not in axes]
    if along == 1:
        return [
            _constant_candidate(op, "mean", "it goes along axes of size 1: a mean for a sum looks the same")
        ]
    if other_sizes and int(np.prod(other_sizes)) == 1:
        return [
            _constant_candidate(op, "axis", "all other axes have size 1: one along these too looks the same")
        ]
    if op.type == "Mean":
        message = f"it divides by {along} in every case: the number in its place looks the same"
        return [_constant_candidate(op, "size", message)]
    return []
