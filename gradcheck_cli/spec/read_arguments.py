"""Reads the arguments of a case, each a tensor or a structure of tensors that are named by their path in it.

A tensor's dtype is its own, else bool for a `bool` generator, else the entry of `dtypes` that made the case,
else float64.

A SparseTensor or RaggedTensor is read as its parts: the values, and the places of the values. The values are
an input like any other. Indices, dense shape and row splits are integer inputs beside them, as TensorFlow's
ops take them; they aren't moved, and nothing is differentiated by them.

The defaults and rules of `binding` stand here, too: without `gradient` the default is `autodiff`; with it,
`override` where `op_type` stands without `forward`, else `custom_gradient`. Only `override` takes both
`forward` and `op_type`, since there the forward creates the op whose registered gradient is replaced.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from gradcheck_cli.errors import suggest
from gradcheck_cli.spec.case import UNBOUNDED, Argument, Form, FunctionRef, InputSpec, Source, kind_of
from gradcheck_cli.spec.faults import show
from gradcheck_cli.spec.op_inputs import op_inputs
from gradcheck_cli.spec.spec_format import Keys, type_of
from gradcheck_cli.spec.values import constraints
from gradcheck_cli.spec.words import BINDINGS, DEFAULT_DTYPE, GENERATORS, SOURCES
from gradcheck_cli.spec.written import Unreadable, Written

Part = TypeVar("Part")
Result = TypeVar("Result")
Read = tuple[Form, tuple[InputSpec, ...]]


def _arguments_of(kind: str, value: Any) -> dict[str, object]:  # noqa: ANN401 (what is written)
    """Return a generator's arguments as plain data that can be pickled."""
    if kind == "file":
        return dict(zip(("path", "key"), constraints.split_file(value), strict=True))
    if kind == "choice":
        return {"values": tuple(value)}
    if kind == "bool":
        return {"probability": 0.5 if value is True else float(value)}
    if isinstance(value, dict):  # its numbers
        return dict(value)
    names = {"value": "value", "triangular": "side", "generator": "name"}
    return {names[kind]: value} if kind in names else {}


class Context(NamedTuple):
    """What an input is read in: the sound keys of its op or case, the spec's folder, and a dtype."""

    keys: Keys
    folder: str
    dtype: str | None  # of inputs that name none: the entry of `dtypes`, or as an op type has it

    @property
    def is_raw_op(self) -> bool:
        """Whether an op type is called with its own arguments."""
        return self.keys.op_type is not None and self.keys.forward is None


def has_broken_inputs(op: Keys) -> bool:
    """Whether some input has a fault, from which others would only follow."""
    return any(name.startswith("inputs") for name in op.broken)


def _read_input(case: Context, name: str, keys: Keys, shape: Sequence[int] | None) -> InputSpec:
    """Return an input, named `values[0]` in a list.

    Raises:
        Unreadable: it has faults, which are logged.
    """
    node, moving = keys.node, read_moving(keys)
    before, sources = node.log.count, sources_of(keys)
    if len(sources) > 1:
        message = f"must have one source of values, but got {' and '.join(sources)}. Keep one of them"
        node.refuse(message, list(sources)[1])
    kind, value = next(iter(sources.items()), ("default", None))
    dtype = keys.dtype or _own_dtype(keys) or case.dtype or DEFAULT_DTYPE
    source = Source(kind, _arguments_of(kind, value))
    _require_family(kind, dtype, node)
    checks = constraints.LiteralChecks(node, dtype)
    shape = tuple(shape) if shape is not None else None
    if kind == "value":
        shape = checks.check_value(value, shape)
    elif kind == "file":
        shape = checks.check_file(case.folder, source.arguments, shape, moving["domain"])
    else:
        checks.check_arguments(source)
    if shape is None:
        if node.log.count == before:
            node.add("is missing; write the dimensions, such as [3, 2] ([] for a scalar)", "shape")
        raise Unreadable
    checks.check_shape(kind, shape)
    tensor = fill(InputSpec, keys, name=name, dtype=dtype, shape=shape, source=source, **moving)
    if node.log.count == before:
        constraints.check_moving(node, tensor)
    if node.log.count == before and tensor.symmetric:
        constraints.check_symmetric(node, tensor)
    if node.log.count > before:
        raise Unreadable
    return tensor


def _require_family(kind: str, dtype: str, node: Written) -> None:
    """Refuse a dtype that a generator can't fill."""
    fitting = SOURCES[kind].families
    if not fitting or kind_of(dtype) in fitting:
        return
    if kind == "default":
        node.refuse(f"must have a value, file or choice for dtype {dtype}, but got none")
    families = " or ".join(", ".join(fitting).rsplit(", ", 1))
    node.refuse(
        f"must go with a {families} dtype, but got dtype {dtype}. Change the dtype, or how values are made",
        kind,
    )


