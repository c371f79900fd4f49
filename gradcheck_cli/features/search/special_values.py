"""Says in words what is special about a point: zeros, rows of zeros, equal elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradcheck_cli.features.search.mixed_points import MixedPoints
from gradcheck_cli.spec.case import Case

Array = np.ndarray[Any, Any]

_NAMED = 3


def describe_specials(mixed: MixedPoints, case: Case, point: Mapping[int, Array]) -> str:
    """Return what is special about a point, such as `x[2] == 0`; empty if nothing is."""
    facts = [
        text
        for part in mixed.free.parts
        for text in _specials_of(case.tensors[part.index].name, np.asarray(point[part.index]), mixed.specials)
    ]
    more = f" and {len(facts) - _NAMED} more" if len(facts) > _NAMED else ""
    return " and ".join(facts[:_NAMED]) + more


def _specials_of(name: str, value: Array, specials: tuple[float, ...]) -> list[str]:  # noqa: C901 (one case after another)
    if value.size and not value.any():
        return [f"{name} == 0"]
    if value.size > 1 and (value == value.flat[0]).all():
        return [f"all elements of {name} are equal"]
    facts = []
    left = np.ones(value.shape, bool)
    for row in range(len(value) if value.ndim > 1 else 0):
        if value[row].size and not value[row].any():
            facts.append(f"{name}[{row}] == 0")
            left[row] = False
        elif row and value[row].size > 1 and (value[row] == value[row - 1]).all():
            facts.append(f"{name}[{row}] == {name}[{row - 1}]")
            left[row] = False
    names: dict[complex, str] = {}
    other: list[str] = []
    for place in np.ndindex(value.shape):
        if not left[place]:
            continue
        number, own = value[place], f"{name}{list(place) if place else ''}".replace(" ", "")
        if number == 0:
            facts.append(f"{own} == 0")
        elif number in names:
            facts.append(f"{own} == {names[number]}")
        elif number in specials:
            other.append(f"{own} == {float(np.real(number)):g}")
        names.setdefault(number, own)
    return facts or other
