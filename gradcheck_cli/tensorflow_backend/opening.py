"""Open a case as traced ops: as declared, in float64 where that is the same function, or its reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.checking.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import private_gradients
from gradcheck_cli.tensorflow_backend.base_run import Shared
from gradcheck_cli.tensorflow_backend.covering import require_seen
from gradcheck_cli.tensorflow_backend.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.how import GRAPH, How
from gradcheck_cli.tensorflow_backend.second_order import vjp_opener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.eager_operation import EagerOperation

# The float64 forward may differ from the declared one by what the declared dtype rounds, relative to the
# output's largest value. About the square root of the unit roundoff: far more than a sane forward loses,
# far less than another function gives.
_AGREEMENT = {"float32": 1e-3, "complex64": 1e-3, "float16": 0.1, "bfloat16": 0.25}


@dataclass(frozen=True)
class GraphOpener:
    """Opens one case in graph mode; every call traces afresh.

    Attributes:
        case: the case.
        shared: draws of random numbers, the same in every trace.
        how: with which shapes it is traced, and whether it is compiled.
    """

    case: Case
    shared: Shared = field(default_factory=Shared)
    how: How = GRAPH

    def declared(self, sample: int) -> GraphOperation:
        """Open the op in the dtypes that the spec names.

        Raises:
            CaseFailedError: the forward raises, or its outputs aren't what the spec says.
        """
        op = GraphOperation(self.case, sample, shared=self.shared, how=self.how)
        op.check_output_shapes()
        return op

    def afresh(self, own: GraphOperation) -> GraphOperation:
        """Trace an opened op's gradient once more, at the same point."""
        return own.afresh()

    def reordered(self, sample: int) -> GraphOperation:
        """Open the op with the variables of its custom gradients in reverse order."""
        return GraphOperation(self.case, sample, shared=self.shared, how=self.how, reverse=True)

    def vjp(self, own: Operation) -> GraphOpener:
        """Return what opens the vjp of an opened op as an op of its own."""
        return vjp_opener(self, own)  # type: ignore[no-any-return]

    def surrogate(self, sample: int) -> GraphOperation:
        """Open the spec's reference function in the dtypes that the spec names; as a graph in every mode."""
        return GraphOperation(self.case, sample, surrogate=True, shared=self.shared)

    def gradients_seen(self, own: GraphOperation) -> Mapping[str, int]:
        """Return how often each registered gradient function was called as an op's vjp was built.

        Raises:
            CaseFailedError: of kind "covers": one that the spec covers wasn't.
        """

        def anew() -> Mapping[str, int]:
            with private_gradients.functions_differentiated_anew():
                again = GraphOperation(self.case, own.sample, shared=self.shared, how=own.how)
                return again.gradients_seen

        is_vjp = self.shared.vjp is not None
        return require_seen(self.case, own.gradients_seen, anew, is_vjp=is_vjp)

    def in_float64(self, own: GraphOperation) -> GraphOperation | None:
        """Open an opened op in float64 too; `None` where that isn't the same function.

        It isn't where a float32 Keras layer casts down again, where the forward refuses float64, or where
        its values are others than the declared dtype's. Nor is it needed where all is float64 already.
        """
        if not own.low_precision:
            return None
        wide = GraphOperation(
            self.case,
            own.sample,
            reference_precision=True,
            surrogate=own.surrogate,
            shared=self.shared,
            how=own.how,
            with_joint=False,
        )
        try:
            if wide.low_precision or not agree(own, wide):
                return None
            if not own.surrogate:
                wide.dtype_faults  # noqa: B018 (traces the vjp: one that refuses float64 is no reference)
        except (CaseFailedError, GradientFormError):
            return None
        return wide

    def in_complex(self, own: GraphOperation) -> GraphOperation:
        """Open an opened op in complex128, for the complex step.

        Raises:
            CaseFailedError: it has complex tensors already, or its forward refuses complex ones.
        """
        require_real(own)
        op = GraphOperation(
            self.case,
            own.sample,
            surrogate=own.surrogate,
            in_complex=True,
            shared=self.shared,
            how=own.how,
        )
        require_complex(op)
        return op


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
        allowed = _AGREEMENT.get(narrow.dtype, 1e-9) * scale
        if np.any(np.abs(value[finite] - reference[finite]) > allowed):
            return False
    return True
