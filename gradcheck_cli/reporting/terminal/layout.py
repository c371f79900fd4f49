"""Lines of text that fit a width: cleaning, wrapping, and short numbers; and text in GitHub's Markdown.

Everything is a `rich.text.Text` or a plain string, never markup: an op named `[bold]` prints as it is.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from gradcheck_cli import visible

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case

clean = visible.clean  # the name under which layout code uses it

# Beyond this many columns, a time at the right edge is too far from the text that it belongs to.
MAX_WIDTH = 110
# The digits of `%.3e` distinguish a gradient that is off by a thousandth from a right one; a smaller
# difference needs more, up to what float64 holds.
DIGITS = 3
MAX_DIGITS = 16


def lines_of(text: str) -> list[str]:
    """Split a message into lines without control characters; tabs become four spaces."""
    return [clean(line.expandtabs(4)) for line in text.splitlines()] or [""]


def wrap(text: str, width: int, indent: int = 4, *, hanging: int = 2, style: str = "") -> list[Text]:
    """Wrap a message, keeping its own line breaks; words (paths, labels) are never broken.

    Args:
        indent: columns before each line.
        hanging: further columns before the second and later lines of one line of the message.
    """
    wrapped = []
    for line in lines_of(text):
        inner = len(line) - len(line.lstrip())
        pieces = textwrap.wrap(
            line.strip(),
            width=max(width, indent + inner + 20),
            initial_indent=" " * (indent + inner),
            subsequent_indent=" " * (indent + inner + hanging),
            break_long_words=False,
            break_on_hyphens=False,
        )
        wrapped += [Text(piece, style=style) for piece in pieces or [""]]
    return wrapped


def pack(parts: Sequence[str], *, separator: str, width: int, indent: int) -> list[str]:
    """Put parts on as few lines as possible; a part wider than the line gets its own line."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = lines[-1] + separator + part
        if cells(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(" " * indent + part)
    return lines


def heading(case: Case, *parts: str, width: int, dtype: str = "") -> list[Text]:
    """Return the heading of what is shown of a case: its spec, op, dtype and name, and further parts."""
    name = "" if case.name == "default" else f"case {case.name}"
    every = (case.origin.path, case.op, dtype or case.dtype, name, *parts)
    packed = pack([clean(part) for part in every if part], separator=" · ", width=width, indent=4)
    return [Text(line, style="bold") for line in packed]


def with_right(left: Text, right: str, *, width: int) -> Text:
    """Return `left` with `right` at the right edge, at least two columns apart."""
    gap = max(2, width - left.cell_len - cells(right))
    return left + Text(" " * gap + right, style="dim")


def cells(text: str) -> int:
    """Return how many columns `text` takes on a terminal; wide characters take two."""
    return Text(text).cell_len


def pad(text: str, width: int) -> str:
    """Return `text` padded to `width` columns."""
    return text + " " * (width - cells(text))


def align(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return rows as lines of one length, with columns two blanks apart.

    Args:
        left: how many columns, from the first, contain words, which begin at the same place. The others
            contain numbers, which end there.
    """
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        blanks = [" " * (wide - cells(cell)) for cell, wide in zip(row, widths, strict=True)]
        words = [cell + blank for cell, blank in zip(row[:left], blanks[:left], strict=True)]
        numbers = [blank + cell for cell, blank in zip(row[left:], blanks[left:], strict=True)]
        lines.append("  ".join([*words, *numbers]))
    return lines


def plain(lines: Iterable[Text]) -> str:
    """Return lines as text without styles or blanks at line ends; each ends in a newline."""
    return "".join(line.plain.rstrip() + "\n" for line in lines)


def scientific(value: complex, digits: int = DIGITS) -> str:
    """Format a real or complex number as `1.000e+00` or `1.000e+00-2.000e+00j`."""
    if isinstance(value, complex):
        return f"{value.real:.{digits}e}{value.imag:+.{digits}e}j"
    return f"{value:.{digits}e}"


def format_distinctly(first: complex, second: complex) -> tuple[str, str]:
    """Format two numbers alike, with as many digits as it takes to see that they differ."""
    for digits in range(DIGITS, MAX_DIGITS + 1):
        texts = scientific(first, digits), scientific(second, digits)
        if texts[0] != texts[1]:
            return texts
    return scientific(first), scientific(second)


def element(name: str, index: Sequence[int], part: str = "") -> str:
    """Name an element: `y[2,5]`, or `y` for a scalar; `re y[0]` for the real part of a complex element."""
    where = f"{name}[{','.join(map(str, index))}]" if index else name
    return f"{part} {where}" if part else where


# Characters that CommonMark, its tables, or GitHub's references and emoji could interpret; at the start of a
# line, lists and headings too.
_SPECIAL = re.compile(r"[\\`*_\[\]|~#@!]|:(?=[\w+-]+:)|^[-+=]|(?<=^\d)[.)]")


def escape(text: str) -> str:
    """Return text so that Markdown shows it literally, also in a table's cell; lines are broken by `<br>`."""
    literal = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "<br>".join(_SPECIAL.sub(r"\\\g<0>", line) for line in lines_of(literal))
