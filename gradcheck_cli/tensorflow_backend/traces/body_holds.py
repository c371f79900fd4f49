"""Holds ops inside the bodies of loops and branches, which can't be fed.

While the forward is traced, each such op's result is passed through a Python function. At the base point the
function records its arguments, call by call; afterwards it returns them again, call by call. Loops run one
round at a time, and points one by one, so the order of calls is always the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend.paths.graph_path import MARK, STOP
from gradcheck_cli.tensorflow_backend.private import private_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass
class HeldOp:
    """One op in a body, with its outputs at the base point, call by call.

    `key` says where a `stop_gradient` comes from, if backpropagation meets it.
    """

    op: Any
    key: str = ""
    token: str = ""  # of the PyFunc that calls it
    is_held: bool = True
    noted: list[list[Array]] = field(default_factory=list)
    calls: int = 0
    notes: bool = False

    def give(self, *values: Array) -> list[Array]:
        """Record the op's values, or return those of the base point in their place."""
        if self.notes:
            self.noted.append([value.copy() for value in values])
            return list(values)
        call, self.calls = self.calls, self.calls + 1
        # The base point had no such call: another branch is taken, or a loop runs for longer.
        if not self.is_held or call >= len(self.noted):
            return list(values)
        held = self.noted[call]
        same = all(old.shape == value.shape for old, value in zip(held, values, strict=True))
        if not same:
            return list(values)
        return [old.astype(value.dtype) for old, value in zip(held, values, strict=True)]


@dataclass
class BodyHolds:
    """The ops that one trace holds in bodies.

    Attributes:
        is_random: says whether an op type's draw is held.
        with_stops: hold `stop_gradient` too; this isn't needed in the graph of the gradient, which stays at
            the base point.
        ops: in order of creation.
    """

    is_random: Callable[[str], bool]
    with_stops: bool = True
    ops: list[HeldOp] = field(default_factory=list)

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace with tf.functions inlined, and hold ops in every body."""
        with (
            private_graphs.inline_functions(),
            private_graphs.replace_outputs(self._prepare, self._replace),
        ):
            yield

    def _prepare(self, op_type: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Give each random op in a body its own seed, since every body's graph counts its ops from zero."""
        seed = arguments.get("seed")
        if (
            not seed
            or not self.is_random(op_type)
            or not private_graphs.is_body(tf.compat.v1.get_default_graph())
        ):
            return arguments
        return {**arguments, "seed": (seed + 1_000_003 * (1 + len(self.ops))) % 2**31}

    def _replace(self, op: Any, outputs: Any) -> Any:
        is_stop = self.with_stops and op.type == STOP
        if not (is_stop or self.is_random(op.type)) or not private_graphs.is_body(op.graph):
            return outputs
        private_graphs.mark(op, MARK)
        held = HeldOp(op)
        self.ops.append(held)
        held_tensors = tf.compat.v1.py_func(
            held.give, list(outputs), [output.dtype for output in outputs], stateful=True
        )
        held.token = held_tensors[0].op.get_attr("token").decode()
        for tensor, output in zip(held_tensors, outputs, strict=True):
            tensor.set_shape(output.shape)
        return held_tensors

    def again(self) -> BodyHolds:
        """Return body holds for the same ops in a graph made from this one; they record values again."""
        return replace(self, ops=[replace(held, noted=[], calls=0) for held in self.ops])

    def find_stops(self, is_met: Callable[[Any], bool], key_of: Callable[[Any], str]) -> None:
        """Find out which `stop_gradient`s backpropagation meets: only those can be held."""
        for held in self.ops:
            if held.op.type == STOP and is_met(held.op):
                held.key = key_of(held.op)

    @property
    def stops(self) -> list[HeldOp]:
        """The `stop_gradient`s that backpropagation meets."""
        return [held for held in self.ops if held.key]

    def draw_types(self) -> tuple[str, ...]:
        """Return the types of the random ops."""
        return tuple(held.op.type for held in self._draws())

    def draw_values(self) -> tuple[tuple[list[Array], ...], ...]:
        """Return the outputs of each random op at the base point."""
        return tuple(tuple(held.noted) for held in self._draws())

    def use_draws(self, values: tuple[tuple[list[Array], ...], ...]) -> None:
        """Use the outputs of another trace's random ops at the base point."""
        for held, noted in zip(self._draws(), values, strict=True):
            held.noted = list(noted)

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Run at the base point: record the outputs of each op that has no values yet."""
        for held in self.ops:
            held.calls, held.notes = 0, not held.noted
        try:
            yield
        finally:
            for held in self.ops:
                held.notes = False

    def rewind(self, holds: Callable[[str], bool] = lambda _: False) -> None:
        """Let the next call of the traced function start at the first call of each op.

        Args:
            holds: whether a `stop_gradient` of this key is held.
        """
        for held in self.ops:
            held.calls = 0
            held.is_held = held.op.type != STOP or (bool(held.key) and holds(held.key))

    def _draws(self) -> list[HeldOp]:
        return [held for held in self.ops if held.op.type != STOP]
