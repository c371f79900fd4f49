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
    """

    rows: tuple[str, ...]  # each cell's element of the output, such as `y[0,2]`; the first of several
    columns: tuple[str, ...]  # each cell's element of the input
    row_step: int  # elements of the output in a cell
    column_step: int  # elements of the input in a cell
    analytic: tuple[tuple[float, ...], ...]  # (rows, columns) from the gradient under test
    numeric: tuple[tuple[float, ...], ...]  # from differences
    share: tuple[tuple[float, ...], ...]  # the error as a share of what is allowed; above 1 is wrong
    # a word per row with a letter per element: `.` passed, `k` at a kink, `x` wrong, `?` undecided
    verdicts: tuple[str, ...]


@dataclass(frozen=True)
class Ladder:
    """Differences of one element at shrinking steps, from which the numeric derivative is chosen."""

    element: str  # `y[1,2] / x[1,2]`
    steps: tuple[float, ...]  # the steps, the largest first
    central: tuple[float, ...]  # the slope from both sides, at each
    above: tuple[float, ...]  # from above alone
    below: tuple[float, ...]  # from below alone
    analytic: float  # the gradient under test
    numeric: float  # the slope that was settled on
    uncertainty: float  # how far that may be off
    allowed: float  # the tolerance
    first_step: float  # the step that is tried first, and by which most elements are judged


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
    """The data of a pair's pictures, at the sample point that shows most."""

    point: int  # index of the sample point
    shape: tuple[int, int]  # rows and columns of the whole Jacobian
    map: HeatMap | None = None  # its heat maps; `None` for random probes, which see few elements
    ladder: Ladder | None = None  # the ladder of the worst element; `None` if it couldn't be evaluated
    # the ops that blame checked, in the order of the forward; empty if blame wasn't run
    path: tuple[PathOp, ...] = ()
