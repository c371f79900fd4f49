"""The nodes of a YAML tree, which know the line and place where they were written, and plain scalars.

Scalars follow the 1.2 core schema: `1e-6` is a number, `no` is text, `012` is twelve.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

MAX_DIGITS = 400  # no float64 has more than 309 digits before the point

_NULL = re.compile(r"(?:~|null|Null|NULL|)")
_TRUE = re.compile(r"(?:true|True|TRUE)")
_FALSE = re.compile(r"(?:false|False|FALSE)")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"(?:0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)(?:\.inf|\.Inf|\.INF)")
_NAN = re.compile(r"(?:\.nan|\.NaN|\.NAN)")


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
        number = int(text, base)
        float(number)
        return number
    if infinity := _INFINITY.fullmatch(text):
        return -math.inf if infinity[1] == "-" else math.inf
    if _NAN.fullmatch(text):
        return math.nan
    if _FLOAT.fullmatch(text):
        if math.isinf(float(text)):
            raise OverflowError
        return float(text)
    return text


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
        for part in path:
            if isinstance(node.value, dict) and part in node.value:
                node = node.value[str(part)]
            elif isinstance(node.value, list) and isinstance(part, int) and 0 <= part < len(node.value):
                node = node.value[part]
            else:
                return None
        return node

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
    value = node.value
    if isinstance(value, dict):
        value = {key: of_file(child, path) for key, child in value.items()}
    elif isinstance(value, list):
        value = [of_file(child, path) for child in value]
    return replace(node, value=value, path=path)
