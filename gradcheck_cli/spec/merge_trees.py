"""Expands the short forms of a spec, and merges trees: `defaults` under an op, an op under its cases.

Nodes keep their lines and places, so that a fault names the original text. These short forms are expanded
before anything is merged:

- Inputs: a list of integers is a tensor of that shape, `x: [2, 3]`. The two numbers of a range or a
  distribution may be a list, `uniform: [-2, 2]`.
- Words: a list of a single word may be the word, `dtypes: float64`. `floating` and `complex` stand for the
  dtypes of that kind. A list of op types makes an op of each. `.function` is one of the `module` of the op or
  its defaults.
- Pairs: a rule that is a word is the expectation, `dy/dx: zero`. If its key is a word, the value is the
  reason, `dy/dx: {zero: why}`, or the kind of a mismatch, `dy/dx: {mismatch: value}`.
- Cases: `cases` may be a mapping of names to cases. It extends the mapping below it, where null removes a
  case. `cases_from` names sets of cases, `case_sets` of the defaults, that come first.

In merging, mappings merge by key; everything else is replaced. Some keys have further rules:

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
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from gradcheck_cli.errors import suggest
from gradcheck_cli.spec.faults import FaultLog, show
from gradcheck_cli.spec.words import DTYPE_KINDS, GENERATORS, LISTS_OF_WORDS, PAIR_EXPECTATIONS, TWO_NUMBERS
from gradcheck_cli.spec.yaml_tree import Node, join

MOVERS = ("away_from", "min_gap")
COMPOSITES = ("sparse", "ragged")
PARTS = ("dict", "tuple", "list", "fields")


def merge_op(below: Node, above: Node) -> Node:
    """Merge an op over defaults, or a case over its op; lines and places are those of what is above."""
    merged = _merge(below, above)
    for key, merge_values in (("inputs", _merge_inputs), ("pairs", _merge_pairs), ("cases", merge_cases)):
        lower, upper = below.get(key), above.get(key)
        if lower is not None and upper is not None:
            merged = merged.with_entries({key: merge_values(lower, upper)})
    return merged


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
    return merged.with_entries({"inputs": ordered})


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
    return _merge(below.without(*dropped), above)


def _merge_structure(below: Node, above: Node) -> Node:
    merged = _merge(below, above)
    for key in PARTS:
        lower, upper = below.get(key), above.get(key)
        if lower is not None and upper is not None:
            are_mappings = isinstance(lower.value, dict) and isinstance(upper.value, dict)
            parts = _merge_inputs(lower, upper) if are_mappings else merge_input(lower, upper)
            merged = merged.with_entries({key: parts})
    return merged


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
        case = case.with_entries({"attrs": attrs.without(*constants)})
    written = {name: _written_dtype(node) for name, node in nodes.items() if name in definition}
    dtypes = {definition[name].attr: dtype for name, dtype in written.items() if dtype}
    nodes = {name: _with_dtype(node, definition.get(name), dtypes) for name, node in nodes.items()}
    return case.with_entries({"inputs": replace(inputs, value=nodes)}) if nodes else case


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
    return node.with_entries({"dtype": Node(dtype, node.line, join(node.place, "dtype"))})


_FUNCTIONS = ("forward", "gradient", "reference")


def expand_short_forms(op: Node, below: Node | None = None) -> Node:
    """Return an op, a case or defaults with their short forms expanded, also in cases.

    Args:
        below: what they will be merged over, which may name their module.
    """
    module = op.get("module") or (None if below is None else below.get("module"))
    expand_case = partial(expand_short_forms, below=Node({"module": module}, 0, "") if module else None)
    expansions: dict[str, Callable[[Node], Node]] = {
        "inputs": lambda inputs: inputs.map_children(_expand_input),
        "pairs": lambda pairs: pairs.map_children(_expand_rule),
        "cases": lambda cases: cases.map_children(expand_case),
        "case_sets": lambda sets: sets.map_children(lambda cases: cases.map_children(expand_case)),
        **dict.fromkeys(_FUNCTIONS, partial(_with_module, module=module)),
        **dict.fromkeys(LISTS_OF_WORDS, _as_list),
        "dtypes": _expand_dtypes,
    }
    if not isinstance(op.value, dict):
        return op
    return op.with_entries(
        {key: expand(op.value[key]) for key, expand in expansions.items() if key in op.value}
    )


def split_op_types(op: Node) -> list[Node]:
    """Return an op whose `op_type` is a list as an op of each type; any other as it is."""
    types = op.get("op_type")
    if types is None or not types.items:
        return [op]
    return [op.with_entries({"op_type": op_type}) for op_type in types.items]


def _with_module(function: Node, module: Node | None) -> Node:
    """Return a function with its module before it, also as `{numpy: .function}`."""
    if isinstance(function.value, dict):
        return function.map_children(lambda child: _with_module(child, module))
    is_short = isinstance(function.value, str) and function.value.startswith(".")
    if not is_short or module is None or not isinstance(module.value, str):
        return function
    return replace(function, value=f"{module.value}:{str(function.value)[1:]}")


def _wrap(key: str, node: Node) -> Node:
    return Node({key: node}, node.line, node.place, node.key_line)


def _as_list(node: Node) -> Node:
    if not isinstance(node.value, str):
        return node
    return Node([node], node.line, node.place, node.key_line)


def _expand_dtypes(node: Node) -> Node:
    listed = _as_list(node)
    dtypes = [dtype for word in listed.items for dtype in _expand_kind(word)]
    return replace(listed, value=dtypes) if dtypes else listed


def _expand_kind(word: Node) -> list[Node]:
    kind = DTYPE_KINDS.get(word.value) if isinstance(word.value, str) else None
    return [word] if kind is None else [replace(word, value=dtype) for dtype in kind]


def _expand_input(node: Node) -> Node:
    if isinstance(node.value, list):
        if all(type(child.value) is int for child in node.value):
            return _wrap("shape", node)
        return node.map_children(_expand_input)
    if not isinstance(node.value, dict):
        return node
    parts = {
        key: child.map_children(_expand_input) if key in PARTS else _name_numbers(key, child)
        for key, child in node.value.items()
    }
    return replace(node, value=parts)


def _name_numbers(key: str, node: Node) -> Node:
    names = TWO_NUMBERS.get(key, ())
    if len(node.items) != len(names):
        return node
    return replace(node, value=dict(zip(names, node.items, strict=True))) if names else node


def _expand_rule(rule: Node) -> Node:
    if isinstance(rule.value, str):
        return _wrap("expect", rule)
    words = [word for word in PAIR_EXPECTATIONS if word in rule.children]
    if len(words) != 1 or "expect" in rule.children:
        return rule
    (word,) = words
    detail = rule.children[word]
    kind = Node({word: detail}, detail.line, rule.place, detail.key_line)
    expanded = (
        {"expect": kind} if word == "mismatch" else {"expect": replace(detail, value=word), "reason": detail}
    )
    return rule if "reason" in expanded.keys() & rule.children else rule.without(word).with_entries(expanded)


def collect_cases(log: FaultLog, op: Node, below: Node | None = None) -> Node:
    """Return an op with all its cases in one list under `cases`: those of sets first, then its own."""
    if not isinstance(op.value, dict):
        return op
    shared, own_cases = _cases_of_sets(log, op), op.get("cases")
    if own_cases is None and shared.children:
        own_cases = replace(shared, value={})
    if own_cases is not None and isinstance(own_cases.value, dict):
        removable = {**shared.children, **_named_cases(below)}
        _check_removed(log, own_cases, list(removable))
        own_cases = _as_named_list(log, replace(own_cases, value=merge_cases(shared, own_cases).children))
    elif own_cases is not None and isinstance(own_cases.value, list):
        own_cases = replace(own_cases, value=[*_as_named_list(log, shared).items, *own_cases.value])
    op = op.without("cases_from", "case_sets")
    return op if own_cases is None else op.with_entries({"cases": own_cases})


def _as_named_list(log: FaultLog, cases: Node) -> Node:
    """Return a mapping of cases as a list of those that aren't null, each with its name."""
    if not isinstance(cases.value, dict):
        return cases
    named = [_with_name(log, name, case) for name, case in cases.value.items() if case.value is not None]
    return replace(cases, value=named)


