"""Reads the arguments of a case, each a tensor or a structure of tensors that are named by their path in it.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gradcheck_cli.spec.case import Argument, Form, FunctionRef, InputSpec, Source
from gradcheck_cli.spec.cases.inputs import InputReader
from gradcheck_cli.spec.faults import FaultLog, show, suggest
from gradcheck_cli.spec.models.document_model import Defaults, OpModel
from gradcheck_cli.spec.models.input_model import InputModel, Sparse
from gradcheck_cli.spec.values.literals import MAX_ELEMENTS
from gradcheck_cli.spec.words import BINDINGS
from gradcheck_cli.spec.yaml_tree import Node

Tensors = InputModel | list[InputModel] | None
Read = tuple[Form, tuple[InputSpec, ...]]


def leaves_of(tensors: Tensors) -> Iterator[InputModel]:
    """Yield the tensors of an argument; a name alone declares one about which nothing is known."""
    if tensors is None:
        yield InputModel()
    elif isinstance(tensors, list):
        for element in tensors:
            yield from leaves_of(element)
    elif not tensors.structure:
        yield tensors
    else:
        for part in _named_parts(tensors).values() or _listed_parts(tensors):
            yield from leaves_of(part)


def read_arguments(reader: InputReader, node: Node, model: OpModel) -> tuple[Argument, ...] | None:
    """Return a case's arguments; `None` if there are faults, which are logged."""
    arguments = []
    is_sound = True
    for name, tensors in (model.inputs or {}).items():
        written = node.get("inputs", name) or node
        read = _read(reader, name, written, tensors) if _fits(reader.log, written, tensors, model) else None
        if read is None:
            is_sound = False
        else:
            arguments.append(Argument(name, read[1], read[0]))
    if is_sound:
        is_sound = _are_distinct(reader.log, node, arguments)
    return tuple(arguments) if is_sound else None


def check_known(log: FaultLog, case_inputs: Node, op_inputs: Node) -> None:
    """Log a case's names of inputs, or parts of inputs, that its op doesn't have."""
    names = list(op_inputs.children)
    for name, node in case_inputs.children.items():
        if name not in names:
            remedy = suggest(name, names) or f"Inputs: {', '.join(names)}"
            log.add_key(case_inputs, f"must be an input of the op, but got {name!r}. {remedy}", name)
            continue
        for key in ("dict", "fields"):
            inner, below = node.get(key), op_inputs.get(name, key)
            if inner is not None and below is not None:
                check_known(log, inner, below)


def _fits(log: FaultLog, node: Node, tensors: Tensors, model: OpModel) -> bool:
    """Whether the forward can take such an argument: op types and NumPy functions don't take every kind."""
    if isinstance(tensors, list):
        return all(_fits(log, node.get(i) or node, part, model) for i, part in enumerate(tensors))
    kind = "" if tensors is None else tensors.structure
    if kind and model.op_type is not None and model.forward is None:
        log.add(
            node,
            f"must be a tensor or a list of tensors for an op type, but got a structure ({kind}). "
            "Name the op type's own arguments",
        )
        return False
    return all(_fits_leaf(log, node, leaf, model) for leaf in leaves_of(tensors))


def _fits_leaf(log: FaultLog, node: Node, leaf: InputModel, model: OpModel) -> bool:
    kind = "sparse" if leaf.sparse is not None else "ragged" if leaf.ragged is not None else ""
    if not kind:
        return True
    if model.op_type is not None and model.forward is None:
        log.add(
            node,
            f"must be a tensor or a list of tensors for an op type, but got a {kind} one. "
            "Name the op type's own arguments, such as its indices and its values",
        )
        return False
    if BINDINGS[binding_of(model)].is_numpy or isinstance(model.forward, dict):
        log.add(
            node,
            f"must be of arrays for a NumPy forward, but got a {kind} tensor. "
            "Give its parts as inputs of their own, and build it in the forward",
        )
        return False
    return True


def _read(reader: InputReader, name: str, node: Node, tensors: Tensors) -> Read | None:
    if isinstance(tensors, list):
        return _read_elements(reader, name, node, "list", tensors)
    model = tensors or InputModel()
    kind = model.structure
    if not kind:
        return _read_tensor(reader, name, node, model)
    if not _stands_alone(reader.log, node, kind):
        return None
    named = _named_parts(model)
    if not named:
        return _read_elements(reader, name, node.get(kind) or node, kind, _listed_parts(model))
    key = "fields" if kind == "object" else kind
    parts = [
        _read(reader, f"{name}.{part}", node.get(key, part) or node, inner) for part, inner in named.items()
    ]
    return _combine(kind, parts, keys=named, target=model.object_ or "")


