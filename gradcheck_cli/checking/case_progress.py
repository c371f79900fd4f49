"""Tells whoever listens how far the case is that is being checked."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("listener", default=None)


def tell(share: float) -> None:
    """Say that about this share of the case's work is done."""
    listener = _listener.get()
    if listener is not None:
        listener(share)


@contextlib.contextmanager
def listening(listener: Callable[[float], None]) -> Iterator[None]:
    """Have a function called with the share that is done, now and then, while the block runs."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
