"""Candidate points, drawn in addition to the samples; those that take another side of a branch are kept.

They are sample points with high indices, drawn like any other. Normal values are also drawn wider and
narrower, within their bounds, and with all elements of one sign. Whole numbers are also drawn with only one
or two values: as ids of segments, these leave other segments empty. A stated range is never left: a spec
says nothing about the function beyond it.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.spec.case import Source
from gradcheck_cli.spec.dtype_names import kind_of
from gradcheck_cli.spec.values.distributions import Normal, distribution_of
from gradcheck_cli.spec.values.draw_values import draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradcheck_cli.spec.case import Case, InputSpec

FIRST = 1_000  # above any requested number of samples
COUNT = 64
# How much wider than stated the distribution is, in turn: for most candidates it is as stated.
_FACTORS = (1.0, 10.0, 1.0, 3.0, 1.0, 0.1, 1.0, 30.0)
# Two of this many candidates have all elements on one side of zero, which rarely happens by chance.
_PERIOD = 16
_POSITIVE, _NEGATIVE = 4, 12
_WHOLE = frozenset({"integers", "default"})  # generators
_FEW_VALUES = {6: 1, 14: 2}  # how many values whole numbers have, in two others of them


def list_candidates(*, as_stated: bool, start: int = 0) -> list[int]:
    """Return the indices of some candidates, or only of those that are drawn as the spec says.

    Far from the middle, a dtype with few digits may lose all of them, which says nothing about the formula.

    Args:
        as_stated: whether only these.
        start: how many candidates to skip first.
    """
    every = range(FIRST + start, FIRST + start + COUNT)
    return [sample for sample in every if not as_stated or _factor(sample) == 1.0]


def _factor(sample: int) -> float:
    return _FACTORS[(sample - FIRST) % len(_FACTORS)]


def draw_candidate(case: Case, tensor: InputSpec, sample: int) -> NDArray[Any]:
    """Draw the values of one input at a candidate point; see `draw_values.draw`.

    Args:
        case: the case.
        tensor: one of its inputs.
        sample: the point's index, from `FIRST` on.
    """
    factor = _factor(sample)
    distribution = distribution_of(tensor)
    turn = (sample - FIRST) % _PERIOD
    is_whole = kind_of(tensor.dtype) == "integer" and tensor.source.kind in _WHOLE
    if is_whole and tensor.min_gap is None and turn in _FEW_VALUES:
        drawn = draw(case, tensor, sample)
        values = drawn.ravel()[: _FEW_VALUES[turn]]
        return np.resize(values, drawn.shape) if values.size else drawn
    if not isinstance(distribution, Normal) or not tensor.is_differentiable:
        return draw(case, tensor, sample)
    is_free = tensor.domain == (None, None) and not tensor.away_from and tensor.min_gap is None
    if turn in (_POSITIVE, _NEGATIVE) and is_free:
        drawn = draw(case, tensor, sample)
        sided: NDArray[Any] = (
            drawn if np.iscomplexobj(drawn) else np.abs(drawn) * (1 if turn == _POSITIVE else -1)
        )
        return sided
    if factor == 1.0:
        return draw(case, tensor, sample)
    wider = replace(distribution, stddev=factor * distribution.stddev)
    return draw(case, replace(tensor, source=Source("normal", asdict(wider))), sample)
