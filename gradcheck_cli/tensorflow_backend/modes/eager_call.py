"""A forward that is called repeatedly; what its first call ran, op by op, as a graph shows for a trace."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, frames, graph_path
from gradcheck_cli.tensorflow_backend.graph_path import STOPS
from gradcheck_cli.tensorflow_backend.modes import private_eager
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs, private_state
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop
from gradcheck_cli.tensorflow_backend.traces.state import Resource, State


@dataclass(frozen=True)
class EagerStep:
    """One op that ran: its type, the ids of its inputs, and its outputs."""

    op_type: str
    inputs: tuple[int, ...]
    outputs: tuple[Any, ...]

    @property
    def inner_nodes(self) -> list[Any]:
        """The NodeDefs of its body, if it calls a function that couldn't be inlined: a ready-made one."""
        return [] if private_graphs.op_def(self.op_type) else private_eager.function_nodes(self.op_type)

    @property
    def op_types(self) -> tuple[str, ...]:
        """Its type, and those of the ops in its body."""
        return (self.op_type, *{node.op for node in self.inner_nodes})

    @property
    def output_ids(self) -> set[int]:
        """The ids of its outputs."""
        return {identity(tensor) for tensor in self.outputs}


def identity(tensor: Any) -> int:
    """Return an eager tensor's own number, which no other tensor of the process has."""
    return int(tensor._id)  # noqa: SLF001 (its only name; Python reuses an `id`)


