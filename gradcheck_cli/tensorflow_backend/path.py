"""What lies between a graph's inputs and its outputs: op types, dtypes, the override that should be there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes, private
from gradcheck_cli.tensorflow_backend.stand_ins import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck_cli.tensorflow_backend.binding import Override

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BOOKKEEPING = {"Placeholder", "Identity", "IdentityN", "Const", "NoOp", "ReadVariableOp"}
WRITES = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
# Stateful by their OpDef, but the same inputs give the same outputs.
_HARMLESS_STATEFUL = {
    "Placeholder",
    "PyFunc",
    "EagerPyFunc",
    "VarHandleOp",
    "ReadVariableOp",
    "VariableShape",
    "ResourceGather",
    "ResourceGatherNd",
    "StatefulPartitionedCall",
    "While",
    "If",
    "Case",
    "Assert",
    "CheckNumerics",
    "CheckNumericsV2",
    "Print",
    "PrintV2",
    "Empty",
    "DebugIdentityV2",
    # A loop's stacks and TensorArrays of TensorFlow 1 are made anew in each run.
    "StackCloseV2",
    "StackPopV2",
    "StackPushV2",
    "StackV2",
    "TensorArrayCloseV3",
    "TensorArrayConcatV3",
    "TensorArrayGatherV3",
    "TensorArrayGradV3",
    "TensorArrayGradWithShape",
    "TensorArrayReadV3",
    "TensorArrayScatterV3",
    "TensorArraySizeV3",
    "TensorArraySplitV3",
    "TensorArrayV3",
    "TensorArrayWriteV3",
}
_REFERENCE_VARIABLES = {"TemporaryVariable", "Variable", "VariableV2"}
# Their derivative is zero wherever there is one.
FLAT = {
    "Ceil",
    "Floor",
    "OnesLike",
    "Rank",
    "Rint",
    "Round",
    "Shape",
    "ShapeN",
    "Sign",
    "Size",
    "StopGradient",
    "ZerosLike",
}
# They draw their pooling regions at each call, unless they are told not to; their OpDefs don't say so.
_DRAWS_REGIONS = {"FractionalMaxPool", "FractionalAvgPool"}

NUMPY_CALLS = frozenset({"PyFunc", "PyFuncStateless"})  # EagerPyFunc has a gradient, by a tape inside
IMPLICIT_SAMPLERS = {
    "RandomGamma",
    "StatelessParameterizedTruncatedNormal",
    "StatelessRandomGammaV2",
    "StatelessRandomGammaV3",
}


def ops_between(inputs: Iterable[Any], outputs: Iterable[Any]) -> list[Any]:
    """Return the ops that depend on any of the inputs and that any of the outputs depends on."""
    reached = ops_after(inputs)
    return [op for op in ops_before(outputs) if op in reached]


def leads_to(tensor: Any, output: Any, held: Sequence[Any]) -> bool:
    """Whether a tensor moves an output through floating tensors, as far as the graph tells.

    A path through integers or booleans (a comparison, an index), through rounding, or through a tensor that
    is held carries no slope.
    """
    closed = {id(one) for one in held}
    seen: set[Any] = set()
    stack = [tensor]
    while stack:
        reached = stack.pop()
        if reached is output:
            return True
        if id(reached) in closed or not dtypes.is_differentiable(reached.dtype.base_dtype):
            continue
        for op in reached.consumers():
            if op not in seen and op.type not in FLAT:
                seen.add(op)
                stack += op.outputs
    return False


def passes_numpy(graph: Any, tensor: Any, output: Any) -> bool:
    """Whether a NumPy function without a gradient of its own lies between a tensor and an output."""
    for op in ops_between([tensor], [output]):
        if op.type in NUMPY_CALLS and "_gradient_op_type" not in op.node_def.attr:
            return True
        if any(node.op in NUMPY_CALLS for node in inner_nodes(graph, op)):
            return True
    return False


def ops_after(inputs: Iterable[Any]) -> set[Any]:
    """Return the ops that depend on any of the inputs."""
    reached: set[Any] = set()
    stack = [consumer for tensor in inputs for consumer in tensor.consumers()]
    while stack:
        op = stack.pop()
        if op not in reached:
            reached.add(op)
            stack += [consumer for output in op.outputs for consumer in output.consumers()]
    return reached


def ops_before(outputs: Iterable[Any]) -> list[Any]:
    """Return the ops that any of the outputs depends on, the outputs' own first."""
    needed: dict[Any, None] = {}
    stack = [tensor.op for tensor in outputs]
    while stack:
        op = stack.pop()
        if op not in needed:
            needed[op] = None
            stack += [tensor.op for tensor in op.inputs]
    return list(needed)


def function_names(op: Any) -> list[str]:
    """Return the names of the functions that an op calls: a tf.function's body, a loop's, a branch's."""
    names = []
    for attr in op.node_def.attr.values():
        if attr.HasField("func"):
            names.append(attr.func.name)
        names += [function.name for function in attr.list.func]
    return names


_LIBRARIES: WeakKeyDictionary[Any, tuple[int, dict[str, Any]]] = WeakKeyDictionary()


