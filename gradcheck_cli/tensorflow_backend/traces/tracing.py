"""Trace a bound function twice: forward alone for the differences, forward and vjp for the gradient.

Building a gradient changes the forward (a while loop gains accumulators), and a forward pruned from
that graph then fails under vectorized_map: hence two graphs.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.binding import user_gradient
from gradcheck_cli.tensorflow_backend.binding.override_reach import require_override
from gradcheck_cli.tensorflow_backend.paths import graph_path, low_precision
from gradcheck_cli.tensorflow_backend.private import (
    private_gradients,
    private_graphs,
    private_sites,
    private_variables,
)
from gradcheck_cli.tensorflow_backend.private.private_parts import subgraph_function
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.gradients import dense, gradients_of, shape_fault
from gradcheck_cli.tensorflow_backend.traces.stand_ins import StandIns
from gradcheck_cli.tensorflow_backend.traces.state import Order, captured, written
from gradcheck_cli.tensorflow_backend.traces.trace_faults import require_no_leak, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.binding.binder import Bound
    from gradcheck_cli.tensorflow_backend.private.private_sites import Site
    from gradcheck_cli.tensorflow_backend.traces.state import Kept


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
    met: tuple[Any, ...]  # the tensors that backpropagation starts from; of a vjp, its forward's outputs
    held: frozen.Held
    has_effects: bool  # writes to variables or tables, as it isn't pruned
    handles: tuple[Any, ...]  # the graph's own tensors for the variables among the inputs; None: not used
    trainable: tuple[Any, ...]  # the variables that it reads, and that have gradients
    gradient_variables: tuple[Any, ...]  # those of them that a custom gradient has gradients for

    def reads(self) -> list[list[Any]] | None:
        """Return what is read of each variable among the inputs; `None` where more is done with one."""
        if self.has_effects:
            return None
        uses = [[] if handle is None else handle.consumers() for handle in self.handles]
        if any(op.type != "ReadVariableOp" for each in uses for op in each):
            return None
        return [[op.outputs[0] for op in each] for each in uses]

    def pruned(self, feeds: Sequence[Any] = (), fetches: Sequence[Any] = ()) -> Any:
        """Return the forward as a function of the inputs and of tensors to feed, with more tensors to fetch.

        Pruning drops writes that nothing reads: Keras' Dropout draws by a seed that it writes back.
        """
        if not (feeds or fetches or self.has_effects):
            return self.function
        return subgraph_function(self.function, [*self.inputs, *feeds], [*self.outputs, *fetches])


@dataclass(frozen=True)
class VjpTrace:
    """Forward and vjp in one graph: one pruned function per differentiable output.

    `functions[j]` takes the upstream of output j, the inputs and the draws, and returns the gradients that
    exist; `connected[j]` holds the numbers of the inputs these belong to; `joint`, `joint_connected` the same
    for all outputs at once. `dtype_faults[i]` says what is wrong with the dtype of input i's gradient.
    `sites` has the hand-written gradients that ran, each with the output's and the input's number.
    `gradients_seen` has how often each registered gradient function was called, all outputs taken together.
    """

    functions: dict[int, Any]
    connected: dict[int, tuple[int, ...]]
    joint: Any  # takes every upstream, the inputs and the draws; `None` for one output, or if not wanted
    joint_connected: tuple[int, ...]
    joint_outputs: tuple[int, ...]
    dtype_faults: dict[int, str]
    random_types: tuple[str, ...]
    held: frozen.Held  # the forward's draws; a stop_gradient needs no holding where the inputs don't move
    gradients_seen: dict[str, int]
    sites: frozenset[tuple[Site, int, int]]
    left: tuple[Kept, ...]  # what the gradient alone writes to: it isn't put back after each call
    whole: Any  # all of it, of which the functions are parts
    inputs: tuple[Any, ...]  # its graph's own tensors
    outputs: tuple[Any, ...]
    missed: tuple[str, ...]  # ops that an override was meant for, and didn't reach
    upstreams: tuple[Any, ...]  # its graph's own tensors, one for each differentiable output
    results: tuple[Any, ...]  # the outputs, and every gradient
    forward_ops: frozenset[Any]  # the ops that were there before the first gradient


def trace_forward(  # noqa: PLR0913 (what is traced, and what is known of it)
    bound: Bound,
    signature: Sequence[Any],
    differentiable: Sequence[int],
    *,
    stops: bool = True,
    seed: int = 0,
    variables: Sequence[Any] = (),
    compiled: bool = False,
) -> ForwardTrace:
    """Trace the forward; once more, with functions inlined, where something to be frozen is inside one.

    Args:
        bound: the forward.
        signature: the inputs.
        differentiable: numbers of the inputs to differentiate by.
        stops: open bodies for their `stop_gradient`s, too, so that these can be held.
        seed: of the graph, so that its random ops draw the same in every run of the command.
        variables: those that are inputs, numbered after the others.
        compiled: trace what XLA is to compile.

    Raises:
        CaseFailedError: what the forward raised, with the user's own frames.
    """
    trace = partial(_trace_once, bound, signature, seed=seed, compiled=compiled)
    with private_variables.order_of_variables(lambda _: None):
        function, graph_inputs, graph_outputs, met = trace(contextlib.nullcontext())
    inputs = moving(function, graph_inputs, differentiable, variables)
    inside, stand_ins = frozen.look_inside(function.graph, inputs, met), None
    if inside.must_be_opened(stops=stops):
        stand_ins = StandIns(frozen.is_random, with_stops=stops)
        function, graph_inputs, graph_outputs, met = trace(stand_ins.tracing())
        inputs = moving(function, graph_inputs, differentiable, variables)
    held = frozen.find(function, inputs, met, stand_ins, inside)
    return ForwardTrace(
        function=function,
        dtypes=tuple(output.dtype for output in graph_outputs),
        random_types=tuple(
            dict.fromkeys(
                [
                    *graph_path.stateful_types(function.graph, graph_outputs, held.draws),
                    *graph_path.implicit_samplers(function.graph, inputs, graph_outputs),
                ]
            )
        ),
        low_precision=tuple(low_precision.dtypes_on_path(function.graph, inputs, graph_outputs)),
        quantisers=tuple(graph_path.quantisers(function.graph, inputs, graph_outputs)),
        inputs=tuple(graph_inputs),
        outputs=tuple(graph_outputs),
        met=tuple(met),
        held=held,
        has_effects=bool(written(function)),
        handles=tuple(_handles(function, variables)),
        trainable=tuple(private_variables.trainable_of(function)),
        gradient_variables=tuple(graph_path.gradient_variables(function.graph, graph_outputs)),
    )


def _handles(function: Any, variables: Sequence[Any]) -> list[Any]:
    captured = private_variables.captured_handles(function)
    return [captured.get(id(variable.handle)) for variable in variables]


def moving(
    function: Any, arguments: Sequence[Any], differentiable: Sequence[int], variables: Sequence[Any]
) -> list[Any]:
    """Return the graph's tensors of the differentiable inputs; for a variable that of its handle."""
    tensors = [*arguments, *_handles(function, variables)]
    return [tensors[number] for number in differentiable if tensors[number] is not None]


