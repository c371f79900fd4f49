"""Makes text from outside fit to print: it can't move the cursor, and isn't endless."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# Of a text that the user's code made, such as an exception's. GitHub takes 1 MiB for the page of a job.
_MOST_CHARACTERS = 4000


def clean(text: str) -> str:
    """Return `text` with control characters made visible, so that no message moves the cursor."""
    return "".join(
        repr(char)[1:-1] if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char
        for char in text
    )


def cut(text: str, most: int) -> str:
    """Return the beginning of a text that is longer than `most` characters, and that it goes on."""
    return text if len(text) <= most else f"{text[:most]}..."


def count(amount: int, noun: str) -> str:
    """Return `1 op`, `2 ops`."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def join_first(parts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Join the first `most` parts, and say how many more there are."""
    more = f" and {len(parts) - most:,} more" if len(parts) > most else ""
    return separator.join(parts[:most]) + more


def shorten(text: str) -> str:
    """Return `text` with its middle left out if it is longer than any report has room for."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    end = _MOST_CHARACTERS // 4  # a message that quotes the result is short enough too
    return f"{text[:end]} ... ({len(text) - 2 * end:,} characters left out) ... {text[-end:]}"
