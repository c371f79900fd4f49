"""Moves each rounded result in a GraphDef by one rounding, up or down at random, to see what rounding does.

(Parker 1997, "Monte Carlo arithmetic"; CESTAC; Verificarlo.) Each inexact op gets a call of a small function
behind it (`rounding_rules`), which moves its result to the number above or below.

Only floating results have a perturbed copy. Whatever is chosen (a comparison, an index, a count) is that of
the unperturbed graph, so that ties and kinks keep their sides; inside a function's body it is that of the
body's own values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from gradcheck_cli.numerics.precision import precision_of
from gradcheck_cli.tensorflow_backend.graph_path import types_of
from gradcheck_cli.tensorflow_backend.op_types import NUMPY_CALLS
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import feeds_of, whole_graph
from gradcheck_cli.tensorflow_backend.traces.tracing import ForwardTrace, VjpTrace
from gradcheck_cli.tensorflow_backend.twin.rewriting import (
    Body,
    Rewriting,
    Rewritten,
    arguments_of,
    make_node,
)
from gradcheck_cli.tensorflow_backend.twin.rounding_rules import (
    NUMBERS,
    constant,
    keys_at,
    literal,
    rounds,
    rule_of_arguments,
    rule_of_result,
)

# The frames of TensorFlow 1's loops have cycles.
_FRAMES = {"Enter", "NextIteration", "Switch", "RefEnter", "RefNextIteration", "RefSwitch"}


@cache
def _function(rule: Callable[..., Any], dtypes: tuple[Any, ...]) -> Any:
    """Return a rule as a function of tensors of some dtypes, in any shape."""
    with tf.init_scope():
        concrete = tf.function(rule, autograph=False)
        return concrete.get_concrete_function(*(tf.TensorSpec(None, dtype) for dtype in dtypes))


@dataclass
class _Perturbed:
    """What is added to a body: the perturbed forms of tensors."""

    body: Body  # its names are those of the perturbed forms; a tensor that has none has its own
    whole: Perturbing
    _copies: dict[str, str] = field(default_factory=dict)
    _places: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._by_name = {node.name: node for node in self.body.nodes}

    def perturb(self, tensors: Iterable[str]) -> None:
        """Add the perturbed forms of some tensors."""
        for tensor in tensors:
            self._perturb_all(tensor)
        if self._places:
            places = self._add_node("places", "Const", [], dtype=tf.int64, value=np.array(self._places))
            keys = self._call("draw", keys_at, [places])
            self._add_node("keys", "Unpack", [keys], num=len(self._places), T=tf.int64, axis=0)

    def _perturb_all(self, tensor: str) -> None:
        """Add the perturbed form of a tensor, and of all that it is made of."""
        names, waiting = self.body.names, [tensor]
        while waiting:  # a stack of its own: a chain may be longer than Python's
            last = waiting[-1]
            if last in names:
                waiting.pop()
            elif missing := [name for name in self._needed(last) if name not in names]:
                waiting += missing
            else:
                if not self.body.function:
                    self.whole.owners.append((self.whole.count, last.partition(":")[0]))
                names[last] = self._perturb(last)

    def _node_of(self, tensor: str) -> Any | None:
        is_fed = not self.body.function and tensor in self.whole.fixed
        return None if is_fed else self._by_name.get(tensor.partition(":")[0])

    def _floating_inputs(self, node: Any) -> list[tuple[int, str, Any]]:
        slots = arguments_of(self.whole.definition(node).input_arg, node)
        return [
            (index, self.body.full_name(name), tf.as_dtype(dtype % 100))
            for index, (name, (_, dtype)) in enumerate(zip(node.input, slots, strict=False))
            if not name.startswith("^")
        ]

    def _needed(self, tensor: str) -> list[str]:
        node = self._node_of(tensor)
        if node is None or self._is_source(node) or not self._has_copy(tensor, node):
            return []
        return [name for _, name, dtype in self._floating_inputs(node) if _may_move(dtype)]

    def _is_source(self, node: Any) -> bool:
        return node.op in {"Const", "ReadVariableOp", "Placeholder"} or "Random" in node.op

    def _output_dtype(self, tensor: str, node: Any) -> Any:
        slots = enumerate(arguments_of(self.whole.definition(node).output_arg, node))
        by_name = {self.body.name_of(node.name, slot, index): dtype for index, (slot, dtype) in slots}
        return tf.as_dtype(by_name[tensor] % 100)

    def _has_copy(self, tensor: str, node: Any) -> bool:
        return self.whole.calls(node) or _may_move(self._output_dtype(tensor, node))

    def _perturb(self, tensor: str) -> str:
        node = self._node_of(tensor)
        unit = self.whole.units.get((self.body.function, tensor.partition(":")[0]))
        if node is None:
            return tensor if unit is None else self._move_constant(tensor, unit)
        if not self._has_copy(tensor, node):
            return tensor
        dtype = self._output_dtype(tensor, node)
        if self._is_source(node):
            if unit is not None:
                return self._move_constant(tensor, unit)
            is_rounded = node.op == "Const" and dtype in self.whole.dtypes
            return self._add(literal, tensor, dtype) if is_rounded else tensor
        inputs = self._floating_inputs(node)
        name = self._copy(node, inputs) + tensor[len(node.name) :]
        if dtype in self.whole.dtypes and rounds(node.op, inputs[0][2], dtype) and not self.whole.calls(node):
            operands = [self.body.names.get(each, each) for _, each, of in inputs if of == dtype]
            rule, exact_by = rule_of_result(node.op, dtype)
            name = self._add(rule, name, dtype, *(operands[index] for index in exact_by))
        return name

    def _copy(self, node: Any, inputs: Sequence[tuple[int, str, Any]]) -> str:
        """Return the name of a node's copy with perturbed inputs; its own where none is perturbed."""
        if node.name in self._copies:
            return self._copies[node.name]
        moved = {index: self.body.names[name] for index, name, dtype in inputs if _may_move(dtype)}
        if (rule := rule_of_arguments(node.op)) is not None:
            moved |= {
                index: self._add(rule, moved[index], dtype)
                for index, _, dtype in inputs
                if dtype in self.whole.dtypes
            }
        own = {index: name for index, name, _ in inputs}
        self._copies[node.name] = node.name
        if self.whole.calls(node) or any(own[index] != name for index, name in moved.items()):
            copy = node_def_pb2.NodeDef.FromString(node.SerializeToString())
            copy.name = self._copies[node.name] = f"{node.name}{self.whole.suffix}"
            copy.attr.pop("_XlaMustCompile", None)
            for index, name in moved.items():
                copy.input[index] = name
            self.whole.rename_calls(copy)
            self.body.nodes.append(copy)
        return self._copies[node.name]

    def _move_constant(self, tensor: str, unit: float) -> str:
        name = f"unit{len(self._places)}"
        value = self._add_node(name, "Const", [], dtype=tf.float64, value=np.float64(unit))
        return self._add(constant, tensor, tf.float64, value)

    def _add(self, rule: Callable[..., Any], name: str, dtype: Any, *others: str) -> str:
        """Add a call of a rule, and return the name of its result."""
        place, index = self.whole.count, len(self._places)
        self.whole.count += 1
        self._places.append(place)
        key = self.body.name_of(f"keys{self.whole.suffix}", f"output:{index}", index)
        return self._call(f"rounded{place}", rule, [key, name, *others], dtype)

    def _call(self, name: str, rule: Callable[..., Any], inputs: Sequence[str], dtype: Any = None) -> str:
        """Add a call by name, which is quicker than a `PartitionedCall`; all but the first are of a dtype."""
        function = _function(rule, (tf.int64, *(dtype for _ in inputs[1:])))
        definition = function.function_def
        op = definition.signature.name
        self.whole.copies[op] = definition
        return self._add_node(name, op, inputs, definition.signature.output_arg[0].name)

    def _add_node(self, name: str, op: str, inputs: Sequence[str], slot: str = "output", **attrs: Any) -> str:
        """Add a node, and return the name of its first output."""
        node = make_node(f"{name}{self.whole.suffix}", op, inputs, **attrs)
        self.body.nodes.append(node)
        return self.body.name_of(node.name, f"{slot}:0")


