"""Moves each rounded result in a GraphDef by one rounding, up or down at random, to see what rounding does.

(Parker 1997, "Monte Carlo arithmetic"; CESTAC; Verificarlo.) Each inexact op gets a call of a small function
behind it (`rounding_rules`), which moves its result to the number above or below.

Only floating results have a perturbed copy. Whatever is chosen (a comparison, an index, a count) is that of
the unperturbed graph, so that ties and kinks keep their sides; inside a function's body it is that of the
body's own values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from gradcheck_cli.numerics.precision import precision_of
from gradcheck_cli.tensorflow_backend.graph_path import NUMPY_CALLS, inner_nodes
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import subgraph_function, whole_graph
from gradcheck_cli.tensorflow_backend.traces.tracing import ForwardTrace, VjpTrace
from gradcheck_cli.tensorflow_backend.twin.rounding_rules import (
    ALL_PLACES,
    NUMBERS,
    constant,
    literal,
    plain,
    rounds,
    rule_of_arguments,
    rule_of_result,
)
from gradcheck_cli.tensorflow_backend.twin.widening import arguments_of

# The frames of TensorFlow 1's loops have cycles.
_FRAMES = {"Enter", "NextIteration", "Switch", "RefEnter", "RefNextIteration", "RefSwitch"}
_SUFFIX = itertools.count(1)


@cache
def _function(rule: Callable[..., Any], dtypes: tuple[Any, ...]) -> Any:
    """Return a rule as a function of a place and of tensors of some dtypes, in any shape."""
    specs = [tf.TensorSpec([], tf.int64), *(tf.TensorSpec(None, dtype) for dtype in dtypes)]
    with tf.init_scope():
        return tf.function(rule, autograph=False).get_concrete_function(*specs)


@dataclass
class _Body:
    """The nodes of a graph, or of a function's body, to which perturbed copies are added."""

    nodes: Sequence[Any]
    function: str  # the function's name; empty for the graph itself
    whole: Perturbing
    fixed: Collection[str] = ()  # tensors that are fed, and have no perturbed form
    made: list[Any] = field(default_factory=list)
    # by name of a tensor, that of its perturbed form: its own where it has none
    names: dict[str, str] = field(default_factory=dict)
    _copies: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {node.name: node for node in self.nodes}

    def perturbed(self, tensor: str) -> str:
        """Return the name of a tensor's perturbed form, which is made the first time."""
        name = tensor if self.function or ":" in tensor else f"{tensor}:0"
        waiting = [name]
        while waiting:  # a stack of its own: a chain may be longer than Python's
            last = waiting[-1]
            if last in self.names:
                waiting.pop()
            elif missing := [name for name in self._needed(last) if name not in self.names]:
                waiting += missing
            else:
                if not self.function:
                    self.whole.owners.append((next(self.whole.places), last.partition(":")[0]))
                self.names[last] = self._perturb(last)
        return self.names[name]

    def _node_of(self, tensor: str) -> Any | None:
        node = self._by_name.get(tensor.partition(":")[0])
        return None if tensor in self.fixed else node

    def _floating_inputs(self, node: Any) -> list[tuple[int, str, Any]]:
        definition = self.whole.definition(node)
        slots = arguments_of(definition.input_arg, node)
        return [
            (index, name if self.function or ":" in name else f"{name}:0", tf.as_dtype(dtype % 100))
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
        slots = arguments_of(self.whole.definition(node).output_arg, node)
        if not self.function:
            return tf.as_dtype(slots[int(tensor.rpartition(":")[2])][1] % 100)
        slot = tensor.partition(":")[2]
        return tf.as_dtype(dict(slots)[slot] % 100)

    def _has_copy(self, tensor: str, node: Any) -> bool:
        return self.whole.calls(node) or _may_move(self._output_dtype(tensor, node))

    def _perturb(self, tensor: str) -> str:
        node = self._node_of(tensor)
        unit = self.whole.units.get((self.function, tensor.partition(":")[0]))
        if node is None:
            dtype = None if self.function else self.whole.inputs.get(tensor)
            if tensor in self.fixed and dtype is not None:
                return self._add(plain, tensor, dtype)
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
        copy = self._copy(node, inputs)
        name = tensor if copy == node.name else copy + tensor[len(node.name) :]
        if dtype in self.whole.dtypes and rounds(node.op, inputs[0][2], dtype) and not self.whole.calls(node):
            operands = [self.names.get(each, each) for _, each, of in inputs if of == dtype]
            rule, exact_by = rule_of_result(node.op, dtype)
            name = self._add(rule, name, dtype, *(operands[index] for index in exact_by))
        return name

    def _copy(self, node: Any, inputs: Sequence[tuple[int, str, Any]]) -> str:
        """Return the name of a node's copy with perturbed inputs; its own where none is perturbed."""
        if node.name in self._copies:
            return self._copies[node.name]
        moved = {index: self.names[name] for index, name, dtype in inputs if _may_move(dtype)}
        if (rule := rule_of_arguments(node.op)) is not None:
            moved |= {
                index: self._add(rule, moved[index], dtype)
                for index, _, dtype in inputs
                if dtype in self.whole.dtypes
            }
        own = {index: name for index, name, _ in inputs}
        if not self.whole.calls(node) and all(own[index] == name for index, name in moved.items()):
            self._copies[node.name] = node.name
            return str(node.name)
        copy = node_def_pb2.NodeDef.FromString(node.SerializeToString())
        copy.name = f"{node.name}{self.whole.suffix}"
        copy.attr.pop("_class", None)
        copy.attr.pop("_XlaMustCompile", None)
        for index, name in moved.items():
            copy.input[index] = name
        self.whole.rename_calls(copy)
        self.made.append(copy)
        self._copies[node.name] = copy.name
        return str(copy.name)

    def _move_constant(self, tensor: str, unit: float) -> str:
        value = self._const(np.float64(unit))
        return self._add(constant, tensor, tf.float64, value)

    def _const(self, value: Any) -> str:
        node = node_def_pb2.NodeDef(name=f"rounding{next(self.whole.places)}{self.whole.suffix}", op="Const")
        node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        self.made.append(node)
        return f"{node.name}:output:0" if self.function else f"{node.name}:0"

    def _add(self, rule: Callable[..., Any], name: str, dtype: Any, *others: str) -> str:
        """Add a call of a rule, and return the name of its result."""
        dtypes = (dtype,) * (1 + len(others))
        function = _function(rule, dtypes)
        place = next(self.whole.places)
        self.whole.functions[function.name.decode()] = function
        inputs = [self._const(np.int64(place)), name, *others]
        node = node_def_pb2.NodeDef(
            name=f"rounded{place}{self.whole.suffix}", op="StatefulPartitionedCall", input=inputs
        )
        node.attr["f"].func.name = function.name
        node.attr["Tin"].list.type.extend(
            [tf.int64.as_datatype_enum, *(each.as_datatype_enum for each in dtypes)]
        )
        node.attr["Tout"].list.type.append(dtype.as_datatype_enum)
        self.made.append(node)
        return f"{node.name}:output:0" if self.function else f"{node.name}:0"


def _may_move(dtype: Any) -> bool:
    return dtype in NUMBERS or dtype == tf.variant


class Perturbing:
    """Adds to a GraphDef, in place, the perturbed forms of some tensors.

    Args:
        graph_def: the graph, whose functions get perturbed copies, too.
        units: the unit roundoff of constants, and of variables that are read, that were rounded to a narrower
            dtype: by the name of their function (empty for the graph itself) and their node's.
        inputs: dtypes of the fed tensors that move, by one rounding of their own.
        fixed: all fed tensors.
        dtypes: those in which results are rounded.
    """

    def __init__(
        self,
        graph_def: Any,
        units: Mapping[tuple[str, str], float],
        inputs: Mapping[str, Any],
        fixed: Collection[str],
        dtypes: Collection[Any],
    ) -> None:
        self.units, self.inputs, self.dtypes = units, inputs, dtypes
        self.suffix = f"_rounded{next(_SUFFIX)}"
        self.places = itertools.count(1)
        self.functions: dict[str, Any] = {}  # the rules that are called, by name
        self._library = {function.signature.name: function for function in graph_def.library.function}
        # for each op of the graph itself, the first of its places and of those of functions that it calls
        self.owners: list[tuple[int, str]] = []
        self._graph_def = graph_def
        self._renamed: dict[str, str] = {}
        self.body = _Body(list(graph_def.node), "", self, fixed)

    def perturbed(self, tensors: Sequence[str]) -> list[str]:
        """Return the names of some tensors' perturbed forms, after adding them to the graph."""
        names = [self.body.perturbed(tensor) for tensor in tensors]
        self._graph_def.node.extend(self.body.made)
        self.body.made = []
        present = {function.signature.name for function in self._graph_def.library.function}
        added = [function.function_def for name, function in self.functions.items() if name not in present]
        self._graph_def.library.function.extend(added)
        return names

    def definition(self, node: Any) -> Any:
        """Return the definition of a node's op, or the signature of the function that it calls by name."""
        return private_graphs.op_def(node.op) or self._library[node.op].signature

    def calls(self, node: Any) -> bool:
        """Whether a node calls functions of the graph."""
        return node.op in self._library or bool(private_graphs.function_names(node))

    def rename_calls(self, node: Any) -> None:
        """Let a node call perturbed functions, which are made the first time."""
        if node.op in self._library:
            node.op = self._function(node.op)
        for _, attr in sorted(node.attr.items()):  # a map's own order differs from run to run
            functions = [attr.func] if attr.WhichOneof("value") == "func" else list(attr.list.func)
            for function in functions:
                function.name = self._function(function.name)

    def _function(self, name: str) -> str:
        if name in self._renamed or name not in self._library:
            return self._renamed.get(name, name)
        self._renamed[name] = new_name = f"{name}{self.suffix}"
        original = self._library[name]
        copy = type(original).FromString(original.SerializeToString())
        copy.signature.name = new_name
        copy.signature.is_stateful = True
        copy.attr.clear()
        body = _Body(list(copy.node_def), name, self)
        for key, tensor in sorted(copy.ret.items()):
            copy.ret[key] = body.perturbed(tensor)
        copy.node_def.extend(body.made)
        self._graph_def.library.function.append(copy)
        return new_name


# A perturbed graph has some ten times as many nodes, and takes a second for each thousand of these.
_MOST_NODES = 2_000


def can_be_perturbed(trace: VjpTrace) -> bool:
    """Whether a vjp can be perturbed: it is no model's, holds nothing in bodies, and calls no Python."""
    graph = whole_graph(trace.whole.function)
    types = {op.type for op in graph.get_operations()}
    inner = {node.op for op in graph.get_operations() for node in inner_nodes(graph, op)}
    return (
        len(graph.get_operations()) <= _MOST_NODES
        and trace.held.body_holds is None
        and _FRAMES.isdisjoint(types)
        and set(NUMPY_CALLS).isdisjoint(types | inner)
    )


@dataclass(frozen=True)
class Perturbed:
    """The form of a vjp that rounds at random."""

    trace: VjpTrace
    # the ops of its graph by name, in the order of places; each with its first place
    owners: tuple[tuple[int, str], ...]

    def places_of(self, ops: range) -> range:
        """Return the places of some ops, by their indices in `owners`."""
        end = self.owners[ops.stop][0] if ops.stop < len(self.owners) else ALL_PLACES.stop
        return range(self.owners[ops.start][0], end)


def feeds_of(function: Any) -> list[Any]:
    """Return the tensors that a function of a part of a graph takes, without its captures."""
    return list(function.inputs[: len(function.inputs) - len(function.captured_inputs)])


@dataclass(frozen=True)
class _Home:
    """What has a graph, as a function has."""

    graph: Any


Units = Mapping[
    tuple[str, str], float
]  # the unit roundoff of what was rounded to a narrower dtype; see `Twin`


class _Copy:
    """A graph that has been copied, with the perturbed forms of some tensors.

    Args:
        kept: handles of the variables that gradients are taken for.
        dtypes: those in which results are rounded.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (a graph, what it is fed, and how it rounds)
        self,
        graph: Any,
        units: Units,
        kept: Collection[Any],
        inputs: Sequence[Any],
        fed: Sequence[Any],
        dtypes: Collection[Any],
        outputs: Sequence[Any],
    ) -> None:
        captured = {inner.op.name: outer for outer, inner in graph.captures}
        graph_def = graph.as_graph_def()
        nodes = [node for node in graph_def.node if node.name not in captured]
        del graph_def.node[:]
        graph_def.node.extend(nodes)
        handles = {name for name, outer in captured.items() if any(outer is handle for handle in kept)}
        reads = [node for node in nodes if node.op == "ReadVariableOp" and node.input[0] in handles]
        of_inputs = {("", node.name) for node in reads}
        perturbing = Perturbing(
            graph_def,
            {place: unit for place, unit in units.items() if place not in of_inputs},
            {tensor.name: tensor.dtype for tensor in inputs if tensor.dtype in dtypes},
            {tensor.name for tensor in fed},
            dtypes,
        )
        perturbed = perturbing.perturbed([tensor.name for tensor in outputs])
        self.owners = tuple(perturbing.owners)
        self._imported, self._inner = private_graphs.import_graph(graph_def, captured, [graph])
        self.results = {}
        for tensor, name in zip(outputs, perturbed, strict=True):
            self.results[tensor.name] = self._named(name)
            self.results[tensor.name].set_shape(tensor.shape)

    def _named(self, name: str) -> Any:
        feed = self._inner.get(name.partition(":")[0])
        return self._imported.get_tensor_by_name(name) if feed is None else feed

    def tensors(self, originals: Sequence[Any]) -> tuple[Any, ...]:
        """Return the unperturbed copies of some tensors."""
        return tuple(self._named(tensor.name) for tensor in originals)

    def function(self, feeds: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return what computes perturbed forms of outputs."""
        fetches = [self.results[tensor.name] for tensor in outputs]
        return subgraph_function(_Home(self._imported), self.tensors(feeds), fetches)


def perturb_vjp(trace: VjpTrace, units: Units, kept: Collection[Any], narrow: Collection[str]) -> Perturbed:
    """Return the form of a vjp that rounds at random.

    Args:
        trace: the vjp.
        units: see `Units`.
        kept: handles of the variables that gradients are taken for.
        narrow: dtypes below float64 of the forward. A gradient's ops that are narrower than each of these
            aren't rounded otherwise: their error is the gradient's own.
    """
    coarsest = max([precision_of(name).unit_roundoff for name in narrow], default=2.0**-53)
    dtypes = [dtype for dtype in NUMBERS if precision_of(dtype.name).unit_roundoff <= coarsest]
    functions = [pullback.function for pullback in trace.pullbacks.values()]
    outputs = {tensor.name: tensor for function in functions for tensor in function.outputs}
    fed = [tensor for function in functions for tensor in feeds_of(function)]
    graph = whole_graph(trace.whole.function)
    copy = _Copy(graph, units, kept, trace.inputs, fed, dtypes, list(outputs.values()))
    pullbacks = {
        output: replace(
            pullback, function=copy.function(feeds_of(pullback.function), pullback.function.outputs)
        )
        for output, pullback in trace.pullbacks.items()
    }
    held = replace(trace.held, draws=copy.tensors(trace.held.draws))
    return Perturbed(replace(trace, pullbacks=pullbacks, joint=None, held=held), copy.owners)


def perturb_constants(trace: ForwardTrace, units: Units, kept: Collection[Any]) -> ForwardTrace:
    """Return the form of a forward whose constants and weights alone round at random."""
    held = trace.held
    fed = (*trace.inputs, *held.draws, *held.stops, *held.sides)
    copy = _Copy(whole_graph(trace.function), units, kept, (), fed, (), trace.outputs)
    return replace(
        trace,
        function=copy.function(trace.inputs, trace.outputs),
        inputs=copy.tensors(trace.inputs),
        outputs=tuple(copy.results[tensor.name] for tensor in trace.outputs),
        moving=copy.tensors(trace.moving),
        held=replace(
            held,
            stops=copy.tensors(held.stops),
            draws=copy.tensors(held.draws),
            sides=copy.tensors(held.sides),
        ),
        handles=tuple(None if each is None else copy.tensors([each])[0] for each in trace.handles),
    )
