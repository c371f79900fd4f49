"""Merges what is written: `defaults` under an op, an op under its cases; lists the cases of an op.

Short forms are written out before. In merging, mappings merge by key; everything else is replaced. Some keys
have further rules:

- An input's generator replaces the generator below it. One whose elements can't be moved one by one also
  removes `away_from` and `min_gap`.
- A list argument merges element by element with one of the same length, and replaces any other. So does a
  tuple. A dict and an object merge by key. A structure replaces one of another kind.
- `sparse` or `ragged` replaces either of them below.
- Pair rules of the upper text come last, since the last rule that matches wins.
- A mapping of cases extends those below. Each case merges like an op; null removes a case. A list of cases
  replaces those below. `cases_from` names sets of cases, `case_sets` of the defaults, that come first.
- A list of op types makes an op of each.
"""

from __future__ import annotations

from collections.abc import Callable

from gradcheck_cli.errors import suggest
from gradcheck_cli.spec.op_inputs import op_inputs
from gradcheck_cli.spec.words import GENERATORS
from gradcheck_cli.spec.written import Written

MOVERS = ("away_from", "min_gap")
COMPOSITES = ("sparse", "ragged")
STRUCTURES = {"dict": "dict", "tuple": "tuple", "list": "list", "object": "object", "fields": "object"}

Merge = Callable[[Written, Written], Written]


def _are_both(kind: type, below: Written, above: Written) -> bool:
    return isinstance(below.data, kind) and isinstance(above.data, kind)


def merge_op(below: Written, above: Written) -> Written:
    """Merge an op over defaults, or a case over its op."""
    return _merge(below, above, inputs=_merge_inputs, pairs=_merge_pairs, cases=_merge_cases)


def _merge(below: Written, above: Written, rule: Merge | None = None, **rules: Merge) -> Written:
    """Merge key by key; two values of a key by the key's rule, or else by that for all keys."""
    if not _are_both(dict, below, above):
        return above
    merged = {**below.data, **above.data}
    for key in below.data.keys() & above.data.keys():
        merged[key] = rules.get(key, rule or _merge)(below.data[key], above.data[key])
    return above.having(merged)


def _merge_pairs(below: Written, above: Written) -> Written:
    merged = _merge(below, above)
    if not _are_both(dict, below, above):
        return merged
    last = {key: merged.data[key] for key in above.data}
    return merged.having({**merged.without(*last).data, **last})


def _merge_cases(below: Written, above: Written) -> Written:
    return _merge(_by_name(below), above, rule=merge_op)


def _by_name(cases: Written) -> Written:
    """Return a list of cases as a mapping by their names."""
    if not isinstance(cases.data, list):
        return cases
    named = (case for case in cases.items if "name" in case.entries)
    return cases.having({str(case.data["name"].plain()): case for case in named})


def _merge_inputs(below: Written, above: Written) -> Written:
    return _merge(below, above, rule=_merge_input)


def _merge_input(below: Written, above: Written) -> Written:
    """Merge what a case says about an input over what its op says."""
    if above.data is None or above.data == {}:
        return above.having(below.data)
    if _are_both(list, below, above) and len(below.data) == len(above.data):
        return above.having(list(map(_merge_input, below.data, above.data)))
    if not _are_both(dict, below, above) or _kind(above) != _kind(below):
        return above
    generators = [key for key in above.data if key in GENERATORS]
    dropped = {*GENERATORS} if generators else set()
    if not all(GENERATORS[key].is_elementwise for key in generators):
        dropped.update(MOVERS)
    if any(key in above.data for key in COMPOSITES):
        dropped.update(COMPOSITES)
    rules = {"dict": _merge_inputs, "fields": _merge_inputs, "tuple": _merge_input, "list": _merge_input}
    return _merge(below.without(*dropped), above, **rules)


def _kind(written: Written) -> str:
    """Return the kind of an input: a tensor, or which structure of them."""
    return next((kind for key, kind in STRUCTURES.items() if key in written.data), "tensor")


def merge_over(op: Written, defaults: Written | None) -> Written:
    """Return an op merged over defaults.

    If it names all inputs, their order is its own: it is forward's positional order, which the op states more
    specifically than the defaults.
    """
    if defaults is None or not defaults.entries:
        return op
    merged = merge_op(defaults, op)
    inputs, own = merged.at("inputs"), op.at("inputs")
    if _are_both(dict, inputs, own) and inputs.data.keys() == own.data.keys():
        merged.data["inputs"] = inputs.having({key: inputs.data[key] for key in own.data})
    return merged


def with_constants(op: Written) -> Written:
    """Return a merged op or case in which constants under an op type's `attrs` are inputs."""
    attrs, inputs = op.at("attrs"), op.at("inputs")
    definition = op_inputs(op.at("op_type").data, op.at("forward").data)
    constants = {name: value for name, value in attrs.entries.items() if name in definition}
    if not constants or not isinstance(op.data.get("inputs", inputs.having({})).data, dict):
        return op
    for name, value in constants.items():
        own = {"value": value} | (
            {} if definition[name].dtype else {"differentiate": value.having(data=False)}
        )
        constants[name] = value.having(own)
    # In the order of the definition, in which a reference takes them.
    order, merged = (
        list(definition),
        _merge_inputs(inputs.having(constants), inputs.having(inputs.entries)).data,
    )
    names = sorted(
        {**inputs.entries, **constants}, key=lambda name: order.index(name) if name in definition else 0
    )
    new = {
        "attrs": attrs.without(*constants),
        "inputs": inputs.having({name: merged[name] for name in names}),
    }
    return op.having({**op.data, **new})


def split_op_types(op: Written) -> list[Written]:
    """Return an op whose `op_type` is a list as an op of each type; any other as it is."""
    return [op.having({**op.data, "op_type": op_type}) for op_type in op.at("op_type").items] or [op]


def collect_cases(op: Written, below: Written | None) -> list[Written]:
    """Return all cases of an op, each with its name: those of sets first, then its own; faults are logged.

    Args:
        below: defaults, whose cases null removes.
    """
    own, sets = op.at("cases"), op.at("case_sets").entries
    cases = own.having({})
    for own_set in op.at("cases_from").items:
        if isinstance(own_set.data, str) and own_set.data in sets:
            cases = _merge_cases(cases, _by_name(sets[own_set.data]))
        elif isinstance(own_set.data, str):
            remedy = suggest(own_set.data, sets, "Sets")
            own_set.add(f"must be a set of case_sets, but got {own_set.data!r}. {remedy}")
    removable = [*cases.entries, *(_by_name(below.at("cases")).entries if below else ())]
    for name, case in own.entries.items():
        if case.data is None and name not in removable:
            remedy = suggest(name, removable, "Cases")
            message = f"must have a value, or be a case of the defaults that null removes. {remedy}"
            own.add_key(message, name)
    named = (_merge_cases(cases, own) if own.entries else cases).entries
    return [
        case.having({**case.entries, "name": case.having(name)})
        for name, case in named.items()
        if isinstance(case.data, dict)
    ] + [item for item in own.items if item.entries]
