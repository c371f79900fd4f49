"""The modes, and how a case is opened in one of them: with its variables among the arguments, or in float64.

A form in a wider dtype counts only if it is the same function.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from gradcheck_cli import hooks
from gradcheck_cli.checking.ops.operation import Dtype, GradientFormError, Opening, Operation
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN
from gradcheck_cli.results import VERSION_CHECK
from gradcheck_cli.spec.case import Case, version_fits
from gradcheck_cli.spec.words import BINDINGS
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding import flat_tensors, users_code
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import plain_name, with_variables
from gradcheck_cli.tensorflow_backend.eager.eager_operation import CalledCase, EagerOperation
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.second_order import case_of_vjp
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState, TracedCase
from gradcheck_cli.tensorflow_backend.private import private_state
from gradcheck_cli.tensorflow_backend.registry import require_seen
from gradcheck_cli.tensorflow_backend.traces.state import (
    ALL_UNKNOWN,
    COMPILED,
    FIRST_UNKNOWN,
    GRAPH,
    TraceMode,
    captured_ids,
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
        if not agree(op, twin):
            op.traced.no_twin = "its outputs differ in float64: it overflows, or takes another branch"
            return None
        if not op.opening.is_reference and not _has_same_gradients_as_twin(op, twin):
            op.traced.no_twin = "its gradient differs in float64: a kernel there depends on equal values"
            return None
    except GradientFormError:  # a finding, which is raised again where the form is checked
        return None
    except (CaseFailedError, ValueError, tf.errors.OpError) as error:
        op.traced.no_twin = f"its graph can't be run in float64: {frames.first_line(error)}"
        return None
    return twin


def in_complex(op: GraphOperation | EagerOperation) -> GraphOperation | EagerOperation:
    """Open an opened op in complex128, for the complex step.

    Raises:
        CaseFailedError: it has complex tensors already, or its forward refuses complex ones.
    """
    opening = replace(op.opening, dtype="complex128")
    in_complex: GraphOperation | EagerOperation
    if isinstance(op, GraphOperation):
        _require_real(op, op.traced.at.count)
        in_complex = GraphOperation.open(op.traced.case, opening, op.traced.state, op.traced.trace_mode)
    else:
        _require_real(op, op.called.at.count)
        in_complex = EagerOperation.of(CalledCase(op.called.case, opening, op.called.state))
    _require_complex(in_complex)
    return in_complex


def agree(op: Operation, wide: Operation) -> bool:
    """Whether an op and its form in a wider dtype have the same values at the base point."""
    for narrow, output, own_value, wide_value in zip(
        op.outputs, wide.outputs, op.base_values, wide.base_values, strict=True
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
        names = (narrow.dtype, *op.facts.low_precision)
        allowed = max(precision_of(name).agreement for name in names) * scale
        if np.any(np.abs(value[finite] - reference[finite]) > allowed):
            return False
    return True


def _have_same_gradients(op: EagerOperation, traced: GraphOperation) -> bool:
    """Whether a call and a trace have the same gradients, up to rounding, for a random upstream."""
    unit = max(precision_of(name).unit_roundoff for name in op.facts.low_precision)
    for output_index, upstream, called_gradients in _pull_random(op, op.called.case):
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


def _has_same_gradients_as_twin(op: GraphOperation, twin: GraphOperation) -> bool:
    """Run the twin's vjp, which raises if an op has no kernel, and compare gradients if not all is float64.

    Some kernels may stay in the declared dtype. A gradient that searches for the values it selected
    (MaxPool3DGradGrad) may then not find them among cast values.
    """
    for output_index, upstream, gradients in _pull_random(twin, op.traced.case):
        if not twin.facts.not_float64:
            continue
        declared_gradients: Any = op.vjp(output_index, upstream)
        for declared, wide in zip(declared_gradients, gradients, strict=True):
            if declared is None or wide is None:
                continue
            largest = float(np.max(np.abs(declared), initial=0.0))
            difference = float(np.max(np.abs(declared - wide), initial=0.0))
            if difference > precision_of(op.outputs[output_index].dtype).agreement * largest:
                return False
    return True


def _pull_random(op: GraphOperation | EagerOperation, case: Case) -> Iterator[tuple[int, Any, Any]]:
    """Pull a random upstream of each output back; yield the output's index, the upstream and the gradients.

    Of ones, a softmax's gradient would be zero, and in low precision nothing but rounding.
    """
    generator = np.random.default_rng([case.seed, abs(op.opening.sample)])
    for output_index, info in enumerate(op.outputs):
        if info.is_differentiable:
            upstream = generator.normal(size=(1, *info.shape))
            yield output_index, upstream, op.vjp(output_index, upstream)


def _require_real(op: Operation, argument_count: int) -> None:
    """Refuse the complex step for an op that is complex already, or for variables, which keep their dtype."""
    if argument_count < len(op.inputs):
        raise CaseFailedError(
            "forward", "method: complex_step can't move variables, which stay real: use method: auto."
        )
    if any(info.is_complex for info in (*op.inputs, *op.outputs)):
        raise CaseFailedError(
            "forward", "method: complex_step is for real functions; this one is complex: use method: auto."
        )


def _require_complex(op: Operation) -> None:
    """Refuse an op that raises in complex128, or returns real values there.

    Raises:
        CaseFailedError: of kind "forward", or of the kind that the forward raises.
    """
    try:
        real_names = [info.name for info in op.outputs if info.is_differentiable and not info.is_complex]
    except CaseFailedError as error:
        raise CaseFailedError(
            error.kind,
            f"method: complex_step needs a forward that takes complex128: {error.message} Use method: auto.",
            error.traceback,
        ) from error
    if real_names:
        raise CaseFailedError(
            "forward",
            f"method: complex_step needs a forward that stays complex, but {', '.join(real_names)} is real "
            "when the inputs are complex128. Use method: auto.",
        )


def _check_output_shapes(case: Case, op: Any) -> None:
    flat_tensors.check_shapes(case, [output.name for output in op.outputs], op.base_values)


def open_graph(case: Case, opening: Opening, state: CaseState, mode: TraceMode = GRAPH) -> GraphOperation:
    """Open a form of a case as a graph. In every mode, its reference has known shapes and isn't compiled.

    Raises:
        CaseFailedError: the forward raises, or its outputs aren't what the spec says.
    """
    op = GraphOperation.open(case, opening, state, GRAPH if opening.is_reference else mode)
    if not (opening.is_reference or opening.reversed):
        _check_output_shapes(case, op)
        if not mode.compiled and state.is_prepared is None and not op.is_finite:
            # x * 1e200 * 1e-200 may overflow; Grappler makes one product of it.
            for state.is_prepared in (True, False):
                state.compiled.clear()
                state.graphs.clear()
                op = GraphOperation.open(case, opening, state, mode)
                if op.is_finite:
                    break
    return op


class Mode:
    """How a case is opened in one mode."""

    def refusal(self, case: Case) -> str | None:  # noqa: ARG002 (other modes refuse cases)
        """Say why a case can't have this mode, whatever its functions do; `None` if it can."""
        return None

    def open(self, case: Case, opening: Opening, state: CaseState) -> Any:
        """Open a form of a case in the dtypes that the spec names.

        Raises:
            CaseFailedError: the forward raises, or its outputs aren't what the spec says.
            CaseSkippedError: the mode can't have what the forward or the gradient uses.
        """
        raise NotImplementedError

    def in_float64(self, op: Any) -> Any:
        """Open an opened op in float64; `None` where that isn't needed, or isn't the same function."""
        return float64_twin(op)


