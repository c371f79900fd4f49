"""Values written in a spec: shape, and whether they, or what they name, fit the dtype.

No numpy, so that validating stays fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradcheck_cli.spec.case import Source
from gradcheck_cli.spec.faults import FaultLog, show
from gradcheck_cli.spec.words import GENERATORS, INTEGER_RANGES, LARGEST_FLOATS, SOURCES, kind_of
from gradcheck_cli.spec.yaml_tree import Node


def split_file(name: str) -> tuple[str, str | None]:
    """Split `data.npz:key` into path and key; a `.npy` file has no key."""
    if name.endswith(".npy"):
        return name, None
    path, key = name.split(".npz:", 1)
    return f"{path}.npz", key


def shape_of(value: object) -> tuple[int, ...] | None:
    """Return the shape of nested lists (`()` for a scalar), or `None` if rows differ in length."""
    if not isinstance(value, (list, tuple)):
        return ()
    shapes = {shape_of(element) for element in value}
    if not shapes:
        return (0,)
    first = shapes.pop()
    return None if shapes or first is None else (len(value), *first)


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Tell whether an array of one shape broadcasts to exactly the other."""
    if len(shape) > len(to):
        return False
    return all(size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(to), strict=False))


def leaves(value: object, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], object]]:
    """Yield every scalar of nested lists with its indices."""
    if isinstance(value, (list, tuple)):
        for index, element in enumerate(value):
            yield from leaves(element, (*path, index))
    else:
        yield path, value


def to_number(value: object) -> complex | None:
    """Return a written number, including complex text such as `1+2j`, or `None` for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        try:
            return complex(value.replace(" ", ""))
        except ValueError:
            return None
    return None


def misfit(value: object, dtype: str) -> str:  # noqa: PLR0911 (one return per kind)
    """Say what a scalar must be to fit a dtype; empty if it fits."""
    kind = kind_of(dtype)
    if kind == "bool":
        return "" if isinstance(value, bool) else "true or false for dtype bool"
    if kind == "string":
        return "" if isinstance(value, str) else "text for dtype string"
    if isinstance(value, bool) or (isinstance(value, str) and kind != "complex"):
        return f"a number for dtype {dtype}"
    number = to_number(value)
    if number is None:
        return f"a number for dtype {dtype}, such as 1+2j"
    if kind == "integer":
        low, high = INTEGER_RANGES[dtype]
        is_integral = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
        return "" if is_integral and low <= value <= high else f"an integer from {low} to {high}"
    largest = LARGEST_FLOATS[dtype]
    parts = (number.real, number.imag)
    if any(math.isfinite(component) and abs(component) > largest for component in parts):
        return f"at most {largest:.6g} in size for dtype {dtype}"
    return ""


MAX_ELEMENTS = 2**31  # beyond this, no Jacobian and hardly one array fits into memory

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LiteralChecks:
    """One input as written: its fault log, its node, its dtype."""

    log: FaultLog
    node: Node
    dtype: str

    def check_value(self, value: object, shape: Shape | None) -> Shape | None:
        """Check a `value`, and return the input's shape: as written, or the value's own."""
        value_shape = shape_of(value)
        if value_shape is None:
            self.log.add(self.node, "must have rows of equal length, but got a ragged list", "value")
            return shape
        self.check_leaves(value, "value")
        if shape is not None and not broadcasts(value_shape, shape):
            self.log.add(
                self.node,
                f"must broadcast to the shape {show(shape)}, but got values of shape {show(value_shape)}. "
                "Change one of them",
                "value",
            )
        return value_shape if shape is None else shape

    def check_file(self, folder: str, arguments: Mapping[str, object], shape: Shape | None) -> Shape | None:
        """Check a `file`, and return its array's shape, or `None` if there is none."""
        from gradcheck_cli.spec.values import arrays

        key = arguments["key"]
        try:
            array_place = arrays.ArrayPlace(folder, str(arguments["path"]), None if key is None else str(key))
            stored_shape = arrays.check(array_place, self.dtype, shape, self._domain())
        except arrays.ArrayError as error:
            self.log.add(self.node, str(error), "file")
            return shape
        if shape is not None and stored_shape != shape:
            self.log.add(
                self.node,
                f"must hold an array of shape {show(shape)}, but got {show(stored_shape)}. "
                "Change one of them",
                "file",
            )
        return stored_shape

    def _domain(self) -> tuple[float | None, float | None]:
        low, high = (self.node.get("domain", end) for end in ("low", "high"))
        return (
            float(low.value) if low and isinstance(low.value, (int, float)) else None,
            float(high.value) if high and isinstance(high.value, (int, float)) else None,
        )

    def check_leaves(self, values: object, key: str) -> None:
        """Check that every scalar fits the dtype."""
        for path, leaf in leaves(values):
            requirement = misfit(leaf, self.dtype)
            if requirement:
                self.log.add(self.node, f"must be {requirement}, but got {show(leaf)}", key, *path)
                return  # one is enough: the others probably have the same cause

    def check_arguments(self, source: Source) -> None:
        """Check a generator's arguments against the dtype: values to choose from, or a range."""
        if "values" in source.arguments:
            self.check_leaves(source.arguments["values"], source.kind)
        numbers = GENERATORS[source.kind].numbers if source.kind in GENERATORS else {}
        if not {"low", "high"} <= numbers.keys():
            return
        ends: dict[str, Any] = {key: source.arguments[key] for key in ("low", "high")}
        low, high = ends.values()
        if low >= high:
            message = f"must be above low, but got {show(high)} with low {show(low)}"
            self.log.add(self.node, message, source.kind, "high")
        if numbers["low"].kind == "integer":
            self._check_integers(source.kind, low, high)
            return
        for key, end in ends.items():
            requirement = misfit(end, self.dtype)
            if requirement:
                self.log.add(self.node, f"must be {requirement}, but got {show(end)}", source.kind, key)

    def _check_integers(self, kind: str, low: int, high: int) -> None:
        """Check the ends of a range of integers, high excluded."""
        # Floats are also drawn as 64-bit integers.
        least, most = INTEGER_RANGES.get(self.dtype, INTEGER_RANGES["int64"])
        if low < least:
            message = f"must be at least {least} for dtype {self.dtype}, but got {show(low)}"
            self.log.add(self.node, message, kind, "low")
        if high > most + 1:
            message = f"must be at most {most + 1} for dtype {self.dtype}, but got {show(high)}"
            self.log.add(self.node, message, kind, "high")

    def check_shape(self, kind: str, shape: Shape) -> None:
        """Check the shape's size, and that a structured generator can fill it."""
        source = SOURCES[kind]
        limit = INTEGER_RANGES[self.dtype][1] + 1 if self.dtype in INTEGER_RANGES else MAX_ELEMENTS
        message = ""
        if math.prod(shape) > MAX_ELEMENTS:
            message = f"must hold at most 2**31 elements, but got {show(shape)}"
        elif len(shape) < source.least_rank:
            message = f"must have at least {source.least_rank} dimensions for {kind}, but got {show(shape)}"
        elif source.is_square and shape[-1] != shape[-2]:
            message = f"must end in two equal dimensions for {kind}, but got {show(shape)}"
        elif kind == "permutation" and shape[-1] > limit:
            message = f"must end in at most {limit} for a permutation of {self.dtype}, but got {show(shape)}"
        if message:
            self.log.add(self.node, message, "shape")
