"""Rewrites a GraphDef so that it computes in float64 and complex128 what it computed in narrower dtypes.

It can also rewrite the kinked ops so that the side that each element takes can be held. `relu(x)` becomes
`x * side` with `side = x > 0`; of a comparison or an argmax, the result itself is held. While the sides keep
their values from one point, the graph is the smooth piece that this point is on: the same function around the
point, unless the point is on a kink, and a smooth one farther away. Elements on a kink itself are put on the
side that TensorFlow's own gradient takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.numerics.precision import precision_of
from gradcheck_cli.tensorflow_backend.dtypes import REFERENCE, as_list
from gradcheck_cli.tensorflow_backend.op_types import NUMPY_CALLS
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.twin.grouped import without_groups
from gradcheck_cli.tensorflow_backend.twin.rewriting import Body, Rewriting, arguments_of, make_node

_WIDE: dict[int, int] = {
    tf.as_dtype(narrow).as_datatype_enum: tf.as_dtype(wide).as_datatype_enum
    for narrow, wide in REFERENCE.items()
}
# The same for TensorFlow 1's variables: a reference's dtype number is its dtype's plus a hundred.
_WIDE |= {100 + narrow: 100 + wide for narrow, wide in _WIDE.items()}
# These keep their dtypes: ops that depend on a number's bits; ops that read numbers stored elsewhere with
# their own dtype (text, files, tables, queues); and stateless draws, which would differ.
_KEEP = re.compile(
    r"Bitcast|NextAfter|Decode\w+|Parse\w+|StringToNumber|Restore\w*|EagerPyFunc|(Quantiz|Dequantiz)\w*"
    r"|Stateless(Multinomial|Parameterized|Random|Truncated)\w*|Lookup\w+|Mutable\w+|\w*HashTable\w*"
    r"|\w*Dataset\w*|\w*Iterator\w*|\w*Queue\w*|Optional\w+|(Ordered)?Map(Stage|Unstage|Peek)\w*|Barrier\w*"
)


def unit_of(dtype: Any) -> float:
    """Return the unit roundoff of a real dtype below float64; 0 of others."""
    narrow = tf.as_dtype(dtype)
    is_narrow = narrow.as_datatype_enum in _WIDE and narrow.is_floating
    return precision_of(narrow.name).unit_roundoff if is_narrow else 0.0


def wide_dtype(dtype: Any) -> Any:
    """Return the dtype that replaces one in a twin: itself, or float64 or complex128."""
    return tf.as_dtype(_WIDE.get(dtype.as_datatype_enum, dtype.as_datatype_enum))


@dataclass(frozen=True)
class NarrowOp:
    """An op that keeps its dtypes, with casts around it."""

    op_type: str
    name: str  # its node's name
    function: str  # the function in whose body it is, by its new name; empty for the graph itself
    dtypes: frozenset[str]  # its dtypes below float64
    numpy: NumpyCall | None = None  # for a NumPy function, its `NumpyCall`

    @property
    def is_narrow(self) -> bool:
        """Whether it keeps its dtypes; for a NumPy function only a call shows this."""
        return self.numpy is None or self.numpy.is_narrow


@dataclass
class NumpyCall:
    """Calls a NumPy function with float64 arrays, if it takes and returns such."""

    function: Callable[..., Any]
    argument_dtypes: Sequence[Any]  # dtypes of its arguments in the graph that was traced
    result_dtypes: Sequence[Any]
    # whether it refused float64 or returned less, so that it gets the dtypes it was written for
    is_narrow: bool = False

    def __call__(self, *arrays: Any) -> list[Any]:
        """Call the function, and return its results in the dtypes of the twin."""
        if not self.is_narrow:
            try:
                results = as_list(self.function(*arrays))
            except Exception:  # noqa: BLE001 (a user's code, which was written for another dtype)
                self.is_narrow = True
            else:
                pairs = zip(results, self.result_dtypes, strict=True)
                self.is_narrow = any(
                    np.asarray(result).dtype != wide_dtype(dtype).as_numpy_dtype
                    for result, dtype in pairs
                    if wide_dtype(dtype) != dtype
                )
                if not self.is_narrow:
                    return results
        narrow = [
            np.asarray(array, dtype.as_numpy_dtype) if wide_dtype(dtype) != dtype else array
            for array, dtype in zip(arrays, self.argument_dtypes, strict=True)
        ]
        results = as_list(self.function(*narrow))
        return [
            np.asarray(result, wide_dtype(dtype).as_numpy_dtype) if wide_dtype(dtype) != dtype else result
            for result, dtype in zip(results, self.result_dtypes, strict=True)
        ]


class Widening(Rewriting):
    """A copy of a graph that computes in float64 and complex128.

    Args:
        graph: the traced graph.
        replaced: the functions that PyFuncs call instead of their own, by token.
        largest_unit: what rounds by more is a fault: such casts stay.
        own_casts: casts of the graph itself that stay, though they round by less.
        has_sides: rewrite the kinked ops of the graph itself, so that the side of each element can be held.

    Attributes:
        units: the unit roundoff of constants and of reads of variables that were narrower, by function of the
            copy and node.
        narrow_ops: the ops that keep their dtypes.
        sides: the names of two tensors for each side: the side that a point takes, and the tensor to hold.
    """

    def __init__(
        self,
        graph: Any,
        replaced: Mapping[str, Callable[..., Any]],
        largest_unit: float = math.inf,
        own_casts: Collection[str] = (),
        *,
        has_sides: bool = False,
    ) -> None:
        super().__init__(graph, "float64")
        self._replaced, self._largest_unit, self._own_casts = replaced, largest_unit, own_casts
        self._has_sides = has_sides
        self._not_compiled: set[str] = set()  # functions of the copy that XLA would make slow
        self._calls: dict[str, tuple[str, Any]] = {}  # by token: the new one, its function
        self.units: dict[tuple[str, str], float] = {}
        self.narrow_ops: list[NarrowOp] = []
        self.sides: list[tuple[str, str]] = []
        self.rewrite_body(self.body, ())
        self.body.nodes = [each for node in self.body.nodes for each in self._resolve(node)]
        self.called += [function for _, function in self._calls.values()]
        for gradient in self.graph_def.library.gradient:
            gradient.function_name = self.function(gradient.function_name)
            gradient.gradient_func = self.function(gradient.gradient_func)

    def rewrite_signature(self, function: Any) -> None:
        """Widen what a function takes and returns."""
        signature = function.signature
        for argument in (*signature.input_arg, *signature.output_arg):
            argument.type = _WIDE.get(argument.type, argument.type)
            argument.ClearField("experimental_full_type")
            for data in argument.handle_data:
                data.dtype = _WIDE.get(data.dtype, data.dtype)
        for attrs in (function.attr, *(arg.attr for arg in function.arg_attr.values())):
            for attr in attrs.values():
                self._widen_attr(attr)

    def rewrite_body(self, body: Body, wanted: Sequence[str]) -> None:
        """Widen all nodes, with casts around those that keep their dtypes."""
        del wanted  # any tensor of the twin may be asked for
        before: list[Any] = []
        after: list[Any] = []
        for node in body.nodes:
            self._separate_groups(node, body)
            casts = self._widen_node(node, body)
            for index, (name, inside, outside) in casts.inputs.items():
                cast = _cast(f"{node.name}_in{index}{self.suffix}", name, outside, inside)
                node.input[index] = body.name_of(cast.name, "y:0")
                before.append(cast)
            for index, (name, inside, outside) in casts.outputs.items():
                cast = _cast(f"{node.name}_out{index}{self.suffix}", name, inside, outside)
                body.names[name] = body.name_of(cast.name, "y:0")
                after.append(cast)
        for node in (*body.nodes, *before):
            for index, name in enumerate(node.input):
                node.input[index] = body.names.get(body.full_name(name), name)
        body.nodes += [*before, *after]

    def _resolve(self, node: Any) -> list[Any]:
        """Return the nodes for a node of the graph itself: its own, or some that can be fed or held."""
        rewrite = _READS.get(node.op)
        if rewrite is None and self._has_sides and _is_kinked(node):
            rewrite = PIECES[node.op]
        if rewrite is None:
            return [node]
        nodes = _Nodes(node)
        rewrite(nodes)
        full_name = self.body.full_name
        self.sides += [(full_name(side), full_name(to_hold)) for side, to_hold in nodes.sides]
        return nodes.new_nodes

    def _separate_groups(self, node: Any, body: Body) -> None:
        """Let a convolution in groups be a call of what computes the same, and isn't compiled by XLA."""
        op = private_graphs.op_of_body(self.graph, body.function, node.name) if "Conv2D" in node.op else None
        if op is None or (function := without_groups(op)) is None:
            return
        definition = function.function_def
        types = [tf.as_dtype(tensor.dtype).as_datatype_enum for tensor in function.inputs]
        self.called.append(function)
        self.copies[definition.signature.name] = definition
        self._not_compiled.add(body.copy)
        node.op = "PartitionedCall"
        node.attr.clear()
        node.attr["f"].func.name = definition.signature.name
        node.attr["Tin"].list.type.extend(types)
        node.attr["Tout"].list.type.append(_DOUBLE)

    def _widen_node(self, node: Any, body: Body) -> _Casts:
        node.ClearField("experimental_type")
        if node.op in ("Const", "ReadVariableOp"):
            self.note_unit(body.copy, node.name, node.attr["dtype"].type)
        if node.op == "VarHandleOp":  # one of the same name exists, of the narrow dtype
            name = node.attr["shared_name"].s.decode() or node.name
            node.attr["shared_name"].s = f"{name}{self.suffix}".encode()
        definition = private_graphs.op_def(node.op)
        if definition is None:
            self.rename_call(node)
            for attr in node.attr.values():
                self._widen_attr(attr)
            return _Casts()
        inputs, outputs = arguments_of(definition.input_arg, node), arguments_of(definition.output_arg, node)
        numpy = self._redirect_call(node, inputs, outputs) if node.op in NUMPY_CALLS else None
        is_rounding = (node.op == "Cast" and unit_of(node.attr["DstT"].type) > self._largest_unit) or (
            not body.function and node.name in self._own_casts
        )
        is_kept = is_rounding or _KEEP.fullmatch(node.op) or not self._has_kernel(node, definition)
        for attr in node.attr.values():
            self._widen_attr(attr, only_functions=bool(is_kept))
        tensors = [body.name_of(node.name, slot, index) for index, (slot, _) in enumerate(outputs)]
        if not self._not_compiled.isdisjoint(private_graphs.function_names(node)):
            node.attr.pop("_XlaMustCompile", None)
            self._not_compiled.add(body.copy)
        casts = _Casts(
            _find_casts(list(node.input), inputs, arguments_of(definition.input_arg, node)),
            _find_casts(tensors, outputs, arguments_of(definition.output_arg, node)),
        )
        narrow = {inside for _, inside, _ in (*casts.inputs.values(), *casts.outputs.values())}
        if numpy is not None:
            narrow = {dtype for _, dtype in (*inputs, *outputs) if dtype in _WIDE}
        # The float of a TensorArray is a flow, which carries no number.
        if narrow and not is_rounding and not node.op.startswith("TensorArray"):
            dtypes = frozenset(tf.as_dtype(dtype).name for dtype in narrow)
            self.narrow_ops.append(NarrowOp(node.op, node.name, body.copy, dtypes, numpy))
        return casts

    def note_unit(self, function: str, name: str, dtype: int) -> None:
        """Note to what a number was rounded, unless that is the gradient's own doing; see `units`."""
        if 0 < (unit := unit_of(dtype)) <= self._largest_unit:
            self.units[function, name] = unit

    def _has_kernel(self, node: Any, definition: Any) -> bool:
        """Whether a kernel takes a node with its dtypes widened."""
        wanted: dict[str, set[int]] = {}
        for attr in definition.attr:
            if attr.type in {"type", "list(type)"} and attr.name in node.attr:
                value = node.attr[attr.name]
                types = {value.type} if attr.type == "type" else set(value.list.type)
                wanted[attr.name] = {_WIDE.get(dtype, dtype) for dtype in types}
                allowed = set(attr.allowed_values.list.type)
                if types & _WIDE.keys() and allowed and not wanted[attr.name] <= allowed:
                    return False
        kernels = private_graphs.kernel_constraints(node.op)
        return not kernels or any(
            all(types <= kernel[name] for name, types in wanted.items() if kernel.get(name))
            for kernel in kernels
        )

    def _redirect_call(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> NumpyCall | None:
        """Let a PyFunc call its function in the twin, under its own token."""
        token = node.attr["token"].s.decode()
        if token not in self._calls:
            function = self._replaced.get(token)
            if function is None:
                original = private_graphs.numpy_function(token)
                if original is None:
                    return None
                function = NumpyCall(
                    original,
                    [tf.as_dtype(dtype) for _, dtype in inputs],
                    [tf.as_dtype(dtype) for _, dtype in outputs],
                )
            self._calls[token] = (private_graphs.register_numpy_function(function), function)
        new_token, function = self._calls[token]
        node.attr["token"].s = new_token.encode()
        return function if isinstance(function, NumpyCall) else None

    def _widen_attr(self, attr: Any, *, only_functions: bool = False) -> None:
        """Let an attr name wide dtypes, and the functions that it names be those of the copy."""
        for inner in self.rename(attr):
            self._widen_attr(inner)
        kind = attr.WhichOneof("value")
        if kind == "s":
            text = attr.s.decode("latin1")  # any bytes: it may not be text
            if text in self.library:
                attr.s = self.function(text).encode()
        elif kind == "type" and not only_functions:
            attr.type = _WIDE.get(attr.type, attr.type)
        elif kind == "list" and not only_functions:
            for index, dtype in enumerate(attr.list.type):
                attr.list.type[index] = _WIDE.get(dtype, dtype)
        elif kind == "tensor" and not only_functions and attr.tensor.dtype in _WIDE:
            value = tf.make_ndarray(attr.tensor)
            wide = tf.as_dtype(_WIDE[attr.tensor.dtype])
            attr.tensor.CopyFrom(tf.make_tensor_proto(value.astype(wide.as_numpy_dtype), wide, value.shape))


@dataclass
class _Casts:
    """The casts around a node, by index of its input or output: (tensor, dtype inside, dtype outside)."""

    inputs: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    outputs: dict[int, tuple[str, int, int]] = field(default_factory=dict)


def _find_casts(
    tensors: Sequence[str], were: Sequence[tuple[str, int]], now: Sequence[tuple[str, int]]
) -> dict[int, tuple[str, int, int]]:
    """Return where a node's dtypes differ from those of a wide graph; see `_Casts`."""
    pairs = zip(tensors, were, now, strict=False)  # control inputs come last
    return {
        index: (tensor, inside, _WIDE[was])
        for index, (tensor, (_, was), (_, inside)) in enumerate(pairs)
        if _WIDE.get(was, was) != inside
    }


def _cast(name: str, tensor: str, source: int, target: int) -> Any:
    return make_node(
        name, "Cast", [tensor], SrcT=tf.as_dtype(source), DstT=tf.as_dtype(target), Truncate=False
    )


_DOUBLE = tf.float64.as_datatype_enum


class _Nodes:
    """Nodes that replace one kinked op; the last one has its name."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.inputs = [name for name in node.input if not name.startswith("^")]
        self.control_inputs = [name for name in node.input if name.startswith("^")]
        self.new_nodes: list[Any] = []
        self.sides: list[tuple[str, str]] = []

    def add(self, op: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        """Add a node, and return the name of its output."""
        name = name or f"{self.node.name}_piece{len(self.new_nodes)}"
        new_node = make_node(name, op, [*inputs, *self.control_inputs], **attrs)
        new_node.device = self.node.device
        self.new_nodes.append(new_node)
        return str(new_node.name)

    def finish(self, op: str, *inputs: str, **attrs: Any) -> None:
        """Add the node that returns what the op returned."""
        self.add(op, *inputs, name=self.node.name, T=tf.float64, **attrs)

    def constant(self, value: Any, dtype: Any = tf.float64) -> str:
        """Add a constant."""
        return self.add("Const", dtype=dtype, value=np.array(value, dtype.as_numpy_dtype))

    def hold(self, side: str, dtype: Any) -> str:
        """Add a node whose output can be held in place of a side, and return its name."""
        to_hold = self.add("Identity", side, T=dtype)
        self.sides.append((side, to_hold))
        return to_hold

    def compare(self, op: str, first: str, second: str) -> str:
        """Add a comparison that can be held."""
        return self.hold(self.add(op, first, second, T=tf.float64), tf.bool)

    def mask(self, value: str, mask: str) -> str:
        """Add a value where a mask is true, and 0 elsewhere; NaN stays NaN."""
        factor = self.add("Cast", mask, SrcT=tf.bool, DstT=tf.float64)
        return self.add("Mul", value, factor, T=tf.float64)


def _relu(nodes: _Nodes) -> None:
    mask = nodes.compare("Greater", nodes.inputs[0], nodes.constant(0.0))
    nodes.finish("Mul", nodes.inputs[0], nodes.add("Cast", mask, SrcT=tf.bool, DstT=tf.float64))


def _relu6(nodes: _Nodes) -> None:
    x, six = nodes.inputs[0], nodes.constant(6.0)
    inside = nodes.mask(x, nodes.compare("Greater", x, nodes.constant(0.0)))
    nodes.finish("SelectV2", nodes.compare("GreaterEqual", x, six), six, inside)


def _leaky_relu(nodes: _Nodes) -> None:
    x = nodes.inputs[0]
    lower = nodes.add("Mul", x, nodes.constant(nodes.node.attr["alpha"].f), T=tf.float64)
    nodes.finish("SelectV2", nodes.compare("Greater", x, nodes.constant(0.0)), x, lower)


def _abs(nodes: _Nodes) -> None:
    x = nodes.inputs[0]
    nodes.finish("Mul", x, nodes.hold(nodes.add("Sign", x, T=tf.float64), tf.float64))


def _extreme(nodes: _Nodes, comparison: str) -> None:
    first, second = nodes.inputs
    nodes.finish("SelectV2", nodes.compare(comparison, first, second), first, second)


def _max_pool(nodes: _Nodes) -> None:
    """Take each window's largest element by its position in the tensor, which is held."""
    attr = nodes.node.attr
    pooled = nodes.add(
        "MaxPoolWithArgmax",
        nodes.inputs[0],
        T=tf.float64,
        Targmax=tf.int64,
        include_batch_in_index=True,
        **{name: attr[name] for name in ("ksize", "strides", "padding")},
    )
    places = nodes.hold(f"{pooled}:1", tf.int64)
    whole = nodes.constant([-1], tf.int32)
    flat = nodes.add("Reshape", nodes.inputs[0], whole, T=tf.float64, Tshape=tf.int32)
    nodes.add(
        "GatherV2",
        flat,
        places,
        nodes.constant(0, tf.int32),
        name=nodes.node.name,
        Tparams=tf.float64,
        Tindices=tf.int64,
        Taxis=tf.int32,
    )


def _choice(nodes: _Nodes, dtype: Any = tf.bool) -> None:
    """Hold the result of an op that isn't a number but a choice: of a side, or of an index."""
    attr = nodes.node.attr
    result_type = attr.get("output_type", dtype)
    chosen = nodes.add(nodes.node.op, *nodes.inputs, **attr)
    nodes.add("Identity", chosen, name=nodes.node.name, T=result_type)
    nodes.sides.append((chosen, nodes.node.name))


# How each kinked op is rewritten.
PIECES: dict[str, Callable[[_Nodes], None]] = {
    "Relu": _relu,
    "Relu6": _relu6,
    "LeakyRelu": _leaky_relu,
    "Abs": _abs,
    "Maximum": partial(_extreme, comparison="GreaterEqual"),
    "Minimum": partial(_extreme, comparison="LessEqual"),
    "MaxPool": _max_pool,
    **dict.fromkeys(("Greater", "GreaterEqual", "Less", "LessEqual"), _choice),
    **dict.fromkeys(("ArgMax", "ArgMin"), partial(_choice, dtype=tf.int64)),
}


def _read_first(nodes: _Nodes) -> None:
    """Gather from a variable's value instead of from the variable, so that other values can be fed for it."""
    attr, (variable, indices) = nodes.node.attr, nodes.inputs
    value = nodes.add("ReadVariableOp", variable, dtype=attr["dtype"])
    attrs = {"name": nodes.node.name, "Tparams": attr["dtype"], "Tindices": attr["Tindices"]}
    if nodes.node.op == "ResourceGatherNd":
        nodes.add("GatherNd", value, indices, **attrs)
    else:
        axis = nodes.constant(attr["batch_dims"].i, tf.int32)
        attrs |= {"Taxis": tf.int32, "batch_dims": attr["batch_dims"]}
        nodes.add("GatherV2", value, indices, axis, **attrs)


_READS: dict[str, Callable[[_Nodes], None]] = {
    "ResourceGather": _read_first,
    "ResourceGatherNd": _read_first,
}


def _is_kinked(node: Any) -> bool:
    """Whether a node is a kinked float64 op; a pooling needs a layout that `MaxPoolWithArgmax` takes."""
    attr, has_layout = node.attr, True
    if node.op == "MaxPool":
        has_layout = attr["data_format"].s in (b"", b"NHWC") and attr["padding"].s in (b"SAME", b"VALID")
    return bool(has_layout and node.op in PIECES and attr["T"].type == _DOUBLE)
