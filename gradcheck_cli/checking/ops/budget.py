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


# How many times as long an action may take on a busy machine as on an idle one.
_BUSIEST = 4.0
# Seconds. If a point takes longer than the first, points are evaluated in parts of about the second, and the
# clock is read between them.
_SLOW, _GLANCE = 1e-3, 0.25


class OverBudgetError(Exception):
    """An action takes longer than it may."""


def _select(points: Points, rows: slice) -> Points:
    return points.take(rows) if isinstance(points, Moves) else points[rows]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


class _Stopwatch:
    """Counts seconds of wall-clock and of processor time, except while it is stopped.

    Attributes:
        cost: seconds per point in the last call that was limited.
    """

    def __init__(self) -> None:
        self.cost = 0.0
        self._began = _now()
        self._stopped: tuple[float, float] | None = None

    def read(self) -> tuple[float, float]:
        """Return both times so far."""
        clock, processors = self._stopped or _now()
        return clock - self._began[0], processors - self._began[1]

    def stop(self) -> None:
        """Stop counting."""
        self._stopped = _now()

    def resume(self) -> None:
        """Continue counting."""
        clock, processors = self.read()
        now, self._stopped = _now(), None
        self._began = now[0] - clock, now[1] - processors


@dataclass
class Budget:
    """A limit in seconds since this was made, of wall-clock or of processor time, whichever is less.

    On a busy machine wall-clock time runs ahead; on one with many cores processor time does. Neither may
    change a verdict. Waiting, for a GPU say, takes no processor time; if both stand still, the wall clock
    decides in the end.
    """

    seconds: float = math.inf
    _watch: _Stopwatch = field(default_factory=_Stopwatch)

    @property
    def spent(self) -> float:
        """Seconds spent so far."""
        clock, processors = self._watch.read()
        return max(min(clock, processors), clock / _BUSIEST)

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.seconds

    def require(self) -> None:
        """Return if there is time left.

        Raises:
            OverBudgetError: there is none.
        """
        if self.is_spent:
            raise OverBudgetError

    def limit(self, evaluate: Callable[[Points], Float] | None) -> Any:  # noqa: ANN401 (a function, or None)
        """Return a function that raises `OverBudgetError` instead of evaluating once the time is up.

        Where a point takes long, as in a model whose weights must be written for each point, the time is
        checked every few points.
        """
        if evaluate is None or self.seconds == math.inf:
            return evaluate

        def evaluate_in_time(points: Points) -> Float:
            self.require()
            began = self.spent
            values = evaluate(points)
            self._watch.cost = (self.spent - began) / max(len(points), 1)
            return values

        def evaluate_in_parts(points: Points) -> Float:
            cost = self._watch.cost
            most = len(points) if cost < _SLOW else max(1, int(_GLANCE / cost))
            if len(points) <= most:
                return evaluate_in_time(points)
            slices = [slice(start, start + most) for start in range(0, len(points), most)]
            return np.concatenate([evaluate_in_time(_select(points, rows)) for rows in slices])

        return evaluate_in_parts

    def share(self, fraction: float) -> Budget:
        """Return a budget that began when this one did, and ends when a fraction of this one is spent."""
        return Budget(self.seconds * fraction, self._watch)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Don't count the time of the block, here and in every share: it is needed in any case."""
        self._watch.stop()
        try:
            yield
        finally:
            self._watch.resume()
