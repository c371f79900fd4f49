"""A limit on the time that a case spends on judging element by element."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.checking.ops.packing import Float

Points = TypeVar("Points")


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _begin() -> tuple[float, float]:
    return _now()


# How many times as long as on an idle machine something may take on a busy one.
_BUSIEST = 4.0


class OverBudgetError(Exception):
    """What was begun takes longer than it may."""


@dataclass
class Budget:
    """Seconds since this was made: of the clock or of the processors, whichever are fewer.

    On a busy machine the clock runs ahead; on one with many cores the processors' time does. Neither may
    change a verdict. Waiting, for a GPU say, takes no processor time; there the clock decides in the end.
    """

    seconds: float = math.inf
    _began: tuple[float, float] = field(default_factory=_begin)

    @property
    def spent(self) -> float:
        """Seconds that were taken so far."""
        clock, processors = (now - began for now, began in zip(_now(), self._began, strict=True))
        return max(min(clock, processors), clock / _BUSIEST)

    @property
    def is_spent(self) -> bool:
        """Whether there is nothing left."""
        return self.spent >= self.seconds

    def require(self) -> None:
        """Go on, as long as there is time.

        Raises:
            OverBudgetError: there is none left.
        """
        if self.is_spent:
            raise OverBudgetError

    def limit(self, evaluate: Callable[[Points], Float] | None) -> Any:  # noqa: ANN401 (as it came, or timed)
        """Return a function that raises `OverBudgetError`, in place of evaluating, once the time is up."""
        if evaluate is None or self.seconds == math.inf:
            return evaluate

        def timed(points: Points) -> Float:
            self.require()
            return evaluate(points)

        return timed

    def share(self, part: float) -> Budget:
        """Return a budget that began when this one did, and ends when a part of this one is spent."""
        return Budget(self.seconds * part, self._began)
