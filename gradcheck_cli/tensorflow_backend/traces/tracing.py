"""Traces a bound function: its forward alone, for differences, and with its gradient.

Building a gradient changes the forward: a while loop gains accumulators. A forward pruned from that graph
fails under vectorized_map. So there are two graphs. The second one has a backward pass for each output; it
shows which ops an override reached, and what it holds.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError, Opening
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes, frames, graph_path
from gradcheck_cli.tensorflow_backend.binding.binder import Bound, Override, note_form_faults
from gradcheck_cli.tensorflow_backend.op_types import BODIES, IMPLICIT_SAMPLERS, is_random
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs, private_state
from gradcheck_cli.tensorflow_backend.private.private_gradients import GradientSite, Visit
from gradcheck_cli.tensorflow_backend.private.private_graphs import CALLS, feeds_of, subgraph_function
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.frozen import BodyHolds
from gradcheck_cli.tensorflow_backend.traces.state import Made, Resource, captured_ids, find_written
from gradcheck_cli.tensorflow_backend.traces.trace_faults import (
    gradients_of,
    require_no_leak,
    shape_fault,
    trace_function,
)


@dataclass(frozen=True)
class TraceSubject:
    """The function to trace, and the inputs by which it is differentiated."""

    bound: Bound  # the forward, with its gradient where that is traced as well
    signature: Sequence[Any]  # the arguments
    differentiable: Sequence[int]  # indices of the inputs to differentiate by
    variables: Sequence[Any] = ()  # the variables among the inputs, numbered after the arguments
    compiled: bool = False  # whether XLA is to compile the trace
    inlined: bool = False  # whether functions are inlined where it is differentiated

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
    # parts of it, by what is fed and fetched; they serve every point
    _parts: Made = field(default_factory=Made, init=False)

    def reads(self) -> list[list[Any]] | None:
        """Return the tensors that read each variable input; `None` if one is also used in another way."""
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
        return self._parts.of(lambda: subgraph_function(self.function, *ends), *ends[0], None, *ends[1])


# A traced function, its arguments, its outputs, and where backpropagation starts.
Traced = tuple[Any, Sequence[Any], Sequence[Any], Sequence[Any]]


def trace_forward(
    subject: TraceSubject, *, stops: bool = True, seed: int = 0, plain: ForwardTrace | None = None
) -> ForwardTrace:
    """Trace the forward; trace it again with functions inlined if something to hold is inside one.

    Args:
        stops: also open bodies that contain `stop_gradient`s, so that these can be held.
        seed: the graph's seed, so that its random ops draw the same numbers in every run of the command.
        plain: a trace in which the variables aren't inputs yet, and whose graph is taken if it has them.

    Raises:
        CaseFailedError: what the forward raised, with the user's own frames.
    """
    trace = partial(_trace_once, subject, seed=seed)
    if plain is None or plain.held.inlined or None in handles(plain.function, subject.variables):
        function, graph_inputs, graph_outputs, backprop_starts = _trace_reading_outside(trace)
    else:
        function, graph_inputs = plain.function, plain.inputs
        graph_outputs, backprop_starts = plain.outputs, plain.backprop_starts
    inputs = subject.moving_tensors(function, graph_inputs)
    has_draws, has_stops = frozen.look_inside(inputs, backprop_starts)
    body_holds = None
    if has_draws or (stops and has_stops):
        body_holds = BodyHolds(with_stops=stops)
        function, graph_inputs, graph_outputs, backprop_starts = trace(body_holds.trace_with_holds())
        inputs = subject.moving_tensors(function, graph_inputs)
    held = frozen.find_held(function, inputs, backprop_starts, body_holds, has_inside=has_draws or has_stops)
    on_path = graph_path.ops_between(inputs, graph_outputs)
    samplers = graph_path.types_of(on_path) & IMPLICIT_SAMPLERS
    return ForwardTrace(
        function=function,
        dtypes=tuple(output.dtype for output in graph_outputs),
        random_types=tuple(sorted({*graph_path.stateful_types(graph_outputs, held.draws), *samplers})),
        low_precision=tuple(graph_path.dtypes_of(on_path)),
        quantisers=tuple(graph_path.quantisers(on_path)),
        inputs=tuple(graph_inputs),
        outputs=tuple(graph_outputs),
        moving=tuple(inputs),
        backprop_starts=tuple(backprop_starts),
        held=held,
        has_effects=bool(find_written(function)),
        handles=tuple(handles(function, subject.variables)),
        trainable=tuple(private_state.in_order_of_creation(function.graph.variables)),
        gradient_variables=tuple(graph_path.gradient_variables(function.graph, inputs, graph_outputs)),
    )


def _trace_reading_outside(trace: Callable[[], Traced]) -> Traced:
    """Trace with variables read outside of the bodies of loops and branches, unless they are written to."""
    with private_state.order_of_variables(lambda _: None):  # so that a custom gradient's are in one order
        with private_state.read_outside_bodies() as read:
            traced = trace()
        written = {id(resource.handle) for resource in find_written(traced[0])}
        return traced if written.isdisjoint(map(id, read)) else trace()


def handles(function: Any, variables: Sequence[Any]) -> list[Any]:
    """Return a graph's own tensors for variables; `None` for one that it doesn't use."""
    captured = private_state.captured_handles(function)
    return [captured.get(id(variable.handle)) for variable in variables]


def _trace_once(
    subject: TraceSubject,
    context: contextlib.AbstractContextManager[None] | None = None,
    *,
    seed: int,
) -> Traced:
    """Trace the forward, in a context if one is given."""
    bound = subject.bound
    graph_tensors: list[list[Any]] = []

    def forward(*tensors: Any) -> list[Any]:
        tf.compat.v1.set_random_seed(seed)  # of this graph alone
        order = private_state.Order(tf.compat.v1.get_default_graph())
        with context or contextlib.nullcontext():
            outputs = [tf.identity(output) for output in bound.call(*tensors)]
        order.add()
        backprop_starts = outputs if bound.backprop_starts is None else list(bound.backprop_starts())
        graph_tensors[:] = [list(tensors), outputs, backprop_starts]
        return list(outputs)

    function = trace_function(
        private_graphs.show_xla(forward) if subject.compiled else forward, subject.signature
    )
    require_no_leak(function, function.graph.get_operations())
    return function, graph_tensors[0], graph_tensors[1], graph_tensors[2]


_BOOKKEEPING = frozenset({"Placeholder", "Identity", "IdentityN", "Const", "NoOp", "ReadVariableOp"})


@dataclass
class GradientGraph:
    """One trace of a forward followed by a gradient."""

    subject: TraceSubject
    traced: ForwardTrace  # the forward alone, traced earlier; the draws that it holds are fed here, too
    inlined: bool = False  # inline functions, so that their ops are in the graph one by one
    function: Any = None  # the traced function, once `trace` has made it
    inputs: tuple[Any, ...] = ()  # the graph's own tensors of the arguments
    outputs: list[Any] = field(default_factory=list)  # the graph's own tensors of the outputs
    forward_ops: list[Any] = field(default_factory=list)  # the ops that existed before the first gradient
    order: Any = None  # the order in which the graph's ops run
    missed: list[str] = field(default_factory=list)  # the ops that an override was meant for but didn't reach
    moving: list[Any] = field(default_factory=list)  # the tensors of the inputs that are differentiated by
    draws: list[Any] = field(default_factory=list)  # the tensors of random draws to feed
    _body_holds: BodyHolds | None = None

    def __post_init__(self) -> None:
        """Hold draws in bodies if the forward's trace does."""
        if self.traced.held.inlined:
            self._body_holds = BodyHolds(with_stops=False)

    def trace(self, build: Callable[..., Any], signature: Sequence[Any]) -> None:
        """Trace a function that calls `call_forward` and adds a gradient.

        Raises:
            CaseFailedError: what it raised, or an override that no op on the path carries.
            GradientFormError: a gradient of wrong shape, found while the graph is built.
        """
        self.function = trace_function(build, signature)
        require_no_leak(self.function, self.forward_ops)
        self.moving = self.subject.moving_tensors(self.function, self.inputs)
        override = self.subject.bound.override
        if override is not None:
            self.missed = _require_override(self.moving, self.outputs, override)
        if self.traced.held.draws:
            self.draws = frozen.draws_among(self.forward_ops, self.moving, self.function.inputs)

    def call_forward(self, inputs: Sequence[Any]) -> list[Any]:
        """Call the forward in the graph that is being traced, and return its outputs."""
        graph = tf.compat.v1.get_default_graph()
        self.order = private_state.Order(graph)
        self.inputs = tuple(inputs)
        with self._context():
            self.outputs = self.subject.bound.call(*inputs)
        self.forward_ops = graph.get_operations()  # the gradient's own ops come after
        self.order.add()
        return self.outputs

    def _context(self) -> contextlib.AbstractContextManager[None]:
        if self._body_holds is not None:
            return self._body_holds.trace_with_holds()
        return private_graphs.inline_functions() if self.inlined else contextlib.nullcontext()

    def find_held(self, stops: Sequence[Any] = ()) -> frozen.Held:
        """Return what the trace holds; a `stop_gradient` needn't be held where the inputs don't move."""
        body_holds = self._body_holds if self._body_holds is not None and self._body_holds.ops else None
        return frozen.Held(stops=tuple(stops), draws=tuple(self.draws), body_holds=body_holds)


