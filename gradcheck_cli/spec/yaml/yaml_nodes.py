"""The nodes of a YAML tree: values that know the line and place where they were written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck_cli.spec.yaml.yaml_scalars import Scalar


@dataclass(frozen=True)
class Node:
    """A value of the tree: `value` is a scalar, a list of nodes, or a dict from text to nodes.

    `line` is where the value stands (for a list, mapping or null in a mapping: where its key stands);
    `place` is the dotted path within the document. Both survive merging, so a fault names the origin.
    """

    value: Scalar | list[Node] | dict[str, Node]
    line: int
    place: str
    key_line: int = 0

    def plain(self) -> object:
        """Return the value as plain dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def get(self, *path: str | int) -> Node | None:
        """Return the node at `path` below this one, or `None` where there is none."""
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


def moved(node: Node, place: str, key_line: int) -> Node:
    """Copy a node to where an alias stands: it keeps its lines, and gets that place's names."""
    value = node.value
    if isinstance(value, dict):
        value = {key: moved(child, join(place, key), child.key_line) for key, child in value.items()}
    elif isinstance(value, list):
        value = [moved(child, f"{place}[{i}]", child.key_line) for i, child in enumerate(value)]
    return replace(node, value=value, place=place, key_line=key_line)