@dataclass
class Record:
    """The ops of one call in the order in which they ran, with tf.functions replaced by their ops."""

    steps: list[EagerStep] = field(default_factory=list)

    def run(self, call: Callable[[], Sequence[Any]]) -> list[Any]:
        """Call, record the ops that run, and return what the call returns."""
        with (
            private_eager.observe_ops(self._note),
            private_eager.observe_numpy_calls(self._note),
            private_eager.run_functions_eagerly(),
        ):
            return list(call())

    def _note(self, op_type: str, inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
        tensors = [tensor for tensor in inputs if isinstance(tensor, private_graphs.EAGER_TENSOR)]
        results = [tensor for tensor in outputs if isinstance(tensor, private_graphs.EAGER_TENSOR)]
        self.steps.append(EagerStep(op_type, tuple(map(identity, tensors)), tuple(results)))

    @property
    def gives_once(self) -> bool:
        """Whether a tape of such a call gives gradients only once, as a `tf.py_function` forgets its own."""
        return any(step.op_type == "EagerPyFunc" for step in self.steps)

    def steps_before(self, outputs: Sequence[Any]) -> list[EagerStep]:
        """Return the steps that the outputs depend on."""
        needed = set(map(identity, outputs))
        steps = []
        for step in reversed(self.steps):
            if step.output_ids & needed:
                needed.update(step.inputs)
                steps.append(step)
        return steps[::-1]

    def steps_between(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[EagerStep]:
        """Return the steps that depend on any of the inputs and that any of the outputs depends on."""
        return self._steps_after(set(map(identity, inputs)), outputs)

    def _steps_after(self, reached: set[int], outputs: Sequence[Any]) -> list[EagerStep]:
        steps = []
        for step in self.steps_before(outputs):
            if reached.intersection(step.inputs):
                reached |= step.output_ids
                steps.append(step)
        return steps

    def leads_to(self, tensor: Any, output: Any, held_ids: Iterable[int], *, stops: bool = False) -> bool:
        """Whether a tensor moves an output through floating tensors; see `graph_path.leads_to`."""
        flat = graph_path.FLAT - STOPS if stops else graph_path.FLAT
        reached, closed = {identity(tensor)}, set(held_ids)
        for step in self.steps:
            if step.op_type not in flat and reached.intersection(step.inputs):
                reached |= {
                    identity(output)
                    for output in step.outputs
                    if dtypes.is_differentiable(output.dtype) and identity(output) not in closed
                }
        return identity(output) in reached

    def passes_numpy(self, tensor: Any, output: Any) -> bool:
        """Whether a tensor moves an output only through NumPy functions; see `graph_path`."""
        steps = self.steps_between([tensor], [output])
        closed = {
            tensor_id
            for step in steps
            if step.op_type in graph_path.NUMPY_CALLS
            for tensor_id in step.output_ids
        }
        return bool(closed) and not self.leads_to(tensor, output, closed)

    def low_precision(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[str, ...]:
        """Return the dtypes below float64 that occur between inputs and outputs."""
        tensors_by_id = {identity(tensor): tensor for step in self.steps for tensor in step.outputs}
        tensors_by_id |= {identity(tensor): tensor for tensor in inputs}
        names = set()
        for step in self.steps_between(inputs, outputs):
            tensors = [
                *step.outputs,
                *[tensors_by_id[tensor_id] for tensor_id in step.inputs if tensor_id in tensors_by_id],
            ]
            names |= {tensor.dtype.name for tensor in tensors if dtypes.is_differentiable(tensor.dtype)}
            names |= graph_path.dtypes_in_attrs(step.inner_nodes)
        return tuple(sorted(names - {"float64", "complex128"}))

    def stops(self, tensor: Any, output: Any) -> set[int]:
        """Return the ids of the outputs of the `stop_gradient`s between a tensor and an output."""
        start = {identity(tensor)}
        if tensor.dtype == tf.resource:
            # An op with a variable as its input reads it without a separate op: a tensor that no op has made
            # may be such a value.
            made_ids = {tensor_id for step in self.steps for tensor_id in step.output_ids}
            start |= {tensor_id for step in self.steps for tensor_id in step.inputs} - made_ids
        stops = [step for step in self._steps_after(start, [output]) if step.op_type in STOPS]
        return {tensor_id for step in stops for tensor_id in step.output_ids}

    def quantisers(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[str, ...]:
        """Return the types of ops between inputs and outputs that round."""
        types = [name for step in self.steps_between(inputs, outputs) for name in step.op_types]
        return tuple(sorted({name for name in types if name.startswith(graph_path.QUANTISERS)}))

    def closed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
        """Return the ready-made functions between inputs and outputs with a `stop_gradient` inside."""
        return [
            step.op_type
            for step in self.steps_between(inputs, outputs)
            if any(node.op in STOPS for node in step.inner_nodes)
        ]

    def draws(self, outputs: Sequence[Any]) -> list[str]:
        """Return the types of the random ops that the outputs depend on, one for each op that ran."""
        types = [name for step in self.steps_before(outputs) for name in step.op_types]
        return [name for name in types if frozen.is_random(name)]

    def unheld_draws(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
        """Return the types of random ops that no seed fixes: their draw changes as the inputs move."""
        between = {name for step in self.steps_between(inputs, outputs) for name in step.op_types}
        before = {name for step in self.steps_before(outputs) for name in step.op_types}
        varying = {name for name in before if graph_path.is_varying(name) and not frozen.is_random(name)}
        return sorted((between & graph_path.IMPLICIT_SAMPLERS) | varying)


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
    record: Record = field(default_factory=Record)  # what the first call ran
    custom_gradients: int = 0  # how many of the forward's custom gradients ran at the base point
    is_plain: bool = True  # whether all of these custom gradients are TensorFlow's own
    written: State = field(default_factory=State)  # what a call writes to; it is restored after each call
    # what only a gradient writes to; it is restored at the end of the case
    written_by_gradient: State = field(default_factory=State)
    must_begin_anew: bool = False  # whether a gradient was seen to write to what the forward uses
    _sorted_writes: State = field(default_factory=State)
    _unsorted_writes: State = field(default_factory=State)
    draws: list[str] = field(default_factory=list)  # the types of the random ops that ran at the base point
    # the `stop_gradient`s that backpropagation meets, with their outputs at the base point
    stops: list[tuple[Stop, Any]] = field(default_factory=list)

    def call_at_base(self, inputs: Sequence[Any]) -> list[Any]:
        """Call at the base point, and record what is held and restored from then on."""

        def stop(value: Any, is_met: bool) -> Any:  # noqa: FBT001 (called by position)
            if is_met and isinstance(value, tf.Tensor):
                self.stops.append((_describe_stop_here(), value))
            return value

        def count(function: Any) -> None:
            self.custom_gradients += 1
            self.is_plain &= private_gradients.is_tensorflows(function)

        with (
            self._restore_at_end(),
            self._order_variables(),
            private_eager.replace_stop_gradients(stop),
            private_eager.note_writes(lambda *resource: self.written.record(Resource(*resource))),
            private_eager.note_custom_gradients(count),
        ):
            tf.random.set_seed(self.seed)
            outputs = self.record.run(lambda: self.function(*inputs))
        self.draws = self.record.draws(outputs)
        return outputs

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
        if self.draws:
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
