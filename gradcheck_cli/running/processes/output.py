"""Keeps what a process prints in a file, and returns its last lines."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from gradcheck_cli.spec.case import Case

LINES = 10  # shown of a failed case's output
_WIDEST = 400  # characters per line
_TAIL = 4096  # bytes that are searched for these lines
_CHUNK = 2**20
_LONGEST_STEM = 180  # bytes; a file name may have 255


class Output:
    """The file that a process prints to. It has no name, so nothing is ever left behind."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by its owner)

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._file.fileno()

    @property
    def size(self) -> int:
        """How many bytes have been printed."""
        return os.fstat(self._file.fileno()).st_size

    def tail(self, start: int, end: int) -> tuple[tuple[str, ...], bool]:
        """Return the last lines between two offsets in the file, and whether there are no others."""
        first = max(start, end - _TAIL)
        text = os.pread(self._file.fileno(), max(end - first, 0), first).decode(errors="replace")
        lines = text.rstrip().splitlines()
        is_all = first == start and len(lines) <= LINES
        return tuple(line.rstrip()[:_WIDEST] for line in lines[-LINES:]), is_all

    def text(self) -> str:
        """Return the file's content, up to the size of a chunk."""
        return os.pread(self._file.fileno(), _CHUNK, 0).decode(errors="replace")

    def copy(self, path: Path, start: int, end: int) -> None:
        """Write the part of the file between two offsets to `path`."""
        with path.open("wb") as target:
            while start < end:
                chunk = os.pread(self._file.fileno(), min(_CHUNK, end - start), start)
                if not chunk:
                    break
                target.write(chunk)
                start += len(chunk)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


class OutputFolder:
    """The folder for the output of failed cases. It is created when there is something to keep."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use `folder`, or a new folder among the system's temporary files."""
        self._folder = folder
        self._owners: dict[str, tuple[str, ...]] = {}  # file name, in lower case -> the case it belongs to

    def keep(self, case: Case, output: Output, start: int, end: int) -> str:
        """Copy a case's output to its own file, and return its path; empty if the file can't be written."""
        with suppress(OSError):
            path = self._file_of(case)
            output.copy(path, start, end)
            return str(path)
        return ""

    def keep_text(self, case: Case, text: str) -> str:
        """Write a case's output from another machine to a file, and return its path; empty if that fails."""
        with suppress(OSError):
            path = self._file_of(case)
            path.write_text(text, encoding="utf-8")
            return str(path)
        return ""

    def _file_of(self, case: Case) -> Path:
        """Return a case's file: the same for each run of the case, and no other case's."""
        owner = case.op, case.name, case.dtype, case.mode
        parts = owner if case.mode != "graph" else owner[:-1]
        stem = re.sub(r"[^\w.+-]", "_", ".".join(parts)).encode()[:_LONGEST_STEM].decode(errors="ignore")
        names = (
            f"{stem}{number}.txt" for number in ("", *map("-{}".format, range(2, len(self._owners) + 3)))
        )
        name = next(name for name in names if self._owners.setdefault(name.lower(), owner) == owner)
        return self._own() / name

    def _own(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gradcheck-output-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder
