"""Checks on what an input writes down of its values: literals, files, ranges, shapes against the dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradcheck_cli.spec.faults import FaultLog, show
from gradcheck_cli.spec.values import literals
from gradcheck_cli.spec.values.dtype_names import INTEGER_RANGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.spec.yaml.yaml_nodes import Node

MAX_ELEMENTS = 2**31  # beyond, no Jacobian and hardly one array fits into memory
RANKS = {"permutation": 1, "one_hot": 1, "probabilities": 1, "spd": 2, "orthogonal": 2, "triangular": 2}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Written:
    """One input as written: where faults go, its node, its dtype."""

    log: FaultLog
    node: Node
    dtype: str

    def check_value(self, value: object, shape: Shape | None) -> Shape | None:
        """Check a `value`, and return the input's shape: as written, else the value's own."""
        found = literals.shape_of(value)
        if found is None:
            self.log.add(self.node, "must have rows of equal length, but got a ragged list", "value")
            return shape
        self.check_leaves(value, "value")
        if shape is not None and not literals.broadcasts(found, shape):
            self.log.add(
                self.node,
                f"must broadcast to the shape {show(shape)}, but got values of shape {show(found)}. "
                "Change one of them",
                "value",
            )
        return found if shape is None else shape

    def check_file(self, folder: str, arguments: Mapping[str, object], shape: Shape | None) -> Shape | None:
        """Check a `file`, and return its array's shape, or `None` if there is none."""
        from gradcheck_cli.spec.values import arrays

        key = arguments["key"]
        try:
            found = arrays.check(
                folder,
                str(arguments["path"]),
                None if key is None else str(key),
                self.dtype,
                shape,
                self._domain(),
            )
        except arrays.ArrayError as error:
            self.log.add(self.node, str(error), "file")
            return shape
        if shape is not None and found != shape:
            self.log.add(
                self.node,
                f"must hold an array of shape {show(shape)}, but got {show(found)}. Change one of them",
                "file",
            )
        return found

    def _domain(self) -> tuple[float | None, float | None]:
        low, high = (self.node.get("domain", end) for end in ("low", "high"))
        return (
            float(low.value) if low and isinstance(low.value, (int, float)) else None,
            float(high.value) if high and isinstance(high.value, (int, float)) else None,
        )

    def check_leaves(self, values: object, key: str) -> None:
        """Check that every scalar fits the dtype."""
        for path, leaf in literals.leaves(values):
            wanted = literals.misfit(leaf, self.dtype)
            if wanted:
                self.log.add(self.node, f"must be {wanted}, but got {show(leaf)}", key, *path)
                return  # one is enough: the rest most likely share its cause

    def check_uniform(self, low: float, high: float) -> None:
        """Check the ends of `uniform`."""
        self._check_order("uniform", low, high)
        for key, end in (("low", low), ("high", high)):
            wanted = literals.misfit(end, self.dtype)
            if wanted:
                self.log.add(self.node, f"must be {wanted}, but got {show(end)}", "uniform", key)

    def check_integers(self, low: int, high: int) -> None:
        """Check the ends of `integers`, high excluded."""
        self._check_order("integers", low, high)
        # Floats are drawn as 64-bit integers, too.
        least, most = INTEGER_RANGES.get(self.dtype, INTEGER_RANGES["int64"])
        if low < least:
            message = f"must be at least {least} for dtype {self.dtype}, but got {show(low)}"
            self.log.add(self.node, message, "integers", "low")
        if high > most + 1:
            message = f"must be at most {most + 1} for dtype {self.dtype}, but got {show(high)}"
            self.log.add(self.node, message, "integers", "high")

    def _check_order(self, kind: str, low: float, high: float) -> None:
        if low >= high:
            self.log.add(
                self.node, f"must be above low, but got {show(high)} with low {show(low)}", kind, "high"
            )

    def check_shape(self, kind: str, shape: Shape) -> None:
        """Check the shape's size, and that a structured generator can fill it."""
        limit = INTEGER_RANGES[self.dtype][1] + 1 if self.dtype in INTEGER_RANGES else MAX_ELEMENTS
        message = ""
        if math.prod(shape) > MAX_ELEMENTS:
            message = f"must hold at most 2**31 elements, but got {show(shape)}"
        elif len(shape) < RANKS.get(kind, 0):
            message = f"must have at least {RANKS[kind]} dimensions for {kind}, but got {show(shape)}"
        elif kind == "spd" and shape[-1] != shape[-2]:
            message = f"must end in two equal dimensions for spd, but got {show(shape)}"
        elif kind == "permutation" and shape[-1] > limit:
            message = f"must end in at most {limit} for a permutation of {self.dtype}, but got {show(shape)}"
        if message:
            self.log.add(self.node, message, "shape")
