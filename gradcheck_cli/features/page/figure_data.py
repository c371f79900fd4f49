"""Draws figures of pairs that a reader will look at: cells of their Jacobians, the worst element's ladder."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli import clock, hooks
from gradcheck_cli.checking.ops.jacobian import packed_point, working_precision
from gradcheck_cli.checking.ops.operation import Float, GradientFormError, Opening, Operation, name_element
from gradcheck_cli.checking.ops.space import function_between
from gradcheck_cli.checking.pairs.pair import PairSample, PairVerdicts
from gradcheck_cli.checking.verdicts.summary import RANK, Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError, UsageError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.precision import place_of_largest
from gradcheck_cli.numerics.problem import Room, power_of_two, scales, step_to_both_sides
from gradcheck_cli.results import MOST_CELLS, Figure, HeatMap, Ladder, PairResult, Status
from gradcheck_cli.running.session import open_pair
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend.openers import CaseOpener

Codes = npt.NDArray[np.int8]


LETTERS = {Verdict.PASS: ".", Verdict.KINK: "k", Verdict.MISMATCH: "x", Verdict.INCONCLUSIVE: "?"}
# A whole Jacobian is drawn up to this size, which fits into memory several times.
_MOST_ELEMENTS = 4_000_000
_MOST_COLUMNS = 40_000  # of an input whose ladder is taken: each rung is a point with that many coordinates
_DIGITS = 5  # that a picture can show
_RUNGS = 24  # a factor of four apart, from the input's own size down to rounding


def is_plain(pair: PairResult) -> bool:
    """Whether there is nothing to draw: a pass without kinks, or nothing that was judged."""
    if pair.status is Status.PASSED:
        return not (pair.numbers.kinks or pair.judged_by.not_float64)
    return pair.status is Status.SKIPPED or not pair.numbers.elements


def figure_of(judged: PairVerdicts) -> Figure | None:
    """Return a pair's figure without its ladder; `None` if none of its elements was judged."""
    candidates = [
        (_gravity(sample), index) for index, sample in enumerate(judged.samples) if sample.verdict.size
    ]
    if not candidates:
        return None
    # The sample point of the worst element, which the table shows; the first of equal ones.
    _, point = max(candidates, key=lambda candidate: (candidate[0], -candidate[1]))
    sample = judged.samples[point]
    is_large = sample.elements > _MOST_ELEMENTS
    whole = sample if is_large else sample.whole()
    heat_map = _heat_map(whole, judged) if whole.is_whole else None
    return Figure(point, sample.size, heat_map)


def _gravity(sample: PairSample) -> tuple[int, float]:
    """Return the gravest verdict among a sample's elements, and its error as a share of the bound."""
    row, column = worst_element(sample)
    return int(RANK[sample.verdict[row, column]]), float(_share(sample)[row, column])


def worst_element(sample: PairSample) -> tuple[int, int]:
    """Return a sample's worst element: the gravest verdict, then the largest share of its bound."""
    rank = RANK[sample.verdict]
    share = np.where(rank == rank.max(), _share(sample), -1.0)
    row, column = place_of_largest(share)
    return row, column


def ladder_of(case: Case, op: Operation, pair: tuple[int, int], sample: PairSample) -> Ladder | None:
    """Evaluate the differences of a pair's worst element at ever smaller steps.

    Returns:
        The ladder; `None` if the forward can't be evaluated there or is too large.
    """
    output, input_index = pair
    element = worst_element(sample)
    row, column = sample.place(*element)
    point = packed_point(op, input_index)
    if point.size > _MOST_COLUMNS:
        return None
    tensor = case.tensors[input_index]
    precision = working_precision(op, op.inputs[input_index].dtype)
    scale = scales(point, tensor.scale).step[[column]]
    steps = power_of_two(scale)[:, None] * 0.25 ** np.arange(_RUNGS)
    domain = Room.around(point, *tensor.domain)[np.array([column])]
    moved = step_to_both_sides(point[[column]], steps, domain, precision)
    points = np.tile(point, (2 * _RUNGS + 1, 1))
    points[1 : _RUNGS + 1, column], points[_RUNGS + 1 :, column] = moved.up[0], moved.down[0]
    try:
        values = function_between(op, [input_index], [output])(points)[:, row]
    except (CaseFailedError, GradientFormError):
        return None
    up, down = moved.step_up[0], moved.step_down[0]
    with np.errstate(all="ignore"):
        rise, fall = values[1 : _RUNGS + 1] - values[0], values[0] - values[_RUNGS + 1 :]
        above, below = rise / np.where(up, up, np.nan), fall / np.where(down, down, np.nan)
        central = (rise + fall) / np.where((up > 0) & (down > 0), up + down, np.nan)
    output_info, input_info = op.outputs[output], op.inputs[input_index]
    return Ladder(
        f"{name_element(row, output_info)} / {name_element(column, input_info)}",
        _shorten(steps[0]),
        tuple(central.tolist()),  # in full: the picture shows how far they are off
        tuple(above.tolist()),
        tuple(below.tolist()),
        float(sample.analytic[element]),
        float(sample.numeric[element]),
        float(sample.uncertainty[element]),
        float(sample.allowed[element]),
        float(scale[0] * precision.first_step),
    )


