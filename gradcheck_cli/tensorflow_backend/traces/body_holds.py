"""Holds ops inside the bodies of loops and branches, which can't be fed.

While the forward is traced, each such op's result is passed through a Python function. At the base point the
function records the op's values, call by call; afterwards it replays them, call by call. Loops run one round
at a time, and points one by one, so the order of calls is always the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.paths.graph_path import MARK, STOP
from gradcheck_cli.tensorflow_backend.private import private_graphs

Array = np.ndarray[Any, Any]


@dataclass
class HeldOp:
    """One op in a body, with its outputs at the base point, call by call."""

    op: Any
    key: str = ""  # for a `stop_gradient` that backpropagation meets, where it comes from
    token: str = ""  # the token of the PyFunc that records and replays its values
    is_held: bool = True  # whether the recorded values replace the op's own
    # its outputs at the base point, one entry for each call
    recorded: list[list[Array]] = field(default_factory=list)
    calls: int = 0  # how often it was called since the last rewind
    is_recording: bool = False  # whether calls are recorded

    def record_or_replay(self, *values: Array) -> list[Array]:
        """Record the op's values, or return the base point's values instead."""
        if self.is_recording:
            self.recorded.append([value.copy() for value in values])
            return list(values)
        call, self.calls = self.calls, self.calls + 1
        # The base point had no such call: another branch is taken, or a loop runs for longer.
        if not self.is_held or call >= len(self.recorded):
            return list(values)
        base_values = self.recorded[call]
        if any(old.shape != value.shape for old, value in zip(base_values, values, strict=True)):
            return list(values)
        return [old.astype(value.dtype) for old, value in zip(base_values, values, strict=True)]


@dataclass
class BodyHolds:
    """The ops that one trace holds in bodies."""

    is_random: Callable[[str], bool]  # says whether an op type's draw is held
    # hold `stop_gradient`s too. The graph of the gradient doesn't need this, since it stays at the base
    # point.
    with_stops: bool = True
    ops: list[HeldOp] = field(default_factory=list)  # in order of creation

    @contextlib.contextmanager
    def trace_with_holds(self) -> Iterator[None]:
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
        held_op = HeldOp(op)
        self.ops.append(held_op)
        held_tensors = tf.compat.v1.py_func(
            held_op.record_or_replay, list(outputs), [output.dtype for output in outputs], stateful=True
        )
        held_op.token = held_tensors[0].op.get_attr("token").decode()
        for tensor, output in zip(held_tensors, outputs, strict=True):
            tensor.set_shape(output.shape)
        return held_tensors

    def again(self) -> BodyHolds:
        """Return body holds for the same ops in a graph made from this one; they record values again."""
        return replace(self, ops=[replace(held_op, recorded=[], calls=0) for held_op in self.ops])

    def find_stops(self, is_met: Callable[[Any], bool], key_of: Callable[[Any], str]) -> None:
        """Find out which `stop_gradient`s backpropagation meets: only those can be held."""
        for held_op in self.ops:
            if held_op.op.type == STOP and is_met(held_op.op):
                held_op.key = key_of(held_op.op)

    @property
    def stops(self) -> list[HeldOp]:
        """The `stop_gradient`s that backpropagation meets."""
        return [held_op for held_op in self.ops if held_op.key]

    def draw_types(self) -> tuple[str, ...]:
        """Return the types of the random ops."""
        return tuple(held_op.op.type for held_op in self._draws())

    def draw_values(self) -> tuple[tuple[list[Array], ...], ...]:
        """Return the outputs of each random op at the base point."""
        return tuple(tuple(held_op.recorded) for held_op in self._draws())

    def use_draws(self, values: tuple[tuple[list[Array], ...], ...]) -> None:
        """Use the outputs that another trace's random ops had at the base point."""
        for held_op, recorded in zip(self._draws(), values, strict=True):
            held_op.recorded = list(recorded)

    @contextlib.contextmanager
    def record_base(self) -> Iterator[None]:
        """Run at the base point: record the outputs of each op that has no values yet."""
        for held_op in self.ops:
            held_op.calls, held_op.is_recording = 0, not held_op.recorded
        try:
            yield
        finally:
            for held_op in self.ops:
                held_op.is_recording = False

    def rewind(self, holds: Callable[[str], bool] = lambda _: False) -> None:
        """Let the next call of the traced function start at the first call of each op.

        Args:
            holds: whether a `stop_gradient` of this key is held.
        """
        for held_op in self.ops:
            held_op.calls = 0
            held_op.is_held = held_op.op.type != STOP or (bool(held_op.key) and holds(held_op.key))

    def _draws(self) -> list[HeldOp]:
        return [held_op for held_op in self.ops if held_op.op.type != STOP]
