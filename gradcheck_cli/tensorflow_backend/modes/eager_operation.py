"""An op in eager mode, as the checks see it: the user's own function, called under a GradientTape.

The forward is a call that is repeated at each point. Its graph is looked at, and doesn't run.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import (
    GradientFormError,
    OpenedOperation,
    Operation,
    OpForms,
)
from gradcheck_cli.checking.pairs.pair import label_between
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics import precision, precision_of
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN, largest_finite
from gradcheck_cli.tensorflow_backend import dtypes, frames
from gradcheck_cli.tensorflow_backend.binding.binder import form_fault
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack, value_of
from gradcheck_cli.tensorflow_backend.graph.graph_operation import CaseFacts, GraphFacts, GraphOperation
from gradcheck_cli.tensorflow_backend.graph.graph_runs import pull_in_spoilt_memory
from gradcheck_cli.tensorflow_backend.graph.traced_case import OpenedCase
from gradcheck_cli.tensorflow_backend.modes import private_eager
from gradcheck_cli.tensorflow_backend.modes.eager_call import EagerCall
from gradcheck_cli.tensorflow_backend.modes.graph_modes import agree, pull_random
from gradcheck_cli.tensorflow_backend.op_types import IMPLICIT_SAMPLERS, STOP
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_state
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop
from gradcheck_cli.tensorflow_backend.traces.state import Resource, at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import (
    ShapeChangesError,
    naming_run_errors,
    naming_user_errors,
    require_shapes,
    run_error,
)


@dataclass
class CalledCase(OpenedCase):
    """One case, called eagerly at one sample point."""

    # how often each registered gradient function was called, where that is counted
    seen: Counter[str] = field(default_factory=Counter)
    called_twice: bool = False  # call the forward at other values before each backward pass; see `trace_vjp`

    @property
    def output_dtypes(self) -> Sequence[Any]:
        """The outputs' dtypes."""
        return [value.dtype for value in self.base]

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point."""
        return [dtypes.widen(value) for value in self.base]

    @property
    def gradient_variables(self) -> tuple[Any, ...]:
        """The variables for which a custom gradient of the forward has gradients."""
        _ = self.base  # the call at the base point records them
        traced = () if self.trace is None else self.trace.traced.gradient_variables
        return tuple((self.call.gradient_variables | {id(each): each for each in traced}).values())

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
        moving = self.moving
        rows: list[dict[int, Any]] = []
        with private_eager.look_at_gradients(ran, self._raise_form_fault), self.call.call_unheld() as call:
            for row in range(len(next(iter(upstreams.values())))):
                if rows and self.call.must_begin_anew:
                    self.call.restore()
                # A `tf.py_function` forgets its tape after it has given its gradients.
                if not rows or "EagerPyFunc" in self.call.seen.types or self.call.must_begin_anew:
                    tape, outputs = self._call_under_tape(call, moving.values())
                    if self.called_twice:
                        with contextlib.suppress(Exception):  # nothing is asked but what it leaves behind
                            call(*map(dtypes.moved, self.tensors))
                    self.call.reseed(self.call.seed + 1)  # the gradient draws independently of the forward
                targets = [outputs[output] for output in upstreams]
                flows = [
                    dtypes.constant(value_of(stack, row, tuple(target.shape)), target.dtype)
                    for stack, target in zip(upstreams.values(), targets, strict=True)
                ]
                with naming_user_errors(), watching(), self.call.note_gradient_writes():
                    gradients = tape.gradient(targets, list(moving.values()), output_gradients=flows)
                self.call.sort_writes(self.tensors, self.base)
                rows.append(
                    {
                        index: private_gradients.dense(
                            private_gradients.from_number(gradient, source.dtype), source
                        )
                        for (index, source), gradient in zip(moving.items(), gradients, strict=True)
                    }
                )
        return rows

    @property
    def moving(self) -> dict[int, Any]:
        """The tensors and variables to differentiate by, by input index."""
        sources = [*self.tensors, *self.state.variables]
        return {input_index: sources[input_index] for input_index in self.at.differentiable}

    def _call_under_tape(
        self, call: Callable[..., list[Any]], watched: Iterable[Any]
    ) -> tuple[Any, list[Any]]:
        with tf.GradientTape(persistent=True) as tape:
            for tensor in watched:
                tape.watch(tensor)
            return tape, self._call_forward(call)

    def _raise_form_fault(self, tensor: Any, gradient: Any) -> None:
        """Raise for a gradient of another shape than its input; the case ends."""
        input_indices = tuple(index for index, source in self.moving.items() if source is tensor)
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
        binder = self.binder(names=self._names)
        if self.case.code.gradient is not None and self.case.code.gradient.numpy and self.state.vjp is None:
            # Such a gradient is tried at the base point, for which the outputs' shapes must be known.
            shapes = [tuple(value.shape) for value in self._call_forward(binder.body())]
            binder = self.binder(names=self._names, output_shapes=shapes)
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
    def stops_met(self) -> list[Stop]:
        """The `stop_gradient`s that backpropagation meets."""
        _ = self.base  # the call at the base point records them
        return [stop for stop, _ in self.call.stops]

    @cached_property
    def trace(self) -> GraphOperation | None:
        """The same function traced, which shows how its ops are joined; `None` if it can't be, or differs."""
        _ = self.base  # the first call is the user's
        with contextlib.suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            op = GraphOperation.open(self.state, self.opening)
            _ = op.traced.forward
            if self.call.seen.draws or agree(op, self):  # values that are drawn differ
                return op
        return None

    @cached_property
    def alike(self) -> GraphOperation | None:
        """The trace, if it has the values and gradients of calls: then it shows what no call does."""
        with contextlib.suppress(CaseFailedError, GradientFormError):
            if self.trace is not None and agree(self, self.trace) and self._has_gradients_of(self.trace):
                return self.trace
        return None

    def _has_gradients_of(self, trace: GraphOperation) -> bool:
        """Whether a call and a trace have the same gradients, up to rounding, for a random upstream."""
        unit = max(precision_of(name).unit_roundoff for name in (*self.facts.low_precision, "float64"))
        for output_index, upstream, called_gradients in pull_random(self, self.case):
            traced_gradients: Any = trace.vjp(output_index, upstream)
            for called_gradient, traced_gradient in zip(called_gradients, traced_gradients, strict=True):
                if called_gradient is None or traced_gradient is None:
                    if called_gradient is not traced_gradient:
                        return False
                    continue
                allowed = ROUNDINGS_OF_A_RUN * unit * largest_finite(traced_gradient)
                if not precision.agree(called_gradient, traced_gradient, allowed).all():
                    return False
        return True

    def rounded_otherwise(self, draw: int) -> Operation | None:
        """Return the trace in float64, with its gradient rounded as a draw chooses; see `OpForms`."""
        return None if self.alike is None else self.alike.forms.rounded_otherwise(draw)

    def rounded_sizes(self, input_index: int) -> list[Array]:
        """Return the outputs' own sizes; see `Operation`."""
        shown = self.alike and self.alike.rounded_sizes(input_index)
        return list(shown or dtypes.magnitudes(self.base_values))

    @cached_property
    def facts(self) -> CalledFacts:
        """What is known of it."""
        by_gradient = partial(_is_connected, self), partial(_library_gradients, self)
        if self.trace is None:
            return UntracedFacts(*by_gradient, opened=self)
        return EagerFacts(*by_gradient, opened=self, traced=self.trace.traced)

    @cached_property
    def base(self) -> list[Any]:
        """The outputs of the call at the base point, as tensors."""
        with self.state.seed_at_first_use():
            outputs = self._call_forward(lambda *tensors: self.call.call_at_base(tensors))
        self.check_dtypes([value.dtype for value in outputs])
        return outputs

    def _call_forward(self, call: Any) -> list[Any]:
        with frames.naming_errors("forward", "the forward", "forward"), naming_run_errors("forward"):
            return list(call(*self.tensors))

    # As an op.

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the forward at several points, one by one; NaN where it refuses one. See `Operation`."""
        rows = []
        arguments, variables = self.at.split(batch)
        points = len(next(iter(batch.values())))
        with at_values(self.state.variables, variables, points) as sample_rows:
            for row in sample_rows:
                tensors = list(self.tensors)
                for input_index, stack in arguments.items():
                    info = self.inputs[input_index]
                    value = value_of(stack, row, info.shape)
                    tensors[input_index] = dtypes.constant(value, info.dtype)
                rows.append(self._evaluate_at(tensors))
        if not rows:
            return [np.empty((0, *output.shape)) for output in self.outputs]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def _evaluate_at(self, tensors: Sequence[Any]) -> list[Array]:
        try:
            values = [dtypes.widen(value) for value in self.call.call_moved(tensors)]
            require_shapes((value.shape for value in values), self.outputs)
        except ShapeChangesError as error:
            failure: CaseFailedError = error
        except CaseFailedError:
            raise
        except Exception as error:  # noqa: BLE001 (the user's code may raise anything)
            failure = describe_failure(error)
        else:
            return values
        return self.state.refuse(self, failure)

    def vjp(self, output: int, upstream: Stack) -> list[Array | None]:
        """Pull upstreams of one output back to every input; see `Operation`."""
        if self.outputs[output].size:
            return self.joint_vjp({output: upstream})
        infos = [self.inputs[input_index] for input_index in self.at.differentiable]
        return pull_in_spoilt_memory(
            lambda stack: self.joint_vjp({output: stack}), upstream, infos, eagerly=True
        )

    def joint_vjp(self, upstreams: Mapping[int, Stack]) -> list[Array | None]:
        """Pull upstreams of some outputs back at once; see `Operation`."""
        rows = self.gradients(upstreams)
        result: list[Array | None] = [None] * len(self.inputs)
        for input_index in self.at.differentiable:
            column = [None if row[input_index] is None else dtypes.widen(row[input_index]) for row in rows]
            gradients = [value for value in column if value is not None]
            if len({value.shape for value in gradients}) > 1:
                name = self.inputs[input_index].name
                message = f"the gradient for {name} changes shape with its upstream."
                raise GradientFormError((input_index,), message)
            if gradients:  # None for some upstreams only: the same as zero there
                zero = np.zeros_like(gradients[0])
                result[input_index] = np.stack([zero if value is None else value for value in column])
        return result


def describe_failure(error: BaseException) -> CaseFailedError:
    """Describe what the user's code raised."""
    if isinstance(error, tf.errors.OpError):
        return run_error(error, "forward")
    message = f"the forward raised {frames.raised(error, 'forward')}"
    return CaseFailedError("forward", message, frames.user_frames(error))


