"""Reads YAML text into a tree of nodes that know their line and place; knows YAML 1.2 core, but not specs.

The tree is built from parser events, not by PyYAML's composer, which recurses, expands aliases without bound,
lets a later duplicate key win, and reads YAML 1.1. In YAML 1.2, `1e-6` is a number, `no` is text, and `012`
is twelve. Merge keys (`<<`) aren't part of it: they are a fault, and `defaults:` replaces them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import yaml

from gradcheck_cli.errors import Fault

Scalar: TypeAlias = str | int | float | bool | None

MAX_BYTES = 16 * 2**20  # a spec is text that people read; larger data belongs in `file:`
MAX_NODES = 250_000  # after expanding aliases: a second or so of work, where a bomb asks for billions
MAX_DIGITS = 400  # no float64 has more than 309 digits before the point
MAX_SHOWN = 20  # characters of a number that a fault quotes
MAX_DEPTH = 64  # numpy's own limit on dimensions; keeps every later recursion shallow
_TOO_DEEP = f"must be nested at most {MAX_DEPTH} deep, but got more levels"
_WIDE = 10_000  # columns: a value that is written stays on one line
_NULL = re.compile(r"(?:~|null|Null|NULL|)")
_TRUE = re.compile(r"(?:true|True|TRUE)")
_FALSE = re.compile(r"(?:false|False|FALSE)")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"(?:0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)(?:\.inf|\.Inf|\.INF)")
_NAN = re.compile(r"(?:\.nan|\.NaN|\.NAN)")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Node:
    """A value of the tree: `value` is a scalar, a list of nodes, or a dict from text to nodes.

    `line` is the line of the value (for a list, mapping or null in a mapping: of its key); `place` is the
    dotted path within the document. Both survive merging, so a fault names the origin.
    """

    value: Scalar | list[Node] | dict[str, Node]
    line: int
    place: str
    key_line: int = 0
    path: str = ""  # the file, if it isn't the one that is being read: defaults of a folder

    def plain(self) -> object:
        """Return the value as plain dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def get(self, *path: str | int) -> Node | None:
        """Return the node at `path` below this one, or `None` if there is none."""
        node: Node = self
        for key in path:
            if isinstance(node.value, dict) and key in node.value:
                node = node.value[str(key)]
            elif isinstance(node.value, list) and isinstance(key, int) and 0 <= key < len(node.value):
                node = node.value[key]
            else:
                return None
        return node

    def map_children(self, change: Callable[[Node], Node]) -> Node:
        """Return the node with each of its entries or elements changed; a scalar as it is."""
        if isinstance(self.value, dict):
            return replace(self, value={key: change(child) for key, child in self.value.items()})
        if isinstance(self.value, list):
            return replace(self, value=[change(child) for child in self.value])
        return self

    def with_entries(self, entries: Mapping[str, Node]) -> Node:
        """Return a mapping with further entries, which replace those of the same keys."""
        return replace(self, value={**self.children, **entries})

    def without(self, *keys: str) -> Node:
        """Return a mapping without the entries of some keys."""
        return replace(self, value={key: node for key, node in self.children.items() if key not in keys})

    @property
    def children(self) -> dict[str, Node]:
        """The entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The elements of a list; empty for anything else."""
        return self.value if isinstance(self.value, list) else []


def join(place: str, key: str) -> str:
    """Return the place of `key` below `place`."""
    shown = key if key.isprintable() else repr(key)[1:-1]  # a fault is one line
    return f"{place}.{shown}" if place else shown


def copy_to(node: Node, place: str, key_line: int) -> Node:
    """Copy a node to the place of an alias: it keeps its lines, and gets that place's names."""
    value = node.value
    if isinstance(value, dict):
        value = {key: copy_to(child, join(place, key), child.key_line) for key, child in value.items()}
    elif isinstance(value, list):
        value = [copy_to(child, f"{place}[{i}]", child.key_line) for i, child in enumerate(value)]
    return replace(node, value=value, place=place, key_line=key_line)