@dataclass(frozen=True)
class GraphMode(Mode):
    """Graph mode. If a case can be called eagerly but can't be traced, the error says so.

    Attributes:
        works_eagerly: whether a case's forward has gradients where it is called eagerly.
    """

    works_eagerly: Callable[[Case, Opening, CaseState], bool] = lambda *_: False

    def open(self, case: Case, opening: Opening, state: CaseState) -> GraphOperation:
        """Open a form of a case as a graph; see `Mode`."""
        try:
            return open_graph(case, opening, state)
        except CaseFailedError as error:
            if (
                error.kind != "forward"
                or "use binding: py_func" in error.message
                or not self.works_eagerly(case, opening, state)
            ):
                raise
            raise CaseFailedError(
                error.kind,
                f"{error.message.rstrip('.')}. It works where it is called eagerly: say 'modes: [eager]' "
                "(or --mode eager) to check it there.",
                error.traceback,
            ) from error


class DynamicMode(Mode):
    """The dynamic mode: traced with unknown dimensions, all of them or, where that fails, only the first."""

    def open(self, case: Case, opening: Opening, state: CaseState) -> GraphOperation:
        """Open a form of a case with as few known dimensions as possible; see `Mode`.

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


class XlaMode(Mode):
    """The xla mode: traced as in graph mode; what is run is compiled."""

    def refusal(self, case: Case) -> str | None:
        """Refuse a NumPy gradient, which is called while the graph runs."""
        if case.code.gradient is not None and case.code.gradient.numpy:
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


_EAGER_IS_OFF = (
    "its module turns eager execution off (tf.compat.v1.disable_v2_behavior() or disable_eager_execution()): "
    "none of its functions is called eagerly."
)


class EagerMode(Mode):
    """Eager mode."""

    def refusal(self, case: Case) -> str | None:
        """Refuse modules that turn eager execution off."""
        Binder(case, str, ()).load()
        return _EAGER_IS_OFF if users_code.turns_eager_off() else None

    def open(self, case: Case, opening: Opening, state: CaseState) -> EagerOperation | GraphOperation:
        """Open a form of a case for calls; see `Mode`."""
        if opening.is_reference:
            return GraphOperation.of(TracedCase(case, opening, state))
        op = EagerOperation.of(CalledCase(case, opening, state))
        if not opening.reversed:
            _check_output_shapes(case, op)
        return op

    def in_float64(self, op: EagerOperation | GraphOperation) -> EagerOperation | GraphOperation | None:
        """Open an opened op in float64 too; see `Mode`.

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
    traced = GraphOperation.of(TracedCase(op.called.case, op.opening, op.called.state))
    try:
        if not (agree(op, traced) and _have_same_gradients(op, traced)):
            return None
    except (CaseFailedError, GradientFormError):
        return None
    return float64_twin(traced)


