"""Writes a file so that a reader sees either the old one or the new one, never half of either."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK_TIMEOUT = 10.0  # seconds; a lock file is held for milliseconds
_RETRY_INTERVAL = 0.02  # seconds between two attempts


_NAMED = {"stdin": 0, "stdout": 1, "stderr": 2}
_DESCRIPTOR = re.compile(r"/dev/(?P<name>std(?:in|out|err))|/(?:dev|proc/self)/fd/(?P<number>[0-9]{1,9})")


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all.

    The text is written to a temporary file in the same folder, which is then renamed in one step. A symbolic
    link stays and its target is replaced; a device or a named pipe can't be replaced, so it is written to.

    Args:
        path: the file; its folder must exist.
        text: its content, written in UTF-8; a lone surrogate, which UTF-8 can't represent, is written as
            JSON's escape.

    Raises:
        OSError: the folder or the file can't be written; no temporary file stays behind.
    """
    descriptor = _descriptor_of(path)
    if descriptor is not None:
        with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        return
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        return
    target = path.resolve()
    # The temporary name is longer than the file's own name, which may have the maximal length.
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:32]}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        Path(temporary).chmod(_mode_of(target))  # mkstemp's own 0600 would lock other readers out
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock on the folder of `path`, so that no other process that takes it changes the file meanwhile.

    A lock on the file itself would apply to the old file once another has taken its name; a separate lock
    file would stay in the repository. On a file system without locks there is none.

    Raises:
        OSError: another process has held it for ten seconds.
    """
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(folder)
        yield
    finally:
        os.close(folder)  # this unlocks it


def _lock(folder: int) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, "another process is writing in its folder") from None
            time.sleep(_RETRY_INTERVAL)
        except OSError:  # network file systems may raise this
            return
        else:
            return


def _descriptor_of(path: Path) -> int | None:
    """Return the descriptor that a path such as /dev/stdout or /dev/fd/3 names; `None` for a file.

    Its file may have no name (a pipe), or be the one that the table is written to, so it must not be
    replaced.
    """
    match = _DESCRIPTOR.fullmatch(str(path))
    if match is None:
        return None
    return _NAMED[match["name"]] if match["name"] else int(match["number"])


def _mode_of(target: Path) -> int:
    """Return the permissions of `target`, or those that a plain `open` would give it."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
