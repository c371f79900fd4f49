"""Check that the forward is a function: what draws anew has no derivative, what is held is in reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.spec.case import Case


def check_random(op: Operation, case: Case) -> CheckResult | None:
    """Find a forward that draws anew at each evaluation: it has no derivative to compare with.

    A sampler with a gradient of its own may be held against a reference, which is differenced in its place:
    one that draws the same each time, or whose gradient the spec says is the same at every draw
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
    return CheckResult(
        "deterministic",
        Status.INCONCLUSIVE,
        f"the forward draws random numbers ({', '.join(op.random_types)}), anew at each evaluation; use "
        "tf.random.stateless_* with a fixed seed, or pass the draw as an input with 'differentiate: false'.",
    )


def check_frozen(op: Operation) -> CheckResult | None:
    """Say what is held while the inputs move, or that a `stop_gradient` should be and can't."""
    if op.unreachable:
        return CheckResult(
            "frozen",
            Status.INCONCLUSIVE,
            f"backpropagation takes a stop_gradient inside {', '.join(op.unreachable)} as a constant, and "
            "nothing can hold it there: a ready-made function (a ConcreteFunction, a SavedModel) is closed. "
            "Check the Python function that it was made of; or say 'freeze: false' where holding makes no "
            "difference, as it doesn't for a softmax's maximum.",
        )
    if not op.frozen:
        return None
    held = ", ".join(f"{count} {name}" for name, count in sorted(op.frozen.items()))
    return CheckResult("frozen", Status.PASSED, f"held at the base point's values: {held}.")
