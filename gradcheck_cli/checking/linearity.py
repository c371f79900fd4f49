"""Check that the vjp is linear in the upstream, for each output and for all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.packing import pack, unpack
from gradcheck_cli.checking.upstream import Pulled, each_gradient, is_linear, rounding_slack
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.jacobian import Jacobian
    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.checking.sample import Pair


def check_linearity(
    op: Operation, pulled: list[Pulled], analytic: Mapping[Pair, Jacobian | None]
) -> CheckResult:
    """The vjp of an upstream is the sum of the Jacobian's rows that it weighs."""
    for one, number, label in each_gradient(op, pulled):
        matrix, gradient = analytic.get((one.output, number)), one.gradients[number]
        if matrix is None or gradient is None:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            sums = matrix.pulled(one.upstream)
            slacks = one.slack(op, number, matrix)
        for row in range(1, len(one.upstream)):
            expected, size = sums[row], float(np.max(np.abs(one.upstream[row])))
            right = is_linear(op, number, gradient[row], expected, slacks[row], size)
            if not right.all():
                where = int(np.argmin(right))
                return CheckResult(
                    "linearity",
                    Status.MISMATCHED,
                    f"{label} isn't linear in the upstream: for a random upstream of size {size:.1e} "
                    f"element {where} is {gradient[row][where]:.6e}, but the rows of its own Jacobian add up "
                    f"to {expected[where]:.6e}; is the upstream clipped, squared, replaced or ignored?",
                )
    return CheckResult("linearity", Status.PASSED)


def check_joint_linearity(
    op: Operation, pulled: list[Pulled], analytic: Mapping[Pair, Jacobian | None]
) -> CheckResult:
    """Upstreams of several outputs at once give the sum of what each gives alone.

    A gradient that mixes them (u1 * u2) is right for each alone, and wrong as soon as a loss uses both.
    """
    if len(pulled) < 2:  # noqa: PLR2004 (one output has nothing to mix with)
        return CheckResult("linearity", Status.PASSED)
    rows = min(len(one.upstream) for one in pulled)
    upstreams = {one.output: unpack(one.upstream[:rows], op.outputs[one.output]) for one in pulled}
    for number, joint in enumerate(op.joint_vjp(upstreams)):
        info = op.inputs[number]
        parts = [part[:rows] for one in pulled if (part := one.gradients.get(number)) is not None]
        # An input of which every pair is expected to be wrong, or is large and so pulled back elsewhere.
        is_left_out = not any((one.output, number) in analytic for one in pulled)
        if joint is None or not parts or is_left_out or not info.is_differentiable:
            continue
        found, expected = pack(joint, info), np.sum(parts, axis=0)
        slack = np.zeros(found.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            for one in pulled:
                matrix = analytic.get((one.output, number))
                if matrix is not None:
                    slack += rounding_slack(op, one.output, number, one.upstream[:rows], matrix)
        sizes = [max(float(np.max(np.abs(one.upstream[row]))) for one in pulled) for row in range(rows)]
        right = np.array(
            [is_linear(op, number, found[row], expected[row], slack[row], sizes[row]) for row in range(rows)]
        )
        if not right.all():
            row, column = (int(index) for index in np.unravel_index(int(np.argmin(right)), right.shape))
            return CheckResult(
                "linearity",
                Status.MISMATCHED,
                f"the gradient for {info.name} isn't the sum of what each output's upstream gives alone: "
                f"element {column} is {found[row, column]:.6e} with all of them, their sum is "
                f"{expected[row, column]:.6e}; does the gradient mix the outputs' upstreams?",
            )
    return CheckResult("linearity", Status.PASSED)
