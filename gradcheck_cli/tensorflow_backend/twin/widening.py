"""Rewrites a GraphDef so that it computes in float64 and complex128 what it computed in narrower dtypes.

It can also rewrite the kinked ops so that the side that each element takes can be held. `relu(x)` becomes
`x * side` with `side = x > 0`; of a comparison or an argmax, the result itself is held. While the sides keep
their values from one point, the graph is the smooth piece that this point is on: the same function around the
point, unless the point is on a kink, and a smooth one farther away. Elements on a kink itself are put on the
side that TensorFlow's own gradient takes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2

from gradcheck_cli.numerics.precision import precision_of
from gradcheck_cli.tensorflow_backend.dtypes import REFERENCE, as_list
from gradcheck_cli.tensorflow_backend.graph_path import NUMPY_CALLS
from gradcheck_cli.tensorflow_backend.private import private_graphs

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
_NUMBERS = itertools.count(1)


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


@dataclass
class Widening:
    """A GraphDef, widened in place."""

    graph_def: Any
    left_out: Collection[str]  # names of nodes to remove, since something else replaces them
    # the functions that PyFuncs call instead of their own, by token
    replaced: Mapping[str, Callable[..., Any]]
    largest_unit: float = math.inf  # what rounds by more is a fault: such casts stay
    own_casts: Collection[str] = ()  # casts of the graph itself that stay, though they round by less
    # the unit roundoff of constants and of reads of variables that were narrower, by function and node
    units: dict[tuple[str, str], float] = field(default_factory=dict)
    narrow_ops: list[NarrowOp] = field(default_factory=list)  # the ops that keep their dtypes
    _cast_names: dict[str, str] = field(default_factory=dict)
    _calls: dict[str, tuple[str, Any]] = field(default_factory=dict)  # by token: the new one, its function
    _suffix: str = field(default_factory=lambda: f"_float64_{next(_NUMBERS)}")

    def __post_init__(self) -> None:
        library = self.graph_def.library
        names = [function.signature.name for function in library.function]
        self._names = {name: name + self._suffix for name in names}
        nodes = [node for node in self.graph_def.node if node.name not in self.left_out]
        made, self._cast_names = self._widen(nodes, "")
        del self.graph_def.node[:]
        self.graph_def.node.extend([*nodes, *made])
        for function in library.function:
            self._widen_function(function)
        for gradient in library.gradient:
            gradient.function_name = self._names.get(gradient.function_name, gradient.function_name)
            gradient.gradient_func = self._names.get(gradient.gradient_func, gradient.gradient_func)

    @property
    def called(self) -> list[Any]:
        """The functions that its PyFuncs call: nothing else keeps them alive."""
        return [function for _, function in self._calls.values()]

    def replacement_of(self, tensor: str) -> str:
        """Return the name of the tensor that replaces a traced one: its own, or that of the cast after it."""
        return self._cast_names.get(tensor, tensor)

    def _widen_function(self, function: Any) -> None:
        signature = function.signature
        signature.name = self._names[signature.name]
        for argument in (*signature.input_arg, *signature.output_arg):
            argument.type = _WIDE.get(argument.type, argument.type)
            argument.ClearField("experimental_full_type")
            for data in argument.handle_data:
                data.dtype = _WIDE.get(data.dtype, data.dtype)
        for attrs in (function.attr, *(arg.attr for arg in function.arg_attr.values())):
            for attr in attrs.values():
                self._widen_attr(attr)
        nodes = list(function.node_def)
        made, cast_names = self._widen(nodes, signature.name)
        function.node_def.extend(made)
        for name, tensor in function.ret.items():
            function.ret[name] = cast_names.get(tensor, tensor)

    def _widen(self, nodes: Sequence[Any], function: str) -> tuple[list[Any], dict[str, str]]:
        """Widen nodes; return the casts to add, and the names of the tensors that these replace."""
        before: list[Any] = []
        after: list[Any] = []
        cast_names: dict[str, str] = {}
        for node in nodes:
            casts = self._widen_node(node, function)
            for index, (name, inside, outside) in casts.inputs.items():
                cast = _cast(f"{node.name}_in{index}{self._suffix}", name, outside, inside)
                node.input[index] = _cast_output(cast.name, function)
                before.append(cast)
            for index, (name, inside, outside) in casts.outputs.items():
                cast = _cast(f"{node.name}_out{index}{self._suffix}", name, inside, outside)
                cast_names[name] = _cast_output(cast.name, function)
                if name.endswith(":0") and not function:
                    cast_names[name.removesuffix(":0")] = cast_names[name]
                after.append(cast)
        for node in (*nodes, *before):
            for index, name in enumerate(node.input):
                if name in cast_names:
                    node.input[index] = cast_names[name]
        return [*before, *after], cast_names

    def _widen_node(self, node: Any, function: str) -> _Casts:
        node.ClearField("experimental_type")
        node.attr.pop("_class", None)  # names a node to be placed with, which may be one that is left out
        self._note_unit(node, function)
        if node.op == "VarHandleOp":  # one of the same name exists, of the narrow dtype
            name = node.attr["shared_name"].s.decode() or node.name
            node.attr["shared_name"].s = f"{name}{self._suffix}".encode()
        definition = private_graphs.op_def(node.op)
        if definition is None:  # the op type of a Defun's call is the function's name
            node.op = self._names.get(node.op, node.op)
            for attr in node.attr.values():
                self._widen_attr(attr)
            return _Casts()
        inputs, outputs = arguments_of(definition.input_arg, node), arguments_of(definition.output_arg, node)
        numpy = self._redirect_call(node, inputs, outputs) if node.op in NUMPY_CALLS else None
        is_rounding = (node.op == "Cast" and unit_of(node.attr["DstT"].type) > self.largest_unit) or (
            not function and node.name in self.own_casts
        )
        if not (is_rounding or _KEEP.fullmatch(node.op)) and self._has_kernel(node, definition):
            for attr in node.attr.values():
                self._widen_attr(attr)
        else:
            for attr in node.attr.values():
                self._rename(attr)
        tensors = [f"{node.name}:{slot if function else index}" for index, (slot, _) in enumerate(outputs)]
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
            self.narrow_ops.append(NarrowOp(node.op, node.name, function, dtypes, numpy))
        return casts

    def _note_unit(self, node: Any, function: str) -> None:
        """Note to what a constant, or a variable that is read, was rounded; see `units`."""
        if node.op in ("Const", "ReadVariableOp"):
            self.note_unit(function, node.name, node.attr["dtype"].type)

    def note_unit(self, function: str, name: str, dtype: int) -> None:
        """Note to what a number was rounded, unless that is the gradient's own doing; see `units`."""
        if 0 < (unit := unit_of(dtype)) <= self.largest_unit:
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
            function = self.replaced.get(token)
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

    def _widen_attr(self, attr: Any) -> None:
        self._rename(attr)
        kind = attr.WhichOneof("value")
        if kind == "type":
            attr.type = _WIDE.get(attr.type, attr.type)
        elif kind == "list":
            for index, dtype in enumerate(attr.list.type):
                attr.list.type[index] = _WIDE.get(dtype, dtype)
        elif kind == "tensor" and attr.tensor.dtype in _WIDE:
            value = tf.make_ndarray(attr.tensor)
            wide = tf.as_dtype(_WIDE[attr.tensor.dtype])
            attr.tensor.CopyFrom(tf.make_tensor_proto(value.astype(wide.as_numpy_dtype), wide, value.shape))

    def _rename(self, attr: Any) -> None:
        """Let an attr that names a function name its twin."""
        kind = attr.WhichOneof("value")
        functions = [attr.func] if kind == "func" else attr.list.func if kind == "list" else []
        for function in functions:
            function.name = self._names.get(function.name, function.name)
            for inner in function.attr.values():
                self._widen_attr(inner)
        if kind == "s":
            text = attr.s.decode("latin1")  # any bytes: it may not be text
            if text in self._names:
                attr.s = self._names[text].encode()


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