def _call_in_float64(op: EagerOperation) -> EagerOperation | None:
    opening = replace(op.opening, dtype="float64")
    wide = EagerOperation.of(CalledCase(op.called.case, opening, op.called.state))
    try:
        if wide.facts.low_precision or not agree(op, wide):
            return None
        _ = wide.facts.dtype_faults  # calls the gradient: one that refuses float64 is no reference
    except (CaseFailedError, GradientFormError):
        return None
    return wide


def works_eagerly(case: Case, opening: Opening, state: CaseState) -> bool:
    """Whether a forward that can't be traced has gradients when it is called eagerly."""
    if "eager" in BINDINGS[case.code.binding].unfit or users_code.turns_eager_off():
        return False
    op = EagerOperation.of(CalledCase(case, opening, state))
    try:
        pairs = itertools.product(range(len(op.outputs)), op.called.at.differentiable)
        return any(op.facts.is_connected(*pair) for pair in pairs)
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return False


MODES: dict[str, Mode] = {
    "graph": GraphMode(works_eagerly),
    "dynamic": DynamicMode(),
    "eager": EagerMode(),
    "xla": XlaMode(),
}


def require_version(case: Case) -> None:
    """Refuse a case that is for other versions of TensorFlow, or for modules that aren't installed.

    Raises:
        CaseSkippedError: of the check `VERSION_CHECK`, with the required and the installed version.
    """
    if case.running.tensorflow and not version_fits(tf.__version__, case.running.tensorflow):
        raise CaseSkippedError(
            VERSION_CHECK, f"it is for TensorFlow {case.running.tensorflow}; this is {tf.__version__}."
        )
    missing = [name for name in case.running.needs if find_spec(name) is None]
    if missing:
        raise CaseSkippedError(VERSION_CHECK, f"it needs {' and '.join(missing)}, which isn't installed.")


