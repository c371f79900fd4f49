"""Checks an input's values: those that are written, and whether drawn ones can have what is asked of them.

A value must fit the dtype and the shape. `domain`, `away_from`, `min_gap` and `symmetric` say where values
may lie. A fixed value (`value`, `file`) can't be moved by `away_from` or `min_gap`. It may lie on the edge of
its `domain`, since differences can be taken to one side. Arrays of structured generators (`spd` and the like)
can't be moved element by element either.

Numpy is imported only for a `file`, so that validating stays fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradcheck_cli.spec.case import UNBOUNDED, InputSpec, Interval, Source, kind_of
from gradcheck_cli.spec.faults import show
from gradcheck_cli.spec.words import INTEGER_RANGES, LARGEST_FLOATS, SOURCES
from gradcheck_cli.spec.written import Written


@dataclass(frozen=True)
class ElementDistribution:
    """How one element is drawn (each part of one, for complex dtypes)."""

    kind: str  # the generator
    arguments: Mapping[str, Any]  # of the generator
    range: Interval  # the ends between which values lie
    mean: float
    stddev: float
    below: Callable[[float], float]  # the probability of a value below a number

    @property
    def middle(self) -> float:
        """The point that separates two sides: zero, if values lie on both sides of it."""
        low, high = self.range
        if math.isinf(high):
            return self.mean if abs(self.mean) > self.stddev else 0.0
        return 0.0 if low < 0 < high else low / 2 + high / 2

    def chance(self, intervals: Sequence[Interval]) -> float:
        """Return the probability that a value falls into one of some open intervals."""
        # A value that is the lower end isn't inside.
        return math.fsum(self.below(b) - self.below(math.nextafter(a, math.inf)) for a, b in intervals)


Facts = tuple[Interval, float, float, Callable[[float], float]]  # the last fields of a distribution


def _uniform(low: float, high: float) -> Facts:
    half = high / 2 - low / 2  # the width of the whole float64 range overflows
    stddev = half / math.sqrt(3)
    return (
        (low, high),
        low / 2 + high / 2,
        stddev,
        lambda end: (min(max(end, low), high) / 2 - low / 2) / half,
    )


def _normal(mean: float = 0.0, stddev: float = 1.0) -> Facts:
    return UNBOUNDED, mean, stddev, lambda end: (1 + math.erf((end - mean) / (stddev * math.sqrt(2)))) / 2


def _integers(low: int, high: int) -> Facts:
    first, last = float(low), float(high) - 1
    count = last - first + 1
    return (
        (first, last),
        first / 2 + last / 2,
        math.sqrt(max(count * count - 1, 0) / 12),
        lambda end: (math.ceil(min(max(end, first), last + 1)) - first) / count,
    )


def _choice(values: tuple[float, ...]) -> Facts:
    """One of some numbers; those that aren't finite lie in no interval."""
    points = [float(value) for value in values if math.isfinite(float(value))]
    # In units of the largest, so that no square overflows.
    unit = max(map(abs, points), default=0.0) or 1.0
    shares = [point / unit for point in points]
    mean = math.fsum(shares) / max(len(shares), 1)
    variance = math.fsum((share - mean) ** 2 for share in shares) / max(len(shares), 1)
    return (
        (min(points, default=math.nan), max(points, default=math.nan)),
        unit * mean,
        unit * math.sqrt(variance),
        lambda end: sum(point < end for point in points) / len(values),
    )


_DISTRIBUTIONS: dict[str, Callable[..., Facts]] = {
    "uniform": _uniform,
    "normal": _normal,
    "integers": _integers,
    "choice": _choice,
}


def integer_ends(tensor: InputSpec) -> tuple[int, int]:
    """Return the ends between which an input's whole numbers are drawn, the second of them excluded."""
    low, high = (tensor.source.arguments.get(key, end) for key, end in (("low", 0), ("high", 10)))
    return int(str(low)), int(str(high))  # without numbers the integers 0 to 9, as docs/spec.md says


