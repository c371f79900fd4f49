"""Reads what is written by the format of a spec, which is in `format.yaml`: a JSON Schema with words of ours.

Rules that involve two keys (a generator and a dtype, a binding and its functions) are applied after merging,
in `read_arguments`.

Documents with `exceptions` say what specs can't check, each by name and with its reason. They lie among the
specs and are read with them. An entry is an op type or, for `run --cov`, a function that carries a gradient,
or a module.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from gradcheck_cli.errors import nearest, suggest
from gradcheck_cli.spec import words
from gradcheck_cli.spec.case import is_specifier
from gradcheck_cli.spec.faults import show
from gradcheck_cli.spec.words import CHECKS, EXCEPTIONS, PAIR_EXPECTATIONS, read_table, words_of_others
from gradcheck_cli.spec.written import Data, Path, Written
from gradcheck_cli.spec.yaml_tree import as_flow

Schema = dict[str, Any]
Form = Callable[[Schema, Written], Written]  # writes out a short form
Problem = tuple[Path, str, bool]  # where, a message, and whether it is about the key

REMEDIES = {
    "name": "is missing; give the case a name",
    "low": "is missing; write both low and high",
    "high": "is missing; write both low and high",
    "ops": "is missing; write one op each",
    "row_lengths": "is missing; write the length of each row, such as [2, 0, 3]",
}


class Keys(dict[str, Any]):
    """The sound keys of a mapping that is written; as an attribute, any other is `None`."""

    def __init__(self, node: Written) -> None:
        """Take what is written, none of whose keys is read yet."""
        self.node = node
        # names of keys that aren't sound, for inputs `inputs.NAME`; of a mapping that is read by itself
        self.broken: set[str] = set()

    def __getattr__(self, key: str) -> Data:
        """Return the value of a key."""
        return self.get(key)


@cache
def tables() -> dict[str, Any]:
    """Return the tables of the format: `types`, `short_forms` and `models`."""
    read: dict[str, Any] = read_table("format")
    checks = {
        key: {**read["types"]["flag"], "default": check.is_on, "description": check.about}
        for key, check in CHECKS.items()
    }
    read["models"]["ChecksModel"]["properties"] = checks
    for model in read["models"].values():  # each after that which it extends
        below = read["models"][model["extends"]]["properties"] if "extends" in model else {}
        model |= {"type": "object", "properties": below | model["properties"]}
    _insert_words(read)
    return read


def _insert_words(part: Data) -> None:
    """Replace each `enum` that is the name of a table of `words.py` by its words."""
    if isinstance(part, dict) and isinstance(part.get("enum"), str):
        part["enum"] = list(getattr(words, part["enum"]))
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _insert_words(inner)


def type_of(name: str) -> Schema:
    """Return what a kind of value must be."""
    schema: Schema = tables()["types"][name]
    return schema


def model_of(name: str) -> Schema:
    """Return what the keys of a kind of mapping must be."""
    schema: Schema = tables()["models"][name]
    return schema


def read(name: str, node: Written) -> Keys:
    """Read a mapping by its model; what doesn't fit is logged.

    Its sound keys can still be judged, so that a user sees every fault at once, and none that only follows
    from another.
    """
    model = model_of(name)
    problems: list[Problem] = []
    if not isinstance(node.data, dict):
        node.add(f"must be a mapping, but got {show(node.plain())}")
        return Keys(node)
    keys = _read_keys(model, node, (), problems)
    for path, message, is_of_key in problems:
        node.log.add(message, node.at(*path).place, at_key=is_of_key)
        key = str(path[0])
        is_input = key == "inputs" and len(path) > 1
        keys.broken |= {f"inputs.{path[1]}"} if is_input else {key, nearest(key, model["properties"])}
    return keys


def _read_keys(model: Schema, node: Written, path: Path, problems: list[Problem]) -> Keys:
    schemas = model["properties"]
    keys = Keys(node)
    for key, part in node.data.items():
        count, here = len(problems), (*path, key)
        if key not in schemas:
            problems.append((here, f"unknown key. {_suggest_key(part, key, schemas)}", True))
        elif part.data is None:
            message = "must have a value, but got null. Write one, or leave the key out"
            problems.append((here, message, False))
        else:
            value = _read(schemas[key], part, here, problems)
            if len(problems) == count or key == "inputs":  # of which the sound ones are judged
                keys[key] = value
    missing = [key for key in model.get("required", ()) if key not in node.data]
    problems += [((*path, key), REMEDIES.get(key, "is missing"), False) for key in missing]
    return keys


def _read(schema: Schema, node: Written, path: Path, problems: list[Problem], example: Data = None) -> Data:
    if node.reading and node.reading[0] is schema:  # the cases of an op read what they have in common once
        return node.reading[1]
    example = schema.get("examples", [example])[0]
    own: list[Problem] = []
    value = _read_form(_member(schema, node), node, path, own, example)
    if own:
        is_whole = "whole" in schema
        problems += [(path, _expectation(schema, node.plain(), example), False)] if is_whole else own
    else:
        node.reading = schema, value
    return value


def _read_form(schema: Schema, node: Written, path: Path, problems: list[Problem], example: Data) -> Data:
    kind, data = schema.get("type"), node.data
    if kind == "object" and isinstance(data, dict) and len(data) >= schema.get("minProperties", 0):
        if "properties" in schema:
            return _read_keys(schema, node, path, problems)
        return _read_names(schema, node, path, problems, example)
    if kind == "array" and isinstance(data, list):
        if schema.get("minItems", 0) <= len(data) <= schema.get("maxItems", math.inf):
            return [_read(schema["items"], part, (*path, i), problems) for i, part in enumerate(data)]
    elif is_fit(schema, value := node.plain()):
        return float(value) if kind == "number" else value
    problems.append((path, _expectation(schema, node.plain(), example), False))
    return None


def _read_names(
    schema: Schema, node: Written, path: Path, problems: list[Problem], example: Data
) -> dict[str, Any]:
    names, values = schema.get("propertyNames"), schema["additionalProperties"]
    if values is True:
        return node.plain()  # type: ignore[no-any-return]
    parts: dict[str, Any] = {}
    of_a_part = next(iter(example.values()), None) if isinstance(example, dict) else None
    for key, part in node.data.items():
        count, here = len(problems), (*path, key)
        if names and not is_fit(names, key):
            problems.append((here, _expectation(names, key), True))
        value = _read(values, part, here, problems, of_a_part)
        if len(problems) == count:
            parts[key] = value
    return parts


def _member(schema: Schema, node: Written) -> Schema:
    """Return the schema of a value's form, of those that a schema allows; the first for any other form."""
    if "$ref" in schema:
        return model_of(schema["$ref"])
    if "anyOf" not in schema:
        return schema
    form = "object" if isinstance(node.data, dict) else "array" if isinstance(node.data, list) else ""
    members = [_member(member, node) for member in schema["anyOf"]]
    fits = (member.get("type") == form if form else is_fit(member, node.data) for member in members)
    return next(itertools.compress(members, fits), members[0])


