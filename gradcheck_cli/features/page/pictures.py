"""Pictures of a pair, by matplotlib: heat maps of its Jacobians, its ladder of steps, slopes at a kink.

In SVG, text stays text and lines have the page's own colour, so one picture serves light and dark mode.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Figure, HeatMap, Ladder

# Stands for the page's own colour until the SVG is complete.
_INK = "#010203"
_BLUE, _ORANGE, _RED = "#3b7dd8", "#c77700", "#d43f3a"
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,  # a `$` in a name is a dollar sign
    "axes.unicode_minus": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}
_MOST_TICKS = 8
# Left, bottom, width and height of the axes in a drawing; an automatic layout would take as long as the rest.
_ROOM, _ROOM_OF_MAP = (0.23, 0.16, 0.73, 0.68), (0.19, 0.2, 0.68, 0.76)
_MOST_LETTERS = 16  # cells along an edge that are large enough for a letter
_LARGEST = 1e300  # beyond it, the margins that matplotlib adds to an axis overflow
_LEAST_SHARE = 1e-4  # as a share of what is allowed: anything smaller is as good as right


class Picture(NamedTuple):
    """A drawing, with its content in words for readers who can't see it."""

    title: str
    words: str
    svg: str


def pictures_of(label: str, figure: Figure, *, kinks: bool) -> list[Picture]:
    """Draw the contents of a figure, with one-sided slopes if kinks are shown."""
    pictures = []
    with _drawing(_STYLE):
        for index, part in enumerate(_parts(figure, kinks=kinks)):
            canvas = Canvas(figsize=(3.4, 2.9))
            canvas.patch.set_alpha(0)
            part.draw(canvas.add_axes(_ROOM_OF_MAP if part.is_map else _ROOM))
            pictures.append(Picture(part.title, part.words, _svg(canvas, f"{label}{index}")))
    return pictures


def file_of(figure: Figure, form: str, *, kinks: bool) -> bytes:
    """Return the contents of a figure as one PNG or SVG file, on white."""
    with _drawing({**_STYLE, **{key: "black" for key, ink in _STYLE.items() if ink == _INK}}):
        parts = _parts(figure, kinks=kinks)
        canvas = Canvas(figsize=(3.4 * len(parts), 3.2), layout="constrained", facecolor="white")
        for axes, part in zip(np.ravel(canvas.subplots(1, len(parts))), parts, strict=True):
            part.draw(axes)
            axes.set_title(part.title, fontsize=9, pad=6 if part.is_map else 30)
        stream = io.BytesIO()
        backend = FigureCanvasAgg(canvas) if form == "png" else FigureCanvasSVG(canvas)
        backend.print_figure(stream, format=form, dpi=150)
        return stream.getvalue()


@contextmanager
def _drawing(style: dict[str, object]) -> Iterator[None]:
    """Draw in a style, without warnings.

    They say that the font lacks a letter, which a browser takes from another font, or that numbers overflow.
    """
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Part(NamedTuple):
    title: str
    words: str
    draw: Callable[[Axes], None]  # draws it on separate axes
    is_map: bool = False


def _parts(figure: Figure, *, kinks: bool) -> list[_Part]:
    parts = []
    heat_map, ladder = figure.map, figure.ladder
    if heat_map is not None:
        size = f"{figure.shape[0]:,} x {figure.shape[1]:,} elements"
        for kind, values in (("analytic", heat_map.analytic), ("numeric", heat_map.numeric)):
            words = f"{kind} Jacobian, {size}, from {_extreme(values, min)} to {_extreme(values, max)}"
            draw = partial(_draw_jacobian, heat_map=heat_map, values=values)
            parts.append(_Part(f"{kind} Jacobian", words, draw, is_map=True))
        wrong = sum(row.count("x") for row in heat_map.verdicts)
        largest = _extreme(heat_map.share, max)
        words = f"error over what is allowed, {size}; at most {largest}; {wrong} cells wrong"
        parts.append(_Part("error / allowed", words, partial(_draw_share, heat_map=heat_map), is_map=True))
    if ladder is not None:
        off = abs(ladder.analytic - ladder.numeric)
        words = (
            f"error of the difference by step, for {ladder.element}: the gradient is off by {off:.3g}, "
            f"{ladder.allowed + ladder.uncertainty:.2g} is allowed"
        )
        parts.append(_Part("differences by step", words, partial(_draw_ladder, ladder=ladder)))
        if kinks:
            words = (
                f"slopes from above and from below by step, for {ladder.element}; the gradient is "
                f"{ladder.analytic:.4g}"
            )
            parts.append(_Part("slopes from either side", words, partial(_draw_slopes, ladder=ladder)))
    return parts


