"""Figures as a run makes them, for tests of what is drawn of them."""

import math

from gradcheck_cli.results import Figure, HeatMap, Ladder

STEPS = tuple(0.5 * 0.25**rung for rung in range(24))


def tanh_figure(size=6, wrong=5, name="y"):
    """Return the figure of a diagonal Jacobian of tanh, of which one element is off by half."""
    slopes = [1 - math.tanh(0.3 * row) ** 2 for row in range(size)]
    numeric = tuple(
        tuple(slope if row == column else 0.0 for column in range(size)) for row, slope in enumerate(slopes)
    )
    analytic = tuple(
        tuple(value * 1.5 if (row, column) == (wrong, wrong) else value for column, value in enumerate(line))
        for row, line in enumerate(numeric)
    )
    share = tuple(
        tuple(3.3e5 if (row, column) == (wrong, wrong) else 1e-3 * row for column in range(size))
        for row in range(size)
    )
    verdicts = tuple(
        "".join("x" if (row, column) == (wrong, wrong) else "." for column in range(size))
        for row in range(size)
    )
    drawn = HeatMap(
        tuple(f"{name}[{row}]" for row in range(size)),
        tuple(f"x[{row}]" for row in range(size)),
        1,
        1,
        analytic,
        numeric,
        share,
        verdicts,
    )
    at = 0.3 * wrong
    central = tuple((math.tanh(at + step) - math.tanh(at - step)) / (2 * step) for step in STEPS)
    above = tuple((math.tanh(at + step) - math.tanh(at)) / step for step in STEPS)
    below = tuple((math.tanh(at) - math.tanh(at - step)) / step for step in STEPS)
    ladder = Ladder(
        f"{name}[{wrong}] / x[{wrong}]",
        STEPS,
        central,
        above,
        below,
        1.5 * slopes[wrong],
        slopes[wrong],
        1e-13,
        1e-6,
        2.0**-15,
    )
    return Figure(0, (size, size), drawn, ladder)
