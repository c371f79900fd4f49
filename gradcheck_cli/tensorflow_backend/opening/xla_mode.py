"""The mode xla: a case compiled by XLA for the CPU, or a report of what XLA doesn't compile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.opening.graph_modes import open_graph
from gradcheck_cli.tensorflow_backend.opening.same_function import float64_twin
from gradcheck_cli.tensorflow_backend.traces.trace_mode import COMPILED

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.opener import Opening
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

# XLA lists what it has no kernel for: "... on XLA_CPU_JIT: PyFunc (No registered 'PyFunc' OpKernel ...".
_UNSUPPORTED = re.compile(r"on XLA_\w+_JIT: (?P<types>.*)")
_KERNEL = re.compile(r"(\w+) \(No registered")


@dataclass(frozen=True)
class XlaMode:
    """The xla mode: traced as in graph mode; what is run is compiled."""

    def refusal(self, case: Case) -> str | None:
        """Refuse a NumPy gradient, which is called while the graph runs."""
        if case.gradient is not None and case.gradient.numpy:
            return "XLA compiles no Python: the gradient is a NumPy function, called as it runs."
        return None

    def open(self, case: Case, opening: Opening, state: CaseState) -> GraphOperation:
        """Open a form of a case, compiled; see `Mode`.

        Raises:
            CaseFailedError: the forward raises without XLA, too.
            CaseSkippedError: XLA refuses the forward or the gradient.
        """
        op = open_graph(case, opening, state, COMPILED)  # an error of the plain graph isn't XLA's
        if not opening.reversed:
            _require_compiled(op)
        return op

    def in_float64(self, op: GraphOperation) -> GraphOperation | None:
        """Return an op's float64 twin; `None` where XLA refuses that, too. See `Mode`."""
        twin = float64_twin(op)
        try:
            if twin is not None:
                _require_compiled(twin)
        except CaseSkippedError as skipped:
            op.no_twin = f"in float64: {skipped.message.rstrip('.')}"
            return None
        return twin


def _require_compiled(op: GraphOperation) -> None:
    """Run forward and gradient once.

    Raises:
        CaseSkippedError: XLA refuses one of them.
    """
    if op.opening.is_reference:
        return
    what = "forward"
    try:
        op.runs.once()
        what = "gradient"
        for output_index, output in enumerate(op.outputs):
            if output.is_differentiable:
                op.vjp(output_index, np.zeros((1, *output.shape)))
    except GradientFormError:
        return  # a finding, which is raised again where the form is checked
    except CaseFailedError as error:
        if not isinstance(error.__cause__, tf.errors.OpError):
            raise
        raise CaseSkippedError("mode", _reason(error.__cause__, what)) from error
    except tf.errors.OpError as error:
        raise CaseSkippedError("mode", _reason(error, what)) from error


def _reason(error: tf.errors.OpError, what: str) -> str:
    match = _UNSUPPORTED.search(error.message)
    types = _KERNEL.findall(match["types"]) if match else []
    if "_Arg" in types or "_Retval" in types:
        return f"XLA takes no strings, which the {what} does."
    if types:
        return f"XLA compiles no {', '.join(dict.fromkeys(types))}, which the {what} uses."
    return f"XLA refuses the {what}: {frames.first_line(error)}"
