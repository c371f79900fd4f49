"""Reads YAML text as plain data, and keeps the line of each value; knows YAML 1.2 core, but not specs.

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

from gradcheck_cli.spec.written import NOWHERE, FaultLog, Mark, Path, Spot, Text, Written
from gradcheck_cli.visible import cut

Scalar: TypeAlias = str | int | float | bool | None
Event: TypeAlias = Any  # PyYAML's, whose types lack what an event has

MAX_BYTES = 16 * 2**20  # a spec is text that people read; larger data belongs in `file:`
MAX_NODES = 250_000  # after expanding aliases: a second or so of work, where a bomb asks for billions
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
    reader, text = _Reader(log, path), ""
    try:
        text = _decode(content)
        reader.read(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except _Stop as stop:
        log.settle(path, *stop.args)
    except yaml.YAMLError as error:
        log.settle(path, *_syntax_fault(text, error), ())
    return reader.documents


class _Stop(Exception):  # noqa: N818 (control flow inside this module)
    """A fault after which the rest of the file can't be read: a message, a spot and a place."""


def _decode(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        message = f"must be at most {MAX_BYTES} bytes, but got {len(content)}. Put large arrays in `file:`"
        raise _Stop(message, NOWHERE, ())
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"must be UTF-8, but got the byte 0x{content[error.start]:02x}. Save the file as UTF-8"
        raise _Stop(message, Spot(line), ()) from None
    match = _UNPRINTABLE.search(text)
    if match:
        line = text.count("\n", 0, match.start()) + 1
        raise _Stop(f"must be text, but got the character U+{ord(match[0]):04X}. Remove it", Spot(line), ())
    return text


def _syntax_fault(text: str, error: yaml.YAMLError) -> tuple[str, Spot]:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    spot = Spot(mark.line + 1, mark.column, mark.column + 1) if mark else NOWHERE
    problem = getattr(error, "problem", None) or "it can't be read"
    if "maximum nesting depth" in problem:  # libyaml's scanner has a limit of its own since 0.2.6
        return _TOO_DEEP, spot
    context = getattr(error, "context", None)
    message = f"must be YAML, but {problem}" + (f" {context}" if context else "")
    lines = text.split("\n")
    if 0 < spot.line <= len(lines) and "\t" in re.match(r"\s*", lines[spot.line - 1])[0]:  # type: ignore[index]
        message += ". Indent with spaces, not tabs"
    return message, spot


_Part: TypeAlias = tuple[Any, Mark]  # a value, and where it stands


class _Reader:
    """Reads values from parser events."""

    def __init__(self, log: FaultLog, path: str) -> None:
        self._log, self._path = log, path
        self.documents: list[Written] = []
        self._events: Iterator[Event] = iter(())
        self._anchors: dict[str, _Part | None] = {}  # `None` while its own value is read
        self._count = 0

    def read(self, events: Iterator[Event]) -> None:
        """Read all documents."""
        self._events = events
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                data, mark = self._value(next(events), (), _spot(event))
                self.documents.append(Written(self._log, data, (Text(self._path, (), mark),)))

    def _value(self, event: Event, place: Path, key: Spot) -> _Part:
        spot = _spot(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, place, spot, key)
        self._spend(spot)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, place)
            part = value, Mark(key if value is None else spot, key)
        else:
            part = self._collection(event, place, spot, key if place else spot)
        if event.anchor:
            self._anchors[event.anchor] = part
        return part

    def _alias(self, anchor: str | None, place: Path, spot: Spot, key: Spot) -> _Part:
        if anchor not in self._anchors:
            raise _Stop(f"must refer to an anchor above, but got *{anchor}", spot, place)
        part = self._anchors[anchor]
        if part is None:
            raise _Stop(f"must not contain itself, but *{anchor} stands inside &{anchor}", spot, place)
        data, mark = part
        self._copy(mark, len(place), spot)
        return data, mark._replace(key=key)

    def _copy(self, mark: Mark, depth: int, spot: Spot) -> None:
        """Count what an alias copies, level by level."""
        self._spend(spot)
        if mark.kind is not str:
            _check_depth(depth + 1, spot)
        for part in mark.parts.values():
            self._copy(part, depth + 1, spot)

    def _collection(self, event: Event, place: Path, spot: Spot, key: Spot) -> _Part:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        _check_depth(len(place) + 1, spot)
        self._check_tag(event, place, "map" if is_mapping else "seq")
        if event.anchor:
            self._anchors[event.anchor] = None
        parts: dict[str | int, _Part] = {}
        for child in self._events:
            if isinstance(child, yaml.CollectionEndEvent):
                spot = _spot(event, child)
                break
            at = _spot(child)
            name = self._key(child, at, place, parts) if is_mapping else len(parts)
            part = self._value(next(self._events) if is_mapping else child, (*place, name), at)
            parts.setdefault(name, part)
        data: Any = {name: value for name, (value, _) in parts.items()}
        data = data if is_mapping else list(data.values())
        marks = {name: mark for name, (_, mark) in parts.items()}
        return data, Mark(spot if event.flow_style and spot.line == key.line else key, key, marks, type(data))

    def _key(self, event: Event, spot: Spot, place: Path, parts: Mapping[Any, _Part]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            got = f"the alias *{event.anchor}" if isinstance(event, yaml.AliasEvent) else "a list or mapping"
            raise _Stop(f"must have text as keys, but got {got} as a key", spot, place)
        text, place = event.value, (*place, event.value)
        message = ""
        if not isinstance(self._scalar(event, place), str):
            message = f"must have text as key, but got {text or 'nothing'}. Put it in quotes"
        elif text == "<<":
            message = "merge keys aren't supported. Write the keys out, or use `defaults:`"
        elif text in parts:
            message = f"duplicate key; it stands on line {parts[text][1].key.line} already"
        if message:
            self._log.settle(self._path, message, spot, place)
        return str(text)

    def _scalar(self, event: Event, place: Path) -> Scalar:
        if event.tag not in (None, "!"):
            self._check_tag(event, place, "str")
        elif event.implicit[0]:
            try:
                return read_scalar(event.value)
            except OverflowError:
                message = f"must be a number that float64 can hold, but got {cut(event.value, MAX_SHOWN)}"
                self._log.settle(self._path, message, _spot(event), place)
        return str(event.value)

    def _spend(self, spot: Spot) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            most = f"must hold at most {MAX_NODES} values after expanding aliases. Put arrays in `file:`"
            raise _Stop(most, spot, ())

    def _check_tag(self, event: Event, place: Path, expected: str) -> None:
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{expected}"):
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"must be plain YAML, but got the tag {shown}. Remove the tag"
            self._log.settle(self._path, message, _spot(event), place)


def _spot(first: Event, last: Event = None) -> Spot:
    """Return where something begins, and where it ends in that line."""
    start, end = first.start_mark, (last or first).end_mark
    return Spot(start.line + 1, start.column, end.column if end.line == start.line else _WIDE)


def _check_depth(height: int, spot: Spot) -> None:
    if height > MAX_DEPTH:
        raise _Stop(_TOO_DEEP, spot, ())


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
