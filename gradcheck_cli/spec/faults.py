"""Collects faults in the program's own words: where, what was expected, what was found, what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gradcheck_cli.errors import nearest, suggest
from gradcheck_cli.spec.input_model import EXPECTED
from gradcheck_cli.spec.words import read_table, words_of_others
from gradcheck_cli.spec.written import Written
from gradcheck_cli.spec.yaml_tree import as_flow
from gradcheck_cli.visible import cut

Model = TypeVar("Model", bound=BaseModel)

MAX_SHOWN = 40  # characters of a value that a fault quotes
REMEDIES = {
    "name": "is missing; give the case a name",
    "low": "is missing; write both low and high",
    "high": "is missing; write both low and high",
    "row_lengths": "is missing; write the length of each row, such as [2, 0, 3]",
}


def validate(model: type[Model], node: Written) -> tuple[Model | None, set[str]]:
    """Check a node's structure, report what is broken, and read the rest.

    Returns:
        The model without its broken parts (`None` if even so it can't be read), and the names of those
        parts: top-level keys, for inputs `inputs.NAME`. Sound parts can still be judged, so that a user
        sees every fault at once, and none that only follows from another.
    """
    broken: set[str] = set()
    if not isinstance(node.data, dict):
        node.add(f"must be a mapping, but got {show(node.data)}")
        return None, broken
    data = {key: dict(part) if isinstance(part, dict) else part for key, part in node.data.items()}
    # The rest can hardly break again after one removal; the bound is for safety.
    for _ in range(3):
        said_of = set(broken)
        try:
            return model.model_validate(data), broken
        except ValidationError as error:
            for details in error.errors(include_url=False):
                if details["type"] != "missing" or details["loc"][0] not in said_of:
                    _report(model, node, details)
                broken |= _remove(data, details["loc"], model)
    return None, broken


def _report(model: type[BaseModel], root: Written, details: ErrorDetails) -> None:
    location = _location(details["loc"])
    kind, value = details["type"], details.get("input")
    if kind == "extra_forbidden":
        *parent, key = location
        keys = _known_keys(model, parent)
        root.at(*parent).add_key(f"unknown key. {_suggest_key(str(key), keys)}", str(key))
    elif location and location[-1] == "[key]":
        *parent, key, _ = location
        root.at(*parent).add_key(expectation_text(details["ctx"], value), str(key))
    elif kind == "missing":
        root.add(REMEDIES.get(str(location[-1]), "is missing"), *location)
    elif kind == EXPECTED:
        root.add(expectation_text(details["ctx"], value), *location)
    elif kind == "empty":
        root.add("must have a value, but got null. Write one, or leave the key out", *location)
    else:
        form = {"list_type": "a list", "string_type": "text"}.get(str(kind), "a mapping")
        example = _example(model, location)
        is_fit = isinstance(example, dict if form == "a mapping" else list)
        such = f", such as {as_flow(example)}," if is_fit else ","
        root.add(f"must be {form}{such} but got {show(value)}", *location)


def expectation_text(words: Mapping[str, Any], value: object) -> str:
    """Return "must be ..., but got ...", with a similar word or a remedy, from the words of `expects`."""
    phrase, choices = str(words["phrase"]), tuple(words["choices"])
    message = f"must be {phrase}, but got {show(value)}"
    remedy = str(words["remedy"])
    if choices and isinstance(value, str):
        remedy = suggest(value, choices, "" if phrase.startswith("one of") else "Possible")
    elif isinstance(value, str) and ("number" in phrase or "integer" in phrase):
        with suppress(ValueError):
            float(value)
            remedy = "Write it without quotes"
    return f"{message}. {remedy}" if remedy else message


def suggest_file(path: Path) -> str:
    """Return "Did you mean 'x'?" for the most similar name in a path's folder, or nothing."""
    with suppress(OSError):
        names = (entry.name for entry in path.parent.iterdir() if entry.exists())  # no link to nothing
        return suggest(path.name, sorted(names))
    return ""


def show(value: object) -> str:
    """Write a value as a spec would, on one line and not too long."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        text = f"[{', '.join(map(show, value[:MAX_SHOWN]))}]"
        return text if len(text) <= MAX_SHOWN else f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    return cut(repr(value), MAX_SHOWN)


def _suggest_key(key: str, keys: Sequence[str]) -> str:
    """Say which known key was meant: what another tool's key is here, or one that is spelt like it."""
    here = words_of_others("keys", key)
    other = next((f"Write '{line}'" for line in here if line.partition(":")[0] in keys), "")
    return other or suggest(key, keys, "Possible keys")


def _location(loc: tuple[int | str, ...]) -> list[str | int]:
    """Return pydantic's path without the tags of unions."""
    return [key for key in loc if not (isinstance(key, str) and key.startswith("<") and key.endswith(">"))]


def _types_at(
    annotation: object, location: Sequence[str | int], key: tuple[str, str] = ("", "")
) -> Iterator[tuple[object, tuple[str, str]]]:
    """Yield each type that a value at `location` inside a type may have, and the model and key of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and location:
        name = str(location[0])
        for owner in annotation.__mro__:
            own = {field.alias or key: field for key, field in getattr(owner, "model_fields", {}).items()}
            if name in own:
                yield from _types_at(own[name].annotation, location[1:], (owner.__name__, name))
    elif get_origin(annotation) in {dict, list} and location:
        yield from _types_at(get_args(annotation)[-1], location[1:])
    elif not location:
        yield annotation, key
    if get_origin(annotation) not in {dict, list}:  # the members of a union, or what is annotated
        for member in get_args(annotation):
            yield from _types_at(member, location, key)


def _example(model: type[BaseModel], location: Sequence[str | int]) -> object:
    """Return the first example of the key at `location`, or in that above it; `None` if there is none."""
    tables = read_table("keys")
    keys = (tables.get(owner, {}).get(key, {}) for _, (owner, key) in _types_at(model, location))
    own = next((key["examples"][0] for key in keys if "examples" in key), None)
    whole = _example(model, location[:-1]) if own is None and location else None
    return next(iter(whole.values()), None) if isinstance(whole, dict) else own


def _known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the keys of the model at `location`."""
    for kind, _ in _types_at(model, location):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return [field.alias or name for name, field in kind.model_fields.items()]
    return []


def _remove(data: dict[str, object], loc: tuple[int | str, ...], model: type[BaseModel]) -> set[str]:
    """Remove a broken part from the data, and return its name and the key that was probably meant."""
    location = _location(loc)
    key = str(location[0]) if location else ""
    inputs = data.get("inputs")
    if key == "inputs" and len(location) > 1 and isinstance(inputs, dict):
        inputs.pop(location[1], None)
        if not inputs:
            del data["inputs"]
        return {f"inputs.{location[1]}"}
    data.pop(key, None)
    return {key, nearest(key, _known_keys(model, []))}
