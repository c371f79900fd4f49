"""Which kinds of ops branch, and how their sides are told: by how far a point is on each side.

A margin is positive on its side, element by element, and the larger the further in. Where a condition
decides, the sides are told by the condition itself; `conditions` has its margins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]
    # Values of the tensors that tell, (B, *shape) each, to margins of each side, (B, ...) each.
    Margins = Callable[[Sequence[Array]], Sequence[Array]]

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
    """How a kind of op branches.

    Attributes:
        sides: their names.
        margins: of each side; `None` where a condition decides.
        inputs: numbers of the op's inputs that tell.
        is_output: what tells is the op's first output.
    """

    sides: tuple[str, ...]
    margins: Margins | None
    inputs: tuple[int, ...] = (0,)
    is_output: bool = False


def aligned(values: Sequence[Array]) -> list[Array]:
    """Return stacks of values, (B, *shape) each, so that their rows broadcast."""
    most = max(value.ndim for value in values)
    return [value.reshape(len(value), *[1] * (most - value.ndim), *value.shape[1:]) for value in values]


def _signs(values: Sequence[Array]) -> Sequence[Array]:
    return values[0], -values[0]


def _larger(values: Sequence[Array]) -> Sequence[Array]:
    first, second = aligned(values)
    return first - second, second - first


def _capped(values: Sequence[Array]) -> Sequence[Array]:
    value = values[0]
    return -value, np.minimum(value, _SIX - value), value - _SIX


def _clipped(values: Sequence[Array]) -> Sequence[Array]:
    value, low, high = aligned(values)
    return low - value, np.minimum(value - low, high - value), value - high


def _rounds(values: Sequence[Array]) -> Sequence[Array]:
    count = values[0].astype(np.float64)
    return 0.5 - count, 0.5 - np.abs(count - 1), count - 1.5


def _rounded(values: Sequence[Array]) -> Sequence[Array]:
    up = np.round(values[0]) - values[0]
    return up, -up


def _stepped(step: Callable[[Array], Array]) -> Kind:
    def margins(values: Sequence[Array]) -> Sequence[Array]:
        size = np.abs(step(values[0]))
        return 0.5 - size, size - 0.5

    return Kind(("to 0", "elsewhere"), margins)


def index_kind(count: int) -> Kind:
    """Return how a `tf.switch_case` of so many branches branches: an index beyond them takes the last."""

    def margins(values: Sequence[Array]) -> Sequence[Array]:
        index = values[0].astype(np.float64)
        taken = np.where((index < 0) | (index >= count), count - 1, index)
        return [0.5 - np.abs(taken - number) for number in range(count)]

    return Kind(tuple(f"branch {number}" for number in range(count)), margins)


_SIGNS = Kind(("> 0", "< 0"), _signs)
CONDITION = Kind(TRUTH, None)
MASK = Kind(TRUTH, None, is_output=True)
KINDS = {
    "Maximum": Kind(("first larger", "second larger"), _larger, (0, 1)),
    "Minimum": Kind(("first larger", "second larger"), _larger, (0, 1)),
    "Relu6": Kind(("< 0", "inside", "> 6"), _capped),
    "ClipByValue": Kind(("below", "inside", "above"), _clipped, (0, 1, 2)),
    **dict.fromkeys(("Round", "Rint"), Kind(("up", "down"), _rounded)),
    "Floor": _stepped(np.floor),
    "Ceil": _stepped(np.ceil),
    **dict.fromkeys(("Relu", "LeakyRelu", "Elu", "Selu", "Abs", "Sign"), _SIGNS),
    **dict.fromkeys(("Select", "SelectV2", *sorted(CONDITIONALS)), CONDITION),
    **dict.fromkeys(LOOPS, Kind(("no round", "one round", "more rounds"), _rounds, is_output=True)),
}
