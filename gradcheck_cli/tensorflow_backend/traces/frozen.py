"""What can be held constant while the inputs move, so that a difference means what backpropagation means.

Backpropagation treats a `stop_gradient` that it meets as a constant; where that is meant, the stop keeps its
base value. Random numbers are drawn once, for the forward, the gradient and every difference. Both are fed as
constants if they are in the traced graph itself (`base_run` has the values). Inside a loop's or a branch's
body, which can't be fed, `body_holds` hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.paths.graph_path import MARK, STOP
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.traces.body_holds import BodyHolds

# Ops that draw at each call. Those that have a gradient with respect to their parameters (RandomGamma) are
# left out below: the draw itself moves with the parameters, so it can't be held.
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
# Their result contains the input's own values, not only a draw: if it were held, a moving input would stay
# the same.
_PASSES_INPUT_ON = frozenset({"RandomShuffle"})


def is_random(op_type: str) -> bool:
    """Whether an op of this type draws, and its draw can be held."""
    return op_type in _RANDOM and not private_graphs.has_gradient(op_type)


@dataclass(frozen=True)
class Stop:
    """A `stop_gradient`, by the lines that asked for it, and the place to show."""

    key: str
    place: str

    @staticmethod
    def of(op: Any) -> Stop:
        """Return the stop of an op."""
        return Stop(
            *frames.place_of_stop((frame.filename, frame.lineno, frame.name) for frame in op.traceback)
        )


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
    sides: tuple[Any, ...] = ()  # for kinked ops, the side that elements are on (`twin/one_piece.py`)


@dataclass(frozen=True)
class Inside:
    """What functions' bodies contain that may have to be held."""

    draws: bool = False
    stops: bool = False

    def must_be_opened(self, *, stops: bool) -> bool:
        """Whether to trace again with functions inlined: draws, and stops if requested, can then be held."""
        return self.draws or (stops and self.stops)


def look_inside(graph: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Inside:
    """Search functions' bodies for what may have to be held."""
    moving_ops = set(graph_path.ops_between(inputs, outputs))
    ops_met = set(graph_path.ops_met(outputs, ends_at=STOP))
    draws = stops = False
    for op in graph_path.ops_before(outputs):
        types = {node.op for node in graph_path.inner_nodes(graph, op)}
        draws |= any(is_random(name) for name in types)
        stops |= STOP in types and op in moving_ops and op in ops_met
    return Inside(draws, stops)


def find_held(
    function: Any, inputs: Sequence[Any], outputs: Sequence[Any], body_holds: BodyHolds | None, inside: Inside
) -> Held:
    """Find what can be held in a traced forward.

    Args:
        inputs: the differentiable inputs' tensors.
        outputs: the outputs' tensors.
        body_holds: the holds that were made while it was traced.
        inside: what bodies contained before functions were inlined.
    """
    graph = function.graph
    closed = [
        op
        for op in _moving_ops_met(inputs, outputs)
        if any(node.op == STOP and MARK not in node.attr for node in graph_path.inner_nodes(graph, op))
    ]
    if body_holds is not None:
        body_holds.find_stops(lambda op: _is_met_in_body(op, outputs), lambda op: Stop.of(op).key)
    stops = stops_among(inputs, outputs)
    return Held(
        stops=stops,
        stop_origins=tuple(Stop.of(tensor.op) for tensor in stops),
        draws=tuple(draws_among(graph.get_operations(), inputs, function.inputs)),
        body_holds=body_holds if body_holds is not None and body_holds.ops else None,
        closed=tuple(closed),
        inlined=body_holds is not None,
        can_be_opened=inside.must_be_opened(stops=True) and not (body_holds and body_holds.with_stops),
    )


def stops_among(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the tensors of `stop_gradient`s that move with the inputs and that backpropagation meets."""
    stops = (op.outputs[0] for op in _moving_ops_met(inputs, outputs) if op.type == STOP)
    return tuple(sorted(stops, key=lambda tensor: str(tensor.name)))


def _moving_ops_met(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    moving_ops = set(graph_path.ops_between(inputs, outputs))
    return [op for op in graph_path.ops_met(outputs, ends_at=STOP) if op in moving_ops]


def draws_among(candidates: Iterable[Any], inputs: Sequence[Any], placeholders: Iterable[Any]) -> list[Any]:
    """Return the tensors of random ops that can be held, in order of creation.

    Args:
        candidates: ops of one graph, such as those of its forward.
        inputs: the differentiable inputs.
        placeholders: all of the function's inputs. An op that depends on any other placeholder belongs to a
            template that TensorFlow made copies of (`tf.vectorized_map`), and never runs.
    """
    ops = [op for op in candidates if is_random(op.type)]
    if not ops:
        return []
    placeholder_ops = {tensor.op for tensor in placeholders}
    moving_ops = graph_path.ops_after(inputs) if any(op.type in _PASSES_INPUT_ON for op in ops) else set()
    tensors = []
    for op in ops:
        before = graph_path.ops_before(op.outputs)
        is_template = any(
            earlier.type == "Placeholder" and earlier not in placeholder_ops for earlier in before
        )
        if not is_template and not (op.type in _PASSES_INPUT_ON and op in moving_ops):
            tensors += list(op.outputs)
    return tensors


def _is_met_in_body(op: Any, outputs: Sequence[Any]) -> bool:
    """Whether backpropagation meets an op in a body, and that body's call in the outer graph."""
    graph = op.graph
    while private_graphs.is_body(graph):
        if private_graphs.is_defun_body(graph) or op not in graph_path.ops_met(graph.outputs, ends_at=STOP):
            return False
        name, graph = graph.name, graph.outer_graph
        callers = [caller for caller in graph.get_operations() if name in graph_path.function_names(caller)]
        if not callers:
            return False
        op = callers[0]
    return op in graph_path.ops_met(outputs, ends_at=STOP)
