"""What an eager call runs, op by op, and how its tensors are connected, as a graph shows for a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, graph_path
from gradcheck_cli.tensorflow_backend.graph_path import STOPS
from gradcheck_cli.tensorflow_backend.private import private_eager, private_graphs
from gradcheck_cli.tensorflow_backend.traces import frozen


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