def read_before_gathering(graph_def: Any) -> None:
    """Let ops that gather from a variable gather from its value, so that other values can be fed for it."""
    made = []
    for node in graph_def.node:
        gather = {"ResourceGather": "GatherV2", "ResourceGatherNd": "GatherNd"}.get(node.op)
        if gather is None:
            continue
        dtype, indices = node.attr["dtype"], node.attr["Tindices"]
        variable, *rest = node.input
        after = [name for name in rest if name.startswith("^")]
        value = node_def_pb2.NodeDef(name=f"{node.name}_value", op="ReadVariableOp", input=[variable, *after])
        value.attr["dtype"].CopyFrom(dtype)
        made.append(value)
        attrs = {"Tparams": dtype, "Tindices": indices}
        if gather == "GatherV2":
            batch_dims = node.attr["batch_dims"].i
            axis = node_def_pb2.NodeDef(name=f"{node.name}_axis", op="Const")
            axis.attr["dtype"].type = tf.int32.as_datatype_enum
            axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(batch_dims, tf.int32))
            made.append(axis)
            rest.insert(1, axis.name)
            whole = attr_value_pb2.AttrValue(i=batch_dims)
            attrs |= {"Taxis": axis.attr["dtype"], "batch_dims": whole}
        replacement = node_def_pb2.NodeDef(name=node.name, op=gather, input=[value.name, *rest])
        for name, attr in attrs.items():
            replacement.attr[name].CopyFrom(attr)
        for each in (value, replacement):
            each.device = node.device
        node.CopyFrom(replacement)
    graph_def.node.extend(made)


