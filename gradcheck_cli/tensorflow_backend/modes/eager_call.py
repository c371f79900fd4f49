"""A forward that is called repeatedly: what each call begins with and leaves as it was, and what it holds."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, frames, graph_path
from gradcheck_cli.tensorflow_backend.modes import private_eager
from gradcheck_cli.tensorflow_backend.op_types import IMPLICIT_SAMPLERS, STOPS, is_random, is_varying
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs, private_state
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop
from gradcheck_cli.tensorflow_backend.traces.state import Resource, State


@dataclass
class OpsSeen:
    """What ops a call ran, those in the bodies of its functions included; not how they are joined."""

    types: dict[str, None] = field(default_factory=dict)  # in the order in which they ran first
    dtypes: set[str] = field(default_factory=set)  # of floating results
    closed: list[str] = field(default_factory=list)  # ready-made functions with a `stop_gradient` inside

    def note(self, op_type: str, outputs: Iterable[Any]) -> None:
        """Note an op that ran."""
        tensors = [tensor for tensor in outputs if isinstance(tensor, private_graphs.EAGER_TENSOR)]
        self.dtypes |= {tensor.dtype.name for tensor in tensors if dtypes.is_differentiable(tensor.dtype)}
        if op_type in self.types:
            return
        self.types[op_type] = None
        # A function that couldn't be inlined has no OpDef: a ready-made one.
        inner = () if private_graphs.op_def(op_type) else private_eager.function_nodes(op_type)
        self.types |= dict.fromkeys(node.op for node in inner)
        self.dtypes |= graph_path.dtypes_in_attrs(inner)
        if any(node.op in STOPS for node in inner):
            self.closed.append(op_type)

    @property
    def low_precision(self) -> tuple[str, ...]:
        """The dtypes below float64."""
        return tuple(sorted(self.dtypes - {"float64", "complex128"}))

    @property
    def draws(self) -> list[str]:
        """The types of ops that draw, and draw the same after the same seed."""
        return [name for name in self.types if is_random(name)]

    @property
    def unheld_draws(self) -> list[str]:
        """The types of random ops that no seed fixes: their draw changes as the inputs move."""
        varying = [name for name in self.types if is_varying(name) and not is_random(name)]
        return sorted({*varying, *IMPLICIT_SAMPLERS.intersection(self.types)})


@dataclass
class EagerCall:
    """A forward that is called repeatedly, at the base point first."""

    function: Callable[..., Sequence[Any]]  # takes tensors, returns a list of tensors
    # says by its key whether a `stop_gradient` that backpropagation meets keeps its base value
    holds: Callable[[str], bool]
    seed: int = 0  # seed of its draws, the same in each call
    reverse: bool = False  # give custom gradients their variables in reverse order
    # the variables that a custom gradient has gradients for, by `id`
    gradient_variables: dict[int, Any] = field(default_factory=dict)
    seen: OpsSeen = field(default_factory=OpsSeen)  # by the call at the base point
    is_plain: bool = True  # whether all custom gradients that ran at the base point are TensorFlow's own
    written: State = field(default_factory=State)  # what a call writes to; it is restored after each call
    # what only a gradient writes to; it is restored at the end of the case
    written_by_gradient: State = field(default_factory=State)
    must_begin_anew: bool = False  # whether a gradient was seen to write to what the forward uses
    _sorted_writes: State = field(default_factory=State)
    _unsorted_writes: State = field(default_factory=State)
    # the `stop_gradient`s that backpropagation meets, with their outputs at the base point
    stops: list[tuple[Stop, Any]] = field(default_factory=list)

    def call_at_base(self, inputs: Sequence[Any]) -> list[Any]:
        """Call at the base point, and record what is held and restored from then on."""

        def stop(value: Any, is_met: bool) -> Any:  # noqa: FBT001 (called by position)
            if is_met and isinstance(value, tf.Tensor):
                self.stops.append((_describe_stop_here(), value))
            return value

        def note(function: Any) -> None:
            self.is_plain &= private_gradients.is_tensorflows(function)

        with (
            self._restore_at_end(),
            self._order_variables(),
            private_eager.replace_stop_gradients(stop, note),
            private_eager.note_writes(lambda *resource: self.written.record(Resource(*resource))),
            private_eager.observe_ops(self.seen.note),
            private_eager.run_functions_eagerly(),
        ):
            tf.random.set_seed(self.seed)
            return list(self.function(*inputs))

    @property
    def held_stops(self) -> list[tuple[Stop, Any]]:
        """The `stop_gradient`s that are held, with their outputs at the base point."""
        return [(stop, value) for stop, value in self.stops if self.holds(stop.key)]

    def call_moved(self, inputs: Sequence[Any]) -> list[Any]:
        """Call with moved inputs; what is to be held has its value at the base point."""
        base_stops = iter(self.stops)

        def stop(value: Any, is_met: bool) -> Any:  # noqa: FBT001 (called by position)
            # The base point had no such stop: another branch is taken, or a loop runs for longer.
            base_stop, base_value = next(base_stops, (None, value)) if is_met else (None, value)
            is_held = base_stop is not None and self.holds(base_stop.key) and base_value.shape == value.shape
            return base_value if is_held else value

        with contextlib.ExitStack() as stack:
            stack.enter_context(self._restore_at_end())
            if self.held_stops:  # inside a tf.function, they can be held only if it runs op by op
                stack.enter_context(private_eager.run_functions_eagerly())
                stack.enter_context(private_eager.replace_stop_gradients(stop))
            self.reseed(self.seed)
            return list(self.function(*inputs))

    @contextlib.contextmanager
    def call_unheld(self) -> Iterator[Callable[..., list[Any]]]:
        """Call the forward as its user would, with the base point's draws; restore what it changes."""

        def call(*inputs: Any) -> list[Any]:
            self.reseed(self.seed)
            return list(self.function(*inputs))

        # In a function that is already traced, the order of variables is fixed.
        op_by_op = private_eager.run_functions_eagerly() if self.reverse else contextlib.nullcontext()
        with self._restore_at_end(), self._order_variables(), op_by_op:
            yield call

    def restore(self) -> None:
        """Restore what was written to."""
        self.written.restore()

    def note_gradient_writes(self) -> contextlib.AbstractContextManager[None]:
        """Record what a gradient writes to, for `sort_writes`."""

        def note(handle: Any, value_dtypes: tuple[Any, ...]) -> None:
            if handle in self.written:
                self.must_begin_anew = True
            elif handle not in self._sorted_writes:
                with tf.init_scope():  # it may be written to within a tf.function that is being traced
                    self._unsorted_writes.record(Resource(handle, value_dtypes))

        return private_eager.note_writes(note)

    def sort_writes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Find out whether the forward uses what a gradient has written to: if so, its outputs differ now."""
        if not self._unsorted_writes.earlier_values:
            return
        self.restore()
        repeated = self.function(*inputs)
        is_used = any(
            not np.array_equal(repeated_value.numpy(), first_value.numpy())
            for repeated_value, first_value in zip(repeated, outputs, strict=True)
        )
        (self.written if is_used else self.written_by_gradient).add_missing(self._unsorted_writes)
        self._sorted_writes.add_missing(self._unsorted_writes)
        self._unsorted_writes.earlier_values.clear()
        self.must_begin_anew |= is_used

    def _order_variables(self) -> contextlib.AbstractContextManager[None]:
        def note(variables: Sequence[Any]) -> None:
            self.gradient_variables.update((id(variable), variable) for variable in variables)

        return private_state.order_of_variables(note, reverse=self.reverse)

    def reseed(self, seed: int) -> None:
        """Set the seed, if anything is drawn: it costs a new kernel for each op."""
        if self.seen.draws:
            tf.random.set_seed(seed)

    @contextlib.contextmanager
    def _restore_at_end(self) -> Iterator[None]:
        with private_state.restore_seed():
            try:
                yield
            finally:
                self.restore()


def _describe_stop_here() -> Stop:
    """Describe the `stop_gradient` that is being called."""
    stack = traceback.StackSummary.extract(traceback.walk_stack(None), lookup_lines=False)
    lines = [(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(stack)]
    return Stop(*frames.place_of_stop(lines))
