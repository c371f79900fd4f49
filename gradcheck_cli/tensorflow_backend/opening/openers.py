"""Which opener opens a case in which mode, and which modes a case can't have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import VERSION_CHECK
from gradcheck_cli.spec.models import versions
from gradcheck_cli.tensorflow_backend.binding import behaviour
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.binding.variable_inputs import plain_name, with_variables
from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
from gradcheck_cli.tensorflow_backend.opening.dynamic_opening import DynamicOpener
from gradcheck_cli.tensorflow_backend.opening.eager_opening import EagerOpener, works_eagerly
from gradcheck_cli.tensorflow_backend.opening.graph_opening import GraphOpener
from gradcheck_cli.tensorflow_backend.opening.xla_opening import XlaOpener
from gradcheck_cli.tensorflow_backend.private import private_variables
from gradcheck_cli.tensorflow_backend.traces.state import captured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation


@dataclass(frozen=True)
class _AdvisingOpener(GraphOpener):
    """Opens one case in graph mode; where it can't be traced, but called eagerly, it says so."""

    def declared(self, sample: int) -> GraphOperation:
        try:
            return super().declared(sample)
        except CaseFailedError as error:
            can_be_eager = ("eager", self.case.binding) not in _REASONS
            if (
                error.kind != "forward"
                or not can_be_eager
                or "use binding: py_func" in error.message
                or behaviour.turns_eager_off()
                or not works_eagerly(self.case, sample, self.state)
            ):
                raise
            raise CaseFailedError(
                error.kind,
                f"{error.message.rstrip('.')}. It works where it is called eagerly: say 'modes: [eager]' "
                "(or --mode eager) to check it there.",
                error.traceback,
            ) from error


_BY_OVERRIDE = "attaches the gradient by an override, which eager mode ignores; use binding: custom_gradient."
_EAGER_IS_OFF = (
    "its module turns eager execution off (tf.compat.v1.disable_v2_behavior() or disable_eager_execution()): "
    "nothing of it is ever called eagerly."
)
# What a mode can't have, whatever the functions are.
_REASONS = {
    ("eager", "override"): f"binding override {_BY_OVERRIDE}",
    ("eager", "py_func"): f"binding py_func {_BY_OVERRIDE}",
    ("eager", "defun"): "a Defun is a graph's function: it raises in eager mode.",
    ("xla", "py_func"): "XLA compiles no Python: binding py_func calls a NumPy function as it runs.",
}
_OPENERS: dict[str, Any] = {
    "graph": _AdvisingOpener,
    "dynamic": DynamicOpener,
    "eager": EagerOpener,
    "xla": XlaOpener,
}


def require_version(case: Case) -> None:
    """Refuse a case that is for other versions of TensorFlow.

    Raises:
        CaseSkippedError: of the check `VERSION_CHECK`, with the versions it is for and the one here.
    """
    if case.tensorflow and not versions.matches(tf.__version__, case.tensorflow):
        raise CaseSkippedError(
            VERSION_CHECK, f"it is for TensorFlow {case.tensorflow}; this is {tf.__version__}."
        )


def _state(like: Any) -> CaseState:
    return CaseState() if like is None else CaseState(built=like.state.built, written=like.state.written)


def opener_of(case: Case, mode: str, like: Any = None) -> Any:
    """Return what opens a case in a mode; its own `case` has the variables among its arguments, if asked to.

    Args:
        case: the case, as it was read.
        mode: the mode.
        like: an opener of the same case in another mode, whose layers, once built, are taken here too.

    Raises:
        CaseSkippedError: it is for other versions of TensorFlow; the mode has nothing for its binding.
        CaseFailedError: the variables can't be found, since the forward raises.
    """
    require_version(case)
    reason = _REASONS.get((mode, case.binding))
    if reason is None and mode == "xla" and case.gradient is not None and case.gradient.numpy:
        reason = "XLA compiles no Python: the gradient is a NumPy function, called as it runs."
    if reason is None and mode == "eager":
        Binder(case, str, ()).load()
        reason = _EAGER_IS_OFF if behaviour.turns_eager_off() else None
    if reason is not None:
        raise CaseSkippedError("mode", reason)
    opener = _OPENERS[mode](case, _state(like))
    is_layer = case.variables is None and private_variables.is_layer(
        Binder(case, str, (), built=opener.state.built).target()
    )
    if case.variables or is_layer:
        # Known shapes and no compiler will do to find them.
        finder = opener if mode in ("graph", "eager") else GraphOpener(case, opener.state)
        op = finder.declared(0)
        if case.variables:
            return _with_variables(opener, op.trainable, op)
        # A weight that the layer itself overwrites (SpectralNormalization) is none that was asked for.
        kept = [one for one in op.trainable if id(one.handle) not in op.written_before_read]
        if kept:
            return _with_variables(opener, kept, op)
    if case.variables is None and case.method != "complex_step":  # it can't move them
        variables = _of_custom_gradients(opener)
        return _with_variables(opener, variables, opener.declared(0)) if variables else opener
    return opener


def _of_custom_gradients(opener: Any) -> list[Any]:
    """Return the variables that the user wrote gradients for: these are checked without being asked for.

    Where the spec has a reference, only those that it uses too: it says nothing of the others.
    """
    try:
        op = opener.declared(0)
        found = private_variables.in_order_of_creation(op.variables_of_gradients)
        if found and opener.case.reference is not None:
            used = captured(opener.surrogate(0).forward.function)
            found = [variable for variable in found if id(variable.handle) in used]
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return []  # it comes up again where the case is checked
    return found


def _with_variables(opener: Any, variables: Sequence[Any], op: Any) -> Any:
    """Return the opener of the case with variables among its inputs.

    Raises:
        CaseFailedError: there are none; or the forward writes to one before it reads it. A gradient is for
            the value then, and no difference in the value before says anything of it.
    """
    written = [plain_name(one) for one in variables if id(one.handle) in op.written_before_read]
    if written:
        raise CaseFailedError(
            "variables",
            f"the forward writes to {', '.join(written)}: where it reads that again, a gradient is for the "
            "value that was written, and what was there before can't tell of it. Say 'variables: false', or "
            "check what comes after the write.",
        )
    state = replace(opener.state, draws={}, graphs={}, variables=tuple(variables))
    target = Binder(opener.case, str, (), built=state.built).target()
    return replace(opener, case=with_variables(opener.case, variables, target), state=state)