def _require_override(inputs: Sequence[Any], outputs: Sequence[Any], override: Override) -> list[str]:
    """Require that an op between inputs and outputs carries the override.

    `gradient_override_map` never enters a tf.function's body. Where the op type is another one, it has no
    effect and gives no message. TensorFlow's own gradient would then be checked instead of the user's.

    Raises:
        CaseFailedError: of kind "override_missed", naming the op types found and the tf.function in the way.
    """
    on_path = graph_path.ops_between(inputs, outputs)
    if any(private_graphs.override_of(op.node_def) == override.name for op in on_path):
        return _find_missed(inputs, outputs, override.op_types)
    types_on_path = sorted({op.type for op in on_path} - _BOOKKEEPING - CALLS)
    op_type = override.op_types[0]
    message = (
        f"the override of {op_type} took effect on no op between the inputs and the outputs; "
        f"op types found there: {', '.join(types_on_path) or 'none'}."
    )
    inside = []
    for op in on_path:
        if op.type in BODIES:
            types = {node.op for node in graph_path.inner_nodes(op)}
            if types & set(override.op_types):
                inside.append(
                    f"{op.name} ({op.type}, calls {', '.join(private_graphs.function_names(op.node_def))})"
                )
    if inside:
        message += (
            f" A {op_type} is inside a tf.function or a loop's or a branch's body, which no override enters: "
            f"{'; '.join(inside)}. Check the Python function without tf.function, or use binding: "
            "custom_gradient."
        )
    elif op_type in types_on_path:
        message += (
            f" The {op_type} is made by a tf.function, whose body no override enters: check the Python "
            "function without tf.function, or use binding: custom_gradient."
        )
    elif types_on_path:
        near = [
            name
            for name in types_on_path
            if op_type.lower() in name.lower() or name.lower() in op_type.lower()
        ]
        remedy = near[0] if near else "one of these"
        message += f" Set op_type to {remedy}."
    raise CaseFailedError("override_missed", message)