def distribution_of(tensor: InputSpec) -> ElementDistribution | None:
    """Return how each element of an input is drawn; `None` for fixed and structured values and booleans."""
    kind, generator, arguments = kind_of(tensor.dtype), tensor.source.kind, tensor.source.arguments
    if generator == "default" and kind in ("float", "complex"):
        generator = "normal"
    elif generator == "default" and kind == "integer":
        generator, arguments = "integers", dict(zip(("low", "high"), integer_ends(tensor), strict=True))
    elif generator == "choice" and kind not in ("float", "integer"):
        return None  # complex and text have no order, hence no intervals
    facts = _DISTRIBUTIONS.get(generator)
    return None if facts is None else ElementDistribution(generator, arguments, *facts(**arguments))


def contains(intervals: Sequence[Interval], value: float) -> bool:
    """Tell whether a value lies in one of the open intervals."""
    return any(low < value < high for low, high in intervals)


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
    """One input as written, and its dtype."""

    node: Written
    dtype: str

    def check_value(self, value: object, shape: Shape | None) -> Shape | None:
        """Check a `value`, and return the input's shape: as written, or the value's own."""
        value_shape = shape_of(value)
        if value_shape is None:
            self.node.add("must have rows of equal length, but got a ragged list", "value")
            return shape
        self.check_leaves(value, "value")
        pairs = zip(reversed(value_shape), reversed(shape or ()), strict=False)
        fits = len(value_shape) <= len(shape or ()) and all(size in (1, wanted) for size, wanted in pairs)
        if shape is not None and not fits:
            self.node.add(
                f"must broadcast to the shape {show(shape)}, but got values of shape {show(value_shape)}. "
                "Change one of them",
                "value",
            )
        return value_shape if shape is None else shape

    def check_file(
        self, folder: str, arguments: Mapping[str, object], shape: Shape | None, domain: Interval
    ) -> Shape | None:
        """Check a `file`, and return its array's shape, or `None` if there is none."""
        from gradcheck_cli.spec.values import arrays

        try:
            return arrays.read(folder, arguments, self.dtype, shape, domain).shape
        except arrays.ArrayError as error:
            self.node.add(str(error), "file")
            return shape

    def check_leaves(self, values: object, key: str) -> None:
        """Check that every scalar fits the dtype."""
        for path, leaf in leaves(values):
            requirement = misfit(leaf, self.dtype)
            if requirement:
                self.node.add(f"must be {requirement}, but got {show(leaf)}", key, *path)
                return  # one is enough: the others probably have the same cause

    def check_arguments(self, source: Source) -> None:
        """Check a generator's arguments against the dtype: values to choose from, or a range."""
        if "values" in source.arguments:
            self.check_leaves(source.arguments["values"], source.kind)
        if not {"low", "high"} <= source.arguments.keys():
            return
        ends: dict[str, Any] = {key: source.arguments[key] for key in ("low", "high")}
        low, high = ends.values()
        if low >= high:
            message = f"must be above low, but got {show(high)} with low {show(low)}"
            self.node.add(message, source.kind, "high")
        # Floats are also drawn as 64-bit integers, the last of which is excluded.
        least, most = INTEGER_RANGES.get(self.dtype, INTEGER_RANGES["int64"])
        for key, end in ends.items():
            if source.kind != "integers":
                bound = misfit(end, self.dtype)
            elif key == "low":
                bound = f"at least {least} for dtype {self.dtype}" if low < least else ""
            else:
                bound = f"at most {most + 1} for dtype {self.dtype}" if high > most + 1 else ""
            if bound:
                self.node.add(f"must be {bound}, but got {show(end)}", source.kind, key)

    def check_shape(self, kind: str, shape: Shape) -> None:
        """Check the shape's size, and that a structured generator can fill it."""
        source = SOURCES[kind]
        message = ""
        if math.prod(shape) > MAX_ELEMENTS:
            message = f"must hold at most 2**31 elements, but got {show(shape)}"
        elif len(shape) < source.least_rank:
            message = f"must have at least {source.least_rank} dimensions for {kind}, but got {show(shape)}"
        elif source.is_square and shape[-1] != shape[-2]:
            message = f"must end in two equal dimensions for {kind}, but got {show(shape)}"
        if message:
            self.node.add(message, "shape")


