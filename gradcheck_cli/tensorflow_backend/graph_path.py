"""What lies between a graph's inputs and its outputs: ops, NumPy functions, variables, stateful ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from gradcheck_cli.reach import reached
from gradcheck_cli.tensorflow_backend import dtypes, op_types
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs, private_state

MARK = "_gradcheck_held"  # attr of an op in a body whose result the op after it holds

# By their numbers in attrs, such as DT_FLOAT.
_BELOW_FLOAT64 = {tf.as_dtype(name).as_datatype_enum: name for name in dtypes.REFERENCE}


def ops_between(inputs: Iterable[Any], outputs: Iterable[Any]) -> list[Any]:
    """Return the ops that depend on any of the inputs and that any of the outputs depends on."""
    after = ops_after(inputs)
    return [op for op in ops_before(outputs) if op in after]


def sharing(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[int]:
    """Return which outputs share an op with another: backpropagation calls its gradient function for both.

    They may share inputs, and ops that hand on what they get.
    """
    moved = moved_by(inputs, (), stops=True)
    owns = [
        {
            op
            for op in ops_before([output])
            if any(id(tensor) in moved for tensor in op.inputs)
            and (op.type != "Identity" or private_graphs.override_of(op.node_def))
        }
        for output in outputs
    ]
    times_met = Counter(op for own in owns for op in own)
    return [index for index, own in enumerate(owns) if any(times_met[op] > 1 for op in own)]


def leads_to(tensor: Any, output: Any, held: Sequence[Any], *, stops: bool = False) -> bool:
    """Whether a tensor moves an output; see `moved_by`."""
    return id(output) in moved_by([tensor], held, stops=stops)


def moved_by(tensors: Sequence[Any], held: Sequence[Any], *, stops: bool = False) -> set[int]:
    """Return the ids of all that tensors move through floating tensors, as far as the graph tells.

    A path through integers or booleans (a comparison, an index), through rounding, or through a held tensor
    has no slope. A path through a `stop_gradient` that isn't held counts if `stops` is true.
    """
    flat = op_types.FLAT - op_types.STOPS if stops else op_types.FLAT
    closed = {id(tensor) for tensor in held}

    def is_open(tensor: Any) -> bool:
        return id(tensor) not in closed and dtypes.is_differentiable(tensor.dtype.base_dtype)

    ops = _ops_moved(tensors, is_open, flat)
    return {id(tensor) for tensor in (*tensors, *outputs_of(ops)) if is_open(tensor)}


def _ops_moved(
    tensors: Iterable[Any], is_open: Callable[[Any], bool], flat: Collection[str] = ()
) -> dict[Any, Any]:
    """Return the ops that depend on tensors, through those that are open and ops that aren't of flat types.

    What an op writes to a variable moves the op that reads it again.
    """

    def users(tensors: Iterable[Any]) -> list[Any]:
        return [op for tensor in tensors if is_open(tensor) for op in tensor.consumers()]

    def moved(ops: Iterable[Any]) -> list[Any]:
        return [op for op in ops if op.type not in flat]

    return reached(
        moved(users(tensors)), lambda op: moved([*users(op.outputs), *private_state.ordered_after(op)])
    )


def values_from(start: Any) -> list[Any]:
    """Return the tensors that hold an input: itself, or what is read from a variable's handle."""
    return outputs_of(start.consumers()) if start.dtype == tf.resource else [start]


def distinct(tensors: Iterable[Any]) -> list[Any]:
    """Return tensors, each once."""
    return list({id(tensor): tensor for tensor in tensors}.values())


def outputs_of(ops: Iterable[Any]) -> list[Any]:
    """Return the tensors that some ops make."""
    return [tensor for op in ops for tensor in op.outputs]


def reaches(tensor: Any, output: Any) -> bool:
    """Whether anything leads from a tensor to an output: also through integers, rounding or a variable.

    `tf.custom_gradient` puts all its results through one `IdentityN`, which connects none of them.
    """

    def onward(tensor: Any) -> list[Any]:
        moved: list[Any] = []
        for op in reached(tensor.consumers(), private_state.ordered_after):
            pairs = zip(op.outputs, op.inputs, strict=False)
            is_split = op.type == "IdentityN"
            moved += [result for result, source in pairs if source is tensor] if is_split else op.outputs
        return moved

    return id(output) in reached([tensor], onward, key=id)


def passes_numpy(tensor: Any, output: Any) -> bool:
    """Whether a tensor moves an output only through NumPy functions without a gradient."""
    closed = [
        output_tensor
        for op in ops_between([tensor], [output])
        if (op.type in op_types.NUMPY_CALLS and not private_graphs.override_of(op.node_def))
        or any(node.op in op_types.NUMPY_CALLS for node in inner_nodes(op))
        for output_tensor in op.outputs
    ]
    return bool(closed) and not leads_to(tensor, output, closed)


