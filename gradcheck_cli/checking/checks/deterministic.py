"""Check that the forward is a deterministic function, and report which ops are held constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.jacobian import working_dtype, working_precision
from gradcheck_cli.numerics.agreement import FORWARD_ROUNDINGS, agree, largest_finite
from gradcheck_cli.numerics.precision import precision_of
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gradcheck_cli.checking.checks.check import OpenedView, PointView
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.spec.case import Case

# Prefixes of op types that consume what they read. Variables and tables, by contrast, are restored.
_TAKES_AWAY = ("Barrier", "Iterator", "Map", "OrderedMap", "Queue", "Reader", "Stage", "Unstage")
# Two traces of one function may differ by rounding. About ten times the square root of the unit roundoff,
# relative to the largest value, is more than a sane forward loses by summing in another order. Where a value
# cancels to zero, the loss is relative to the terms that cancel: the inputs, or ones.
_AGREEMENT = {"float32": 1e-2, "complex64": 1e-2, "float16": 0.2, "bfloat16": 0.5}


def check_random(view: OpenedView) -> list[CheckResult]:
    """Find a forward that draws new random numbers at each evaluation; see `find_draws`."""
    result = find_draws(view.op, view.case)
    return [] if result is None else [result]


def find_draws(op: Operation, case: Case) -> CheckResult | None:
    """Find a forward that draws new random numbers at each evaluation: it has no derivative to compare with.

    A sampler with its own gradient may be compared with a reference, which is differenced in its place. The
    sampler must draw the same each time, or the spec must state how far its gradient may vary
    (nondeterminism).
    """
    if not op.random_types:
        return None
    implicit = [name for name in op.random_types if name.startswith("Stateless") or "Gamma" in name]
    if implicit:
        is_same = all(name.startswith("Stateless") for name in op.random_types)
        if case.reference is not None and (
            is_same or (case.nondeterminism > 0 and len(implicit) == len(op.random_types))
        ):
            return None
        return CheckResult(
            "deterministic",
            Status.INCONCLUSIVE,
            f"the forward samples by its own parameters ({', '.join(op.random_types)}): the "
            "sampler's gradient is an implicit reparameterisation, no derivative of the draw, so "
            "that differences can't check it. Check what is computed from the draw, the draw being an input; "
            "or hold it against a 'reference' that has the sample by its quantile"
            f"{'' if is_same else ', with a stateless sampler'}.",
        )
    if any(name.startswith(_TAKES_AWAY) for name in op.random_types):
        return CheckResult(
            "deterministic",
            Status.INCONCLUSIVE,
            f"the forward reads other data each time it runs ({', '.join(op.random_types)}), and nothing "
            "can restore them: pass the data as an input.",
        )
    return CheckResult(
        "deterministic",
        Status.INCONCLUSIVE,
        f"the forward draws random numbers ({', '.join(op.random_types)}), anew at each evaluation; use "
        "tf.random.stateless_* with a fixed seed, or pass the draw as an input with 'differentiate: false'.",
    )


def check_beside_gradient(view: PointView) -> list[CheckResult]:
    """Compare the forward with the one traced beside the gradient, unless `retrace` does so."""
    if "retrace" not in view.case.checks_off:
        return []
    result = find_other_function(view.op, [view.op])
    return [] if result is None else [result]


def find_other_function(op: Operation, traces: Sequence[Operation]) -> CheckResult | None:
    """Find a forward whose values at the base point change from trace to trace.

    Args:
        op: the declared op.
        traces: the same op; each has a forward that was traced with the gradient.
    """
    if op.random_types:
        return None
    largest = max([1.0, *[_largest(value) for value in op.point]])
    for trace in traces:
        for info, first, second in zip(op.outputs, op.base_values, trace.values_beside_gradient, strict=True):
            if not info.is_differentiable:
                is_same = np.array_equal(first, second)
            else:  # a model that returns float32 may compute in bfloat16
                dtype = working_dtype(op, info.dtype)
                is_same = first.shape == second.shape and _are_close(dtype, first, second, largest)
            if not is_same:
                return CheckResult(
                    "deterministic",
                    Status.INCONCLUSIVE,
                    f"{info.name} has another value each time the forward is traced, so that no gradient can "
                    "be held against it: keep no state in Python between calls, but in a tf.Variable.",
                )
    return None


def _are_close(dtype: str, first: Any, second: Any, largest: float) -> bool:  # noqa: ANN401 (any dtype)
    finite = np.isfinite(first)
    floor = FORWARD_ROUNDINGS * precision_of(dtype).unit_roundoff * largest
    allowed = _AGREEMENT.get(dtype, 1e-6) * _largest(first) + floor
    with np.errstate(invalid="ignore"):
        close = np.abs(first[finite] - second[finite]) <= allowed
    return bool(np.array_equal(finite, np.isfinite(second)) and close.all())


def _largest(value: Any) -> float:  # noqa: ANN401 (any dtype)
    return largest_finite(value) if value.dtype.kind in "fc" else 0.0


def check_rerun(view: OpenedView) -> list[CheckResult]:
    """Find a forward that returns other values at the same point, for any reason."""
    result = None if view.op.random_types else _find_changed_values(view.op)
    return [] if result is None else [result]


def _find_changed_values(op: Operation) -> CheckResult | None:
    input_index = next((index for index, info in enumerate(op.inputs) if info.is_differentiable), None)
    if input_index is None:
        return None
    twice = {input_index: np.stack([op.point[input_index]] * 2)}
    for info, values in zip(op.outputs, op.evaluate(twice), strict=True):
        first, second = np.asarray(values[0]), np.asarray(values[1])
        if not info.is_differentiable:
            changed = np.asarray(first != second)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                unit = working_precision(op, info.dtype).unit_roundoff
                changed = ~agree(first, second, FORWARD_ROUNDINGS * unit * largest_finite(first))
        if changed.any():
            where = tuple(int(index) for index in np.argwhere(changed)[0])
            return CheckResult(
                "deterministic",
                Status.INCONCLUSIVE,
                f"the forward returns other values when it is run again at the same point: {info.name}"
                f"{list(where)} was {first[where]}, then {second[where]}; does it draw random numbers, keep "
                "state, or leave memory unwritten, as a kernel does that gives up?",
            )
    return None


def check_frozen(view: OpenedView) -> list[CheckResult]:
    """Report which ops are held while the inputs move, and a `stop_gradient` that can't be held."""
    op = view.op
    if op.unreachable:
        message = (
            f"backpropagation takes a stop_gradient inside {', '.join(op.unreachable)} as a constant, and "
            "nothing can hold it there: a ready-made function (a ConcreteFunction, a SavedModel) is closed. "
            "Check the Python function that it was made of; or leave 'freeze' out where holding makes no "
            "difference, as it doesn't for a softmax's maximum."
        )
        return [CheckResult("frozen", Status.INCONCLUSIVE, message)]
    if not op.frozen:
        return []
    counts = ", ".join(f"{count} {name}" for name, count in sorted(op.frozen.items()))
    return [CheckResult("frozen", Status.PASSED, f"held at the base point's values: {counts}.")]