def _cast(name: str, tensor: str, source: int, target: int) -> Any:
    node = node_def_pb2.NodeDef(name=name, op="Cast", input=[tensor])
    node.attr["SrcT"].CopyFrom(attr_value_pb2.AttrValue(type=source))
    node.attr["DstT"].CopyFrom(attr_value_pb2.AttrValue(type=target))
    node.attr["Truncate"].CopyFrom(attr_value_pb2.AttrValue(b=False))
    return node


def _cast_output(name: str, function: str) -> str:
    """Return how a cast's result is named in the graph, or in a function's body."""
    return f"{name}:y:0" if function else f"{name}:0"


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
        new_node = node_def_pb2.NodeDef(name=name or f"{self.node.name}_piece{len(self.new_nodes)}", op=op)
        new_node.device = self.node.device
        new_node.input.extend([*inputs, *self.control_inputs])
        for key, value in attrs.items():
            new_node.attr[key].CopyFrom(value)
        self.new_nodes.append(new_node)
        return str(new_node.name)

    def finish(self, op: str, *inputs: str, **attrs: Any) -> None:
        """Add the node that returns what the op returned."""
        self.add(op, *inputs, name=self.node.name, T=_TYPE, **attrs)

    def constant(self, value: Any, dtype: Any = tf.float64) -> str:
        """Add a constant."""
        tensor = attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(value, dtype))
        return self.add("Const", dtype=_type(dtype), value=tensor)

    def hold(self, side: str, dtype: Any) -> str:
        """Add a node whose output can be held in place of a side, and return its name."""
        to_hold = self.add("Identity", side, T=_type(dtype))
        self.sides.append((side, to_hold))
        return to_hold

    def compare(self, op: str, first: str, second: str) -> str:
        """Add a comparison that can be held."""
        return self.hold(self.add(op, first, second, T=_TYPE), tf.bool)

    def mask(self, value: str, mask: str) -> str:
        """Add a value where a mask is true, and 0 elsewhere; NaN stays NaN."""
        factor = self.add("Cast", mask, SrcT=_type(tf.bool), DstT=_TYPE)
        return self.add("Mul", value, factor, T=_TYPE)


def _type(dtype: Any) -> Any:
    return attr_value_pb2.AttrValue(type=dtype.as_datatype_enum)


