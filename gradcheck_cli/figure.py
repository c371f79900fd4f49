"""The data of a pair's pictures: Jacobians in few cells, differences by step, the ops on its path.

They are plain numbers, so that a worker can send them as JSON to the process that writes the page.
"""

from __future__ import annotations

from dataclasses import dataclass

# Cells of a heat map along an edge: more can't be distinguished on a phone.
MOST_CELLS = 32


@dataclass(frozen=True)
class HeatMap:
    """A Jacobian, in as many cells as can be distinguished.

    A cell represents `row_step` x `column_step` elements; the one with the largest share is shown.

    Attributes:
        rows: each cell's element of the output, such as `y[0,2]`; the first of several.
        columns: each cell's element of the input.
        row_step: elements of the output in a cell.
        column_step: elements of the input in a cell.
        analytic: (rows, columns) from the gradient under test.
        numeric: from differences.
        share: the error as a share of what is allowed; above 1 is wrong.
        verdicts: a word per row with a letter per element: `.` passed, `k` at a kink, `x` wrong, `?`
            undecided.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_step: int
    column_step: int
    analytic: tuple[tuple[float, ...], ...]
    numeric: tuple[tuple[float, ...], ...]
    share: tuple[tuple[float, ...], ...]
    verdicts: tuple[str, ...]


@dataclass(frozen=True)
class Ladder:
    """Differences of one element at shrinking steps, from which the numeric derivative is chosen.

    Attributes:
        element: `y[1,2] / x[1,2]`.
        steps: the steps, the largest first.
        central: the slope from both sides, at each.
        above: from above alone.
        below: from below alone.
        analytic: the gradient under test.
        numeric: the slope that was settled on.
        uncertainty: how far that may be off.
        allowed: the tolerance.
        first_step: the step that is tried first, and by which most elements are judged.
    """

    element: str
    steps: tuple[float, ...]
    central: tuple[float, ...]
    above: tuple[float, ...]
    below: tuple[float, ...]
    analytic: float
    numeric: float
    uncertainty: float
    allowed: float
    first_step: float


@dataclass(frozen=True)
class PathOp:
    """An op between output and input: its type, the place of its gradient, and blame's verdict on it.

    `reads` has the ops whose outputs flow into it, by their index in `Figure.path`; -1 is the input.
    `is_last` says that no other op on the path reads it: it returns the output.
    """

    name: str
    type: str
    place: str
    status: str
    evidence: str = ""
    reads: tuple[int, ...] = ()
    is_last: bool = False


@dataclass(frozen=True)
class Figure:
    """The data of a pair's pictures, at the sample point that shows most.

    Attributes:
        point: index of the sample point.
        shape: rows and columns of the whole Jacobian.
        map: its heat maps; `None` for random probes, which see few elements.
        ladder: the ladder of the worst element; `None` if it couldn't be evaluated.
        path: the ops that blame checked, in the order of the forward; empty if blame wasn't run.
    """

    point: int
    shape: tuple[int, int]
    map: HeatMap | None = None
    ladder: Ladder | None = None
    path: tuple[PathOp, ...] = ()
