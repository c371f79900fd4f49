"""When a run ends before all of its cases have: after so many failures, or after so long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.results import CaseResult


class Stopper:
    """Counts failures and looks at the clock; a run asks it as it goes."""

    def __init__(
        self,
        is_fine: Callable[[CaseResult], bool],
        *,
        max_failures: int | None = None,
        max_time: float | None = None,
        began: float | None = None,
    ) -> None:
        """Start the clock.

        Args:
            is_fine: whether a case's result is none that fails the run.
            max_failures: end the run with this many failed cases; `None` never does.
            max_time: seconds after which the run ends; `None` never does.
            began: when these began, by `time.monotonic`; default now.
        """
        self._is_fine = is_fine
        self._max_failures, self._max_time = max_failures, max_time
        self._failures = 0
        self._began = time.monotonic() if began is None else began
        self._reason = ""

    @classmethod
    def never(cls) -> Stopper:
        """Return one that lets the run go on to its end."""
        return cls(lambda _: True)

    def saw(self, result: CaseResult) -> None:
        """Take note of a result."""
        self._failures += not self._is_fine(result)

    def is_time(self) -> bool:
        """Whether the run is to end now."""
        if self._max_failures is not None and self._failures >= self._max_failures:
            self._reason = f"stopped after {self._failures} failed case{'s'[: self._failures > 1]}"
        elif self._max_time is not None and time.monotonic() - self._began >= self._max_time:
            self._reason = f"stopped after --max-time {self._max_time:g} s"
        return bool(self._reason)

    def unchecked(self, cases: int, done: int, lost: str = "") -> tuple[str, ...]:
        """Say what a run left out that was stopped, or lost its workers; nothing where all was done."""
        reason = lost or self._reason
        if not reason or done >= cases:
            return ()
        return (f"{reason}: {cases - done} of {cases} cases weren't checked",)
