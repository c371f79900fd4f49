"""Reads files that gradcheck didn't write: plain ones of limited size, without waiting for a pipe's writer.

It also gives files of code a short name, the same in each process.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

MIB = 2**20
# Streams that the user's shell has opened, as by `<(...)`: they have a writer, and they end.
_OPENED = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/[0-9]+")
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def read_plain(path: Path, limit: int) -> bytes:
    """Return a file's content.

    Args:
        path: a plain file, or a stream such as /dev/stdin.
        limit: the most bytes that it may have.

    Raises:
        OSError: it can't be read, is no plain file, or is too large; `strerror` says which.
    """
    is_stream = _OPENED.fullmatch(str(path)) is not None
    # Opening a named pipe waits for its writer, unless told not to.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if is_stream else os.O_NONBLOCK))
    try:
        _require_plain(path, os.fstat(descriptor), limit, is_stream=is_stream)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = stream.read(limit + 1)  # it may have grown, and a file of /proc has no size
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise _too_large(path, limit)
    return content


def _require_plain(path: Path, status: os.stat_result, limit: int, *, is_stream: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG and not (is_stream and kind != stat.S_IFDIR):
        what = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"must be a plain file, but is {what}", os.fspath(path))
    if status.st_size > limit:
        raise _too_large(path, limit)


def _too_large(path: Path, limit: int) -> OSError:
    size = f"{limit // MIB} MiB" if limit >= MIB else f"{limit} bytes"
    return OSError(errno.EFBIG, f"must hold at most {size}, but is larger", os.fspath(path))


def short_path(file: str) -> str:
    """Return a path relative to the folder of installed packages, or to the working directory.

    Absolute paths would put a machine's folders into messages and reports.
    """
    path = Path(file)
    for mark in ("site-packages", "dist-packages"):
        if mark in path.parts:
            after = len(path.parts) - path.parts[::-1].index(mark)
            return str(Path(*path.parts[after:]))
    here = Path.cwd()
    for candidate in (path, path.resolve()):
        if candidate.is_relative_to(here):
            return str(candidate.relative_to(here))
    try:
        return os.path.relpath(path.resolve())
    except (OSError, ValueError):  # on another drive
        return file
