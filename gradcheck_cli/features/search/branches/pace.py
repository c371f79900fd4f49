"""How long a search may take, and therefore how many points a call may take: nothing interrupts a call."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gradcheck_cli import clock

_SHARE = 0.25  # of the remaining time, for one call
_FADING = 0.5  # a point's time falls by this factor at most: the first call also builds the function


def _now() -> float:
    return clock.now()


@dataclass
class Pace:
    """A limited time, and how long points take in it."""

    seconds: float = math.inf  # how long it is; infinite if only counts matter
    clock: Callable[[], float] = _now  # tells the time; by default processor time
    began: float = field(init=False)  # when it began
    point: float = 0.0  # how many seconds a point takes

    def __post_init__(self) -> None:
        """Begin."""
        self.began = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.clock() - self.began

    @property
    def left(self) -> float:
        """Seconds that are left; negative once it is over."""
        return self.seconds - self.elapsed

    def batch(self, most: int) -> int:
        """Return how many points the next call may take, of `most`; 0 if no time is left."""
        left = self.left
        if left <= 0:
            return 0
        return most if self.point * most <= _SHARE * left else max(1, int(_SHARE * left / self.point))

    @contextlib.contextmanager
    def timed(self, count: int) -> Iterator[None]:
        """Measure how long this many points take."""
        before = self.clock()
        yield
        self.point = max((self.clock() - before) / max(1, count), _FADING * self.point)
