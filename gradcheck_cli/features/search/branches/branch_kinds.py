"""Which kinds of ops branch, and which side each element takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

Array = Any  # NumPy's, or a tensor of a graph

# TensorFlow's functions under NumPy's names, for sides inside a graph. The tensors there are float64.
IN_GRAPH = SimpleNamespace(abs=tf.abs, expand_dims=tf.expand_dims)
COMPARISONS = {
    "Greater": ">",
    "GreaterEqual": ">=",
    "Less": "<",
    "LessEqual": "<=",
    "Equal": "==",
    "NotEqual": "!=",
    "LogicalAnd": "&",
    "LogicalOr": "|",
}
CONDITIONALS = frozenset({"If", "StatelessIf"})
CASES = frozenset({"Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# The attrs that name an op's bodies.
BODIES = {
    **dict.fromkeys(LOOPS, ("body",)),
    **dict.fromkeys(CONDITIONALS, ("then_branch", "else_branch")),
    **dict.fromkeys(CASES, ("branches",)),
    **dict.fromkeys(CALLS, ("f",)),
}
TRUTH = ("true", "false")


@dataclass(frozen=True)
class Kind:
    """How a kind of op branches."""

    sides: tuple[str, ...]  # their names
    # for each side, which elements take it, by the values that decide and NumPy (or `IN_GRAPH`)
    taken: Callable[[Sequence[Array], Any], Sequence[Array]]
    inputs: tuple[int, ...] = (0,)  # the indices of the op's inputs that decide
    is_output: bool = False  # whether the op's first output decides instead


def align(values: Sequence[Array], math: Any) -> list[Array]:
    """Return stacks of values, (B, *shape) each, with added axes so that their rows broadcast."""
    most = max(len(value.shape) for value in values)
    same_rank = []
    for value in values:
        while len(value.shape) < most:
            value = math.expand_dims(value, 1)  # noqa: PLW2901 (the same values)
        same_rank.append(value)
    return same_rank


def _are_true(values: Sequence[Array], math: Any) -> Sequence[Array]:
    is_true = math.abs(values[0]) > 0
    return is_true, ~is_true


def _have_signs(values: Sequence[Array], _math: Any) -> Sequence[Array]:
    return values[0] > 0, values[0] < 0


def _compare(values: Sequence[Array], math: Any) -> Sequence[Array]:
    first, second = align(values, math)
    return first > second, second > first


def _clip(values: Sequence[Array], math: Any) -> Sequence[Array]:
    value, low, high = align(values, math)
    return value < low, (value > low) & (value < high), value > high


def _clip_at_six(values: Sequence[Array], _math: Any) -> Sequence[Array]:
    value, six = values[0], 6.0
    return value < 0, (value > 0) & (value < six), value > six


def _count_rounds(values: Sequence[Array], _math: Any) -> Sequence[Array]:
    return values[0] < 1, (values[0] > 0) & (values[0] < 2), values[0] > 1  # noqa: PLR2004 (two rounds)


def index_kind(count: int) -> Kind:
    """Return how an op selects one of some branches by an index: if it is out of range, the last."""

    def taken(values: Sequence[Array], _math: Any) -> Sequence[Array]:
        selected = [(values[0] > side - 1) & (values[0] < side + 1) for side in range(count - 1)]
        return [*selected, (values[0] < 0) | (values[0] > count - 2)]

    return Kind(tuple(f"branch {side}" for side in range(count)), taken)


COMPARED = Kind(("greater", "less"), _compare, (0, 1))
_CONDITION = Kind(TRUTH, _are_true)
MASK = Kind(TRUTH, _are_true, is_output=True)
_LARGER = Kind(("first larger", "second larger"), _compare, (0, 1))
KINDS = {
    **dict.fromkeys(("Maximum", "Minimum"), _LARGER),
    "Relu6": Kind(("< 0", "inside", "> 6"), _clip_at_six),
    "ClipByValue": Kind(("below", "inside", "above"), _clip, (0, 1, 2)),
    **dict.fromkeys(("Relu", "LeakyRelu", "Elu", "Selu", "Abs", "Sign"), Kind(("> 0", "< 0"), _have_signs)),
    **dict.fromkeys(("Select", "SelectV2", *sorted(CONDITIONALS)), _CONDITION),
    **dict.fromkeys(LOOPS, Kind(("no round", "one round", "more rounds"), _count_rounds, is_output=True)),
}
