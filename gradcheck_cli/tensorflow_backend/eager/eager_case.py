"""A case called eagerly at one sample point: its forward as a repeated call, its tensors, its gradients."""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError, TensorInfo
from gradcheck_cli.checking.pairs.pair import label_between
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend import dtypes, frames
from gradcheck_cli.tensorflow_backend.binding import flat_outputs
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.dtypes import Stack, value_of
from gradcheck_cli.tensorflow_backend.eager.eager_record import Record
from gradcheck_cli.tensorflow_backend.graph.sample_point import SamplePoint
from gradcheck_cli.tensorflow_backend.graph.second_order import bind
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.private import (
    private_eager,
    private_gradients,
    private_sites,
    private_state,
)
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop
from gradcheck_cli.tensorflow_backend.traces.gradients import dense, form_fault, in_users_words
from gradcheck_cli.tensorflow_backend.traces.state import Resource, State
from gradcheck_cli.tensorflow_backend.traces.trace_faults import run_error

Array = np.ndarray[Any, Any]


@dataclass
class EagerCall:
    """A forward that is called repeatedly, at the base point first.

    Attributes:
        holds: says by its key whether a `stop_gradient` that backpropagation meets keeps its base value.
        gradient_variables: the variables that a custom gradient has gradients for, by `id`.
        written_by_gradient: what only a gradient writes to; it is restored at the end of the case.
        stops: the `stop_gradient`s that backpropagation meets, with their outputs at the base point.
    """

    function: Callable[..., Sequence[Any]]  # takes tensors, returns a list of tensors
    holds: Callable[[str], bool]
    seed: int = 0  # seed of its draws, the same in each call
    reverse: bool = False  # give custom gradients their variables in reverse order
    gradient_variables: dict[int, Any] = field(default_factory=dict)
    record: Record = field(default_factory=Record)  # what the first call ran
    custom_gradients: int = 0  # how many of the forward's custom gradients ran at the base point
    is_plain: bool = True  # whether all of these custom gradients are TensorFlow's own
    written: State = field(default_factory=State)  # what a call writes to; it is restored after each call
    written_by_gradient: State = field(default_factory=State)
    must_begin_anew: bool = False  # whether a gradient was seen to write to what the forward uses
    _sorted_writes: State = field(default_factory=State)
    _unsorted_writes: State = field(default_factory=State)
    draws: list[str] = field(default_factory=list)  # the types of the random ops that ran at the base point
    stops: list[tuple[Stop, Any]] = field(default_factory=list)

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
        with private_eager.restore_seed():
            try:
                yield
            finally:
                self.restore()


