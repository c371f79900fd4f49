"""Checks on `domain`, `away_from` and `min_gap`: whether values can be moved, and have somewhere to go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradcheck_cli.spec import literals
from gradcheck_cli.spec.dtypes import kind_of
from gradcheck_cli.spec.faults import FaultLog, show
from gradcheck_cli.spec.room import LEAST_CHANCE, Generator, length, room

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import InputSpec
    from gradcheck_cli.spec.yaml_nodes import Node

FIXED = ("value", "file")


def element_generator(tensor: InputSpec) -> Generator | None:
    """Return what draws each element on its own, or `None` for fixed and structured values and booleans."""
    source, kind = tensor.source, kind_of(tensor.dtype)
    if source.kind == "default" and kind in ("float", "complex"):
        return Generator("normal", {"mean": 0.0, "stddev": 1.0})
    if source.kind == "default" and kind == "integer":
        return Generator("integers", {"low": 0, "high": 10})  # DESIGN: integers 0..9
    if source.kind == "choice" and kind not in ("float", "integer"):
        return None  # complex and text have no order, hence no room
    if source.kind == "normal":
        return Generator("normal", {"mean": 0.0, "stddev": 1.0, **source.arguments})
    if source.kind in ("uniform", "integers", "choice"):
        return Generator(source.kind, source.arguments)
    return None


def check_moving(log: FaultLog, node: Node, tensor: InputSpec) -> None:
    """Log what can't be done about an input's `domain`, `away_from` and `min_gap`.

    Args:
        log: where faults go.
        node: where the input is written.
        tensor: the input, otherwise sound.
    """
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
    generator = element_generator(tensor)
    for key, given in (("away_from", bool(tensor.away_from)), ("min_gap", tensor.min_gap is not None)):
        if given and not _check_movable(log, node, tensor, generator, key):
            return
    if tensor.source.kind == "value":
        _check_value(log, node, tensor)
    elif generator is not None and (tensor.away_from or (low, high) != (None, None) or tensor.min_gap):
        _check_room(log, node, tensor, generator)


def _check_movable(
    log: FaultLog, node: Node, tensor: InputSpec, generator: Generator | None, key: str
) -> bool:
    kind = tensor.source.kind
    allowed = (
        "uniform, normal or the default"
        if key == "min_gap"
        else "uniform, normal, integers, choice or the default"
    )
    if kind in FIXED:
        log.add(node, f"must go with drawn values, but got {kind}: a fixed value can't be moved", key)
    elif generator is None:
        log.add(node, f"must go with {allowed}, but got {kind} of dtype {tensor.dtype}", key)
    elif key == "min_gap" and (
        generator.kind not in ("uniform", "normal") or kind_of(tensor.dtype) != "float"
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


def _check_room(log: FaultLog, node: Node, tensor: InputSpec, generator: Generator) -> None:
    intervals = room(generator, tensor.away_from, tensor.domain)
    # A complex value keeps away from a point if one of its parts does: there is always room.
    chance = 1.0 if kind_of(tensor.dtype) == "complex" else generator.chance(intervals)
    key = "away_from" if tensor.away_from else "domain"
    if chance < LEAST_CHANCE and key in node.children:
        log.add(
            node,
            f"must leave room for drawn values, but less than {LEAST_CHANCE:.0%} of what {generator.kind} "
            "draws is left. "
            "Draw from where values are wanted, for example with uniform",
            key,
        )
        return
    available, count = length(intervals, generator.range), math.prod(tensor.shape)
    if tensor.min_gap and count > 1 and count * tensor.min_gap > available:
        log.add(
            node,
            f"must be at most {available / count:.6g} for {count} elements, but got {show(tensor.min_gap)}: "
            f"they have a length of {available:.6g} to share",
            "min_gap",
        )
