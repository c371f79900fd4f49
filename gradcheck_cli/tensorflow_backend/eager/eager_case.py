"""A case called eagerly at one sample point: its tensors, its first call, and calls under a tape."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError, TensorInfo
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.tensorflow_backend import dtypes, frames
from gradcheck_cli.tensorflow_backend.binding import declared_outputs
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.eager.eager_call import EagerCall
from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
from gradcheck_cli.tensorflow_backend.graph.sample_point import SamplePoint
from gradcheck_cli.tensorflow_backend.graph.second_order import bind
from gradcheck_cli.tensorflow_backend.private import private_eager, private_gradients, private_sites
from gradcheck_cli.tensorflow_backend.stacks import value_of
from gradcheck_cli.tensorflow_backend.traces.gradients import dense, in_users_words
from gradcheck_cli.tensorflow_backend.traces.trace_faults import run_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.stacks import Stack

    Array = np.ndarray[Any, Any]


@dataclass
class CalledCase:
    """One case, called eagerly at one sample point; nothing is traced.

    Attributes:
        case: the case.
        opening: the sample point, and the dtypes of the call.
        state: the state that all ops of the case share.
        stops: keys of the `stop_gradient`s that are held as the inputs move; `None`: as the spec says.
        seen: how often each registered gradient function was called, where that is counted.
    """

    case: Case
    opening: Opening = field(default_factory=Opening)
    state: CaseState = field(default_factory=CaseState)
    stops: frozenset[str] | None = None
    seen: Counter[str] = field(default_factory=Counter)
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
        names = declared_outputs.names(self.case, len(self.base), self._names)
        found_dtypes = [value.dtype for value in self.base]
        return declared_outputs.infos(
            self.case, names, found_dtypes, [tuple(value.shape) for value in self.base]
        )

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point."""
        return [dtypes.widen(value.numpy()) for value in self.base]

    def _counting(self) -> contextlib.AbstractContextManager[None]:
        return private_gradients.count_gradients(self.seen)

    def gradients(
        self,
        upstreams: Mapping[int, Stack],
        watching: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> list[dict[int, Any]]:
        """Call the forward once, and return the gradients by input for each row of upstreams."""
        sources = [*self.tensors, *self.state.variables]
        sources_by_input = {input_index: sources[input_index] for input_index in self.at.differentiable}
        rows: list[dict[int, Any]] = []
        with self.call.call_unheld() as call:
            for row in range(len(next(iter(upstreams.values())))):
                if rows and self.call.must_begin_anew:
                    self.call.restore()
                if not rows or self.call.record.gives_once or self.call.must_begin_anew:
                    tape, outputs = self._taped(call, list(sources_by_input.values()))
                    self.call.reseed(self.call.seed + 1)  # gradient's draws are independent of the forward's
                targets = [outputs[output] for output in upstreams]
                flows = [
                    _flow(stack, row, target)
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
                        input_index: dense(gradient, sources_by_input[input_index])
                        for input_index, gradient in zip(sources_by_input, row_gradients, strict=True)
                    }
                )
        return rows

    def _taped(self, call: Callable[..., list[Any]], watched: Sequence[Any]) -> tuple[Any, list[Any]]:
        with tf.GradientTape(persistent=True) as tape:
            for tensor in watched:
                tape.watch(tensor)
            return tape, call(*self.tensors)

    @cached_property
    def first_gradients(self) -> dict[int, dict[int, Any]]:
        """Gradients for upstreams of ones: they show which gradients exist, and their dtypes."""
        _ = self.base  # the call at the base point comes first
        by_output: dict[int, dict[int, Any]] = {}
        for output, info in enumerate(self.outputs):
            if not (info.is_differentiable and self.at.differentiable):
                continue
            ran: list[Any] = []
            with private_eager.exclude_inner_gradients(ran.append):
                by_output[output] = self.gradients({output: np.ones((1, *info.shape))}, self._counting)[0]
            if self.state.vjp is None:
                for site in map(private_sites.site_of_gradient, ran):
                    for input_index, gradient in by_output[output].items():
                        if gradient is not None:
                            self.state.gradients.add(site, info.name, self.inputs[input_index].name)
        return by_output

    # Calls, each made when it is first needed and then cached.

    @cached_property
    def call(self) -> EagerCall:
        """The forward as a function that is called repeatedly."""
        names, built = self._names, self.state.built
        binder = Binder(self.case, self._dtype_of, self.at.point, names=names, built=built)
        shapes: list[tuple[int, ...]] = []
        if self.case.gradient is not None and self.case.gradient.numpy and self.state.vjp is None:
            # Such a gradient is tried at the base point, for which the outputs' shapes must be known.
            shapes = [tuple(value.shape) for value in self._guarded(binder.body())]
            binder = Binder(self.case, self._dtype_of, self.at.point, shapes, names=names, built=built)
        seed = 1 + (self.case.seed * 1_000_003 + self.opening.sample) % (2**31 - 1)
        call = bind(binder, self.state.vjp, self.state.variables).call
        return EagerCall(call, self.holds, seed, self.opening.reversed, left=self.state.written)

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
    def places(self) -> list[Any]:
        """The tensors that stand for each input in a call; for a variable, its handle."""
        return [*self.tensors, *[variable.handle for variable in self.state.variables]]

    @property
    def moving(self) -> list[Any]:
        """The tensors that stand for each input that is differentiated by."""
        return [self.places[input_index] for input_index in self.at.differentiable]

    @cached_property
    def base(self) -> list[Any]:
        """The outputs of the call at the base point, as tensors."""
        with self.state.seeded_at_first_use(self.case.seed):
            outputs = self._guarded(lambda *tensors: self.call.call_at_base(tensors))
        found_dtypes = [value.dtype for value in outputs]
        names = declared_outputs.names(self.case, len(found_dtypes), self._names)
        declared_outputs.check_dtypes(self.case, names, found_dtypes, self._dtype_of, "forward")
        return outputs

    def _guarded(self, call: Any) -> list[Any]:
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


def _flow(stack: Stack, row: int, target: Any) -> Any:
    value = value_of(stack, row, tuple(target.shape))
    return tf.constant(dtypes.narrow(value, target.dtype.name), target.dtype)


def describe_failure(error: BaseException, what: str) -> CaseFailedError:
    """Describe what the user's code raised."""
    if isinstance(error, tf.errors.OpError):
        return run_error(error, what)
    return CaseFailedError(what, f"the {what} raised {frames.first_line(error)}", frames.user_frames(error))
