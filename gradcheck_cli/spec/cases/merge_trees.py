"""Merges trees: `defaults` under an op, an op under its cases.

Mappings merge by key; everything else is replaced. Some keys have further rules:

- An input's generator replaces the generator below it. One whose elements can't be moved one by one also
  removes `away_from` and `min_gap`.
- A list argument merges element by element with one of the same length, and replaces any other. So does a
  tuple. A dict and an object merge by key. A structure replaces one of another kind.
- `sparse` or `ragged` replaces either of them below.
- Pair rules of the upper tree come last, since the last rule that matches wins.
- A mapping of cases extends those below. Each case merges like an op; null removes a case. A list of cases
  replaces those below.

What is known about an op type's inputs without TensorFlow stands in `op_inputs.txt`, which
`tests/audit/op_inputs_table.py` writes from the ops' definitions. A line is
`OpType input input|exported:attr=dtype ...`: `exported` is the input's name in `tf.raw_ops` if it differs,
`attr` the type attr that inputs share, and `dtype` the dtype of an input that names none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gradcheck_cli.spec.words import GENERATORS
from gradcheck_cli.spec.yaml_tree import Node, join

MOVERS = ("away_from", "min_gap")
COMPOSITES = ("sparse", "ragged")
PARTS = ("dict", "tuple", "list", "fields")


def merge_op(below: Node, above: Node) -> Node:
    """Merge an op over defaults, or a case over its op; lines and places are those of what is above."""
    merged = _merge(below, above)
    entries = dict(merged.children)
    for key, merge_values in (("inputs", _merge_inputs), ("pairs", _merge_pairs), ("cases", merge_cases)):
        lower, upper = below.get(key), above.get(key)
        if lower is not None and upper is not None:
            entries[key] = merge_values(lower, upper)
    return replace(merged, value=entries)


def _merge_pairs(below: Node, above: Node) -> Node:
    merged = _merge(below, above)
    if not below.children or not above.children:
        return merged
    only_below = {glob: rule for glob, rule in below.children.items() if glob not in above.children}
    return replace(merged, value=only_below | {glob: merged.children[glob] for glob in above.children})


def merge_cases(below: Node, above: Node) -> Node:
    """Merge a mapping of cases over others; a list replaces them."""
    return _merge(cases_by_name(below), above, _merge_case)


def cases_by_name(cases: Node) -> Node:
    """Return cases as a mapping by their names."""
    if not isinstance(cases.value, list):
        return cases
    named = {str(name.value): case for case in cases.value if (name := case.get("name")) is not None}
    return replace(cases, value=named)


def _merge_case(below: Node, above: Node) -> Node:
    are_mappings = isinstance(below.value, dict) and isinstance(above.value, dict)
    return merge_op(below, above) if are_mappings else above


def reorder_inputs(merged: Node, above: Node) -> Node:
    """Return an op merged over defaults with the op's own order of inputs, if it names them all.

    The order of inputs is forward's positional order, which the op states more specifically than the
    defaults.
    """
    inputs, own = merged.get("inputs"), above.get("inputs")
    if inputs is None or own is None or set(inputs.children) != set(own.children):
        return merged
    ordered = replace(inputs, value={name: inputs.children[name] for name in own.children})
    return replace(merged, value={**merged.children, "inputs": ordered})


def _merge(below: Node, above: Node, merge_value: Callable[[Node, Node], Node] | None = None) -> Node:
    """Merge key by key; `merge_value` merges the two values of a key, by default in the same way."""
    if not (isinstance(below.value, dict) and isinstance(above.value, dict)):
        return above
    entries = dict(below.value)
    for key, node in above.value.items():
        entries[key] = (merge_value or _merge)(entries[key], node) if key in entries else node
    return replace(above, value=entries)


def _merge_inputs(below: Node, above: Node) -> Node:
    return _merge(below, above, merge_input)


def merge_input(below: Node, above: Node) -> Node:
    """Merge what a case says about an input over what its op says."""
    if above.value is None or above.value == {}:
        return below
    if isinstance(below.value, list) and isinstance(above.value, list):
        if len(below.value) != len(above.value):
            return above
        elements = [merge_input(low, high) for low, high in zip(below.value, above.value, strict=True)]
        return replace(above, value=elements)
    kind = _kind(above)
    if kind == "list" or kind != _kind(below):
        return above
    return _merge_tensor(below, above) if kind == "tensor" else _merge_structure(below, above)


def _kind(node: Node) -> str:
    """Return the kind of an input: a list, a tensor, or which structure of them."""
    if not isinstance(node.value, dict):
        return "list"
    if "object" in node.value or "fields" in node.value:
        return "object"
    return next((key for key in PARTS[:3] if key in node.value), "tensor")


def _merge_tensor(below: Node, above: Node) -> Node:
    generators = set(above.children).intersection(GENERATORS)
    dropped = set(GENERATORS) if generators else set()
    if not all(GENERATORS[kind].is_elementwise for kind in generators):
        dropped.update(MOVERS)
    if any(key in above.children for key in COMPOSITES):
        dropped.update(COMPOSITES)
    remaining = {key: node for key, node in below.children.items() if key not in dropped}
    return _merge(replace(below, value=remaining), above)


def _merge_structure(below: Node, above: Node) -> Node:
    merged = dict(_merge(below, above).children)
    for key in PARTS:
        lower, upper = below.get(key), above.get(key)
        if lower is not None and upper is not None:
            are_mappings = isinstance(lower.value, dict) and isinstance(upper.value, dict)
            merged[key] = _merge_inputs(lower, upper) if are_mappings else merge_input(lower, upper)
    return replace(above, value=merged)


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
    lines = Path(__file__).with_name("op_inputs.txt").read_text(encoding="utf-8").splitlines()
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
