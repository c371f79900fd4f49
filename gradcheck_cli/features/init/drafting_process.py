"""Drafts in a separate process: a kernel may abort on inputs that it is tried with.

Each call is recorded before it runs. If the process dies, another one continues without that call.
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType

from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.features.init.drafting import Drafted
from gradcheck_cli.running.limits import end_with_parent

_MOST_DEATHS = 5


class DraftingProcess:
    """A process that drafts one spec after another, and is replaced if it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> DraftingProcess:  # noqa: PYI034 (Python 3.10 has no Self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._end()

    def draft(self, target: str) -> Drafted:
        """Draft the spec of a function, `module:attribute`, or of an op type.

        Raises:
            CaseFailedError: it doesn't exist.
            GradcheckError: the process dies whatever is left out.
        """
        deadly: set[str] = set()
        while True:
            connection = self._started()
            trying = ""
            try:
                connection.send((target, frozenset(deadly)))
                while isinstance(message := connection.recv(), str):
                    trying = message
            except (EOFError, ConnectionError):
                self._end()
                deadly.add(trying)
                if not trying or len(deadly) > _MOST_DEATHS:
                    raise GradcheckError(
                        f"{target}: the process that tried inputs for it was ended {len(deadly)} times, last "
                        f"by:\n{trying or 'its import'}"
                    ) from None
                continue
            if isinstance(message, tuple):
                raise CaseFailedError(*message)
            drafted: Drafted = message
            return drafted

    def _started(self) -> Connection:
        if self._connection is None:
            self._connection, theirs = Pipe()
            # Not multiprocessing: it imports the main module again, and a script may start the program there.
            code = f"from {__name__} import serve; serve({theirs.fileno()})"
            self._process = subprocess.Popen(  # noqa: S603 (this program, in a separate process)
                [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdout=2
            )
            theirs.close()
        return self._connection

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.wait()
        self._connection = self._process = None


def serve(descriptor: int) -> None:
    """Draft what is requested on a connection, until it is closed."""
    end_with_parent()
    connection = Connection(descriptor)
    while True:
        try:
            target, deadly = connection.recv()
        except EOFError:
            return
        connection.send(_draft(target, deadly, connection))


def _draft(target: str, deadly: frozenset[str], connection: Connection) -> object:
    from gradcheck_cli.features.init.drafting import draft_function, draft_op_type

    def may_try(call: str) -> bool:
        if call in deadly:
            return False
        connection.send(call)
        return True

    try:
        return (draft_function if ":" in target else draft_op_type)(target, may_try)
    except CaseFailedError as error:
        return error.kind, error.message, error.traceback
    except Exception:  # noqa: BLE001 (reported in full to the other end)
        return "internal", traceback.format_exc()
