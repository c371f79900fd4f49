"""The modes with graphs: traced with known shapes (graph) or unknown dimensions (dynamic), or compiled (xla).

A form in a wider dtype counts only if it is the same function.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError, Opening
from gradcheck_cli.checking.ops.random_rounding import FACTOR
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.numerics.precision import largest_finite
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding import flat_tensors
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.traces.state import (
    ALL_UNKNOWN,
    COMPILED,
    FIRST_UNKNOWN,
    GRAPH,
    TraceMode,
)


def float64_twin(op: GraphOperation) -> GraphOperation | None:
    """Return the float64 twin of an opened op; `None` where all is float64 already, or there is no twin.

    There is none if its values differ from those of the declared dtype, for example where that overflows. The
    case's `no_twin` says why.
    """
    if not op.facts.low_precision:
        return None
    try:
        twin = op.in_float64()
        if not agree(op, twin) and not agree(op, twin, _rounding(op)):
            op.traced.no_twin = "its outputs differ in float64: it overflows, or takes another branch"
            return None
        if not op.opening.is_reference and not _has_same_gradients_as_twin(op, twin):
            op.traced.no_twin = "its gradient differs in float64: a kernel there depends on equal values"
            return None
    except GradientFormError:  # a finding, which is raised again where the form is checked
        return None
    except (CaseFailedError, ValueError, tf.errors.OpError) as error:
        told = error.message if isinstance(error, CaseFailedError) else frames.first_line(error)
        op.traced.no_twin = f"its graph can't be run in float64: {told}"
        return None
    return twin


def _rounding(op: GraphOperation) -> list[Any]:
    """Return how far rounding inside the forward moves each output: far where terms cancel."""
    unit = max(precision_of(name).unit_roundoff for name in op.facts.low_precision)
    sizes = [op.rounded_sizes(index) for index, info in enumerate(op.inputs) if info.is_differentiable]
    lost = [FACTOR * unit * sum(of_output) for of_output in zip(*sizes, strict=True)]
    return lost or [0.0] * len(op.outputs)


def agree(op: Any, wide: Any, rounding: Iterable[Any] = itertools.repeat(0.0)) -> bool:
    """Whether an op and its form in a wider dtype have the same values at the base point, up to rounding."""
    for narrow, output, value, reference, lost in zip(
        op.outputs, wide.outputs, op.base_values, wide.base_values, rounding, strict=False
    ):
        if not output.is_differentiable or value.shape != reference.shape:
            if not np.array_equal(value, reference):
                return False
            continue
        finite, names = np.isfinite(value), (narrow.dtype, *op.facts.low_precision)
        share = max(precision_of(name).agreement for name in names)
        differs = np.abs(value - reference) > share * largest_finite(reference) + lost
        if ((differs & finite) | (finite != np.isfinite(reference))).any():
            return False
    return True


def _has_same_gradients_as_twin(op: GraphOperation, twin: GraphOperation) -> bool:
    """Run the twin's vjp, which raises if an op has no kernel, and compare gradients if not all is float64.

    Some kernels may stay in the declared dtype. A gradient that searches for the values it selected
    (MaxPool3DGradGrad) may then not find them among cast values.
    """
    for output_index, upstream, gradients in pull_random(twin, op.traced.case):
        if not twin.facts.not_float64:
            continue
        declared_gradients: Any = op.vjp(output_index, upstream)
        for declared, wide in zip(declared_gradients, gradients, strict=True):
            if declared is None or wide is None:
                continue
            share = precision_of(op.outputs[output_index].dtype).agreement
            if np.max(np.abs(declared - wide), initial=0.0) > share * largest_finite(declared):
                return False
    return True


def pull_random(op: Any, case: Case) -> Iterator[tuple[int, Any, Any]]:
    """Pull a random upstream of each output back; yield the output's index, the upstream and the gradients.

    Of ones, a softmax's gradient would be zero, and in low precision nothing but rounding.
    """
    generator = np.random.default_rng([case.seed, abs(op.opening.sample)])
    for output_index, info in enumerate(op.outputs):
        if info.is_differentiable:
            upstream = generator.normal(size=(1, *info.shape))
            yield output_index, upstream, op.vjp(output_index, upstream)


def check_output_shapes(op: Any) -> None:
    """Compare the outputs' shapes with those that the spec states.

    Raises:
        CaseFailedError: one differs.
    """
    flat_tensors.check_shapes(op.facts.opened.case, [output.name for output in op.outputs], op.base_values)


def open_graph(state: CaseState, opening: Opening, mode: TraceMode = GRAPH) -> GraphOperation:
    """Open a form of a case as a graph. In every mode, its reference has known shapes and isn't compiled.

    Raises:
        CaseFailedError: the forward raises, or its outputs aren't what the spec says.
    """
    op = GraphOperation.open(state, opening, GRAPH if opening.is_reference else mode)
    if not (opening.is_reference or opening.reversed):
        check_output_shapes(op)
        if not mode.compiled and state.is_prepared is None and not op.is_finite:
            # x * 1e200 * 1e-200 may overflow; Grappler makes one product of it.
            for state.is_prepared in (True, False):
                state.compiled.clear()
                state.graphs.clear()
                op = GraphOperation.open(state, opening, mode)
                if op.is_finite:
                    break
    return op


class GraphMode:
    """Graph mode. Each other mode overrides what it does otherwise."""

    def refusal(self, case: Case) -> str | None:  # noqa: ARG002 (other modes refuse cases)
        """Say why a case can't have this mode, whatever its functions do; `None` if it can."""
        return None

    def open(self, state: CaseState, opening: Opening) -> Any:
        """Open a form of a case in the dtypes that the spec names.

        Raises:
            CaseFailedError: the forward raises, or its outputs aren't what the spec says.
            CaseSkippedError: the mode can't have what the forward or the gradient uses.
        """
        return open_graph(state, opening)

    def in_float64(self, op: Any) -> Any:
        """Open an opened op in float64; `None` where that isn't needed, or isn't the same function."""
        return float64_twin(op)


