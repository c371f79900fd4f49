"""The modes besides graph: traced with unknown dimensions (dynamic), compiled (xla), and called (eager)."""

from __future__ import annotations

import contextlib
import itertools
import re
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli import hooks
from gradcheck_cli.checking.ops.operation import GradientFormError, Opening, Operation
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.features.modes.eager_operation import CalledCase, EagerOperation
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState, TracedCase
from gradcheck_cli.tensorflow_backend.openers import (
    GraphMode,
    agree,
    check_output_shapes,
    float64_twin,
    open_graph,
    pull_random,
)
from gradcheck_cli.tensorflow_backend.traces.state import (
    ALL_UNKNOWN,
    COMPILED,
    FIRST_UNKNOWN,
    GRAPH,
    TraceMode,
)


class DynamicMode(GraphMode):
    """The dynamic mode: traced with unknown dimensions, all of them or, where that fails, only the first."""

    def open(self, case: Case, opening: Opening, state: CaseState) -> GraphOperation:
        """Open a form of a case with as few known dimensions as possible; see `GraphMode`.

        A matrix product with weights may need its inner dimension; the batch is what usually varies.

        Raises:
            CaseFailedError: forward or gradient raises, even where only first dimensions are unknown.
        """
        if opening.is_reference or opening.reversed:
            return open_graph(case, opening, state, ALL_UNKNOWN)
        if case.code.build is not None and not state.built:
            # A Keras layer takes its shapes from its first call, which must know them.
            open_graph(case, opening, state)
        try:
            return self._open_and_trace(case, opening, state, ALL_UNKNOWN)
        except CaseFailedError:
            pass
        try:
            return self._open_and_trace(case, opening, state, FIRST_UNKNOWN)
        except CaseFailedError as error:
            failure = error
        self._open_and_trace(case, opening, state, GRAPH)  # if this fails as well, the mode isn't the cause
        raise CaseFailedError(
            failure.kind,
            f"{failure.message.rstrip('.')}. This also happens if the first dimension of every input is "
            "unknown (None), as in mode dynamic, but not if all are known: take sizes from tf.shape(x).",
            failure.traceback,
        ) from failure

    def _open_and_trace(
        self, case: Case, opening: Opening, state: CaseState, mode: TraceMode
    ) -> GraphOperation:
        op = open_graph(case, opening, state, mode)
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

    def open(self, case: Case, opening: Opening, state: CaseState) -> GraphOperation:
        """Open a form of a case, compiled; see `GraphMode`.

        Raises:
            CaseFailedError: the forward raises without XLA, too.
            CaseSkippedError: XLA refuses the forward or the gradient.
        """
        op = open_graph(case, opening, state, COMPILED)  # an error of the plain graph isn't XLA's
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
        Binder(case, str, ()).load()
        return _EAGER_IS_OFF if hooks.behaviour().turns_eager_off else None

    def plain(self) -> GraphMode:
        """Return this mode: a call finds the variables as well."""
        return self

    def open(self, case: Case, opening: Opening, state: CaseState) -> EagerOperation | GraphOperation:
        """Open a form of a case for calls; see `GraphMode`."""
        if opening.is_reference:
            return GraphOperation.of(TracedCase(case, opening, state))
        op = EagerOperation.of(CalledCase(case, opening, state))
        trace = cache(partial(_trace_alike, op))

        def rounded(draw: int) -> Operation | None:
            traced = trace()
            return None if traced is None else traced.forms.rounded_otherwise(draw)

        op = replace(op, forms=replace(op.forms, rounded_otherwise=rounded))
        if not opening.reversed:
            check_output_shapes(case, op)
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
        return _trace_in_float64(op) or _call_in_float64(op)


def _trace_in_float64(op: EagerOperation) -> GraphOperation | None:
    traced = _trace_alike(op)
    return None if traced is None else float64_twin(traced)


def _trace_alike(op: EagerOperation) -> GraphOperation | None:
    """Trace a called op; `None` if the trace has other values or gradients."""
    traced = GraphOperation.of(TracedCase(op.called.case, op.opening, op.called.state))
    try:
        return traced if agree(op, traced) and _have_same_gradients(op, traced) else None
    except (CaseFailedError, GradientFormError):
        return None


def _call_in_float64(op: EagerOperation) -> EagerOperation | None:
    called = op.called
    opening = replace(op.opening, dtype="float64")
    wide = EagerOperation.of(CalledCase(called.case, opening, called.state))
    try:
        if wide.facts.low_precision or not agree(op, wide):
            return None
        _ = wide.facts.dtype_faults  # calls the gradient: one that refuses float64 is no reference
    except (CaseFailedError, GradientFormError):
        return None
    return wide


def _have_same_gradients(op: EagerOperation, traced: GraphOperation) -> bool:
    """Whether a call and a trace have the same gradients, up to rounding, for a random upstream."""
    unit = max(precision_of(name).unit_roundoff for name in (*op.facts.low_precision, "float64"))
    for output_index, upstream, called_gradients in pull_random(op, op.called.case):
        traced_gradients: Any = traced.vjp(output_index, upstream)
        for called_gradient, traced_gradient in zip(called_gradients, traced_gradients, strict=True):
            if called_gradient is None or traced_gradient is None:
                if called_gradient is not traced_gradient:
                    return False
                continue
            with np.errstate(invalid="ignore"):
                difference = np.abs(called_gradient - traced_gradient)
                largest = np.max(np.abs(traced_gradient), initial=0.0, where=np.isfinite(traced_gradient))
            is_close = difference <= ROUNDINGS_OF_A_RUN * unit * largest
            if not np.all(is_close | (np.isnan(called_gradient) & np.isnan(traced_gradient))):
                return False
    return True


def works_eagerly(case: Case, opening: Opening, state: CaseState) -> bool:
    """Whether a forward that can't be traced has gradients when it is called eagerly."""
    if case.code.binding in _NOT_EAGER or hooks.behaviour().turns_eager_off:
        return False
    op = EagerOperation.of(CalledCase(case, opening, state))
    try:
        pairs = itertools.product(range(len(op.outputs)), op.called.at.differentiable)
        return any(op.facts.is_connected(*pair) for pair in pairs)
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return False


_MODES: dict[str, GraphMode] = {"dynamic": DynamicMode(), "eager": EagerMode(), "xla": XlaMode()}


def find_mode(name: str) -> GraphMode | None:
    """Return a mode by its name; see `hooks.find_mode`."""
    return _MODES.get(name)