# A drawn input with at most this many elements, each with at most this many possible values, takes all of
# these in turn. With more of either, two draws see enough.
FEW_ELEMENTS = 8
FEW_VALUES = 4


def few_values(tensor: InputSpec) -> tuple[object, ...]:
    """Return the values that each element of an input takes in turn; none if there are too many.

    Two random draws of a boolean agree half the time; then one branch is never tested.
    """
    source, kind = tensor.source, kind_of(tensor.dtype)
    if not 0 < math.prod(tensor.shape) <= FEW_ELEMENTS:
        return ()
    values: tuple[object, ...] = ()
    if source.kind == "choice":
        written = source.arguments["values"]
        values = tuple(dict.fromkeys(written)) if isinstance(written, (list, tuple)) else ()
    elif kind == "bool" and source.kind in ("default", "bool"):
        values = (False, True) if source.arguments.get("probability", 0.5) not in (0, 1) else ()
    elif kind == "integer" and source.kind == "integers":
        low, high = integer_ends(tensor)
        values = tuple(range(low, high)) if high - low <= FEW_VALUES else ()
    distribution = distribution_of(tensor)
    if distribution is not None and tensor.is_limited:
        inside = allowed_intervals(distribution, tensor)
        values = tuple(value for value in values if contains(inside, float(str(value))))
    return values if 1 < len(values) <= FEW_VALUES else ()


def check_moving(node: Written, tensor: InputSpec) -> None:
    """Log which of an input's `domain`, `away_from` and `min_gap` can't be satisfied."""
    low, high = tensor.domain
    if low >= high:
        node.refuse(f"must be above low, but got {show(high)} with low {show(low)}", "domain", "high")
    if tensor.domain != UNBOUNDED and kind_of(tensor.dtype) not in ("float", "integer"):
        node.refuse(
            f"must go with a float or integer dtype, but got dtype {tensor.dtype}, which has no order",
            "domain",
        )
    distribution = distribution_of(tensor)
    if tensor.away_from:
        _require_movable(node, tensor, distribution, "away_from")
    if tensor.min_gap is not None:
        _require_movable(node, tensor, distribution, "min_gap")
    if tensor.source.kind == "value":
        _check_value(node, tensor)
    elif distribution is not None and (tensor.is_limited or tensor.min_gap):
        _check_intervals(node, tensor, distribution)


def _require_movable(
    node: Written, tensor: InputSpec, distribution: ElementDistribution | None, key: str
) -> None:
    kind = tensor.source.kind
    allowed = (
        "uniform, normal or the default"
        if key == "min_gap"
        else "uniform, normal, integers, choice or the default"
    )
    if SOURCES[kind].is_fixed:
        node.refuse(f"must go with drawn values, but got {kind}: a fixed value can't be moved", key)
    if distribution is None:
        node.refuse(f"must go with {allowed}, but got {kind} of dtype {tensor.dtype}", key)
    is_inexact = kind_of(tensor.dtype) in ("float", "complex")
    if key == "min_gap" and not (is_inexact and SOURCES[distribution.kind].is_continuous):
        node.refuse(
            f"must go with {allowed} and a float or complex dtype, but got {kind} of dtype {tensor.dtype}",
            key,
        )


def _check_value(node: Written, tensor: InputSpec) -> None:
    low, high = tensor.domain
    for path, leaf in leaves(tensor.source.arguments["value"]) if tensor.domain != UNBOUNDED else ():
        if not low <= leaf <= high:  # type: ignore[operator]  # so NaN lies in no domain
            message = f"must lie in the domain {show(low)} to {show(high)}, but got {show(leaf)}"
            node.add(message, "value", *path)
            return


