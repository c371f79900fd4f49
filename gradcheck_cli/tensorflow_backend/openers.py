"""Which opener opens a case in which mode, and which modes a case can't have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import VERSION_CHECK
from gradcheck_cli.spec import versions
from gradcheck_cli.tensorflow_backend.base_run import Shared
from gradcheck_cli.tensorflow_backend.binding import Binder
from gradcheck_cli.tensorflow_backend.dynamic import DynamicOpener
from gradcheck_cli.tensorflow_backend.eager_opening import EagerOpener, works_eagerly
from gradcheck_cli.tensorflow_backend.opening import GraphOpener
from gradcheck_cli.tensorflow_backend.variables import with_variables
from gradcheck_cli.tensorflow_backend.xla import XlaOpener

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.graph_operation import GraphOperation


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
                or not works_eagerly(self.case, sample, self.shared)
            ):
                raise
            raise CaseFailedError(
                error.kind,
                f"{error.message.rstrip('.')}. It works where it is called eagerly: say 'modes: [eager]' "
                "(or --mode eager) to check it there.",
                error.traceback,
            ) from error


_BY_OVERRIDE = "attaches the gradient by an override, which eager mode ignores; use binding: custom_gradient."
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
    if reason is not None:
        raise CaseSkippedError("mode", reason)
    opener = _OPENERS[mode](case, Shared(built={} if like is None else like.shared.built))
    if not case.variables:
        return opener
    # Known shapes and no compiler will do to find them.
    finder = opener if mode in ("graph", "eager") else GraphOpener(case, opener.shared)
    variables = finder.declared(0).trainable
    shared = replace(opener.shared, draws={}, variables=variables)
    target = Binder(case, str, (), built=shared.built).target()
    return replace(opener, case=with_variables(case, variables, target), shared=shared)
