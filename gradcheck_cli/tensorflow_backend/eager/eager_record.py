"""What an eager call runs, op by op, and how its tensors are connected, as a graph shows for a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.paths import graph_path, low_precision
from gradcheck_cli.tensorflow_backend.paths.graph_path import STOP
from gradcheck_cli.tensorflow_backend.private import private_eager, private_graphs
from gradcheck_cli.tensorflow_backend.traces import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True)
class Step:
    """One op that ran: its type, the ids of its inputs, and its outputs."""

    op_type: str
    inputs: tuple[int, ...]
    outputs: tuple[Any, ...]

    @property
    def inner(self) -> list[Any]:
        """The NodeDefs of its body, if it calls a function that couldn't be inlined: a ready-made one."""
        return [] if private_graphs.op_def(self.op_type) else private_eager.function_nodes(self.op_type)

    @property
    def made(self) -> set[int]:
        """The ids of its outputs."""
        return {identity(tensor) for tensor in self.outputs}


def identity(tensor: Any) -> int:
    """Return an eager tensor's own number, which no other tensor of the process has."""
    return int(tensor._id)  # noqa: SLF001 (its only name; Python reuses an `id`)


@dataclass
class Record:
    """The ops of one call in the order in which they ran, with tf.functions replaced by their ops."""

    steps: list[Step] = field(default_factory=list)

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
        self.steps.append(Step(op_type, tuple(map(identity, tensors)), tuple(results)))

    @property
    def gives_once(self) -> bool:
        """Whether a tape of such a call gives gradients only once, as a `tf.py_function` forgets its own."""
        return any(step.op_type == "EagerPyFunc" for step in self.steps)

    def before(self, outputs: Sequence[Any]) -> list[Step]:
        """Return the steps that the outputs depend on."""
        needed = set(map(identity, outputs))
        steps = []
        for step in reversed(self.steps):
            if step.made & needed:
                needed.update(step.inputs)
                steps.append(step)
        return steps[::-1]

    def between(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Step]:
        """Return the steps that depend on any of the inputs and that any of the outputs depends on."""
        return self._after(set(map(identity, inputs)), outputs)

    def _after(self, reached: set[int], outputs: Sequence[Any]) -> list[Step]:
        steps = []
        for step in self.before(outputs):
            if reached.intersection(step.inputs):
                reached |= step.made
                steps.append(step)
        return steps

    def leads_to(self, tensor: Any, output: Any, held_ids: Iterable[int], *, stops: bool = False) -> bool:
        """Whether a tensor moves an output through floating tensors; see `path.leads_to`."""
        flat = graph_path.FLAT - {STOP} if stops else graph_path.FLAT
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
        """Whether a tensor moves an output only through NumPy functions; see `path`."""
        steps = self.between([tensor], [output])
        closed = {
            tensor_id for step in steps if step.op_type in graph_path.NUMPY_CALLS for tensor_id in step.made
        }
        return bool(closed) and not self.leads_to(tensor, output, closed)

    def low_precision(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[str, ...]:
        """Return the dtypes below float64 that occur between inputs and outputs."""
        tensors_by_id = {identity(tensor): tensor for step in self.steps for tensor in step.outputs}
        tensors_by_id |= {identity(tensor): tensor for tensor in inputs}
        names = set()
        for step in self.between(inputs, outputs):
            tensors = [
                *step.outputs,
                *[tensors_by_id[tensor_id] for tensor_id in step.inputs if tensor_id in tensors_by_id],
            ]
            names |= {tensor.dtype.name for tensor in tensors if dtypes.is_differentiable(tensor.dtype)}
            names |= low_precision.dtypes_in_attrs(step.inner)
        return tuple(sorted(names - {"float64", "complex128"}))

    def stops(self, tensor: Any, output: Any) -> set[int]:
        """Return the ids of the outputs of the `stop_gradient`s between a tensor and an output."""
        start = {identity(tensor)}
        if tensor.dtype == tf.resource:
            # An op with a variable as its input reads it without a separate op: a tensor that no op has made
            # may be such a value.
            made_ids = {tensor_id for step in self.steps for tensor_id in step.made}
            start |= {tensor_id for step in self.steps for tensor_id in step.inputs} - made_ids
        stops = [step for step in self._after(start, [output]) if step.op_type == STOP]
        return {tensor_id for step in stops for tensor_id in step.made}

    def quantisers(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[str, ...]:
        """Return the types of ops between inputs and outputs that round."""
        types = [
            name for step in self.between(inputs, outputs) for name in (step.op_type, *_types(step.inner))
        ]
        return tuple(sorted({name for name in types if name.startswith(graph_path.QUANTISERS)}))

    def closed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
        """Return the ready-made functions between inputs and outputs with a `stop_gradient` inside."""
        return [
            step.op_type
            for step in self.between(inputs, outputs)
            if any(node.op == STOP for node in step.inner)
        ]

    def draws(self, outputs: Sequence[Any]) -> list[str]:
        """Return the types of the random ops that the outputs depend on, one for each op that ran."""
        types = [name for step in self.before(outputs) for name in (step.op_type, *_types(step.inner))]
        return [name for name in types if frozen.is_random(name)]

    def unheld_draws(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
        """Return the types of random ops that no seed fixes: their draw changes as the inputs move."""
        between = {
            name for step in self.between(inputs, outputs) for name in (step.op_type, *_types(step.inner))
        }
        before = {name for step in self.before(outputs) for name in (step.op_type, *_types(step.inner))}
        varying = {name for name in before if graph_path.is_varying(name) and not frozen.is_random(name)}
        return sorted((between & graph_path.IMPLICIT_SAMPLERS) | varying)


def _types(nodes: Iterable[Any]) -> set[str]:
    return {node.op for node in nodes}