Record = TypeVar("Record")


def fill(record: type[Record], model: Keys | None, **own: Any) -> Record:  # noqa: ANN401 (as `replace` has it)
    """Return a record of a case, with the model's keys for the fields of the same names.

    A key that isn't written leaves the record's default.

    Args:
        own: the fields that aren't what is written.
    """
    fields = record.__dataclass_fields__  # type: ignore[attr-defined]  # a dataclass
    written = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (model or {}).items()
        if name in fields
    }
    return record(**{**written, **own})


def read_moving(keys: Keys) -> dict[str, Any]:
    """Return how far an input or a variable goes: `domain`, and `keeps`, why it doesn't move.

    What doesn't move without a reason is logged, and a reason without that.
    """
    stays = keys.move is False
    if stays and not keys.reason:
        keys.node.add("must go with a reason. Say why it doesn't move: {move: false, reason: ...}", "move")
    if keys.reason and not stays:
        keys.node.add("must go with move: false. Drop it, or say move: false", "reason")
    written = (keys.domain.low, keys.domain.high) if keys.domain else (None, None)
    domain = tuple(limit if end is None else end for end, limit in zip(written, UNBOUNDED, strict=True))
    return {"domain": domain, "keeps": (stays and keys.reason) or ""}


def _op_dtypes(op: Keys) -> dict[str, str]:
    """Return the dtypes of inputs that name none: those in an op type's definition, by the inputs' names.

    An input has the dtype of another with the same type attr.
    """
    inputs, definition = op.inputs or {}, op_inputs(op.op_type, op.forward)
    written = {name: keys and keys.dtype for name, keys in inputs.items()}
    shared = {definition[name].attr: dtype for name, dtype in written.items() if dtype and name in definition}
    return {
        name: (shared.get(op_input.attr) if op_input.attr else None) or op_input.dtype
        for name, op_input in definition.items()
        if op_input.dtype
    }


def takes_variant(op: Keys) -> bool:
    """Tell whether `dtypes` sets the dtype of any input."""
    dtypes = _op_dtypes(op)
    leaves = [
        leaf for name, own in (op.inputs or {}).items() if name not in dtypes for leaf in leaves_of(own)
    ]
    return any(leaf.dtype is None and not _own_dtype(leaf) for leaf in leaves)


def _own_dtype(model: Keys) -> str:
    """Return the dtype that an input's generator implies; empty if it implies none."""
    return next((GENERATORS[kind].dtype for kind in sources_of(model)), "")


def sources_of(keys: Keys) -> dict[str, Any]:
    """Return the values of an input's generators, by key; a sound input has at most one."""
    return {kind: keys[kind] for kind in GENERATORS if kind in keys}


def _structure_of(keys: Keys) -> tuple[str, Mapping[str | int, Any]]:
    """Return the key that makes an input a structure, and its parts by key or index; no key for a tensor."""
    key = next((key for key in ("dict", "tuple", "list", "fields", "object") if key in keys), "")
    parts = keys.get(key) or ()
    if key == "object":
        return "fields", {}
    return key, parts if isinstance(parts, dict) else dict(enumerate(parts))


def leaves_of(keys: Keys) -> Iterator[Keys]:
    """Yield the tensors of an argument; a name alone declares one about which nothing is known."""
    key, parts = _structure_of(keys)
    if not key:
        yield keys
    for part in parts.values():
        yield from leaves_of(part)


def read_arguments(case: Context) -> tuple[Argument, ...]:
    """Return a case's arguments.

    Raises:
        Unreadable: there are faults, which are logged.
    """
    inputs, dtypes = case.keys.inputs or {}, _op_dtypes(case.keys)

    def read_argument(name: str) -> Argument:
        own = case._replace(dtype=dtypes.get(name) or case.dtype)
        form, tensors = _read(own, name, inputs[name])
        return Argument(name, tensors, form)

    arguments = tuple(_read_each(inputs, read_argument))
    labels: Counter[str] = Counter()
    for argument in arguments:  # `a.b`, say, and the `b` of a dict `a`
        labels.update(tensor.name for tensor in argument.tensors)
        ((label, count),) = labels.most_common(1)
        if count > 1:
            message = f"must have labels that differ, but two tensors are {label!r}. Rename one"
            case.keys.node.refuse(message, "inputs", argument.name)
    return arguments


def _read_each(parts: Iterable[Part], read: Callable[[Part], Result]) -> list[Result]:
    """Read every part, so that the faults of all are logged before the first one is raised."""
    sound, broken = [], False
    for part in parts:
        try:
            sound.append(read(part))
        except Unreadable:
            broken = True
    if broken:
        raise Unreadable
    return sound


