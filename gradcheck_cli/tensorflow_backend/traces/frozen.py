"""What can be held constant while the inputs move, so that a difference means what backpropagation means.

Backpropagation treats a `stop_gradient` that it meets as a constant; where that is meant, the stop keeps its
base value. Random numbers are drawn once, for the forward, the gradient and every difference. Both are fed as
constants if they are in the traced graph itself (`TracedCase.base` has the values).

Inside a loop's or a branch's body, which can't be fed, each such op's result is passed through a Python
function. At the base point it records the op's values, call by call; afterwards it replays them. Loops run
one round at a time, and points one by one, so the order of calls is always the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import frames, graph_path
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.op_types import PASSES_INPUT_ON, STOPS, is_random
from gradcheck_cli.tensorflow_backend.private import private_graphs


@dataclass
class HeldOp:
    """One op in a body, with its outputs at the base point, call by call."""

    op: Any
    key: str = ""  # for a `stop_gradient` that backpropagation meets, where it comes from
    token: str = ""  # the token of the PyFunc that records and replays its values
    is_held: bool = True  # whether the recorded values replace the op's own
    # its outputs at the base point, one entry for each call
    recorded: list[list[Array]] = field(default_factory=list)
    calls: int = 0  # how often it was called since the last rewind
    is_recording: bool = False  # whether calls are recorded

    def record_or_replay(self, *values: Array) -> list[Array]:
        """Record the op's values, or return the base point's values instead."""
        if self.is_recording:
            self.recorded.append([value.copy() for value in values])
            return list(values)
        call, self.calls = self.calls, self.calls + 1
        # The base point had no such call: another branch is taken, or a loop runs for longer.
        if not self.is_held or call >= len(self.recorded):
            return list(values)
        base_values = self.recorded[call]
        if any(old.shape != value.shape for old, value in zip(base_values, values, strict=True)):
            return list(values)
        return [old.astype(value.dtype) for old, value in zip(base_values, values, strict=True)]


@dataclass
class BodyHolds:
    """The ops that one trace holds in bodies."""

    # hold `stop_gradient`s too. The graph of the gradient doesn't need this, since it stays at the base
    # point.
    with_stops: bool = True
    ops: list[HeldOp] = field(default_factory=list)  # in order of creation

    @contextlib.contextmanager
    def trace_with_holds(self) -> Iterator[None]:
        """Trace with tf.functions inlined, and hold ops in every body."""
        with private_graphs.inline_functions(), private_graphs.replace_outputs(self._prepare, self._replace):
            yield

    def _prepare(self, op_type: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Give each random op in a body its own seed, since every body's graph counts its ops from zero."""
        seed = arguments.get("seed")
        if not seed or not is_random(op_type) or not private_graphs.is_body(tf.compat.v1.get_default_graph()):
            return arguments
        return {**arguments, "seed": (seed + 1_000_003 * (1 + len(self.ops))) % 2**31}

    def _replace(self, op: Any, outputs: Any) -> Any:
        is_stop = self.with_stops and op.type in STOPS
        if not (is_stop or is_random(op.type)) or not private_graphs.is_body(op.graph):
            return outputs
        private_graphs.mark(op, graph_path.MARK)
        held_op = HeldOp(op)
        self.ops.append(held_op)
        held_tensors = tf.compat.v1.py_func(
            held_op.record_or_replay, list(outputs), [output.dtype for output in outputs], stateful=True
        )
        held_op.token = held_tensors[0].op.get_attr("token").decode()
        for tensor, output in zip(held_tensors, outputs, strict=True):
            tensor.set_shape(output.shape)
        return held_tensors

    def recording_anew(self) -> BodyHolds:
        """Return body holds for the same ops in a graph made from this one; they record values again."""
        return replace(self, ops=[replace(held_op, recorded=[], calls=0) for held_op in self.ops])

    @property
    def stops(self) -> list[HeldOp]:
        """The `stop_gradient`s that backpropagation meets."""
        return [held_op for held_op in self.ops if held_op.key]

    def draw_types(self) -> tuple[str, ...]:
        """Return the types of the random ops."""
        return tuple(held_op.op.type for held_op in self._draws())

    def draw_values(self) -> tuple[tuple[list[Array], ...], ...]:
        """Return the outputs of each random op at the base point."""
        return tuple(tuple(held_op.recorded) for held_op in self._draws())

    def use_draws(self, values: tuple[tuple[list[Array], ...], ...]) -> None:
        """Use the outputs that another trace's random ops had at the base point."""
        for held_op, recorded in zip(self._draws(), values, strict=True):
            held_op.recorded = list(recorded)

    @contextlib.contextmanager
    def record_base(self) -> Iterator[None]:
        """Run at the base point: record the outputs of each op that has no values yet."""
        for held_op in self.ops:
            held_op.calls, held_op.is_recording = 0, not held_op.recorded
        try:
            yield
        finally:
            for held_op in self.ops:
                held_op.is_recording = False

    def rewind(self, holds: Callable[[str], bool] = lambda _: False) -> None:
        """Let the next call start at the first call of each op whose key `holds` says is held."""
        for held_op in self.ops:
            held_op.calls = 0
            held_op.is_held = held_op.op.type not in STOPS or (bool(held_op.key) and holds(held_op.key))

    def _draws(self) -> list[HeldOp]:
        return [held_op for held_op in self.ops if held_op.op.type not in STOPS]


