"""Finds where a graph's gradient could be wrong unseen at its points: branches, axes, factors, indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, frames
from gradcheck_cli.tensorflow_backend.graph_view import ForwardGraph
from gradcheck_cli.tensorflow_backend.op_types import BODIES, CONDITION, SIDES, Sides


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


# What must show at some point, by the message where it doesn't: of the values of some tensors, in which the
# corruption shows. Nothing shows what a graph's own shapes hide.
_Shows = Mapping[str, Callable[..., Any]]
_TWICE: _Shows = {
    "no index comes twice, so that adding up, a mean and the last look alike": lambda indices: (
        np.unique(indices[indices >= 0], return_counts=True)[1] > 1
    )
}
_FACTOR: _Shows = {
    "a factor of it is 1 throughout: leaving that out looks the same": lambda x: not x.size or x != 1
}
_PHASE: _Shows = {
    "an operand has no imaginary parts: conjugated it looks the same": lambda x: not x.size or x.imag
}
_ASYMMETRY: _Shows = {
    "an operand is a symmetric matrix: transposed it looks the same": lambda matrix: (
        matrix.ndim <= 1
        or not matrix.shape[-1] == matrix.shape[-2] > 1
        or not np.array_equal(matrix, np.swapaxes(matrix, -1, -2))
    )
}
_COMPARISONS = frozenset({"Greater", "GreaterEqual", "Less", "LessEqual"})
_REDUCTIONS = frozenset({"Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"})
_ALONG_LAST = frozenset({"Softmax", "LogSoftmax"})
_BROADCAST = frozenset({"Add", "AddV2", "BiasAdd", "Mul", "RealDiv", "Sub"})
# Kinks with a side of its own; the body of a branch or a loop has sites of its own.
_KINKED = SIDES.keys() - BODIES.keys() - {"Sign"}
# Op type -> which of its inputs holds indices. The gradient adds up the elements of equal indices.
_INDICES = {
    **dict.fromkeys(("GatherV2", "SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"), 1),
    **dict.fromkeys(("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin"), 1),
    **dict.fromkeys(("UnsortedSegmentProd", "ResourceGather"), 1),
    **dict.fromkeys(("SparseSegmentSum", "SparseSegmentMean"), 2),
}
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_BY_BATCH = frozenset({"MatMul", "Conv2D", "Conv1D", "Conv3D", "DepthwiseConv2dNative"})


class _Candidate(NamedTuple):
    """A possible site of an op: a corruption, what must show, and the tensors whose values may show it."""

    corruption: str
    shows: _Shows
    tensors: Sequence[Any] = ()
    input_index: int | None = None  # the index of the op's input whose gradient is concerned; `None` for all


def sites_of(graph: ForwardGraph, pairs: Sequence[tuple[int, int]]) -> list[Site]:
    """Return the sites of a forward, with what its point doesn't show at each.

    Args:
        graph: the forward in its declared dtypes.
        pairs: the pairs of interest.
    """
    ops_by_pair = {pair: set(graph.between(*pair)) for pair in pairs}
    fed = graph.arguments
    moved = graph.moved_by(fed)
    sizes = {size for tensor in fed for size in _sizes_of(tensor)}
    behind = graph.behind_switches()
    candidates = [
        (op, candidate)
        for op in dict.fromkeys(op for ops in ops_by_pair.values() for op in ops)
        for candidate in (*_of_choices(op, moved), *_of_operands(op, fed, moved, sizes), *_of_shapes(op))
        if behind.isdisjoint(tensor.op for tensor in candidate.tensors)
    ]
    values = graph.values(tensor for _, own in candidates for tensor in own.tensors)

    def site_of(op: Any, candidate: _Candidate) -> Site:
        own = None if candidate.input_index is None else op.inputs[candidate.input_index]
        pairs_through_op = frozenset(
            pair
            for pair, ops in ops_by_pair.items()
            if op in ops and (own is None or id(own) in graph.moved_by(graph.starts(pair[1])))
        )
        at_point = [values[id(tensor)] for tensor in candidate.tensors]
        unseen = tuple(words for words, shows in candidate.shows.items() if not np.any(shows(*at_point)))
        return Site(candidate.corruption, _describe(op), pairs_through_op, unseen)

    return [site_of(op, candidate) for op, candidate in candidates]


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


def _describe(op: Any) -> str:
    place = frames.place_in_users_code(op)
    return f"{op.type} '{op.name}'" + (f" at {place}" if place else "")


def _of_choices(op: Any, moved: set[int]) -> Iterator[_Candidate]:
    """Yield the sites where an op selects a side, an index or a factor by value."""
    is_differentiable = bool(op.inputs) and dtypes.is_differentiable(op.inputs[0].dtype)
    if op.type in _INDICES:
        yield _Candidate("repeats", _TWICE, [op.inputs[_INDICES[op.type]]])
    elif op.type in _KINKED and (is_differentiable or op.inputs[0].dtype.is_bool):
        sides = SIDES[op.type]
        if op.inputs[0].op.type not in _COMPARISONS:  # a comparison is a site itself
            yield _Candidate("branch", _each_of(sides), [op.inputs[index] for index in sides.inputs])
    elif is_differentiable and op.type in _COMPARISONS:
        yield _Candidate("branch", _each_of(CONDITION), op.outputs)
    elif is_differentiable:
        # Factors that the case states, such as a mask or weights. A quotient's numerator is no factor that a
        # gradient could leave out.
        for factor in {"Mul": (0, 1), "RealDiv": (1,)}.get(op.type, ()):
            if id(op.inputs[factor]) in moved:
                yield _Candidate("ones", _FACTOR, [op.inputs[factor]], 1 - factor)


def _each_of(sides: Sides) -> _Shows:
    """Require that some element takes each side."""

    def takes(number: int, *values: Any) -> Any:
        return sides.taken(*values)[number]

    return {
        f"no element takes its side '{name}'": partial(takes, number)
        for number, name in enumerate(sides.names)
    }


def _of_operands(op: Any, fed: Sequence[Any], moved: set[int], sizes: set[int]) -> Iterator[_Candidate]:
    """Yield the sites where values may hide what is transposed, conjugated, or a constant for a size."""
    for tensor in op.inputs:
        if not any(tensor is start for start in fed):
            continue
        if tensor.dtype.is_complex:
            yield _Candidate("conjugate", _PHASE, [tensor])
        if op.type in _PRODUCTS:
            yield _Candidate("transpose", _ASYMMETRY, [tensor])
    if op.type in {"RealDiv", "DivNoNan"} and id(op.inputs[1]) not in moved:
        yield _Candidate("size", dict(map(_unlike, sizes)), [op.inputs[1]], 0)


def _unlike(size: int) -> tuple[str, Callable[..., Any]]:
    message = f"it divides by {size:g} in every case, which is also a size of an input"
    return (
        f"{message}: one for the other looks the same",
        lambda divisor: np.ndim(divisor) or divisor != size,
    )


def _hidden(corruption: str, message: str, input_index: int | None = None) -> _Candidate:
    """Return a site that no values show."""
    return _Candidate(corruption, {message: lambda: False}, input_index=input_index)


def _sizes_of(tensor: Any) -> list[int]:
    """Return a tensor's sizes along its axes, and how many elements it has."""
    shape = tensor.shape.as_list() if tensor.shape.rank else []
    return [] if None in shape or not shape else [*shape, int(np.prod(shape))]