def _may_move(dtype: Any) -> bool:
    return dtype in NUMBERS or dtype == tf.variant


# The unit roundoff of what was rounded to a narrower dtype; see `Twin`.
Units = Mapping[tuple[str, str], float]
Trace = TypeVar("Trace", ForwardTrace, VjpTrace)


@dataclass(frozen=True)
class Perturbed(Generic[Trace]):
    """The form of a trace that rounds at random."""

    trace: Trace
    # the ops of its graph by name, in the order of places; each with its first place
    owners: tuple[tuple[int, str], ...]
    count: int  # of places

    def places_of(self, names: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return which places are those of some ops of the graph, or of what they call."""
        ends = [first for first, _ in self.owners[1:]] + [self.count]
        moves = np.zeros(self.count, np.bool_)
        for (first, name), end in zip(self.owners, ends, strict=True):
            moves[first:end] = name in names
        return moves


class Perturbing(Rewriting):
    """A copy of a graph, with the perturbed forms of some tensors added.

    Args:
        graph: the graph, whose functions get perturbed copies, too.
        units: the unit roundoff of constants, and of variables that are read, that were rounded to a narrower
            dtype: by the name of their function (empty for the graph itself) and their node's.
        kept: handles of the variables that gradients are taken for.
        fed: the fed tensors, which don't move: two that are equal would no longer be so.
        dtypes: those in which results are rounded.

    Attributes:
        owners: for each op of the graph itself, the first of its places and of those of functions that it
            calls.
    """

    def __init__(
        self, graph: Any, units: Units, kept: Collection[Any], fed: Sequence[Any], dtypes: Collection[Any]
    ) -> None:
        super().__init__(graph, "rounded")
        handles = {name for name, outer in self.captured.items() if any(outer is handle for handle in kept)}
        of_inputs = {
            ("", node.name)
            for node in self.body.nodes
            if node.op == "ReadVariableOp" and node.input[0] in handles
        }
        self.units = {place: unit for place, unit in units.items() if place not in of_inputs}
        self.fixed, self.dtypes = {tensor.name for tensor in fed}, dtypes
        self.count = 0  # of places
        self.owners: list[tuple[int, str]] = []

    def rewritten(self, outputs: Iterable[Any]) -> Rewritten:
        """Return the copy, in which some outputs are replaced by their perturbed forms."""
        wanted = list(dict.fromkeys(tensor.name for tensor in outputs))
        self.rewrite_body(self.body, wanted)
        names = {name: self.body.names[name] for name in wanted}
        return Rewritten(self, self.captured, names, {*self.fixed, *names.values()})

    def of(self, trace: Trace) -> Perturbed[Trace]:
        """Return a trace of the copy with its places."""
        return Perturbed(trace, tuple(self.owners), self.count)

    def rewrite_body(self, body: Body, wanted: Sequence[str]) -> None:
        """Add the perturbed forms of some tensors."""
        _Perturbed(body, self).perturb(wanted)

    def rewrite_signature(self, function: Any) -> None:
        """Say that a function has state: it reads the draw."""
        function.signature.is_stateful = True
        function.attr.clear()

    def calls(self, node: Any) -> bool:
        """Whether a node calls functions of the graph."""
        return node.op in self.library or bool(private_graphs.function_names(node))


# A perturbed graph has some ten times as many nodes, and takes a second for each thousand of these.
_MOST_NODES = 2_000


def can_be_perturbed(trace: ForwardTrace | VjpTrace) -> bool:
    """Whether a trace can be perturbed: it is no model's, holds nothing in bodies, and calls no Python."""
    graph = whole_graph(trace.whole.function if isinstance(trace, VjpTrace) else trace.function)
    ops = graph.get_operations()
    return (
        len(ops) <= _MOST_NODES
        and trace.held.body_holds is None
        and (_FRAMES | NUMPY_CALLS).isdisjoint(types_of(ops))
    )


def _dtypes(narrow: Collection[str]) -> list[Any]:
    """Return the dtypes in which results round that aren't narrower than each of some, and than float64."""
    coarsest = max([precision_of(name).unit_roundoff for name in narrow], default=2.0**-53)
    return [dtype for dtype in NUMBERS if precision_of(dtype.name).unit_roundoff <= coarsest]


def perturb_vjp(
    trace: VjpTrace, units: Units, kept: Collection[Any], narrow: Collection[str]
) -> Perturbed[VjpTrace]:
    """Return the form of a vjp that rounds at random.

    Args:
        trace: the vjp.
        units: see `Units`.
        kept: handles of the variables that gradients are taken for.
        narrow: dtypes below float64 of the forward. A gradient's ops that are narrower than each of these
            aren't rounded otherwise: their error is the gradient's own.
    """
    functions = [pullback.function for pullback in trace.pullbacks.values()]
    fed = [tensor for function in functions for tensor in feeds_of(function)]
    graph = whole_graph(trace.whole.function)
    perturbing = Perturbing(graph, units, kept, fed, _dtypes(narrow))
    copy = perturbing.rewritten(tensor for function in functions for tensor in function.outputs)
    return perturbing.of(copy.vjp(replace(trace, joint=None)))


def perturb_forward(
    trace: ForwardTrace, units: Units, kept: Collection[Any], dtypes: Collection[Any] = ()
) -> Perturbed[ForwardTrace]:
    """Return the form of a forward whose constants and results of some dtypes round at random."""
    fed = (*trace.inputs, *trace.held.draws, *trace.held.stops, *trace.held.sides)
    perturbing = Perturbing(whole_graph(trace.function), units, kept, fed, dtypes)
    return perturbing.of(perturbing.rewritten(trace.outputs).forward(trace))
