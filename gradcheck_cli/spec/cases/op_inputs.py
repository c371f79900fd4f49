"""What is known about an op type's inputs without TensorFlow: their names, and non-floating dtypes.

The table has the op types with a registered gradient; `tests/audit/op_inputs_table.py` writes it from their
definitions, which TensorFlow doesn't change. A line is `OpType input input|exported:attr=dtype ...`: the name
of `tf.raw_ops` where it is another one, the type attr that inputs share, and the dtype where none is given.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gradcheck_cli.spec.cases.merge_trees import merge_input
from gradcheck_cli.spec.words import GENERATORS
from gradcheck_cli.spec.yaml.yaml_nodes import Node, join

_INPUT = re.compile(r"(?P<name>\w+)(\|(?P<exported>\w+))?(:(?P<attr>\w*)=(?P<dtype>\w+))?")


class OpInput(NamedTuple):
    """One input of an op type: the type attr that it shares with others, and its dtype; empty if unknown."""

    attr: str
    dtype: str


@cache
def op_inputs(op_type: str) -> dict[str, OpInput]:
    """Return an op type's inputs by their names in its definition and in `tf.raw_ops`; empty if unknown."""
    found: dict[str, OpInput] = {}
    for written in _table().get(op_type, ()):
        match = _INPUT.fullmatch(written)
        if match:
            one = OpInput(match["attr"] or "", match["dtype"] or "")
            found |= {name: one for name in (match["name"], match["exported"]) if name}
    return found


@cache
def _table() -> dict[str, tuple[str, ...]]:
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    return {op_type: tuple(inputs) for op_type, *inputs in map(str.split, lines)}


def with_op_inputs(case: Node) -> Node:
    """Return a merged case of an op type with its constants as inputs, and its definition's dtypes."""
    op_type = case.get("op_type")
    if op_type is None or not isinstance(op_type.value, str) or case.get("forward") is not None:
        return case
    known = op_inputs(op_type.value)
    entries = dict(case.children)
    inputs, attrs = case.get("inputs") or Node({}, case.line, join(case.place, "inputs")), case.get("attrs")
    if not isinstance(inputs.value, dict):
        return case
    given = dict(inputs.value)
    if attrs is not None and isinstance(attrs.value, dict):
        constants = {name: node for name, node in attrs.value.items() if name in known}
        for name, node in constants.items():
            constant = _constant(node, known[name])
            given[name] = merge_input(constant, given[name]) if name in given else constant
        if constants:  # in the order of the definition, in which a reference takes them
            places = list(known)
            given = dict(
                sorted(given.items(), key=lambda item: places.index(item[0]) if item[0] in known else 0)
            )
        entries["attrs"] = replace(
            attrs, value={name: node for name, node in attrs.value.items() if name not in constants}
        )
    written = {name: _written(node) for name, node in given.items() if name in known}
    dtypes = {known[name].attr: dtype for name, dtype in written.items() if dtype}
    given = {name: _typed(node, known.get(name), dtypes) for name, node in given.items()}
    if given:
        entries["inputs"] = replace(inputs, value=given)
    return replace(case, value=entries)


def _constant(node: Node, known: OpInput) -> Node:
    parts = {"value": node}
    if not known.dtype:
        parts["differentiate"] = replace(node, value=False)
    return Node(parts, node.line, node.place, node.key_line)


def _written(node: Node) -> str:
    dtype = node.get("dtype")
    return dtype.value if dtype is not None and isinstance(dtype.value, str) else ""


def _typed(node: Node, known: OpInput | None, shared: dict[str, str]) -> Node:
    """Give an input the dtype in its definition, or that of an input with the same type attr."""
    if known is None or not known.dtype:
        return node
    if isinstance(node.value, list):
        return replace(node, value=[_typed(part, known, shared) for part in node.value])
    if node.value is not None and not isinstance(node.value, dict):
        return node
    has_own = any(GENERATORS[key].dtype for key in node.children if key in GENERATORS)
    if "dtype" in node.children or has_own:
        return node
    dtype = (shared.get(known.attr) if known.attr else "") or known.dtype
    return replace(node, value={**node.children, "dtype": Node(dtype, node.line, join(node.place, "dtype"))})
