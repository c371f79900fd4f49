"""A copy of a gradient's graph in which loops, branches and functions also return the sides that bodies take.

Nothing in a body can be fetched. So each body gets one more output, with a number for each side in any body:
1 if an element takes it there, or in an earlier round of a loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2, op_def_pb2

from gradcheck_cli.features.search.branches.graph_branches import BODIES, IN_GRAPH, LOOPS, Body, Watched
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import whole_graph
from gradcheck_cli.tensorflow_backend.twin.widening import arguments_of

_DOUBLE = tf.float64.as_datatype_enum
_COPIES = itertools.count(1)
_NAME = "gradcheck_sides"


@dataclass
class SideGraph:
    """A copy of a graph that also returns the sides."""

    graph: Any  # the copy
    branches: list[Watched]  # the branches in its bodies
    _captured: Mapping[str, Any]

    @staticmethod
    def of(function: Any, whole: Body) -> SideGraph:
        """Copy the graph of a traced function, in which `whole` branches."""
        graph = whole_graph(function)
        captured = {inner.op.name: outer for outer, inner in graph.captures}
        copier = _Copier(graph.as_graph_def(), whole)
        outputs = copier.rewrite(captured)
        copy, inner = private_graphs.import_graph(copier.graph_def, captured, [graph, *copier.side_functions])
        branches = []
        for name, bodies in whole.calls.items():
            tensor = copy.get_tensor_by_name(f"{name}:{outputs[name]}")
            tensor.set_shape([copier.size])
            branches += [
                replace(watched, copied=(tensor, copier.first[id(watched)]))
                for body in bodies
                for watched in body.inside
            ]
        return SideGraph(copy, branches, inner)

    def tensors(self, originals: Iterable[Any]) -> list[Any]:
        """Return the copies of tensors of the original graph; tensors of the copy stay as they are."""
        return [
            original if original.graph is self.graph else self._tensor(original) for original in originals
        ]

    def _tensor(self, original: Any) -> Any:
        captured = self._captured.get(original.op.name)
        return self.graph.get_tensor_by_name(original.name) if captured is None else captured


@dataclass
class _Copier:
    """Rewrites a GraphDef."""

    graph_def: Any
    whole: Body  # what branches in it
    # the functions that compute the sides of each body, kept alive here
    side_functions: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Number the sides."""
        self.library = {function.signature.name: function for function in self.graph_def.library.function}
        self.first: dict[int, int] = {}
        self.size = 0
        for watched in self.whole.inside[len(self.whole.watched) :]:
            self.first[id(watched)] = self.size
            self.size += len(watched.branch.sides)

    def rewrite(self, captured: Mapping[str, Any]) -> dict[str, int]:
        """Let the ops of the graph return their bodies' sides; return the index of this output for each."""
        own_nodes = [node for node in self.graph_def.node if node.name not in captured]
        del self.graph_def.node[:]
        self.graph_def.node.extend(own_nodes)
        return self._extend(self.graph_def.node, self.whole, "")

    def _extend(self, nodes: Any, body: Body, suffix: str) -> dict[str, int]:
        """Let the ops of a body return their own bodies' sides; return the index of this output for each."""
        outputs = {}
        for node in [node for node in nodes if node.name in body.calls]:
            is_loop = node.op in LOOPS
            node.ClearField("experimental_type")
            attrs = [node.attr[attr] for attr in BODIES[node.op]]
            functions = [function for attr in attrs for function in attr.list.func or [attr.func]]
            for function, inner in zip(functions, body.calls[node.name], strict=True):
                function.name = self._copy_with_sides(inner, is_loop=is_loop)
            if is_loop:
                condition = self._copy(node.attr["cond"].func.name)
                condition.signature.input_arg.add(name=f"{_NAME}_before", type=_DOUBLE)
                node.attr["cond"].func.name = condition.signature.name
                start = node_def_pb2.NodeDef(op="Const", name=f"{node.name}/{_NAME}_start")
                start.attr["dtype"].type = _DOUBLE
                start.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.zeros(self.size)))
                nodes.append(start)
                controls = sum(name.startswith("^") for name in node.input)
                node.input.insert(len(node.input) - controls, start.name + suffix)
            types = node.attr["T" if is_loop else "Tout"].list.type
            types.append(_DOUBLE)
            if "output_shapes" in node.attr and node.attr["output_shapes"].list.shape:
                node.attr["output_shapes"].list.shape.add().unknown_rank = True
            outputs[node.name] = len(types) - 1
        return outputs

    def _copy(self, name: str) -> Any:
        function = function_pb2.FunctionDef()
        function.CopyFrom(self.library[name])
        function.signature.name = f"{name}_sides_{next(_COPIES)}"
        self.graph_def.library.function.append(function)
        return self.graph_def.library.function[-1]

    def _copy_with_sides(self, body: Body, *, is_loop: bool) -> str:
        """Return a function that also returns its sides, in a loop with those of rounds before; its name."""
        function = self._copy(body.name)
        _restore_names(function, body)
        fetched = {id(tensor): tensor for watched in body.watched for tensor in watched.fetched}
        inputs = [_tensor_name(tensor, body, function) for tensor in fetched.values()]
        outputs = self._extend(function.node_def, body, ":output:0")
        inputs += [f"{name}:output:{index}" for name, index in outputs.items()]
        if is_loop:
            inputs.append(f"{_NAME}_before")
            function.signature.input_arg.add(name=inputs[-1], type=_DOUBLE)
        call = self._side_function(body, list(fetched.values()), len(inputs) - len(fetched))
        call.input.extend(inputs)
        function.node_def.append(call)
        function.signature.output_arg.add(name=_NAME, type=_DOUBLE)
        function.ret[_NAME] = f"{call.name}:output:0"
        return str(function.signature.name)

    def _side_function(self, body: Body, tensors: Sequence[Any], others: int) -> Any:
        """Return a node that computes the numbers of all sides from a body's tensors and others' numbers."""

        def side_numbers(*values: Any) -> Any:
            by_id = {
                id(tensor): tf.expand_dims(tf.cast(value, tf.float64), 0)
                for tensor, value in zip(tensors, values, strict=False)
            }
            numbers = [tf.zeros(self.size, tf.float64), *values[len(tensors) :]]
            for watched in body.watched:
                sides = [tf.reduce_any(side) for side in watched.sides(by_id, IN_GRAPH)]
                after = self.size - self.first[id(watched)] - len(sides)
                numbers.append(
                    tf.pad(tf.cast(tf.stack(sides), tf.float64), [[self.first[id(watched)], after]])
                )
            return tf.reduce_max(tf.stack(numbers), axis=0)

        signature = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        signature += [tf.TensorSpec([self.size], tf.float64)] * others
        function = tf.function(side_numbers, signature, autograph=False).get_concrete_function()
        self.side_functions.append(function)
        self.graph_def.library.function.add().CopyFrom(function.function_def)
        node = node_def_pb2.NodeDef(op="PartitionedCall", name=f"{_NAME}_told")
        node.attr["f"].func.name = function.function_def.signature.name
        node.attr["Tin"].list.type.extend(spec.dtype.as_datatype_enum for spec in signature)
        node.attr["Tout"].list.type.append(_DOUBLE)
        return node


