"""Lays out the ops between an input and an output as a graph in layers, around the op to blame.

The template writes the SVG, so names are escaped and colours are the page's own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import PathOp, Status

MOST_NODES = 40  # nobody reads a larger graph as a whole
_NEAR = 6  # edges from the op to blame: a chain then fits a screen
_WIDTH, _HEIGHT = 138, 42  # of an op, for two lines of text
_SMALL = 40  # the width of "…", which represents ops that aren't drawn
_GAP, _LAYER = 16, 68  # between neighbours; from a layer to the next
_SWEEPS = 8
_MOST_LETTERS = 18  # the letters that fit an op's width
_MARKS = {str(Status.PASSED): "✓", str(Status.MISMATCHED): "✗", str(Status.INCONCLUSIVE): "?"}
_OWN_GRADIENT = re.compile(r" at (?!.*tensorflow/python/)(?:.*[/\\])?([^/\\]+:\d+)$")

# A node: an op by its index; or the input, the output, "…" before or after an op, or a bend of a long edge.
_Key = tuple[str, int, int]
_INPUT: _Key = ("input", 0, 0)
_OUTPUT: _Key = ("output", 0, 0)


@dataclass(frozen=True)
class GraphNode:
    """A box: its corner, its size, two lines of text, and the full description."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    head: str
    foot: str
    title: str


@dataclass(frozen=True)
class OpGraph:
    """A drawing of the ops with the indices `ops`: boxes, and edges as the `d` of SVG paths."""

    width: float
    height: float
    nodes: tuple[GraphNode, ...]
    edges: tuple[str, ...]
    words: str
    note: str
    ops: frozenset[int]


def graph_of(path: Sequence[PathOp], input_name: str, output_name: str) -> OpGraph | None:
    """Lay out the ops of a path around the first one to blame; `None` if their edges aren't known."""
    if not any(op.reads for op in path):
        return None
    drawn = _nearest(path)
    edges = _edges(path, drawn)
    layers = _layers(edges)
    rows, short_edges = _bend_long_edges(edges, layers)
    centre = _arrange(rows, short_edges)
    left = min(centre[key] - _width(key) / 2 for row in rows for key in row) - 2
    nodes = [
        _node(key, centre[key] - left, depth, path, (input_name, output_name))
        for depth, row in enumerate(rows)
        for key in row
        if key[0] != "bend"
    ]
    blamed = ", ".join(f"{op.type} {op.name}" for op in path if op.status == str(Status.MISMATCHED))
    few = f"{len(drawn)} of {layout.count(len(path), 'op')}, the nearest to the one to blame"
    return OpGraph(
        width=max(centre[key] + _width(key) / 2 for row in rows for key in row) - left + 2,
        height=(len(rows) - 1) * _LAYER + _HEIGHT + 4,
        nodes=tuple(nodes),
        edges=tuple(_curve(index, edge, layers, centre, left) for index, edge in enumerate(edges)),
        words=f"graph of the ops from {input_name} to {output_name}; to blame: {blamed or 'none'}; "
        "the list beside it says the same",
        note="" if len(drawn) == len(path) else few,
        ops=frozenset(drawn),
    )


def _nearest(path: Sequence[PathOp]) -> set[int]:
    """Return the ops within a few edges of those to blame, breadth first."""
    near = defaultdict(list)
    for index, op in enumerate(path):
        for read in op.reads:
            if read >= 0:
                near[index].append(read)
                near[read].append(index)
    nearest = [index for index, op in enumerate(path) if op.status == str(Status.MISMATCHED)][:MOST_NODES]
    nearest = nearest or [len(path) - 1]
    distance = dict.fromkeys(nearest, 0)
    for index in nearest:  # grows during the loop
        for other in near[index]:
            if other not in distance and distance[index] < _NEAR and len(nearest) < MOST_NODES:
                distance[other] = distance[index] + 1
                nearest.append(other)
    return set(nearest)


def _edges(path: Sequence[PathOp], drawn: set[int]) -> list[tuple[_Key, _Key]]:
    """Return the edges between drawn nodes, each once; "…" represents neighbours that aren't drawn."""
    edges: dict[tuple[_Key, _Key], None] = {}
    for index, op in enumerate(path):
        for read in op.reads:
            if index in drawn:
                source = _INPUT if read < 0 else ("op", read, 0) if read in drawn else ("before", index, 0)
                edges[source, ("op", index, 0)] = None
            elif read in drawn:
                edges[("op", read, 0), ("after", read, 0)] = None
        if index in drawn and op.is_last:
            edges[("op", index, 0), _OUTPUT] = None
    return list(edges)


def _layers(edges: Sequence[tuple[_Key, _Key]]) -> dict[_Key, int]:
    """Put each node below all nodes that it reads; of ops that read each other, one is above the other."""
    layers: dict[_Key, int] = {}
    for source, target in edges:  # in the forward's order, so a source already has its layer
        layers[target] = max(layers.get(target, 0), 1 + layers.setdefault(source, 0))
    for source, target in edges:
        if source[0] == "before":  # the "…" before an op is directly above it
            layers[source] = layers[target] - 1
    return layers


