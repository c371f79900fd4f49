"""Reports the progress of the case that is being checked to a listener."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("listener", default=None)


def report_progress(share: float) -> None:
    """Report that about this share of the case's work is done."""
    listener = _listener.get()
    if listener is not None:
        listener(share)


@contextlib.contextmanager
def listen_to_progress(listener: Callable[[float], None]) -> Iterator[None]:
    """Call a function with the share of work done, now and then, while the block runs."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