def check_known(case_inputs: Written, inputs: Written) -> None:
    """Log a case's names of inputs, or parts of inputs, that its op doesn't have."""
    names = list(inputs.entries)
    for name, node in case_inputs.entries.items():
        if name not in names:
            remedy = suggest(name, names, "Inputs")
            case_inputs.add_key(f"must be an input of the op, but got {name!r}. {remedy}", name)
            continue
        for key in ("dict", "fields"):
            if inputs.at(name, key).data is not None:
                check_known(node.at(key), inputs.at(name, key))


def _read(case: Context, name: str, keys: Keys) -> Read:
    place, parts = _structure_of(keys)
    if not place:
        return _read_tensor(case, name, keys)
    kind = "object" if place == "fields" else place
    if case.is_raw_op and kind != "list":
        keys.node.refuse(
            f"must be a tensor or a list of tensors for an op type, but got a structure ({kind}). "
            "Name the op type's own arguments",
        )
    _require_alone(keys.node, kind)

    def read_part(key: str | int) -> Read:
        return _read(case, f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}", parts[key])

    read = _read_each(parts, read_part)
    names = tuple(key for key in parts if isinstance(key, str))
    form = Form(kind, tuple(form for form, _ in read), names, keys.object or "")
    return form, tuple(tensor for _, own in read for tensor in own)


def _read_tensor(case: Context, name: str, keys: Keys) -> Read:
    node, kinds = keys.node, [kind for kind in ("sparse", "ragged") if kind in keys]
    if not kinds:
        return Form(), (_read_input(case, name, keys, keys.shape),)
    if len(kinds) > 1:
        node.refuse("must not stand beside sparse. Keep one of them", "ragged")
    (kind,) = kinds
    if case.is_raw_op:
        node.refuse(
            f"must be a tensor or a list of tensors for an op type, but got a {kind} one. "
            "Name the op type's own arguments, such as its indices and its values",
        )
    if BINDINGS[binding_of(case.keys)].is_numpy or isinstance(case.keys.forward, dict):
        node.refuse(
            f"must be of arrays for a NumPy forward, but got a {kind} tensor. "
            "Give its parts as inputs of their own, and build it in the forward",
        )
    return (_read_sparse if kind == "sparse" else _read_ragged)(case, name, keys)


def _require_alone(node: Written, kind: str) -> None:
    """Refuse a structure that isn't written with only its own keys, and with all of them."""
    own_keys = ("object", "fields") if kind == "object" else (kind,)
    for key in node.data:
        if key not in own_keys:
            node.add_key(
                f"must not stand beside {own_keys[-1]}: a structure has no values of its own. "
                "Write it in each tensor of the structure, or remove it",
                key,
            )
            raise Unreadable
    remedies = {
        "fields": "write the fields of the object, such as {h: {shape: [2]}}",
        "object": "name the class of the fields, as module:Class",
    }
    for key in own_keys:
        if key not in node.data:
            node.refuse(f"is missing; {remedies[key]}", key)


def _read_sparse(case: Context, name: str, keys: Keys) -> Read:
    """Return a SparseTensor's indices, values and dense shape."""
    if not keys.shape:
        fault = "is missing" if keys.shape is None else "must have a dimension, but got []"
        keys.node.refuse(f"{fault}; write the dense shape of the sparse tensor, such as [3, 4]", "shape")
    shape = tuple(keys.shape)
    count = _count_nonzeros(keys.node, keys.sparse, shape)
    values = _read_input(case, f"{name}.values", keys, [count])
    indices = _places(f"{name}.indices", keys.sparse.indices or [])
    if not indices.shape[0]:
        source = Source("places", {"shape": shape})
        indices = replace(indices, shape=(count, len(shape)), source=source)
    return Form("sparse", shape=shape), (indices, values, _places(f"{name}.dense_shape", list(shape)))


def _places(name: str, value: list[Any]) -> InputSpec:
    """Return an input of places, as they are written: nothing is differentiated by it."""
    source = Source("value", {"value": value})
    return InputSpec(name, "int64", constraints.shape_of(value) or (), source, differentiate=False)


