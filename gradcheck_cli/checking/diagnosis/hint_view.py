"""A pair as the hints on its mistake see it, and when one of them explains it.

A hint is told only if what it says explains the gradient element by element, at every sample point, within
the bounds that judged it. What the numbers alone can't tell (one cause of several) is put as a question.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.packing import pack
from gradcheck_cli.numerics import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair_sample import PairSample

    Change = Callable[[Float], Float]

Mask = npt.NDArray[np.bool_]

# Two factors that differ by less are one: far below what a mistake brings, far above the noise.
SAME = 1e-4
NICE = 12  # the largest denominator of a factor that is called by its name
FEW = 3  # so many elements agree with a fitted number by chance in one case of many thousands


@dataclass(frozen=True)
class View:
    """A pair at one sample point: its Jacobians, packed and finite, and what they were taken at.

    Attributes:
        analytic: (m, n).
        numeric: (m, n).
        slack: what the two may differ by.
        known: where the numeric value is one that the gradient is held to.
        point: the inputs' packed values, by name.
        value: the output's packed value, (m,).
        others: numeric Jacobians of the same output by other inputs, by their names.
    """

    analytic: Float
    numeric: Float
    slack: Float
    known: Mask
    point: Mapping[str, Float]
    value: Float
    others: Mapping[str, Float]

    @property
    def is_moving(self) -> Mask:
        """Where the derivative isn't zero."""
        return np.asarray(self.known & (np.abs(self.numeric) > self.slack))

    @property
    def has_gradient(self) -> Mask:
        """Where the gradient isn't zero."""
        return np.asarray(self.known & (np.abs(self.analytic) > self.slack))

    @property
    def ratios(self) -> Float:
        """The gradient by the derivative, where that isn't zero."""
        moving = self.is_moving
        return np.asarray(np.where(moving, self.analytic, 0.0) / np.where(moving, self.numeric, 1.0))


@dataclass(frozen=True)
class Scene:
    """A sample point: the inputs' values and the outputs'."""

    point: Mapping[str, Float]
    values: Mapping[str, Float]

    @staticmethod
    def of(
        inputs: Sequence[TensorInfo],
        point: Sequence[npt.NDArray[np.generic]],
        outputs: Sequence[TensorInfo],
        values: Sequence[npt.NDArray[np.generic]],
    ) -> Scene:
        """Pack what can be differentiated."""

        def packed(
            infos: Sequence[TensorInfo], arrays: Sequence[npt.NDArray[np.generic]]
        ) -> dict[str, Float]:
            return {
                info.name: pack(array[np.newaxis], info)[0]
                for info, array in zip(infos, arrays, strict=True)
                if info.is_differentiable
            }

        return Scene(packed(inputs, point), packed(outputs, values))


def view_of(sample: PairSample, output: str, others: Mapping[str, PairSample], scene: Scene) -> View:
    """Return a whole, finite sample as a view."""
    decided = (sample.verdict == Verdict.PASS) | (sample.verdict == Verdict.MISMATCH)
    known = decided & np.isfinite(sample.numeric) & np.isfinite(sample.uncertainty)
    numeric = np.where(known, sample.numeric, 0.0)
    return View(
        analytic=sample.analytic,
        numeric=numeric,
        slack=np.where(known, sample.allowed + sample.uncertainty, 0.0),
        known=known,
        point=scene.point,
        value=scene.values[output],
        others={
            name: other.numeric
            for name, other in others.items()
            if other.is_whole and np.isfinite(other.numeric).all()
        },
    )


def is_explained(views: Sequence[View], change: Change) -> bool:
    """Whether the gradient is everywhere what a change makes of the derivative; zeros alone show nothing."""
    seen = 0
    for view in views:
        expected = change(view.numeric)
        known = view.known & (change(view.known.astype(float)) != 0)
        slack = view.slack + np.abs(change(view.slack))
        if not np.all((np.abs(view.analytic - expected) <= slack) | ~known):
            return False
        seen += int(np.count_nonzero(known & (np.abs(expected) > slack)))
    return seen > 1


def nearest(factor: float, known: Sequence[float]) -> float | None:
    """Return the known factor that this one is, if any."""
    return next((one for one in known if abs(one - factor) < SAME * abs(factor)), None)


def named_factor(factor: float) -> str:
    """Return a factor as a fraction where it is a simple one, else as a number."""
    nice = Fraction(factor).limit_denominator(NICE)
    if nice and abs(float(nice) - factor) < SAME * abs(factor):
        return str(nice)
    return f"{factor:.6g}"
