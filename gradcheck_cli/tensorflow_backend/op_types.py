"""The op types that TensorFlow defines, by their OpDefs."""

from __future__ import annotations

import difflib
from typing import Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.private import private_graphs


def definition_of(op_type: str) -> Any:
    """Return the OpDef of an op type.

    Raises:
        CaseFailedError: of kind "op_type": there is no such op type.
    """
    definition = private_graphs.op_def(op_type)
    if definition is None:
        raise CaseFailedError("op_type", describe_unknown(op_type))
    return definition


def describe_unknown(op_type: str) -> str:
    """Say that TensorFlow has no such op type, with the nearest ones."""
    near = difflib.get_close_matches(op_type, sorted(every_op_type()), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else " See 'gradcheck list --status all'."
    return f"TensorFlow {tf.__version__} has no op type {op_type!r}.{hint}"


def every_op_type() -> frozenset[str]:
    """Return every op type, with or without a gradient, those of loaded libraries included."""
    return private_graphs.op_types()


def inferred_attrs(definition: Any) -> set[str]:
    """Return the attrs of an OpDef that follow from the inputs."""
    return {
        name for arg in definition.input_arg for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)
    }
