"""Says in words what is special about a point: zeros, rows of zeros, equal elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradcheck_cli.features.search.mixed_points import MixedPoints

Array = np.ndarray[Any, Any]

_NAMED = 3


def describe_specials(mixed: MixedPoints, point: Mapping[int, Array]) -> str:
    """Return what is special about a point, such as `x[2] == 0`; empty if nothing is."""
    facts = [
        text
        for part in mixed.free.parts
        for text in _specials_of(
            mixed.case.tensors[part.index].name, np.asarray(point[part.index]), mixed.specials
        )
    ]
    more = f" and {len(facts) - _NAMED} more" if len(facts) > _NAMED else ""
    return " and ".join(facts[:_NAMED]) + more


def _specials_of(name: str, value: Array, specials: tuple[float, ...]) -> list[str]:
    if value.size > 1 and (value == value.flat[0]).all():
        return [f"all elements of {name} are equal" if value.any() else f"{name} == 0"]
    facts, other = [], []
    names: dict[object, str] = {0.0: "0"}
    for row in range(len(value) if value.ndim > 1 and value.size > len(value) else 0):
        own, key = f"{name}[{row}]", value[row].tobytes() if value[row].any() else 0.0
        if key in names:
            facts.append(f"{own} == {names[key]}")
        names.setdefault(key, own)
    for place in np.ndindex(value.shape if not facts else (0,)):
        number, own = value[place].item(), f"{name}{list(place) if place else ''}".replace(" ", "")
        if number in names:
            facts.append(f"{own} == {names[number]}")
        elif number in specials:
            other.append(f"{own} == {float(np.real(number)):g}")
        names.setdefault(number, own)
    return facts or other
