"""Calls a forward eagerly as a function: what it changes is restored, what it draws and stops is held."""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.eager.eager_record import Record
from gradcheck_cli.tensorflow_backend.frames import place_of_stop
from gradcheck_cli.tensorflow_backend.private import private_eager, private_sites, private_variables
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop
from gradcheck_cli.tensorflow_backend.traces.state import Kept, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass
class EagerCall:
    """A forward that is called repeatedly, at the base point first.

    Attributes:
        function: takes tensors, returns a list of tensors.
        holds: whether a `stop_gradient` that backpropagation meets keeps its base value, by its key.
        seed: seed of its draws, the same in each call.
        record: what the first call ran.
        reverse: give custom gradients their variables in reverse order.
        gradient_variables: the variables that a custom gradient has gradients for, by `id`.
        custom_gradients: how many of the forward's custom gradients ran at the base point.
        is_plain: whether all of these are TensorFlow's own.
        written: what a call writes to; it is restored after each call.
        left: what only a gradient writes to; it is restored at the end of the case.
        must_begin_anew: whether a gradient was seen to write to what the forward uses.
    """

    function: Callable[..., Sequence[Any]]
    holds: Callable[[str], bool]
    seed: int = 0
    reverse: bool = False
    gradient_variables: dict[int, Any] = field(default_factory=dict)
    record: Record = field(default_factory=Record)
    custom_gradients: int = 0
    is_plain: bool = True
    written: State = field(default_factory=State)
    left: State = field(default_factory=State)
    must_begin_anew: bool = False
    _sorted: State = field(default_factory=State)
    _unsorted: State = field(default_factory=State)
    draws: list[str] = field(default_factory=list)
    stops: list[tuple[Stop, Any]] = field(default_factory=list)  # those that it meets, with their outputs

    def call_at_base(self, inputs: Sequence[Any]) -> list[Any]:
        """Call at the base point, and record what is held and restored from then on."""

        def stop(value: Any, is_met: bool) -> Any:  # noqa: FBT001 (called by position)
            if is_met and isinstance(value, tf.Tensor):
                self.stops.append((_describe_stop_here(), value))
            return value

        def count(function: Any) -> None:
            self.custom_gradients += 1
            self.is_plain &= private_sites.is_tensorflows(function)

        with (
            self._put_back(),
            self._in_order(),
            private_eager.replace_stop_gradients(stop),
            private_eager.note_writes(lambda handle, dtypes: self.written.keep(Kept(handle, dtypes))),
            private_eager.note_custom_gradients(count),
        ):
            tf.random.set_seed(self.seed)
            outputs = self.record.run(lambda: self.function(*inputs))
        self.draws = self.record.draws(outputs)
        return outputs

    @property
    def held(self) -> list[tuple[Stop, Any]]:
        """The `stop_gradient`s that are held, with their outputs at the base point."""
        return [(stop, value) for stop, value in self.stops if self.holds(stop.key)]

    def moved(self, inputs: Sequence[Any]) -> list[Any]:
        """Call with moved inputs; what is to be held has its value at the base point."""
        noted = iter(self.stops)

        def stop(value: Any, is_met: bool) -> Any:  # noqa: FBT001 (called by position)
            # The base point had no such stop: another branch is taken, or a loop runs for longer.
            noted_stop, held = next(noted, (None, value)) if is_met else (None, value)
            is_held = noted_stop is not None and self.holds(noted_stop.key) and held.shape == value.shape
            return held if is_held else value

        with contextlib.ExitStack() as stack:
            stack.enter_context(self._put_back())
            if self.held:  # inside a tf.function, they can be held only if it runs op by op
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
        opened = private_eager.run_functions_eagerly() if self.reverse else contextlib.nullcontext()
        with self._put_back(), self._in_order(), opened:
            yield call

    def restore(self) -> None:
        """Restore what was written to."""
        self.written.restore()

    def note_gradient_writes(self) -> contextlib.AbstractContextManager[None]:
        """Record what a gradient writes to, for `sort_writes`."""

        def note(handle: Any, dtypes: tuple[Any, ...]) -> None:
            if handle in self.written:
                self.must_begin_anew = True
            elif handle not in self._sorted:
                with tf.init_scope():  # it may be written to within a tf.function that is being traced
                    self._unsorted.keep(Kept(handle, dtypes))

        return private_eager.note_writes(note)

    def sort_writes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Find out whether the forward uses what a gradient was seen to write to: then its outputs differ."""
        if not self._unsorted.before:
            return
        self.restore()
        repeated = self.function(*inputs)
        is_used = any(
            not np.array_equal(repeated_value.numpy(), first_value.numpy())
            for repeated_value, first_value in zip(repeated, outputs, strict=True)
        )
        (self.written if is_used else self.left).take(self._unsorted)
        self._sorted.take(self._unsorted)
        self._unsorted.before.clear()
        self.must_begin_anew |= is_used

    def _in_order(self) -> contextlib.AbstractContextManager[None]:
        def note(variables: Sequence[Any]) -> None:
            self.gradient_variables.update((id(variable), variable) for variable in variables)

        return private_variables.order_of_variables(note, reverse=self.reverse)

    def reseed(self, seed: int) -> None:
        """Set the seed, if anything is drawn: it costs a new kernel for each op."""
        if self.draws:
            tf.random.set_seed(seed)

    @contextlib.contextmanager
    def _put_back(self) -> Iterator[None]:
        with private_eager.restore_seed():
            try:
                yield
            finally:
                self.restore()


def _describe_stop_here() -> Stop:
    """Describe the `stop_gradient` that is being called."""
    frames = traceback.StackSummary.extract(traceback.walk_stack(None), lookup_lines=False)
    lines = [(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(frames)]
    return Stop(*place_of_stop(lines))
