"""The checks on the vjp as a function of its upstream, for pairs whose Jacobian isn't at hand.

Without the Jacobian's rows, linearity is homogeneity and additivity: an upstream scaled by a power of two
must give the gradient scaled by it, but for underflow, and two upstreams together the sum of what each gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gradcheck_cli.checking.jacobian import pull_back, working_precision
from gradcheck_cli.checking.operation import Operation
from gradcheck_cli.checking.packing import packed_size
from gradcheck_cli.checking.sample import label_of
from gradcheck_cli.checking.upstream import CANCELLATION, ROUNDINGS, coarse
from gradcheck_cli.numerics.probe import chunks
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.checking.packing import Float
    from gradcheck_cli.checking.sample import Pair
    from gradcheck_cli.spec.case import Case

Op = TypeVar("Op", bound=Operation)

# Far below a mean's upstream, and beyond any mixed-precision loss scale; float16 holds less.
_SIZES = (2.0**-24, 2.0**24)
_SIZES_FLOAT16 = (2.0**-10, 2.0**10)


@dataclass(frozen=True)
class _Pulled:
    """The gradients, by input, of one output's upstreams."""

    output: int
    upstream: Float
    gradients: dict[int, Float]


def large_upstream_checks(
    case: Case, op: Op, pairs: list[Pair], traced_again: Callable[[], Op]
) -> list[CheckResult]:
    """Check the declared op's vjp of the outputs of some pairs.

    Args:
        case: says which checks are off, and how far a repeated gradient may differ.
        op: the declared op.
        pairs: those that are to be right.
        traced_again: traces the op afresh at the same point.
    """
    checks: list[CheckResult] = []
    fresh: Op | None = None
    for output in sorted({output for output, _ in pairs}):
        numbers = [number for of, number in pairs if of == output and op.is_connected(output, number)]
        if not numbers:
            continue
        first = _pull(op, output, numbers, random_upstream(op, output, case.seed, 0))
        if "linearity" not in case.checks_off:
            checks.append(_linear(case, op, first))
        if "zero_upstream" not in case.checks_off:
            checks.append(_zero(op, first))
        if "repeat" not in case.checks_off:
            again = _pull(op, output, numbers, first.upstream)
            checks.append(_same(case, op, "repeat", "when it is run again", first, again))
        if "retrace" not in case.checks_off:
            fresh = fresh if fresh is not None else traced_again()
            again = _pull(fresh, output, numbers, first.upstream)
            checks.append(_same(case, op, "retrace", "when it is traced again", first, again))
    return checks


def find_difference(
    case: Case, op: Op, other: Operation, pair: Pair, rtol: float
) -> tuple[int, float, float] | None:
    """Find an element in which two forms of an op give different gradients for one random upstream.

    Args:
        case: for its seed, and for how far a repeated gradient may differ.
        op: one form.
        other: the other, with inputs and outputs of the same shapes.
        pair: connected in both.
        rtol: what they may differ by beside rounding, of the largest element.

    Returns:
        The element's packed number and its value in each; `None` where they agree.
    """
    output, number = pair
    upstream = random_upstream(op, output, case.seed, 0)
    first, second = (_pull(one, output, [number], upstream).gradients[number] for one in (op, other))
    room = case.nondeterminism + rtol * max(_largest(first), _largest(second))
    for found, expected in ((first, second), (second, first)):  # what isn't finite in one of them only
        where = _differs(op, number, found, expected, room=room)
        if where is not None:
            return where, float(first[where]), float(second[where])
    return None


def same_upstreams(  # noqa: PLR0913, PLR0917 (two forms of an op, and how the other one came about)
    case: Case, op: Op, other: Op, pairs: list[Pair], name: str, what: str, question: str
) -> CheckResult:
    """Check that another form of the op gives the same gradients for a random upstream of each output.

    Args:
        case: for its seed, and for how far a repeated gradient may differ.
        op: the declared op.
        other: its other form.
        pairs: what is compared.
        name: the check's.
        what: when the other form's gradient is had, such as "when it is traced again".
        question: what to look at, where they differ.
    """
    for output in sorted({output for output, _ in pairs}):
        numbers = [number for of, number in pairs if of == output and op.is_connected(output, number)]
        if not numbers:
            continue
        first = _pull(op, output, numbers, random_upstream(op, output, case.seed, 0))
        again = _pull(other, output, numbers, first.upstream)
        result = _same(case, op, name, what, first, again, question)
        if result.status is not Status.PASSED:
            return result
    return CheckResult(name, Status.PASSED)


def random_upstream(op: Operation, output: int, seed: int, number: int) -> Float:
    """Draw an upstream with components exact in every dtype: eight bits, below one."""
    return coarse(np.random.default_rng([seed, output, number]), packed_size(op.outputs[output]))


