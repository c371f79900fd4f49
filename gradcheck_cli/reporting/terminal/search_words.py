"""The words in which the terminal and the reports describe a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.reporting.terminal import layout

if TYPE_CHECKING:
    from gradcheck_cli.results import Counterexample, SearchResult


def tried(search: SearchResult) -> str:
    """Say what a search tried, and whether it found anything."""
    if search.refused:
        return f"search: this case isn't searched: {search.refused}"
    text = (
        f"search: {layout.count(search.points, 'point')} in {search.seconds:.0f} s, {search.judged} judged, "
        f"sides {search.seen} of {search.sides}, largest disagreement {search.largest:.1e}"
    )
    if search.spoilt:
        text += f", a gradient not finite at {search.spoilt}"
    return f"{text}: {'nothing found' if search.found is None else 'found'}"


def inputs_of(found: Counterexample) -> list[str]:
    """Return each input of a counterexample with its value: `x = [4.0, 0.0]`."""
    shapes = dict(found.shapes)
    return [
        f"{name} = {value}" + (f", shape {list(shapes[name])}" if name in shapes else "")
        for name, value in found.inputs
    ]