def _named_cases(below: Node | None) -> dict[str, Node]:
    cases = None if below is None else below.get("cases")
    return {} if cases is None else cases_by_name(cases).children


def _check_removed(log: FaultLog, cases: Node, known_names: list[str]) -> None:
    for name, case in cases.children.items():
        if case.value is None and name not in known_names:
            remedy = suggest(name, known_names) or f"Cases: {', '.join(known_names) or 'none'}"
            log.add_key(
                cases, f"must have a value, or be a case of the defaults that null removes. {remedy}", name
            )


def _with_name(log: FaultLog, name: str, case: Node) -> Node:
    if not isinstance(case.value, dict):
        log.add(case, f"must be a mapping, but got {show(case.plain())}. Write {{}} for a case like the op")
        case = replace(case, value={})
    label = Node(name, case.key_line or case.line, join(case.place, "name"), case.key_line)
    if "name" in case.children:
        log.add(case, f"must be left out, as the case is called {name}", "name")
    return case.with_entries({"name": label})


def _cases_of_sets(log: FaultLog, op: Node) -> Node:
    """Return the cases of the sets that an op names, later sets over earlier ones."""
    merged = Node({}, op.line, op.place)
    names, sets = op.get("cases_from"), op.get("case_sets")
    known_sets = {} if sets is None else sets.children
    for index, name in enumerate(names.items if names else ()):
        if isinstance(name.value, str) and name.value in known_sets:
            cases = cases_by_name(known_sets[name.value])
            merged = replace(cases, value=merge_cases(merged, cases).children)
        elif isinstance(name.value, str):
            remedy = suggest(name.value, known_sets) or f"Sets: {', '.join(known_sets) or 'none'}"
            log.add(op, f"must be a set of case_sets, but got {name.value!r}. {remedy}", "cases_from", index)
    return merged