def _read_tensor(reader: InputReader, name: str, node: Node, model: InputModel) -> Read | None:
    if model.sparse is not None and model.ragged is not None:
        reader.log.add(node, "must not stand beside sparse. Keep one of them", "ragged")
        return None
    if model.sparse is not None:
        return _read_sparse(reader, name, node, model)
    if model.ragged is not None:
        return _read_ragged(reader, name, node, model)
    tensor = reader.read(name, node, model)
    return None if tensor is None else (Form(), (tensor,))


def _read_elements(
    reader: InputReader, name: str, node: Node, kind: str, parts: Sequence[Tensors]
) -> Read | None:
    read = [_read(reader, f"{name}[{i}]", node.get(i) or node, part) for i, part in enumerate(parts)]
    return _combine(kind, read)


def _combine(
    kind: str, parts: Sequence[Read | None], *, keys: Iterable[str] = (), target: str = ""
) -> Read | None:
    sound = [part for part in parts if part is not None]
    if len(sound) < len(parts):
        return None
    form = Form(kind, tuple(form for form, _ in sound), tuple(keys), target)
    return form, tuple(tensor for _, tensors in sound for tensor in tensors)


def _stands_alone(log: FaultLog, node: Node, kind: str) -> bool:
    """Whether a structure is written with only its own keys, and with all of them."""
    own_keys = ("object", "fields") if kind == "object" else (kind,)
    for key in node.children:
        if key not in own_keys:
            log.add_key(
                node,
                f"must not stand beside {own_keys[-1]}: a structure has no values of its own. "
                "Write it in each tensor of the structure, or remove it",
                key,
            )
            return False
    for key in own_keys:
        if key not in node.children:
            log.add(
                node,
                "is missing; write the fields of the object, such as {h: {shape: [2]}}"
                if key == "fields"
                else "is missing; name the class of the fields, as module:Class",
                key,
            )
            return False
    return True


def _named_parts(model: InputModel) -> Mapping[str, Tensors]:
    return model.dict_ or model.fields or {}


def _listed_parts(model: InputModel) -> Sequence[Tensors]:
    return model.tuple_ or model.list_ or []


def _are_distinct(log: FaultLog, node: Node, arguments: Sequence[Argument]) -> bool:
    """Whether no two tensors have the same label, as `a.b` and the `b` of a dict `a` would."""
    seen: set[str] = set()
    for argument in arguments:
        for tensor in argument.tensors:
            if tensor.name in seen:
                log.add(
                    node,
                    f"must have labels that differ, but two tensors are {tensor.name!r}. Rename one",
                    "inputs",
                    argument.name,
                )
                return False
            seen.add(tensor.name)
    return True


def _read_sparse(reader: InputReader, name: str, node: Node, model: InputModel) -> Read | None:
    """Return a SparseTensor's indices, values and dense shape; `None` if there are faults, all logged."""
    sparse = model.sparse
    if sparse is None or not model.shape:
        fault = "is missing" if model.shape is None else "must have a dimension, but got []"
        remedy = "write the dense shape of the sparse tensor, such as [3, 4]"
        reader.log.add(node, f"{fault}; {remedy}", "shape")
        return None
    shape = tuple(model.shape)
    count = _count_nonzeros(reader.log, node, sparse, shape)
    if count is None:
        return None
    values = reader.read(f"{name}.values", node, model.model_copy(update={"shape": [count], "sparse": None}))
    if values is None:
        return None
    is_written = sparse.indices is not None and count > 0
    source = Source("value", {"value": sparse.indices}) if is_written else Source("places", {"shape": shape})
    indices = InputSpec(f"{name}.indices", "int64", (count, len(shape)), source)
    dense = InputSpec(f"{name}.dense_shape", "int64", (len(shape),), Source("value", {"value": list(shape)}))
    return Form("sparse", shape=shape), (indices, values, dense)


def _count_nonzeros(log: FaultLog, node: Node, sparse: Sparse, shape: tuple[int, ...]) -> int | None:
    """Return the number of nonzeros, or `None` if they don't fit, which is logged."""
    elements = math.prod(shape)
    if (sparse.indices is None) == (sparse.nnz is None):
        got = "neither" if sparse.nnz is None else "both"
        log.add(node, f"must have one of indices and nnz, but got {got}. Write nnz: 5, for example", "sparse")
        return None
    if elements > MAX_ELEMENTS:
        log.add(node, f"must hold at most 2**31 elements, but got {show(shape)}", "shape")
        return None
    if sparse.indices is not None:
        return len(sparse.indices) if _are_places(log, node, sparse.indices, shape) else None
    count = sparse.nnz or 0
    if count > elements:
        log.add(
            node,
            f"must be at most {elements}, the elements of shape {show(shape)}, but got {count}",
            "sparse",
            "nnz",
        )
        return None
    return count


