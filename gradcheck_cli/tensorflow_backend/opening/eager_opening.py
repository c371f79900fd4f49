"""Open a case eagerly: as declared, in float64 where that is the same function; its reference as a graph."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.upstreams import ROUNDINGS
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.tensorflow_backend.eager.eager_operation import EagerOperation
from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.second_order import vjp_opener
from gradcheck_cli.tensorflow_backend.opening.graph_opening import (
    GraphOpener,
    agree,
    require_complex,
    require_real,
)
from gradcheck_cli.tensorflow_backend.private import private_eager
from gradcheck_cli.tensorflow_backend.registry.covering import require_seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class EagerOpener:
    """Opens one case in eager mode; every call calls the forward anew.

    Attributes:
        case: the case.
        state: what its factory built.
    """

    case: Case
    state: CaseState = field(default_factory=CaseState)

    def declared(self, sample: int) -> EagerOperation:
        """Open the op in the dtypes that the spec names.

        Raises:
            CaseFailedError: the forward raises, or its outputs aren't what the spec says.
        """
        op = EagerOperation(self.case, sample, state=self.state)
        op.check_output_shapes()
        return op

    def afresh(self, own: EagerOperation) -> EagerOperation:
        """Open an opened op once more, at the same point."""
        return self.declared(own.sample)

    def reordered(self, sample: int) -> EagerOperation:
        """Open the op with the variables of its custom gradients in reverse order."""
        return EagerOperation(self.case, sample, state=self.state, reverse=True)

    def vjp(self, own: Operation) -> EagerOpener:
        """Return what opens the vjp of an opened op as an op of its own."""
        return vjp_opener(self, own)  # type: ignore[no-any-return]

    def surrogate(self, sample: int) -> GraphOperation:
        """Open the spec's reference function in the dtypes that the spec names; as a graph in every mode."""
        return GraphOperation(self.case, sample, surrogate=True, state=self.state)

    def gradients_seen(self, own: EagerOperation) -> Mapping[str, int]:
        """Return how often each registered gradient function was called for an upstream of each output.

        Raises:
            CaseFailedError: of kind "covers": one that the spec covers wasn't.
        """

        def opened() -> Mapping[str, int]:
            # The gradient of a tf.function is built once, as it is called under a tape.
            with private_eager.functions_run_eagerly():
                return EagerOperation(self.case, own.sample, state=self.state).gradients_seen

        is_vjp = self.state.vjp is not None
        return require_seen(self.case, own.gradients_seen, opened, is_vjp=is_vjp)

    def in_float64(self, own: EagerOperation | GraphOperation) -> EagerOperation | GraphOperation | None:
        """Open an opened op in float64 too; `None` where that isn't needed, or isn't the same function.

        Traced, where the trace has the same values and gradients: a trace has a twin. Else it is called with
        float64 inputs, which is as good where nothing in it casts them down, or goes by the dtype.
        """
        if isinstance(own, GraphOperation):
            return GraphOpener(self.case, self.state).in_float64(own)
        if not own.low_precision:
            return None
        return self._twin(own) or self._called_in_float64(own)

    def _twin(self, own: EagerOperation) -> GraphOperation | None:
        traced = GraphOperation(self.case, own.sample, state=self.state)
        try:
            if not (agree(own, traced) and _have_the_same_gradients(own, traced)):
                return None
        except (CaseFailedError, GradientFormError):
            return None
        return GraphOpener(self.case, self.state).in_float64(traced)

    def _called_in_float64(self, own: EagerOperation) -> EagerOperation | None:
        wide = EagerOperation(self.case, own.sample, reference_precision=True, state=self.state)
        try:
            if wide.low_precision or not agree(own, wide):
                return None
            wide.dtype_faults  # noqa: B018 (calls the gradient: one that refuses float64 is no reference)
        except (CaseFailedError, GradientFormError):
            return None
        return wide

    def in_complex(self, own: EagerOperation | GraphOperation) -> EagerOperation | GraphOperation:
        """Open an opened op in complex128, for the complex step.

        Raises:
            CaseFailedError: it has complex tensors already, or its forward refuses complex ones.
        """
        if isinstance(own, GraphOperation):
            return GraphOpener(self.case, self.state).in_complex(own)
        require_real(own)
        op = EagerOperation(self.case, own.sample, in_complex=True, state=self.state)
        require_complex(op)
        return op


def _have_the_same_gradients(own: EagerOperation, traced: GraphOperation) -> bool:
    """Whether a call and a trace have the same gradients, but for rounding, for a random upstream."""
    generator = np.random.default_rng([own.case.seed, own.sample])
    for output, info in enumerate(own.outputs):
        if not info.is_differentiable:
            continue
        upstream = generator.normal(size=(1, *info.shape))
        for called, found in zip(own.vjp(output, upstream), traced.vjp(output, upstream), strict=True):
            if called is None or found is None:
                if called is not found:
                    return False
                continue
            with np.errstate(invalid="ignore"):
                apart = np.abs(called - found)
                largest = np.max(np.abs(found), initial=0.0, where=np.isfinite(found))
            unit = max(precision_of(name).unit_roundoff for name in own.low_precision)
            if not np.all((apart <= ROUNDINGS * unit * largest) | (np.isnan(called) & np.isnan(found))):
                return False
    return True


def works_eagerly(case: Case, sample: int, state: CaseState) -> bool:
    """Whether a forward that can't be traced has gradients where it is called eagerly."""
    op = EagerOperation(case, sample, state=state)
    try:
        pairs = itertools.product(range(len(op.outputs)), op.at.differentiable)
        return any(op.is_connected(*pair) for pair in pairs)
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return False
