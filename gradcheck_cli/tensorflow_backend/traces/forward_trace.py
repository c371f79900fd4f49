"""Traces a bound function's forward alone, for differences.

Building a gradient changes the forward: a while loop gains accumulators. A forward pruned from that graph
fails under vectorized_map. So the gradient is traced in a separate graph, by `vjp_trace`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import graph_path
from gradcheck_cli.tensorflow_backend.binding.binder import Bound
from gradcheck_cli.tensorflow_backend.private import private_graphs, private_state
from gradcheck_cli.tensorflow_backend.private.private_graphs import subgraph_function
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.frozen import BodyHolds
from gradcheck_cli.tensorflow_backend.traces.state import find_written
from gradcheck_cli.tensorflow_backend.traces.trace_faults import require_no_leak, trace_function


@dataclass(frozen=True)
class TraceSubject:
    """The function to trace, and the inputs by which it is differentiated."""

    bound: Bound  # the forward, with its gradient where that is traced as well
    signature: Sequence[Any]  # the arguments
    differentiable: Sequence[int]  # indices of the inputs to differentiate by
    variables: Sequence[Any] = ()  # the variables among the inputs, numbered after the arguments
    compiled: bool = False  # whether XLA is to compile the trace

    def moving_tensors(self, function: Any, arguments: Sequence[Any]) -> list[Any]:
        """Return a graph's tensors of the differentiable inputs: its arguments, and handles of variables."""
        tensors = [*arguments, *handles(function, self.variables)]
        return [tensors[index] for index in self.differentiable if tensors[index] is not None]


@dataclass(frozen=True)
class ForwardTrace:
    """The forward alone, in a graph of its own."""

    function: Any
    dtypes: tuple[Any, ...]  # of the outputs
    random_types: tuple[str, ...]  # stateful op types that draw anew at each call
    low_precision: tuple[str, ...]  # dtypes below float64 between differentiable inputs and outputs
    quantisers: tuple[str, ...]  # types of ops between these that round
    inputs: tuple[Any, ...]  # the graph's own tensors
    outputs: tuple[Any, ...]
    moving: tuple[Any, ...]  # the tensors of the inputs to differentiate by; for a variable, its handle
    backprop_starts: tuple[Any, ...]  # its outputs; for a vjp, those of the forward that it differentiates
    held: frozen.Held
    has_effects: bool  # it writes to variables or tables; only pruning drops writes
    handles: tuple[Any, ...]  # the graph's own tensors for the variables among the inputs; None: not used
    trainable: tuple[Any, ...]  # the variables that it reads and that have gradients
    gradient_variables: tuple[Any, ...]  # those of them that a custom gradient has gradients for
    # parts of it, by the ids of what is fed and fetched, which stay in use; they serve every point
    _parts: dict[Any, tuple[Any, Any]] = field(default_factory=dict, init=False)

    def reads(self) -> list[list[Any]] | None:
        """Return the tensors that read each variable input; `None` if one is also used in another way."""
        if self.has_effects:
            return None
        uses = [[] if handle is None else handle.consumers() for handle in self.handles]
        if any(op.type != "ReadVariableOp" for consumers in uses for op in consumers):
            return None
        return [[op.outputs[0] for op in consumers] for consumers in uses]

    def pruned(self, feeds: Sequence[Any] = (), fetches: Sequence[Any] = ()) -> Any:
        """Return the forward as a function of the inputs and of fed tensors, with more tensors to fetch.

        Pruning drops writes that nothing reads: Keras' Dropout draws by a seed that it writes back.
        """
        if not (feeds or fetches or self.has_effects):
            return self.function
        ends = [*self.inputs, *feeds], [*self.outputs, *fetches]
        key = tuple(tuple(map(id, tensors)) for tensors in ends)
        if key not in self._parts:
            self._parts[key] = ends, subgraph_function(self.function, *ends)
        return self._parts[key][1]


def trace_forward(subject: TraceSubject, *, stops: bool = True, seed: int = 0) -> ForwardTrace:
    """Trace the forward; trace it again with functions inlined if something to hold is inside one.

    Args:
        stops: also open bodies that contain `stop_gradient`s, so that these can be held.
        seed: the graph's seed, so that its random ops draw the same numbers in every run of the command.

    Raises:
        CaseFailedError: what the forward raised, with the user's own frames.
    """
    trace = partial(_trace_once, subject, seed=seed)
    with private_state.order_of_variables(lambda _: None):
        function, graph_inputs, graph_outputs, backprop_starts = trace(contextlib.nullcontext())
    inputs = subject.moving_tensors(function, graph_inputs)
    has_draws, has_stops = frozen.look_inside(function.graph, inputs, backprop_starts)
    body_holds = None
    if has_draws or (stops and has_stops):
        body_holds = BodyHolds(frozen.is_random, with_stops=stops)
        function, graph_inputs, graph_outputs, backprop_starts = trace(body_holds.trace_with_holds())
        inputs = subject.moving_tensors(function, graph_inputs)
    held = frozen.find_held(function, inputs, backprop_starts, body_holds, has_inside=has_draws or has_stops)
    random_types = [
        *graph_path.stateful_types(function.graph, graph_outputs, held.draws),
        *graph_path.implicit_samplers(function.graph, inputs, graph_outputs),
    ]
    return ForwardTrace(
        function=function,
        dtypes=tuple(output.dtype for output in graph_outputs),
        random_types=tuple(dict.fromkeys(random_types)),
        low_precision=tuple(graph_path.dtypes_on_path(function.graph, inputs, graph_outputs)),
        quantisers=tuple(graph_path.quantisers(function.graph, inputs, graph_outputs)),
        inputs=tuple(graph_inputs),
        outputs=tuple(graph_outputs),
        moving=tuple(inputs),
        backprop_starts=tuple(backprop_starts),
        held=held,
        has_effects=bool(find_written(function)),
        handles=tuple(handles(function, subject.variables)),
        trainable=tuple(private_state.trainable_of(function)),
        gradient_variables=tuple(graph_path.gradient_variables(function.graph, graph_outputs)),
    )


def handles(function: Any, variables: Sequence[Any]) -> list[Any]:
    """Return a graph's own tensors for variables; `None` for one that it doesn't use."""
    captured = private_state.captured_handles(function)
    return [captured.get(id(variable.handle)) for variable in variables]


def _trace_once(
    subject: TraceSubject, context: contextlib.AbstractContextManager[None], *, seed: int
) -> tuple[Any, list[Any], list[Any], list[Any]]:
    """Return the traced function, its arguments, its outputs, and where backpropagation starts."""
    bound = subject.bound
    graph_tensors: list[list[Any]] = []

    def forward(*tensors: Any) -> list[Any]:
        tf.compat.v1.set_random_seed(seed)  # of this graph alone
        order = private_state.Order(tf.compat.v1.get_default_graph())
        with context:
            outputs = [tf.identity(output) for output in bound.call(*tensors)]
        order.add()
        backprop_starts = outputs if bound.backprop_starts is None else list(bound.backprop_starts())
        graph_tensors[:] = [list(tensors), outputs, backprop_starts]
        return list(outputs)

    function = trace_function(
        private_graphs.show_xla(forward) if subject.compiled else forward, subject.signature
    )
    require_no_leak(function, "forward")
    return function, graph_tensors[0], graph_tensors[1], graph_tensors[2]
