"""An op in eager mode, as the checks see it: the user's own function, called under a GradientTape.

Nothing is traced. The forward is a call that is repeated at each point.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import (
    GradientFormError,
    OpenedOperation,
    Opening,
    OpFacts,
    OpForms,
    TensorInfo,
)
from gradcheck_cli.checking.pairs.pair import label_between
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend import dtypes, frames
from gradcheck_cli.tensorflow_backend.binding import flat_tensors
from gradcheck_cli.tensorflow_backend.binding.binder import Binder, form_fault
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import plain_name
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack, value_of
from gradcheck_cli.tensorflow_backend.graph.graph_runs import pull_in_spoilt_memory
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState, SamplePoint
from gradcheck_cli.tensorflow_backend.graph_path import STOP
from gradcheck_cli.tensorflow_backend.modes import private_eager
from gradcheck_cli.tensorflow_backend.modes.eager_call import EagerCall, identity
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_state
from gradcheck_cli.tensorflow_backend.traces.state import Resource, at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import (
    ShapeChangesError,
    dense,
    naming_user_errors,
    require_shapes,
    run_error,
)


@dataclass
class CalledCase:
    """One case, called eagerly at one sample point; nothing is traced."""

    case: Case
    opening: Opening = field(default_factory=Opening)  # the sample point, and the dtypes of the call
    state: CaseState = field(default_factory=CaseState)  # the state that all ops of the case share
    # keys of the `stop_gradient`s that are held as the inputs move; `None`: as the spec says
    stops: frozenset[str] | None = None
    # how often each registered gradient function was called, where that is counted
    seen: Counter[str] = field(default_factory=Counter)
    called_twice: bool = False  # call the forward at other values before each backward pass; see `trace_vjp`
    _names: list[str] = field(default_factory=list)

    @cached_property
    def at(self) -> SamplePoint:
        """The sample point in the dtypes of the call."""
        return SamplePoint(
            self.case,
            self.opening.sample,
            self.opening.dtype,
            chosen=self.state.chosen,
            direction=self.state.weights.direction,
        )

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened."""
        return self.at.inputs

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Every output, with its shape at the base point."""
        names = flat_tensors.names(self.case, len(self.base), self._names)
        output_dtypes = [value.dtype for value in self.base]
        return flat_tensors.infos(
            self.case, names, output_dtypes, [tuple(value.shape) for value in self.base]
        )

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point."""
        return [dtypes.widen(value.numpy()) for value in self.base]

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
                    if self.called_twice:
                        with contextlib.suppress(Exception):  # nothing is asked but what it leaves behind
                            call(*map(dtypes.moved, self.tensors))
                    self.call.reseed(self.call.seed + 1)  # the gradient draws independently of the forward
                targets = [outputs[output] for output in upstreams]
                values = [
                    value_of(stack, row, tuple(target.shape))
                    for stack, target in zip(upstreams.values(), targets, strict=True)
                ]
                flows = [
                    tf.constant(dtypes.narrow(value, target.dtype.name), target.dtype)
                    for value, target in zip(values, targets, strict=True)
                ]
                with (
                    naming_user_errors(),
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
                with private_gradients.count_gradients(self.seen):
                    yield

            ones = {output: np.ones((1, *info.shape))}
            by_output[output] = self.gradients(ones, watching, ran.append)[0]
            for site in map(private_gradients.site_of_gradient, ran):
                for input_index, gradient in by_output[output].items():
                    if gradient is not None:
                        self.state.gradients.add(site, label_between(info, self.inputs[input_index]))
        return by_output

    # Calls, each made when it is first needed and then cached.

    @cached_property
    def call(self) -> EagerCall:
        """The forward as a function that can be called repeatedly."""
        names, built = self._names, self.state.built
        binder = Binder(self.case, self.at.dtype_of, self.at.point, names=names, built=built)
        shapes: list[tuple[int, ...]] = []
        if self.case.code.gradient is not None and self.case.code.gradient.numpy and self.state.vjp is None:
            # Such a gradient is tried at the base point, for which the outputs' shapes must be known.
            shapes = [tuple(value.shape) for value in self._call_forward(binder.body())]
            binder = Binder(self.case, self.at.dtype_of, self.at.point, shapes, names=names, built=built)
        call = self.state.bind(binder).call
        return EagerCall(
            call, self.holds, self.at.seed, self.opening.reversed, written_by_gradient=self.state.written
        )

    def holds(self, key: str) -> bool:
        """Whether a `stop_gradient` of this key keeps its value while the inputs move."""
        return self.case.judging.freeze is True if self.stops is None else key in self.stops

    @cached_property
    def tensors(self) -> list[Any]:
        """The inputs at the base point."""
        return self.at.tensors

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
        names = flat_tensors.names(self.case, len(output_dtypes), self._names)
        flat_tensors.check_dtypes(self.case, names, output_dtypes, self.at.dtype_of, "forward")
        return outputs

    def _call_forward(self, call: Any) -> list[Any]:
        try:
            return list(call(*self.tensors))
        except (CaseFailedError, GradientFormError, CaseSkippedError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the user's code may raise anything
            raise describe_failure(error, "forward") from error


def describe_failure(error: BaseException, what: str) -> CaseFailedError:
    """Describe what the user's code raised."""
    if isinstance(error, tf.errors.OpError):
        return run_error(error, what)
    return CaseFailedError(what, f"the {what} raised {frames.first_line(error)}", frames.user_frames(error))


@dataclass(frozen=True)
class EagerFacts(OpFacts):
    """What a call at the base point shows. No graph shows sites or kinks."""

    called: CalledCase = field(kw_only=True)

    @property
    def point(self) -> tuple[Array, ...]:
        """The base point, wide, with values that the declared dtypes can hold."""
        return self.called.at.point

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened."""
        return self.called.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Every output, with its shape at the base point."""
        return self.called.outputs

    @property
    def base_values(self) -> list[Array]:
        """The outputs at the base point."""
        return self.called.base_values

    @property
    def refusal(self) -> str:
        """What the forward raised beside the point, in words."""
        return self.called.state.refusal

    @cached_property
    def random_types(self) -> tuple[str, ...]:
        """Why the forward draws anew at each call although the seed is the same."""
        record = self.called.call.record
        unheld = record.unheld_draws(self.called.moving, self.called.base)
        if unheld:
            return tuple(unheld)
        repeated = [dtypes.widen(value.numpy()) for value in self.called.call.call_moved(self.called.tensors)]
        with self.called.call.call_unheld() as call:
            unheld_values = [dtypes.widen(value.numpy()) for value in call(*self.called.tensors)]
        if _are_equal(repeated, self.base_values) and _are_equal(unheld_values, self.base_values):
            return ()
        return tuple(dict.fromkeys(self.called.call.draws)) or ("from Python or NumPy",)

    @property
    def frozen(self) -> Mapping[str, int]:
        """How many ops are held at their base value, by type."""
        return Counter([*[STOP] * len(self.called.call.held_stops), *self.called.call.draws])

    @property
    def held_places(self) -> tuple[str, ...]:
        """The place of each `stop_gradient` that is held."""
        _ = self.called.base  # the call at the base point records them
        return tuple(dict.fromkeys(stop.place for stop, _ in self.called.call.held_stops))

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of ready-made functions with a `stop_gradient` inside; a tf.function is run op by op."""
        if self.called.stops is not None or self.called.case.judging.freeze is not True:
            return ()
        return tuple(self.called.call.record.closed(self.called.moving, self.called.base))

    def stops_between(self, output: int, input_index: int) -> dict[str, str]:
        """Return the `stop_gradient`s that can be held between an input and an output; see `OpFacts`."""
        stop_ids = self.called.call.record.stops(
            self.called.input_tensors[input_index], self.called.base[output]
        )
        return {stop.key: stop.place for stop, value in self.called.call.stops if identity(value) in stop_ids}

    def closed(self, output: int, input_index: int) -> list[str]:
        """Return the ops between an input and an output whose inner `stop_gradient` can't be held."""
        return self.called.call.record.closed(
            [self.called.input_tensors[input_index]], [self.called.base[output]]
        )

    @property
    def gradient_variables(self) -> tuple[str, ...]:
        """Names of the variables for which a custom gradient of the forward has gradients."""
        return tuple(plain_name(variable) for variable in _variables_of_gradients(self.called))

    @cached_property
    def quantisers(self) -> tuple[str, ...]:
        """Types of ops between the differentiable inputs and the outputs that round."""
        return self.called.call.record.quantisers(self.called.moving, self.called.base)

    @cached_property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the differentiable inputs and the outputs."""
        return self.called.call.record.low_precision(self.called.moving, self.called.base)

    def low_precision_between(self, output: int, input_index: int) -> tuple[str, ...]:
        """Return the dtypes below float64 between an input and an output."""
        called = self.called
        return called.call.record.low_precision([called.input_tensors[input_index]], [called.base[output]])

    @property
    def not_float64(self) -> str:
        """Why it isn't judged in float64, in words; empty where it is."""
        if not self.low_precision:
            return ""
        return "a trace of it computes something else, and so does a call with float64"

    @cached_property
    def dtype_faults(self) -> Mapping[int, str]:
        """What is wrong with the dtype of a gradient, by input index."""
        return {
            input_index: f"the gradient must be {self.inputs[input_index].dtype}, as its input is, but is "
            f"{gradient.dtype.name}."
            for gradients in self.called.first_gradients.values()
            for input_index, gradient in gradients.items()
            if gradient is not None and gradient.dtype.name != self.inputs[input_index].dtype
        }

    def leads_to(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through floating tensors, by what ran at the base point."""
        record, start = self.called.call.record, self.called.input_tensors[input_index]
        held_ids = [identity(value) for _, value in self.called.call.held_stops]
        holds_all = self.called.stops is None and self.called.case.judging.freeze is True
        return record.leads_to(start, self.called.base[output], held_ids, stops=not holds_all)

    def passes_numpy(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through NumPy alone, by what ran at the base point."""
        return self.called.call.record.passes_numpy(
            self.called.input_tensors[input_index], self.called.base[output]
        )


def _is_connected(called: CalledCase, output: int, input_index: int) -> bool:
    return called.first_gradients.get(output, {}).get(input_index) is not None


def _is_plain_chain(called: CalledCase, output: int, input_index: int) -> bool:
    call, start = called.call, called.input_tensors[input_index]
    has_own = not call.is_plain or called.case.code.gradient is not None
    return not has_own and len(call.record.steps_between([start], [called.base[output]])) > 1


def _variables_of_gradients(called: CalledCase) -> tuple[Any, ...]:
    _ = called.base  # the call at the base point records them
    return tuple(called.call.gradient_variables.values())


@dataclass(frozen=True)
class EagerRuns:
    """Calls a case's function, and pulls back upstreams under its tape."""

    called: CalledCase

    def rounded_sizes(self, input_index: int) -> list[Array]:
        """Return the outputs' own size, as no graph shows larger terms."""
        del input_index  # each input moves them
        return [dtypes.magnitude(value) for value in self.called.base_values]

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the forward at several points, one by one; NaN where it refuses one. See `Operation`."""
        rows = []
        count = self.called.at.count
        moved = {input_index - count: stack for input_index, stack in batch.items() if input_index >= count}
        points = len(next(iter(batch.values())))
        with at_values(self.called.state.variables, moved, points) as sample_rows:
            for row in sample_rows:
                tensors = list(self.called.tensors)
                for input_index in batch.keys() & set(range(count)):
                    info = self.called.inputs[input_index]
                    value = value_of(batch[input_index], row, info.shape)
                    tensors[input_index] = tf.constant(dtypes.narrow(value, info.dtype), info.dtype)
                rows.append(self._evaluate_at(tensors))
        if not rows:
            return [np.empty((0, *output.shape)) for output in self.called.outputs]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def _evaluate_at(self, tensors: Sequence[Any]) -> list[Array]:
        try:
            values = [dtypes.widen(value.numpy()) for value in self.called.call.call_moved(tensors)]
            require_shapes((value.shape for value in values), self.called.outputs)
        except ShapeChangesError as error:
            failure: CaseFailedError = error
        except CaseFailedError:
            raise
        except Exception as error:  # noqa: BLE001 (the user's code may raise anything)
            failure = describe_failure(error, "forward")
        else:
            return values
        return self.called.state.refuse(self.called, failure)

    def vjp(self, output: int, upstream: Stack) -> list[Array | None]:
        """Pull upstreams of one output back to every input; see `Operation`."""
        if self.called.outputs[output].size:
            return self._pull({output: upstream})
        infos = [self.called.inputs[input_index] for input_index in self.called.at.differentiable]
        return pull_in_spoilt_memory(lambda stack: self._pull({output: stack}), upstream, infos, eagerly=True)

    def jvp(self, input_index: int, tangents: Array) -> list[Array | None] | None:
        """Push tangents of one input forward through the bodies of custom gradients; see `Operation`.

        Without a custom gradient it returns nothing, since forward mode then uses the very gradients that are
        checked. The same holds for a vjp, which has them in its body. It also returns nothing where forward
        mode takes a `stop_gradient` as a constant and differences don't.
        """
        # The call at the base point records custom gradients.
        base, record = self.called.base, self.called.call.record
        if not self.called.call.custom_gradients or self.called.state.vjp is not None:
            return None
        held_ids = {identity(value) for _, value in self.called.call.held_stops}
        start = self.called.input_tensors[input_index]
        if record.closed([start], base) or any(record.stops(start, output) - held_ids for output in base):
            return None
        source = [*self.called.tensors, *self.called.state.variables][input_index]
        rows = []
        for tangent in tangents:
            tangent_tensor = tf.constant(dtypes.narrow(tangent, source.dtype.name), source.dtype)
            with (
                self.called.call.call_unheld() as call,
                private_eager.run_functions_eagerly(),
                private_eager.skip_custom_gradients(),
                tf.autodiff.ForwardAccumulator(source, tangent_tensor) as forward,
            ):
                outputs = call(*self.called.tensors)
            rows.append([forward.jvp(output) for output in outputs])
        return [
            None
            if any(value is None for value in column)
            else np.stack([dtypes.widen(value.numpy()) for value in column])
            for column in zip(*rows, strict=True)
        ]

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all differentiable outputs back at once; see `Operation`."""
        return self._pull(upstreams)

    def _pull(self, upstreams: Mapping[int, Stack]) -> list[Array | None]:
        rows = self.called.gradients(upstreams)
        result: list[Array | None] = [None] * len(self.called.inputs)
        for input_index in self.called.at.differentiable:
            column = [
                None if row[input_index] is None else dtypes.widen(row[input_index].numpy()) for row in rows
            ]
            gradients = [value for value in column if value is not None]
            if len({value.shape for value in gradients}) > 1:
                name = self.called.inputs[input_index].name
                message = f"the gradient for {name} changes shape with its upstream."
                raise GradientFormError((input_index,), message)
            if gradients:  # None for some upstreams only: the same as zero there
                zero = np.zeros_like(gradients[0])
                result[input_index] = np.stack([zero if value is None else value for value in column])
        return result


@dataclass(frozen=True, kw_only=True)
class EagerOperation(OpenedOperation):
    """One case in eager mode. Nothing is a float64 twin, and a call has its gradient at its own point."""

    called: CalledCase

    @staticmethod
    def of(called: CalledCase) -> EagerOperation:
        """Return a called case as an op."""
        runs = EagerRuns(called)
        return EagerOperation(
            opening=called.opening,
            called=called,
            facts=EagerFacts(partial(_is_connected, called), partial(_is_plain_chain, called), called=called),
            forms=OpForms(lambda stops: EagerOperation.of(replace(called, stops=stops))),
            evaluate=runs.evaluate,
            vjp=runs.vjp,
            joint_vjp=runs.joint_vjp,
            jvp=runs.jvp,
            rounded_sizes=runs.rounded_sizes,
        )

    def retraced(self) -> EagerOperation:
        """Return the op, to be called anew at the same point."""
        called = self.called
        return EagerOperation.of(CalledCase(called.case, called.opening, called.state, called_twice=True))

    @cached_property
    def trainable(self) -> tuple[Any, ...]:
        """The trainable variables that the forward uses, the oldest first."""
        with self.called.call.call_unheld() as call, tf.GradientTape() as tape:
            call(*self.called.tensors)
        return tuple(private_state.in_order_of_creation(tape.watched_variables()))

    @property
    def weights(self) -> list[Resource]:
        """The trainable variables that the forward uses and doesn't write to."""
        written = self.written_before_read
        return [
            Resource(variable.handle, (variable.dtype,))
            for variable in self.trainable
            if id(variable.handle) not in written
        ]

    @property
    def written_before_read(self) -> set[int]:
        """The ids of variables' handles that the forward writes to; which of them it reads isn't known."""
        _ = self.called.base  # the call at the base point records them
        return set(self.called.call.written.earlier_values)

    @property
    def variables_of_gradients(self) -> tuple[Any, ...]:
        """The variables for which a custom gradient of the forward has gradients."""
        return _variables_of_gradients(self.called)

    @property
    def gradients_seen(self) -> Mapping[str, int]:
        """How often each registered gradient function was called for one upstream of each output."""
        _ = self.called.first_gradients  # these are the calls that are counted
        return self.called.seen

    def gradients_seen_anew(self) -> Mapping[str, int]:
        """Return the same for new calls, op by op."""
        called = self.called  # the gradient of a tf.function is built only once, under a tape
        with private_eager.run_functions_eagerly():
            return EagerOperation.of(CalledCase(called.case, called.opening, called.state)).gradients_seen


def _are_equal(values: Sequence[Array], other_values: Sequence[Array]) -> bool:
    # The order of sums may differ from call to call; another draw differs by much more.
    return all(
        value.shape == other_value.shape
        and (
            np.allclose(
                value, other_value, rtol=1e-4, atol=1e-6 * np.max(np.abs(value), initial=0.0), equal_nan=True
            )
            if value.dtype.kind in "fc"
            else np.array_equal(value, other_value)
        )
        for value, other_value in zip(values, other_values, strict=True)
    )
