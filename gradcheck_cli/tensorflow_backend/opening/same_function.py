"""Opens an op in a wider dtype, float64 or complex128, if it is the same function there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError, Operation
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.numerics.tolerance import ROUNDINGS_OF_A_RUN
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.eager.eager_case import CalledCase
from gradcheck_cli.tensorflow_backend.eager.eager_operation import EagerOperation
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation


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


def have_same_gradients(op: EagerOperation, traced: GraphOperation) -> bool:
    """Whether a call and a trace have the same gradients, up to rounding, for a random upstream."""
    generator = np.random.default_rng([op.called.case.seed, abs(op.opening.sample)])
    for output_index, info in enumerate(op.outputs):
        if not info.is_differentiable:
            continue
        upstream = generator.normal(size=(1, *info.shape))
        gradients: Any = (op.vjp(output_index, upstream), traced.vjp(output_index, upstream))
        for called_gradient, traced_gradient in zip(*gradients, strict=True):
            if called_gradient is None or traced_gradient is None:
                if called_gradient is not traced_gradient:
                    return False
                continue
            with np.errstate(invalid="ignore"):
                difference = np.abs(called_gradient - traced_gradient)
                largest = np.max(np.abs(traced_gradient), initial=0.0, where=np.isfinite(traced_gradient))
            unit = max(precision_of(name).unit_roundoff for name in op.facts.low_precision)
            if not np.all(
                (difference <= ROUNDINGS_OF_A_RUN * unit * largest)
                | (np.isnan(called_gradient) & np.isnan(traced_gradient))
            ):
                return False
    return True


def _has_same_gradients_as_twin(op: GraphOperation, twin: GraphOperation) -> bool:
    """Run the twin's vjp, which raises if an op has no kernel, and compare gradients if not all is float64.

    Some kernels may stay in the declared dtype. A gradient that searches for the values it selected
    (MaxPool3DGradGrad) may then not find them among cast values. The upstream is drawn: of ones, a softmax's
    gradient is zero, and in the declared dtype nothing but rounding.
    """
    generator = np.random.default_rng([op.traced.case.seed, abs(op.opening.sample)])
    for output_index, output in enumerate(twin.outputs):
        if not output.is_differentiable:
            continue
        upstream = generator.normal(size=(1, *output.shape))
        gradients: Any = twin.vjp(output_index, upstream)
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
