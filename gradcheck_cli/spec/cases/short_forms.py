"""Expands the short forms of a spec before anything is merged or validated.

Inputs: a list of integers is a tensor of that shape, `x: [2, 3]`. The two numbers of a range or a
distribution may be a list, `uniform: [-2, 2]`.

Words: a list of a single word may be the word, `dtypes: float64`. `floating` and `complex` stand for the
dtypes of that kind. A list of op types makes an op of each. `.function` is one of the `module` of the op or
its defaults.

Pairs: a rule that is a word is the expectation, `dy/dx: zero`. If its key is a word, the value is the reason,
`dy/dx: {zero: why}`, or the kind of a mismatch, `dy/dx: {mismatch: value}`.

Cases: `cases` may be a mapping of names to cases. It extends the mapping below it, where null removes a case.
`cases_from` names sets of cases, `case_sets` of the defaults, that come first.

Nodes keep their lines and places, so that a fault names the original text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gradcheck_cli.spec.cases.merge_trees import PARTS, cases_by_name, merge_cases
from gradcheck_cli.spec.faults import FaultLog, show, suggest
from gradcheck_cli.spec.words import DTYPE_KINDS, LISTS_OF_WORDS, PAIR_EXPECTATIONS, TWO_NUMBERS
from gradcheck_cli.spec.yaml_tree import Node, join

_FUNCTIONS = ("forward", "gradient", "reference")


def expand_short_forms(op: Node, below: Node | None = None) -> Node:
    """Return an op, a case or defaults with their short forms expanded, also in cases.

    Args:
        below: what they will be merged over, which may name their module.
    """
    entries = dict(op.children)
    module = op.get("module") or (None if below is None else below.get("module"))
    expand_case = partial(expand_short_forms, below=Node({"module": module}, 0, "") if module else None)
    expand_cases = partial(_map_children, expand=expand_case)
    expansions: dict[str, Callable[[Node], Node]] = {
        "inputs": partial(_map_children, expand=_expand_input),
        "pairs": partial(_map_children, expand=_expand_rule),
        "cases": expand_cases,
        "case_sets": partial(_map_children, expand=expand_cases),
        **dict.fromkeys(_FUNCTIONS, partial(_with_module, module=module)),
        **dict.fromkeys(LISTS_OF_WORDS, _as_list),
        "dtypes": _expand_dtypes,
    }
    for key, expand in expansions.items():
        if key in entries:
            entries[key] = expand(entries[key])
    return replace(op, value=entries) if isinstance(op.value, dict) else op


def split_op_types(op: Node) -> list[Node]:
    """Return an op whose `op_type` is a list as an op of each type; any other as it is."""
    types = op.get("op_type")
    if types is None or not types.items:
        return [op]
    return [replace(op, value={**op.children, "op_type": op_type}) for op_type in types.items]


def _with_module(function: Node, module: Node | None) -> Node:
    """Return a function with its module before it, also as `{numpy: .function}`."""
    if isinstance(function.value, dict):
        return _map_children(function, lambda child: _with_module(child, module))
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
        return _map_children(node, _expand_input)
    if not isinstance(node.value, dict):
        return node
    parts = {
        key: _map_children(child, _expand_input) if key in PARTS else _name_numbers(key, child)
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
    if "reason" in rule.children and "reason" in expanded:
        return rule
    return replace(
        rule, value={**expanded, **{key: node for key, node in rule.children.items() if key != word}}
    )


def _map_children(node: Node, expand: Callable[[Node], Node]) -> Node:
    if isinstance(node.value, dict):
        return replace(node, value={key: expand(child) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return replace(node, value=[expand(child) for child in node.value])
    return node


def collect_cases(log: FaultLog, op: Node, below: Node | None = None) -> Node:
    """Return an op with all its cases in one list under `cases`: those of sets first, then its own."""
    if not isinstance(op.value, dict):
        return op
    entries = {key: node for key, node in op.value.items() if key not in ("cases_from", "case_sets")}
    shared, own_cases = _cases_of_sets(log, op), entries.get("cases")
    if own_cases is None and shared.children:
        own_cases = replace(shared, value={})
    if own_cases is not None and isinstance(own_cases.value, dict):
        removable = {**shared.children, **_named_cases(below)}
        _check_removed(log, own_cases, list(removable))
        entries["cases"] = cases_as_list(
            log, replace(own_cases, value=merge_cases(shared, own_cases).children)
        )
    elif own_cases is not None and isinstance(own_cases.value, list):
        entries["cases"] = replace(own_cases, value=[*cases_as_list(log, shared).items, *own_cases.value])
    return replace(op, value=entries)


def cases_as_list(log: FaultLog, cases: Node) -> Node:
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
    return replace(case, value={**case.children, "name": label})


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
