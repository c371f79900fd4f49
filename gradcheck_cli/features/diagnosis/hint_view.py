"""What the hints see of a pair, and when a hint explains its gradient.

A hint is given only if it explains the gradient element by element, at every sample point, within the bounds
that judged it. Where the numbers fit several causes, the hint is a question.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.checking.pairs.pair_view import PointData

    Change = Callable[[Float], Float]

Mask = npt.NDArray[np.bool_]

# Factors that differ by less count as equal: far below what a mistake causes, far above the noise.
SAME = 1e-4
NICE = 12  # the largest denominator of a factor that is written as a fraction
FEW = 3  # this many elements agree with a fitted number by chance in one case of many thousands


@dataclass(frozen=True)
class View:
    """A pair at one sample point: its Jacobians, packed and finite, and the point and value there.

    Attributes:
        analytic: (m, n).
        numeric: (m, n).
        slack: what the two may differ by.
        is_judged: where the gradient is compared with the numeric value.
        point: the inputs' packed values, by name.
        value: the output's packed value, (m,).
        others: numeric Jacobians of the same output by other inputs, by their names.
    """

    analytic: Float
    numeric: Float
    slack: Float
    is_judged: Mask
    point: Mapping[str, Float]
    value: Float
    others: Mapping[str, Float]

    @property
    def is_moving(self) -> Mask:
        """Where the derivative isn't zero."""
        return np.asarray(self.is_judged & (np.abs(self.numeric) > self.slack))

    @property
    def has_gradient(self) -> Mask:
        """Where the gradient isn't zero."""
        return np.asarray(self.is_judged & (np.abs(self.analytic) > self.slack))

    @property
    def ratios(self) -> Float:
        """The gradient divided by the derivative, where that isn't zero."""
        moving = self.is_moving
        return np.asarray(np.where(moving, self.analytic, 0.0) / np.where(moving, self.numeric, 1.0))


def view_of(sample: PairSample, output: str, other_pairs: Mapping[str, PairSample], scene: PointData) -> View:
    """Return a whole, finite sample as a view."""
    decided = (sample.verdict == Verdict.PASS) | (sample.verdict == Verdict.MISMATCH)
    is_judged = decided & np.isfinite(sample.numeric) & np.isfinite(sample.uncertainty)
    numeric = np.where(is_judged, sample.numeric, 0.0)
    return View(
        analytic=sample.analytic,
        numeric=numeric,
        slack=np.where(is_judged, sample.allowed + sample.uncertainty, 0.0),
        is_judged=is_judged,
        point=scene.point,
        value=scene.values[output],
        others={
            name: pair.numeric
            for name, pair in other_pairs.items()
            if pair.is_whole and np.isfinite(pair.numeric).all()
        },
    )


def is_explained(views: Sequence[View], change: Change) -> bool:
    """Whether the changed derivative equals the gradient everywhere; zeros alone show nothing."""
    count = 0
    for view in views:
        expected = change(view.numeric)
        is_judged = view.is_judged & (change(view.is_judged.astype(float)) != 0)
        slack = view.slack + np.abs(change(view.slack))
        if not np.all((np.abs(view.analytic - expected) <= slack) | ~is_judged):
            return False
        count += int(np.count_nonzero(is_judged & (np.abs(expected) > slack)))
    return count > 1


def find_equal(factor: float, candidates: Sequence[float]) -> float | None:
    """Return the candidate that equals a factor, if any."""
    return next((candidate for candidate in candidates if abs(candidate - factor) < SAME * abs(factor)), None)


def name_factor(factor: float) -> str:
    """Return a factor as text: as a simple fraction where it is one, else as a decimal number."""
    nice = Fraction(factor).limit_denominator(NICE)
    if nice and abs(float(nice) - factor) < SAME * abs(factor):
        return str(nice)
    return f"{factor:.6g}"
