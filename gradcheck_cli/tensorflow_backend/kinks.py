"""The op types that are another function on another side, with what decides, and who takes which side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck_cli.tensorflow_backend.private import private_graphs

Array = np.ndarray[Any, Any]
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
# The attrs that name an op's bodies.
BODIES = {
    **dict.fromkeys(("While", "StatelessWhile"), ("body", "cond")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
    **dict.fromkeys(private_graphs.CALLS, ("f",)),
}
TRUTH = ("true", "false")
ROUNDS = ("no round", "one round", "more rounds")


@dataclass(frozen=True)
class Sides:
    """The sides of an op."""

    names: tuple[str, ...]
    taken: Callable[..., Sequence[Array]]  # for each side, which elements take it, by the values that decide
    inputs: tuple[int, ...] = (0,)  # the indices of the op's inputs that decide
    is_output: bool = False  # whether the op's first output decides instead


CONDITION = Sides(TRUTH, lambda value: (value != 0, value == 0))
_LARGER = Sides(("first larger", "second larger"), lambda one, other: (one > other, one < other), (0, 1))
# The sides of each op type. How its kink is held on one side: `twin.widening.PIECES`.
SIDES = {
    **dict.fromkeys(("Maximum", "Minimum"), _LARGER),
    "Relu6": Sides(("< 0", "inside", "> 6"), lambda x: (x < 0, (x > 0) & (x < 6), x > 6)),  # noqa: PLR2004 (its six)
    **dict.fromkeys(
        ("Relu", "LeakyRelu", "Elu", "Selu", "Abs", "Sign"),
        Sides(("> 0", "< 0"), lambda x: (x > 0, x < 0)),
    ),
    **dict.fromkeys(("Select", "SelectV2", "If", "StatelessIf"), CONDITION),
    **dict.fromkeys(
        ("While", "StatelessWhile"),
        Sides(ROUNDS, lambda count: (count < 1, count == 1, count > 1), is_output=True),
    ),
}
