"""A limit on the processor time that a case spends on judging element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.sampling import Moves

# Seconds. If a point takes longer than the first, points are evaluated in parts of about the second, and the
# clock is read between them.
_SLOW_POINT, _PART = 1e-3, 0.25


class OverBudgetError(Exception):
    """An action takes longer than it may."""


class _Stopwatch:
    """Counts processor time, except while it is stopped.

    Attributes:
        cost: seconds per point in the last call that was limited.
    """

    def __init__(self) -> None:
        self.cost = 0.0
        self._began = clock.now()
        self._stopped: float | None = None

    def read(self) -> float:
        """Return the seconds so far."""
        return (clock.now() if self._stopped is None else self._stopped) - self._began

    def stop(self) -> None:
        """Stop counting."""
        self._stopped = clock.now()

    def resume(self) -> None:
        """Continue counting."""
        self._began, self._stopped = clock.now() - self.read(), None


@dataclass
class Budget:
    """A limit in seconds of processor time since this was made; see `clock`.

    Waiting, for a GPU say, takes no processor time: `--timeout` is for that.
    """

    seconds: float = math.inf
    _watch: _Stopwatch = field(default_factory=_Stopwatch)

    @property
    def spent(self) -> float:
        """Seconds spent so far."""
        return self._watch.read()

    @property
    def left(self) -> float:
        """Seconds that are left; negative once they are spent."""
        return self.seconds - self.spent

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

    def limit(self, evaluate: Callable[[Float | Moves], Float]) -> Callable[[Float | Moves], Float]:
        """Return a function that raises `OverBudgetError` instead of evaluating once the time is up.

        Where a point takes long, as in a model whose weights must be written for each point, the time is
        checked every few points.
        """
        if self.seconds == math.inf:
            return evaluate

        def evaluate_in_time(points: Float | Moves) -> Float:
            self.require()
            began = self.spent
            values = evaluate(points)
            self._watch.cost = (self.spent - began) / max(len(points), 1)
            return values

        def evaluate_in_parts(points: Float | Moves) -> Float:
            cost = self._watch.cost
            most = len(points) if cost < _SLOW_POINT else max(1, int(_PART / cost))
            if len(points) <= most:
                return evaluate_in_time(points)
            slices = [slice(start, start + most) for start in range(0, len(points), most)]
            return np.concatenate([evaluate_in_time(points[rows]) for rows in slices])

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
