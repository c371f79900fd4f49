"""What is held while the inputs move, so that a difference means what backpropagation means.

A `stop_gradient` that backpropagation meets is a constant to it, so it keeps its base value. A draw of random
numbers is one draw, in the forward, the gradient and every difference. Both are fed as constants where they
stand in the traced graph itself (`base_run` has the values); inside a loop's or a branch's body, which can't
be fed, `stand_ins` hold them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradcheck_cli.tensorflow_backend import path, private
from gradcheck_cli.tensorflow_backend.stand_ins import MARK, STOP, StandIns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Ops that draw at each call. Those with a gradient of their own with respect to their parameters
# (RandomGamma) are left out below: the draw itself moves with the parameters, so it can't be held.
_RANDOM = frozenset(
    {
        "AllCandidateSampler",
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "Multinomial",
        "NonDeterministicInts",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "RngReadAndSkip",  # a tf.random.Generator's state, which stateless ops then draw from
        "StatefulRandomBinomial",
        "StatefulStandardNormal",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniform",
        "StatefulUniformFullInt",
        "StatefulUniformInt",
        "ThreadUnsafeUnigramCandidateSampler",
        "TruncatedNormal",
        "UniformCandidateSampler",
    }
)
# Their result holds the input's own values, not only a draw: held, an input that moves would stand still.
_PASSES_INPUT_ON = frozenset({"RandomShuffle"})


def is_random(op_type: str) -> bool:
    """Whether an op of this type draws, and its draw can be held."""
    return op_type in _RANDOM and not private.has_gradient(op_type)


@dataclass(frozen=True)
class Held:
    """What a trace holds.

    Attributes:
        stops: tensors of `stop_gradient`s that backpropagation meets, in the graph itself.
        draws: the random ops' tensors in the graph itself, in order of creation.
        stand_ins: what holds those in bodies of loops and branches; `None` where there are none.
        unreachable: names of ops whose body has a `stop_gradient` that nothing can hold.
        opened: tf.functions were inlined for it.
    """

    stops: tuple[Any, ...] = ()
    draws: tuple[Any, ...] = ()
    stand_ins: StandIns | None = None
    unreachable: tuple[str, ...] = ()
    opened: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        """How many ops are held, by type."""
        ops = dict.fromkeys(tensor.op for tensor in (*self.stops, *self.draws))
        inner = self.stand_ins.held_types() if self.stand_ins else ()
        return Counter([*(op.type for op in ops), *inner])


def must_be_opened(graph: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether something to be held is inside a function's body: then the forward is traced once more, opened.

    Not where such a body writes to variables: inlined, it would do so no more, or in another order.
    """
    moving, on_path = set(path.ops_between(inputs, outputs)), set(_met(outputs))
    found: set[str] = set()
    for op in path.ops_before(outputs):
        types = {node.op for node in path.inner_nodes(graph, op)}
        if types & path.WRITES:
            return False
        found |= {name for name in types if is_random(name)}
        found |= types & {STOP} if op in moving and op in on_path else set()
    return bool(found)


def find(function: Any, inputs: Sequence[Any], outputs: Sequence[Any], stand_ins: StandIns | None) -> Held:
    """Find what a traced forward holds.

    Args:
        function: the traced function.
        inputs: the differentiable inputs' tensors.
        outputs: the outputs' tensors.
        stand_ins: those that were made while it was traced.
    """
    graph = function.graph
    met = _moving_met(inputs, outputs)
    closed = [
        op.name
        for op in met
        if any(node.op == STOP and MARK not in node.attr for node in path.inner_nodes(graph, op))
    ]
    if stand_ins is not None:
        stand_ins.hold_stops(lambda site: _is_met_in_body(site, outputs))
    return Held(
        stops=stops_among(inputs, outputs),
        draws=tuple(draws_among(graph.get_operations(), inputs, function.inputs)),
        stand_ins=stand_ins if stand_ins is not None and stand_ins.sites else None,
        unreachable=tuple(closed),
        opened=stand_ins is not None,
    )


def stops_among(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the tensors of `stop_gradient`s that move with the inputs and that backpropagation meets."""
    stops = (op.outputs[0] for op in _moving_met(inputs, outputs) if op.type == STOP)
    return tuple(sorted(stops, key=lambda tensor: str(tensor.name)))


def _moving_met(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    moving = set(path.ops_between(inputs, outputs))
    return [op for op in _met(outputs) if op in moving]


def draws_among(candidates: Iterable[Any], inputs: Sequence[Any], placeholders: Iterable[Any]) -> list[Any]:
    """Return the tensors of random ops that can be held, in order of creation.

    Args:
        candidates: ops of one graph, such as those of its forward.
        inputs: the differentiable inputs.
        placeholders: all of the function's inputs; what depends on any other placeholder belongs to a
            template that TensorFlow made copies of (`tf.vectorized_map`), and never runs.
    """
    ops = [op for op in candidates if is_random(op.type)]
    if not ops:
        return []
    known = {tensor.op for tensor in placeholders}
    reached = path.ops_after(inputs) if any(op.type in _PASSES_INPUT_ON for op in ops) else set()
    tensors = []
    for op in ops:
        before = path.ops_before(op.outputs)
        is_template = any(other.type == "Placeholder" and other not in known for other in before)
        if not is_template and not (op.type in _PASSES_INPUT_ON and op in reached):
            tensors += list(op.outputs)
    return tensors


def _met(outputs: Iterable[Any]) -> list[Any]:
    """Return the ops that backpropagation visits, stepping over custom gradients, up to stop_gradient."""
    met: dict[Any, None] = {}
    stack = [tensor.op for tensor in outputs]
    while stack:
        op = stack.pop()
        if op in met:
            continue
        met[op] = None
        if op.type != STOP:
            stack += [tensor.op for tensor in list(op.inputs)[private.custom_gradient_results(op) :]]
    return list(met)


def _is_met_in_body(op: Any, outputs: Sequence[Any]) -> bool:
    """Whether backpropagation meets an op in a body, and the body's own call in the graph around it."""
    graph = op.graph
    while private.is_body(graph):
        if private.is_defun_body(graph) or op not in _met(graph.outputs):
            return False
        name, graph = graph.name, graph.outer_graph
        callers = [caller for caller in graph.get_operations() if name in path.function_names(caller)]
        if not callers:
            return False
        op = callers[0]
    return op in _met(outputs)
