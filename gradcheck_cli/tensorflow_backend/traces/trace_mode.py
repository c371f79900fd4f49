"""How a graph is traced and run: with known shapes or unknown ones, compiled by XLA or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class TraceMode:
    """How a graph is traced and run.

    Attributes:
        unknown: which dimensions the trace doesn't know: "none", "first" (of each tensor) or "all".
        compiled: whether XLA compiles what is run.
    """

    unknown: str = "none"
    compiled: bool = False

    def shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return a tensor's shape with the dimensions that the trace may know."""
        if self.unknown == "none":
            return tuple(shape)
        return (None,) * len(shape) if self.unknown == "all" else (None, *shape[1:])[: len(shape)]

    def signature(self, arguments: Sequence[tuple[str, tuple[int, ...]]]) -> list[Any]:
        """Return the signature of a trace of arguments of these dtypes and shapes."""
        return [tf.TensorSpec(self.shape(shape), dtype) for dtype, shape in arguments]

    def compile(self, function: Any) -> Callable[..., Any] | None:
        """Return what is run instead of a traced function: its compiled form, or nothing."""
        if not self.compiled:
            return None
        return tf.function(  # type: ignore[no-any-return]
            lambda *tensors: private_graphs.call_flat(function, tensors), jit_compile=True, autograph=False
        )


GRAPH = TraceMode()
ALL_UNKNOWN = TraceMode("all")
FIRST_UNKNOWN = TraceMode("first")
COMPILED = TraceMode(compiled=True)
