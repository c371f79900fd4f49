"""Check that the forward is a deterministic function, and that its gradient is the same again.

The same upstream must give the same gradient when it is run again, or traced again. Ops that are held
constant are reported.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from gradcheck_cli.checking.checks.check import (
    OpenedView,
    OutputVjp,
    PointView,
    UpstreamView,
    group_at_hand,
    pull_outputs,
    report,
)
from gradcheck_cli.checking.checks.linearity import find_change
from gradcheck_cli.checking.ops.jacobian import pull_back, working_dtype, working_precision
from gradcheck_cli.checking.ops.operation import Float, GradientFormError, OpenedOperation, Opening, Operation
from gradcheck_cli.checking.pairs.pair import label_of
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics.precision import (
    ROUNDINGS_OF_A_RUN,
    agree,
    largest_finite,
    place_of_largest,
    precision_of,
)
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.values.moves import MOVED

# Prefixes of op types that consume what they read. Variables and tables, by contrast, are restored.
_TAKES_AWAY = ("Barrier", "Iterator", "Map", "OrderedMap", "Queue", "Reader", "Stage", "Unstage")


def _undecided(message: str) -> list[CheckResult]:
    return [CheckResult("deterministic", Status.INCONCLUSIVE, message)]


def check_random(view: OpenedView) -> list[CheckResult]:
    """Find a forward that draws new random numbers at each evaluation: it has no derivative to compare with.

    A sampler with its own gradient may be compared with a reference, which is differenced in its place. The
    sampler must draw the same each time, or the spec must state how far its gradient may vary
    (nondeterminism).
    """
    types, case = view.op.facts.random_types, view.case
    if not types:
        return []
    implicit = [name for name in types if name.startswith("Stateless") or "Gamma" in name]
    if implicit:
        is_same = all(name.startswith("Stateless") for name in types)
        if case.reference is not None and (
            is_same or (case.judging.nondeterminism > 0 and len(implicit) == len(types))
        ):
            return []
        return _undecided(
            f"the parameters of a draw move with the inputs ({', '.join(types)}): the sampler's gradient is "
            "an implicit reparameterisation, not the derivative of the draw, so differences can't check it. "
            "Make the draw an input, and check what is computed from it; or compare it with a 'reference' "
            "that computes the sample from its quantile"
            f"{'' if is_same else ', with a stateless sampler'}."
        )
    if any(name.startswith(_TAKES_AWAY) for name in types):
        return _undecided(
            f"the forward reads other data each time it runs ({', '.join(types)}), and nothing "
            "can restore them: pass the data as an input."
        )
    return _undecided(
        f"the forward draws random numbers ({', '.join(types)}), anew at each evaluation; use "
        "tf.random.stateless_* with a fixed seed, or pass the draw as an input with 'differentiate: false'."
    )


def check_beside_gradient(view: PointView) -> list[CheckResult]:
    """Compare the forward with the one traced beside the gradient."""
    return find_other_function(view.op, view.op) if _is_compared(view.case) else []


def _is_compared(case: Case) -> bool:
    """Whether the forward's values matter: a reference alone is differenced in their place."""
    return case.reference is None or case.reference.equals_forward


def find_other_function(op: Operation, trace: Operation) -> list[CheckResult]:
    """Find a forward whose values at the base point change from trace to trace.

    Args:
        op: the declared op.
        trace: the same op, whose forward was traced with the gradient as well.
    """
    if op.facts.random_types:
        return []
    largest = max([1.0, *[_largest(value) for value in op.point]])
    others = trace.facts.values_beside_gradient
    for info, first, second in zip(op.outputs, op.base_values, others, strict=True):
        if not info.is_differentiable:
            is_same = np.array_equal(first, second)
        else:  # a model that returns float32 may compute in bfloat16
            dtype = working_dtype(op, info.dtype)
            is_same = first.shape == second.shape and _are_close(dtype, first, second, largest)
        if not is_same:
            return _undecided(
                f"{info.name} has another value each time the forward is traced, so no gradient can be "
                "compared with it: keep state in a tf.Variable, not in Python."
            )
    return []


def _are_close(dtype: str, first: Any, second: Any, largest: float) -> bool:  # noqa: ANN401 (any dtype)
    finite = np.isfinite(first)
    precision = precision_of(dtype)
    # Where a value cancels to zero, the loss is relative to the terms that cancel: the inputs, or ones.
    floor = ROUNDINGS_OF_A_RUN * precision.unit_roundoff * largest
    allowed = precision.agreement * _largest(first) + floor
    close = np.abs(first[finite] - second[finite]) <= allowed
    return bool(np.array_equal(finite, np.isfinite(second)) and close.all())


def _largest(value: Any) -> float:  # noqa: ANN401 (any dtype)
    return largest_finite(value) if value.dtype.kind in "fc" else 0.0


def check_rerun(view: OpenedView) -> list[CheckResult]:
    """Find a forward that returns other values at the same point, for any reason."""
    op = view.op
    input_index = next((index for index, info in enumerate(op.inputs) if info.is_differentiable), None)
    if input_index is None or op.facts.random_types or not _is_compared(view.case):
        return []
    twice = {input_index: np.stack([op.point[input_index]] * 2)}
    for info, values in zip(op.outputs, op.evaluate(twice), strict=True):
        first, second = np.asarray(values[0]), np.asarray(values[1])
        if not info.is_differentiable:
            changed = np.asarray(first != second)
        else:
            unit = working_precision(op, info.dtype).unit_roundoff
            changed = ~agree(first, second, ROUNDINGS_OF_A_RUN * unit * largest_finite(first))
        if changed.any():
            where = place_of_largest(changed)
            return _undecided(
                f"the forward returns other values when it is run again at the same point: {info.name}"
                f"{list(where)} was {first[where]}, then {second[where]}; does it draw random numbers, keep "
                "state, or leave memory unwritten, as a kernel does that gives up?"
            )
    return []