def _pull(op: Operation, output: int, numbers: list[int], upstream: Float) -> _Pulled:
    gradients = pull_back(op, output, upstream[None])
    return _Pulled(
        output,
        upstream,
        {number: gradient[0] for number in numbers if (gradient := gradients[number]) is not None},
    )


def _linear(case: Case, op: Operation, first: _Pulled) -> CheckResult:
    """Compare gradients of upstreams that are multiples and sums of others, one after another."""
    output = first.output
    is_half = working_precision(op, op.outputs[output].dtype).name == "float16"
    for size in _SIZES_FLOAT16 if is_half else _SIZES:
        found = _pull(op, output, list(first.gradients), first.upstream * size).gradients
        for number, expected in first.gradients.items():
            where = _differs(op, number, found[number], expected, size)
            if where is not None:
                return _mismatch(
                    op,
                    first,
                    number,
                    f"isn't linear in the upstream: for one {size:.1e} times another, element {where} is "
                    f"{found[number][where]:.6e}, not {expected[where] * size:.6e}; is the upstream clipped, "
                    "squared, replaced or ignored?",
                )
        del found
    other = random_upstream(op, output, case.seed, 1)
    sums = _pull(op, output, list(first.gradients), other).gradients
    sums = {number: gradient + first.gradients[number] for number, gradient in sums.items()}
    other += first.upstream
    both = _pull(op, output, list(first.gradients), other).gradients
    for number, expected in sums.items():
        where = _differs(op, number, both[number], expected)
        if where is not None:
            return _mismatch(
                op,
                first,
                number,
                f"isn't linear in the upstream: for the sum of two, element {where} is "
                f"{both[number][where]:.6e}, but what each gives adds up to {expected[where]:.6e}; is the "
                "upstream clipped, squared, replaced or ignored?",
            )
    return CheckResult("linearity", Status.PASSED)


def _mismatch(op: Operation, first: _Pulled, number: int, what: str) -> CheckResult:
    label = label_of(op, (first.output, number))
    return CheckResult("linearity", Status.MISMATCHED, f"{label} {what}")


def _differs(  # noqa: PLR0913, PLR0917 (two gradients, and what is allowed between them)
    op: Operation, number: int, found: Float, expected: Float, size: float = 1.0, room: float = 0.0
) -> int | None:
    """Return an element in which two gradients differ by more than rounding, `None` if there is none.

    Args:
        op: the op.
        number: of the input.
        found: (n,); where it overflows for a size above 1, that is no difference.
        expected: (n,), to be taken times `size`; where it isn't finite, anything goes.
        size: a power of two.
        room: that they may differ by all the same.
    """
    precision = working_precision(op, op.inputs[number].dtype)
    share = CANCELLATION[precision.name] + ROUNDINGS * precision.unit_roundoff
    largest = max((_largest(expected[part]) for part in chunks(expected.size)), default=0.0)
    with np.errstate(over="ignore"):
        slack = (
            share * min(largest * size, precision.largest) + ROUNDINGS * precision.smallest_subnormal + room
        )
    for part in chunks(expected.size):
        with np.errstate(invalid="ignore", over="ignore"):
            wanted = expected[part] * size
            right = (np.abs(found[part] - wanted) <= slack) | ~np.isfinite(wanted)
            right |= ~np.isfinite(found[part]) & (size > 1)
        if not right.all():
            return int(part.start) + int(np.argmin(right))
    return None


def _largest(values: Float) -> float:
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def _zero(op: Operation, first: _Pulled) -> CheckResult:
    none = _pull(op, first.output, list(first.gradients), np.zeros(first.upstream.size))
    for number, gradient in none.gradients.items():
        wrong = (gradient != 0) & np.isfinite(first.gradients[number])
        if wrong.any():
            where = int(np.argmax(wrong))
            label = label_of(op, (first.output, number))
            return CheckResult(
                "zero_upstream",
                Status.MISMATCHED,
                f"{label} isn't zero for a zero upstream: element {where} is {gradient[where]:.6e}.",
            )
    return CheckResult("zero_upstream", Status.PASSED)


def _same(  # noqa: PLR0913, PLR0917 (two runs, and how they came about)
    case: Case,
    op: Operation,
    name: str,
    what: str,
    first: _Pulled,
    again: _Pulled,
    question: str = "does the gradient draw random numbers, or keep state?",
) -> CheckResult:
    for number, gradient in first.gradients.items():
        other = again.gradients.get(number)
        if other is None:
            label = label_of(op, (first.output, number))
            return CheckResult(name, Status.MISMATCHED, f"{label} is None at times: it differs {what}.")
        where = _differs(op, number, other, gradient, room=case.nondeterminism)
        if where is not None:
            label = label_of(op, (first.output, number))
            return CheckResult(
                name,
                Status.MISMATCHED,
                f"{label} differs {what}: element {where} was {gradient[where]:.6e}, then "
                f"{other[where]:.6e}; {question}",
            )
    return CheckResult(name, Status.PASSED)
