"""What a picture of a pair is drawn from: Jacobians in few cells, differences by step, the ops on its way.

Plain numbers, so that they travel from a worker to a page, and through JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

# Cells of a heat map along an edge: more can't be told apart on a phone.
MOST_CELLS = 32


@dataclass(frozen=True)
class HeatMap:
    """A Jacobian, in as many cells as can be told apart.

    A cell stands for `row_step` x `column_step` elements, of which the one with the largest share is shown.

    Attributes:
        rows: each cell's element of the output, such as `y[0,2]`; of several the first.
        columns: each cell's element of the input.
        row_step: elements of the output in a cell.
        column_step: elements of the input in a cell.
        analytic: (rows, columns) from the gradient under test.
        numeric: from differences.
        share: the error as a share of what is allowed; above 1 is wrong.
        verdicts: a word a row, a letter an element: `.` passed, `k` at a kink, `x` wrong, `?` undecided.
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
    """Differences of one element at steps that shrink: what a numeric derivative is chosen from.

    Attributes:
        element: `y[1,2] / x[1,2]`.
        steps: the steps, the largest first.
        central: the slope from both sides, at each.
        above: from above alone.
        below: from below alone.
        analytic: the gradient under test.
        numeric: the slope that was settled on.
        uncertainty: what that may be off by.
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
    """An op between output and input: what it is, where its gradient is, and what blame says of it.

    `reads` has the ops whose outputs flow into it, by their index among `Figure.path`; -1 is the input.
    `is_last` says that no other op on the way reads it: what it returns is the output.
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
    """What is drawn of a pair, at the sample point that tells most.

    Attributes:
        point: number of the sample point.
        shape: rows and columns of the whole Jacobian.
        map: its heat maps; `None` where random probes judged, which see few elements.
        ladder: of the worst element; `None` where it couldn't be evaluated.
        path: the ops that blame went through, in the order of the forward; empty where it didn't.
    """

    point: int
    shape: tuple[int, int]
    map: HeatMap | None = None
    ladder: Ladder | None = None
    path: tuple[PathOp, ...] = ()