@dataclass(frozen=True)
class Stop:
    """A `stop_gradient`, by the lines that asked for it, and the place to show."""

    key: str
    place: str

    @staticmethod
    def of(op: Any) -> Stop:
        """Return the stop of an op; one from a file has no lines, but the same name in each trace."""
        lines = [(frame.filename, frame.lineno, frame.name) for frame in frames.frames_of(op)]
        return Stop(*frames.place_of_stop(lines) if lines else [frames.describe_imported(op)] * 2)


@dataclass(frozen=True)
class Held:
    """What can be held in a trace."""

    stops: tuple[Any, ...] = ()  # tensors of `stop_gradient`s that backpropagation meets, in the graph itself
    stop_origins: tuple[Stop, ...] = ()  # where each of these comes from
    draws: tuple[Any, ...] = ()  # the random ops' tensors in the graph itself, in order of creation
    # holds stops and draws in bodies of loops and branches; `None` where there are none
    body_holds: BodyHolds | None = None
    closed: tuple[Any, ...] = ()  # ops whose body has a `stop_gradient` that nothing can hold in this trace
    inlined: bool = False  # whether tf.functions were inlined for it
    can_be_opened: bool = False  # whether another trace could hold what is closed here
    sides: tuple[Any, ...] = ()  # for kinked ops, the side that elements are on (`twin/widening.py`)

    def recording_anew(self) -> Held:
        """Return the same for a graph made from this one, in which values are recorded again."""
        return self if self.body_holds is None else replace(self, body_holds=self.body_holds.recording_anew())


def look_inside(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[bool, bool]:
    """Say whether functions' bodies contain draws to hold, and whether they contain `stop_gradient`s.

    In another trace, with these functions inlined, they can be held.
    """
    moving_met = set(_moving_ops_met(inputs, outputs))
    draws = stops = False
    for op in graph_path.ops_before(outputs):
        types = {node.op for node in graph_path.inner_nodes(op)}
        draws |= any(is_random(name) for name in types)
        stops |= bool(STOPS & types) and op in moving_met
    return draws, stops


def find_held(
    function: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    body_holds: BodyHolds | None,
    *,
    has_inside: bool,
) -> Held:
    """Find what can be held in a traced forward.

    Args:
        has_inside: whether functions' bodies contain something to hold.
    """
    closed = [
        op
        for op in _moving_ops_met(inputs, outputs)
        if any(node.op in STOPS and graph_path.MARK not in node.attr for node in graph_path.inner_nodes(op))
    ]
    for held_op in body_holds.ops if body_holds is not None else ():
        if held_op.op.type in STOPS and _is_met_in_body(held_op.op, outputs):  # only those can be held
            held_op.key = Stop.of(held_op.op).key
    stops = stops_among(inputs, outputs)
    return Held(
        stops=stops,
        stop_origins=tuple(Stop.of(tensor.op) for tensor in stops),
        draws=tuple(draws_among(function.graph.get_operations(), inputs, function.inputs)),
        body_holds=body_holds if body_holds is not None and body_holds.ops else None,
        closed=tuple(closed),
        inlined=body_holds is not None,
        can_be_opened=has_inside and not (body_holds and body_holds.with_stops),
    )


def stops_among(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the tensors of `stop_gradient`s that move with the inputs and that backpropagation meets."""
    stops = (op.outputs[0] for op in _moving_ops_met(inputs, outputs) if op.type in STOPS)
    return tuple(sorted(stops, key=lambda tensor: str(tensor.name)))


def _moving_ops_met(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    moving_ops = set(graph_path.ops_between(inputs, outputs))
    return [op for op in graph_path.ops_met(outputs) if op in moving_ops]


def draws_among(candidates: Iterable[Any], inputs: Sequence[Any], placeholders: Iterable[Any]) -> list[Any]:
    """Return the tensors of random ops that can be held, in order of creation.

    Args:
        placeholders: all of the function's inputs. An op that depends on any other placeholder belongs to a
            template that TensorFlow made copies of (`tf.vectorized_map`), and never runs.
    """
    ops = [op for op in candidates if is_random(op.type)]
    if not ops:
        return []
    placeholder_ops = {tensor.op for tensor in placeholders}
    moving_ops = graph_path.ops_after(inputs) if any(op.type in PASSES_INPUT_ON for op in ops) else set()
    tensors = []
    for op in ops:
        before = graph_path.ops_before(op.outputs)
        is_template = any(
            earlier.type == "Placeholder" and earlier not in placeholder_ops for earlier in before
        )
        if not is_template and not (op.type in PASSES_INPUT_ON and op in moving_ops):
            tensors += list(op.outputs)
    return tensors


def _is_met_in_body(op: Any, outputs: Sequence[Any]) -> bool:
    """Whether backpropagation meets an op in a body, and that body's call in the outer graph."""
    graph = op.graph
    while private_graphs.is_body(graph):
        if private_graphs.is_defun_body(graph) or op not in graph_path.ops_met(graph.outputs):
            return False
        name, graph = graph.name, graph.outer_graph
        callers = [
            caller
            for caller in graph.get_operations()
            if name in private_graphs.function_names(caller.node_def)
        ]
        if not callers:
            return False
        op = callers[0]
    return op in graph_path.ops_met(outputs)
