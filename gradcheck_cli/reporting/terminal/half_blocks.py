"""A heat map for a terminal, with two rows of cells per line: which elements are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from gradcheck_cli.reporting.terminal import layout

if TYPE_CHECKING:
    from gradcheck_cli.figure import HeatMap

_HALF = "▀"
_CLEAR = 0.01  # as a share of what is allowed: clearly right
_COLOURS = {"x": "red", "?": "yellow", "k": "magenta"}
_KEY = (
    ("right by far", "blue"),
    ("within what is allowed", "cyan"),
    ("kink", "magenta"),
    ("undecided", "yellow"),
    ("wrong", "red"),
)


def heat_lines(drawn: HeatMap, *, coloured: bool) -> list[Text]:
    """Lay out a heat map.

    Args:
        drawn: the cells.
        coloured: whether there are colours; otherwise a letter in each cell says the same.
    """
    rows, columns = len(drawn.rows), len(drawn.columns)
    margin = max(layout.cells(name) for name in drawn.rows)
    lines = []
    if not coloured:
        for name, verdicts in zip(drawn.rows, drawn.verdicts, strict=True):
            lines.append(Text(f"  {layout.pad(layout.clean(name), margin)}  {verdicts}"))
    else:
        for top in range(0, rows, 2):
            line = Text(f"  {layout.pad(layout.clean(drawn.rows[top]), margin)}  ")
            for column in range(columns):
                below = f" on {_colour(drawn, top + 1, column)}" if top + 1 < rows else ""
                line.append(_HALF, style=_colour(drawn, top, column) + below)
            lines.append(line)
    first, last = layout.clean(drawn.columns[0]), layout.clean(drawn.columns[-1])
    lines.append(Text(f"  {'':{margin}}  {first}" + (f" to {last}" if columns > 1 else "")))
    if drawn.row_step * drawn.column_step > 1:
        lines.append(Text(f"  a cell is the worst of {drawn.row_step} x {drawn.column_step} elements"))
    key = Text("  ")
    if coloured:
        for word, colour in _KEY:
            key += Text("■ ", style=colour) + Text(f"{word}  ")
    else:
        key += Text(". right  k kink  ? undecided  x wrong")
    return [*lines, key]


def _colour(drawn: HeatMap, row: int, column: int) -> str:
    verdict = drawn.verdicts[row][column]
    if verdict in _COLOURS:
        return _COLOURS[verdict]
    return "blue" if drawn.share[row][column] <= _CLEAR else "cyan"