def _library(graph: Any) -> dict[str, Any]:
    """Return a graph's functions by name; kept, since a GraphDef is the whole graph each time."""
    version, library = _LIBRARIES.get(graph, (-1, {}))
    if version != graph.version:
        library = {function.signature.name: function for function in graph.as_graph_def().library.function}
        _LIBRARIES[graph] = (graph.version, library)
    return library


def inner_nodes(graph: Any, op: Any) -> Iterable[Any]:
    """Yield the NodeDefs in the bodies of the functions that an op calls, nested ones included."""
    waiting, seen = function_names(op), set()
    if private.op_def(op.type) is None:  # a Defun's call has the function's name for its type
        waiting.append(op.type)
    if not waiting:
        return
    library = _library(graph)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in library:
            continue
        seen.add(name)
        for node in library[name].node_def:
            yield node
            for attr in node.attr.values():
                if attr.HasField("func"):
                    waiting.append(attr.func.name)
                waiting += [function.name for function in attr.list.func]


def require_override(graph: Any, inputs: Sequence[Any], outputs: Sequence[Any], override: Override) -> None:
    """Make sure that an op between inputs and outputs carries the override.

    `gradient_override_map` never enters a tf.function's body and misses silently where the type is
    another one; TensorFlow's own gradient would be checked in place of the user's.

    Raises:
        CaseFailedError: of kind "override_missed", naming the op types found and the tf.function in the way.
    """
    on_path = ops_between(inputs, outputs)
    for op in on_path:
        attr = op.node_def.attr.get("_gradient_op_type")
        if attr is not None and attr.s.decode() == override.name:
            return
    found = sorted({op.type for op in on_path} - _BOOKKEEPING - set(_CALLS))
    wanted = override.op_types[0]
    message = (
        f"the override of {wanted} took effect on no op between the inputs and the outputs; "
        f"op types found there: {', '.join(found) or 'none'}."
    )
    inside = []
    for op in on_path:
        if op.type in _CALLS or op.type in (
            "While",
            "StatelessWhile",
            "If",
            "StatelessIf",
            "Case",
            "StatelessCase",
        ):
            types = {node.op for node in inner_nodes(graph, op)}
            if types & set(override.op_types):
                inside.append(f"{op.name} ({op.type}, calls {', '.join(function_names(op))})")
    if inside:
        message += (
            f" A {wanted} is inside a tf.function or a loop's or a branch's body, which no override enters: "
            f"{'; '.join(inside)}. Check the Python function without tf.function, or use binding: "
            "custom_gradient."
        )
    elif wanted in found:
        message += (
            f" The {wanted} is made by a tf.function, whose body no override enters: check the Python "
            "function without tf.function, or use binding: custom_gradient."
        )
    elif found:
        near = [name for name in found if wanted.lower() in name.lower() or name.lower() in wanted.lower()]
        remedy = near[0] if near else "one of these"
        message += f" Set op_type to {remedy}."
    raise CaseFailedError("override_missed", message)


def implicit_samplers(graph: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
    """Return the types of samplers on the path whose gradient is no derivative of the draw.

    Their gradient differentiates the distribution implicitly; the draw itself, at a fixed seed, comes from
    accepting and rejecting, and moves otherwise with the parameters.
    """
    on_path = ops_between(inputs, outputs)
    types = {op.type for op in on_path} | {node.op for op in on_path for node in inner_nodes(graph, op)}
    return sorted(types & IMPLICIT_SAMPLERS)


def is_varying(op_type: str) -> bool:
    """Whether an op of this type keeps state of its own, so that its results may vary: a random one.

    A variable is state as well, but it is put back after each call.
    """
    definition = private.op_def(op_type)
    harmless = op_type in _HARMLESS_STATEFUL or op_type in WRITES
    return definition is not None and definition.is_stateful and not harmless


def _is_assigned_first(op: Any) -> bool:
    """Whether an op is a reference variable that nothing reads but what is assigned to it in the same run."""
    return op.type in _REFERENCE_VARIABLES and all(
        consumer.type == "Assign" for output in op.outputs for consumer in output.consumers()
    )


def gradient_variables(graph: Any, outputs: Iterable[Any]) -> list[Any]:
    """Return the variables that a `tf.custom_gradient` among what the outputs depend on has gradients for."""
    found: dict[int, Any] = {}
    for op in ops_before(outputs):
        for node in (op.node_def, *inner_nodes(graph, op)):
            found |= {id(variable): variable for variable in private.custom_gradient_variables(node)}
    return list(found.values())


def stateful_types(graph: Any, outputs: Sequence[Any], held: Sequence[Any] = ()) -> list[str]:
    """Return the types of stateful ops that the outputs depend on and whose results may vary: random ones.

    Args:
        graph: the graph.
        outputs: its outputs.
        held: tensors that are fed: what makes them doesn't run.
    """
    found: set[str] = set()
    stack, seen = [tensor.op for tensor in outputs], {tensor.op for tensor in held}
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        stack += [tensor.op for tensor in op.inputs]
        stack += list(op.control_inputs)
        inner = [node.op for node in inner_nodes(graph, op) if MARK not in node.attr]
        for name in (op.type, *inner):
            if is_varying(name) and not (name == op.type and _is_assigned_first(op)):
                found.add(name)
        if op.type in _DRAWS_REGIONS and not op.get_attr("deterministic"):
            found.add(op.type)
    return sorted(found)
