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
from gradcheck_cli.spec.written import Data, Entries, Items, Written

MOVERS = ("away_from", "min_gap")
COMPOSITES = ("sparse", "ragged")
STRUCTURES = {"dict": "dict", "tuple": "tuple", "list": "list", "object": "object", "fields": "object"}

Merge = Callable[[Data, Data], Data]


def merge_op(below: Data, above: Data) -> Data:
    """Merge an op over defaults, or a case over its op."""
    return _merge(below, above, inputs=_merge_inputs, pairs=_merge_pairs, cases=_merge_cases)


def _merge(below: Data, above: Data, rule: Merge | None = None, **rules: Merge) -> Data:
    """Merge key by key; two values of a key by the key's rule, or else by that for all keys."""
    if not (isinstance(below, Entries) and isinstance(above, Entries)):
        return above
    merged = above.over(below)
    for key in below:
        if key in above:
            merged[key] = rules.get(key, rule or _merge)(below[key], above[key])
    return merged


def _merge_pairs(below: Data, above: Data) -> Data:
    merged = _merge(below, above)
    if isinstance(below, Entries) and isinstance(above, Entries):
        return merged.of_keys([*below.without(*above), *above])
    return merged


def _merge_cases(below: Data, above: Data) -> Data:
    return _merge(_by_name(below), above, rule=merge_op)


def _by_name(cases: Data) -> Data:
    """Return a list of cases as a mapping by their names."""
    if not isinstance(cases, Items):
        return cases
    named = [
        (i, str(case["name"])) for i, case in enumerate(cases) if isinstance(case, Entries) and "name" in case
    ]
    return Entries({name: cases[i] for i, name in named}, {name: cases.places[i] for i, name in named})


def _merge_inputs(below: Data, above: Data) -> Data:
    return _merge(below, above, rule=_merge_input)


def _merge_input(below: Data, above: Data) -> Data:
    """Merge what a case says about an input over what its op says."""
    if above is None or above == {}:
        return below
    if isinstance(below, Items) and isinstance(above, Items) and len(below) == len(above):
        return Items(map(_merge_input, below, above), above.places)
    if not (isinstance(below, Entries) and isinstance(above, Entries) and _kind(above) == _kind(below)):
        return above
    generators = [key for key in above if key in GENERATORS]
    dropped = {*GENERATORS} if generators else set()
    if not all(GENERATORS[key].is_elementwise for key in generators):
        dropped.update(MOVERS)
    if any(key in above for key in COMPOSITES):
        dropped.update(COMPOSITES)
    rules = {"dict": _merge_inputs, "fields": _merge_inputs, "tuple": _merge_input, "list": _merge_input}
    return _merge(below.without(*dropped), above, **rules)


def _kind(written: Entries) -> str:
    """Return the kind of an input: a tensor, or which structure of them."""
    return next((kind for key, kind in STRUCTURES.items() if key in written), "tensor")


def merge_over(op: Written, defaults: Written | None) -> Written:
    """Return an op merged over defaults.

    If it names all inputs, their order is its own: it is forward's positional order, which the op states more
    specifically than the defaults.
    """
    if defaults is None or not defaults.entries:
        return op
    merged = merge_op(defaults.data, op.data)
    inputs, own = merged.get("inputs"), op.data.get("inputs")
    if isinstance(inputs, Entries) and isinstance(own, Entries) and inputs.keys() == own.keys():
        merged["inputs"] = inputs.of_keys(own)
    return op._replace(data=merged)


def with_constants(op: Written) -> Written:
    """Return a merged op or case in which constants under an op type's `attrs` are inputs."""
    attrs, inputs = op.data.get("attrs"), op.data.get("inputs", Entries({}, {}))
    definition = op_inputs(op.data.get("op_type"), op.data.get("forward"))
    if not (isinstance(attrs, Entries) and isinstance(inputs, Entries) and definition.keys() & attrs.keys()):
        return op
    constants = attrs.of_keys(name for name in attrs if name in definition)
    for name, value in constants.items():
        own = {"value": value} | ({} if definition[name].dtype else {"differentiate": False})
        constants[name] = Entries(own, dict.fromkeys(own, attrs.places[name]))
    # In the order of the definition, in which a reference takes them.
    order, merged = list(definition), _merge_inputs(constants, inputs)
    names = sorted({**inputs, **constants}, key=lambda name: order.index(name) if name in definition else 0)
    return op.having(attrs=attrs.without(*constants), inputs=merged.of_keys(names))


def split_op_types(op: Written) -> list[Written]:
    """Return an op whose `op_type` is a list as an op of each type; any other as it is."""
    return [op.having(op_type=op_type) for op_type in op.at("op_type").items] or [op]


def collect_cases(op: Written, below: Written | None) -> list[Written]:
    """Return all cases of an op, each with its name: those of sets first, then its own; faults are logged.

    Args:
        below: defaults, whose cases null removes.
    """
    cases, own, sets = Entries({}, {}), op.at("cases"), op.at("case_sets").entries
    for index, name in enumerate(op.words("cases_from")):
        if isinstance(name, str) and name in sets:
            cases = _merge_cases(cases, _by_name(sets[name].data))
        elif isinstance(name, str):
            remedy = suggest(name, sets, "Sets")
            op.add(f"must be a set of case_sets, but got {name!r}. {remedy}", "cases_from", index)
    others = _by_name(below.at("cases").data) if below else None
    removable = [*cases, *(others if isinstance(others, Entries) else ())]
    for name, case in own.entries.items():
        if case.data is None and name not in removable:
            remedy = suggest(name, removable, "Cases")
            message = f"must have a value, or be a case of the defaults that null removes. {remedy}"
            own.add_key(message, name)
    named = own._replace(data=_merge_cases(cases, own.data) if own.entries else cases).entries
    return [
        case.having(name=case._replace(data=name))
        for name, case in named.items()
        if case.entries or case.data == {}
    ] + [item for item in own.items if item.entries]
