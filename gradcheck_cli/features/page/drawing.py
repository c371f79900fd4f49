"""Draws figures of an open case's pairs: of those that a reader will look at."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradcheck_cli import clock, hooks
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError, UsageError
from gradcheck_cli.features.page.figure_data import figure_of, is_plain, ladder_of
from gradcheck_cli.running.pair_labels import open_pair

if TYPE_CHECKING:
    from gradcheck_cli.checking.examine import Findings
    from gradcheck_cli.figure import Figure
    from gradcheck_cli.results import PairResult
    from gradcheck_cli.tensorflow_backend.opening.case_opener import CaseOpener

DOUBTFUL = "doubtful"  # the value of `Case.drawn` for all pairs that aren't a plain pass
# If a case has more such pairs, only the first ones are drawn, and no more after this many seconds of
# processor time.
_MOST = 12
_LONG = 15.0


def add_figures(findings: Findings, opener: CaseOpener[Any]) -> Findings:
    """Add figures to the pairs that `Case.drawn` asks for.

    Args:
        findings: what the check found.
        opener: the opener of the check.
    """
    case = opener.case
    is_wanted = (
        (lambda pair: not is_plain(pair))
        if case.drawn == DOUBTFUL
        else (lambda pair: pair.label == case.drawn)
    )
    began, drawn, pairs = clock.now(), 0, []
    for pair in findings.pairs:
        figure = None
        if is_wanted(pair) and drawn < _MOST and clock.now() - began < _LONG:
            figure = _draw_figure(findings, pair, opener)
            drawn += figure is not None
        pairs.append(pair if figure is None else replace(pair, figure=figure))
    return replace(findings, pairs=tuple(pairs))


def _draw_figure(findings: Findings, pair: PairResult, opener: CaseOpener[Any]) -> Figure | None:
    judged = findings.judged.get(pair.label)
    figure = None if judged is None else figure_of(judged)
    if judged is None or figure is None:
        return None
    # A figure that can't be drawn must not cost the verdict.
    with suppress(CaseFailedError, CaseSkippedError, UsageError):
        own_opener, op, pair_key = open_pair(opener, pair.label, figure.point)
        differenced = (
            op
            if own_opener.case.reference is None
            else own_opener.open(Opening(figure.point, of="reference"))
        )
        differenced = own_opener.in_dtype(differenced, "float64") or differenced
        ladder = ladder_of(own_opener.case, differenced, pair_key, judged.samples[figure.point])
        figure = replace(figure, ladder=ladder)
        if any(line.startswith("blame: op") for line in pair.diagnosis):
            figure = replace(figure, path=hooks.draw_path(own_opener, pair_key, figure.point))
    return figure
