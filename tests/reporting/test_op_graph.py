"""The graph of ops on the page: what is in it, that nothing overlaps, and that it stays small."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from gradcheck_cli.features.page.op_graph import MOST_NODES, graph_of
from gradcheck_cli.results import PathOp


def path_of(reads, guilty, **changes):
    """Return ops that read others by their index, one of them to blame; the last gives the output."""
    return [
        PathOp(
            f"scope/op{index}",
            "Mul",
            "_MulGrad at tensorflow/python/ops/math_grad.py:1404",
            "mismatched" if index == guilty else "passed",
            reads=tuple(read),
            is_last=index == len(reads) - 1,
            **changes,
        )
        for index, read in enumerate(reads)
    ]


CHAIN = [[index - 1] for index in range(200)]
DIAMOND = [[-1], [0], [0], [1, 2], [0, 3]]
FAN = [[-1], *[[0]] * 100, list(range(1, 101))]
DENSE = [[-1], *[list(range(max(0, index - 5), index)) for index in range(1, 60)]]


@pytest.mark.parametrize("reads", [CHAIN, DIAMOND, FAN, DENSE], ids=["chain", "diamond", "fan", "dense"])
def test_nothing_overlaps_and_the_op_to_blame_is_there(reads):
    graph = graph_of(path_of(reads, len(reads) // 2), "x", "y")
    assert [node.kind for node in graph.nodes].count("mismatched") == 1
    assert sum(node.kind in {"passed", "mismatched"} for node in graph.nodes) <= MOST_NODES
    for one, other in combinations(graph.nodes, 2):
        beside = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert beside or one.y + one.height <= other.y or other.y + other.height <= one.y
    assert all(
        0 <= node.x <= graph.width - node.width and 0 <= node.y <= graph.height - node.height
        for node in graph.nodes
    )


def test_each_edge_is_drawn_from_above_to_below():
    graph = graph_of(path_of(DIAMOND, 1), "x", "y")
    assert len(graph.edges) == sum(map(len, DIAMOND)) + 1  # and what the output reads
    rows = {node.title.split(" · ")[1]: node.y for node in graph.nodes if " · " in node.title}
    for op, read in enumerate(DIAMOND):
        assert all(rows[f"scope/op{op}"] > rows[f"scope/op{source}"] for source in read if source >= 0)
    ends = {node.kind: node.head for node in graph.nodes if node.kind in {"input", "output"}}
    assert ends == {"input": "x", "output": "y"}


def test_of_a_long_chain_the_neighbourhood_is_drawn_and_it_says_so():
    graph = graph_of(path_of(CHAIN, 100), "x", "y")
    assert graph.ops == set(range(94, 107))
    assert graph.note == "13 of 200 ops, the nearest to the one to blame"
    in_order = sorted(graph.nodes, key=lambda node: node.y)
    assert [node.kind for node in (in_order[0], in_order[-1])] == ["before", "after"]
    assert all(one.y < other.y for one, other in pairwise(in_order))
    assert graph_of(path_of(DIAMOND, 1), "x", "y").note == ""


def test_ops_that_read_each_other_end():
    graph = graph_of(path_of([[-1, 1], [0], [1]], 1), "x", "y")
    assert len(graph.nodes) == 5


def test_the_users_own_gradient_is_named_by_its_line():
    own = PathOp("IdentityN", "IdentityN", "grad at /home/me/my tensorflow/net.py:6", "mismatched", "", (-1,))
    graph = graph_of([own], "x", "y")
    (node,) = [node for node in graph.nodes if node.kind == "mismatched"]
    assert (node.head, node.foot) == ("✗ IdentityN", "net.py:6")
    assert "to blame: IdentityN IdentityN" in graph.words


def test_without_edges_there_is_no_graph():
    assert graph_of([], "x", "y") is None
    assert graph_of(path_of([[], []], 0), "x", "y") is None