def _find_missed(inputs: Sequence[Any], outputs: Sequence[Any], op_types: Collection[str]) -> list[str]:
    """Return the ops of some types that backpropagation visits and that carry no override; also in bodies."""
    moving_ops = graph_path.ops_after(inputs)
    missed = []
    for op in graph_path.ops_met(outputs):
        if op not in moving_ops or not op.outputs:
            continue
        if op.type in op_types and not private_graphs.override_of(op.node_def):
            missed.append(op.name)
        inside: list[str] = []
        for name in private_graphs.function_names(op.node_def):
            body = private_graphs.graph_of_function(op.graph, name)
            if body is not None:
                inside += _find_missed(body.inputs, body.outputs, op_types)
        names = dict.fromkeys(name.partition(" inside of ")[0] for name in inside)
        missed += [f"{name} inside of {op.name} ({op.type})" for name in names]
    return missed


# An op (or what stands for it), the index of an input, and what is wrong with the form of its gradient.
Malformed = tuple[Any, int, str]
OtherCall = Literal["", "traced", "run"]


@dataclass(frozen=True)
class Pullback:
    """A part of a graph that pulls upstreams back."""

    function: Any  # takes the upstreams, the inputs and the draws, and returns the gradients that exist
    outputs: tuple[int, ...]  # the outputs whose upstreams it takes
    inputs: tuple[int, ...]  # the inputs whose gradients it returns

    def to(self, wanted: Collection[int] | None) -> Pullback | None:
        """Return the part that pulls back to some of the inputs, or to all; `None` where it is none of it."""
        if wanted is None:
            return self
        by_input = dict(zip(self.inputs, self.function.outputs, strict=True))
        kept = {index: tensor for index, tensor in by_input.items() if index in wanted}
        if not kept:
            return None
        part = subgraph_function(self.function, feeds_of(self.function), [*kept.values()])
        return Pullback(part, self.outputs, tuple(kept))


