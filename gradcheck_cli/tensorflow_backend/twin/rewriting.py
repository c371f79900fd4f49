"""Copies a traced graph and the functions that it calls; a transform says what becomes of the nodes.

`Widening` makes the float64 twin, `Perturbing` what rounds at random. Here is what both need: the names of
tensors, the functions, the import of the copy, and the traces of it.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2

from gradcheck_cli.tensorflow_backend.graph_path import nodes_before
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import feeds_of
from gradcheck_cli.tensorflow_backend.traces.frozen import Held
from gradcheck_cli.tensorflow_backend.traces.tracing import ForwardTrace, Pullback, VjpTrace

_NUMBERS = itertools.count(1)


@dataclass
class Body:
    """The nodes of a graph, or of a function's body, that are rewritten."""

    nodes: list[Any]
    function: str = ""  # the function's name in the graph that is copied; empty for the graph itself
    copy: str = ""  # its name in the copy
    # by name of a tensor, that of the one that replaces it
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Drop the names of nodes to be placed with, which may be left out."""
        for node in self.nodes:
            node.attr.pop("_class", None)

    def full_name(self, tensor: str) -> str:
        """Return the name of a node's input as outputs are named: in a graph, the first is "node:0"."""
        return tensor if self.function or ":" in tensor else f"{tensor}:0"

    def name_of(self, node: str, slot: str, index: int = 0) -> str:
        """Return the name of an output: its slot counts in a function's body, its index in a graph."""
        return f"{node}:{slot if self.function else index}"


