"""Flat tensors on both sides of a forward: builds its arguments from them, and splits what it returns.

Arguments and results may be lists, dicts, objects and composite tensors. For a raw op, whose inputs and attrs
are named as in its OpDef, this creates the op as well. Each output is named by its path in the structure. The
order is TensorFlow's own (tf.nest): a dict's keys are sorted, everything else stays in order. If a spec names
the keys or fields of what is returned, its order and names are used.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli import visible
from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.spec.case import UNBOUNDED, Argument, Case, CodeUnderTest, Form, InputSpec, Source, matches
from gradcheck_cli.tensorflow_backend import dtypes, frames, op_types, users_code
from gradcheck_cli.tensorflow_backend.leaves import NO_LABEL, Leaf, Part, leaves_of, parts_of, unique
from gradcheck_cli.tensorflow_backend.private import private_graphs, private_state

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_with(
    call: Callable[..., Any],
    function: Callable[..., Any],
    case: Case,
    tensors: Sequence[Any],
) -> Any:
    """Call a function with a case's arguments, made of flat tensors, and its attrs.

    Args:
        call: calls the function; it may be the function itself.
        function: its signature says what it takes only by keyword.

    Raises:
        CaseFailedError: of kind "inputs": an object can't be built from its fields.
    """
    if case.code.given is not None:
        positional, keywords = case.code.given.pack(tensors)
        return call(*positional, **{**keywords, **case.code.attrs})
    values = build_arguments(case, tensors)
    keyword_names = _keyword_names(function, list(values), case.code.attrs)
    positional = [value for name, value in values.items() if name not in keyword_names]
    positional, attrs = _place_attrs_before(function, positional, dict(case.code.attrs))
    return call(*positional, **{name: values[name] for name in keyword_names}, **attrs)


def _place_attrs_before(
    function: Callable[..., Any], tensors: list[Any], attrs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the tensors with the attrs whose parameters precede them, and the remaining attrs.

    So `tf.einsum(equation, *inputs)` can be called; an attr after the tensors is given by its name.
    """
    positional: list[Any] = []
    unplaced = iter(tensors)
    remaining = len(tensors)
    for name, parameter in (_parameters_of(function) or {}).items():
        if parameter.kind not in _POSITIONAL or not remaining:
            break
        if name in attrs:
            positional.append(attrs.pop(name))
        else:
            positional.append(next(unplaced))
            remaining -= 1
    return [*positional, *unplaced], attrs


def build_arguments(case: Case, tensors: Sequence[Any]) -> dict[str, Any]:
    """Build the arguments from flat tensors, by name, in forward's positional order.

    Raises:
        CaseFailedError: of kind "inputs": an object can't be built from its fields.
    """
    values = iter(tensors)
    return {
        argument.name: _build(argument.form, values, argument.name)
        for argument in case.arguments
        if not _is_variable(argument)
    }


def require_order(function: Callable[..., Any], case: Case, role: str) -> None:
    """Refuse inputs that have the names of a function's parameters in another order.

    Inputs are passed by position, but reported under the spec's names: each would be reported under another
    one's name. Parameters with other names, and `*args`, say nothing about the order.

    Raises:
        CaseFailedError: of kind "inputs".
    """
    if case.code.given is not None:
        return
    parameters = _parameters_of(function) or {}
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameter_names = [name for name, parameter in parameters.items() if parameter.kind is either]
    argument_names = [argument.name for argument in case.arguments if not _is_variable(argument)]
    keyword_names = _keyword_names(function, argument_names, case.code.attrs)
    names = [name for name in argument_names if name not in keyword_names]
    if set(names) <= set(parameter_names) and names != [name for name in parameter_names if name in names]:
        order = ", ".join(name for name in parameter_names if name in names)
        raise CaseFailedError(
            "inputs",
            f"inputs are passed by position, in the order {', '.join(names)}, but the {role} "
            f"{getattr(function, '__name__', type(function).__name__)} takes them in the order {order}; "
            "write them in that order.",
        )


