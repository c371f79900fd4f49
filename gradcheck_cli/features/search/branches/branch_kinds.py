"""Which kinds of ops branch, and which side each element takes: that of which a margin is positive.

If a condition decides, its truth shows the side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

Array = Any  # NumPy's, or a tensor of a graph
Margins = Callable[[Sequence[Array], Any], Sequence[Array]]

# TensorFlow's functions under NumPy's names, for margins inside a graph. The tensors there are float64.
IN_GRAPH = SimpleNamespace(
    abs=tf.abs,
    floor=tf.floor,
    ceil=tf.math.ceil,
    round=tf.round,
    where=tf.where,
    minimum=tf.minimum,
    maximum=tf.maximum,
    min=tf.reduce_min,
    max=tf.reduce_max,
    sum=tf.reduce_sum,
    expand_dims=tf.expand_dims,
)
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
TRUTH = ("true", "false")
_SIX = 6.0  # where relu6 ends


@dataclass(frozen=True)
class Kind:
    """How a kind of op branches."""

    sides: tuple[str, ...]  # their names
    margins: Margins | None  # of each side; `None` if a condition decides
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


def _sign_margins(values: Sequence[Array], _math: Any) -> Sequence[Array]:
    return values[0], -values[0]


def _comparison_margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
    first, second = align(values, math)
    return first - second, second - first


def _relu6_margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
    value = values[0]
    return -value, math.minimum(value, _SIX - value), value - _SIX


def _clip_margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
    value, low, high = align(values, math)
    return low - value, math.minimum(value - low, high - value), value - high


def _loop_margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
    count = values[0]
    return 0.5 - count, 0.5 - math.abs(count - 1), count - 1.5


def _rounding_margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
    up = math.round(values[0]) - values[0]
    return up, -up


def _step_kind(step: str) -> Kind:
    def margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
        size = math.abs(getattr(math, step)(values[0]))
        return 0.5 - size, size - 0.5

    return Kind(("to 0", "elsewhere"), margins)


def index_kind(count: int, noun: str = "branch", input_index: int = 0) -> Kind:
    """Return how an op branches that selects one of several things by an index.

    An index that is out of range selects the last.

    Args:
        count: how many things there are.
        noun: what they are called.
        input_index: which input is the index.
    """

    def margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
        index = values[0]
        last = 0 * index + (count - 1)
        selected = math.where((index < 0) | (index >= count), last, index)
        return [0.5 - math.abs(selected - side) for side in range(count)]

    return Kind(tuple(f"{noun} {side}" for side in range(count)), margins, (input_index,))


COMPARED = Kind(("greater", "less"), _comparison_margins, (0, 1))
_SIGNS = Kind(("> 0", "< 0"), _sign_margins)
CONDITION = Kind(TRUTH, None)
MASK = Kind(TRUTH, None, is_output=True)
KINDS = {
    "Maximum": Kind(("first larger", "second larger"), _comparison_margins, (0, 1)),
    "Minimum": Kind(("first larger", "second larger"), _comparison_margins, (0, 1)),
    "Relu6": Kind(("< 0", "inside", "> 6"), _relu6_margins),
    "ClipByValue": Kind(("below", "inside", "above"), _clip_margins, (0, 1, 2)),
    **dict.fromkeys(("Round", "Rint"), Kind(("up", "down"), _rounding_margins)),
    "Floor": _step_kind("floor"),
    "Ceil": _step_kind("ceil"),
    **dict.fromkeys(("Relu", "LeakyRelu", "Elu", "Selu", "Abs", "Sign"), _SIGNS),
    **dict.fromkeys(("Select", "SelectV2", *sorted(CONDITIONALS)), CONDITION),
    **dict.fromkeys(LOOPS, Kind(("no round", "one round", "more rounds"), _loop_margins, is_output=True)),
}
