"""Gradients of functions in NumPy, right ones and wrong ones, each of which is judged in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gradcheck_cli.numerics import FLOAT32, FLOAT64, Precision, Problem, Reason, Verdict, judge
from gradcheck_cli.numerics.probes import LONG, MIDDLE, SHORT
from tests.numerics.numerics_near import ERRORS, GROUPS, plant
from tests.numerics.numerics_random import draw_example
from tests.numerics.numerics_table import evaluator, smooth_rows, true_jacobian
from tests.numerics.test_joint_slopes import RIGHT as RIGHT_AT_TIES
from tests.numerics.test_joint_slopes import WRONG as WRONG_AT_TIES
from tests.numerics.test_joint_slopes import places
from tests.numerics.test_near import RAMPS, SAWTEETH, SCALED
from tests.numerics.test_probe import POINT as PROBED_POINT
from tests.numerics.test_probe import RIGHT as RIGHT_PROBED
from tests.numerics.test_probe import Linear, probed, target
from tests.numerics.test_sloping_treads import POINT, ROUNDINGS, SMOOTH, STAIRS, identity, slope
from tests.numerics.test_traps import SINGLE

EXAMPLES = 100  # random ones, in each precision
# By how much the largest element is changed in a wrong gradient: the least that is promised to be found.
LEAST_ERROR = {FLOAT64: 1e-4, FLOAT32: 1e-2}


@dataclass(frozen=True)
class Row:
    """A gradient, and what is true of it.

    Attributes:
        group: what it shares with others of its kind.
        truth: "right", "wrong", or "open", of which nothing can be said.
        say: returns what is said, by element, and what else may change.
    """

    name: str
    group: str
    truth: str
    say: Callable[[], tuple[dict[str, str], str]]


def say_of(
    function: Callable[[np.ndarray], np.ndarray],
    point: np.ndarray,
    gradient: np.ndarray,
    precision: Precision = FLOAT64,
    settings: dict[str, Any] | None = None,
) -> tuple[dict[str, str], str]:
    """Return what is said of each element of a gradient, and the reasons."""

    def evaluate(points: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return function(points)

    problem = Problem(evaluate, point, precision, precision, **(settings or {}))
    with np.errstate(all="ignore"):
        judged = judge(problem, gradient)
    said = {str(index): Verdict(code).name for index, code in np.ndenumerate(judged.verdict)}
    return said, " ".join(Reason(code).name for code in judged.reason.flat)


def both(  # noqa: PLR0913, PLR0917 (a row, and its gradient)
    name: str,
    group: str,
    function: Callable[[np.ndarray], np.ndarray],
    point: np.ndarray,
    gradient: np.ndarray,
    precision: Precision = FLOAT64,
) -> Iterator[Row]:
    """Yield a right gradient, and the same with its largest element a little wrong."""
    wrong = gradient.copy()
    wrong[np.unravel_index(np.argmax(np.abs(wrong)), wrong.shape)] *= 1 + LEAST_ERROR[precision]
    for truth, claimed in (("right", gradient), ("wrong", wrong)):
        yield Row(name, group, truth, partial(say_of, function, point, claimed, precision))


def at_hard_places() -> Iterator[Row]:
    """Yield gradients near edges, poles and ties, in turn with each kind of error."""
    for group, near in GROUPS.items():
        for number, hard in enumerate(near()):
            function, point = evaluator(hard.function, FLOAT64), np.array(hard.point)
            error = list(ERRORS)[number % len(ERRORS)]
            claimed = {"right": hard.right(), "wrong": plant(hard.right(), error)[0]}
            for truth, gradient in claimed.items():
                say = partial(say_of, function, point, gradient, FLOAT64, hard.settings)
                yield Row(hard.name, group, truth, say)
    for name, (function, at, gradient, verdict) in SINGLE.items():
        truth = {Verdict.MISMATCH: "wrong", Verdict.INCONCLUSIVE: "open"}.get(verdict, "right")
        say = partial(say_of, function, np.array([at]), np.array([[gradient]]))
        yield Row(name, "traps", truth, say)


def of_smooth_functions() -> Iterator[Row]:
    """Yield gradients of a table of functions, and of random ones."""
    for precision in (FLOAT64, FLOAT32):
        for smooth in smooth_rows():
            function, point = evaluator(smooth.function, precision), precision.round(np.array(smooth.point))
            right = true_jacobian(smooth.function, point)
            yield from both(f"{smooth.name} {precision.name}", "smooth", function, point, right, precision)
        for seed in range(EXAMPLES):
            example = draw_example(seed, precision)
            function = evaluator(example.function, precision)
            name = f"random {precision.name} {seed}"
            yield from both(name, "random", function, example.point, example.right, precision)


def with_stairs() -> Iterator[Row]:
    """Yield gradients of stairs, teeth and ramps, and of what looks like stairs."""
    for name, treads in STAIRS.items():
        meant = np.diag(slope(partial(treads, r=identity)))
        for rounding in ROUNDINGS:
            function = partial(treads, r=ROUNDINGS[rounding])
            yield Row(f"{name} {rounding}", "stairs", "open", partial(say_of, function, POINT, meant))
            wrong = partial(say_of, function, POINT, -6 * meant)
            yield Row(f"{name} {rounding}, -6 times", "stairs", "wrong", wrong)
    for name, smooth in SMOOTH.items():
        yield from both(name, "no stairs", smooth, POINT, np.diag(slope(smooth)))
    for name, (scaled, at, meant) in SCALED.items():
        for row in both(name, "few digits", scaled, np.array([at]), np.array([[meant]])):
            suffix = ", off" if row.truth == "wrong" else ""
            yield replace(row, name=name + suffix, truth="open")
    point = np.random.default_rng(0).normal(size=12)
    for name, (ramp, slopes) in RAMPS.items():
        right = np.asarray(slopes(point), float)
        for truth, gradient in (("right", right), ("wrong", np.where(right, right, 1.0))):
            yield Row(name, "ramps", truth, partial(say_of, ramp, point, np.diag(gradient)))
    for name, tooth in SAWTEETH.items():
        for factor in (0.0, 1.0, 1.1, -1.0):
            gradient = factor * np.eye(8)
            say = partial(say_of, tooth, np.random.default_rng(2).uniform(100, 200, 8), gradient)
            yield Row(f"{name} {factor:g}", "teeth", "wrong" if factor in {1.1, -1.0} else "open", say)


def at_ties() -> Iterator[Row]:
    """Yield gradients at ties."""
    for truth, rows in (("right", RIGHT_AT_TIES), ("wrong", WRONG_AT_TIES)):
        for name, row in rows.items():
            yield Row(name, "ties", truth, lambda row=row: ({"rows": "+".join(sorted(places(*row)))}, ""))


def by_probes() -> Iterator[Row]:
    """Yield gradients that random probes judge."""
    linear = Linear()
    wrong = Linear()
    wrong.wrong = {(70, int(wrong.columns[70, 1])): 1e-3 * wrong.values[70, 1]}
    aims = {name: ("right", *functions) for name, functions in RIGHT_PROBED.items()}
    aims["banded"] = ("right", linear.forward, linear.pull)
    aims["banded, an element off by a thousandth"] = ("wrong", wrong.forward, wrong.pull)
    for precision in (FLOAT64, FLOAT32):
        for name, (truth, forward, pull) in aims.items():
            aim = target(forward, pull, PROBED_POINT, precision=precision)
            for reach, steps in enumerate((SHORT, MIDDLE, LONG)):
                say = partial(_say_by_probe, aim, steps)
                yield Row(f"{name} {precision.name} {reach}", "probes", truth, say)


def _say_by_probe(aim: Any, steps: Any) -> tuple[dict[str, str], str]:
    differenced, probe = probed(aim, reach=steps)
    return {"probe": "MISMATCH" if probe.is_alarm else "PASS"}, str(differenced.is_unusable.sum())


def list_rows() -> Iterator[Row]:
    """Yield all of them."""
    for rows in (at_hard_places, of_smooth_functions, with_stairs, at_ties, by_probes):
        yield from rows()
