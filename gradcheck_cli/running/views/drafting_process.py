"""Drafts in a process of their own: a kernel may abort on inputs that it is tried with.

What was about to run is noted first. Where the process dies, another goes on without that.
"""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from typing import TYPE_CHECKING

from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.running.processes.process import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import TracebackType

    from gradcheck_cli.running.views.drafting import Drafted

_MOST_DEATHS = 5


class DraftingProcess:
    """A process that drafts one spec after another, and is replaced where it dies."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> DraftingProcess:  # noqa: PYI034 (Python 3.10 has no Self)
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        """End the process."""
        self._end()

    def draft(self, target: str) -> Drafted:
        """Draft the spec of a function, `module:attribute`, or of an op type.

        Raises:
            CaseFailedError: it isn't there.
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
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._connection

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.join()
        self._connection = self._process = None


def _serve(connection: Connection) -> None:
    """Draft what is asked for until nobody asks; standard output is another program's."""
    end_with_parent()
    sys.stdout = sys.stderr
    while True:
        try:
            target, deadly = connection.recv()
        except EOFError:
            return
        connection.send(_draft(target, deadly, connection))


def _draft(target: str, deadly: frozenset[str], connection: Connection) -> object:
    from gradcheck_cli.running.views.drafting import draft_function, draft_op_type

    def may_try(call: str) -> bool:
        if call in deadly:
            return False
        connection.send(call)
        return True

    try:
        return (draft_function if ":" in target else draft_op_type)(target, may_try)
    except CaseFailedError as error:
        return error.kind, error.message, error.traceback
    except Exception:  # noqa: BLE001 (told to whoever asked, in full)
        return "internal", traceback.format_exc()