@dataclass(frozen=True)
class VjpGraph:
    """The complete graph of a forward and its vjp, of which the pullbacks are parts."""

    function: Any  # takes the upstreams, the inputs and the draws
    sources: tuple[int, ...]  # indices of the differentiable outputs
    upstreams: tuple[Any, ...]  # its own tensors, one for each of these
    results: tuple[Any, ...]  # the outputs, and every gradient
    gradients: tuple[tuple[Any, Any], ...]  # each with the input, or the variable's handle, that it is for
    forward_ops: frozenset[Any]  # the ops that existed before the first gradient


@dataclass(frozen=True)
class VjpTrace:
    """Forward and vjp in one graph.

    `dtype_faults[i]` says what is wrong with the dtype of input i's gradient. `sites` holds the hand-written
    gradients that ran, each with the index of the output and of the input. `gradients_seen` says how often
    each registered gradient function was called, over all outputs.
    """

    pullbacks: dict[int, Pullback]  # one for each output that has a gradient for some input
    # one for those outputs that share an op with another, whose gradient function then gets the upstreams of
    # both; `None` where there are none
    joint: Pullback | None
    dtype_faults: dict[int, str]
    draws_anew: bool  # whether a call draws what the forward hasn't drawn
    own_draws: list[str]  # types of the gradient's ops that draw from a tf.random.Generator
    held: frozen.Held  # the forward's draws; stop_gradients needn't be held where the inputs don't move
    gradients_seen: dict[str, int]
    sites: frozenset[tuple[GradientSite, int, int]]
    unrestored: tuple[Resource, ...]  # state that only the gradient writes: restored at the end of the case
    whole: VjpGraph
    inputs: tuple[Any, ...]  # its graph's own tensors
    outputs: tuple[Any, ...]
    missed: tuple[str, ...]  # ops that an override was meant for but didn't reach
    malformed: tuple[Malformed, ...]
    # per output, the ops that backpropagation visits, if functions are inlined
    visits: Mapping[int, Sequence[Visit]]

    def computes_as(self, other: VjpTrace) -> bool:
        """Whether the graph of another trace computes the same, op by op."""
        pulls_alike = all(self.connected(output) == other.connected(output) for output in self.whole.sources)
        return pulls_alike and graph_path.compute_alike(self.whole.results, other.whole.results)

    def has_forward(self, traced: ForwardTrace) -> bool:
        """Whether its forward is the one that was traced alone, op by op."""
        # Each trace returns its outputs through identities of its own.
        own = ([output.op.inputs[0] for output in outputs] for outputs in (self.outputs, traced.outputs))
        return graph_path.compute_alike(*own)

    def connected(self, output: int) -> tuple[int, ...]:
        """Return the indices of the inputs that an output has a gradient for."""
        return self.pullbacks[output].inputs if output in self.pullbacks else ()

    @cached_property
    def forward(self) -> Any:
        """The forward's part of this graph: it takes the inputs and the draws, and returns the outputs."""
        return subgraph_function(self.whole.function, [*self.inputs, *self.held.draws], self.outputs)


def trace_vjp(
    subject: TraceSubject,
    output_shapes: Sequence[tuple[int | None, ...]],
    traced: ForwardTrace,
    opening: Opening,
    *,
    other_call: OtherCall = "",
) -> VjpTrace:
    """Trace forward and vjp; each differentiable output has an upstream of its own.

    Args:
        traced: the forward alone: its held draws are fed here, too.
        opening: says whether custom gradients get their variables in reverse order, functions inlined; and
            whether upstreams are pulled back by `tf.vectorized_map`.
        other_call: whether the forward is called at other values before the backward pass. A gradient that
            takes what the last call kept, on `self` or in a variable, isn't the first call's then. The other
            call is only traced, or what it writes and the Python that it calls run before the gradient. The
            vjp of all outputs at once is left out.

    Raises:
        CaseFailedError: what the gradient raised, or an override that no op on the path carries.
        GradientFormError: a gradient of wrong shape, found while the graph is built.
    """
    sources = [
        output_index for output_index, dtype in enumerate(traced.dtypes) if dtypes.is_differentiable(dtype)
    ]
    upstreams = [
        tf.TensorSpec(output_shapes[output_index], traced.dtypes[output_index], f"upstream_{output_index}")
        for output_index in sources
    ]
    graph = GradientGraph(subject, traced, inlined=subject.inlined or opening.reversed)
    passes = _BackwardPasses(graph, sources, other_call, opening.vectorised)
    with private_state.order_of_variables(lambda _: None, reverse=opening.reversed):
        build = private_graphs.show_xla(passes.build) if subject.compiled else passes.build
        passes.graph.trace(build, [*upstreams, *subject.signature])
    return passes.finish()


