"""The ops of a backward pass, from its log, with the gradients that flow into and out of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.paths.graph_path import STOP
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.traces.gradients import dense

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Step:
    """One op of the pass, with the gradients that flow through it.

    Attributes:
        op: the op.
        upstreams: output index -> the incoming gradient, for outputs that have one.
        gradients: input index -> the outgoing gradient, or `None`; for floating inputs that move with an
            input of the case.
        results: how many leading inputs are a custom gradient's results; its arguments follow them.
    """

    op: Any
    upstreams: dict[int, Any]
    gradients: dict[int, Any]
    results: int = 0

    @property
    def passes_on(self) -> bool:
        """Whether it is a plain `Identity`, whose gradient is its upstream."""
        return bool(self.op.type == "Identity" and not private_gradients.has_own_gradient(self.op))


def is_numeric(tensor: Any) -> bool:
    """Whether a gradient is a tensor with numbers; not `None`, and not a TensorList's handle."""
    return tensor is not None and dtypes.is_differentiable(tensor.dtype)


def steps_of(
    visits: Sequence[private_gradients.Visit],
    sources: Sequence[Any],
    result: Any,
    upstream: Any,
    stops: Sequence[Any],
) -> list[Step]:
    """Collect the gradients at each op. An op without a gradient function is the last on its path."""
    moving_ids = _find_moving(sources, stops)
    visited = {visit.op for visit in visits} | {tensor.op for tensor in sources}
    unvisited = [
        op for op in graph_path.ops_between(sources, [result]) if op not in visited and op.type != STOP
    ]
    flows: dict[int, list[Any]] = {id(result): [upstream]}  # the gradients of each tensor, by its id
    steps = []
    for visit in visits:
        op = visit.op
        if op.graph is not result.graph:
            continue
        unit = private_graphs.custom_gradient_of(op)
        first = 0 if unit is None else unit.results
        upstreams = {
            index: _as_tensor(flow, op.outputs[index])
            for index, flow in enumerate(visit.upstreams)
            if id(op.outputs[index]) in flows and isinstance(flow, tf.Tensor | tf.IndexedSlices)
        }
        # A loop's op gains inputs when its gradient is built; these have no gradient.
        pulled = list(zip(op.inputs, visit.gradients, strict=False))
        for tensor, gradient in pulled:
            if gradient is not None:
                flows.setdefault(id(tensor), []).append(gradient)
        gradients = {
            index: _as_tensor(gradient, tensor)
            for index, (tensor, gradient) in enumerate(pulled)
            if index >= first and id(tensor) in moving_ids
        }
        steps.append(Step(op, upstreams, gradients, results=first))
    return steps + [
        step for op in unvisited if (step := _step_without_gradient(op, flows, moving_ids)) is not None
    ]


def _step_without_gradient(op: Any, flows: Mapping[int, Sequence[Any]], moving_ids: set[int]) -> Step | None:
    """Return the step of an op that has an upstream but no gradient function to call."""
    upstreams = {
        index: tf.add_n([_as_tensor(flow, tensor) for flow in flows[id(tensor)]])
        for index, tensor in enumerate(op.outputs)
        if id(tensor) in flows
    }
    gradients = {index: None for index, tensor in enumerate(op.inputs) if id(tensor) in moving_ids}
    return Step(op, upstreams, gradients) if upstreams and gradients else None


def _as_tensor(flow: Any, tensor: Any) -> Any:
    if isinstance(flow, tf.IndexedSlices):
        # A variable's handle has no shape; the slices have one.
        return tf.convert_to_tensor(flow) if tensor.dtype == tf.resource else dense(flow, tensor)
    return flow


def _find_moving(sources: Sequence[Any], stops: Sequence[Any]) -> set[int]:
    """Return the ids of floating tensors that move with the inputs, except through a held `stop_gradient`."""
    stop_ids = {id(tensor) for tensor in stops}
    moving_ids = {id(tensor) for tensor in sources}
    stack, visited = list(sources), set()
    while stack:
        for op in stack.pop().consumers():
            if op in visited:
                continue
            visited.add(op)
            reached = [tensor for tensor in op.outputs if id(tensor) not in stop_ids]
            moving_ids |= {id(tensor) for tensor in reached if dtypes.is_differentiable(tensor.dtype)}
            stack += reached
    return moving_ids
