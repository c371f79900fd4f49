"""A case's vjp as a function of its own, of the inputs and the upstreams, to be differentiated again.

Its outputs are the gradients, one for each connected pair. Its inputs are those of the forward, followed by
an upstream for each output. The code that opens a case opens this one as well: only the function differs.
"""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Operation, TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Argument, Case, InputSpec, OutputSpec
from gradcheck_cli.spec.words import CHECKS
from gradcheck_cli.tensorflow_backend.binding.binder import Binder, Bound
from gradcheck_cli.tensorflow_backend.op_types import NUMPY_CALLS
from gradcheck_cli.tensorflow_backend.private.private_gradients import dense
from gradcheck_cli.tensorflow_backend.traces.trace_faults import gradients_of, naming_user_errors

# Whether a vjp that is called eagerly backpropagates: a `stop_gradient` that runs then isn't its forward's.
IS_BACKPROPAGATION = contextvars.ContextVar("is_backpropagation", default=False)
# These checks concern the forward, or each trace: the first order has already run them.
_CHECKS_OFF = frozenset(name for name, check in CHECKS.items() if not check.is_of_vjp)


@dataclass(frozen=True)
class Vjp:
    """The vjp that a case stands for, of another case's forward."""

    forward_case: Case  # the case that is differentiated, with its variables among the arguments
    outputs: tuple[TensorInfo, ...]
    # for each differentiable output, the indices of the inputs that it has a gradient for
    connected: Mapping[int, tuple[int, ...]]
    count: int  # how many of that case's inputs are arguments of the forward; the rest are variables

    def bound(self, binder: Binder, variables: Sequence[Any], *, surrogate: bool = False) -> Bound:
        """Bind the vjp.

        Args:
            binder: binds a case: its `case` and `point` are those of the vjp.
            variables: the variables among the inputs.
            surrogate: bind the vjp of the spec's reference, which is zero where there is no gradient.
        """
        forward_binder = replace(
            binder,
            case=self.forward_case,
            point=[*binder.point[: self.count], *binder.point[self.count + len(self.connected) :]],
            output_shapes=[output.shape for output in self.outputs],
            names=[],  # the names of the forward's outputs are known
        )
        forward = forward_binder.reference() if surrogate else forward_binder.forward()
        # The forward's own backward pass, which makes the gradients, decides which stops can be held.
        forward_outputs: list[Any] = []

        def call(*tensors: Any) -> list[Any]:
            arguments, upstreams = tensors[: self.count], tensors[self.count :]
            sources = [*arguments, *variables]
            input_indices = [
                input_index
                for input_index, tensor in enumerate(self.forward_case.tensors)
                if tensor.is_differentiable
            ]
            chosen_sources = [sources[input_index] for input_index in input_indices]
            pull = _pull_eagerly if tf.executing_eagerly() else _pull
            all_gradients = []
            flows = dict(zip(self.connected, upstreams, strict=True))
            outputs, rows = pull(forward, arguments, chosen_sources, flows)
            for (output, connected), row in zip(self.connected.items(), rows, strict=True):
                gradients = {
                    input_index: gradient
                    for input_index, gradient in zip(input_indices, row, strict=True)
                    if gradient is not None
                }
                if surrogate:
                    gradients = {
                        index: gradients.get(index, tf.zeros_like(sources[index])) for index in connected
                    }
                elif tuple(gradients) != connected:
                    raise CaseFailedError(
                        "gradient",
                        f"the gradient of {self.outputs[output].name} is None for other inputs each time: "
                        "its second order can't be taken.",
                    )
                all_gradients += list(gradients.values())
            forward_outputs[:] = outputs
            return all_gradients

        return Bound(call, backprop_starts=lambda: forward_outputs)


def _pull(
    forward: Bound, arguments: Sequence[Any], sources: Sequence[Any], flows: Mapping[int, Any]
) -> tuple[list[Any], list[list[Any]]]:
    results = forward.call(*arguments)
    rows = [gradients_of([results[output]], sources, [flow]) for output, flow in flows.items()]
    return results, rows


def _pull_eagerly(
    forward: Bound, arguments: Sequence[Any], sources: Sequence[Any], flows: Mapping[int, Any]
) -> tuple[list[Any], list[list[Any]]]:
    with tf.GradientTape(persistent=True) as tape:
        for tensor in sources:
            tape.watch(tensor)
        results = forward.call(*arguments)
    token = IS_BACKPROPAGATION.set(True)
    try:
        with naming_user_errors():
            pulled = [
                tape.gradient([results[output]], list(sources), output_gradients=[flow])
                for output, flow in flows.items()
            ]
    finally:
        IS_BACKPROPAGATION.reset(token)
    return results, [[*map(dense, row, sources)] for row in pulled]


def case_of_vjp(case: Case, op: Operation, reference: Any = None) -> tuple[Case, Vjp]:
    """Return the case of a case's vjp, and the vjp that it stands for.

    Args:
        case: the case to differentiate.
        op: the opened op, which shows which gradients there are.
        reference: the case's opened reference; `None` where it has none.
    """
    differentiable = [input_index for input_index, info in enumerate(op.inputs) if info.is_differentiable]
    connected = {
        output: tuple(
            input_index for input_index in differentiable if op.facts.is_connected(output, input_index)
        )
        for output, info in enumerate(op.outputs)
        if info.is_differentiable
    }
    connected = {output: inputs for output, inputs in connected.items() if inputs}
    count = sum(not tensor.is_variable for tensor in case.tensors)
    vjp = Vjp(case, tuple(op.outputs), connected, count)
    reference_ops = [] if reference is None else reference.traced.forward.function.graph.get_operations()
    if any(op.type in NUMPY_CALLS for op in reference_ops):
        # TensorFlow has no gradient for it. The vjp is then compared with differences of the gradient itself:
        # the first order has shown that this is the reference's.
        case = replace(case, reference=None)
    return second_order_case(case, op.outputs, connected), vjp


def second_order_case(
    case: Case, outputs: Sequence[TensorInfo], connected: Mapping[int, tuple[int, ...]]
) -> Case:
    """Return the case of a case's vjp.

    Args:
        case: with its variables among the arguments.
        outputs: its outputs at the base point.
        connected: for each differentiable output, the indices of the inputs that it has a gradient for.
    """
    used_names = {tensor.name for tensor in case.tensors}
    free = itertools.chain(("u", "upstream"), (f"upstream_{suffix}" for suffix in itertools.count(2)))
    name = next(name for name in free if name not in used_names)
    flows = tuple(
        Argument(name, (InputSpec(name, info.dtype, info.shape, upstream_of=info.name),))
        for info in (outputs[output] for output in connected)
    )
    own_arguments = tuple(argument for argument in case.arguments if not argument.tensors[0].is_variable)
    gradients = tuple(
        OutputSpec(
            f"d{outputs[output].name}/d{case.tensors[input_index].name}", gradient_of=outputs[output].name
        )
        for output, input_indices in connected.items()
        for input_index in input_indices
    )
    return replace(
        case,
        arguments=(*own_arguments, *flows, *case.arguments[len(own_arguments) :]),
        outputs=gradients,
        reference=case.reference and replace(case.reference, equals_forward=False),
        judging=replace(
            case.judging,
            checks_off=case.judging.checks_off | _CHECKS_OFF,
            second_order=(),
        ),
    )
