"""Reads YAML text as data that know the place of each value; knows YAML 1.2 core, but not specs.

It reads parser events, not PyYAML's own tree: its composer recurses without bound, lets a later duplicate key
win, and reads YAML 1.1. In YAML 1.2, `1e-6` is a number, `no` is text, and `012` is twelve. Merge keys (`<<`)
aren't part of it: they are a fault, and `defaults:` replaces them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import yaml

from gradcheck_cli.spec.written import Data, FaultLog, Place, Spot, Written
from gradcheck_cli.visible import cut

Scalar: TypeAlias = str | int | float | bool | None
Event: TypeAlias = Any  # PyYAML's, whose types lack what an event has

MAX_BYTES = 16 * 2**20  # a spec is text that people read; larger data belongs in `file:`
MAX_NODES = 100_000  # after expanding aliases: a second or so of work, where a bomb asks for billions
MAX_DIGITS = 400  # no float64 has more than 309 digits before the point
MAX_SHOWN = 20  # characters of a number that a fault quotes
MAX_DEPTH = 64  # numpy's own limit on dimensions; keeps every later recursion shallow
_TOO_DEEP = f"must be nested at most {MAX_DEPTH} deep, but got more levels"
_WIDE = 10_000  # columns: what is written stays on one line, and what goes on below ends with its line
_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{f"{sign}{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse(log: FaultLog, path: str, content: bytes) -> list[Written]:
    """Read every document of a file; documents are incomplete where faults are logged."""
    reader = _Reader(log, path)
    try:
        reader.read(content)
    except _Stop as stop:
        log.settle(*stop.args)
    return reader.documents


class _Stop(Exception):  # noqa: N818 (control flow inside this module)
    """A fault after which the rest of the file can't be read: a message and a place."""


