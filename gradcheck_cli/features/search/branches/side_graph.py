"""A copy of a gradient's graph in which loops, branches and functions also return the sides that bodies take.

Nothing in a body can be fetched. So each body gets one more output, with a number for each side: 1 if an
element takes it. A loop returns the largest of its rounds; a branch that isn't taken returns zeros.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2, op_def_pb2

from gradcheck_cli.features.search.branches.branch_kinds import CASES, CONDITIONALS, IN_GRAPH, LOOPS
from gradcheck_cli.tensorflow_backend.private import private_graphs, private_twin
from gradcheck_cli.tensorflow_backend.private.private_graphs import whole_graph
from gradcheck_cli.tensorflow_backend.twin.widening import arguments_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradcheck_cli.covered import Branch
    from gradcheck_cli.features.search.branches.graph_branches import Body, Key, Watched

    Array = np.ndarray[Any, Any]

_DOUBLE = tf.float64.as_datatype_enum
_COPIES = itertools.count(1)
_NAME = "gradcheck_sides"


@dataclass(frozen=True)
class InBody:
    """A branch in a body, and where the copy's outputs have its sides."""

    watched: Watched  # the branch
    tensor: Any  # the copy's output with the numbers of all sides in the bodies of an op
    first: int  # the index of this branch's first number

    @property
    def branch(self) -> Branch:
        """The branch, with no side seen."""
        return self.watched.branch

    @property
    def key(self) -> Key:
        """Its name, the same in every trace."""
        return self.watched.key

    @property
    def is_hidden(self) -> bool:
        """Whether no report has its sides; see `Watched`."""
        return self.watched.is_hidden

    def literals(self, _side: int) -> tuple[tuple[Any, bool], ...]:
        """Return nothing: what is inside a body can't be fetched; see `Watched`."""
        return ()

    @property
    def fetched(self) -> tuple[Any, ...]:
        """The tensors that show its sides."""
        return (self.tensor,)

    def sides_taken(self, values: Mapping[int, Array]) -> list[Array]:
        """Return for each side the points at which an element takes it in some round; see `Watched`."""
        sides = range(self.first, self.first + len(self.branch.sides))
        return [values[id(self.tensor)][:, side] > 0 for side in sides]