def _bend_long_edges(
    edges: Sequence[tuple[_Key, _Key]], layers: Mapping[_Key, int]
) -> tuple[list[list[_Key]], list[tuple[_Key, _Key]]]:
    """Return the nodes of each layer, and edges between adjacent layers: long edges have bends."""
    rows: list[list[_Key]] = [[] for _ in range(1 + max(layers.values()))]
    for key, depth in layers.items():
        rows[depth].append(key)
    short = []
    for index, (source, target) in enumerate(edges):
        last = source
        for depth in range(layers[source] + 1, layers[target]):
            bend = ("bend", index, depth)
            rows[depth].append(bend)
            short.append((last, bend))
            last = bend
        short.append((last, target))
    return rows, short


def _arrange(rows: Sequence[list[_Key]], edges: Sequence[tuple[_Key, _Key]]) -> dict[_Key, float]:
    """Return each node's centre: near the mean of its neighbours, and beside the nodes of its layer.

    Each layer is sorted by these means, down and up, so that few edges cross.

    References:
        Sugiyama, Tagawa, Toda: Methods for visual understanding of hierarchical system structures (1981).
    """
    near = defaultdict(list)
    for source, target in edges:
        near[source].append(target)
        near[target].append(source)
    centre = {key: index - (len(row) - 1) / 2 for row in rows for index, key in enumerate(row)}
    for sweep in range(_SWEEPS):
        for row in reversed(rows) if sweep % 2 else rows:
            mean = {key: fmean(centre[other] for other in near[key]) for key in row}
            row.sort(key=mean.__getitem__)
            wanted = [mean[key] for key in row]
            # The mean of two layouts without overlaps has no overlaps: one packs from the left, the other
            # from the right.
            from_left = _pack(row, wanted)
            from_right = [-x for x in _pack(row[::-1], [-x for x in wanted[::-1]])][::-1]
            centre.update(
                {key: (x + other) / 2 for key, x, other in zip(row, from_left, from_right, strict=True)}
            )
    return centre


def _pack(row: Sequence[_Key], wanted: Sequence[float]) -> list[float]:
    """Return the requested centres, moved to the right where there is no room."""
    centres: list[float] = []
    for index, (key, x) in enumerate(zip(row, wanted, strict=True)):
        least = x
        if index:
            least = centres[-1] + (_width(row[index - 1]) + _width(key)) / 2 + _GAP
        centres.append(max(x, least))
    return centres


def _width(key: _Key) -> float:
    return {"bend": 0, "before": _SMALL, "after": _SMALL}.get(key[0], _WIDTH)


def _curve(
    index: int,
    edge: tuple[_Key, _Key],
    layers: Mapping[_Key, int],
    centre: Mapping[_Key, float],
    left: float,
) -> str:
    source, target = edge
    x, y = centre[source] - left, layers[source] * _LAYER + _HEIGHT + 2
    curve = f"M{x:.0f} {y}"
    for depth in range(layers[source] + 1, layers[target] + 1):
        end = target if depth == layers[target] else ("bend", index, depth)
        end_x, end_y = centre[end] - left, depth * _LAYER + 2
        curve += f"C{x:.0f} {(y + end_y) / 2:.0f} {end_x:.0f} {(y + end_y) / 2:.0f} {end_x:.0f} {end_y}"
        x, y = end_x, end_y
        if end is not target:
            y += _HEIGHT
            curve += f"V{y}"
    return curve


def _node(key: _Key, centre: float, depth: int, path: Sequence[PathOp], ends: tuple[str, str]) -> GraphNode:
    kind, index, _ = key
    head, foot, title = "…", "", "ops that aren't drawn"
    if kind in {"input", "output"}:
        head = ends[kind == "output"]
        title = f"the {kind} {head}"
    elif kind == "op":
        op = path[index]
        own = _OWN_GRADIENT.search(op.place)
        kind, head = op.status, f"{_MARKS.get(op.status, '')} {op.type}".strip()
        foot = own[1] if own is not None else op.name if op.name != op.type else ""
        title = " · ".join(filter(None, [op.type, op.name, op.place, op.status, op.evidence]))
    return GraphNode(
        x=centre - _width(key) / 2,
        y=depth * _LAYER + 2,
        width=_width(key),
        height=_HEIGHT,
        kind=kind,
        head=_short(head),
        foot=_short(foot),
        title=title,
    )


def _short(text: str) -> str:
    """Return a text that fits a box; from a long one its end, which distinguishes scopes."""
    text = layout.clean(text)
    return text if len(text) <= _MOST_LETTERS else f"…{text[1 - _MOST_LETTERS :]}"
