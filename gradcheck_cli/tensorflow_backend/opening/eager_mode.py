"""The eager mode: a case is called anew each time; its reference is a graph, as in every mode."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.spec.words import BINDINGS
from gradcheck_cli.tensorflow_backend.binding import behaviour
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.eager.eager_case import CalledCase
from gradcheck_cli.tensorflow_backend.eager.eager_operation import EagerOperation
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.opening.same_function import agree, float64_twin, have_same_gradients

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.opener import Opening
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState

_EAGER_IS_OFF = (
    "its module turns eager execution off (tf.compat.v1.disable_v2_behavior() or disable_eager_execution()): "
    "nothing of it is ever called eagerly."
)


@dataclass(frozen=True)
class EagerMode:
    """Eager mode."""

    def refusal(self, case: Case) -> str | None:
        """Refuse modules that turn eager execution off."""
        Binder(case, str, ()).load()
        return _EAGER_IS_OFF if behaviour.turns_eager_off() else None

    def open(self, case: Case, opening: Opening, state: CaseState) -> EagerOperation | GraphOperation:
        """Open a form of a case for calls; see `Mode`."""
        if opening.is_reference:
            return GraphOperation(TracedCase(case, opening, state))
        op = EagerOperation(CalledCase(case, opening, state))
        if not opening.reversed:
            op.check_output_shapes()
        return op

    def in_float64(self, op: EagerOperation | GraphOperation) -> EagerOperation | GraphOperation | None:
        """Open an opened op in float64 too; see `Mode`.

        It is traced if the trace has the same values and gradients, since a trace has a twin. Otherwise it is
        called with float64 inputs. That is equivalent if nothing in it casts them down or depends on the
        dtype.
        """
        if isinstance(op, GraphOperation):
            return float64_twin(op)
        if not op.low_precision:
            return None
        return _trace_in_float64(op) or _call_in_float64(op)


def _trace_in_float64(op: EagerOperation) -> GraphOperation | None:
    traced = GraphOperation(TracedCase(op.called.case, op.opening, op.called.state))
    try:
        if not (agree(op, traced) and have_same_gradients(op, traced)):
            return None
    except (CaseFailedError, GradientFormError):
        return None
    return float64_twin(traced)


def _call_in_float64(op: EagerOperation) -> EagerOperation | None:
    opening = replace(op.opening, dtype="float64")
    wide = EagerOperation(CalledCase(op.called.case, opening, op.called.state))
    try:
        if wide.low_precision or not agree(op, wide):
            return None
        _ = wide.dtype_faults  # calls the gradient: one that refuses float64 is no reference
    except (CaseFailedError, GradientFormError):
        return None
    return wide


def works_eagerly(case: Case, opening: Opening, state: CaseState) -> bool:
    """Whether a forward that can't be traced has gradients when it is called eagerly."""
    if "eager" in BINDINGS[case.binding].unfit or behaviour.turns_eager_off():
        return False
    op = EagerOperation(CalledCase(case, opening, state))
    try:
        pairs = itertools.product(range(len(op.outputs)), op.called.at.differentiable)
        return any(op.is_connected(*pair) for pair in pairs)
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return False
