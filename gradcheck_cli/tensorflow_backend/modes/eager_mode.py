"""Eager mode: the user's function is called, and traced only where a trace is the same function."""

from __future__ import annotations

import itertools
from dataclasses import replace

from gradcheck_cli import hooks
from gradcheck_cli.checking.ops.operation import GradientFormError, Opening
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState, TracedCase
from gradcheck_cli.tensorflow_backend.modes.eager_operation import CalledCase, EagerOperation
from gradcheck_cli.tensorflow_backend.modes.graph_modes import (
    GraphMode,
    agree,
    check_output_shapes,
    float64_twin,
)

_BY_OVERRIDE = "attaches the gradient by an override, which eager mode ignores; use binding: custom_gradient."
# The bindings that need a graph, with the reason.
_NOT_EAGER = {
    "override": f"binding override {_BY_OVERRIDE}",
    "py_func": f"binding py_func {_BY_OVERRIDE}",
    "defun": "a Defun is a graph's function: it raises in eager mode.",
}
_EAGER_IS_OFF = (
    "its module turns eager execution off (tf.compat.v1.disable_v2_behavior() or disable_eager_execution()): "
    "none of its functions is called eagerly."
)


class EagerMode(GraphMode):
    """Eager mode."""

    def refusal(self, case: Case) -> str | None:
        """Refuse bindings that need a graph, and modules that turn eager execution off."""
        if case.code.binding in _NOT_EAGER:
            return _NOT_EAGER[case.code.binding]
        Binder(case).load()
        return _EAGER_IS_OFF if hooks.behaviour().turns_eager_off else None

    def open(self, state: CaseState, opening: Opening) -> EagerOperation | GraphOperation:
        """Open a form of a case for calls; see `GraphMode`."""
        if opening.is_reference:
            return GraphOperation.of(TracedCase(state, opening))
        op = EagerOperation.of(CalledCase(state, opening))
        if not opening.reversed:
            check_output_shapes(op)
        return op

    def in_float64(self, op: EagerOperation | GraphOperation) -> EagerOperation | GraphOperation | None:
        """Open an opened op in float64 too; see `GraphMode`.

        It is traced if the trace has the same values and gradients, since a trace has a twin. Otherwise it is
        called with float64 inputs. That is equivalent if nothing in it casts them down or depends on the
        dtype.
        """
        if isinstance(op, GraphOperation):
            return float64_twin(op)
        if not op.facts.low_precision:
            return None
        alike = op.called.alike
        return (None if alike is None else float64_twin(alike)) or _call_in_float64(op)


def _call_in_float64(op: EagerOperation) -> EagerOperation | None:
    opening = replace(op.opening, dtype="float64")
    wide = EagerOperation.of(CalledCase(op.called.state, opening))
    try:
        if wide.facts.low_precision or not agree(op, wide):
            return None
        _ = wide.facts.dtype_faults  # calls the gradient: one that refuses float64 is no reference
    except (CaseFailedError, GradientFormError):
        return None
    return wide


def works_eagerly(state: CaseState, opening: Opening) -> bool:
    """Whether a forward that can't be traced has gradients when it is called eagerly."""
    if state.case.code.binding in _NOT_EAGER or hooks.behaviour().turns_eager_off:
        return False
    try:
        op = EagerOperation.of(CalledCase(state, opening))
        pairs = itertools.product(range(len(op.outputs)), op.called.at.differentiable)
        return any(op.facts.is_connected(*pair) for pair in pairs)
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return False
