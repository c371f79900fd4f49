"""Makes an `InputSpec` from one input of a merged case, and checks the rules that involve several keys.

An input's dtype is its own, else bool for a `bool` generator, else the entry of `dtypes` that made the case,
else float64. A fixed value (`value`, `file`) can't be moved by `away_from` or `min_gap`. It may lie on the
edge of its `domain`, since differences can be taken to one side. Arrays of structured generators (`spd` and
the like) can't be moved element by element either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradcheck_cli.spec.case import InputSpec, Source
from gradcheck_cli.spec.faults import FaultLog
from gradcheck_cli.spec.models.input_model import InputModel
from gradcheck_cli.spec.values import literals
from gradcheck_cli.spec.values.constraints import check_moving, check_symmetric
from gradcheck_cli.spec.values.literals import LiteralChecks
from gradcheck_cli.spec.words import DEFAULT_DTYPE, GENERATORS, SOURCES, kind_of
from gradcheck_cli.spec.yaml_tree import Node

# The value of a generator's key -> its arguments, as plain data that can be pickled.
_ARGUMENTS: dict[str, Callable[[Any], dict[str, object]]] = {
    "value": lambda value: {"value": value},
    "file": lambda name: dict(zip(("path", "key"), literals.split_file(name), strict=True)),
    "choices": lambda values: {"values": tuple(values)},
    "probability": lambda chance: {"probability": 0.5 if chance is True else float(chance)},
    "side": lambda side: {"side": side},
    "name": lambda name: {"name": name},
    "switch": lambda _: {},
    "numbers": dict,
}


class InputReader:
    """Reads the inputs of one case, in one variant of its dtypes."""

    def __init__(self, log: FaultLog, folder: str, variant: str | None) -> None:
        self.log = log
        self.folder = folder
        self.variant = variant

    def read(self, name: str, node: Node, model: InputModel) -> InputSpec | None:
        """Return the input, named `values[0]` in a list; `None` if there are faults, which are logged."""
        before = self.log.count
        kinds = [kind for kind in GENERATORS if node.get(kind) is not None]
        if len(kinds) > 1:
            self.log.add(
                node,
                f"must have one source of values, but got {' and '.join(kinds)}. Keep one of them",
                kinds[1],
            )
            return None
        kind, value = next(iter(model.sources.items()), ("default", None))
        dtype = dtype_of(model, self.variant)
        source = Source(kind, _ARGUMENTS[SOURCES[kind].takes](value))
        if not self._fits(kind, dtype, node):
            return None
        checks = LiteralChecks(self.log, node, dtype)
        shape = self._check_source(checks, source, model)
        if shape is None:
            if self.log.count == before:
                self.log.add(
                    node, "is missing; write the dimensions, such as [3, 2] ([] for a scalar)", "shape"
                )
            return None
        checks.check_shape(kind, shape)
        bounds = (model.domain.low, model.domain.high) if model.domain else (None, None)
        tensor = InputSpec(
            name=name,
            dtype=dtype,
            shape=shape,
            source=source,
            differentiate=model.differentiate,
            domain=bounds,
            scale=model.scale,
            away_from=tuple(model.away_from or ()),
            min_gap=model.min_gap,
            symmetric=bool(model.symmetric),
        )
        if self.log.count == before:
            check_moving(self.log, node, tensor)
        if self.log.count == before and tensor.symmetric:
            check_symmetric(self.log, node, tensor)
        return tensor if self.log.count == before else None

    def _check_source(
        self, checks: LiteralChecks, source: Source, model: InputModel
    ) -> tuple[int, ...] | None:
        """Check where values come from, and return the shape: as written, or that of the value or file."""
        shape = tuple(model.shape) if model.shape is not None else None
        if source.kind == "value":
            return checks.check_value(source.arguments["value"], shape)
        if source.kind == "file":
            return checks.check_file(self.folder, source.arguments, shape)
        checks.check_arguments(source)
        return shape

    def _fits(self, kind: str, dtype: str, node: Node) -> bool:
        fitting = SOURCES[kind].families
        if not fitting or kind_of(dtype) in fitting:
            return True
        if kind == "default":
            self.log.add(node, f"must have a value, file or choice for dtype {dtype}, but got none")
        else:
            families = " or ".join(", ".join(fitting).rsplit(", ", 1))
            self.log.add(
                node,
                f"must go with a {families} dtype, but got dtype {dtype}. "
                "Change the dtype, or how values are made",
                kind,
            )
        return False


def dtype_of(model: InputModel, variant: str | None) -> str:
    """Return the dtype of an input in one variant of its case."""
    if model.dtype is not None:
        return model.dtype
    return _own_dtype(model) or variant or DEFAULT_DTYPE


def takes_variant(model: InputModel) -> bool:
    """Tell whether `dtypes` sets the dtype of an input."""
    return model.dtype is None and not _own_dtype(model)


def _own_dtype(model: InputModel) -> str:
    """Return the dtype that an input's generator implies; empty if it implies none."""
    return next((GENERATORS[kind].dtype for kind in model.sources), "")