def check_frozen(view: OpenedView) -> list[CheckResult]:
    """Report which ops are held while the inputs move, and a `stop_gradient` in a closed function."""
    facts = view.op.facts
    if facts.unreachable:
        message = (
            f"backpropagation takes a stop_gradient inside {', '.join(facts.unreachable)} as a constant, and "
            "nothing can hold it there: a ready-made function (a ConcreteFunction, a SavedModel) is closed. "
            "Check the Python function that it was made of; or leave 'freeze' out where holding makes no "
            "difference, as it doesn't for a softmax's maximum."
        )
        return [CheckResult("frozen", Status.INCONCLUSIVE, message)]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(facts.frozen.items()))
    message = f"held at the base point's values: {counts}." if counts else ""
    return [CheckResult("frozen", Status.PASSED, message)] if message else []


def check_repeat(view: UpstreamView) -> list[CheckResult]:
    """Require that the same upstream gives the same gradient when it is run again."""
    if view.is_formula or not view.pulled:
        return []
    types = view.op.facts.own_draws
    if types and not view.case.judging.nondeterminism:
        message = (
            f"the gradient draws random numbers of its own ({', '.join(types)}): they aren't the "
            "forward's. Keep what the forward drew, or draw by a stateless op with the same seed."
        )
        return [CheckResult("repeat", Status.MISMATCHED, message)]
    return [check_same("repeat", "when it is run again", view.pulled, view.op)]


def check_retrace(view: PointView) -> list[CheckResult]:
    """Compare the graphs that serve every point with a new trace, at the second sample point.

    A spec with a single sample point gets an additional point for this.
    """
    samples = (view.sample, view.compared_at)
    if MOVED not in samples and len(set(samples)) > 1:
        return []
    if MOVED in samples:
        # The spec doesn't ask for this point, so a failure there is no finding.
        with contextlib.suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            moved = view.opener.open(Opening(MOVED))
            if [info.shape for info in moved.outputs] == [info.shape for info in view.op.outputs]:
                return compare_traces(view, moved)
    return compare_traces(view, view.op)


def compare_traces(view: PointView, op: OpenedOperation) -> list[CheckResult]:
    """Compare an op with a fresh trace of it: its gradient and its forward.

    Args:
        view: the pairs that are to be right, and the available Jacobians at the point or near it, which
            say how large a gradient is.
        op: the declared op, at a point other than the one where its graphs first ran.
    """
    if not any(op.outputs[output].size for output, _ in view.expected_right):
        return []
    retraced = view.opener.retrace(op)
    jacobians = {key: matrix for key, matrix in view.jacobians[0].items() if matrix is not None}
    what = "when it is traced again"
    for key in jacobians:
        if key in view.expected_right and not (
            op.facts.is_connected(*key) and retraced.facts.is_connected(*key)
        ):
            message = f"{label_of(op, key)} is None at times: it differs {what}."
            return [CheckResult("retrace", Status.MISMATCHED, message)]
    if retraced is op:
        return [report("retrace", "")]
    groups = group_at_hand(pull_outputs(view.case, op, view.expected_right, jacobians))
    checks = [check_same("retrace", what, group, retraced) for group in groups]
    return [*checks, *(find_other_function(op, retraced) if _is_compared(view.case) else [])]


def check_same(
    name: str,
    what: str,
    all_pulled: list[OutputVjp],
    other_op: Operation,
    question: str = "does the gradient draw random numbers, or keep state?",
) -> CheckResult:
    """Check that the same upstream at the same point gives the same gradient, up to the order of its sums.

    Args:
        what: what is done again, such as "when it is run again".
        all_pulled: the vjp of each output.
        other_op: the op that pulls the upstream back again: the same op or another form of it.
        question: what to look at where they differ.
    """
    for pulled in all_pulled:
        repeated = _pull_again(pulled, other_op)
        for input_index in pulled.input_indices:
            label, second = pulled.label(input_index), repeated.get(input_index)
            if second is None:
                return report(name, f"{label} is None at times: it differs {what}.")
            largest, atol = largest_finite(pulled.first[input_index]), pulled.case.judging.nondeterminism
            if atol and atol >= largest > 0:
                message = (
                    f"nondeterminism.atol {atol:.1e} lets {label} differ {what} by all of its {largest:.1e}: "
                    "that tests nothing; state how far its elements really differ."
                )
                return report(name, message, Status.INCONCLUSIVE)
            fault = find_change(pulled, input_index, second)
            if fault is not None:
                return report(
                    name,
                    f"{label} differs {what}: element {fault.element} was {fault.expected:.6e}, then "
                    f"{fault.actual:.6e}; {question}",
                )
    return report(name, "")


def _pull_again(pulled: OutputVjp, other_op: Operation) -> dict[int, Float]:
    """Pull the first upstream back once more; for the op itself, the common batch may have it already."""
    if other_op is pulled.op:
        _ = pulled.first  # the first pull comes before the repeated one
        return next(pulled.gradients_for("repeat"))
    gradients = pull_back(other_op, pulled.output, pulled.base[None])
    return {input_index: gradient[0] for input_index, gradient in gradients.items() if gradient is not None}
