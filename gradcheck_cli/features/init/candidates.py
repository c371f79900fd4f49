"""What a spec may say about an input, the likeliest first, from the tables of `candidates.yaml`."""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

import yaml

from gradcheck_cli.features.init.draft import DraftInput
from gradcheck_cli.spec.words import VARYING_DTYPES

TABLES: Mapping[str, Any] = yaml.safe_load(
    resources.files(__package__).joinpath("candidates.yaml").read_text("utf-8")
)
KINDS: Mapping[str, Mapping[str, Any]] = TABLES["kinds"]
WHOLE = "whole"  # the kind of whole numbers
_BASES = {tuple(shape): value for shape, value in TABLES["bases"]}
BASES = [list(shape) for shape in _BASES]
_LARGEST_COUNT = 3  # whole numbers are below it: some axis of most bases is as long

Says = Any  # what a spec says about an input: a mapping, or a list of them for a list input


def kind_of(name: str) -> str:
    """Return the kind of value that an input's name suggests; empty for none."""
    words = name.lower().strip("_").split("_")
    for kind, hints in TABLES["words"].items():
        if words[-1] in hints or (kind == "mask" and words[0] in hints):
            return str(kind)
    return ""


def nearest(choices: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Yield one of each of these choices, the likeliest first: what passes over the fewest likelier ones."""
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while waiting:
        passed, chosen = heapq.heappop(waiting)
        if len(chosen) == len(choices):
            yield [choice[index] for choice, index in zip(choices, chosen, strict=True)]
        else:
            for index in range(len(choices[len(chosen)])):
                heapq.heappush(waiting, (passed + index, (*chosen, index)))


def with_kind(says: Says, kind: str) -> Says:
    """Return an input with numbers of a kind; unchanged if its values or its dtype leave no choice."""
    if isinstance(says, list):
        return [with_kind(element, kind) for element in says]
    shape = says.get("shape")
    is_free = shape is not None and set(says) <= {"shape", "dtype"} and _fits(kind, shape)
    if not is_free or says.get("dtype", "float64") not in VARYING_DTYPES:
        return says
    return {"shape": shape, **KINDS[kind]} | says


def _fits(kind: str, shape: Sequence[int]) -> bool:
    return kind != "positive definite" or (len(shape) > 1 and shape[-1] == shape[-2])


def choices_of(
    tensor: DraftInput, base: Sequence[int], kind: str, *, is_first: bool, whole: bool
) -> list[Says]:
    """Return what a spec may say about an input, if the first one has the shape `base`.

    Args:
        tensor: its name, and what is known about it.
        base: a shape.
        kind: of numbers, where the name suggests none.
        is_first: whether it is the first, whose shape is the base.
        whole: whether whole numbers are likelier than others.
    """
    says = tensor.says or {}
    if isinstance(says, list):
        element = replace(tensor, says=says[0])
        chosen = choices_of(element, base, kind, is_first=is_first, whole=whole)
        return [[_element(made, index) for index in range(len(says))] for made in chosen]
    if says.keys() & {"shape", "value", "object"}:
        return [says]
    dtype, by_name = says.get("dtype", ""), kind_of(tensor.name)
    values = ["text"] if dtype == "string" else [*_of_name("whole", tensor), *_whole_values(base)]
    numbers = [{"value": value, "dtype": "int32", **says} for value in values]
    if dtype.startswith(("int", "uint", "string")):
        return numbers
    if by_name == WHOLE and not dtype:
        return [*numbers, *({"dtype": "float64", "value": made["value"]} for made in numbers)]
    own = by_name if by_name in KINDS and kind in {"", "float32"} else kind
    others = [] if is_first else _related(base, by_name)
    row = [base[-1:]] if by_name == "row" else []
    shapes = [*_of_name("shapes", tensor), *row, list(base), *others]
    made = [
        {"shape": shape, **KINDS[own], **(KINDS[kind] if kind == "float32" else {})} | says
        for shape in shapes
        if _fits(kind, shape)
    ]
    if by_name == "mask" and not dtype:
        made = _take_turns([{"shape": shape, "dtype": "bool"} for shape in shapes], made)
    if dtype or (is_first and not whole):
        return _unique(made)
    return _unique(_take_turns(numbers, made) if whole and not is_first else [*made, *numbers])


def _element(made: dict[str, Any], index: int) -> dict[str, Any]:
    """Return an element of a list: like the others, or other whole numbers."""
    value: Any = made.get("value")
    is_row = isinstance(value, list) and all(isinstance(number, int) for number in value)
    return {**made, "value": [number + index * len(value) for number in value]} if is_row else made


def _of_name(table: str, tensor: DraftInput) -> Sequence[Any]:
    """Return what a table has for the name of an op type's input: its first row that matches."""
    rows = TABLES[table].items() if tensor.is_of_op_type else ()
    return next((values for pattern, values in rows if re.fullmatch(pattern, tensor.name)), ())


def _take_turns(choices: Sequence[Says], others: Sequence[Says]) -> list[Says]:
    pairs = itertools.zip_longest(choices, others)
    return [made for pair in pairs for made in pair if made is not None]


def _unique(choices: Sequence[Says]) -> list[Says]:
    return [made for index, made in enumerate(choices) if made not in choices[:index]]


def _related(base: Sequence[int], by_name: str) -> list[list[int]]:
    """Return shapes that go with a first argument's: rows, columns, weights, halves, scalars."""
    if not base:
        return [[3]]
    *front, last = base
    weights = [*[2] * (len(base) - 2), last, 2]
    related = [
        [last],
        front,
        [],
        *([[*front[:-1], last, front[-1]], [last, last], [*front[:-1], last]] if front else []),
        weights,
        [last // 2],
        [*front, last // 2],
        [*front, 1],
        [*base, 3],
        base[:1],
    ]
    if by_name == "weights" or len(base) > 2:  # noqa: PLR2004 (images, sequences)
        related.insert(0, weights)
    return [list(shape) for shape in related if math.prod(shape)]


def _whole_values(base: Sequence[int]) -> list[Any]:
    """Return whole numbers for a base: those of its table, for each row, for each batch, one alone."""
    own = _BASES.get(tuple(base), 1)
    pattern = [1, 0, 2]
    most = min(_LARGEST_COUNT, base[-1] if base else 1)

    def fill(shape: Sequence[int], start: int = 0) -> Any:
        if not shape:
            return pattern[start % len(pattern)] % most
        return [fill(shape[1:], start + index) for index in range(shape[0])]

    values = [own, fill(base[:-1]), [index + 1 for index in range(base[0])] if base else 0, 0, 1, fill(base)]
    return _unique([*values, [0, 1], [[0], [2]], [[0, 0]]])