def code_of_reference(function: Callable[..., Any], case: Case) -> CodeUnderTest:
    """Return a case's code with the keyword arguments that a reference takes.

    These are the forward's own, and those that build it.
    """
    code, parameters = case.code, _parameters_of(function)
    if parameters is None or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    ):
        return code
    call, names = code.given, {argument.name for argument in case.arguments}
    if call is not None:
        pack = call.pack

        def pack_taken(tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
            positional, keywords = pack(tensors)
            return positional, {name: value for name, value in keywords.items() if name in parameters}

        call = replace(call, pack=pack_taken)
    keywords = {**(code.build or {}), **code.attrs}
    attrs = {name: value for name, value in keywords.items() if name in parameters and name not in names}
    return replace(code, attrs=attrs, given=call)


def takes_build_alone(function: Callable[..., Any], code: CodeUnderTest) -> bool:
    """Whether a function is a factory, as the forward is: it takes only what is in `build`."""
    build, parameters = code.build, _parameters_of(function)
    return build is not None and parameters is not None and all(name in build for name in parameters)


def _parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # not a Python function: everything goes by position
        return None


def _is_variable(argument: Argument) -> bool:
    return bool(argument.tensors) and argument.tensors[0].is_variable


def _keyword_names(function: Callable[..., Any], names: Sequence[str], attrs: Any) -> list[str]:
    """Return the names of the arguments that a function can't take by position."""
    parameters = _parameters_of(function) or {}
    kinds = {parameter.kind for parameter in parameters.values()}
    keyword_names = [
        name
        for name in names
        if name in parameters and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        capacity = sum(
            parameter.kind in _POSITIONAL and name not in attrs for name, parameter in parameters.items()
        )
        keyword_names += [name for name in names if name not in keyword_names][capacity:]
    return keyword_names


def _build(form: Form, values: Iterator[Any], name: str) -> Any:
    """Build an argument from the next flat values."""
    if form.kind == "tensor":
        return next(values)
    if form.kind == "sparse":
        return _build_sparse(next(values), next(values), next(values), form.shape)
    if form.kind == "ragged":
        flat, splits = next(values), list(itertools.islice(values, form.splits))
        return tf.RaggedTensor.from_nested_row_splits(flat, splits, validate=False)
    if form.kind in ("dict", "object"):
        labels = [f"{name}.{key}" for key in form.keys]
    else:
        labels = [f"{name}[{index}]" for index in range(len(form.parts))]
    parts = [_build(part, values, label) for part, label in zip(form.parts, labels, strict=True)]
    if form.kind == "list":
        return parts
    if form.kind == "tuple":
        return tuple(parts)
    keyed = dict(zip(form.keys, parts, strict=True))
    return keyed if form.kind == "dict" else _build_object(form, keyed, name)


def _build_sparse(indices: Any, values: Any, dense_shape: Any, shape: tuple[int, ...]) -> tf.SparseTensor:
    # A trace knows its rank even if it knows nothing else, as if a SparseTensorSpec stated it.
    indices = tf.ensure_shape(indices, [None, len(shape)])
    tensor = tf.SparseTensor(indices, values, tf.ensure_shape(dense_shape, [len(shape)]))
    if values.shape[0] is not None:
        tensor.set_shape(shape)
    return tensor


def _build_object(form: Form, fields: dict[str, Any], name: str) -> Any:
    make = users_code.load(form.target, f"inputs.{name}")
    call = f"{form.target}({', '.join(f'{key}=...' for key in fields)})"
    with frames.naming_errors("inputs", f"inputs.{name}: {call}", "fields"):
        return make(**fields)


_UNNAMED = "Variable"  # what TensorFlow calls a variable that was given no name


def with_variables(case: Case, variables: Sequence[Any], target: Any) -> Case:
    """Return the case with each variable as an additional argument, at its present value.

    Raises:
        CaseFailedError: there are none.
    """
    if not variables:
        raise CaseFailedError(
            "variables",
            "variables: true, but the forward uses no trainable variable of a floating dtype; leave it out.",
        )
    names = _unique_names(variables, names_in_target(target), {tensor.name for tensor in case.tensors})
    for rule in case.code.variable_rules:
        if not any(matches(rule.glob, name) for name in names):
            raise CaseFailedError(
                "variables", f"variables: {rule.glob!r} is no variable's name; there are {', '.join(names)}."
            )
    limits = constraints_in_target(target)
    arguments = tuple(
        Argument(name, (as_input(case, name, variable, limits),))
        for name, variable in zip(names, variables, strict=True)
    )
    return replace(case, arguments=(*case.arguments, *arguments), code=replace(case.code, variables=True))


def plain_name(variable: Any) -> str:
    """Return a variable's name without its output number."""
    return str(variable.name).partition(":")[0]


def as_input(case: Case, name: str, variable: Any, limits: Mapping[int, Any]) -> InputSpec:
    """Return a variable as an input, at its present value.

    Args:
        case: its rules for variables say how far this one goes.
        variable: one of TensorFlow's, or anything else with a handle that `read` reads.
        limits: Keras' constraints, by `id` of the handle.
    """
    dtype = variable.dtype
    value = dtypes.widen(tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=dtype))
    arguments: dict[str, object] = {"value": value}
    rule = next((rule for rule in reversed(case.code.variable_rules) if matches(rule.glob, name)), None)
    domain = UNBOUNDED if rule is None else rule.domain
    limit = limits.get(id(variable.handle))
    if limit is not None:
        arguments["constraint"] = lambda moved: dtypes.widen(limit(dtypes.constant(moved, dtype)))
        if type(limit).__name__ == "NonNeg" and rule is None:
            domain = (0.0, UNBOUNDED[1])
    source = Source("variable", arguments)
    return InputSpec(
        name, dtype.name, value.shape, source, domain=domain, keeps="" if rule is None else rule.keeps
    )


def constraints_in_target(target: Any) -> dict[int, Any]:
    """Return Keras' constraints of the variables that a function reaches, by `id` of the handle."""
    limits: dict[int, Any] = {}
    for value in _reached(target).values():
        limits |= private_state.constraints_of(value)
    return limits


def _reached(target: Any) -> dict[str, Any]:
    """Return what a layer, module or function reaches by name; itself by no name."""
    return {**_names_in_scope(target), "": getattr(target, "__self__", target)}


def names_in_target(target: Any) -> Mapping[int, str]:
    """Return the names by which a layer, module or function reaches variables, by `id` of the variable."""
    names_by_id: dict[int, str] = {}
    for name, value in _reached(target).items():
        if isinstance(value, tf.Variable):
            names_by_id[id(value)] = name
        elif isinstance(value, tf.Module):
            names_by_id |= private_state.attribute_paths(value)
        else:
            names_by_id |= private_state.keras_paths(value)
    return names_by_id


def _names_in_scope(target: Any) -> dict[str, Any]:
    """Return the global and nonlocal values that a Python function uses, by name."""
    try:
        names = inspect.getclosurevars(inspect.unwrap(getattr(target, "python_function", target)))
    except (TypeError, ValueError):  # no Python function
        return {}
    return {**names.globals, **names.nonlocals}


def _path(plain: str, name_in_target: str | None) -> str:
    """Return a variable's name, with its parts separated by slashes.

    In Keras the name is the layer's path, to which TensorFlow may have added a number. A variable without a
    name is named by its place in a module or a function.
    """
    if name_in_target is None:
        return plain
    return name_in_target if "/" in name_in_target or re.fullmatch(rf"{_UNNAMED}(_\d+)?", plain) else plain


def _unique_names(variables: Sequence[Any], names_in_target: Mapping[int, str], used: set[str]) -> list[str]:
    paths = [_path(plain_name(variable), names_in_target.get(id(variable))) for variable in variables]
    parts = [path.split("/") for path in paths]
    # A shared first part is a layer's own name, numbered in the order of creation: it says nothing.
    while all(len(path) > 1 and path[0] == parts[0][0] for path in parts):
        parts = [path[1:] for path in parts]
    return unique([NO_LABEL.sub("_", ".".join(path)) for path in parts], used)


def create_raw_op(case: Case, tensors: Sequence[Any]) -> list[Any]:
    """Create the op and return its outputs, flat.

    Raises:
        CaseFailedError: of kind "op_type".
    """
    op_type = str(case.code.op_type)
    definition = op_types.definition_of(op_type)
    expected = [argument.name for argument in definition.input_arg]
    own_names = _own_names(op_type, definition)
    actual = [own_names.get(argument.name, argument.name) for argument in case.arguments]
    if set(expected) != set(actual):
        raise CaseFailedError(
            "op_type",
            f"op_type {op_type} takes the inputs {', '.join(expected) or 'none'}, but the spec gives "
            f"{', '.join(actual) or 'none'}.",
        )
    attr_names = {attr.name for attr in definition.attr}
    attrs = {own_names.get(name, name): value for name, value in case.code.attrs.items()}
    unknown = sorted(set(attrs) - attr_names)
    if unknown:
        raise CaseFailedError(
            "op_type",
            f"op_type {op_type} has no attr {unknown[0]!r}; it has "
            f"{', '.join(sorted(attr_names)) or 'none'}.",
        )
    values = {own_names.get(name, name): value for name, value in build_arguments(case, tensors).items()}
    result = _apply(definition, {**values, **attrs})
    if isinstance(result, tf.Operation):
        raise CaseFailedError(
            "op_type", f"op_type {op_type} has no outputs: there is nothing to differentiate."
        )
    # By position: only an eager call would show their names in the OpDef.
    return [tf.convert_to_tensor(value) for value in tf.nest.flatten(result)]


def _own_names(op_type: str, definition: Any) -> dict[str, str]:
    """Return the names in an op type's OpDef, by the names in `tf.raw_ops`, where they differ."""
    exported = getattr(tf.raw_ops, op_type, None)
    if exported is None:
        return {}
    own_names = [field.name for field in (*definition.input_arg, *definition.attr)]
    by_exported_name = exported_names(definition, exported, {name: name for name in own_names})
    return {name: own_name for name, own_name in by_exported_name.items() if name not in own_names}


def _apply(definition: Any, arguments: dict[str, Any]) -> Any:
    op_type = definition.name
    if not tf.executing_eagerly():
        return private_graphs.apply_op(definition, arguments, op_types.inferred_attrs(definition))
    exported = getattr(tf.raw_ops, op_type, None)
    if exported is None:
        raise CaseSkippedError(
            "mode", f"TensorFlow exports no Python function for op_type {op_type} that could run eagerly."
        )
    return exported(**exported_names(definition, exported, arguments))


def exported_names(definition: Any, exported: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments under the names of TensorFlow's Python function for an op type.

    Some are renamed there: Squeeze's squeeze_dims is axis, Select's t and e are x and y. Renamed ones keep
    their order.
    """
    parameters = list(inspect.signature(exported).parameters)
    inferred = op_types.inferred_attrs(definition)
    own_names = [arg.name for arg in definition.input_arg]
    own_names += [attr.name for attr in definition.attr if attr.name not in inferred]
    renamed = [name for name in own_names if name not in parameters]
    names = [name for name in parameters if name not in own_names and name != "name"]
    if len(renamed) != len(names):
        return arguments
    exported_name = dict(zip(renamed, names, strict=True))
    return {exported_name.get(name, name): value for name, value in arguments.items()}


def names(case: Case, count: int, returned_names: Sequence[str] = ()) -> list[str]:
    """Return the outputs' names: those from what the forward returned, the spec's, y, or y0, y1, ..."""
    if len(returned_names) == count:
        return list(returned_names)
    if len(case.outputs) == count:
        return [output.name for output in case.outputs]
    return ["y"] if count == 1 else [f"y{index}" for index in range(count)]


def infos(
    case: Case, output_names: Sequence[str], output_dtypes: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> tuple[TensorInfo, ...]:
    """Describe the outputs, with their shapes at the base point."""
    owners = {output.name: output.gradient_of for output in case.outputs}
    return tuple(
        TensorInfo(name, dtype.name, tuple(shape), dtypes.is_differentiable(dtype), of=owners.get(name, ""))
        for name, dtype, shape in zip(output_names, output_dtypes, shapes, strict=True)
    )


def check_dtypes(
    case: Case,
    output_names: Sequence[str],
    output_dtypes: Sequence[Any],
    dtype_of: Callable[[str], str],
    role: str,
) -> None:
    """Compare the outputs' number and dtypes with the spec.

    Args:
        dtype_of: maps a dtype that the spec names to the one that is traced.

    Raises:
        CaseFailedError: of kind "outputs".
    """
    by_name = dict(zip(output_names, output_dtypes, strict=True))
    declared = [output.name for output in case.outputs]
    is_there = [any(name == actual or _is_part(actual, name) for actual in output_names) for name in declared]
    if not all(is_there):
        raise CaseFailedError(
            "outputs",
            f"the {role} returns {visible.count(len(output_dtypes), 'output')}, but the spec names "
            f"{len(declared)}: {', '.join(declared)}.",
        )
    for output in case.outputs:
        dtype = by_name.get(output.name)
        if dtype is None:
            if output.dtype is not None or output.shape is not None:
                parts = [name for name in output_names if _is_part(name, output.name)]
                raise CaseFailedError(
                    "outputs",
                    f"output {output.name} of the {role} is a structure of {', '.join(parts)}, which has no "
                    "dtype and no shape of its own: leave them out of the spec.",
                )
        elif output.dtype is not None and dtype_of(output.dtype) != dtype.name:
            raise CaseFailedError(
                "outputs",
                f"output {output.name} of the {role} must be {dtype_of(output.dtype)} by the spec, "
                f"but is {dtype.name}.",
            )


def _is_part(name: str, owner: str) -> bool:
    return name.startswith((f"{owner}.", f"{owner}["))


def check_shapes(case: Case, output_names: Sequence[str], values: Sequence[np.ndarray[Any, Any]]) -> None:
    """Compare the outputs' shapes with the spec.

    Raises:
        CaseFailedError: of kind "outputs".
    """
    by_name = dict(zip(output_names, values, strict=True))
    for declared in case.outputs:
        expected, value = declared.shape, by_name.get(declared.name)
        if (
            expected is not None
            and value is not None
            and not tf.TensorShape(expected).is_compatible_with(value.shape)
        ):
            raise CaseFailedError(
                "outputs",
                f"output {declared.name} must have shape {dtypes.shape_text(expected)} by the spec, but "
                f"has {dtypes.shape_text(value.shape)}.",
            )


def flat_outputs(case: Case, result: Any, role: str, names: list[str] | None = None) -> list[Any]:
    """Return what a function returned as a flat list of tensors, in the order of the spec's names.

    Args:
        role: "forward" or "reference", for messages.
        names: filled with the name of each.

    Raises:
        CaseFailedError: of kind "outputs": something in it is no tensor, or its names aren't the spec's.
    """
    leaves = _name_leaves(case, result, role)
    tensors = [_tensor(leaf, role, is_root=leaf.value is result) for leaf in leaves]
    if names is not None:
        names[:] = unique([leaf.path for leaf in leaves])
    return tensors


def flat_arrays(case: Case, result: Any) -> Any:
    """Return what a NumPy forward returned as TensorFlow's `py_func` takes it: a structure flat.

    Raises:
        CaseFailedError: of kind "outputs": its names aren't the spec's.
    """
    is_flat = not any("." in leaf.path for leaf in leaves_of(result))  # lists may be an array's rows
    return result if is_flat else [leaf.value for leaf in _name_leaves(case, result, "forward")]


def _tensor(leaf: Leaf, role: str, *, is_root: bool) -> Any:
    kind = type(leaf.value).__name__
    what = f"returned a {kind}" if is_root else f"{leaf.path} is a {kind}"
    if leaf.value is None:
        raise CaseFailedError("outputs", f"{role}: must return tensors, but {what}; return each output.")
    try:
        return tf.convert_to_tensor(leaf.value)
    except (TypeError, ValueError) as error:
        remedy = " Return ta.stack() or ta.concat()." if isinstance(leaf.value, tf.TensorArray) else ""
        raise CaseFailedError(
            "outputs", f"{role}: must return tensors, but {what} ({frames.first_line(error)}).{remedy}"
        ) from error


# How leaves are named.


def _name_leaves(case: Case, result: Any, role: str) -> list[Leaf]:
    """Return the leaves under their full names, in the order of the spec's names."""
    leaves = leaves_of(result)
    if not leaves or result is None:
        raise CaseFailedError(
            "outputs",
            f"{role}: must return tensors, but returned {type(result).__name__}; return each output.",
        )
    parts = parts_of(result) or []
    spec_names = [output.name for output in case.outputs]
    if isinstance(result, list | tuple) and not hasattr(result, "_fields"):
        return _name_by_position(parts, leaves, spec_names, role)
    keys = [part.key for part in parts]
    if parts and set(spec_names) == set(keys):
        by_key = {part.key: part for part in parts}
        return [leaf for name in spec_names for leaf in leaves_of(by_key[name].value, name)]
    if len(spec_names) <= 1:
        root = spec_names[0] if spec_names else "y"
        return [Leaf(root + leaf.path, leaf.value) for leaf in leaves]
    # The spec's own names are given by position. A dict has no position, and a field's name mustn't be used
    # for another field.
    positions = {key: position for position, key in enumerate(keys)}
    is_in_order = all(positions.get(name, index) == index for index, name in enumerate(spec_names))
    if parts and not isinstance(result, Mapping) and is_in_order:
        return _name_by_position(parts, leaves, spec_names, role)
    if parts:
        raise CaseFailedError(
            "outputs",
            f"the {role} returns a {type(result).__name__} of {', '.join(keys)}, but the spec names "
            f"{', '.join(spec_names)}. Name its keys, or the whole by one name.",
        )
    raise _count_error(role, len(leaves), spec_names)


def _name_by_position(
    parts: Sequence[Part], leaves: Sequence[Leaf], spec_names: Sequence[str], role: str
) -> list[Leaf]:
    """Name the leaves of a list or tuple: by its elements, or each leaf by itself."""
    names = spec_names or (["y"] if len(parts) == 1 else [f"y{index}" for index in range(len(parts))])
    if len(names) == len(parts):
        return [leaf for name, part in zip(names, parts, strict=True) for leaf in leaves_of(part.value, name)]
    if len(spec_names) == len(leaves):
        return [Leaf(name, leaf.value) for name, leaf in zip(spec_names, leaves, strict=True)]
    raise _count_error(role, len(leaves), spec_names)


def _count_error(role: str, count: int, spec_names: Sequence[str]) -> CaseFailedError:
    listed = ", ".join(spec_names)
    return CaseFailedError(
        "outputs",
        f"the {role} returns {visible.count(count, 'output')}, but the spec names {len(spec_names)}: "
        f"{listed}.",
    )