def _describe_stop_here() -> Stop:
    """Describe the `stop_gradient` that is being called."""
    stack = traceback.StackSummary.extract(traceback.walk_stack(None), lookup_lines=False)
    lines = [(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(stack)]
    return Stop(*frames.place_of_stop(lines))


@dataclass
class CalledCase:
    """One case, called eagerly at one sample point; nothing is traced.

    Attributes:
        stops: keys of the `stop_gradient`s that are held as the inputs move; `None`: as the spec says.
        seen: how often each registered gradient function was called, where that is counted.
    """

    case: Case
    opening: Opening = field(default_factory=Opening)  # the sample point, and the dtypes of the call
    state: CaseState = field(default_factory=CaseState)  # the state that all ops of the case share
    stops: frozenset[str] | None = None
    seen: Counter[str] = field(default_factory=Counter)
    called_twice: bool = False  # call the forward at other values before each backward pass; see `trace_vjp`
    _names: list[str] = field(default_factory=list)

    @cached_property
    def at(self) -> SamplePoint:
        """The sample point in the dtypes of the call."""
        return SamplePoint(self.case, self.opening.sample, self._dtype_of, chosen=self.state.chosen)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened."""
        return self.at.inputs

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Every output, with its shape at the base point."""
        names = flat_outputs.names(self.case, len(self.base), self._names)
        output_dtypes = [value.dtype for value in self.base]
        return flat_outputs.infos(
            self.case, names, output_dtypes, [tuple(value.shape) for value in self.base]
        )

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point."""
        return [dtypes.widen(value.numpy()) for value in self.base]

    def _count_gradients(self) -> contextlib.AbstractContextManager[None]:
        return private_gradients.count_gradients(self.seen)

    def gradients(
        self,
        upstreams: Mapping[int, Stack],
        watching: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        ran: Callable[[Any], None] = lambda _: None,
    ) -> list[dict[int, Any]]:
        """Call the forward once, and return the gradients by input for each row of upstreams.

        Args:
            watching: makes a context for each backward pass.
            ran: is called with each custom gradient's function that runs.

        Raises:
            GradientFormError: a custom gradient's is of another shape than its input.
        """
        sources = [*self.tensors, *self.state.variables]
        sources_by_input = {input_index: sources[input_index] for input_index in self.at.differentiable}
        rows: list[dict[int, Any]] = []
        with private_eager.look_at_gradients(ran, self._raise_form_fault), self.call.call_unheld() as call:
            for row in range(len(next(iter(upstreams.values())))):
                if rows and self.call.must_begin_anew:
                    self.call.restore()
                if not rows or self.call.record.gives_once or self.call.must_begin_anew:
                    tape, outputs = self._call_under_tape(call, list(sources_by_input.values()))
                    if self.called_twice and not self.call.written.earlier_values:
                        with contextlib.suppress(Exception):  # nothing is asked but what it leaves behind
                            call(*map(dtypes.moved, self.tensors))
                    self.call.reseed(self.call.seed + 1)  # the gradient draws independently of the forward
                targets = [outputs[output] for output in upstreams]
                flows = [
                    _upstream_tensor(stack, row, target)
                    for stack, target in zip(upstreams.values(), targets, strict=True)
                ]
                with (
                    in_users_words(list(sources_by_input.values())),
                    watching(),
                    self.call.note_gradient_writes(),
                ):
                    row_gradients = tape.gradient(
                        targets, list(sources_by_input.values()), output_gradients=flows
                    )
                self.call.sort_writes(self.tensors, self.base)
                rows.append(
                    {
                        input_index: dense(
                            private_gradients.from_number(gradient, sources_by_input[input_index].dtype),
                            sources_by_input[input_index],
                        )
                        for input_index, gradient in zip(sources_by_input, row_gradients, strict=True)
                    }
                )
        return rows

    def _call_under_tape(
        self, call: Callable[..., list[Any]], watched: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        with tf.GradientTape(persistent=True) as tape:
            for tensor in watched:
                tape.watch(tensor)
            return tape, call(*self.tensors)

    def _raise_form_fault(self, tensor: Any, gradient: Any) -> None:
        """Raise for a gradient of another shape than its input; the case ends."""
        moving = {index: [*self.tensors, *self.state.variables][index] for index in self.at.differentiable}
        input_indices = tuple(index for index, source in moving.items() if source is tensor)
        of = (
            f" for {self.inputs[input_indices[0]].name}"
            if input_indices
            else " that a custom gradient returns"
        )
        raise GradientFormError(input_indices, f"the gradient{of} {form_fault(tensor.shape, gradient.shape)}")

    @cached_property
    def first_gradients(self) -> dict[int, dict[int, Any]]:
        """Gradients for upstreams of ones: they show which gradients exist, and their dtypes."""
        _ = self.base  # the call at the base point comes first
        by_output: dict[int, dict[int, Any]] = {}
        for output, info in enumerate(self.outputs):
            if not (info.is_differentiable and self.at.differentiable):
                continue
            ran: list[Any] = []

            @contextlib.contextmanager
            def watching(ran: list[Any] = ran) -> Iterator[None]:
                ran.clear()  # what the forward differentiated by itself is no part of the backward pass
                with self._count_gradients():
                    yield

            ones = {output: np.ones((1, *info.shape))}
            by_output[output] = self.gradients(ones, watching, ran.append)[0]
            for site in map(private_sites.site_of_gradient, ran):
                for input_index, gradient in by_output[output].items():
                    if gradient is not None:
                        self.state.gradients.add(site, label_between(info, self.inputs[input_index]))
        return by_output

    # Calls, each made when it is first needed and then cached.

    @cached_property
    def call(self) -> EagerCall:
        """The forward as a function that can be called repeatedly."""
        names, built = self._names, self.state.built
        binder = Binder(self.case, self._dtype_of, self.at.point, names=names, built=built)
        shapes: list[tuple[int, ...]] = []
        if self.case.gradient is not None and self.case.gradient.numpy and self.state.vjp is None:
            # Such a gradient is tried at the base point, for which the outputs' shapes must be known.
            shapes = [tuple(value.shape) for value in self._call_forward(binder.body())]
            binder = Binder(self.case, self._dtype_of, self.at.point, shapes, names=names, built=built)
        seed = 1 + (self.case.seed * 1_000_003 + self.opening.sample) % (2**31 - 1)
        call = bind(binder, self.state.vjp, self.state.variables).call
        return EagerCall(
            call, self.holds, seed, self.opening.reversed, written_by_gradient=self.state.written
        )

    def holds(self, key: str) -> bool:
        """Whether a `stop_gradient` of this key keeps its value while the inputs move."""
        return self.case.freeze is True if self.stops is None else key in self.stops

    @cached_property
    def tensors(self) -> list[Any]:
        """The inputs at the base point."""
        return [
            tf.constant(value, dtype)
            for value, (dtype, _) in zip(self.at.narrow, self.at.arguments, strict=True)
        ]

    @property
    def input_tensors(self) -> list[Any]:
        """The tensors that stand for each input in a call; for a variable, its handle."""
        return [*self.tensors, *[variable.handle for variable in self.state.variables]]

    @property
    def moving(self) -> list[Any]:
        """The tensors that stand for each input that is differentiated by."""
        return [self.input_tensors[input_index] for input_index in self.at.differentiable]

    @cached_property
    def base(self) -> list[Any]:
        """The outputs of the call at the base point, as tensors."""
        with self.state.seed_at_first_use(self.case.seed):
            outputs = self._call_forward(lambda *tensors: self.call.call_at_base(tensors))
        output_dtypes = [value.dtype for value in outputs]
        names = flat_outputs.names(self.case, len(output_dtypes), self._names)
        flat_outputs.check_dtypes(self.case, names, output_dtypes, self._dtype_of, "forward")
        return outputs

    def _call_forward(self, call: Any) -> list[Any]:
        try:
            return list(call(*self.tensors))
        except (CaseFailedError, GradientFormError, CaseSkippedError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the user's code may raise anything
            raise describe_failure(error, "forward") from error

    def _dtype_of(self, dtype: str) -> str:
        if self.opening.dtype == "complex128":
            return dtypes.complex_dtype(dtype)
        return dtypes.reference_dtype(dtype) if self.opening.dtype == "float64" else dtype


def _upstream_tensor(stack: Stack, row: int, target: Any) -> Any:
    value = value_of(stack, row, tuple(target.shape))
    return tf.constant(dtypes.narrow(value, target.dtype.name), target.dtype)


def describe_failure(error: BaseException, what: str) -> CaseFailedError:
    """Describe what the user's code raised."""
    if isinstance(error, tf.errors.OpError):
        return run_error(error, what)
    return CaseFailedError(what, f"the {what} raised {frames.first_line(error)}", frames.user_frames(error))
