"""Writing a report so that whoever reads it sees the old one or the new one, never half of either."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all.

    The text goes into a temporary file in the same folder, which then takes the name in one step. A
    symbolic link keeps its place and its target is replaced; a device or a named pipe can't be replaced,
    and is written to.

    Args:
        path: the file; its folder must exist.
        text: what it shall hold, written in UTF-8; a lone surrogate, which that can't hold, as the escape
            that JSON has for it.

    Raises:
        OSError: the folder or the file can't be written; no temporary file stays behind.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        return
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        Path(temporary).chmod(_mode_of(target))  # mkstemp's own 0600 would lock other readers out
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _mode_of(target: Path) -> int:
    """Return the permissions that `target` has, or that a plain `open` would give it."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
