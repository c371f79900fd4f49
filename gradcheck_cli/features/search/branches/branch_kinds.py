"""Which kinds of ops branch, and which side each element takes: that of which a margin is positive.

If a condition decides, its truth shows the side.
"""

from __future__ import annotations

import math as exact
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = Any  # NumPy's, or a tensor of a graph
    # From the values of the deciding tensors, (B, *shape) each, to the margins of each side, (B, ...) each.
    # It uses NumPy's functions, or those of `IN_GRAPH`.
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
    """How a kind of op branches.

    Attributes:
        sides: their names.
        margins: of each side; `None` if a condition decides.
        inputs: the indices of the op's inputs that decide.
        is_output: whether the op's first output decides instead.
        offered: the sides that count only if a point takes them, because not all inputs reach them.
    """

    sides: tuple[str, ...]
    margins: Margins | None
    inputs: tuple[int, ...] = (0,)
    is_output: bool = False
    offered: frozenset[str] = frozenset()


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


# From n to the argument at which a function is within about 1/n of its limit: there e^-x, 2 e^-2x or the
# bound e^-x^2 of erfc(x) is 1/n.
_LIMITS: dict[str, Callable[[float], float]] = {
    **dict.fromkeys(("Sigmoid", "Softplus", "Elu", "Selu"), exact.log),
    "Tanh": lambda n: exact.log(2.0 * n) / 2.0,
    **dict.fromkeys(("Erf", "Erfc"), lambda n: exact.sqrt(exact.log(n))),
}
_ROUNDINGS = {tf.float64: 2.0**53, tf.float32: 2.0**24}  # n: 1/n is lost in rounding


def saturating_kind(op: Any) -> Kind | None:
    """Return the sides of a function that reaches its limit within rounding; `None` for any other op."""
    n = _ROUNDINGS.get(op.inputs[0].dtype) if op.inputs else None
    if op.type not in _LIMITS or n is None:
        return None
    limit = _LIMITS[op.type](n)

    def margins(values: Sequence[Array], math: Any) -> Sequence[Array]:
        value = values[0]
        return -limit - value, limit - math.abs(value), value - limit

    def one_tail(values: Sequence[Array], _math: Any) -> Sequence[Array]:
        return values[0], -values[0], -limit - values[0]

    if op.type in ("Elu", "Selu"):
        return Kind((*_SIGNS.sides, "saturated"), one_tail, offered=frozenset({"saturated"}))
    low, high = "saturated low", "saturated high"
    return Kind((low, "unsaturated", high), margins, offered=frozenset({low, high}))


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