def _are_places(log: FaultLog, node: Node, places: list[list[int]], shape: tuple[int, ...]) -> bool:
    for row, place in enumerate(places):
        fits = len(place) == len(shape) and all(
            index < size for index, size in zip(place, shape, strict=True)
        )
        if not fits:
            log.add(
                node,
                f"must be a place in the shape {show(shape)}, but got {show(place)}. "
                "Write one index for each dimension, from 0",
                "sparse",
                "indices",
                row,
            )
            return False
    return True


def _read_ragged(reader: InputReader, name: str, node: Node, model: InputModel) -> Read | None:
    """Return a RaggedTensor's flat values and row splits; `None` if there are faults, all logged."""
    log, ragged = reader.log, model.ragged
    if ragged is None:
        return None
    if model.shape is not None:
        log.add(
            node,
            "must be left out for a ragged tensor: ragged.row_lengths says how long its rows are. "
            "Write ragged.inner_shape for the dimensions of each value",
            "shape",
        )
        return None
    nested = _nest(ragged.row_lengths)
    for outer, (above, lengths) in enumerate(itertools.pairwise(nested)):
        if len(lengths) != sum(above):
            log.add(
                node,
                f"must have as many rows as the dimension before, {sum(above)}, but got {len(lengths)}",
                "ragged",
                "row_lengths",
                outer + 1,
            )
            return None
    shape = [sum(nested[-1]), *ragged.inner_shape]
    values = reader.read(
        f"{name}.flat_values", node, model.model_copy(update={"shape": shape, "ragged": None})
    )
    if values is None:
        return None
    names = (
        [f"{name}.row_splits"]
        if len(nested) == 1
        else [f"{name}.nested_row_splits[{depth}]" for depth in range(len(nested))]
    )
    splits = tuple(
        InputSpec(
            split,
            "int64",
            (len(lengths) + 1,),
            Source("value", {"value": list(itertools.accumulate(lengths, initial=0))}),
        )
        for split, lengths in zip(names, nested, strict=True)
    )
    return Form("ragged", splits=len(splits)), (values, *splits)


def _nest(lengths: list[int] | list[list[int]]) -> list[list[int]]:
    """Return row lengths as one list for each ragged dimension."""
    rows = [row for row in lengths if isinstance(row, list)]
    return rows or [[length for length in lengths if isinstance(length, int)]]


KEYS = frozenset({"forward", "op_type", "gradient", "binding"})


def function_ref(written: object) -> FunctionRef | None:
    """Return a function as named in a spec: `module:attribute` or `{numpy: module:function}`."""
    if isinstance(written, dict):
        return FunctionRef(str(written["numpy"]), numpy=True)
    return None if written is None else FunctionRef(str(written))


def binding_of(model: Defaults) -> str:
    """Return the binding, written or by default."""
    if model.binding is not None:
        return model.binding
    if model.gradient is None:
        return "autodiff"
    return "override" if model.op_type is not None and model.forward is None else "custom_gradient"


def check_binding(log: FaultLog, node: Node, model: Defaults, broken: set[str]) -> None:
    """Log contradictions among forward, op_type, gradient and binding, if none of these keys is broken."""
    if KEYS & broken:
        return
    binding = binding_of(model)
    has_forward, has_type, has_gradient = (
        value is not None for value in (model.forward, model.op_type, model.gradient)
    )
    if not has_forward and not has_type:
        log.add(node, "is missing; write forward: module:function, or op_type for a raw op", "forward")
        return
    facts = BINDINGS[binding]
    if has_forward and has_type and not facts.is_override:
        log.add(
            node,
            f"must stand without forward, but got both with binding {binding}. "
            "Drop one, or write binding: override",
            "op_type",
        )
    elif facts.is_override and not has_type:
        log.add(node, "is missing; binding override replaces the gradient of this op type", "op_type")
    elif not has_forward and not facts.is_of_op_type:
        log.add(node, f"is missing; binding {binding} wraps a function, not an op type", "forward")
    if not facts.has_gradient and has_gradient:
        log.add(
            node,
            "must be left out with binding autodiff, but got a function. "
            "Drop it, or write binding: custom_gradient",
            "gradient",
        )
    elif facts.has_gradient and not has_gradient:
        log.add(node, f"is missing; binding {binding} attaches it to the forward", "gradient")
    elif not facts.has_gradient and isinstance(model.forward, dict):
        log.add(
            node,
            "must be a function of tensors for binding autodiff, but got a NumPy function. "
            "Write gradient and binding: py_func",
            "forward",
        )
    if model.build is not None and not has_forward:
        log.add(node, "must go with forward, but got op_type alone. Use attrs", "build")