def _of_shapes(op: Any) -> Iterator[_Candidate]:
    """Yield the site where an axis of size 1, or a size that is always the same, may hide a fault."""
    shapes: list[Any] = [
        tensor.shape.as_list() if tensor.shape.rank is not None else [None] for tensor in op.inputs
    ]
    if not shapes or None in shapes[0]:
        return
    first, *others = shapes
    if op.type in _REDUCTIONS | _ALONG_LAST:
        axes = _axes(op, len(first)) if first else None
        yield from () if axes is None else _of_reduction(op, first, axes)
    elif others and None not in others[0]:
        batch = first[1] if op.type == "MatMul" and op.get_attr("transpose_a") else [*first, 0][0]
        if op.type in _BY_BATCH and batch == 1:
            yield _hidden("mean", "the batch has size 1: a mean over it for a sum looks the same", 1)
        ranks = len(first), len(others[0])
        same_size = np.prod(first) == np.prod(others[0])
        if op.type in _BROADCAST and ranks[0] != ranks[1] and all(ranks) and same_size:
            message = "it broadcasts over axes of size 1: a mean over them for a sum looks the same"
            yield _hidden("mean", message, int(ranks[0] > ranks[1]))


def _axes(op: Any, rank: int) -> list[int] | None:
    """Return the axes that an op works along; `None` where the graph doesn't say."""
    if op.type in _ALONG_LAST:
        return [rank - 1]
    axes = tf.get_static_value(op.inputs[1])
    return None if axes is None else [int(axis) % rank for axis in np.ravel(axes)]


def _of_reduction(op: Any, shape: Sequence[int], axes: Sequence[int]) -> Iterator[_Candidate]:
    along = math.prod(shape[axis] for axis in axes)
    others = [size for axis, size in enumerate(shape) if axis not in axes]
    if along == 1:
        yield _hidden("mean", "it goes along axes of size 1: a mean for a sum looks the same")
    elif others and math.prod(others) == 1:
        yield _hidden("axis", "all other axes have size 1: one along these too looks the same")
    elif op.type == "Mean":
        message = f"it divides by {along} in every case: the number in its place looks the same"
        yield _hidden("size", message)