class _Reader:
    """Reads values from parser events."""

    def __init__(self, log: FaultLog, path: str) -> None:
        self._log, self._path = log, path
        self.documents: list[Written] = []
        self._events: Iterator[Event] = iter(())
        self._anchors: dict[str, Written | None] = {}  # `None` while its own value is read
        self._count = 0

    def read(self, content: bytes) -> None:
        """Read all documents."""
        text = self._decode(content)
        try:
            self._events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            for event in self._events:
                if isinstance(event, yaml.DocumentStartEvent):
                    self._anchors = {}
                    place = Place(self._path, key=_spot(event))
                    self.documents.append(self._value(next(self._events), place))
        except yaml.YAMLError as error:
            raise self._syntax_fault(text, error) from None

    def _decode(self, content: bytes) -> str:
        if len(content) > MAX_BYTES:
            most = f"must be at most {MAX_BYTES} bytes, but got {len(content)}. Put large arrays in `file:`"
            raise _Stop(most, Place(self._path))
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            place = Place(self._path, (), Spot(content.count(b"\n", 0, error.start) + 1))
            message = f"must be UTF-8, but got the byte 0x{content[error.start]:02x}. Save the file as UTF-8"
            raise _Stop(message, place) from None
        match = _UNPRINTABLE.search(text)
        if match:
            place = Place(self._path, (), Spot(text.count("\n", 0, match.start()) + 1))
            raise _Stop(f"must be text, but got the character U+{ord(match[0]):04X}. Remove it", place)
        return text

    def _syntax_fault(self, text: str, error: yaml.YAMLError) -> _Stop:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        spot = Spot(mark.line + 1, mark.column, mark.column + 1) if mark else Spot()
        problem = getattr(error, "problem", None) or "it can't be read"
        context = getattr(error, "context", None)
        message = f"must be YAML, but {problem}" + (f" {context}" if context else "")
        if "maximum nesting depth" in problem:  # libyaml's scanner has a limit of its own since 0.2.6
            message = _TOO_DEEP
        elif any(re.match(r"\s*\t", line) for line in text.split("\n")[max(spot.line - 1, 0) : spot.line]):
            message += ". Indent with spaces, not tabs"
        return _Stop(message, Place(self._path, (), spot))

    def _value(self, event: Event, place: Place) -> Written:
        """Return a value whose keys are those of a place."""
        place = Place(place.path, place.keys, _spot(event), place.key)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, place)
        self._spend(place)
        if isinstance(event, yaml.ScalarEvent):
            data = self._scalar(event, place)
            part = Written(self._log, data, place._replace(spot=place.key) if data is None else place)
        else:
            part = self._collection(event, place)
        if event.anchor:
            self._anchors[event.anchor] = part
        return part

    def _alias(self, anchor: str | None, place: Place) -> Written:
        if anchor not in self._anchors:
            raise _Stop(f"must refer to an anchor above, but got *{anchor}", place)
        part = self._anchors[anchor]
        if part is None:
            raise _Stop(f"must not contain itself, but *{anchor} stands inside &{anchor}", place)
        return Written(self._log, self._copy(part, place), place._replace(spot=part.place.spot))

    def _copy(self, part: Written, place: Place) -> Data:
        """Return an alias's value, whose parts have places below that of the alias."""
        self._spend(place)
        if not isinstance(part.data, (dict, list)):
            return part.data
        _check_depth(place)

        def copy(key: str | int, inner: Written) -> Written:
            keys = (*place.keys, key)
            data = self._copy(inner, place._replace(keys=keys))
            return Written(self._log, data, inner.place._replace(keys=keys))

        if isinstance(part.data, dict):
            return {key: copy(key, inner) for key, inner in part.data.items()}
        return [copy(index, inner) for index, inner in enumerate(part.data)]

    def _collection(self, event: Event, place: Place) -> Written:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        _check_depth(place)
        self._check_tag(event, place, "map" if is_mapping else "seq")
        if event.anchor:
            self._anchors[event.anchor] = None
        parts: dict[Any, Written] = {}
        for child in self._events:
            if isinstance(child, yaml.CollectionEndEvent):
                break
            spot = _spot(child)
            key = self._key(child, Place(place.path, place.keys, spot), parts) if is_mapping else len(parts)
            below = Place(place.path, (*place.keys, key), spot, spot)
            parts.setdefault(key, self._value(next(self._events) if is_mapping else child, below))
        above = place.key if place.keys else place.spot
        is_beside = event.flow_style and place.spot.line == above.line
        place = Place(place.path, place.keys, _spot(event, child) if is_beside else above, place.key)
        return Written(self._log, parts if is_mapping else list(parts.values()), place)

    def _key(self, event: Event, place: Place, parts: Mapping[Any, Written]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            got = f"the alias *{event.anchor}" if isinstance(event, yaml.AliasEvent) else "a list or mapping"
            raise _Stop(f"must have text as keys, but got {got} as a key", place)
        text = str(event.value)
        place = Place(place.path, (*place.keys, text), place.spot)
        message = ""
        if not isinstance(self._scalar(event, place), str):
            message = f"must have text as key, but got {text or 'nothing'}. Put it in quotes"
        elif text == "<<":
            message = "merge keys aren't supported. Write the keys out, or use `defaults:`"
        elif text in parts:
            message = f"duplicate key; it stands on line {parts[text].place.key.line} already"
        if message:
            self._log.settle(message, place)
        return text

    def _scalar(self, event: Event, place: Place) -> Scalar:
        if event.tag not in (None, "!"):
            self._check_tag(event, place, "str")
        elif event.implicit[0]:
            try:
                return read_scalar(event.value)
            except OverflowError:
                message = f"must be a number that float64 can hold, but got {cut(event.value, MAX_SHOWN)}"
                self._log.settle(message, place)
        return str(event.value)

    def _spend(self, place: Place) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            most = f"must hold at most {MAX_NODES} values after expanding aliases. Put arrays in `file:`"
            raise _Stop(most, place._replace(keys=()))

    def _check_tag(self, event: Event, place: Place, expected: str) -> None:
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{expected}"):
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._log.settle(f"must be plain YAML, but got the tag {shown}. Remove the tag", place)


def _spot(first: Event, last: Event = None) -> Spot:
    """Return where something begins, and where it ends in that line."""
    start, end = first.start_mark, (last or first).end_mark
    return Spot(start.line + 1, start.column, end.column if end.line == start.line else _WIDE)


def _check_depth(place: Place) -> None:
    if len(place.keys) >= MAX_DEPTH:
        raise _Stop(_TOO_DEEP, place._replace(keys=()))


def read_scalar(text: str) -> Scalar:
    """Resolve a plain scalar by the YAML 1.2 core schema.

    Raises:
        OverflowError: the number is too large for float64.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise OverflowError
        # Base 0 would apply Python's rule for leading zeros; in YAML 1.2, 012 is twelve.
        integer = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        float(integer)
        return integer
    if _FLOAT.fullmatch(text):
        if math.isinf(float(text)):
            raise OverflowError
        return float(text)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes everything out, without anchors, which are hard to read."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (PyYAML's signature)
        """Say that no object is written as an anchor and aliases."""
        return True


def as_flow(value: object) -> str:
    """Write a value as YAML on one line."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=_WIDE, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...").strip()