def _restore_names(function: Any, body: Body) -> None:
    """Give a function's nodes the names that they have in its graph.

    A definition renames a node whose name one of its results has: in a function that was cut out of a graph,
    results are named after nodes.
    """
    arguments = {tensor.op.name for tensor in body.graph.inputs}
    names = [op.name for op in body.graph.get_operations() if op.name not in arguments]
    own_names = [node.name for node in function.node_def]
    if sorted(names) == sorted(own_names):
        return
    renamed = dict(zip(own_names, names, strict=True))  # nodes are in the order of the graph's ops
    for node in function.node_def:
        node.name = renamed[node.name]
        node.input[:] = [_rename(name, renamed) for name in node.input]
    for results in (function.ret, function.control_ret):
        for result, name in list(results.items()):
            results[result] = _rename(name, renamed)


def _rename(name: str, renamed: Mapping[str, str]) -> str:
    mark = "^" if name.startswith("^") else ""
    node, colon, output = name.removeprefix("^").partition(":")
    return f"{mark}{renamed.get(node, node)}{colon}{output}"


def _tensor_name(tensor: Any, body: Body, function: Any) -> str:
    """Return the name of a body's tensor in its function."""
    for index, argument in enumerate(body.graph.inputs):
        if argument is tensor:
            return str(function.signature.input_arg[index].name)
    op = tensor.op
    definition: op_def_pb2.OpDef = private_graphs.op_def(op.type)
    names = arguments_of(definition.output_arg, op.node_def)
    return f"{op.name}:{names[tensor.value_index][0]}"
