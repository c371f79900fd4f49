"""Parts of faults: a value as a spec would have it, and the file that was probably meant."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from gradcheck_cli.errors import suggest
from gradcheck_cli.visible import cut

MAX_SHOWN = 40  # characters of a value that a fault quotes


def suggest_file(path: Path) -> str:
    """Return "Did you mean 'x'?" for the most similar name in a path's folder, or nothing."""
    with suppress(OSError):
        names = (entry.name for entry in path.parent.iterdir() if entry.exists())  # no link to nothing
        return suggest(path.name, sorted(names))
    return ""


def show(value: object) -> str:
    """Write a value as a spec would, on one line and not too long."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        text = f"[{', '.join(map(show, value[:MAX_SHOWN]))}]"
        return text if len(text) <= MAX_SHOWN else f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    return cut(repr(value), MAX_SHOWN)