def _check_intervals(node: Written, tensor: InputSpec, distribution: ElementDistribution) -> None:
    intervals = allowed_intervals(distribution, tensor)
    # A complex value keeps away from a point if one of its parts does: there is always room.
    chance = 1.0 if kind_of(tensor.dtype) == "complex" else distribution.chance(intervals)
    key = "away_from" if tensor.away_from else "domain"
    if chance < LEAST_CHANCE and key in node.data:
        node.add(
            f"must leave room for drawn values, but less than {LEAST_CHANCE:.0%} of what {distribution.kind} "
            "draws is left. "
            "Draw from where values are wanted, for example with uniform",
            key,
        )
        return
    available, count = length(intervals, distribution.range), math.prod(tensor.shape)
    if tensor.min_gap and count > 1 and count * tensor.min_gap > available:
        node.add(
            f"must be at most {available / count:.6g} for {count} elements, but got {show(tensor.min_gap)}: "
            f"they have a length of {available:.6g} to share",
            "min_gap",
        )


def check_symmetric(node: Written, tensor: InputSpec) -> None:
    """Log why an input can't be a symmetric (Hermitian) matrix, or a stack of them."""
    kind, shape = kind_of(tensor.dtype), tensor.shape
    message = ""
    if kind not in ("float", "complex"):
        message = f"must go with a float or complex dtype, but got dtype {tensor.dtype}"
    elif len(shape) <= 1 or shape[-1] != shape[-2]:  # no square matrix
        message = f"must go with a shape that ends in two equal dimensions, but got {show(list(shape))}"
    elif not SOURCES[tensor.source.kind].can_mirror:
        message = f"must go with values that can be mirrored, but got {tensor.source.kind}"
    elif tensor.min_gap is not None:
        message = "must go without min_gap: the elements of a pair are the same"
    elif tensor.source.kind == "value" and not _is_symmetric(tensor):
        message = "must go with a symmetric value (Hermitian, where it is complex). Mirror one triangle"
    if message:
        node.add(message, "symmetric")


def _is_symmetric(tensor: InputSpec) -> bool:
    # A broadcast value is the same in each matrix, or row: elements are looked up by their own indices.
    elements = {
        path: complex(to_number(leaf) or 0) for path, leaf in leaves(tensor.source.arguments["value"])
    }
    if any(len(path) != len(tensor.shape) for path in elements):
        return len(elements) == 1 and not any(value.imag for value in elements.values())
    across = {path: elements.get((*path[:-2], path[-1], path[-2])) for path in elements}
    return all(across[path] == value.conjugate() for path, value in elements.items())


# Elements keep 0.1 of the distribution's own standard deviation away from each point. The slightly
# larger factor allows for rounding when the distance is measured.
AWAY = 0.1 * (1 + 1e-9)
# Values inside a domain keep this part of a standard deviation (or of the domain's width within the range, if
# that is less) away from its ends, so that a step fits in between.
MARGIN = 0.01
# Below this probability per value, redrawing takes too long: 100 draws for a value.
LEAST_CHANCE = 0.01


def allowed_intervals(
    distribution: ElementDistribution, tensor: InputSpec, within: Interval = UNBOUNDED
) -> tuple[Interval, ...]:
    """Return the open intervals in which drawn values may lie, in ascending order; none if nothing is left.

    Args:
        within: limits them to a range; by default, not even that of the distribution does.
    """
    low, high = tensor.domain
    inner_low, inner_high = max(low, distribution.range[0]), min(high, distribution.range[1])
    margin = MARGIN * min(distribution.stddev, inner_high - inner_low)
    if margin > 0:
        low, high = low + margin, high - margin
    intervals = [(low, high)] if low < high else []
    distance = AWAY * distribution.stddev
    for point in sorted(tensor.away_from):
        intervals = [
            piece
            for a, b in intervals
            for piece in ((a, min(b, point - distance)), (max(a, point + distance), b))
            if piece[0] < piece[1]
        ]
    cut = ((max(a, within[0]), min(b, within[1])) for a, b in intervals)
    return tuple(ends for ends in cut if ends[0] < ends[1])


def length(intervals: Sequence[Interval], within: Interval) -> float:
    """Return the total length of the intervals inside a range."""
    return math.fsum(max(min(high, within[1]) - max(low, within[0]), 0.0) for low, high in intervals)