@dataclass
class SideGraph:
    """A copy of a graph that also returns the sides."""

    graph: Any  # the copy
    branches: list[InBody]  # the branches in its bodies
    _captured: Mapping[str, Any]

    @staticmethod
    def of(function: Any, whole: Body) -> SideGraph:
        """Copy a graph.

        Args:
            function: a traced function.
            whole: the branches in its graph.
        """
        graph = whole_graph(function)
        captured = {inner.op.name: outer for outer, inner in graph.captures}
        copier = _Copier(graph.as_graph_def())
        tensor_names = copier.rewrite(whole, captured)
        copy, inner = private_twin.import_graph(copier.graph_def, captured, [graph, *copier.side_functions])
        branches = []
        for name, tensor_name in tensor_names.items():
            first, bodies, tensor = 0, whole.calls[name], copy.get_tensor_by_name(tensor_name)
            tensor.set_shape([sum(map(_count_numbers, bodies))])
            for watched in (watched for body in bodies for watched in body.inside):
                branches.append(InBody(watched, tensor, first))
                first += len(watched.branch.sides)
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
    # the functions that compute the sides of each body, kept alive here
    side_functions: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the functions in the GraphDef."""
        self.library = {function.signature.name: function for function in self.graph_def.library.function}

    def rewrite(self, whole: Body, captured: Mapping[str, Any]) -> dict[str, str]:
        """Let the ops of the graph return their bodies' sides; return the name of this output for each op."""
        nodes = self.graph_def.node
        own_nodes = [node for node in nodes if node.name not in captured]
        del nodes[:]
        nodes.extend(own_nodes)
        by_name = {node.name: node for node in nodes}
        made: list[Any] = []
        tensor_names = {
            name: f"{name}:{self._return_sides(by_name[name], bodies, made, '')}"
            for name, bodies in whole.calls.items()
        }
        nodes.extend(made)
        return tensor_names

    def _return_sides(self, node: Any, bodies: Sequence[Body], made: list[Any], first: str) -> int:
        """Let an op return its bodies' sides as one more output, and return the number of this output.

        Args:
            node: the op; changed.
            made: further nodes that it needs; added to.
            first: the suffix that names a node's first output here.
        """
        node.ClearField("experimental_type")
        sizes = [_count_numbers(body) for body in bodies]
        for index, body in enumerate(bodies):
            around = sum(sizes[:index]), sum(sizes[index + 1 :])
            name = self._copy_with_sides(body, around, is_loop=node.op in LOOPS)
            if node.op in CASES:
                node.attr["branches"].list.func[index].name = name
            elif node.op in CONDITIONALS:
                node.attr[("then_branch", "else_branch")[index]].func.name = name
            else:
                node.attr["body" if node.op in LOOPS else "f"].func.name = name
        types = node.attr["T" if node.op in LOOPS else "Tout"].list.type
        if node.op in LOOPS:
            node.attr["cond"].func.name = self._with_input(node.attr["cond"].func.name)
            start = _constant(f"{node.name}/{_NAME}_start", sum(sizes))
            made.append(start)
            controls = sum(name.startswith("^") for name in node.input)
            node.input.insert(len(node.input) - controls, start.name + first)
        types.append(_DOUBLE)
        if "output_shapes" in node.attr and node.attr["output_shapes"].list.shape:
            node.attr["output_shapes"].list.shape.add().unknown_rank = True
        return len(types) - 1

    def _copy_with_sides(self, body: Body, around: tuple[int, int], *, is_loop: bool) -> str:
        """Make a function that also returns which sides it takes, and return its name.

        Args:
            body: the branches in the function.
            around: how many numbers belong to the op's earlier bodies, and to its later ones.
            is_loop: whether it is a loop's body, which also takes the numbers of the rounds before.
        """
        function = self._copy(body.name)
        nodes = {node.name: node for node in function.node_def}
        made: list[Any] = []
        results = [self._call_side_function(body, function, made)] if body.watched else []
        for name, bodies in body.calls.items():
            results.append(f"{name}:output:{self._return_sides(nodes[name], bodies, made, ':output:0')}")
        for index, count in enumerate(around):
            if count:
                made.append(_constant(f"{_NAME}_none_{index}", count))
                results.insert(index * len(results), f"{made[-1].name}:output:0")
        result = _concatenate(results, made)
        if is_loop:
            before = function.signature.input_arg.add(name=f"{_NAME}_before", type=_DOUBLE)
            made.append(_node("Maximum", f"{_NAME}_most", [before.name, result], T=_DOUBLE))
            result = f"{_NAME}_most:z:0"
        function.node_def.extend(made)
        function.signature.output_arg.add(name=_NAME, type=_DOUBLE)
        function.ret[_NAME] = result
        return str(function.signature.name)

    def _copy(self, name: str) -> Any:
        function = function_pb2.FunctionDef()
        function.CopyFrom(self.library[name])
        function.signature.name = f"{name}_sides_{next(_COPIES)}"
        added = self.graph_def.library.function.add()
        added.CopyFrom(function)
        return added

    def _with_input(self, name: str) -> str:
        function = self._copy(name)
        function.signature.input_arg.add(name=f"{_NAME}_before", type=_DOUBLE)
        return str(function.signature.name)

    def _call_side_function(self, body: Body, function: Any, made: list[Any]) -> str:
        """Add a call that computes the sides of a body itself, and return the name of its output."""
        tensors = list(
            {id(tensor): tensor for watched in body.watched for tensor in watched.fetched}.values()
        )

        def side_numbers(*values: Any) -> Any:
            by_id = {
                id(tensor): tf.expand_dims(tf.cast(value, tf.float64), 0)
                for tensor, value in zip(tensors, values, strict=True)
            }
            return tf.stack([number for watched in body.watched for number in _side_numbers(watched, by_id)])

        signature = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        side_function = tf.function(side_numbers, signature, autograph=False).get_concrete_function()
        self.side_functions.append(side_function)
        self.graph_def.library.function.add().CopyFrom(side_function.function_def)
        node = _node(
            "PartitionedCall", f"{_NAME}_told", [_tensor_name(tensor, body, function) for tensor in tensors]
        )
        node.attr["f"].func.name = side_function.function_def.signature.name
        node.attr["Tin"].list.type.extend(tensor.dtype.as_datatype_enum for tensor in tensors)
        node.attr["Tout"].list.type.append(_DOUBLE)
        made.append(node)
        return f"{node.name}:output:0"


def _side_numbers(watched: Watched, values: Mapping[int, Any]) -> Iterator[Any]:
    """Yield a number for each side of a branch, in a graph."""
    for elements in watched.sides(values, IN_GRAPH):
        yield tf.cast(tf.reduce_any(elements), tf.float64)


def _count_numbers(body: Body) -> int:
    return sum(len(watched.branch.sides) for watched in body.inside)


def _tensor_name(tensor: Any, body: Body, function: Any) -> str:
    """Return the name of a body's tensor in its function."""
    for index, argument in enumerate(body.graph.inputs):
        if argument is tensor:
            return str(function.signature.input_arg[index].name)
    op = tensor.op
    definition: op_def_pb2.OpDef = private_graphs.op_def(op.type)
    names = arguments_of(definition.output_arg, op.node_def)
    return f"{op.name}:{names[tensor.value_index][0]}"


def _concatenate(results: Sequence[str], made: list[Any]) -> str:
    if len(results) == 1:
        return results[0]
    axis = _node("Const", f"{_NAME}_axis", [], dtype=tf.int32.as_datatype_enum)
    axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, tf.int32))
    node = _node("ConcatV2", f"{_NAME}_joined", [*results, f"{axis.name}:output:0"], T=_DOUBLE)
    node.attr["N"].i = len(results)
    node.attr["Tidx"].type = tf.int32.as_datatype_enum
    made += [axis, node]
    return f"{node.name}:output:0"


def _constant(name: str, count: int) -> Any:
    """Return a node with the numbers of sides that aren't taken."""
    node = _node("Const", name, [], dtype=_DOUBLE)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.zeros(count)))
    return node


def _node(op_type: str, name: str, inputs: Sequence[str], **types: int) -> Any:
    node = node_def_pb2.NodeDef(op=op_type, name=name, input=inputs)
    for key, dtype in types.items():
        node.attr[key].type = dtype
    return node