def make_node(name: str, op: str, inputs: Sequence[str], **attrs: Any) -> Any:
    """Return a NodeDef; attrs may be given as dtypes, numbers and arrays."""
    node = node_def_pb2.NodeDef(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        node.attr[key].CopyFrom(_attr_of(value))
    return node


def _attr_of(value: Any) -> Any:
    if isinstance(value, attr_value_pb2.AttrValue):
        return value
    attr = attr_value_pb2.AttrValue()
    if isinstance(value, tf.DType):
        attr.type = value.as_datatype_enum
    elif isinstance(value, bool):
        attr.b = value
    elif isinstance(value, int):
        attr.i = value
    else:
        attr.tensor.CopyFrom(tf.make_tensor_proto(value))
    return attr


def arguments_of(arguments: Any, node: Any) -> list[tuple[str, int]]:
    """Return (slot, dtype) of each tensor among a node's inputs or outputs; a slot is "output:0", say."""
    slots = []
    for argument in arguments:
        if argument.type_list_attr:
            types = list(node.attr[argument.type_list_attr].list.type)
        else:
            count = node.attr[argument.number_attr].i if argument.number_attr else 1
            types = [node.attr[argument.type_attr].type if argument.type_attr else argument.type] * count
        slots += [(f"{argument.name}:{index}", dtype) for index, dtype in enumerate(types)]
    return slots


class Rewriting(ABC):
    """A copy of a graph, to be rewritten.

    Args:
        graph: the traced graph.
        word: ends the names of what is added.
    """

    def __init__(self, graph: Any, word: str) -> None:
        self.graph = graph
        self.captured = {inner.op.name: outer for outer, inner in graph.captures}
        self.graph_def = graph.as_graph_def()
        self.library = {function.signature.name: function for function in self.graph_def.library.function}
        self.suffix = f"_{word}_{next(_NUMBERS)}"
        self.body = Body([node for node in self.graph_def.node if node.name not in self.captured])
        # what functions of the copy call: nothing else keeps it alive
        self.called: list[Any] = [graph]
        self.copies: dict[str, Any] = {}  # the functions that were added, by name
        self._renamed: dict[str, str] = {}

    @abstractmethod
    def rewrite_body(self, body: Body, wanted: Sequence[str]) -> None:
        """Rewrite the nodes of a body, so that its `names` say what replaces some tensors that are wanted."""

    @abstractmethod
    def rewrite_signature(self, function: Any) -> None:
        """Change what a function takes and returns, and its attrs."""

    def definition(self, node: Any) -> Any:
        """Return the definition of a node's op, or the signature of the function that it calls by name."""
        return self.library[node.op].signature if node.op in self.library else private_graphs.op_def(node.op)

    def rename_call(self, node: Any) -> None:
        """Let a node whose op type is the name of a function, as a Defun's is, call the copy."""
        node.op = self.function(node.op)

    def rename(self, attr: Any) -> list[Any]:
        """Let an attr that names functions name their copies, and return the functions' own attrs."""
        kind = attr.WhichOneof("value")
        functions = [attr.func] if kind == "func" else attr.list.func if kind == "list" else []
        for function in functions:
            function.name = self.function(function.name)
        return [inner for function in functions for inner in function.attr.values()]

    def rename_calls(self, node: Any) -> None:
        """Let a node call the copies of functions, which are made the first time."""
        self.rename_call(node)
        for _, attr in sorted(node.attr.items()):  # a map's own order differs from run to run
            self.rename(attr)

    def function(self, name: str) -> str:
        """Return the name of a function's copy, which is made the first time."""
        if name in self._renamed or name not in self.library:
            return self._renamed.get(name, name)
        self._renamed[name] = new_name = f"{name}{self.suffix}"
        self.copies[new_name] = copy = type(self.library[name])()
        copy.CopyFrom(self.library[name])
        copy.signature.name = new_name
        self.rewrite_signature(copy)
        body = Body(list(copy.node_def), name, new_name)
        self.rewrite_body(body, [tensor for _, tensor in sorted(copy.ret.items())])
        _set(copy.node_def, body.nodes)
        for key, tensor in list(copy.ret.items()):  # a map mustn't change while it is read
            copy.ret[key] = body.names.get(tensor, tensor)
        return new_name


def _set(home: Any, messages: Iterable[Any]) -> None:
    """Let a repeated field have some messages, of which some may be its own."""
    copies = [type(each).FromString(each.SerializeToString()) for each in messages]
    del home[:]
    home.extend(copies)


class Rewritten:
    """The copy of a graph, imported, and the tensors in it that replace the graph's own.

    Args:
        rewriting: what was rewritten.
        substitutes: what takes the place of the captured tensors, by their node's name.
        names: by name of a tensor, that of the one that replaces it, if it isn't of the same name.
        wanted: names of all tensors of the copy that are needed; `None`: every node is.
    """

    def __init__(
        self,
        rewriting: Rewriting,
        substitutes: Mapping[str, Any],
        names: Mapping[str, str],
        wanted: Iterable[str] | None = None,
    ) -> None:
        graph_def, nodes = rewriting.graph_def, rewriting.body.nodes
        if wanted is not None:
            needed = nodes_before(wanted, {node.name: node for node in nodes})
            nodes = [node for node in nodes if node.name in needed]
        _set(graph_def.node, nodes)
        library = {**rewriting.library, **rewriting.copies}
        called = private_graphs.functions_called(nodes, library.get)
        originals = {name: rewriting.library[name] for name in called if name in rewriting.library}
        functions = originals | rewriting.copies
        _set(graph_def.library.function, functions.values())
        gradients = [each for each in graph_def.library.gradient if each.gradient_func in functions]
        _set(graph_def.library.gradient, gradients)
        self._names = names
        self.graph, self._captured = private_graphs.import_graph(graph_def, substitutes, rewriting.called)

    def tensor(self, original: Any) -> Any:
        """Return the tensor that replaces one of the traced graph."""
        name = self._names.get(original.name, original.name)
        captured = self._captured.get(name.partition(":")[0])
        if captured is not None:
            return captured
        replacement = self.graph.get_tensor_by_name(name)
        replacement.set_shape(original.shape)
        return replacement

    def tensors(self, originals: Iterable[Any]) -> tuple[Any, ...]:
        """Return the tensors that replace those of the traced graph."""
        return tuple(map(self.tensor, originals))

    def part(self, feeds: Iterable[Any], fetches: Iterable[Any]) -> Any:
        """Return a part of the copy as a function, by tensors of the traced graph."""
        return private_graphs.subgraph_function(self, self.tensors(feeds), self.tensors(fetches))

    def function(self, original: Any) -> Any:
        """Return the form of a function that was made from the traced graph or a part of it."""
        return self.part(feeds_of(original), original.outputs)

    def held(self, held: Held) -> Held:
        """Return what a trace of the graph holds, with the tensors that replace its own."""
        stops, draws, sides = map(self.tensors, (held.stops, held.draws, held.sides))
        return replace(held, stops=stops, draws=draws, sides=sides)

    def forward(self, trace: ForwardTrace) -> ForwardTrace:
        """Return what a trace of the copy would be."""
        return replace(
            trace,
            function=self.part(trace.inputs, trace.outputs),
            inputs=self.tensors(trace.inputs),
            outputs=self.tensors(trace.outputs),
            moving=self.tensors(trace.moving),
            held=self.held(trace.held),
            handles=tuple(None if handle is None else self.tensor(handle) for handle in trace.handles),
        )

    def vjp(self, trace: VjpTrace) -> VjpTrace:
        """Return a vjp that runs in the copy; `whole` is still that of the traced graph."""

        def pull_back(pullback: Pullback) -> Pullback:
            return replace(pullback, function=self.function(pullback.function))

        return replace(
            trace,
            pullbacks={output: pull_back(pullback) for output, pullback in trace.pullbacks.items()},
            joint=None if trace.joint is None else pull_back(trace.joint),
            held=self.held(trace.held),
        )