def opener_of(case: Case, mode: str, like: CaseOpener[Any] | None = None) -> CaseOpener[Any]:
    """Return the opener of a case in a mode; its `case` has the variables among the arguments, if requested.

    Args:
        like: an opener of the same case in another mode; the layers that it built are used here too.

    Raises:
        CaseSkippedError: it is for other versions of TensorFlow, or the mode doesn't support its binding.
        CaseFailedError: the variables can't be found, since the forward raises.
    """
    require_version(case)
    reason = BINDINGS[case.code.binding].unfit.get(mode) or MODES[mode].refusal(case)
    if reason is not None:
        raise CaseSkippedError("mode", reason)
    state = CaseState() if like is None else CaseState(built=like.state.built, written=like.state.written)
    opener: CaseOpener[Any] = CaseOpener(case, MODES[mode], state)
    is_layer = case.code.variables is None and private_state.is_layer(
        Binder(case, str, (), built=state.built).target()
    )
    if case.code.variables or is_layer:
        # Known shapes without a compiler are enough to find them.
        finder = opener if mode in ("graph", "eager") else replace(opener, mode=GraphMode())
        op = finder.open(Opening())
        if case.code.variables:
            return _with_variables(opener, _choose(case, op.trainable), op)
        # A layer's weights become inputs unless it overwrites them itself, as SpectralNormalization does.
        variables = [
            variable for variable in op.trainable if id(variable.handle) not in op.written_before_read
        ]
        if variables:
            return _with_variables(opener, variables, op)
    if case.code.variables is None and case.judging.method != "complex_step":  # it can't move them
        variables = _variables_of_custom_gradients(opener)
        return _with_variables(opener, variables, opener.open(Opening())) if variables else opener
    return opener


def _choose(case: Case, trainable: Sequence[Any]) -> Sequence[Any]:
    """Return the trainable variables that are inputs: all of them, or those that the caller chose.

    Raises:
        CaseFailedError: the forward doesn't use one of these.
    """
    if case.code.given is None or case.code.given.variables is None:
        return trainable
    used = {id(variable.handle) for variable in trainable}
    chosen: Sequence[Any] = case.code.given.variables
    missing = [plain_name(variable) for variable in chosen if id(variable.handle) not in used]
    if missing:
        raise CaseFailedError(
            "variables",
            f"the function doesn't use {', '.join(missing)}, or it isn't trainable; leave it out of "
            "variables.",
        )
    return chosen


def _variables_of_custom_gradients(opener: CaseOpener[Any]) -> list[Any]:
    """Return the variables that the user wrote gradients for; these are checked by default.

    If the spec has a reference, return only those that it uses as well: it shows nothing about the others.
    """
    try:
        op = opener.open(Opening())
        variables = private_state.in_order_of_creation(op.variables_of_gradients)
        if variables and opener.case.reference is not None:
            used = captured_ids(opener.open(Opening(of="reference")).traced.forward.function)
            variables = [variable for variable in variables if id(variable.handle) in used]
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return []  # it is raised again where the case is checked
    return variables