@dataclass
class _BackwardPasses:
    """The backward passes of one graph: its tensors while it is traced, and the results."""

    graph: GradientGraph  # the forward's part of the graph
    sources: list[int]  # indices of the outputs that have an upstream
    # how the forward is called at other values before the first backward pass; see `trace_vjp`
    other_call: OtherCall = ""
    vectorised: bool = False  # whether upstreams are pulled back by `tf.vectorized_map`
    upstreams: tuple[Any, ...] = ()  # the placeholders of the upstreams
    # per output, the gradient for each differentiable input, or `None`
    gradients: dict[int, list[Any]] = field(default_factory=dict)
    joint: list[Any] = field(default_factory=list)  # the same for outputs that share an op, at once
    joint_sources: list[int] = field(default_factory=list)  # indices of the outputs of that
    # the outputs, from the graph that also computes the gradients
    values: list[Any] = field(default_factory=list)
    # ops whose gradient has a wrong form, each with the index of the input that it is for, and a message
    malformed: list[Malformed] = field(default_factory=list)
    # per output, the ops that backpropagation visits, if functions are inlined
    visits: dict[int, list[Visit]] = field(default_factory=dict)
    # how often each registered gradient function was called
    seen: Counter[str] = field(default_factory=Counter)
    # per output, the hand-written gradients that ran, with their ops
    ran: dict[int, list[tuple[GradientSite, Any]]] = field(default_factory=dict)

    def build(self, *tensors: Any) -> list[Any]:
        """Build the graph from its upstreams and inputs, and return tensors that keep all of it alive."""
        subject, sources = self.graph.subject, self.sources
        self.upstreams, inputs = tensors[: len(sources)], tensors[len(sources) :]
        outputs = self.graph.call_forward(inputs)
        if self.other_call:
            self._call_elsewhere(inputs)
        all_inputs = [*inputs, *subject.variables]
        chosen_inputs = [all_inputs[input_index] for input_index in subject.differentiable]
        for output_index, upstream in zip(sources, self.upstreams, strict=True):
            with (
                private_gradients.backward_log(subject.inlined) as self.visits[output_index],
                private_gradients.note_runs() as (looked_up, self.ran[output_index]),
                private_gradients.count_gradients(self.seen, looked_up),
            ):
                self.gradients[output_index] = self._pull([outputs[output_index]], chosen_inputs, [upstream])
        self.values = [tf.identity(output) for output in outputs]
        if len(sources) > 1 and not self.other_call:
            self._pull_joint(outputs, chosen_inputs)
        if len(sources) == 1:  # everything is needed: pruning would only copy the graph
            present = [gradient for gradient in self.gradients[sources[0]] if gradient is not None]
            if present:
                return present
        return list(self.values)

    def _pull_joint(self, outputs: Sequence[Any], chosen_inputs: Sequence[Any]) -> None:
        starts = [] if self.graph.subject.variables else chosen_inputs  # where variables are read isn't known
        numbers: Sequence[int] = range(len(self.sources))
        if starts:
            numbers = graph_path.sharing(starts, [outputs[output_index] for output_index in self.sources])
        if numbers:
            self.joint_sources = [self.sources[number] for number in numbers]
            chosen_outputs = [outputs[output_index] for output_index in self.joint_sources]
            flows = [self.upstreams[number] for number in numbers]
            self.joint = self._pull(chosen_outputs, chosen_inputs, flows)

    def _call_elsewhere(self, inputs: Sequence[Any]) -> None:
        """Call the forward at other values. Nothing is asked of that call but what it leaves behind."""
        with contextlib.suppress(Exception), tf.name_scope("elsewhere"):
            self.graph.subject.bound.call(*map(dtypes.moved, inputs))
        if self.other_call == "run":
            self.graph.order.add()  # what the gradient reads, and the Python that it calls, come after

    def _pull(self, outputs: list[Any], chosen_inputs: Sequence[Any], flows: list[Any]) -> list[Any]:
        """Build one backward pass, parallel to those that were built since the forward.

        Malformed gradients are replaced by zeros; each is noted with the input of its op and a message.
        """
        branch = self.graph.order.branch()

        def note(*fault: Any) -> None:
            self.malformed.append(fault)

        def note_shape(op: Any, input_index: int, gradient: Any) -> None:
            note(op, input_index, shape_fault(op, input_index, gradient, chosen_inputs))

        def pull(flows: list[Any]) -> list[Any]:
            return gradients_of(outputs, chosen_inputs, flows, note_shape=note_shape)

        with note_form_faults(note):
            gradients = _between_others(pull, flows) if self.vectorised else pull(flows)
        with tf.control_dependencies(branch.add()):  # what a gradient writes affects the next call
            return [None if gradient is None else tf.identity(gradient) for gradient in gradients]

    def finish(self) -> VjpTrace:
        """Split the graph into functions, one for each output, and return what it shows."""
        graph, whole = self.graph, self.graph.function
        by_input = {
            output_index: self._by_input(gradients) for output_index, gradients in self.gradients.items()
        }
        written = find_written(whole)
        is_whole = len(self.sources) == 1 and not (graph.draws or written or self.other_call)
        upstreams = dict(zip(self.sources, self.upstreams, strict=True))

        def extract(outputs: Sequence[int], gradients: Mapping[int, Any]) -> Pullback:
            feeds = [*(upstreams[output_index] for output_index in outputs), *graph.inputs, *graph.draws]
            function = whole if is_whole else subgraph_function(whole, feeds, list(gradients.values()))
            return Pullback(function, tuple(outputs), tuple(gradients))

        pullbacks = {
            output_index: extract([output_index], gradients)
            for output_index, gradients in by_input.items()
            if gradients
        }
        joint = self._by_input(self.joint) if self.joint else {}
        starts = [*graph.inputs, *handles(whole, graph.subject.variables)]
        of_inputs = [
            (starts[input_index], gradient)
            for gradients in by_input.values()
            for input_index, gradient in gradients.items()
        ]
        everything = [gradient for _, gradient in of_inputs]
        sites = _find_sites(
            self.ran, private_gradients.sites_inside(whole.graph), by_input, dict(enumerate(graph.inputs))
        )
        return VjpTrace(
            pullbacks=pullbacks,
            joint=extract(self.joint_sources, joint) if joint else None,
            dtype_faults=self._form_faults(by_input),
            draws_anew=any(map(is_random, graph_path.stateful_types(everything, graph.draws))),
            own_draws=graph_path.generator_draws(everything, graph.forward_ops),
            held=graph.find_held(),
            gradients_seen=dict(self.seen),
            sites=frozenset(sites),
            unrestored=tuple(
                resource
                for resource in written
                if id(resource.handle) not in captured_ids(graph.traced.function)
            ),
            whole=VjpGraph(
                whole,
                tuple(self.sources),
                tuple(self.upstreams),
                results=(*self.values, *everything),
                gradients=tuple(of_inputs),
                forward_ops=frozenset(graph.forward_ops),
            ),
            inputs=graph.inputs,
            outputs=tuple(self.values),
            missed=tuple(graph.missed),
            malformed=tuple(self.malformed),
            visits=self.visits,
        )

    def _by_input(self, gradients: Sequence[Any]) -> dict[int, Any]:
        """Return the existing gradients, by index of the input."""
        numbered = zip(self.graph.subject.differentiable, gradients, strict=True)
        return {input_index: gradient for input_index, gradient in numbered if gradient is not None}

    def _form_faults(self, by_input: Mapping[int, Mapping[int, Any]]) -> dict[int, str]:
        """Return, by input, what is wrong with the form of its gradient."""
        subject, inputs = self.graph.subject, self.graph.inputs
        starts = [*inputs, *handles(self.graph.function, subject.variables)]
        faults = _faults_on_paths(self.malformed, subject.differentiable, starts, self.graph.function)
        all_inputs = [*inputs, *subject.variables]
        for gradients in by_input.values():
            for input_index, gradient in gradients.items():
                actual, expected = gradient.dtype, all_inputs[input_index].dtype
                if actual != expected:
                    faults[input_index] = (
                        f"the gradient must be {expected.name}, as its input is, but is {actual.name}."
                    )
        return faults


