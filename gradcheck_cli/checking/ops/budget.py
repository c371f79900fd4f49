"""A limit on the time that a case spends on judging element by element."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gradcheck_cli.numerics.moves import Moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gradcheck_cli.checking.ops.packing import Float

Points = TypeVar("Points", "np.ndarray[Any, Any]", Moves)


def _part_of(points: Points, part: slice) -> Points:
    return points.take(part) if isinstance(points, Moves) else points[part]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


# How many times as long as on an idle machine something may take on a busy one.
_BUSIEST = 4.0


# Seconds for a point from which on points are no batch, but one call each; and between two looks at the time.
_SLOW, _GLANCE = 1e-3, 0.25


class OverBudgetError(Exception):
    """What was begun takes longer than it may."""


class _Stopwatch:
    """Counts seconds of the clock and of the processors, but for those during which it stands.

    Attributes:
        cost: seconds that a point took in the last call that was limited.
    """

    def __init__(self) -> None:
        self.cost = 0.0
        self._began = _now()
        self._stopped: tuple[float, float] | None = None

    def read(self) -> tuple[float, float]:
        """Return both, so far."""
        clock, processors = self._stopped or _now()
        return clock - self._began[0], processors - self._began[1]

    def stop(self) -> None:
        """Stand still."""
        self._stopped = _now()

    def go_on(self) -> None:
        """Count again, from where it stood."""
        clock, processors = self.read()
        now, self._stopped = _now(), None
        self._began = now[0] - clock, now[1] - processors


@dataclass
class Budget:
    """Seconds that were counted since this was made: of the clock or of the processors, whichever are fewer.

    On a busy machine the clock runs ahead; on one with many cores the processors' time does. Neither may
    change a verdict. Waiting, for a GPU say, takes no processor time; there the clock decides in the end.
    """

    seconds: float = math.inf
    _watch: _Stopwatch = field(default_factory=_Stopwatch)

    @property
    def spent(self) -> float:
        """Seconds that were taken so far."""
        clock, processors = self._watch.read()
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
        """Return a function that raises `OverBudgetError`, in place of evaluating, once the time is up.

        Where a point takes long, as in a model whose weights must be written for each, the time is looked at
        every few points.
        """
        if evaluate is None or self.seconds == math.inf:
            return evaluate

        def part(points: Points) -> Float:
            self.require()
            began = self.spent
            values = evaluate(points)
            self._watch.cost = (self.spent - began) / max(len(points), 1)
            return values

        def timed(points: Points) -> Float:
            cost = self._watch.cost
            most = len(points) if cost < _SLOW else max(1, int(_GLANCE / cost))
            if len(points) <= most:
                return part(points)
            slices = [slice(start, start + most) for start in range(0, len(points), most)]
            return np.concatenate([part(_part_of(points, one)) for one in slices])

        return timed

    def share(self, part: float) -> Budget:
        """Return a budget that began when this one did, and ends when a part of this one is spent."""
        return Budget(self.seconds * part, self._watch)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave out what is done meanwhile, here and in every share: what can't be done without."""
        self._watch.stop()
        try:
            yield
        finally:
            self._watch.go_on()
