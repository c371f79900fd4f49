"""One pair's Jacobian, analytic and numeric, as text that fits a terminal or as JSON that holds it whole."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gradcheck_cli.reporting import layout
from gradcheck_cli.reporting.json_report import number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from gradcheck_cli.spec.case import Case

    Matrix = npt.NDArray[np.inexact]

MAX_ROWS = 24  # a terminal's height; two matrices of it still scroll by in one piece
MAX_SLICES = 8
MAX_DIFFERENCES = 10


class JacobianView(Protocol):
    """What `show` needs of a pair; matrices have shape (output size, input size), C order."""

    @property
    def label(self) -> str:
        """The pair, `dOUT/dIN`."""

    @property
    def output(self) -> str:
        """The output's name."""

    @property
    def input(self) -> str:
        """The input's name."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The output's shape."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The input's shape."""

    @property
    def analytic(self) -> Matrix:
        """The Jacobian from the gradient under test."""

    @property
    def numeric(self) -> Matrix:
        """The Jacobian from differences."""

    @property
    def uncertainty(self) -> Matrix:
        """The bound on the numeric values' own error."""


def jacobian_json(case: Case, view: JacobianView, index: tuple[int, ...] | None = None) -> str:
    """Render a pair's Jacobian, or the row of one output element, as JSON text; nothing is elided.

    Args:
        case: where it comes from.
        view: the pair.
        index: the output element whose row is asked for, shaped like the input; `None` for all rows.

    Returns:
        The text, ending in a newline; complex numbers are `[re, im]`.
    """
    content = {
        "op": case.op,
        "case": case.name,
        "spec": case.spec,
        "dtype": case.dtype,
        "label": view.label,
        "output": view.output,
        "input": view.input,
        "output_shape": list(view.output_shape),
        "input_shape": list(view.input_shape),
        "output_index": None if index is None else list(index),
        "analytic": _nested(_select(view, view.analytic, index)),
        "numeric": _nested(_select(view, view.numeric, index)),
        "uncertainty": _nested(_select(view, view.uncertainty, index)),
    }
    return json.dumps(content, allow_nan=False) + "\n"


def jacobian_text(
    case: Case, view: JacobianView, index: tuple[int, ...] | None = None, *, width: int = 80
) -> str:
    """Render a pair's Jacobian, or the row of one output element, as text.

    Args:
        case: where it comes from.
        view: the pair.
        index: the output element whose row is asked for, shaped like the input; `None` for all rows.
        width: columns there are; what doesn't fit is elided, with a notice.

    Returns:
        The text: a heading, the analytic values, the numeric ones, and where they differ.
    """
    title = view.label
    if index is not None:
        title = f"d{layout.element(view.output, index)}/d{view.input}"
    parts = [case.path, case.op, case.dtype]
    if case.name != "default":
        parts.append(f"case {case.name}")
    shapes = f"{view.output} {view.output_shape}, {view.input} {view.input_shape}"
    lines = layout.pack([*parts, f"{title}  ({shapes})"], separator=" · ", width=width, indent=4)
    for name, matrix in (("analytic", view.analytic), ("numeric", view.numeric)):
        lines.append(name)
        if index is None:
            lines += _matrix_lines(matrix, _row_names(view), width)
        else:
            lines += _shaped_lines(_select(view, matrix, index), view.input, width)
    return "".join(f"{layout.clean(line)}\n" for line in lines + _difference_lines(view, index))


def _select(view: JacobianView, matrix: Matrix, index: tuple[int, ...] | None) -> Matrix:
    """Return the whole matrix, or one row in the input's shape."""
    if index is None:
        return matrix
    row = int(np.ravel_multi_index(index, view.output_shape)) if index else 0
    shaped: Matrix = matrix[row].reshape(view.input_shape)
    return shaped


def _row_names(view: JacobianView) -> Callable[[int], str]:
    def name(row: int) -> str:
        return layout.element(view.output, _position(row, view.output_shape))

    return name


def _position(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(part) for part in np.unravel_index(flat, shape)) if shape else ()


