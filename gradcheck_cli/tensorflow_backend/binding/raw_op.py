"""The raw op of an `op_type`, with its inputs and attrs named as in its OpDef."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend.binding.arguments import build_arguments
from gradcheck_cli.tensorflow_backend.private import private_graphs


def create(case: Case, tensors: Sequence[Any]) -> list[Any]:
    """Create the op and return its outputs, flat.

    Raises:
        CaseFailedError: of kind "op_type".
    """
    op_type = str(case.op_type)
    definition = private_graphs.op_def(op_type)
    if definition is None:
        raise CaseFailedError("op_type", unknown_op_type(op_type))
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
    attrs = {own_names.get(name, name): value for name, value in case.attrs.items()}
    unknown = sorted(set(attrs) - attr_names)
    if unknown:
        raise CaseFailedError(
            "op_type",
            f"op_type {op_type} has no attr {unknown[0]!r}; it has "
            f"{', '.join(sorted(attr_names)) or 'none'}.",
        )
    values = {own_names.get(name, name): value for name, value in build_arguments(case, tensors).items()}
    result = _apply(op_type, {**values, **attrs})
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


def _apply(op_type: str, arguments: dict[str, Any]) -> Any:
    if not tf.executing_eagerly():
        return private_graphs.apply_op(op_type, arguments)
    exported = getattr(tf.raw_ops, op_type, None)
    if exported is None:
        raise CaseSkippedError(
            "mode", f"TensorFlow exports no Python function for op_type {op_type} that could run eagerly."
        )
    return exported(**exported_names(private_graphs.op_def(op_type), exported, arguments))


def exported_names(definition: Any, exported: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments under the names of TensorFlow's Python function for an op type.

    Some are renamed there: Squeeze's squeeze_dims is axis, Select's t and e are x and y. Renamed ones keep
    their order.
    """
    parameters = list(inspect.signature(exported).parameters)
    inferred = {
        name for arg in definition.input_arg for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)
    }
    own_names = [arg.name for arg in definition.input_arg]
    own_names += [attr.name for attr in definition.attr if attr.name not in inferred]
    renamed = [name for name in own_names if name not in parameters]
    names = [name for name in parameters if name not in own_names and name != "name"]
    if len(renamed) != len(names):
        return arguments
    exported_name = dict(zip(renamed, names, strict=True))
    return {exported_name.get(name, name): value for name, value in arguments.items()}


def unknown_op_type(op_type: str) -> str:
    """Say that TensorFlow has no such op type, with the nearest ones."""
    near = difflib.get_close_matches(op_type, sorted(private_graphs.op_types()), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else " See 'gradcheck list --status all'."
    return f"TensorFlow {tf.__version__} has no op type {op_type!r}.{hint}"