@dataclass(frozen=True)
class CalledFacts(CaseFacts):
    """What calls show."""

    opened: CalledCase = field(kw_only=True)

    @property
    def values_beside_gradient(self) -> list[Array]:
        """The outputs at the base point: a call under a tape is the same."""
        return self.opened.base_values

    @cached_property
    def random_types(self) -> tuple[str, ...]:
        """Why the forward draws anew at each call although the seed is the same."""
        called, values = self.opened, self.base_values
        unheld = [name for name in called.call.seen.unheld_draws if self._moves_draw(name)]
        if unheld:
            return tuple(unheld)
        repeated = [dtypes.widen(value) for value in called.call.call_moved(called.tensors)]
        with called.call.call_unheld() as call:
            unheld_values = [dtypes.widen(value) for value in call(*called.tensors)]
        if _are_equal(repeated, values) and _are_equal(unheld_values, values):
            return ()
        return tuple(called.call.seen.draws) or ("from Python or NumPy",)

    def _moves_draw(self, op_type: str) -> bool:
        """Whether an op of this type that ran makes a draw move, as far as is known."""
        del op_type
        return True

    @property
    def frozen(self) -> Mapping[str, int]:
        """How many ops are held at their base value, by type."""
        _ = self.opened.base  # the call at the base point records them
        call = self.opened.call
        return Counter([*[STOP] * len(call.held_stops), *call.seen.draws])

    @property
    def held_places(self) -> tuple[str, ...]:
        """The place of each `stop_gradient` that is held."""
        _ = self.opened.base  # as above
        return tuple(dict.fromkeys(stop.place for stop, _ in self.opened.call.held_stops))

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
            for gradients in self.opened.first_gradients.values()
            for input_index, gradient in gradients.items()
            if gradient is not None and gradient.dtype.name != self.inputs[input_index].dtype
        }

    @property
    def own_draws(self) -> tuple[str, ...]:
        """Types of the gradient's ops that draw: a call shows none."""
        return ()

    @property
    def missed_by_override(self) -> tuple[str, ...]:
        """Names of ops that an override missed: it has no effect eagerly."""
        return ()


