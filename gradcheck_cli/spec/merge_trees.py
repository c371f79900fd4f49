"""Merges what is written: `defaults` under an op, an op under its cases; lists the cases of an op.

In merging, mappings merge by key; everything else is replaced. Some keys have further rules:

- An input's generator replaces the generator below it. One whose elements can't be moved one by one also
  removes `away_from` and `min_gap`.
- A list argument merges element by element with one of the same length, and replaces any other. So does a
  tuple. A dict and an object merge by key. A structure replaces one of another kind.
- `sparse` or `ragged` replaces either of them below.
- Pair rules of the upper text come last, since the last rule that matches wins.
- A mapping of cases extends those below. Each case merges like an op; null removes a case. A list of cases
  replaces those below. `cases_from` names sets of cases, `case_sets` of the defaults, that come first.
- A list of op types makes an op of each.

Two values that meet are written out before, if one of them may be in a short form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradcheck_cli.errors import suggest
from gradcheck_cli.spec.document_model import RULE
from gradcheck_cli.spec.faults import show
from gradcheck_cli.spec.input_model import DOMAIN, SHAPE, Short
from gradcheck_cli.spec.op_inputs import op_inputs
from gradcheck_cli.spec.words import GENERATORS
from gradcheck_cli.spec.written import Written

MOVERS = ("away_from", "min_gap")
COMPOSITES = ("sparse", "ragged")
PARTS = ("dict", "tuple", "list", "fields")

Data = Any  # plain mappings, lists and scalars
Merge = Callable[[Data, Data], Data]


def merge_op(below: Data, above: Data) -> Data:
    """Merge an op over defaults, or a case over its op."""
    return _merge(below, above, inputs=_merge_inputs, pairs=_merge_pairs, cases=merge_cases)


def _merge(below: Data, above: Data, rule: Merge | None = None, **rules: Merge) -> Data:
    """Merge key by key; two values of a key by the key's rule, or else by that for all keys."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    merged = {key: rules.get(key, rule or _merge)(below[key], above[key]) for key in below if key in above}
    return {**below, **above, **merged}


def _merge_long(form: Short) -> Merge:
    """Return what merges two values that may be in a short form."""
    return lambda below, above: _merge(form.expand(below), form.expand(above))


def _merge_pairs(below: Data, above: Data) -> Data:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    merged = _merge(below, above, rule=_merge_long(RULE))
    return {glob: merged[glob] for glob in (*[glob for glob in below if glob not in above], *above)}


def merge_cases(below: Data, above: Data) -> Data:
    """Merge a mapping of cases over others; a list replaces them."""
    return _merge(_by_name(below), above, rule=merge_op)


def _by_name(cases: Data) -> Data:
    """Return cases as a mapping by their names."""
    if not isinstance(cases, list):
        return cases
    return {str(case["name"]): case for case in cases if isinstance(case, dict) and "name" in case}


def reorder_inputs(merged: Data, above: Data) -> Data:
    """Return an op merged over defaults with the op's own order of inputs, if it names them all.

    The order of inputs is forward's positional order, which the op states more specifically than the
    defaults.
    """
    inputs, own = merged.get("inputs"), above.get("inputs")
    if not (isinstance(inputs, dict) and isinstance(own, dict) and inputs.keys() == own.keys()):
        return merged
    return {**merged, "inputs": {name: inputs[name] for name in own}}


def _merge_inputs(below: Data, above: Data) -> Data:
    return _merge(below, above, rule=merge_input)


def merge_input(below: Data, above: Data) -> Data:
    """Merge what a case says about an input over what its op says."""
    below, above = SHAPE.expand(below), SHAPE.expand(above)
    if above is None or above == {}:
        return below
    if isinstance(below, list) and isinstance(above, list) and len(below) == len(above):
        return [merge_input(low, high) for low, high in zip(below, above, strict=True)]
    kind = _kind(above)
    if kind == "list" or kind != _kind(below):
        return above
    if kind != "tensor":
        rules = {key: _merge_inputs if key in ("dict", "fields") else merge_input for key in PARTS}
        return _merge(below, above, **rules)
    generators = [key for key in above if key in GENERATORS]
    dropped = {*GENERATORS} if generators else set()
    if not all(GENERATORS[key].is_elementwise for key in generators):
        dropped.update(MOVERS)
    if any(key in above for key in COMPOSITES):
        dropped.update(COMPOSITES)
    kept = {key: value for key, value in below.items() if key not in dropped}
    return _merge(kept, above, domain=_merge_long(DOMAIN))