def _shaped_lines(values: Matrix, name: str, width: int) -> list[str]:
    """Lay out values of any rank: as one matrix up to rank two, else slice by slice."""
    if values.ndim <= 2:  # noqa: PLR2004 (a matrix's rank)
        return _matrix_lines(np.atleast_2d(values), lambda _row: "", width)
    lines = []
    leading = list(product(*(range(size) for size in values.shape[:-2])))
    for position in leading[:MAX_SLICES]:
        lines.append(f"  {name}[{','.join(map(str, position))},:,:]")
        lines += _matrix_lines(values[position], lambda _row: "", width)
    if len(leading) > MAX_SLICES:
        lines.append(f"  elided: {len(leading) - MAX_SLICES} of {len(leading)} slices; {ALL}")
    return lines


ALL = "--format json has all"


def _matrix_lines(matrix: Matrix, row_name: Callable[[int], str], width: int) -> list[str]:
    rows, columns = matrix.shape
    if not rows or not columns:
        return ["  (no elements)"]
    shown_rows = min(rows, MAX_ROWS)
    names = [row_name(row) for row in range(shown_rows)]
    margin = 2 + max(layout.cells(name) for name in names)
    # No column is narrower than two blanks and a digit: more than this many never fit.
    texts = [[_short(value) for value in row[: width // 3]] for row in matrix[:shown_rows]]
    widths = [2 + max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    shown_columns = _fitting(widths, width - margin, columns)
    mark = "  …" if shown_columns < columns else ""
    lines = [
        f"  {layout.pad(name, margin - 2)}"
        + "".join(f"{text:>{wide}}" for text, wide in zip(row[:shown_columns], widths, strict=False))
        + mark
        for name, row in zip(names, texts, strict=True)
    ]
    elided = []
    if shown_rows < rows:
        elided.append(f"{rows - shown_rows} of {rows} rows")
    if shown_columns < columns:
        elided.append(f"{columns - shown_columns} of {columns} columns")
    if elided:
        lines.append(f"  elided: {', '.join(elided)}; {ALL}")
    return lines


def _fitting(widths: Sequence[int], room: int, columns: int) -> int:
    """Return how many columns fit, at least one; all of them need no room for the mark of elision."""
    if len(widths) == columns and sum(widths) <= room:
        return columns
    used = 0
    for place, wide in enumerate(widths):
        used += wide
        if used > room - 3:
            return max(1, place)
    return len(widths)


def _difference_lines(view: JacobianView, index: tuple[int, ...] | None) -> list[str]:
    """Say where analytic and numeric are further apart than the numeric value's own uncertainty."""
    rows = range(view.analytic.shape[0])
    if index is not None:
        row = int(np.ravel_multi_index(index, view.output_shape)) if index else 0
        rows = range(row, row + 1)
    analytic, numeric = view.analytic[rows.start : rows.stop], view.numeric[rows.start : rows.stop]
    with np.errstate(invalid="ignore"):
        error = np.abs(analytic - numeric)
    agrees = error <= view.uncertainty[rows.start : rows.stop]  # so that NaN never agrees
    if agrees.all():
        largest = f", largest difference {error.max():.3e}" if error.size else ""
        return [f"equal within the numeric values' uncertainty{largest}"]
    places = np.argwhere(~agrees)
    order = np.argsort(-np.nan_to_num(error[~agrees], nan=np.inf, posinf=np.inf), kind="stable")
    lines = [f"apart by more than the numeric value's uncertainty: {len(places):,} of {error.size:,}"]
    for row, column in places[order[:MAX_DIFFERENCES]]:
        first, second = layout.apart(analytic[row, column].item(), numeric[row, column].item())
        where = (
            f"{layout.element(view.output, _position(rows.start + int(row), view.output_shape))} / "
            f"{layout.element(view.input, _position(int(column), view.input_shape))}"
        )
        lines.append(
            f"  {where}   analytic {first}   numeric {second}"
            f" ± {view.uncertainty[rows.start + row, column]:.1e}   difference {error[row, column]:.3e}"
        )
    if len(places) > MAX_DIFFERENCES:
        lines.append(f"  elided: {len(places) - MAX_DIFFERENCES:,} smaller ones; {ALL}")
    return lines


def _short(value: np.inexact) -> str:
    """Format an element in six digits; `0` for zero of either sign."""
    if value == 0:
        return "0"
    item = value.item()
    if isinstance(item, complex):
        return f"{item.real:.6g}{item.imag:+.6g}j"
    return f"{item:.6g}"


def _nested(values: Matrix) -> object:
    """Return an array as nested lists of JSON numbers."""
    if values.ndim == 0:
        return number(values.item())
    return [_nested(part) for part in values]
