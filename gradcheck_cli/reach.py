"""The one walk, through whatever leads on: ops to ops, functions to those that they call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

Place = TypeVar("Place")


def reached(
    starts: Iterable[Place],
    onward: Callable[[Place], Iterable[Place]],
    *,
    closed: Iterable[Hashable] = (),
    key: Callable[[Place], Any] = lambda place: place,
) -> dict[Any, Place]:
    """Return all that some starts lead to, with themselves, each once and by its key.

    Args:
        onward: returns what one place leads to.
        closed: keys of what isn't entered.
        key: tells places apart, such as `id` of tensors, which have no hash.
    """
    entered: dict[Any, Place] = {}
    barred = set(closed)
    waiting = [*starts]
    while waiting:
        place = waiting.pop()
        name = key(place)
        if name not in entered and name not in barred:
            entered[name] = place
            waiting += onward(place)
    return entered
