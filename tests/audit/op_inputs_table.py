"""The inputs of op types that have a gradient, for the reader of specs, which never imports TensorFlow.

python -m tests.audit.op_inputs_table --write
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

from gradcheck_cli.spec import op_inputs
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import exported_names
from gradcheck_cli.tensorflow_backend.private import private_graphs

TABLE = Path(op_inputs.__file__).with_name("op_inputs.txt")
_MAY_FLOAT = ("float", "bfloat", "complex")


def lines() -> list[str]:
    """Return a line for each op type with a registered gradient: its name, and its inputs."""
    types = sorted(name for name in private_graphs.op_types() if private_graphs.has_gradient(name))
    return [" ".join([name, *_inputs(name)]) for name in types if private_graphs.op_def(name)]


def _inputs(op_type: str) -> list[str]:
    definition, exported = private_graphs.op_def(op_type), getattr(tf.raw_ops, op_type, None)
    names = {argument.name: argument.name for argument in definition.input_arg}
    own = (
        {name: known for known, name in exported_names(definition, exported, names).items()}
        if exported
        else {}
    )
    return [_input(definition, argument, own.get(argument.name, "")) for argument in definition.input_arg]


def _input(definition: Any, argument: Any, exported: str) -> str:
    name = argument.name if exported in ("", argument.name) else f"{argument.name}|{exported}"
    if argument.type:
        return f"{name}:={tf.as_dtype(argument.type).name}"
    attr = next((attr for attr in definition.attr if attr.name == argument.type_attr), None)
    allowed = [tf.as_dtype(one).name for one in attr.allowed_values.list.type] if attr else []
    if not allowed or any(one.startswith(_MAY_FLOAT) for one in allowed):
        return name
    default = tf.as_dtype(attr.default_value.type).name if attr.HasField("default_value") else ""
    return f"{name}:{attr.name}={default or ('int32' if 'int32' in allowed else allowed[0])}"


if __name__ == "__main__":
    text = "".join(f"{line}\n" for line in lines())
    if "--write" in sys.argv:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")  # noqa: T201 (a script)