_TYPE = attr_value_pb2.AttrValue(type=_DOUBLE)


def _relu(nodes: _Nodes) -> None:
    mask = nodes.compare("Greater", nodes.inputs[0], nodes.constant(0.0))
    nodes.finish("Mul", nodes.inputs[0], nodes.add("Cast", mask, SrcT=_type(tf.bool), DstT=_TYPE))


def _relu6(nodes: _Nodes) -> None:
    x, six = nodes.inputs[0], nodes.constant(6.0)
    inside = nodes.mask(x, nodes.compare("Greater", x, nodes.constant(0.0)))
    nodes.finish("SelectV2", nodes.compare("GreaterEqual", x, six), six, inside)


def _leaky_relu(nodes: _Nodes) -> None:
    x = nodes.inputs[0]
    lower = nodes.add("Mul", x, nodes.constant(nodes.node.attr["alpha"].f), T=_TYPE)
    nodes.finish("SelectV2", nodes.compare("Greater", x, nodes.constant(0.0)), x, lower)


def _abs(nodes: _Nodes) -> None:
    x = nodes.inputs[0]
    nodes.finish("Mul", x, nodes.hold(nodes.add("Sign", x, T=_TYPE), tf.float64))


def _extreme(nodes: _Nodes, comparison: str) -> None:
    first, second = nodes.inputs
    nodes.finish("SelectV2", nodes.compare(comparison, first, second), first, second)


def _max_pool(nodes: _Nodes) -> None:
    """Take each window's largest element by its position in the tensor, which is held."""
    attr = nodes.node.attr
    place_type = _type(tf.int64)
    pooled = nodes.add(
        "MaxPoolWithArgmax",
        nodes.inputs[0],
        T=_TYPE,
        Targmax=place_type,
        include_batch_in_index=attr_value_pb2.AttrValue(b=True),
        **{name: attr[name] for name in ("ksize", "strides", "padding")},
    )
    places = nodes.hold(f"{pooled}:1", tf.int64)
    whole = nodes.constant([-1], tf.int32)
    flat = nodes.add("Reshape", nodes.inputs[0], whole, T=_TYPE, Tshape=_type(tf.int32))
    nodes.add(
        "GatherV2",
        flat,
        places,
        nodes.constant(0, tf.int32),
        name=nodes.node.name,
        Tparams=_TYPE,
        Tindices=place_type,
        Taxis=_type(tf.int32),
    )


def _choice(nodes: _Nodes, dtype: Any = tf.bool) -> None:
    """Hold the result of an op that isn't a number but a choice: of a side, or of an index."""
    attr = nodes.node.attr
    result_type = attr["output_type"] if "output_type" in attr else _type(dtype)
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


def hold_sides(graph_def: Any) -> list[tuple[str, str]]:
    """Rewrite the kinked float64 ops of a GraphDef in place, except those in the bodies of functions.

    Return the names of two tensors for each side: the side that the point takes, and the tensor to hold.
    """
    sides: list[tuple[str, str]] = []
    nodes: list[Any] = []
    for node in graph_def.node:
        rewrite = PIECES.get(node.op)
        if rewrite is None or node.attr["T"].type != _DOUBLE or not _can_be_rewritten(node):
            nodes.append(node)
            continue
        replacement = _Nodes(node)
        rewrite(replacement)
        nodes += replacement.new_nodes
        sides += [(_tensor_name(side), _tensor_name(to_hold)) for side, to_hold in replacement.sides]
    copies = [node_def_pb2.NodeDef.FromString(node.SerializeToString()) for node in nodes]
    del graph_def.node[:]
    graph_def.node.extend(copies)
    return sides


def _can_be_rewritten(node: Any) -> bool:
    """Whether an op can be rewritten: a pooling needs a layout that `MaxPoolWithArgmax` takes."""
    if node.op != "MaxPool":
        return True
    return node.attr["data_format"].s in (b"", b"NHWC") and node.attr["padding"].s in (b"SAME", b"VALID")


def _tensor_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"