def _trace_once(
    bound: Bound,
    signature: Sequence[Any],
    context: contextlib.AbstractContextManager[None],
    *,
    seed: int | None,
    compiled: bool,
) -> tuple[Any, list[Any], list[Any], list[Any]]:
    kept: list[list[Any]] = []

    def forward(*tensors: Any) -> list[Any]:
        tf.compat.v1.set_random_seed(seed)  # of this graph alone
        order = Order(tf.compat.v1.get_default_graph())
        with context:
            outputs = [tf.identity(output) for output in bound.call(*tensors)]
        order.add()
        kept[:] = [list(tensors), outputs, outputs if bound.met is None else list(bound.met())]
        return list(outputs)

    function = wrapped(private_graphs.shown_xla(forward) if compiled else forward, signature)
    require_no_leak(function, "forward")
    return function, kept[0], kept[1], kept[2]


def _pulled(
    outputs: list[Any],
    wanted: Sequence[Any],
    flows: list[Any],
    order: Order,
    malformed: list[tuple[Any, str]],
) -> list[Any]:
    """Build one backward pass, beside those that were built since the forward.

    Zeros take the place of malformed gradients; each is noted with the input of its op, and words.
    """
    own = order.branch()

    def note(tensor: Any, message: str) -> None:
        malformed.append((tensor, message))

    def note_shape(op: Any, number: int, gradient: Any) -> None:
        note(op.inputs[number], shape_fault(op, number, gradient, wanted))

    with private_gradients.shape_faults_noted(note_shape), user_gradient.form_faults_noted(note):
        found = gradients_of(outputs, wanted, flows)
    gradients = [dense(gradient, tensor) for gradient, tensor in zip(found, wanted, strict=True)]
    with tf.control_dependencies(own.add()):  # what a gradient writes counts for the next call
        return [None if gradient is None else tf.identity(gradient) for gradient in gradients]


def trace_vjp(  # noqa: PLR0913, PLR0915, PLR0917 (what is traced, and what is known of it, step by step)
    bound: Bound,
    signature: Sequence[Any],
    differentiable: Sequence[int],
    output_shapes: Sequence[tuple[int | None, ...]],
    traced: ForwardTrace,
    variables: Sequence[Any] = (),
    *,
    reverse: bool = False,
    with_joint: bool = True,
    compiled: bool = False,
) -> VjpTrace:
    """Trace forward and vjp; each differentiable output has an upstream of its own.

    Args:
        bound: forward and gradient.
        signature: the inputs.
        differentiable: numbers of the inputs to differentiate by.
        output_shapes: the outputs' shapes, as far as the trace is to know them.
        traced: the forward alone: the draws that it holds are to be fed here, too.
        variables: those that are inputs, numbered after the others.
        reverse: give custom gradients their variables in reverse order, functions inlined.
        with_joint: trace the vjp of all outputs at once, too.
        compiled: trace what XLA is to compile.

    Raises:
        CaseFailedError: what the gradient raised, or an override that no op on the path carries.
        GradientFormError: a gradient of wrong shape, found as the graph is built.
    """
    sources = [number for number, dtype in enumerate(traced.dtypes) if dtypes.is_differentiable(dtype)]
    upstream_specs = [tf.TensorSpec(output_shapes[number], traced.dtypes[number]) for number in sources]
    kept, malformed = dict[str, Any](), list[tuple[Any, str]]()
    seen: Counter[str] = Counter()
    ran: dict[int, list[tuple[Site, Any]]] = {}
    counted = private_gradients.gradients_counted
    stand_ins = StandIns(frozen.is_random, with_stops=False) if traced.held.opened else None

    def forward_and_vjp(*tensors: Any) -> Any:
        upstreams, inputs = tensors[: len(sources)], tensors[len(sources) :]
        inlined = private_graphs.functions_inlined() if reverse else contextlib.nullcontext()
        order = Order(tf.compat.v1.get_default_graph())
        with stand_ins.tracing() if stand_ins else inlined:
            outputs = bound.call(*inputs)
        kept["inputs"], kept["upstreams"], kept["outputs"] = inputs, upstreams, outputs
        kept["forward"] = (
            tf.compat.v1.get_default_graph().get_operations()
        )  # the gradient's own ops come after
        order.add()
        every = [*inputs, *variables]
        wanted = [every[number] for number in differentiable]
        kept["gradients"] = {}
        for number, upstream in zip(sources, upstreams, strict=True):
            with private_sites.runs_noted() as (looked_up, ran[number]), counted(seen, looked_up):
                kept["gradients"][number] = _pulled([outputs[number]], wanted, [upstream], order, malformed)
        if len(sources) > 1 and with_joint:
            together = [outputs[number] for number in sources]
            kept["joint"] = _pulled(together, wanted, list(upstreams), order, malformed)
        kept["values"] = [tf.identity(output) for output in outputs]
        if len(sources) == 1:  # what is wanted is all there is: nothing to prune, which copies the graph
            own = [gradient for gradient in kept["gradients"][sources[0]] if gradient is not None]
            if own:
                return own
        return list(kept["values"])

    with private_variables.order_of_variables(lambda _: None, reverse=reverse):
        build = private_graphs.shown_xla(forward_and_vjp) if compiled else forward_and_vjp
        whole = wrapped(build, [*upstream_specs, *signature])
    require_no_leak(whole, "gradient")
    inputs = moving(whole, kept["inputs"], differentiable, variables)
    every = [*kept["inputs"], *variables]
    missed = require_override(whole.graph, inputs, kept["outputs"], bound.override) if bound.override else []
    draws = frozen.draws_among(kept["forward"], inputs, whole.inputs) if traced.held.draws else []
    state = written(whole)
    is_whole = len(sources) == 1 and not draws and not state
    functions: dict[int, Any] = {}
    connected: dict[int, tuple[int, ...]] = {}
    faults = _faulty_inputs(malformed, differentiable, [*kept["inputs"], *_handles(whole, variables)])
    for number, upstream in zip(sources, kept["upstreams"], strict=True):
        gradients = dict(zip(differentiable, kept["gradients"][number], strict=True))
        for which, gradient in gradients.items():
            expected = every[which].dtype
            if gradient is not None and gradient.dtype != expected:
                faults[which] = (
                    f"the gradient must be {expected.name}, as its input is, but is {gradient.dtype.name}."
                )
        connected[number] = tuple(which for which, gradient in gradients.items() if gradient is not None)
        if connected[number]:
            functions[number] = (
                whole
                if is_whole
                else subgraph_function(
                    whole,
                    [upstream, *kept["inputs"], *draws],
                    [gradients[which] for which in connected[number]],
                )
            )
    everything = [gradient for row in kept["gradients"].values() for gradient in row if gradient is not None]
    joint = {
        which: gradient
        for which, gradient in zip(
            differentiable, kept.get("joint", [None] * len(differentiable)), strict=True
        )
        if gradient is not None
    }
    feeds = [*kept["upstreams"], *kept["inputs"], *draws]
    return VjpTrace(
        functions,
        connected,
        subgraph_function(whole, feeds, list(joint.values())) if joint else None,
        tuple(joint),
        tuple(sources),
        faults,
        tuple(graph_path.stateful_types(whole.graph, everything, draws)),
        frozen.Held(draws=tuple(draws), stand_ins=stand_ins if stand_ins and stand_ins.sites else None),
        dict(seen),
        frozenset(
            _sites(ran, private_sites.sites_inside(whole.graph), connected, dict(enumerate(kept["inputs"])))
        ),
        tuple(one for one in state if id(one.handle) not in captured(traced.function)),
        whole,
        tuple(kept["inputs"]),
        tuple(kept["values"]),
        tuple(missed),
        tuple(kept["upstreams"]),
        (*kept["values"], *everything),
        frozenset(kept["forward"]),
    )