def _with_variables(opener: CaseOpener[Any], variables: Sequence[Any], op: Any) -> CaseOpener[Any]:
    """Return the opener of the case with variables among its inputs.

    Raises:
        CaseFailedError: there are none, or the forward writes to one before it reads it. The gradient is then
            for the new value, and a difference in the old one shows nothing about it.
    """
    written = [
        plain_name(variable) for variable in variables if id(variable.handle) in op.written_before_read
    ]
    if written:
        raise CaseFailedError(
            "variables",
            f"the forward writes to {', '.join(written)}: if it reads that again, the gradient is for the "
            "written value, and differences in the old value show nothing about it. Say 'variables: false', "
            "or check the part after the write.",
        )
    state = replace(opener.state, draws={}, graphs={}, variables=tuple(variables))
    target = Binder(opener.case, str, (), built=state.built).target()
    return replace(opener, case=with_variables(opener.case, variables, target), state=state)


Op = TypeVar("Op")


@dataclass(frozen=True)
class CaseOpener(Generic[Op]):
    """Opens one case in one mode; `checking.Opener`."""

    case: Case
    mode: Mode
    state: CaseState = field(default_factory=CaseState)  # the state that all its ops share

    def open(self, opening: Opening) -> Op:
        """Open a form of the case in the dtypes that the spec names; see `Opener`."""
        op: Op = self.mode.open(self.case, opening, self.state)
        return op

    def in_dtype(self, op: Any, dtype: Dtype) -> Op | None:
        """Open an opened op in float64, or in complex128 for the complex step; see `Opener`."""
        wide: Any = self.mode.in_float64(op) if dtype == "float64" else in_complex(op)
        opened: Op | None = wide
        return opened

    def retrace(self, op: Any) -> Op:
        """Trace or call an opened op's gradient again, for the same point."""
        retraced: Op = op.retraced()
        _check_output_shapes(self.case, retraced)
        return retraced

    def vjp(self, op: Any) -> CaseOpener[Op]:
        """Return an opener of an opened op's vjp as an op of its own; the same opener each time."""
        if id(op) not in self.state.openers_of_vjps:
            reference = None
            if self.case.reference is not None:
                reference = self.mode.open(self.case, replace(op.opening, of="reference"), self.state)
            case, vjp = case_of_vjp(self.case, op, reference)
            state = replace(self.state, draws={}, graphs={}, openers_of_vjps={}, vjp=vjp)
            self.state.openers_of_vjps[id(op)] = op, replace(self, case=case, state=state)
        opener: CaseOpener[Op] = self.state.openers_of_vjps[id(op)][1]
        return opener

    def written_ops(self, op: Any, output: int, input_index: int) -> Sequence[Operation] | None:
        """Return the ops on a pair's path whose gradients the user wrote, each by itself; see `Opener`."""
        is_walked = (
            isinstance(op, GraphOperation) and self.case.code.gradient is None and self.state.vjp is None
        )
        if not is_walked:
            return None
        sources, count = [input_index], op.traced.at.count
        if input_index >= count:
            # Paths can't start at a variable: use the other inputs' paths, which must hold its gradients.
            sources = [index for index in range(count) if op.facts.is_connected(output, index)]
            sites: dict[int, set[object]] = {index: set() for index in range(len(op.inputs))}
            for site, of_output, of_input in op.traced.vjp_trace.sites:
                if of_output == output:
                    sites[of_input].add(site)
            if not sites[input_index] <= set().union(*(sites[index] for index in sources)):
                return None
        return hooks.find_written_ops(op, output, sources)

    def gradients_seen(self, op: Any) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when an op's vjp was built.

        Raises:
            CaseFailedError: of kind "covers": one that the spec covers wasn't called.
        """
        is_vjp = self.state.vjp is not None
        return require_seen(self.case, op.gradients_seen, op.gradients_seen_anew, is_vjp=is_vjp)

    def unrun_gradients(self) -> list[str]:
        """Say which custom gradients the forward called and no backward pass ran; see `Opener`."""
        return [] if self.state.vjp is not None else self.state.gradients.unrun()


GraphOpener = CaseOpener[GraphOperation]