@dataclass(frozen=True)
class EagerFacts(CalledFacts, GraphFacts):
    """The same, and what the graph of the same function shows: which ops lead from where to where."""

    def _moves_draw(self, op_type: str) -> bool:
        """Whether an op of this type makes a draw move: a sampler may be beside what moves."""
        return op_type not in IMPLICIT_SAMPLERS or op_type in self.traced.forward.random_types

    def stops_between(self, output: int, input_index: int) -> dict[str, str]:
        """Return the `stop_gradient`s that can be held between an input and an output; see `OpFacts`.

        A call has other keys than a trace, which knows what is between them.
        """
        places = super().stops_between(output, input_index).values()
        return {stop.key: stop.place for stop in self.opened.stops_met if stop.place in places}


@dataclass(frozen=True)
class UntracedFacts(CalledFacts):
    """The same for a function that can't be traced: what ran may be between any input and output."""

    @property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 that occurred."""
        _ = self.opened.base  # the call at the base point records them
        return self.opened.call.seen.low_precision

    def stops_between(self, output: int, input_index: int) -> dict[str, str]:
        """Return every `stop_gradient`, for each pair; see `OpFacts`."""
        del output, input_index  # as far as is known, it is between them
        return {stop.key: stop.place for stop in self.opened.stops_met}

    def closed(self, output: int, input_index: int) -> list[str]:
        """Return every ready-made function whose inner `stop_gradient` can't be held."""
        del output, input_index  # as above
        return self.opened.call.seen.closed


