"""Errors that end a command, each with the exit code it ends with; findings are results, not errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from gradcheck_cli.visible import clean

_COMPARED = 40  # characters of a word that is looked up
_NEAR = 0.75  # of the letters in common: a typing error, where 0.6 is often another word


def suggest(word: str, words: Iterable[str], title: str = "") -> str:
    """Return "Did you mean 'x'?" for the known word that was probably meant.

    If none is near, it is "Title: x, y", with all words, or nothing without a title.
    """
    words = list(words)
    near = nearest(word, words)
    return f"Did you mean '{near}'?" if near else title and f"{title}: {', '.join(words) or 'none'}"


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the known word that is like a word but for a typing error or its end; empty if none is."""
    word = word[:_COMPARED].lower()
    folded = {name.lower(): name for name in reversed(list(words))}
    near = difflib.get_close_matches(word, folded, n=1, cutoff=_NEAR) or [
        name
        for name in difflib.get_close_matches(word, folded)
        if name.startswith(word) or word.startswith(name)
    ]
    return folded[near[0]] if near else ""


class GradcheckError(Exception):
    """Base of every error that ends a command; `exit_code` is a contract."""

    exit_code = 2


class UsageError(GradcheckError):
    """A command was called in a way that it can't handle."""

    exit_code = 2


class NoSpecsError(GradcheckError):
    """No spec matched the request."""

    exit_code = 5


@dataclass(frozen=True, order=True)
class Fault:
    """One fault in one spec: `path:line: place: message`."""

    path: str
    line: int
    place: str
    message: str
    # of that line, from which and before which it stands
    columns: tuple[int, int] = field(default=(0, 0), compare=False)

    def __str__(self) -> str:
        """Return one line; `place` is left out if the fault concerns the whole file."""
        path = clean(self.path)
        where = f"{path}:{self.line}" if self.line else path
        return f"{where}: {self.place}: {self.message}" if self.place else f"{where}: {self.message}"


class SpecError(GradcheckError):
    """Specs with faults: every fault of every file at once, sorted by file and line."""

    exit_code = 2

    def __init__(self, faults: list[Fault]) -> None:
        """Keep the faults, sorted; the message has one per line."""
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class CaseFailedError(GradcheckError):
    """A case that couldn't be checked at all; it gets the status `error`, exit 3.

    Args:
        kind: short, stable word for scripts: "import", "attribute", "forward", "gradient",
            "gradient_count", "op_type", "override_missed", "outputs", "values", "pairs", "internal".
        message: what was expected, what was found, what to do.
        traceback: the user's own frames, already trimmed, one line of text each.
    """

    exit_code = 3

    def __init__(self, kind: str, message: str, traceback: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.message = message
        self.traceback = traceback
        super().__init__(message)


class CaseSkippedError(GradcheckError):
    """A case that isn't available here, in this mode or on this device; it gets the status `skipped`.

    Args:
        check: what prevents it, as the name of the report's row: "mode", "device".
        message: the reason.
    """

    exit_code = 3

    def __init__(self, check: str, message: str) -> None:
        self.check = check
        self.message = message
        super().__init__(message)
