"""What is known about an op type's inputs without TensorFlow: their names, and non-floating dtypes.

The table has the op types with a registered gradient; `tests/audit/op_inputs_table.py` writes it from their
definitions, which TensorFlow doesn't change. A line is `OpType input input|exported:attr=dtype ...`:
`exported` is the input's name in `tf.raw_ops` if it differs, `attr` the type attr that inputs share, and
`dtype` the dtype of an input that names none.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gradcheck_cli.spec.cases.merge_trees import merge_input
from gradcheck_cli.spec.words import GENERATORS
from gradcheck_cli.spec.yaml_tree import Node, join

_INPUT = re.compile(r"(?P<name>\w+)(\|(?P<exported>\w+))?(:(?P<attr>\w*)=(?P<dtype>\w+))?")


class OpInput(NamedTuple):
    """One input of an op type: the type attr that it shares with others, and its dtype; empty if unknown."""

    attr: str
    dtype: str


@cache
def op_inputs(op_type: str) -> dict[str, OpInput]:
    """Return an op type's inputs by their names in its definition and in `tf.raw_ops`; empty if unknown."""
    inputs: dict[str, OpInput] = {}
    for definition in _read_table().get(op_type, ()):
        match = _INPUT.fullmatch(definition)
        if match:
            op_input = OpInput(match["attr"] or "", match["dtype"] or "")
            inputs |= {name: op_input for name in (match["name"], match["exported"]) if name}
    return inputs


@cache
def _read_table() -> dict[str, tuple[str, ...]]:
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    return {op_type: tuple(inputs) for op_type, *inputs in map(str.split, lines)}


def with_op_inputs(case: Node) -> Node:
    """Return a merged case in which constants under an op type's `attrs` are inputs, with its dtypes."""
    op_type = case.get("op_type")
    if op_type is None or not isinstance(op_type.value, str) or case.get("forward") is not None:
        return case
    definition = op_inputs(op_type.value)
    entries = dict(case.children)
    inputs, attrs = case.get("inputs") or Node({}, case.line, join(case.place, "inputs")), case.get("attrs")
    if not isinstance(inputs.value, dict):
        return case
    nodes = dict(inputs.value)
    if attrs is not None and isinstance(attrs.value, dict):
        constants = {name: node for name, node in attrs.value.items() if name in definition}
        for name, node in constants.items():
            constant = _input_of_constant(node, definition[name])
            nodes[name] = merge_input(constant, nodes[name]) if name in nodes else constant
        if constants:  # in the order of the definition, in which a reference takes them
            order = list(definition)
            nodes = dict(
                sorted(nodes.items(), key=lambda item: order.index(item[0]) if item[0] in definition else 0)
            )
        entries["attrs"] = replace(
            attrs, value={name: node for name, node in attrs.value.items() if name not in constants}
        )
    written = {name: _written_dtype(node) for name, node in nodes.items() if name in definition}
    dtypes = {definition[name].attr: dtype for name, dtype in written.items() if dtype}
    nodes = {name: _with_dtype(node, definition.get(name), dtypes) for name, node in nodes.items()}
    if nodes:
        entries["inputs"] = replace(inputs, value=nodes)
    return replace(case, value=entries)


def _input_of_constant(node: Node, op_input: OpInput) -> Node:
    parts = {"value": node}
    if not op_input.dtype:
        parts["differentiate"] = replace(node, value=False)
    return Node(parts, node.line, node.place, node.key_line)


def _written_dtype(node: Node) -> str:
    dtype = node.get("dtype")
    return dtype.value if dtype is not None and isinstance(dtype.value, str) else ""


def _with_dtype(node: Node, op_input: OpInput | None, shared: dict[str, str]) -> Node:
    """Give an input the dtype in its definition, or that of an input with the same type attr."""
    if op_input is None or not op_input.dtype:
        return node
    if isinstance(node.value, list):
        return replace(node, value=[_with_dtype(element, op_input, shared) for element in node.value])
    if node.value is not None and not isinstance(node.value, dict):
        return node
    has_own = any(GENERATORS[key].dtype for key in node.children if key in GENERATORS)
    if "dtype" in node.children or has_own:
        return node
    dtype = (shared.get(op_input.attr) if op_input.attr else "") or op_input.dtype
    return replace(node, value={**node.children, "dtype": Node(dtype, node.line, join(node.place, "dtype"))})