def _kind(written: Data) -> str:
    """Return the kind of an input: a list, a tensor, or which structure of them."""
    if not isinstance(written, dict):
        return "list"
    if "object" in written or "fields" in written:
        return "object"
    return next((key for key in PARTS[:3] if key in written), "tensor")


def with_constants(case: Written) -> Written:
    """Return a merged case in which constants under an op type's `attrs` are inputs."""
    attrs, inputs = case.data.get("attrs"), case.data.get("inputs", {})
    definition = op_inputs(case.data.get("op_type"), case.data.get("forward"))
    if not (isinstance(attrs, dict) and isinstance(inputs, dict) and definition.keys() & attrs.keys()):
        return case
    inputs, rest, moved = {**inputs}, {**attrs}, case.moved
    for name in [name for name in attrs if name in definition]:
        constant = {"value": rest.pop(name)} | ({} if definition[name].dtype else {"differentiate": False})
        inputs[name] = merge_input(constant, inputs[name]) if name in inputs else constant
        moved += ((("inputs", name), ("attrs", name)),)
    # In the order of the definition, in which a reference takes them.
    order = list(definition)
    names = sorted(inputs, key=lambda name: order.index(name) if name in definition else 0)
    data = case.data | {"attrs": rest, "inputs": {name: inputs[name] for name in names}}
    return case._replace(data=data, moved=moved)


def split_op_types(op: Written) -> list[Written]:
    """Return an op whose `op_type` is a list as an op of each type; any other as it is."""
    return [
        op._replace(data=op.data | {"op_type": op_type.data}, moved=((("op_type",), op_type.path),))
        for op_type in op.at("op_type").items
    ] or [op]


def collect_cases(op: Written, below: Written | None = None) -> list[Written]:
    """Return all cases of an op, each with its name: those of sets first, then its own; faults are logged."""
    shared: dict[str, Written] = {}
    sets = op.at("case_sets").entries
    for index, name in enumerate(op.words("cases_from")):
        if isinstance(name, str) and name in sets:
            for key, case in _named(sets[name]).items():
                shared[key] = case.over(shared.get(key), merge_op)
        elif isinstance(name, str):
            remedy = suggest(name, sets, "Sets")
            op.add(f"must be a set of case_sets, but got {name!r}. {remedy}", "cases_from", index)
    removable = [] if below is None else list(_named(below.at("cases")))
    return list_cases(op.at("cases"), shared, removable)


def _named(cases: Written) -> dict[str, Written]:
    """Return cases by their names, each as a document of its own."""
    listed = {str(case.data["name"]): case for case in cases.items if "name" in case.entries}
    return {name: case.alone() for name, case in (cases.entries or listed).items()}


def list_cases(
    cases: Written, shared: Mapping[str, Written] | None = None, removable: Sequence[str] = ()
) -> list[Written]:
    """Return cases after shared ones, or over those of the same names, each with its name.

    Args:
        removable: names of others, which null removes.
    """
    merged = dict(shared or {})
    removable_names = [*merged, *removable]
    for name, case in cases.entries.items():
        if case.data is None and name not in removable_names:
            remedy = suggest(name, removable_names, "Cases")
            message = f"must have a value, or be a case of the defaults that null removes. {remedy}"
            cases.add_key(message, name)
        merged[name] = case.alone().over(merged.get(name), merge_op)
    named = [_with_name(name, case) for name, case in merged.items() if case.data is not None]
    return named + [case.alone() for case in cases.items]


def _with_name(name: str, case: Written) -> Written:
    if not isinstance(case.data, dict):
        case.add(f"must be a mapping, but got {show(case.data)}. Write {{}} for a case like the op")
    elif "name" in case.data:
        case.add(f"must be left out, as the case is called {name}", "name")
    return case._replace(data={**(case.data if isinstance(case.data, dict) else {}), "name": name})
