"""A limit on the time that a case spends on judging element by element."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gradcheck_cli.checking.ops.packing import Float

Points = TypeVar("Points")


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


# How many times as long as on an idle machine something may take on a busy one.
_BUSIEST = 4.0


class OverBudgetError(Exception):
    """What was begun takes longer than it may."""


class _Stopwatch:
    """Counts seconds of the clock and of the processors, but for those during which it stands."""

    def __init__(self) -> None:
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
        """Return a function that raises `OverBudgetError`, in place of evaluating, once the time is up."""
        if evaluate is None or self.seconds == math.inf:
            return evaluate

        def timed(points: Points) -> Float:
            self.require()
            return evaluate(points)

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
