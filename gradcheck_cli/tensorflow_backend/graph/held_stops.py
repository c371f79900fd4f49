"""The `stop_gradient`s of a traced case: which are held, and which lie between an input and an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.paths.graph_path import STOP, STOPS
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop


@dataclass(frozen=True)
class UnheldStop:
    """The place of a `stop_gradient`, and whether it belongs to the forward or to a gradient function."""

    place: str
    is_of_forward: bool


def held_places(traced: TracedCase) -> tuple[str, ...]:
    """Return the place of each `stop_gradient` that is held."""
    if traced.narrow is not None:  # only the narrow graph's ops know where they come from
        return held_places(traced.narrow)
    stops = [stop for stop in _describe(traced, traced.held_stops) if traced.holds(stop.key)]
    return tuple(dict.fromkeys(stop.place for stop in stops))


def held_types(traced: TracedCase) -> list[str]:
    """Return the type of each op that is held at its base value."""
    held = traced.forward.held
    types = [op.type for op in dict.fromkeys(tensor.op for tensor in (*traced.held_stops, *held.draws))]
    if held.body_holds is not None:
        types += held.body_holds.draw_types()
        types += [STOP for site in held.body_holds.stops if traced.holds(site.key)]
    return types


def stops_between(traced: TracedCase, output: int, input_index: int) -> dict[str, str]:
    """Return the `stop_gradient`s that can be held between an input and an output: places by key.

    One that an input moves through integers alone (an argmax, an index) changes no derivative by it.
    """
    if traced.narrow is not None:
        return stops_between(traced.narrow, output, input_index)
    opened = traced.with_open_stops
    trace, starts = opened.forward, opened.starts(input_index)
    if all(op.type not in STOPS for op in trace.function.graph.get_operations()):  # as in most models
        return {stop.key: stop.place for stop in _describe(opened, [])}
    between = set(graph_path.ops_between(starts, [trace.outputs[output]]))
    moved = graph_path.moved_by(starts, (), stops=True)
    stops = [
        tensor
        for tensor in frozen.stops_among(starts, trace.backprop_starts)
        if tensor.op in between and id(tensor.op.inputs[0]) in moved
    ]
    return {stop.key: stop.place for stop in _describe(opened, stops)}


def passed_over(traced: TracedCase) -> tuple[str, ...]:
    """Return the places of the forward's `stop_gradient`s that backpropagation never meets.

    They are inside a custom gradient's own forward: its gradient function takes the place of all of that.
    """
    if traced.narrow is not None:
        return passed_over(traced.narrow)
    trace = traced.forward
    indices = range(traced.at.count + len(trace.handles))
    starts = [tensor for index in indices for tensor in traced.starts(index)]
    starts = [tensor for tensor in starts if tensor.dtype.is_floating or tensor.dtype.is_complex]
    met = {id(tensor) for tensor in frozen.stops_among(starts, trace.backprop_starts)}
    between = graph_path.ops_between(starts, list(trace.outputs))
    stops = [op for op in between if op.type in STOPS and id(op.outputs[0]) not in met]
    return tuple(dict.fromkeys(Stop.of(op).place for op in stops))


def closed_between(traced: TracedCase, output: int, input_index: int) -> list[str]:
    """Return the ops between an input and an output whose inner `stop_gradient` can't be held."""
    if traced.narrow is not None:
        return closed_between(traced.narrow, output, input_index)
    opened = traced.with_open_stops
    trace = opened.forward
    between = set(graph_path.ops_between(opened.starts(input_index), [trace.outputs[output]]))
    return [op.name for op in trace.held.closed if op in between]


def unheld_between(traced: TracedCase, output: int, input_index: int) -> list[UnheldStop]:
    """Return the `stop_gradient`s between an input and an output that aren't held.

    For a vjp, return only those in gradient functions, if there are any: holding these would be enough.
    """
    trace, starts = traced.forward, traced.starts(input_index)
    held_ids = {id(tensor) for tensor in traced.held_stops}
    forward_ids = {id(tensor) for tensor in frozen.stops_among(starts, trace.backprop_starts)}
    between = graph_path.ops_between(starts, [trace.outputs[output]])
    tensors = [op.outputs[0] for op in between if op.type in STOPS and id(op.outputs[0]) not in held_ids]
    stops = [UnheldStop(Stop.of(tensor.op).place, id(tensor) in forward_ids) for tensor in tensors]
    return [stop for stop in stops if not stop.is_of_forward] or stops


def _describe(traced: TracedCase, tensors: Sequence[Any]) -> list[Stop]:
    """Describe tensors of `stop_gradient`s, and all those in bodies as well."""
    body_holds = traced.forward.held.body_holds
    inner = [] if body_holds is None else [site.op for site in body_holds.stops]
    return [Stop.of(op) for op in (*(tensor.op for tensor in tensors), *inner)]
