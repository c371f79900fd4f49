"""Standard output and error, which may be closed, full, or abandoned by their reader.

A run whose output nobody reads any more still writes its reports and has its exit code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from gradcheck_cli.visible import is_read_by_ci, without_commands

BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell reports for any program whose reader left
_REMEMBERED = 200  # characters of the last line: enough to see whether a CI command begins or ends there
LOST = 3  # closed or full: the output couldn't be written


class OutputLostError(Exception):
    """Standard output can't be written to, and the command has no other purpose."""


class Outlet:
    """A stream that is written to until that fails; anything after that is dropped.

    Attributes:
        lost: why it can't be written to, after that has failed.
        goes_on: whether the command does more than print.
    """

    def __init__(self, stream: TextIO | None, *, goes_on: bool) -> None:
        """Keep the stream; `None` means that it was closed before this process began."""
        self._stream = stream
        self._is_ci = is_read_by_ci()
        self._line = ""  # the content of the last line
        self.lost: OSError | None = None
        self.goes_on = goes_on

    @property
    def code(self) -> int:
        """The exit code of a command whose output was lost; 0 if it wasn't."""
        if self.lost is None:
            return 0
        return BROKEN_PIPE if isinstance(self.lost, BrokenPipeError) else LOST

    def write(self, text: str) -> int:
        """Write, or drop the text if that fails."""
        return self.write_commands(without_commands(text, self._line) if self._is_ci else text)

    def write_commands(self, text: str) -> int:
        """Write annotations, which a CI service is meant to read."""
        self._line = (self._line + text).rpartition("\n")[2][-_REMEMBERED:]
        self._attempt(lambda stream: stream.write(text))
        return len(text)

    def writelines(self, lines: Any) -> None:  # noqa: ANN401 (as every stream has it)
        """Write lines, or drop them if that fails."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write the buffer's content, or drop it if that fails."""
        if self._stream is not None:
            self._attempt(lambda stream: stream.flush())

    def _attempt(self, action: Any) -> None:  # noqa: ANN401 (a function of a stream)
        if self.lost is None:
            try:
                if self._stream is None:
                    raise OSError(9, "it is closed")  # noqa: TRY301 (EBADF, as a descriptor says it)
                action(self._stream)
            except OSError as error:
                self._lose(error)
        if self.lost is not None and not self.goes_on:
            raise OutputLostError(str(self.lost))

    def _lose(self, error: OSError) -> None:
        self.lost = error
        # The buffer's content would raise again when Python flushes it at exit.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            descriptor = os.open(os.devnull, os.O_WRONLY)
            os.dup2(descriptor, self.fileno())
            os.close(descriptor)

    def fileno(self) -> int:
        """Return the stream's descriptor."""
        if self._stream is None:
            raise OSError(9, "it is closed")
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever else a stream has)
        if name == "encoding" and self._stream is None:
            return "utf-8"
        return getattr(self._stream, name)


@contextlib.contextmanager
def guard_output() -> Iterator[Outlet]:
    """Write to standard output and error through outlets; yield that of standard output."""
    out, err = sys.stdout, sys.stderr
    if isinstance(out, Outlet):  # inside another command of this process
        yield out
        return
    outlet = Outlet(out, goes_on=False)
    sys.stdout, sys.stderr = cast("TextIO", outlet), cast("TextIO", Outlet(err, goes_on=True))
    try:
        yield outlet
    finally:
        sys.stdout, sys.stderr = out, err


def go_on_without_output() -> None:
    """Record that the command also writes reports, so that lost output doesn't end it."""
    if isinstance(sys.stdout, Outlet):
        sys.stdout.goes_on = True


def print_commands(text: str, *, err: bool) -> None:
    """Print annotations, which a CI service is meant to read; `err`: on standard error."""
    stream = sys.stderr if err else sys.stdout
    (stream.write_commands if isinstance(stream, Outlet) else stream.write)(text)
    stream.flush()


def open_standard_descriptors() -> None:
    """Open the null device for standard descriptors that are closed: a file would take their number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
