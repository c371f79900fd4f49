"""Trace a bound function twice: forward alone for the differences, forward and vjp for the gradient.

Building a gradient changes the forward (a while loop gains accumulators), and a forward pruned from
that graph then fails under vectorized_map: hence two graphs.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import (
    dtypes,
    frozen,
    low_precision,
    path,
    private,
    private_gradients,
    private_variables,
)
from gradcheck_cli.tensorflow_backend.gradients import dense, gradients_of
from gradcheck_cli.tensorflow_backend.private_parts import subgraph_function
from gradcheck_cli.tensorflow_backend.stand_ins import StandIns
from gradcheck_cli.tensorflow_backend.trace_faults import require_no_leak, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.tensorflow_backend.binding import Bound


@dataclass(frozen=True)
class ForwardTrace:
    """The forward alone, in a graph of its own."""

    function: Any
    dtypes: tuple[Any, ...]  # of the outputs
    random_types: tuple[str, ...]  # stateful op types that draw anew at each call
    low_precision: tuple[str, ...]  # dtypes below float64 between differentiable inputs and outputs
    inputs: tuple[Any, ...]  # the graph's own tensors
    outputs: tuple[Any, ...]
    held: frozen.Held
    has_effects: bool  # writes to variables, as it isn't pruned
    handles: tuple[Any, ...]  # the graph's own tensors for the variables among the inputs; None: not used
    trainable: tuple[Any, ...]  # the variables that it reads, and that have gradients
    gradient_variables: tuple[Any, ...]  # those of them that a custom gradient has gradients for

    def pruned(self, feeds: Sequence[Any] = (), fetches: Sequence[Any] = ()) -> Any:
        """Return the forward as a function of the inputs and of tensors to feed, with more tensors to fetch.

        Pruning drops what writes to variables: Keras' Dropout draws by a seed that it writes back.
        """
        if not (feeds or fetches or self.has_effects):
            return self.function
        return subgraph_function(self.function, [*self.inputs, *feeds], [*self.outputs, *fetches])


@dataclass(frozen=True)
class VjpTrace:
    """Forward and vjp in one graph: one pruned function per differentiable output.

    `functions[j]` takes the inputs, the upstream of output j and the draws, and returns the gradients that
    exist; `connected[j]` holds the numbers of the inputs these belong to; `joint`, `joint_connected` the same
    for all outputs at once. `dtype_faults[i]` says what is wrong with the dtype of input i's gradient.
    `gradients_seen` has how often each registered gradient function was called, all outputs taken together.
    """

    functions: dict[int, Any]
    connected: dict[int, tuple[int, ...]]
    joint: Any  # takes the inputs, every upstream and the draws; `None` for one output, or if not wanted
    joint_connected: tuple[int, ...]
    joint_outputs: tuple[int, ...]
    dtype_faults: dict[int, str]
    random_types: tuple[str, ...]
    held: frozen.Held  # the forward's draws; a stop_gradient needs no holding where the inputs don't move
    gradients_seen: dict[str, int]


def trace_forward(  # noqa: PLR0913 (what is traced, and what is known of it)
    bound: Bound,
    signature: Sequence[Any],
    differentiable: Sequence[int],
    *,
    freeze: bool = True,
    seed: int = 0,
    variables: Sequence[Any] = (),
) -> ForwardTrace:
    """Trace the forward; once more, with functions inlined, where something to be frozen is inside one.

    Args:
        bound: the forward.
        signature: the inputs.
        differentiable: numbers of the inputs to differentiate by.
        freeze: look for what is to be held while the inputs move.
        seed: of the graph, so that its random ops draw the same in every run of the command.
        variables: those that are inputs, numbered after the others.

    Raises:
        CaseFailedError: what the forward raised, with the user's own frames.
    """
    with private_variables.order_of_variables(lambda _: None):
        function, graph_inputs, graph_outputs, met = _trace_once(
            bound, signature, contextlib.nullcontext(), seed
        )
    inputs = moving(function, graph_inputs, differentiable, variables)
    held = frozen.Held()
    if freeze:
        stand_ins = None
        if frozen.must_be_opened(function.graph, inputs, met):
            stand_ins = StandIns(frozen.is_random)
            function, graph_inputs, graph_outputs, met = _trace_once(
                bound, signature, stand_ins.tracing(), seed
            )
            inputs = moving(function, graph_inputs, differentiable, variables)
        held = frozen.find(function, inputs, met, stand_ins)
    return ForwardTrace(
        function=function,
        dtypes=tuple(output.dtype for output in graph_outputs),
        random_types=tuple(
            dict.fromkeys(
                [
                    *path.stateful_types(function.graph, graph_outputs, held.draws),
                    *path.implicit_samplers(function.graph, inputs, graph_outputs),
                ]
            )
        ),
        low_precision=tuple(low_precision.dtypes_on_path(function.graph, inputs, graph_outputs)),
        inputs=tuple(graph_inputs),
        outputs=tuple(graph_outputs),
        held=held,
        has_effects=any(op.type in path.WRITES for op in function.graph.get_operations()),
        handles=tuple(_handles(function, variables)),
        trainable=tuple(private_variables.trainable_of(function)),
        gradient_variables=tuple(path.gradient_variables(function.graph, graph_outputs)),
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
    bound: Bound, signature: Sequence[Any], context: contextlib.AbstractContextManager[None], seed: int | None
) -> tuple[Any, list[Any], list[Any], list[Any]]:
    kept: list[list[Any]] = []

    def forward(*tensors: Any) -> list[Any]:
        tf.compat.v1.set_random_seed(seed)  # of this graph alone
        with context:
            outputs = [tf.identity(output) for output in bound.call(*tensors)]
        kept[:] = [list(tensors), outputs, outputs if bound.met is None else list(bound.met())]
        return list(outputs)

    function = wrapped(forward, signature)
    require_no_leak(function, "forward")
    return function, kept[0], kept[1], kept[2]


def trace_vjp(  # noqa: PLR0913, PLR0917 (what is traced, and what is known of it)
    bound: Bound,
    signature: Sequence[Any],
    differentiable: Sequence[int],
    output_shapes: Sequence[tuple[int | None, ...]],
    traced: ForwardTrace,
    variables: Sequence[Any] = (),
    *,
    reverse: bool = False,
    with_joint: bool = True,
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

    Raises:
        CaseFailedError: what the gradient raised, or an override that no op on the path carries.
        GradientFormError: a gradient of wrong shape, found as the graph is built.
    """
    sources = [number for number, dtype in enumerate(traced.dtypes) if dtypes.is_differentiable(dtype)]
    upstream_specs = [tf.TensorSpec(output_shapes[number], traced.dtypes[number]) for number in sources]
    kept: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    stand_ins = StandIns(frozen.is_random, with_stops=False) if traced.held.opened else None

    def forward_and_vjp(*tensors: Any) -> Any:
        inputs, upstreams = tensors[: len(signature)], tensors[len(signature) :]
        inlined = private.functions_inlined() if reverse else contextlib.nullcontext()
        with stand_ins.tracing() if stand_ins else inlined:
            outputs = bound.call(*inputs)
        kept["inputs"], kept["upstreams"], kept["outputs"] = inputs, upstreams, outputs
        kept["forward"] = (
            tf.compat.v1.get_default_graph().get_operations()
        )  # the gradient's own ops come after
        every = [*inputs, *variables]
        wanted = [every[number] for number in differentiable]
        with private_gradients.gradients_counted(seen):
            kept["gradients"] = {
                number: [
                    dense(gradient, tensor)
                    for gradient, tensor in zip(
                        gradients_of([outputs[number]], wanted, [upstream]), wanted, strict=True
                    )
                ]
                for number, upstream in zip(sources, upstreams, strict=True)
            }
        if len(sources) > 1 and with_joint:
            together = gradients_of([outputs[number] for number in sources], wanted, list(upstreams))
            kept["joint"] = [
                dense(gradient, tensor) for gradient, tensor in zip(together, wanted, strict=True)
            ]
        if len(sources) == 1:  # what is wanted is all there is: nothing to prune, which copies the graph
            own = [gradient for gradient in kept["gradients"][sources[0]] if gradient is not None]
            if own:
                return [tf.identity(gradient) for gradient in own]
        return [tf.identity(output) for output in outputs]

    with private_variables.order_of_variables(lambda _: None, reverse=reverse):
        whole = wrapped(forward_and_vjp, [*signature, *upstream_specs])
    require_no_leak(whole, "gradient")
    inputs = moving(whole, kept["inputs"], differentiable, variables)
    every = [*kept["inputs"], *variables]
    if bound.override is not None:
        path.require_override(whole.graph, inputs, kept["outputs"], bound.override)
    draws = frozen.draws_among(kept["forward"], inputs, whole.inputs) if traced.held.draws else []
    has_effects = any(op.type in path.WRITES for op in whole.graph.get_operations())
    is_whole = len(sources) == 1 and not draws and not has_effects
    functions: dict[int, Any] = {}
    connected: dict[int, tuple[int, ...]] = {}
    faults: dict[int, str] = {}
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
                    [*kept["inputs"], upstream, *draws],
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
    feeds = [*kept["inputs"], *kept["upstreams"], *draws]
    return VjpTrace(
        functions,
        connected,
        subgraph_function(whole, feeds, list(joint.values())) if joint else None,
        tuple(joint),
        tuple(sources),
        faults,
        tuple(path.stateful_types(whole.graph, everything, draws)),
        frozen.Held(draws=tuple(draws), stand_ins=stand_ins if stand_ins and stand_ins.sites else None),
        dict(seen),
    )
