"""Functions near what makes them hard: edges, ties, poles, small scales within large numbers, offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics import FLOAT64, Judgement, Precision, Problem, judge
from tests.numerics.numerics_table import evaluator, true_jacobian

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Near:
    """A function of a namespace and (B, n) points, at a point that is hard.

    Attributes:
        name: unique.
        function: as in `numerics_table`.
        point: (n,).
        settings: what else the problem has.
    """

    name: str
    function: Callable
    point: tuple[float, ...]
    settings: dict | None = None

    def right(self) -> np.ndarray:
        """Return the true Jacobian."""
        return true_jacobian(self.function, np.array(self.point))

    def judged(self, analytic: np.ndarray, factor: float = 1.0, precision: Precision = FLOAT64) -> Judgement:
        """Judge a Jacobian of the function times a factor."""
        evaluate = evaluator(lambda xp, x: self.function(xp, x) * x.dtype.type(factor), precision)
        problem = Problem(evaluate, np.array(self.point), precision, precision, **(self.settings or {}))
        return judge(problem, analytic * factor)


def small_scales() -> Iterator[Near]:
    """Functions that vary on a scale far below |x|: phases, map coordinates, large logits, offsets."""
    for x in (1e3, 1e4, 1e5, 3e6, 1e7, -2e5):
        yield Near(f"sin at {x:g}", lambda xp, x: xp.sin(x), (x + 0.3,))
        yield Near(f"sin cos at {x:g}", lambda xp, x: xp.sin(x) * xp.cos(x), (x + 0.4, x + 1.1))
        yield Near(f"bell at {x:g}", lambda xp, x, c=x: xp.exp(-((x - c) * (x - c))), (x + 0.4, x - 0.7))
        yield Near(f"tanh at {x:g}", lambda xp, x, c=x: xp.tanh(x - c), (x + 0.4, x - 1.2))
        yield Near(f"square at {x:g}", lambda _, x, c=x: (x - c) * (x - c), (x + 0.25, x - 2.5))
        yield Near(f"distance at {x:g}", _distance, (x + 0.5, x + 1.75))
        yield Near(f"softmax about {x:g}", _softmax, (x + 0.5, x + 1.25, x - 0.25))
        yield Near(f"logsumexp about {x:g}", _logsumexp, (x + 0.5, x + 1.25, x - 0.25))
        yield Near(f"variance about {x:g}", _variance, (x + 0.5, x + 1.25, x - 0.25))


def _distance(xp, x):
    return xp.sqrt((x[:, :1] - x[:, 1:]) ** 2 + 1)


def _softmax(xp, x):
    powers = xp.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _logsumexp(xp, x):
    top = x.max(axis=-1, keepdims=True)
    return xp.log(xp.exp(x - top).sum(axis=-1, keepdims=True))


def _variance(_, x):
    centred = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]
    return (centred * centred).sum(axis=-1, keepdims=True) / x.shape[-1]


def poles() -> Iterator[Near]:
    """Poles, ends of domains and steep functions close to x."""
    for k in range(3, 10):
        d = 10.0**-k
        yield Near(f"1 / (x - 1), {d:g} from its pole", lambda _, x: 1 / (x - 1), (1 + d,))
        yield Near(f"1 / (1 - x), {d:g} from its pole", lambda _, x: 1 / (1 - x) ** 2, (1 - d,))
        yield Near(f"log(1 - x), {d:g} from its end", lambda xp, x: xp.log(1 - x), (1 - d,))
        yield Near(f"sqrt(x - 2), {d:g} from its end", lambda xp, x: xp.sqrt(x - 2), (2 + d,))
        yield Near(f"log(x - 3) log, {d:g} from its end", lambda xp, x: xp.log(x - 3) * xp.log(x), (3 + d,))
        yield Near(f"entropy, {d:g} from 1", lambda xp, x: -x * xp.log(x) - (1 - x) * xp.log(1 - x), (1 - d,))
        yield Near(f"tanh of width {d:g}", lambda xp, x, d=d: xp.tanh((x - 1) / d), (1 + 0.3 * d,))
        yield Near(
            f"tanh of width {d:g}, a slope beside",
            lambda xp, x, d=d: x + xp.tanh((x - 1) / d),
            (1 + 0.3 * d,),
        )
        yield Near(f"bell of width {d:g}", lambda xp, x, d=d: xp.exp(-(((x - 2) / d) ** 2)), (2 - 0.7 * d,))
        yield Near(
            f"sqrt of a square, {d:g} off", lambda xp, x, d=d: xp.sqrt((x - 1) ** 2 + d * d), (1 + 0.5 * d,)
        )
        yield Near(f"arcsin, {d:g} from 1", lambda xp, x: xp.arcsin(x), (1 - d,))
        yield Near(
            f"logit beside 0.4, {d:g}",
            lambda xp, x: xp.log(x / (1 - x)),
            (0.4, 1 - d),
            {"low": 0.0, "high": 1.0},
        )


def ties() -> Iterator[Near]:
    """Kinks beside the point, at distances around and below every step."""
    for d in (3e-3, 3e-4, 3e-5, 3e-6, 1e-6, 3e-7, 1e-7, 3e-8, 1e-8, 3e-9):
        for sign in (1, -1):
            c = sign * d
            yield Near(f"relu, {c:g} from its kink", lambda xp, x: xp.maximum(x - 1, 0 * x), (1 + c,))
            yield Near(f"|x - 2|, {c:g} from its kink", lambda _, x: abs(x - 2), (2 + c,))
            yield Near(
                f"max of two, {c:g} apart", lambda xp, x: xp.maximum(x[:, :1], x[:, 1:]), (1.5, 1.5 + c)
            )
            yield Near(f"sort of three, {c:g} apart", lambda _, x: np.sort(x, axis=-1), (0.75, 0.75 + c, 2.0))
            yield Near(f"clip, {c:g} from its edge", lambda xp, x: -xp.maximum(-x, -1 + 0 * x), (1 + c,))
            yield Near(f"soft threshold, {c:g} from its edge", _threshold, (0.5 + c, 1.25))
            yield Near(
                f"sin of a relu, {c:g} off", lambda xp, x: xp.sin(1 + xp.maximum(x - 1, 0 * x)), (1 + c,)
            )


def _threshold(xp, x):
    return xp.maximum(x - 0.5, 0 * x) - xp.maximum(-x - 0.5, 0 * x)


def mixed_scales() -> Iterator[Near]:
    """Sums and products of inputs and terms of very different sizes."""
    for k in (2, 4, 6, 8, 10):
        big = 10.0**k
        yield Near(f"sum of 1 and {big:g}", lambda _, x: x[:, :1] + x[:, 1:], (1.25, big))
        yield Near(
            f"sum of squares, 1 and {big:g}", lambda _, x: (x * x).sum(axis=-1, keepdims=True), (1.25, big)
        )
        yield Near(f"{big:g} + sin", lambda xp, x, c=big: c + xp.sin(x), (0.75, 1.5))
        yield Near(f"({big:g} + x) - {big:g}", lambda _, x, c=big: (c + x) - c, (0.75,))
        yield Near(
            f"{big:g} sin + exp", lambda xp, x, c=big: c * xp.sin(x[:, :1]) + xp.exp(x[:, 1:]), (0.75, 0.5)
        )
        yield Near(
            f"norm of 1 and {big:g}", lambda xp, x: xp.sqrt((x * x).sum(axis=-1, keepdims=True)), (1.25, big)
        )
        yield Near(f"1 + sin(x) / {big:g}", lambda xp, x, c=big: 1 + xp.sin(x) / c, (0.75,))
        yield Near(f"1 + sin(x / {big:g})", lambda xp, x, c=big: 1 + xp.sin(x / c), (0.75, -1.5))
        yield Near(f"1 - exp(-{big:g} x)", lambda xp, x: 1 - xp.exp(-x), (0.7 * np.log(big),))
        yield Near(
            f"dense near a stationary point, {1 / big:g}", _dense, (np.pi / 2 - 1 / big, np.pi / 2 + 0.02)
        )
        yield Near(f"cos, {1 / big:g} from its top", lambda xp, x: xp.cos(x - 1), (1 + 1 / big,))


def _dense(xp, x):
    s = xp.sin(x)
    return np.stack([2 * s[:, 0] - s[:, 1], s[:, 0] + 3 * s[:, 1], s[:, 0] - s[:, 1]], axis=-1)


def _ramp(xp, x):
    return xp.maximum(x, 0 * x)


# Functions with one derivative, and where the second one jumps.
KNOTS = {
    "hinge squared": (lambda xp, x: _ramp(xp, 1 - x) ** 2, 1.0),
    "hinge cubed": (lambda xp, x: _ramp(xp, 1 - x) ** 3, 1.0),
    "relu squared": (lambda xp, x: _ramp(xp, x) ** 2, 0.0),
    "relu squared and x": (lambda xp, x: _ramp(xp, x - 2) ** 2 + x, 2.0),
    "softshrink squared": (lambda xp, x: _ramp(xp, x - 0.5) ** 2 + _ramp(xp, -x - 0.5) ** 2, 0.5),
    "huber": (lambda xp, x: (x * x - _ramp(xp, x - 1) ** 2 - _ramp(xp, -x - 1) ** 2) / 2, 1.0),
    "huber, below": (lambda xp, x: (x * x - _ramp(xp, x - 1) ** 2 - _ramp(xp, -x - 1) ** 2) / 2, -1.0),
    "quadratic spline": (
        lambda xp, x: sum(c * _ramp(xp, x - k) ** 2 for k, c in enumerate((0.5, -1.5, 1.5, -0.5))),
        1.0,
    ),
    "cubic spline": (
        lambda xp, x: sum(c * _ramp(xp, x - k) ** 3 for k, c in enumerate((1, -4, 6, -4, 1))) / 6,
        2.0,
    ),
    "x|x|": (lambda xp, x: xp.exp(x) * (x - 1) * abs(x - 1), 1.0),
    "sine and relu squared": (lambda xp, x: xp.sin(x) + _ramp(xp, x - 0.75) ** 2, 0.75),
    "wall": (lambda xp, x: 100 * _ramp(xp, x - 1) ** 2 + x * x, 1.0),
}
DISTANCES = {
    "float64": (1e-5, 1e-6, 1e-7, 3e-8, 1e-8, 1e-9, 1e-10, 1e-12),
    "float32": (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 3e-7),
}


def beside_knots(name: str, precision: Precision) -> Iterator[Near]:
    """Yield a function beside its knot at all distances: alone, and in sums with larger terms."""
    function, knot = KNOTS[name]

    def total(xp, x):
        return function(xp, x).sum(axis=-1, keepdims=True)

    for distance in DISTANCES[precision.name]:
        for d in (distance, -distance):
            x = float(precision.round(knot + d))
            rest = (float(precision.round(0.3)), float(precision.round(-1.4)))
            yield Near(f"{name}, {d:g}, alone", function, (x,))
            yield Near(f"{name}, {d:g}, each", function, (x, *rest))
            yield Near(f"{name}, {d:g}, sum", total, (x, *rest))
            yield Near(f"{name}, {d:g}, sum of two", total, (x, float(precision.round(knot + 3 * d)), *rest))
            yield Near(f"{name}, {d:g}, beside 5", lambda xp, x: 5 + total(xp, x), (x, *rest))


GROUPS = {"small scales": small_scales, "poles": poles, "ties": ties, "mixed scales": mixed_scales}
# What may be planted into the largest element.
ERRORS = {
    "1e-4": lambda slope: slope * 1.0001,
    "1 %": lambda slope: slope * 1.01,
    "doubled": lambda slope: slope * 2,
    "sign": lambda slope: -slope,
    "zero": lambda slope: 0 * slope,
    "one more": lambda slope: slope + 1,
}


def plant(right: np.ndarray, error: str) -> tuple[np.ndarray, tuple[np.intp, ...]]:
    """Plant an error into the largest element; returns the wrong Jacobian and the place."""
    place = np.unravel_index(np.argmax(np.abs(right)), right.shape)
    wrong = right.copy()
    wrong[place] = ERRORS[error](right[place])
    return wrong, place