_NO_FORM = re.compile(r'No pfor vectorization defined for (\w+)\s+name: "([^"]+)"')


def _between_others(pull: Callable[[list[Any]], list[Any]], flows: list[Any]) -> list[Any]:
    """Pull upstreams back between two others, whose gradients mustn't show in theirs.

    The forward isn't vectorised, as it isn't by `tape.jacobian`. Where that falls back to a loop, this fails.

    Raises:
        CaseFailedError: an op of the gradient has no vectorised form.
    """
    exists: list[bool] = []

    def pull_row(row: list[Any]) -> list[Any]:
        gradients = pull(row)
        exists[:] = [gradient is not None for gradient in gradients]
        return [row[0] if gradient is None else gradient for gradient in gradients]

    try:
        rows = [tf.stack([-2 * flow, flow, -2 * flow]) for flow in flows]
        gradients = tf.vectorized_map(pull_row, rows, fallback_to_while_loop=False)
    except ValueError as error:
        missing = _NO_FORM.search(str(error))
        if missing is None:
            message = f"tf.vectorized_map can't vectorise the gradient: {frames.first_line(error)}"
            raise CaseFailedError("gradient", message) from error
        op_type, name = missing.groups()
        made = [op for op in flows[0].graph.get_operations() if op.name == name]
        place = "".join(f", {frames.place_in_users_code(op) or 'in no line of yours'}" for op in made)
        raise CaseFailedError(
            "gradient",
            f"tf.vectorized_map can't vectorise the gradient's {op_type} ({name}{place}): it and "
            "tape.jacobian run that op in a loop, once for each upstream. Compute it with other ops of "
            "TensorFlow's; or leave the check 'batched' out.",
        ) from error
    return [gradient[1] if is_there else None for gradient, is_there in zip(gradients, exists, strict=True)]


