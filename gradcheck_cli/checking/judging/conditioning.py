"""How far a gradient moves when its inputs move by one rounding of their dtype: no run in it can do better.

In a deep network, a rounding puts some elements on the other side of a kink, and batch statistics magnify
it. A float32 gradient is then the exact gradient of a neighbouring point. The formula is judged in float64;
what remains is a loss of digits, however large (decision 45).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.pulled import Pulled
from gradcheck_cli.checking.ops.jacobian import working_precision
from gradcheck_cli.checking.ops.packing import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.ops.operation import Array
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import Pair

# Neighbouring points: each element moves up or down by one rounding.
_POINTS = 4
# A run that rounds at each op may be off by this many times the worst movement among these points. Over the
# weights of a MobileNetV2, float32's errors and these movements have the same root mean square to within 12
# %; the largest error of each is up to 17 times that.
_MORE = 4.0


@dataclass
class Conditioning:
    """How much rounding may change one output's gradient for one upstream.

    Attributes:
        pairs: the output with each input.
        upstream: packed.
    """

    pairs: Sequence[Pair]
    upstream: Float

    def explains(self, pair: Pair, error: float) -> bool:
        """Whether rounding alone may explain this error in the largest element of a pair's gradient."""
        moved = self._moved.get(pair.input_index, 0.0)
        if error <= _MORE * moved:
            return True
        # A gradient that is zero because its terms cancel doesn't move with any input, but its terms are
        # rounded.
        rounding = self._vjp.rounding.get(pair.input_index)
        return rounding is not None and error <= _MORE * (moved + float(np.max(rounding, initial=0.0)))

    @cached_property
    def _vjp(self) -> Pulled:
        first, numbers = self.pairs[0], [pair.input_index for pair in self.pairs]
        return Pulled(first.case, first.operations.declared, first.output_index, numbers, {})

    @cached_property
    def _moved(self) -> dict[int, float]:
        """The largest movement of an element of each input's gradient; empty where it can't be measured."""
        at_base = self._pull({})
        moved: dict[int, float] = {}
        if at_base is None:
            return moved
        for number in range(_POINTS):
            beside = self._pull(self._point(number))
            for pair in self.pairs:
                before, after = at_base[pair.input_index], (beside or at_base)[pair.input_index]
                if before is None or after is None:
                    continue
                with np.errstate(invalid="ignore", over="ignore"):
                    largest = float(np.nan_to_num(np.max(np.abs(after - before), initial=0.0)))
                moved[pair.input_index] = max(moved.get(pair.input_index, 0.0), largest)
        return moved

    def _pull(self, point: dict[int, Array]) -> list[Float | None] | None:
        first = self.pairs[0]
        formula, output = first.operations.formula, first.output_index
        pulled = formula.vjp_beside(output, unpack(self.upstream[None], formula.outputs[output]), point)
        if pulled is None:
            return None
        return [
            None if value is None else pack(value, info)
            for value, info in zip(pulled, formula.inputs, strict=True)
        ]

    def _point(self, number: int) -> dict[int, Array]:
        """Return each input with every element moved up or down by one rounding, (1, *shape)."""
        first = self.pairs[0]
        formula, declared = first.operations.formula, first.operations.declared
        generator = np.random.default_rng([first.case.seed, number])
        point = {}
        for index, (value, info) in enumerate(zip(formula.point, formula.inputs, strict=True)):
            if info.is_differentiable:
                unit = working_precision(declared, declared.inputs[index].dtype).unit_roundoff
                sides: Array = 1 + unit * generator.choice([-1.0, 1.0], size=value.shape)
                point[index] = np.multiply(value, sides)[np.newaxis]
        return point