def _count_nonzeros(node: Written, sparse: Keys, shape: tuple[int, ...]) -> int:
    """Return the number of nonzeros; refuse those that don't fit."""
    elements = math.prod(shape)
    if (sparse.indices is None) == (sparse.nnz is None):
        got = "neither" if sparse.nnz is None else "both"
        node.refuse(f"must have one of indices and nnz, but got {got}. Write nnz: 5, for example", "sparse")
    if elements > constraints.MAX_ELEMENTS:
        node.refuse(f"must hold at most 2**31 elements, but got {show(shape)}", "shape")
    for row, place in enumerate(sparse.indices or ()):
        if len(place) != len(shape) or any(i >= size for i, size in zip(place, shape, strict=True)):
            node.refuse(
                f"must be a place in the shape {show(shape)}, but got {show(place)}. "
                "Write one index for each dimension, from 0",
                *("sparse", "indices", row),
            )
    count = sparse.nnz or len(sparse.indices or ())
    if sparse.indices is None and count > elements:
        message = f"must be at most {elements}, the elements of shape {show(shape)}, but got {count}"
        node.refuse(message, "sparse", "nnz")
    return count


def _read_ragged(case: Context, name: str, keys: Keys) -> Read:
    """Return a RaggedTensor's flat values and row splits."""
    node, ragged = keys.node, keys.ragged
    if keys.shape is not None:
        node.refuse(
            "must be left out for a ragged tensor: ragged.row_lengths says how long its rows are. "
            "Write ragged.inner_shape for the dimensions of each value",
            "shape",
        )
    nested = ragged.row_lengths  # one list of lengths for each ragged dimension
    for outer, (above, lengths) in enumerate(itertools.pairwise(nested)):
        if len(lengths) != sum(above):
            node.refuse(
                f"must have as many rows as the dimension before, {sum(above)}, but got {len(lengths)}",
                *("ragged", "row_lengths", outer + 1),
            )
    shape = [sum(nested[-1]), *(ragged.inner_shape or ())]
    values = _read_input(case, f"{name}.flat_values", keys, shape)
    splits = [
        _places(
            f"{name}.row_splits" if len(nested) == 1 else f"{name}.nested_row_splits[{depth}]",
            list(itertools.accumulate(lengths, initial=0)),
        )
        for depth, lengths in enumerate(nested)
    ]
    return Form("ragged", splits=len(splits)), (values, *splits)


FUNCTIONS = ("forward", "gradient", "reference")
FUNCTION_KEYS = frozenset({"forward", "op_type", "gradient", "binding"})


def read_function(op: Keys, key: str) -> FunctionRef | None:
    """Return a function of a spec: `module:attribute`, `.attribute` or `{numpy: module:function}`.

    One of a module that the spec doesn't name is logged.
    """
    written, module = op.get(key), op.module
    if written is None:
        return None
    target = str(written.numpy if isinstance(written, Keys) else written)
    if target.startswith(".") and module is None:
        expected = type_of("function")["expects"]
        op.node.add(f"must be {expected}, but got {show(target)}. Write it, or `module`", key)
    target = f"{module}:{target[1:]}" if target.startswith(".") else target
    return FunctionRef(target, numpy=isinstance(written, Keys))


def binding_of(model: Keys) -> str:
    """Return the binding, written or by default."""
    if model.binding is not None:
        return str(model.binding)
    if model.gradient is None:
        return "autodiff"
    return "override" if model.op_type is not None and model.forward is None else "custom_gradient"


def check_binding(op: Keys) -> None:
    """Log contradictions among forward, op_type, gradient and binding, if none of these keys is broken."""
    if FUNCTION_KEYS & op.broken:
        return
    binding = binding_of(op)
    has_forward, has_type, has_gradient = (
        value is not None for value in (op.forward, op.op_type, op.gradient)
    )
    if not has_forward and not has_type:
        op.node.add("is missing; write forward: module:function, or op_type for a raw op", "forward")
        return
    facts = BINDINGS[binding]
    if has_forward and has_type and not facts.is_override:
        op.node.add(
            f"must stand without forward, but got both with binding {binding}. "
            "Drop one, or write binding: override",
            "op_type",
        )
    elif facts.is_override and not has_type:
        op.node.add("is missing; binding override replaces the gradient of this op type", "op_type")
    elif not has_forward and not facts.is_of_op_type:
        op.node.add(f"is missing; binding {binding} wraps a function, not an op type", "forward")
    if not facts.has_gradient and has_gradient:
        op.node.add(
            "must be left out with binding autodiff, but got a function. "
            "Drop it, or write binding: custom_gradient",
            "gradient",
        )
    elif facts.has_gradient and not has_gradient:
        op.node.add(f"is missing; binding {binding} attaches it to the forward", "gradient")
    elif not facts.has_gradient and isinstance(op.forward, dict):
        op.node.add(
            "must be a function of tensors for binding autodiff, but got a NumPy function. "
            "Write gradient and binding: py_func",
            "forward",
        )
    if op.build is not None and not has_forward:
        op.node.add("must go with forward, but got op_type alone. Use attrs", "build")
