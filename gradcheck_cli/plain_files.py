"""Reads plain files of limited size, without waiting for a pipe's writer, and writes files as a whole.

It also tells files of code apart: the user's, and those of Python, of packages and of gradcheck. Each has a
short name, the same in each process.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

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


PACKAGES = ("site-packages", "dist-packages")  # folders of installed packages
GENERATED = "__autograph_generated_file"  # in the name of each file that AutoGraph writes
# Of the standard library, and of an environment that has a copy of parts of it.
_LIBRARIES = (Path(os.__file__).resolve().parent, Path(sys.prefix, "lib").resolve())
_OWN = Path(__file__).resolve().parent


@cache
def is_users(file: str) -> bool:
    """Tell the user's files from gradcheck's, the standard library's, packages' and generated ones."""
    return not (file.startswith("<") or GENERATED in file or is_own(file) or is_installed(file))


@cache
def is_own(file: str) -> bool:
    """Whether a file is gradcheck's."""
    return Path(file).resolve().is_relative_to(_OWN)


def is_installed(file: str | Path) -> bool:
    """Whether a file or folder belongs to Python or to an installed package."""
    path = Path(file).resolve()
    # An environment may use packages from another one's folder.
    return not set(PACKAGES).isdisjoint(path.parts) or any(map(path.is_relative_to, _LIBRARIES))


def short_path(file: str) -> str:
    """Return a path relative to the folder of installed packages, or to the working directory.

    Absolute paths would put a machine's folders into messages and reports.
    """
    return _path_from(Path.cwd(), file)


@cache
def _path_from(here: Path, file: str) -> str:
    path = Path(file)
    for mark in PACKAGES:
        if mark in path.parts:
            after = len(path.parts) - path.parts[::-1].index(mark)
            return str(Path(*path.parts[after:]))
    for candidate in (path, path.resolve()):
        if candidate.is_relative_to(here):
            return str(candidate.relative_to(here))
    try:
        return os.path.relpath(path.resolve())
    except (OSError, ValueError):  # on another drive
        return file


_NAMED = {"stdin": 0, "stdout": 1, "stderr": 2}
_DESCRIPTOR = re.compile(r"/dev/(?P<name>std(?:in|out|err))|/(?:dev|proc/self)/fd/(?P<number>[0-9]{1,9})")


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all.

    The text is written to a temporary file in the same folder, which is then renamed in one step. A symbolic
    link stays and its target is replaced; a device or a named pipe can't be replaced, so it is written to.

    Args:
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
    temporary = target.with_name(f".{target.name[:32]}.{uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _descriptor_of(path: Path) -> int | None:
    """Return the descriptor that a path such as /dev/stdout or /dev/fd/3 names; `None` for a file.

    Its file may have no name (a pipe), or be the one that the table is written to, so it must not be
    replaced.
    """
    match = _DESCRIPTOR.fullmatch(str(path))
    if match is None:
        return None
    return _NAMED[match["name"]] if match["name"] else int(match["number"])