def _is_connected(called: CalledCase, output: int, input_index: int) -> bool:
    return called.first_gradients.get(output, {}).get(input_index) is not None


def _library_gradients(called: CalledCase, output: int, input_index: int) -> int:
    is_connected = _is_connected(called, output, input_index)  # which counts gradients
    is_own = not called.call.is_plain or called.case.code.gradient is not None
    return 0 if is_own or not is_connected else sum(called.seen.values())


@dataclass(frozen=True, kw_only=True)
class EagerOperation(OpenedOperation):
    """One case in eager mode. Nothing is a float64 twin, and a call has its gradient at its own point."""

    called: CalledCase

    @staticmethod
    def of(called: CalledCase) -> EagerOperation:
        """Return a called case as an op."""
        return EagerOperation(
            opening=called.opening,
            called=called,
            facts=called.facts,
            forms=OpForms(
                lambda stops: EagerOperation.of(replace(called, stops=stops)),
                rounded_otherwise=called.rounded_otherwise,
            ),
            evaluate=called.evaluate,
            vjp=called.vjp,
            joint_vjp=called.joint_vjp,
            # Only a trace shows larger terms.
            rounded_sizes=called.rounded_sizes,
        )

    def retraced(self) -> EagerOperation:
        """Return the op, to be called anew at the same point."""
        called = self.called
        return EagerOperation.of(CalledCase(called.state, called.opening, called_twice=True))

    @cached_property
    def trainable(self) -> tuple[Any, ...]:
        """The trainable variables that the forward uses, the oldest first."""
        with self.called.call.call_unheld() as call, tf.GradientTape() as tape:
            call(*self.called.tensors)
        return tuple(private_state.in_order_of_creation(tape.watched_variables()))

    @property
    def weights(self) -> list[Resource]:
        """The variables that the forward uses and doesn't write to; a trace alone shows untrained ones."""
        written, trace = self.written_before_read, self.called.trace
        used = [Resource(variable.handle, (variable.dtype,)) for variable in self.trainable]
        used += [] if trace is None else trace.weights
        by_handle = {id(resource.handle): resource for resource in used}
        return [resource for handle, resource in by_handle.items() if handle not in written]

    @property
    def written_before_read(self) -> set[int]:
        """The ids of variables' handles that the forward writes to; which of them it reads isn't known."""
        _ = self.called.base  # the call at the base point records them
        return set(self.called.call.written.earlier_values)

    @property
    def gradients_seen(self) -> Mapping[str, int]:
        """How often each registered gradient function was called for one upstream of each output."""
        _ = self.called.first_gradients  # these are the calls that are counted
        return self.called.seen

    def gradients_seen_anew(self) -> Mapping[str, int]:
        """Return the same for new calls, op by op."""
        called = replace(self.called, seen=Counter())  # a tf.function's gradient is built only once
        with private_eager.run_functions_eagerly():
            _ = called.first_gradients
        return called.seen


def _are_equal(values: Sequence[Array], other_values: Sequence[Array]) -> bool:
    # The order of sums may differ from call to call; another draw differs by much more.
    return all(
        value.shape == other_value.shape
        and (
            np.allclose(value, other_value, rtol=1e-4, atol=1e-6 * largest_finite(value), equal_nan=True)
            if value.dtype.kind in "fc"
            else np.array_equal(value, other_value)
        )
        for value, other_value in zip(values, other_values, strict=True)
    )