def _svg(canvas: Canvas, salt: str) -> str:
    """Return a drawing as an SVG element; its ids are unique, so that several fit on one page."""
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        FigureCanvasSVG(canvas).print_figure(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    return text.replace("<svg ", '<svg aria-hidden="true" ', 1)


def _extreme(values: tuple[tuple[float, ...], ...], of: type | object) -> str:
    finite = [value for row in values for value in row if math.isfinite(value)]
    return f"{of(finite):.4g}" if finite else "nan"  # type: ignore[operator]


def _draw_share(axes: Axes, heat_map: HeatMap) -> None:
    shown = np.clip(np.array(heat_map.share), _LEAST_SHARE, None)
    # What is undecided has no share; without one it is grey, like a missing number.
    shown[np.array([list(verdicts) for verdicts in heat_map.verdicts]) == "?"] = np.nan
    colours = mpl.colormaps["cividis"].with_extremes(over=_RED)
    image = axes.imshow(shown, cmap=colours, norm=LogNorm(_LEAST_SHARE, 1.0), aspect="auto")
    bar = axes.figure.colorbar(image, ax=axes, extend="max", fraction=0.08)
    _plain_powers(bar.ax.yaxis)
    for row, verdicts in enumerate(heat_map.verdicts if max(shown.shape) <= _MOST_LETTERS else ()):
        for column, verdict in enumerate(verdicts):
            if verdict != ".":
                axes.text(column, row, verdict, color="white", ha="center", va="center", weight="bold")
    _name_cells(axes, heat_map)


def _draw_jacobian(axes: Axes, heat_map: HeatMap, values: tuple[tuple[float, ...], ...]) -> None:
    jacobians = np.abs(np.array([heat_map.analytic, heat_map.numeric]))
    largest = float(np.max(jacobians, initial=0.0, where=np.isfinite(jacobians))) or 1.0
    image = axes.imshow(np.array(values), cmap="RdBu_r", norm=Normalize(-largest, largest), aspect="auto")
    axes.figure.colorbar(image, ax=axes, fraction=0.08)
    _name_cells(axes, heat_map)


def _name_cells(axes: Axes, heat_map: HeatMap) -> None:
    axes.patch.set_facecolor("#888888")  # for missing numbers
    _name_ticks(axes.yaxis, heat_map.rows, heat_map.row_step)
    _name_ticks(axes.xaxis, heat_map.columns, heat_map.column_step)
    axes.tick_params(axis="x", rotation=90)


def _name_ticks(axis: object, names: tuple[str, ...], step: int) -> None:
    every = -(-len(names) // _MOST_TICKS)
    ticks = range(0, len(names), every)
    more = " …" if step > 1 else ""
    axis.set_ticks(list(ticks), [f"{layout.clean(names[index])}{more}" for index in ticks])  # type: ignore[attr-defined]


def _plain_powers(axis: object) -> None:
    """Write powers of ten as `1e-05`: mathematical text is switched off."""
    axis.set_major_locator(LogLocator(numticks=6))  # type: ignore[attr-defined]
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # type: ignore[attr-defined]
    axis.set_minor_locator(NullLocator())  # type: ignore[attr-defined]
    axis.set_minor_formatter(NullFormatter())  # type: ignore[attr-defined]


def _draw_ladder(axes: Axes, ladder: Ladder) -> None:
    steps, central = np.array(ladder.steps), np.array(ladder.central)
    with np.errstate(all="ignore"):
        error = np.abs(central - ladder.numeric)
    off = abs(ladder.analytic - ladder.numeric)
    bound = ladder.allowed + ladder.uncertainty
    least = max(bound, 1e-300) * 1e-6
    is_known = (error < _LARGEST) & (steps > 0)
    axes.loglog(
        steps[is_known], np.maximum(error[is_known], least), marker="o", ms=3, color=_BLUE, label="difference"
    )
    if 0 < bound < _LARGEST:
        axes.axhline(bound, ls="--", color=_ORANGE, label="allowed")
    if 0 < off < _LARGEST:
        axes.axhline(off, ls="-.", color=_RED, label="the gradient")
    if ladder.first_step > 0:
        axes.axvline(ladder.first_step, ls=":", color=_INK, label="first step")
    axes.set_xlabel("step")
    axes.set_ylabel("off by")
    _plain_powers(axes.xaxis)
    _plain_powers(axes.yaxis)
    _legend(axes)


def _draw_slopes(axes: Axes, ladder: Ladder) -> None:
    for values, name, colour, mark in (
        (ladder.above, "from above", _BLUE, "^"),
        (ladder.below, "from below", _ORANGE, "v"),
    ):
        axes.semilogx(ladder.steps, values, marker=mark, ms=3, color=colour, label=name)
    if abs(ladder.analytic) < _LARGEST:
        axes.axhline(ladder.analytic, ls="-.", color=_RED, label="the gradient")
    axes.set_xlabel("step")
    axes.set_ylabel("slope")
    _plain_powers(axes.xaxis)
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Put the legend above the axes, where it hides nothing, without a background."""
    axes.patch.set_alpha(0)
    axes.legend(fontsize=7, frameon=False, loc="lower left", bbox_to_anchor=(-0.05, 1.0), ncols=2)
