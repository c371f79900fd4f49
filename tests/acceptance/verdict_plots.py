"""Draws the plots of docs/verdicts.md, from the same numerics that give verdicts.

.venv/bin/pip install -e ".[docs]" && python -m tests.acceptance.verdict_plots
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from gradcheck_cli.numerics import precision_of
from gradcheck_cli.numerics.judge import estimate
from gradcheck_cli.numerics.precision import FLOAT32, FLOAT64
from gradcheck_cli.numerics.problem import Problem
from tests.checking import rounding_truth

FOLDER = Path(__file__).parents[2] / "docs" / "plots"
POINT, KINK = 0.7, 0.0
STYLES = {"float64": ("tab:blue", np.float64, FLOAT64), "float32": ("tab:orange", np.float32, FLOAT32)}
# What makes a file the same again on any day: no date, no random names; and text that stays text.
mpl.rcParams.update(
    {"svg.hashsalt": "gradcheck", "svg.fonttype": "none", "font.size": 10, "axes.spines.top": False,
     "axes.spines.right": False}
)  # fmt: skip


def truth() -> float:
    """Return the derivative of tanh at the point."""
    return float(1 - np.tanh(POINT) ** 2)


def bound(step: np.ndarray, unit: float) -> np.ndarray:
    """Bound the error of a central difference of tanh: both values round, and f''' is at most 2."""
    return 2 * unit * np.tanh(POINT) / step + 2 * step**2 / 6


def draw_steps() -> Figure:
    """Draw the error of a central difference against its step, with its bound, in two precisions."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = 2.0 ** -np.arange(1, 45, 0.25)
    for name, (colour, dtype, precision) in STYLES.items():
        up, down = (POINT + sign * steps for sign in (1, -1))
        up, down = up.astype(dtype), down.astype(dtype)
        taken = up.astype(np.float64) - down.astype(np.float64)
        can = taken > 0
        values = np.tanh(up).astype(np.float64) - np.tanh(down).astype(np.float64)
        error = np.abs(values[can] / taken[can] - truth())
        axes.loglog(
            steps[can], np.maximum(error, 1e-17), ".", color=colour, markersize=4, label=f"{name}: error"
        )
        limit = bound(taken[can] / 2, precision.unit_roundoff)
        axes.loglog(steps[can], limit, "-", color=colour, linewidth=1, label="its bound")
        first = precision_of(name).first_step * POINT
        axes.axvline(first, color=colour, linestyle=":", linewidth=1)
        side, height = ("left", 3e-17) if name == "float64" else ("right", 5e-16)
        axes.text(first, height, f" first step, {name} ", color=colour, fontsize=8, ha=side)
        problem = Problem(
            lambda points, dtype=dtype: np.tanh(points.astype(dtype)).astype(np.float64),
            [POINT], precision, precision,
        )  # fmt: skip
        found = estimate(problem, method="ladder")
        off = max(abs(float(found.numeric[0, 0]) - truth()), 1e-17)
        axes.plot([first], [off], "*", color=colour, markersize=11, label="after the ladder", zorder=3)
        unsure = float(found.uncertainty[0, 0])
        axes.plot([first], [unsure], "_", color=colour, markersize=14, markeredgewidth=2, label="its U")
    axes.set(xlabel="step", ylabel="error of the slope", ylim=(1e-17, 5))
    axes.set_title("Central differences of tanh at 0.7", loc="left", fontsize=11)
    axes.legend(fontsize=8, ncols=2, loc="lower left")
    return figure


def bent(points: np.ndarray) -> np.ndarray:
    """Return max(x, 0) + 0.3 sin(x), which has two slopes at 0."""
    return np.maximum(points, 0) + 0.3 * np.sin(points)


def draw_kink() -> Figure:
    """Draw the slopes from both sides of a kink against the step, and what a gradient there may be."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    steps = 2.0 ** -np.arange(0, 20)
    values = {sign: (bent(KINK + sign * steps) - bent(np.zeros(1))) / (sign * steps) for sign in (1, -1)}
    axes.axhspan(0.3, 1.3, color="tab:green", alpha=0.12)
    axes.semilogx(steps, values[1], "o-", markersize=4, color="tab:blue", label="slope from above")
    axes.semilogx(steps, values[-1], "s-", markersize=4, color="tab:orange", label="slope from below")
    axes.semilogx(steps, (values[1] + values[-1]) / 2, ":", color="grey", label="central difference")
    axes.text(1.3e-6, 1.03, "a gradient in here passes: at a kink", fontsize=9, color="tab:green")
    axes.plot([2e-6], [1.55], "x", color="tab:red")
    axes.text(2.6e-6, 1.52, "1.55: mismatch", fontsize=9, color="tab:red")
    axes.set(xlabel="step", ylabel="slope", ylim=(0, 1.75))
    axes.set_title("max(x, 0) + 0.3 sin(x) at 0", loc="left", fontsize=11)
    axes.legend(fontsize=8, loc="lower right", ncols=3)
    return figure


def draw_zones() -> Figure:
    """Draw the verdict of an element against the difference and the numeric value's own uncertainty."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    unsure = np.linspace(0, 3, 301)
    passes = np.where(unsure <= 2, 1 + np.minimum(unsure, 1), 0)
    wrong = 1 + 5 * unsure
    axes.fill_between(unsure, 0, passes, color="tab:green", alpha=0.25, linewidth=0)
    axes.fill_between(unsure, passes, np.minimum(wrong, 12), color="tab:grey", alpha=0.2, linewidth=0)
    axes.fill_between(unsure, np.minimum(wrong, 12), 12, color="tab:red", alpha=0.2, linewidth=0)
    for x, y, word in [(0.75, 0.6, "passed"), (1.9, 5, "inconclusive"), (0.35, 8, "mismatched")]:
        axes.text(x, y, word, fontsize=11)
    axes.set(xlabel="U / tol", ylabel="|a - n| / tol", xlim=(0, 3), ylim=(0, 12))
    axes.set_title("One element", loc="left", fontsize=11)
    return figure


def draw_rounding() -> Figure:
    """Draw the true errors of gradients over what random rounding moves them by."""
    found = {name: rounding_truth.measure(name) for name in rounding_truth.ROWS}
    error, moved, gradient = (
        np.concatenate([getattr(each, key) for each in found.values()])
        for key in ("error", "rounding", "gradient")
    )
    size = np.maximum(np.abs(gradient), 1e-300)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    ends = np.array([1e-17, 1.0])
    axes.loglog(ends, ends, "-", color="grey", linewidth=1, label="Ra")
    axes.loglog(ends, 2 * ends, "--", color="grey", linewidth=1, label="2 Ra")
    axes.loglog(moved / size, np.maximum(error / size, 1e-19), "o", markersize=4, color="tab:blue")
    axes.set(xlabel="Ra / |gradient|", ylabel="true error / |gradient|", xlim=(1e-17, 10), ylim=(1e-19, 1))
    axes.set_title(f"{len(error)} gradients of {len(found)} functions", loc="left", fontsize=11)
    axes.legend(fontsize=8, loc="lower right")
    return figure


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for title, drawn in {
        "steps": draw_steps(),
        "kink": draw_kink(),
        "zones": draw_zones(),
        "rounding": draw_rounding(),
    }.items():
        drawn.savefig(FOLDER / f"{title}.svg", metadata={"Date": None}, facecolor="white")
        sys.stdout.write(f"wrote {title}.svg\n")
