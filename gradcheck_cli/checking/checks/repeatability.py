"""Check that the same upstream gives the same gradient: when it is run again, and when it is traced again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.checking.ops.jacobian import pull_back
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.checks.upstreams import Pulled
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float


def check_same(
    name: str,
    what: str,
    every: list[Pulled],
    other: Operation,
    question: str = "does the gradient draw random numbers, or keep state?",
) -> CheckResult:
    """Check that the same upstream at the same point gives the same gradient, up to the order of its sums.

    Args:
        name: the check's.
        what: when it is pulled back again, such as "when it is run again".
        every: the vjp of each output.
        other: what the upstream is pulled back with again: the op itself, or another form of it.
        question: what to look at, where they differ.
    """
    for pulled in every:
        again = _again(pulled, other)
        for number in pulled.numbers:
            label, second = pulled.label(number), again.get(number)
            if second is None:
                return CheckResult(name, Status.MISMATCHED, f"{label} is None at times: it differs {what}.")
            largest, atol = pulled.largest(number), pulled.case.nondeterminism
            if atol and atol >= largest > 0:
                return CheckResult(name, Status.INCONCLUSIVE, _hides_all(label, what, atol, largest))
            fault = pulled.find_change(number, second)
            if fault is not None:
                return CheckResult(
                    name,
                    Status.MISMATCHED,
                    f"{label} differs {what}: element {fault.where} was {fault.wanted:.6e}, then "
                    f"{fault.found:.6e}; {question}",
                )
    return CheckResult(name, Status.PASSED)


def _again(pulled: Pulled, other: Operation) -> dict[int, Float]:
    """Pull the first upstream back once more; by the op itself that may have been done with the others."""
    if other is pulled.op:
        pulled.first  # noqa: B018 (before anything else)
        return next(pulled.pulled_for("repeat"))
    gradients = pull_back(other, pulled.output, pulled.base[None])
    return {number: gradient[0] for number, gradient in gradients.items() if gradient is not None}


def _hides_all(label: str, what: str, atol: float, largest: float) -> str:
    """Say that a spec's `nondeterminism` lets a gradient differ by as much as there is of it."""
    return (
        f"nondeterminism.atol {atol:.1e} lets {label} differ {what} by all of its {largest:.1e}: that tests "
        "nothing; state how far its elements really differ."
    )