def ops_after(inputs: Iterable[Any], held: Iterable[Any] = ()) -> set[Any]:
    """Return the ops that depend on any of the inputs, also through a variable that is read again.

    Args:
        held: tensors that keep their values: nothing depends on an input through them.
    """
    held_ids = {id(tensor) for tensor in held}
    return set(_ops_moved(inputs, lambda tensor: id(tensor) not in held_ids))


def ops_before(outputs: Iterable[Any]) -> list[Any]:
    """Return the ops that any of the outputs depends on, the outputs' own first."""

    def before(op: Any) -> list[Any]:
        return [*(tensor.op for tensor in op.inputs), *private_state.ordered_before(op)]

    return [*reached((tensor.op for tensor in outputs), before)]


def compute_alike(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two graphs compute some tensors of theirs in the same way, op by op.

    A function that is traced again gives its ops the same names again. Loops and branches don't: they have
    bodies of their own in each trace, so that one is like no other.
    """

    def describe(fetches: Sequence[Any]) -> tuple[Any, ...]:
        graph, names = fetches[0].graph, [tensor.name for tensor in fetches]
        needed = nodes_before(names, {node.name: node for node in graph.as_graph_def().node})
        for node in needed.values():
            node.attr.pop("_gradient_op_type", None)  # names a gradient, which is in the graph
        captures = [(id(outer), inner.name) for outer, inner in graph.captures if inner.op.name in needed]
        return names, needed, captures

    return describe(first) == describe(second)


def is_plain(graph: Any) -> bool:
    """Whether a graph neither calls functions or Python, nor has an op with a gradient of its own."""
    definition = graph.as_graph_def()
    return not definition.library.function and not any(
        node.op in op_types.PYTHON_CALLS or private_graphs.override_of(node) for node in definition.node
    )


def nodes_before(tensors: Iterable[str], nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a graph's NodeDefs, by name, that some tensors depend on, by their names."""

    def named(tensors: Iterable[str]) -> list[str]:
        names = (tensor.removeprefix("^").partition(":")[0] for tensor in tensors)
        return [name for name in names if name in nodes]

    return {name: nodes[name] for name in reached(named(tensors), lambda name: named(nodes[name].input))}


_LIBRARIES: WeakKeyDictionary[Any, tuple[int, dict[str, Any]]] = WeakKeyDictionary()


def library_of(graph: Any) -> dict[str, Any]:
    """Return a graph's functions by name; cached, since a GraphDef is the whole graph each time."""
    version, library = _LIBRARIES.get(graph, (-1, {}))
    if version != graph.version:
        library = {function.signature.name: function for function in graph.as_graph_def().library.function}
        _LIBRARIES[graph] = (graph.version, library)
    return library


def inner_nodes(op: Any) -> Iterable[Any]:
    """Yield the NodeDefs in the bodies of the functions that an op calls, nested ones included."""
    for body in functions_called(op).values():
        yield from body.node_def


def types_of(ops: Collection[Any]) -> set[str]:
    """Return the types of some ops, and of those in the bodies of functions that they call."""
    return {op.type for op in ops} | {node.op for op in ops for node in inner_nodes(op)}


def functions_called(op: Any) -> dict[str, Any]:
    """Return the functions of its graph's library that an op calls, and those that they call, by name."""
    if not private_graphs.may_call(op.type):
        return {}
    return private_graphs.functions_called([op.node_def], library_of(op.graph).get)


def ops_met(outputs: Iterable[Any]) -> list[Any]:
    """Return the ops that backpropagation may visit; it steps over custom gradients, and ends at stops."""

    def before(op: Any) -> list[Any]:
        if op.type in op_types.STOPS:
            return []
        return [tensor.op for tensor in list(op.inputs)[private_graphs.custom_gradient_results(op) :]]

    return [*reached((tensor.op for tensor in outputs), before)]


def quantisers(ops: Collection[Any]) -> list[str]:
    """Return the types of ops, also in bodies, that round to whole numbers or to steps of another size."""
    types = {name for name in types_of(ops) if name.startswith(op_types.QUANTISERS)}
    casts = (op for op in ops if op.type == "Cast")
    if any(op.inputs[0].dtype.is_floating and op.outputs[0].dtype.is_integer for op in casts):
        types.add("Cast")
    return sorted(types)


def generator_draws(outputs: Sequence[Any], forward_ops: Iterable[Any]) -> list[str]:
    """Return the types of ops, outside the forward, that draw from a `tf.random.Generator`'s state.

    The state begins at the same value in each run, and a forward's draws that are fed don't advance it: such
    a draw looks like the forward's own. A generator that the gradient itself resets is left out.
    """
    forward = set(forward_ops)
    return sorted(
        {
            name
            for op in set(ops_before(outputs)) - forward
            for name in types_of([op]) & op_types.GENERATOR_DRAWS
            if not any(
                earlier.type == "AssignVariableOp" and earlier not in forward
                for earlier in private_state.ordered_before(op)
            )
        }
    )


def _is_assigned_first(op: Any) -> bool:
    """Whether an op is a reference variable that is read only after the same run has assigned to it."""
    return op.type in op_types.REFERENCE_VARIABLES and all(
        consumer.type == "Assign" for output in op.outputs for consumer in output.consumers()
    )


def gradient_variables(graph: Any, inputs: Iterable[Any], outputs: Iterable[Any]) -> list[Any]:
    """Return the trainable variables with a gradient from a `tf.custom_gradient` that the outputs depend on.

    An argument that variables alone move counts, too: no gradient for an input shows what is returned for it.
    """
    variables: dict[int, Any] = {}
    handles: set[int] = set()
    moved = ops_after(inputs)
    for op in ops_before(outputs):
        custom = (
            private_graphs.custom_gradient_of(op),
            *map(private_graphs.custom_gradient_in, inner_nodes(op)),
        )
        units = [unit for unit in custom if unit is not None and unit.is_stepped_over]
        variables |= {id(variable): variable for unit in units for variable in unit.variables}
        if any(not private_gradients.is_tensorflows(unit.function) for unit in units):
            is_moved = [tensor.op in moved for tensor in op.inputs]
            still = [op.inputs[index] for index in _given_unmoved(graph, op.node_def, is_moved)]
            handles |= {id(tensor) for earlier in ops_before(still) for tensor in earlier.inputs}
            handles |= {id(tensor) for tensor in still}  # a variable that a body reads
    own = {id(outer) for outer, inner in graph.captures if id(inner) in handles}
    variables |= {id(variable): variable for variable in graph.variables if id(variable.handle) in own}
    return [variable for variable in variables.values() if variable.trainable]


def _given_unmoved(graph: Any, node: Any, is_moved: Sequence[bool]) -> set[int]:
    """Return which inputs of a node, all unmoved, a user's custom gradient takes, in bodies too."""
    unit = private_graphs.custom_gradient_in(node)
    if unit is not None:
        return {index for index in range(unit.results, len(is_moved)) if not is_moved[index]}
    arguments: set[int] = set()
    for name in {*private_graphs.function_names(node), node.op} & library_of(graph).keys():
        body = library_of(graph)[name]
        first = len(is_moved) - len(body.signature.input_arg)  # a branch's predicate comes before
        needs = {arg.name: {first + index} for index, arg in enumerate(body.signature.input_arg)}
        for inner in body.node_def:
            own = [needs.get(each.partition(":")[0], set()) for each in inner.input if each[0] != "^"]
            needs[inner.name] = set().union(*own)
            moves = [any(is_moved[index] for index in each) for each in own]
            arguments.update(*(own[index] for index in _given_unmoved(graph, inner, moves)))
    return arguments


def stateful_types(outputs: Sequence[Any], held: Sequence[Any] = ()) -> list[str]:
    """Return the types of stateful ops whose results may vary (random ones) that the outputs depend on.

    Args:
        held: tensors that are fed: the ops that make them don't run.
    """
    ops = private_graphs.ops_run(outputs, held)
    types = {
        name
        for op in ops
        for name in (op.type, *(node.op for node in inner_nodes(op) if MARK not in node.attr))
        if op_types.is_varying(name) and not (name == op.type and _is_assigned_first(op))
    }
    types |= {op.type for op in ops if op.type in op_types.FRACTIONAL and not op.get_attr("deterministic")}
    return sorted(types)


def dtypes_of(ops: Collection[Any]) -> list[str]:
    """Return the dtypes below float64 of ops, and of the functions that they call.

    A float64 reference needs none of them.
    """
    names: set[str] = set()
    flow_ids = _find_flows(ops)
    for op in ops:
        for tensor in (*op.inputs, *op.outputs):
            base = tensor.dtype.base_dtype
            is_low = dtypes.is_differentiable(base) and base.name not in ("float64", "complex128")
            if is_low and id(tensor) not in flow_ids:
                names.add(base.name)
        names |= dtypes_in_attrs(inner_nodes(op))
    return sorted(names)


def dtypes_in_attrs(nodes: Iterable[Any]) -> set[str]:
    """Return the dtypes below float64 that NodeDefs name in their attrs."""
    names: set[str] = set()
    for node in nodes:
        for key in ("T", "dtype", "DstT", "SrcT"):
            attr = node.attr.get(key)
            if attr is not None and attr.type in _BELOW_FLOAT64:
                names.add(_BELOW_FLOAT64[attr.type])
    return names


def _find_flows(ops: Iterable[Any]) -> set[int]:
    """Return the ids of the flows of TensorArrays: float32 scalars that stand for an order, not a value."""
    flows = [
        tensor
        for op in ops
        if op.type.startswith("TensorArray")
        for tensor, definition in zip(
            (*op.inputs, *op.outputs), (*op.op_def.input_arg, *op.op_def.output_arg), strict=True
        )
        if definition.name.startswith("flow")
    ]

    def onward(tensor: Any) -> list[Any]:
        unchanged = outputs_of(op for op in tensor.consumers() if op.type in op_types.UNCHANGED)
        return [output for output in unchanged if output.dtype == tensor.dtype]

    return set(reached(flows, onward, key=id))