def _find_sites(
    ran: Mapping[int, Sequence[tuple[GradientSite, Any]]],
    inside: Sequence[GradientSite],
    connected: Mapping[int, Mapping[int, Any]],
    starts: Mapping[int, Any],
) -> Iterator[tuple[GradientSite, int, int]]:
    """Yield each hand-written gradient that ran, with the indices of an output and of an input.

    An input counts if a path leads from it to the op that has the gradient. If no path can be seen (the op is
    in a body, or behind another override of a flat op), each input with a gradient counts.

    Args:
        ran: per output, the gradients that ran, with their ops.
        connected: per output, the inputs that it has a gradient for, with the gradients.
        starts: the graph's tensors that hold the inputs; those of variables aren't known.
    """
    for output, runs in ran.items():
        for site, op in dict.fromkeys([*runs, *((site, None) for site in inside)]):
            op_inputs = () if op is None else op.inputs
            reached = [
                input_index
                for input_index in connected[output]
                if input_index not in starts
                or any(
                    graph_path.leads_to(starts[input_index], tensor, (), stops=True) for tensor in op_inputs
                )
            ]
            for input_index in reached or connected[output]:
                yield site, output, input_index


def _faults_on_paths(
    malformed: Sequence[Malformed], differentiable: Sequence[int], starts: Sequence[Any], function: Any
) -> dict[int, str]:
    """Return, by input, what is wrong with the form of a gradient on its path.

    Raises:
        GradientFormError: one belongs to a trainable variable that is no input, or to an op in a body, whose
            path can't be followed. Its zeros would stand for it.
    """
    faults: dict[int, str] = {}
    others = [
        (variable.name.partition(":")[0], handle)
        for variable in private_state.in_order_of_creation(function.graph.variables)
        if (handle := private_state.captured_handles(function).get(id(variable.handle))) is not None
    ]
    for op, index, message in malformed:
        tensor = op.inputs[index]
        is_input = [
            starts[input_index] is not None and _moves(starts[input_index], tensor)
            for input_index in differentiable
        ]
        for input_index, moves in zip(differentiable, is_input, strict=True):
            if moves:
                faults.setdefault(input_index, message)
        if any(is_input):
            continue
        if tensor.graph is not function.graph and tensor.op.type != "Const":
            raise GradientFormError((), message)
        names = [name for name, handle in others if _moves(handle, tensor)]
        if names:
            raise GradientFormError((), f"of the variable {' or '.join(names)}, {message}")
    return faults


def _moves(start: Any, tensor: Any) -> bool:
    """Whether a tensor, or what is read from a variable's handle, moves another tensor."""
    return any(graph_path.leads_to(value, tensor, ()) for value in graph_path.values_from(start))
