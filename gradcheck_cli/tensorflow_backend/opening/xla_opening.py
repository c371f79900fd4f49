"""Open a case compiled by XLA for the CPU, or say what of it XLA doesn't compile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.opening.graph_opening import GraphOpener
from gradcheck_cli.tensorflow_backend.traces.trace_mode import COMPILED, How

if TYPE_CHECKING:
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

# XLA lists what it has no kernel for: "... on XLA_CPU_JIT: PyFunc (No registered 'PyFunc' OpKernel ...".
_UNSUPPORTED = re.compile(r"on XLA_\w+_JIT: (?P<types>.*)")
_KERNEL = re.compile(r"(\w+) \(No registered")


@dataclass(frozen=True)
class XlaOpener(GraphOpener):
    """Opens one case in graph mode, and compiles what is run."""

    how: How = COMPILED

    def declared(self, sample: int) -> GraphOperation:
        """Open the op in the dtypes that the spec names, compiled.

        Raises:
            CaseFailedError: the forward raises without XLA, too.
            CaseSkippedError: XLA refuses the forward or the gradient.
        """
        op = super().declared(sample)  # runs the forward as a graph: what raises there is no matter of XLA
        _require_compiled(op)
        return op

    def in_float64(self, own: GraphOperation) -> GraphOperation | None:
        """Open an opened op in float64 too; `None` where XLA refuses that."""
        wide = super().in_float64(own)
        try:
            if wide is not None:
                _require_compiled(wide)
        except CaseSkippedError as skipped:
            own.no_twin = f"in float64: {skipped.message.rstrip('.')}"
            return None
        return wide


def _require_compiled(op: GraphOperation) -> None:
    """Run forward and gradient once.

    Raises:
        CaseSkippedError: XLA refuses one of them.
    """
    if op.surrogate:
        return
    what = "forward"
    try:
        op.run_once()
        what = "gradient"
        for number, output in enumerate(op.outputs):
            if output.is_differentiable:
                op.vjp(number, np.zeros((1, *output.shape)))
    except GradientFormError:
        return  # a finding, which comes up again where it is looked for
    except CaseFailedError as error:
        if not isinstance(error.__cause__, tf.errors.OpError):
            raise
        raise CaseSkippedError("mode", _reason(error.__cause__, what)) from error
    except tf.errors.OpError as error:
        raise CaseSkippedError("mode", _reason(error, what)) from error


def _reason(error: tf.errors.OpError, what: str) -> str:
    found = _UNSUPPORTED.search(error.message)
    types = _KERNEL.findall(found["types"]) if found else []
    if "_Arg" in types or "_Retval" in types:
        return f"XLA takes no strings, which the {what} does."
    if types:
        return f"XLA compiles no {', '.join(dict.fromkeys(types))}, which the {what} uses."
    return f"XLA refuses the {what}: {frames.first_line(error)}"
