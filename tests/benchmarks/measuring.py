"""Time several sides in turn, and lay out what came of it; knows nothing of what is measured."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def seconds_of(action: Callable[[], object]) -> float:
    """Return the wall-clock seconds that one call takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def processor_seconds_of(action: Callable[[], object]) -> float:
    """Return the seconds of this process's processor time that one call takes, whatever else is running."""
    began = time.process_time()
    action()
    return time.process_time() - began


def in_turn(sides: Mapping[str, Callable[[], float]], rounds: int, *, warm: bool = True) -> dict[str, float]:
    """Measure each side once a round, so that a machine that slows down slows all of them down.

    Args:
        sides: by name, what measures one side once, and returns seconds.
        rounds: how often each is measured.
        warm: measure each once more before, uncounted: what a library does only once is not what is compared.

    Returns:
        The median of each side, in seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-1 if warm else 0, rounds):
        for name, measure in sides.items():
            seconds = measure()
            if number >= 0:
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def log_slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line through log(values) over log(sizes), by least squares."""
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(v) for v in values]).slope


def shown_seconds(seconds: float) -> str:
    """Return seconds to three digits: `12.3 ms`, `1.23 s`, `123 s`."""
    scale, unit = (1e3, "ms") if seconds < 1 else (1, "s")
    value = seconds * scale
    return f"{value:.{max(0, 2 - math.floor(math.log10(value))) if value >= 1 else 2}f} {unit}"


def shown_ratio(ratio: float) -> str:
    """Return a ratio to two digits or three: `0.00038`, `0.26`, `1.26`, `12.6`, `1,260`."""
    if ratio >= 100:
        return f"{ratio:,.0f}"
    return f"{ratio:.{max(0, 1 - math.floor(math.log10(ratio)))}f}" if ratio < 1 else f"{ratio:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a Markdown table: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(aligned)} |"

    rule = "|".join("-" * (width + 1) + ("-" if not number else ":") for number, width in enumerate(widths))
    return "\n".join([line(head), f"|{rule}|", *map(line, rows)])
