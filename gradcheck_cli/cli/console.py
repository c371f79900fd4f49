"""How this process's output looks: where it has colour, and how wide a line may be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console
from rich.text import Text

FALLBACK_WIDTH = 80
MIN_WIDTH = 40  # below this, not even the numbers fit: the terminal's own wrapping is as good


def terminal_width() -> int:
    """Return the width of the terminal behind standard output; 80 if it isn't a terminal."""
    return max(MIN_WIDTH, shutil.get_terminal_size((FALLBACK_WIDTH, 24)).columns)


def uses_colour(stream: TextIO) -> bool:
    """Whether output gets colour: on a terminal or with FORCE_COLOR, never with NO_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def console_for(stream: TextIO) -> Console:
    """Return a rich console on `stream` that prints text unchanged."""
    coloured = uses_colour(stream)
    return Console(
        file=stream,
        color_system="standard" if coloured else None,
        force_terminal=True if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
        width=terminal_width(),
    )


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Print laid-out lines unchanged and at once, without waiting for a full buffer."""
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True)
    console.file.flush()
