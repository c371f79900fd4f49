"""Open a case as traced ops: as declared, in float64 where that is the same function, or its reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.second_order import vjp_opener
from gradcheck_cli.tensorflow_backend.private import private_gradients
from gradcheck_cli.tensorflow_backend.registry.covering import require_seen
from gradcheck_cli.tensorflow_backend.traces.trace_mode import GRAPH, How

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.eager.eager_operation import EagerOperation

# The float64 forward may differ from the declared one by what the declared dtype rounds, relative to the
# output's largest value. About the square root of the unit roundoff: far more than a sane forward loses,
# far less than another function gives.
_AGREEMENT = {"float32": 1e-3, "complex64": 1e-3, "float16": 0.1, "bfloat16": 0.25}


@dataclass(frozen=True)
class GraphOpener:
    """Opens one case in graph mode; the graphs that are traced first serve every point.

    Attributes:
        case: the case.
        state: draws of random numbers, the same in every trace.
        how: with which shapes it is traced, and whether it is compiled.
    """

    case: Case
    state: CaseState = field(default_factory=CaseState)
    how: How = GRAPH

    def declared(self, sample: int) -> GraphOperation:
        """Open the op in the dtypes that the spec names.

        Raises:
            CaseFailedError: the forward raises, or its outputs aren't what the spec says.
        """
        op = self._op(sample)
        op.check_output_shapes()
        return op

    def _op(self, sample: int, how: How | None = None, **flags: Any) -> GraphOperation:
        """Open an op with the graphs of the first that was opened with these flags."""
        how = how or self.how
        key = (how, frozenset(flags.items()))
        if key in self.state.graphs:
            return self.state.graphs[key].at_sample(sample)  # type: ignore[no-any-return]
        op = GraphOperation(self.case, sample, state=self.state, how=how, **flags)
        self.state.graphs[key] = op
        return op

    def afresh(self, own: GraphOperation) -> GraphOperation:
        """Trace an opened op's gradient once more, for the same point."""
        return own.afresh()

    def reordered(self, sample: int) -> GraphOperation:
        """Open the op with the variables of its custom gradients in reverse order."""
        return self._op(sample, reverse=True)

    def vjp(self, own: Operation) -> GraphOpener:
        """Return what opens the vjp of an opened op as an op of its own."""
        return vjp_opener(self, own)  # type: ignore[no-any-return]

    def surrogate(self, sample: int) -> GraphOperation:
        """Open the spec's reference function in the dtypes that the spec names; as a graph in every mode."""
        return self._op(sample, GRAPH, surrogate=True)

    def gradients_seen(self, own: GraphOperation) -> Mapping[str, int]:
        """Return how often each registered gradient function was called as an op's vjp was built.

        Raises:
            CaseFailedError: of kind "covers": one that the spec covers wasn't.
        """

        def anew() -> Mapping[str, int]:
            with private_gradients.functions_differentiated_anew():
                again = GraphOperation(self.case, own.sample, state=self.state, how=own.how)
                return again.gradients_seen

        is_vjp = self.state.vjp is not None
        return require_seen(self.case, own.gradients_seen, anew, is_vjp=is_vjp)

    def in_float64(self, own: GraphOperation) -> GraphOperation | None:
        """Return the float64 twin of an opened op; `None` where all is float64, or where it can't be had.

        It can't where its values are others than the declared dtype's (which overflows, say).
        """
        if not own.low_precision:
            return None
        try:
            wide = own.in_float64()
            if not agree(own, wide):
                own.no_twin = "its outputs are others in float64: it overflows, or takes another branch"
                return None
            if not own.surrogate and not _runs_as(own, wide):
                own.no_twin = "its gradient is another one in float64: a kernel there goes by equal values"
                return None
        except GradientFormError:  # a finding, which comes up again where it is looked for
            return None
        except (CaseFailedError, ValueError, tf.errors.OpError) as error:
            own.no_twin = f"its graph can't be run in float64: {frames.first_line(error)}"
            return None
        return wide

    def in_complex(self, own: GraphOperation) -> GraphOperation:
        """Open an opened op in complex128, for the complex step.

        Raises:
            CaseFailedError: it has complex tensors already, or its forward refuses complex ones.
        """
        require_real(own)
        op = self._op(own.sample, own.how, surrogate=own.surrogate, in_complex=True)
        require_complex(op)
        return op


def _runs_as(own: GraphOperation, wide: GraphOperation) -> bool:
    """Run the vjp once: that there is a kernel for each op shows only then.

    Where some kernels stay in the declared dtype, the gradient must be the declared one's too: one that looks
    for the values it picked (MaxPool3DGradGrad) may find none among values that were cast.
    """
    for number, output in enumerate(wide.outputs):
        if not output.is_differentiable:
            continue
        ones = np.ones((1, *output.shape))
        found = wide.vjp(number, ones)
        if not wide.not_float64:
            continue
        for first, second in zip(own.vjp(number, ones), found, strict=True):
            if first is None or second is None:
                continue
            largest = float(np.max(np.abs(first), initial=0.0))
            apart = float(np.max(np.abs(first - second), initial=0.0))
            if apart > _AGREEMENT.get(own.outputs[number].dtype, 1e-3) * largest:
                return False
    return True


def require_real(own: GraphOperation | EagerOperation) -> None:
    """Refuse to take the complex step of what is complex already, or of variables, which keep their dtype.

    Raises:
        CaseFailedError: of kind "forward".
    """
    if own.at.count < len(own.inputs):
        raise CaseFailedError(
            "forward", "method: complex_step can't move variables, which stay real: use method: auto."
        )
    if any(info.is_complex for info in (*own.inputs, *own.outputs)):
        raise CaseFailedError(
            "forward", "method: complex_step is for real functions; this one is complex: use method: auto."
        )


def require_complex(op: Operation) -> None:
    """Refuse an op that was opened in complex128 and raises there, or is real all the same.

    Raises:
        CaseFailedError: of kind "forward", or of that which the forward raises.
    """
    try:
        refused = [info.name for info in op.outputs if info.is_differentiable and not info.is_complex]
    except CaseFailedError as error:
        raise CaseFailedError(
            error.kind,
            f"method: complex_step needs a forward that takes complex128: {error.message} Use method: auto.",
            error.traceback,
        ) from error
    if refused:
        raise CaseFailedError(
            "forward",
            f"method: complex_step needs a forward that stays complex, but {', '.join(refused)} is real "
            "when the inputs are complex128. Use method: auto.",
        )


def agree(own: Operation, wide: Operation) -> bool:
    """Whether an op and its form in a wider dtype have the same values at the base point."""
    for narrow, output, own_value, wide_value in zip(
        own.outputs, wide.outputs, own.base_values, wide.base_values, strict=True
    ):
        value: Any = own_value
        reference: Any = wide_value
        if value.shape != reference.shape:
            return False
        if not output.is_differentiable:
            if not np.array_equal(value, reference):
                return False
            continue
        finite = np.isfinite(value)
        if not np.array_equal(finite, np.isfinite(reference)):
            return False
        scale = float(np.max(np.abs(reference[finite]), initial=0.0))
        allowed = max(_AGREEMENT.get(name, 1e-9) for name in (narrow.dtype, *own.low_precision)) * scale
        if np.any(np.abs(value[finite] - reference[finite]) > allowed):
            return False
    return True
