"""One backward pass, op by op: each op's upstreams and gradients, and where NaN or `None` first appears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradcheck_cli.checking.ops.operation import Array, OpPass, OpPlace

# A tensor with at most this many elements is shown whole; a larger one by shape, norm and range.
SMALL = 4


@dataclass(frozen=True)
class TensorSummary:
    """A tensor in few words."""

    shape: tuple[int, ...]  # its shape
    values: object  # all of it, nested lists, where it has at most `SMALL` elements; else `None`
    norm: float  # the Euclidean norm; NaN where an element is NaN
    low: float  # the smallest element; of a complex tensor the smallest magnitude. NaN elements are left out.
    high: float  # the largest
    nans: int  # how many elements are NaN
    infinities: int  # how many are infinite


@dataclass(frozen=True)
class TracedOp:
    """One op of a trace."""

    place: OpPlace
    # (output index, what flowed in); `None` where there is no gradient
    upstreams: tuple[tuple[int, TensorSummary | None], ...]
    gradients: tuple[tuple[int, TensorSummary | None], ...]  # (input index, what came out)
    # per entry of `gradients`, gradient out over upstream in, where the op has one upstream of one element:
    # its own derivative. `None` elsewhere.
    local: tuple[object, ...]
    # "NaN", "infinity", "None": what appears in this op's gradient, and in none that led here
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassTrace:
    """A backward pass from one output to one or more inputs."""

    output: str
    inputs: tuple[str, ...]
    ops: tuple[TracedOp, ...]  # the ops on the way, in backward order
    gradients: tuple[TensorSummary | None, ...]  # what arrived at each input; `None` where nothing did
    left_out: int = 0  # how many `Identity` ops, which pass a gradient on as it is, aren't among `ops`
    # per input, where a `None` or a NaN that no op's gradient shows comes from; empty elsewhere
    notes: tuple[str, ...] = ()


ADDED_UP = "NaN first appears here, where the gradients of several ops are added up: infinity minus infinity"


def explain_missing_gradient(gradient: Array | None, ops: Sequence[TracedOp], ends: Sequence[str]) -> str:
    """Say where a `None` or NaN at an input comes from, if no op is marked for it.

    Args:
        gradient: the gradient that arrives.
        ops: the ops on the way.
        ends: where the path from the input to the output ends, in words.
    """
    if gradient is None:
        return f"cut off by {', '.join(ends)}" if ends else ""
    is_marked = any("NaN" in op.marks for op in ops)
    return ADDED_UP if np.isnan(gradient).any() and not is_marked else ""


def summarise_tensor(value: Array | None) -> TensorSummary | None:
    """Summarise a tensor."""
    if value is None:
        return None
    array = np.asarray(value)
    size = np.abs(array) if np.iscomplexobj(array) else array
    numbers = size[~np.isnan(size)]
    norm = float(np.linalg.norm(array.ravel()))
    return TensorSummary(
        shape=array.shape,
        values=array.tolist() if array.size <= SMALL else None,
        norm=norm,
        low=float(numbers.min()) if numbers.size else float("nan"),
        high=float(numbers.max()) if numbers.size else float("nan"),
        nans=int(np.isnan(array).sum()),
        infinities=int(np.isinf(array).sum()),
    )


def summarise_pass(passes: Sequence[OpPass]) -> tuple[TracedOp, ...]:
    """Summarise each op of a backward pass, and mark where NaN, infinity and `None` first appear.

    Args:
        passes: the ops in backward order: each op's upstreams come from ops before it.
    """
    earlier: set[str] = set()
    ops = []
    for op_pass in passes:
        # A NaN that flows in and wasn't seen before comes from a sum of gradients, which no op shows.
        incoming = sorted({mark for _, value in op_pass.upstreams for mark in _marks(value)})
        outgoing = [mark for _, value in op_pass.gradients for mark in _marks(value)]
        marks = tuple(mark for mark in dict.fromkeys([*incoming, *outgoing]) if mark not in earlier)
        earlier.update(marks)
        flows, gradients = (
            tuple((index, summarise_tensor(value)) for index, value in values)
            for values in (op_pass.upstreams, op_pass.gradients)
        )
        local = tuple(_local_derivative(op_pass, value) for _, value in op_pass.gradients)
        ops.append(TracedOp(op_pass.place, flows, gradients, local, marks))
    return tuple(ops)


def _marks(value: Array | None) -> list[str]:
    if value is None:
        return ["None"]
    marks = ["NaN"] if np.isnan(value).any() else []
    return [*marks, "infinity"] if np.isinf(value).any() else marks


def _local_derivative(op_pass: OpPass, gradient: Array | None) -> object:
    if gradient is None or len(op_pass.upstreams) != 1 or gradient.size > SMALL:
        return None
    upstream = op_pass.upstreams[0][1]
    if upstream is None or upstream.size != 1 or not upstream.all() or not np.isfinite(upstream).all():
        return None
    # An op may conjugate a complex upstream, so no quotient gives the derivative.
    if np.iscomplexobj(upstream) or np.iscomplexobj(gradient):
        return None
    return (gradient / upstream.ravel()[0]).tolist()