def _share(sample: PairSample) -> Float:
    with np.errstate(all="ignore"):
        same = sample.analytic == sample.numeric
        error = np.where(same, 0.0, np.abs(sample.analytic - sample.numeric))
        share = np.where(error == 0, 0.0, error / (sample.allowed + sample.uncertainty))
    return np.asarray(np.nan_to_num(share, nan=np.inf))


def _heat_map(sample: PairSample, judged: PairVerdicts) -> HeatMap:
    rows, columns = sample.verdict.shape
    row_step, column_step = -(-rows // MOST_CELLS), -(-columns // MOST_CELLS)
    share = _share(sample)
    tops, lefts = range(0, rows, row_step), range(0, columns, column_step)
    elements = [
        [_choose_element(share, sample.verdict, top, left, (row_step, column_step)) for left in lefts]
        for top in tops
    ]

    def cells(values: Float) -> tuple[tuple[float, ...], ...]:
        return tuple(_shorten(np.array([values[element] for element in line])) for line in elements)

    return HeatMap(
        tuple(name_element(top, judged.output) for top in tops),
        tuple(name_element(left, judged.input_info) for left in lefts),
        row_step,
        column_step,
        cells(sample.analytic),
        cells(sample.numeric),
        cells(share),
        tuple(
            "".join(LETTERS[Verdict(int(sample.verdict[element]))] for element in line) for line in elements
        ),
    )


def _choose_element(
    share: Float, verdict: Codes, top: int, left: int, step: tuple[int, int]
) -> tuple[int, int]:
    """Return the element that a cell shows: the one with the gravest verdict, then with the largest share."""
    block = slice(top, top + step[0]), slice(left, left + step[1])
    graver = share[block] + np.where(verdict[block] == Verdict.MISMATCH, 1e300, 0.0)
    row, column = place_of_largest(graver)
    return top + row, left + column


def _shorten(values: Float) -> tuple[float, ...]:
    """Return values as a picture shows them, with few digits."""
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values)


DOUBTFUL = "doubtful"  # the value of `Wanted.figures_of` for all pairs that aren't a plain pass
# If a case has more such pairs, only the first ones are drawn, and no more after this many seconds of
# processor time.
_MOST_FIGURES = 12
_LONGEST = 15.0


def draw_figures(judged: hooks.OpenCase) -> None:
    """Add figures to the pairs that `Wanted.figures_of` asks for."""
    case, findings = judged.opener.case, judged.findings
    wanted = case.wanted.figures_of
    began, drawn, pairs = clock.now(), 0, []
    for pair in findings.pairs:
        figure = None
        is_wanted = pair.label == wanted if wanted != DOUBTFUL else not is_plain(pair)
        if is_wanted and drawn < _MOST_FIGURES and clock.now() - began < _LONGEST:
            figure = _draw_figure(findings, pair, judged.opener)
            drawn += figure is not None
        pairs.append(pair if figure is None else replace(pair, figure=figure))
    judged.findings = replace(findings, pairs=tuple(pairs))


def _draw_figure(findings: Findings, pair: PairResult, opener: CaseOpener) -> Figure | None:
    judged = findings.judged.get(pair.label)
    figure = None if judged is None else figure_of(judged)
    if judged is None or figure is None:
        return None
    # A figure that can't be drawn must not cost the verdict.
    with suppress(CaseFailedError, CaseSkippedError, UsageError):
        point = judged.points[figure.point]
        with opener.at(point):
            own_opener, op, pair_key = open_pair(opener, pair.label, point)
            differenced = (
                op if own_opener.case.reference is None else own_opener.open(Opening(point, of="reference"))
            )
            differenced = own_opener.in_float64(differenced) or differenced
            ladder = ladder_of(own_opener.case, differenced, pair_key, judged.samples[figure.point])
        figure = replace(figure, ladder=ladder)
    return figure