def _sites(
    ran: Mapping[int, Sequence[tuple[Site, Any]]],
    inside: Sequence[Site],
    connected: Mapping[int, tuple[int, ...]],
    starts: Mapping[int, Any],
) -> Iterator[tuple[Site, int, int]]:
    """Yield each hand-written gradient that ran, with the numbers of an output and of an input.

    An input counts where a path leads from it to the op that has the gradient. Where none can be seen (the op
    is in a body, or behind another override of a flat op), each input counts that has a gradient at all.

    Args:
        ran: per output, the gradients that ran, with their ops.
        inside: gradients in functions that were differentiated before.
        connected: per output, the inputs that it has a gradient for.
        starts: the graph's tensors that hold the inputs; those of variables aren't known.
    """
    for output, runs in ran.items():
        for site, op in dict.fromkeys([*runs, *((site, None) for site in inside)]):
            given = () if op is None else op.inputs
            led = [
                number
                for number in connected[output]
                if number not in starts
                or any(graph_path.leads_to(starts[number], tensor, (), stops=True) for tensor in given)
            ]
            for number in led or connected[output]:
                yield site, output, number


def _faulty_inputs(
    malformed: Sequence[tuple[Any, str]], differentiable: Sequence[int], starts: Sequence[Any]
) -> dict[int, str]:
    """Return per input what is wrong with the form of a gradient on its way to it."""
    faults: dict[int, str] = {}
    for tensor, message in malformed:
        for number in differentiable:
            if starts[number] is not None and graph_path.leads_to(starts[number], tensor, ()):
                faults.setdefault(number, message)
    return faults
