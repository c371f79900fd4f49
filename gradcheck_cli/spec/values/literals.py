"""Values written in a spec: shape, and whether they fit a dtype; no numpy, so that validating stays fast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradcheck_cli.spec.words import INTEGER_RANGES, LARGEST_FLOATS, kind_of


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
        return "" if _is_integral(number) and low <= value <= high else f"an integer from {low} to {high}"
    largest = LARGEST_FLOATS[dtype]
    parts = (number.real, number.imag)
    if any(math.isfinite(component) and abs(component) > largest for component in parts):
        return f"at most {largest:.6g} in size for dtype {dtype}"
    return ""


def _is_integral(number: complex) -> bool:
    return isinstance(number, int) or (isinstance(number, float) and number.is_integer())