def of_file(node: Node, path: str) -> Node:
    """Return a node that records, for itself and all nodes below it, the file it comes from."""
    return replace(node.map_children(lambda child: of_file(child, path)), path=path)


def parse(path: str, content: bytes) -> tuple[list[Node], list[Fault]]:
    """Read every document of a file, whose name is for faults.

    Returns:
        The documents' root nodes, and the faults; documents are incomplete where there are faults.
    """
    composer = _Composer(path)
    try:
        text = _decode(content)
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            composer.take(event)
    except _Stop as stop:
        composer.faults.append(Fault(path, stop.line, stop.place, stop.message))
    except yaml.YAMLError as error:
        composer.faults.append(_syntax_fault(path, text, error))
    return composer.documents, composer.faults


class _Stop(Exception):  # noqa: N818 (control flow inside this module)
    """A fault after which the rest of the file can't be read."""

    def __init__(self, line: int, message: str, place: str = "") -> None:
        super().__init__(message)
        self.line, self.place, self.message = line, place, message


def _decode(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise _Stop(
            0, f"must be at most {MAX_BYTES} bytes, but got {len(content)}. Put large arrays in `file:`"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Stop(
            line, f"must be UTF-8, but got the byte 0x{content[error.start]:02x}. Save the file as UTF-8"
        ) from None
    match = _UNPRINTABLE.search(text)
    if match:
        line = text.count("\n", 0, match.start()) + 1
        raise _Stop(line, f"must be text, but got the character U+{ord(match[0]):04X}. Remove it")
    return text


def _syntax_fault(path: str, text: str, error: yaml.YAMLError) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark else 0
    problem = getattr(error, "problem", None) or "it can't be read"
    if "maximum nesting depth" in problem:  # libyaml's scanner has a limit of its own since 0.2.6
        return Fault(path, line, "", _TOO_DEEP)
    context = getattr(error, "context", None)
    message = f"must be YAML, but {problem}" + (f" {context}" if context else "")
    lines = text.split("\n")
    if 0 < line <= len(lines) and "\t" in re.match(r"\s*", lines[line - 1])[0]:  # type: ignore[index]
        message += ". Indent with spaces, not tabs"
    return Fault(path, line, "", message)


@dataclass
class _Open:
    """A list or mapping whose end hasn't been seen; `keys` holds the lines of a mapping's keys."""

    node: Node
    anchor: str | None
    size: int = 1
    height: int = 1
    key: str | None = None
    key_line: int = 0
    keys: dict[str, int] = field(default_factory=dict)


class _Composer:
    """Builds nodes from parser events, without recursion."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.documents: list[Node] = []
        self.faults: list[Fault] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int, int] | None] = {}
        self._count = 0
        self._document_line = 0

    def take(self, event: yaml.Event) -> None:
        """Process one event of the parser."""
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchors = {}
            self._document_line = line
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._open.pop()
            if done.anchor:
                self._anchors[done.anchor] = (done.node, done.size, done.height)
            self._place(done.node, done.size, done.height)

    def _position(self, line: int) -> tuple[str, int]:
        """Return the place of the next value, and the line of its key (or its own)."""
        if not self._open:
            return "", self._document_line or line
        parent = self._open[-1]
        if isinstance(parent.node.value, list):
            return f"{parent.node.place}[{len(parent.node.value)}]", line
        return join(parent.node.place, parent.key or ""), parent.key_line or line

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].node.value, dict) and self._open[-1].key is None

    def _start(self, event: yaml.CollectionStartEvent, line: int) -> None:
        place, key_line = self._position(line)
        key_line = key_line if self._open else line
        if self._expects_key():
            raise _Stop(line, "must have text as keys, but got a list or mapping as a key", place)
        self._check_depth(1, line)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        self._check_tag(event.tag, line, place, "map" if is_mapping else "seq")
        self._spend(1, line)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open(Node({} if is_mapping else [], key_line, place, key_line), event.anchor))

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        place, key_line = self._position(line)
        value: Scalar = event.value
        if event.tag not in (None, "!"):
            self._check_tag(event.tag, line, place, "str")
        elif event.implicit[0]:
            try:
                value = read_scalar(event.value)
            except OverflowError:
                shown = event.value if len(event.value) <= MAX_SHOWN else event.value[:MAX_SHOWN] + "..."
                self._fault(line, place, f"must be a number that float64 can hold, but got {shown}")
        if self._expects_key():
            self._key(value, event.value, line)
            return
        self._spend(1, line)
        node = Node(value, key_line if value is None else line, place, key_line)
        if event.anchor:
            self._anchors[event.anchor] = (node, 1, 0)
        self._place(node, 1, 0)

    def _key(self, value: Scalar, text: str, line: int) -> None:
        parent = self._open[-1]
        place = join(parent.node.place, text)
        if not isinstance(value, str):
            self._fault(line, place, f"must have text as key, but got {text or 'nothing'}. Put it in quotes")
        elif text == "<<":
            self._fault(line, place, "merge keys aren't supported. Write the keys out, or use `defaults:`")
        elif text in parent.keys:
            self._fault(line, place, f"duplicate key; it stands on line {parent.keys[text]} already")
        parent.key, parent.key_line = text, line
        parent.keys.setdefault(text, line)

    def _alias(self, anchor: str | None, line: int) -> None:
        place, key_line = self._position(line)
        if anchor is None or anchor not in self._anchors:
            raise _Stop(line, f"must refer to an anchor above, but got *{anchor}", place)
        target = self._anchors[anchor]
        if target is None:
            raise _Stop(line, f"must not contain itself, but *{anchor} stands inside &{anchor}", place)
        if self._expects_key():
            raise _Stop(line, f"must have text as keys, but got the alias *{anchor} as a key", place)
        node, size, height = target
        self._spend(size, line)
        self._check_depth(height, line)
        self._place(copy_to(node, place, key_line), size, height)

    def _place(self, node: Node, size: int, height: int) -> None:
        if not self._open:
            self.documents.append(node)
            return
        parent = self._open[-1]
        parent.size += size
        parent.height = max(parent.height, height + 1)
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif isinstance(parent.node.value, dict) and parent.key is not None:
            parent.node.value.setdefault(parent.key, node)
            parent.key = None

    def _spend(self, nodes: int, line: int) -> None:
        self._count += nodes
        if self._count > MAX_NODES:
            raise _Stop(
                line, f"must hold at most {MAX_NODES} values after expanding aliases. Put arrays in `file:`"
            )

    def _check_depth(self, height: int, line: int) -> None:
        if len(self._open) + height > MAX_DEPTH:
            raise _Stop(line, _TOO_DEEP)

    def _check_tag(self, tag: str | None, line: int, place: str, expected: str) -> None:
        if tag not in (None, "!", f"tag:yaml.org,2002:{expected}"):
            shown = str(tag).replace("tag:yaml.org,2002:", "!!")
            self._fault(line, place, f"must be plain YAML, but got the tag {shown}. Remove the tag")

    def _fault(self, line: int, place: str, message: str) -> None:
        self.faults.append(Fault(self.path, line, place, message))


def read_scalar(text: str) -> Scalar:  # noqa: PLR0911 (one return per form)
    """Resolve a plain scalar by the YAML 1.2 core schema.

    Raises:
        OverflowError: the number is too large for float64.
    """
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return text[0] in "tT"
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise OverflowError
        # Base 0 would apply Python's rule for leading zeros; in YAML 1.2, 012 is twelve.
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        integer = int(text, base)
        float(integer)
        return integer
    if infinity := _INFINITY.fullmatch(text):
        return -math.inf if infinity[1] == "-" else math.inf
    if _NAN.fullmatch(text):
        return math.nan
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
