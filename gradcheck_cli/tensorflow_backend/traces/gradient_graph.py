"""A graph with a traced forward and its gradient: the forward's part, and what it holds still."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend.binding.override_reach import require_override
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.body_holds import BodyHolds
from gradcheck_cli.tensorflow_backend.traces.state import Order
from gradcheck_cli.tensorflow_backend.traces.trace_faults import require_no_leak, trace_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck_cli.tensorflow_backend.traces.forward_trace import ForwardTrace, TraceSubject


@dataclass
class GradientGraph:
    """One trace of a forward followed by a gradient.

    Attributes:
        subject: the function to trace.
        traced: the forward alone, traced before: its held draws are fed here, too.
        inlined: inline functions, so that their ops are in the graph one by one.
        function: the traced function, once `trace` has made it.
        inputs: the graph's own tensors of the arguments.
        outputs: the graph's own tensors of the outputs.
        forward_ops: the ops that existed before the first gradient.
        order: in which the graph's ops run.
        missed: the ops that an override was meant for but didn't reach.
        moving: the tensors of the inputs that are differentiated by.
        draws: the tensors of random draws to feed.
    """

    subject: TraceSubject
    traced: ForwardTrace
    inlined: bool = False
    function: Any = None
    inputs: tuple[Any, ...] = ()
    outputs: list[Any] = field(default_factory=list)
    forward_ops: list[Any] = field(default_factory=list)
    order: Any = None
    missed: list[str] = field(default_factory=list)
    moving: list[Any] = field(default_factory=list)
    draws: list[Any] = field(default_factory=list)
    _body_holds: BodyHolds | None = None

    def __post_init__(self) -> None:
        """Hold draws in bodies, where the forward's trace does."""
        if self.traced.held.inlined:
            self._body_holds = BodyHolds(frozen.is_random, with_stops=False)

    def trace(self, build: Callable[..., Any], signature: Sequence[Any]) -> None:
        """Trace a function that calls `call_forward` and adds a gradient.

        Raises:
            CaseFailedError: what it raised, or an override that no op on the path carries.
            GradientFormError: a gradient of wrong shape, found while the graph is built.
        """
        self.function = trace_function(build, signature)
        require_no_leak(self.function, "gradient")
        self.moving = self.subject.moving(self.function, self.inputs)
        override = self.subject.bound.override
        if override is not None:
            self.missed = require_override(self.function.graph, self.moving, self.outputs, override)
        if self.traced.held.draws:
            self.draws = frozen.draws_among(self.forward_ops, self.moving, self.function.inputs)

    def call_forward(self, inputs: Sequence[Any]) -> list[Any]:
        """Call the forward in the graph that is being traced, and return its outputs."""
        graph = tf.compat.v1.get_default_graph()
        self.order = Order(graph)
        self.inputs = tuple(inputs)
        with self._context():
            self.outputs = self.subject.bound.call(*inputs)
        self.forward_ops = graph.get_operations()  # the gradient's own ops come after
        self.order.add()
        return self.outputs

    def _context(self) -> contextlib.AbstractContextManager[None]:
        if self._body_holds is not None:
            return self._body_holds.tracing()
        return private_graphs.inline_functions() if self.inlined else contextlib.nullcontext()

    def held(self, stops: Sequence[Any] = ()) -> frozen.Held:
        """Return what the trace holds; a `stop_gradient` needn't be held where the inputs don't move."""
        body_holds = self._body_holds if self._body_holds is not None and self._body_holds.ops else None
        return frozen.Held(stops=tuple(stops), draws=tuple(self.draws), body_holds=body_holds)