class DynamicMode(GraphMode):
    """The dynamic mode: traced with unknown dimensions, all of them or, where that fails, only the first."""

    def open(self, state: CaseState, opening: Opening) -> GraphOperation:
        """Open a form of a case with as few known dimensions as possible; see `GraphMode`.

        A matrix product with weights may need its inner dimension; the batch is what usually varies.

        Raises:
            CaseFailedError: forward or gradient raises, even where only first dimensions are unknown.
        """
        if opening.is_reference or opening.reversed:
            return open_graph(state, opening, ALL_UNKNOWN)
        if state.case.code.build is not None and not state.built:
            # A Keras layer takes its shapes from its first call, which must know them.
            open_graph(state, opening)
        try:
            return self._open_and_trace(state, opening, ALL_UNKNOWN)
        except CaseFailedError:
            pass
        try:
            return self._open_and_trace(state, opening, FIRST_UNKNOWN)
        except CaseFailedError as error:
            failure = error
        self._open_and_trace(state, opening, GRAPH)  # if this fails as well, the mode isn't the cause
        raise CaseFailedError(
            failure.kind,
            f"{failure.message.rstrip('.')}. This also happens if the first dimension of every input is "
            "unknown (None), as in mode dynamic, but not if all are known: take sizes from tf.shape(x).",
            failure.traceback,
        ) from failure

    def _open_and_trace(self, state: CaseState, opening: Opening, mode: TraceMode) -> GraphOperation:
        op = open_graph(state, opening, mode)
        # A gradient of wrong form is a finding, and is reported where the form is checked.
        with contextlib.suppress(GradientFormError):
            _ = op.facts.dtype_faults  # traces the vjp, which may need more dimensions than the forward
        return op


# XLA lists what it has no kernel for: "... on XLA_CPU_JIT: PyFunc (No registered 'PyFunc' OpKernel ...".
_UNSUPPORTED = re.compile(r"on XLA_\w+_JIT: (?P<types>.*)")
_KERNEL = re.compile(r"(\w+) \(No registered")


class XlaMode(GraphMode):
    """The xla mode: traced as in graph mode; what is run is compiled."""

    def refusal(self, case: Case) -> str | None:
        """Refuse a NumPy forward or gradient, which is called while the graph runs."""
        if case.code.binding == "py_func":
            return "XLA compiles no Python: binding py_func calls a NumPy function as it runs."
        if case.code.gradient is not None and case.code.gradient.numpy:
            return "XLA compiles no Python: the gradient is a NumPy function, called as it runs."
        return None

    def open(self, state: CaseState, opening: Opening) -> GraphOperation:
        """Open a form of a case, compiled; see `GraphMode`.

        Raises:
            CaseFailedError: the forward raises without XLA, too.
            CaseSkippedError: XLA refuses the forward or the gradient.
        """
        op = open_graph(state, opening, COMPILED)  # an error of the plain graph isn't XLA's
        if not opening.reversed:
            _require_compiled(op)
        return op

    def in_float64(self, op: GraphOperation) -> GraphOperation | None:
        """Return an op's float64 twin; `None` where XLA refuses that, too. See `GraphMode`."""
        twin = float64_twin(op)
        try:
            if twin is not None:
                _require_compiled(twin)
        except CaseSkippedError as skipped:
            op.traced.no_twin = f"in float64: {skipped.message.rstrip('.')}"
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
        return f"XLA doesn't support strings, which the {what} uses."
    if types:
        return f"XLA compiles no {', '.join(dict.fromkeys(types))}, which the {what} uses."
    return f"XLA refuses the {what}: {frames.first_line(error)}"
