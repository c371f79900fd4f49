"""An op in eager mode, as the checks see it: the user's own function, called under a GradientTape."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.opener import OpenedOperation
from gradcheck_cli.checking.ops.operation import GradientFormError, OpFacts, OpForms, TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.binding import flat_outputs
from gradcheck_cli.tensorflow_backend.binding.arguments import plain_name
from gradcheck_cli.tensorflow_backend.dtypes import Stack, value_of
from gradcheck_cli.tensorflow_backend.eager.eager_case import CalledCase, describe_failure
from gradcheck_cli.tensorflow_backend.eager.eager_record import identity
from gradcheck_cli.tensorflow_backend.paths.graph_path import STOP
from gradcheck_cli.tensorflow_backend.private import private_eager, private_state
from gradcheck_cli.tensorflow_backend.spoiling import pull_in_spoilt_memory
from gradcheck_cli.tensorflow_backend.traces.state import at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import ShapeChangesError, require_shapes

Array = np.ndarray[Any, Any]


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
        if self.called.stops is not None or self.called.case.freeze is not True:
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
        holds_all = self.called.stops is None and self.called.case.freeze is True
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
    has_own = not call.is_plain or called.case.gradient is not None
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
        with (
            at_values(self.called.state.variables, moved)
            if moved
            else contextlib.nullcontext() as sample_rows
        ):
            for row in sample_rows or range(len(next(iter(batch.values())))):
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
        # It accepted the base point, so the point is at fault. What isn't compared is as ever.
        self.called.state.note_refusal(failure)
        return [
            np.full(output.shape, np.nan) if output.is_differentiable else value
            for output, value in zip(self.called.outputs, self.called.base_values, strict=True)
        ]

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
        rows = [self._widen_row(gradients) for gradients in self.called.gradients(upstreams)]
        result: list[Array | None] = [None] * len(self.called.inputs)
        for input_index in self.called.at.differentiable:
            column = [row[input_index] for row in rows]
            gradients = [value for value in column if value is not None]
            if len({value.shape for value in gradients}) > 1:
                name = self.called.inputs[input_index].name
                message = f"the gradient for {name} changes shape with its upstream."
                raise GradientFormError((input_index,), message)
            if gradients:  # None for some upstreams only: the same as zero there
                zero = np.zeros_like(gradients[0])
                result[input_index] = np.stack([zero if value is None else value for value in column])
        return result

    def _widen_row(self, gradients: Mapping[int, Any]) -> dict[int, Array | None]:
        return {
            input_index: None if gradient is None else dtypes.widen(gradient.numpy())
            for input_index, gradient in gradients.items()
        }


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
            forms=OpForms(partial(_hold, called)),
            evaluate=runs.evaluate,
            vjp=runs.vjp,
            joint_vjp=runs.joint_vjp,
            jvp=runs.jvp,
            rounded_sizes=runs.rounded_sizes,
        )

    def again(self) -> EagerOperation:
        """Return the op, to be called anew at the same point."""
        called = self.called
        op = EagerOperation.of(CalledCase(called.case, called.opening, called.state, called_twice=True))
        op.check_output_shapes()
        return op

    @cached_property
    def trainable(self) -> tuple[Any, ...]:
        """The trainable variables that the forward uses, the oldest first."""
        with self.called.call.call_unheld() as call, tf.GradientTape() as tape:
            call(*self.called.tensors)
        return tuple(private_state.in_order_of_creation(tape.watched_variables()))

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

    def check_output_shapes(self) -> None:
        """Compare the outputs' shapes with those that the spec gives.

        Raises:
            CaseFailedError: of kind "outputs".
        """
        flat_outputs.check_shapes(self.called.case, [info.name for info in self.outputs], self.base_values)


def _hold(called: CalledCase, stops: frozenset[str]) -> EagerOperation:
    return EagerOperation.of(replace(called, stops=stops))


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