_KINDS: dict[str, Callable[[Data], bool]] = {
    "string": lambda data: isinstance(data, str),
    "boolean": lambda data: isinstance(data, bool),
    "integer": lambda data: type(data) is int,
    "number": lambda data: type(data) in (int, float),
    "null": lambda data: data is None,
    "object": lambda _: False,  # which is read key by key
    "array": lambda data: isinstance(data, list) and all(map(_is_value, data)),
}


_LIMITS: dict[str, Callable[[Data, Data], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


def _is_value(data: Data) -> bool:
    return all(map(_is_value, data)) if isinstance(data, list) else isinstance(data, (int, float, str))


def is_fit(schema: Schema, data: Data) -> bool:
    """Tell whether a word or a number, or a `value`, is what a schema wants."""
    if "const" in schema:
        return data is schema["const"]
    kind = schema["type"]
    if not (any(_KINDS[name](data) for name in kind) if isinstance(kind, list) else _KINDS[kind](data)):
        return False
    if isinstance(data, str):
        return (
            data in schema.get("enum", (data,))
            and len(data) >= schema.get("minLength", 0)
            and ("pattern" not in schema or re.fullmatch(schema["pattern"], data) is not None)
            and (schema.get("format") != "versions" or is_specifier(data))
        )
    if data is None or (kind == "number" and not math.isfinite(data)):
        return data is None
    return all(holds(data, schema[key]) for key, holds in _LIMITS.items() if key in schema)


def _expectation(schema: Schema, data: Data, example: Data = None) -> str:
    """Return "must be ..., but got ...", with a similar word or a remedy."""
    choices, remedy = schema.get("enum"), schema.get("remedy", "")
    phrase = schema.get("expects")
    if phrase is None and choices:
        phrase = f"one of {', '.join(choices)}"
    elif phrase is None:
        form, kind = ("a list", list) if schema.get("type") == "array" else ("a mapping", dict)
        phrase = f"{form}, such as {as_flow(example)}" if isinstance(example, kind) else form
    if choices and isinstance(data, str):
        remedy = suggest(data, choices, "Possible" if "expects" in schema else "")
    elif isinstance(data, str) and ("number" in phrase or "integer" in phrase):
        with suppress(ValueError):
            float(data)
            remedy = "Write it without quotes"
    elif remedy == "function":
        remedy = _suggest_function(str(data))
    return f"must be {phrase}, but got {show(data)}{remedy and '. ' + remedy}"


def _suggest_function(written: str) -> str:
    """Say how a file's function, or a name with dots alone, is written."""
    path, colon, name = written.replace("::", ":").partition(":")
    module = path.removeprefix("./").removesuffix(".py").replace("/", ".")
    if not colon:
        module, _, name = module.rpartition(".")
    function = re.sub(r"^tf\b", "tensorflow", f"{module}:{name}")
    return f"Did you mean '{function}'?" if is_fit(type_of("function_name"), function) else ""


def _suggest_key(part: Written, key: str, keys: Mapping[str, object]) -> str:
    """Say which known key was meant: what another tool's key is here, or one that is spelt like it."""
    here = words_of_others("keys", key)
    other = next((f"Write '{line}'" for line in here if line.partition(":")[0] in keys), "")
    if "dict" in keys and part.entries and not (other or nearest(key, keys)):
        other = f"A dict of tensors is written 'dict: {{{key}: ...}}'"
    return other or suggest(key, keys, "Possible keys")


def _is_shape(node: Written) -> bool:
    """Whether what is written is a list of whole numbers: as an input, a tensor of that shape."""
    return isinstance(node.data, list) and all(type(size.data) is int for size in node.data)


def _pair(schema: Schema, node: Written) -> Written:
    """Write out a list of two numbers for the two keys of a mapping."""
    ends = _member(schema, node)["properties"]
    return node.having(dict(zip(ends, node.data, strict=True))) if len(node.items) == len(ends) else node


def _word(_: Schema, node: Written) -> Written:
    """Write out one word in the place of a list of words."""
    return node.having([node]) if isinstance(node.data, str) else node


def _row(_: Schema, node: Written) -> Written:
    """Write out the row lengths of one ragged dimension."""
    is_row = node.items and _is_shape(node) and all(length.data >= 0 for length in node.data)
    return node.having([node]) if is_row else node


def _input(_: Schema, node: Written) -> Written:
    """Write out a shape, a list of inputs, or nothing in the place of an input."""
    if isinstance(node.data, list):
        return node.having({"shape" if _is_shape(node) else "list": node})
    return node.having({}) if node.data is None else node


def _worded(words: tuple[str, ...], key: str) -> Form:
    """Return what writes out `{word: why}` for `{key: word, reason: why}`, and `word` for `{key: word}`.

    The detail of a mismatch is its kind.
    """

    def write_out(schema: Schema, node: Written) -> Written:
        if isinstance(node.data, str) and key not in model_of(schema["$ref"]).get("required", ()):
            return node.having({key: node})
        named, entries = [word for word in words if word in node.entries], node.entries
        if len(named) != 1 or key in entries or ("reason" in entries and named != ["mismatch"]):
            return node
        (word,) = named
        why = entries[word]
        is_kind = word == "mismatch"
        new = {key: why.having({word: why})} if is_kind else {key: why.having(word), "reason": why}
        return node.having({**node.without(word).data, **new})

    return write_out


_FORMS: dict[str, Form] = {
    "pair": _pair,
    "word": _word,
    "row": _row,
    "input": _input,
    "rule": _worded(PAIR_EXPECTATIONS, "expect"),
    "exception": _worded(EXCEPTIONS, "kind"),
}


def write_out(schema: Schema, node: Written) -> Written:
    """Return what is written with its short forms written out."""
    if "short" in schema:
        node = _FORMS[schema["short"]](schema, node)
    schema = _member(schema, node)
    schemas, others = schema.get("properties", {}), schema.get("additionalProperties")
    if isinstance(node.data, list) and "items" in schema:
        return node.having([write_out(schema["items"], part) for part in node.data])
    if isinstance(node.data, dict) and (schemas or isinstance(others, dict)):
        return node.having(
            {key: write_out(schemas.get(key, others or {}), part) for key, part in node.data.items()}
        )
    return node
