"""Checks `domain`, `away_from`, `min_gap` and `symmetric`: whether values can be moved, and how far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradcheck_cli.spec.case import InputSpec
from gradcheck_cli.spec.faults import FaultLog, show
from gradcheck_cli.spec.values import literals
from gradcheck_cli.spec.values.distributions import ElementDistribution, Interval, contains, distribution_of
from gradcheck_cli.spec.words import SOURCES, kind_of
from gradcheck_cli.spec.yaml_tree import Node

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
        low, high = int(str(source.arguments["low"])), int(str(source.arguments["high"]))
        values = tuple(range(low, high)) if high - low <= FEW_VALUES else ()
    distribution = distribution_of(tensor)
    if distribution is not None and (tensor.away_from or tensor.domain != (None, None)):
        inside = allowed_intervals(distribution, tensor.away_from, tensor.domain)
        values = tuple(value for value in values if contains(inside, float(str(value))))
    return values if 1 < len(values) <= FEW_VALUES else ()


def check_moving(log: FaultLog, node: Node, tensor: InputSpec) -> None:
    """Log which of an input's `domain`, `away_from` and `min_gap` can't be satisfied."""
    low, high = tensor.domain
    if low is not None and high is not None and low >= high:
        log.add(node, f"must be above low, but got {show(high)} with low {show(low)}", "domain", "high")
        return
    if (low is not None or high is not None) and kind_of(tensor.dtype) not in ("float", "integer"):
        log.add(
            node,
            f"must go with a float or integer dtype, but got dtype {tensor.dtype}, which has no order",
            "domain",
        )
        return
    distribution = distribution_of(tensor)
    for key, is_given in (("away_from", bool(tensor.away_from)), ("min_gap", tensor.min_gap is not None)):
        if is_given and not _check_movable(log, node, tensor, distribution, key):
            return
    if tensor.source.kind == "value":
        _check_value(log, node, tensor)
    elif distribution is not None and (tensor.away_from or (low, high) != (None, None) or tensor.min_gap):
        _check_intervals(log, node, tensor, distribution)


def _check_movable(
    log: FaultLog, node: Node, tensor: InputSpec, distribution: ElementDistribution | None, key: str
) -> bool:
    kind = tensor.source.kind
    allowed = (
        "uniform, normal or the default"
        if key == "min_gap"
        else "uniform, normal, integers, choice or the default"
    )
    if SOURCES[kind].is_fixed:
        log.add(node, f"must go with drawn values, but got {kind}: a fixed value can't be moved", key)
    elif distribution is None:
        log.add(node, f"must go with {allowed}, but got {kind} of dtype {tensor.dtype}", key)
    elif key == "min_gap" and (
        not SOURCES[distribution.kind].is_continuous or kind_of(tensor.dtype) != "float"
    ):
        log.add(
            node, f"must go with {allowed} and a float dtype, but got {kind} of dtype {tensor.dtype}", key
        )
    else:
        return True
    return False


def _check_value(log: FaultLog, node: Node, tensor: InputSpec) -> None:
    low, high = tensor.domain
    for path, leaf in literals.leaves(tensor.source.arguments["value"]):
        # `not (a <= b)` rather than `a > b`: NaN lies in no domain.
        if (low is not None and not leaf >= low) or (high is not None and not leaf <= high):  # type: ignore[operator]
            bounds = f"{'-.inf' if low is None else show(low)} to {'.inf' if high is None else show(high)}"
            log.add(node, f"must lie in the domain {bounds}, but got {show(leaf)}", "value", *path)
            return


def _check_intervals(log: FaultLog, node: Node, tensor: InputSpec, distribution: ElementDistribution) -> None:
    intervals = allowed_intervals(distribution, tensor.away_from, tensor.domain)
    # A complex value keeps away from a point if one of its parts does: there is always room.
    chance = 1.0 if kind_of(tensor.dtype) == "complex" else distribution.chance(intervals)
    key = "away_from" if tensor.away_from else "domain"
    if chance < LEAST_CHANCE and key in node.children:
        log.add(
            node,
            f"must leave room for drawn values, but less than {LEAST_CHANCE:.0%} of what {distribution.kind} "
            "draws is left. "
            "Draw from where values are wanted, for example with uniform",
            key,
        )
        return
    available, count = length(intervals, distribution.range), math.prod(tensor.shape)
    if tensor.min_gap and count > 1 and count * tensor.min_gap > available:
        log.add(
            node,
            f"must be at most {available / count:.6g} for {count} elements, but got {show(tensor.min_gap)}: "
            f"they have a length of {available:.6g} to share",
            "min_gap",
        )


def check_symmetric(log: FaultLog, node: Node, tensor: InputSpec) -> None:
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
        log.add(node, message, "symmetric")


def _is_symmetric(tensor: InputSpec) -> bool:
    # A broadcast value is the same in each matrix, or row: elements are looked up by their own indices.
    elements = {
        path: complex(literals.to_number(leaf) or 0)
        for path, leaf in literals.leaves(tensor.source.arguments["value"])
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
    distribution: ElementDistribution, away_from: Sequence[float], domain: tuple[float | None, float | None]
) -> tuple[Interval, ...]:
    """Return the open intervals in which drawn values may lie, in ascending order; none if nothing is left.

    Returns:
        Disjoint intervals `(low, high)`, not limited to the distribution's own range.
    """
    low, high = (
        (-math.inf if domain[0] is None else domain[0]),
        (math.inf if domain[1] is None else domain[1]),
    )
    inner_low, inner_high = max(low, distribution.range[0]), min(high, distribution.range[1])
    margin = MARGIN * min(distribution.stddev, inner_high - inner_low)
    if margin > 0:
        low, high = low + margin, high - margin
    intervals = [(low, high)] if low < high else []
    distance = AWAY * distribution.stddev
    for point in sorted(away_from):
        intervals = [
            piece
            for a, b in intervals
            for piece in ((a, min(b, point - distance)), (max(a, point + distance), b))
            if piece[0] < piece[1]
        ]
    return tuple(intervals)


def length(intervals: Sequence[Interval], within: Interval) -> float:
    """Return the total length of the intervals inside a range."""
    return math.fsum(max(min(high, within[1]) - max(low, within[0]), 0.0) for low, high in intervals)
