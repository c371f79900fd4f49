"""The complex step: derivatives without a difference, for functions that are analytic in their inputs.

For an analytic f that is real on the real axis, f(x + ih) = f(x) + ih f'(x) + O(h^2), so Im f(x + ih) / h is
the derivative. There is no subtraction and so no cancellation: h can be as small as the format allows, and
the truncation vanishes. abs, conj, comparisons on the value and the like aren't analytic, and Im f / h is
then something else. So every element is first compared with a central difference.

References: Squire and Trapp, Using complex variables to estimate derivatives of real functions, SIAM Review
40 (1998); Martins, Sturdza and Alonso, The complex-step derivative approximation, ACM TOMS 29 (2003).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.judge import Judgement, estimate
from gradcheck_cli.numerics.problem import Problem
from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.shared_limits import DIGITS, FLOATS_AT_ONCE, OF_MANY_OPERATIONS
from gradcheck_cli.numerics.steps import scales
from gradcheck_cli.numerics.tolerance import allowed_error, row_scale

EvaluateComplex = Callable[[npt.NDArray[np.complex128]], npt.NDArray[np.complex128]]

# Relative to the input's scale. h^2 is far below any unit roundoff, and h f' still far above underflow.
STEP = 2.0**-100


def judge_complex_step(problem: Problem, evaluate: EvaluateComplex, analytic: npt.ArrayLike) -> Judgement:
    """Judge an analytic Jacobian against complex steps.

    Args:
        problem: the function at its point. Values count as precise as the input.
        evaluate: the same function on complex points, (B, n) to (B, m).
        analytic: (m, n) the Jacobian under test.

    Returns:
        The judgement; an element in which the function isn't analytic is inconclusive.
    """
    x, claimed = np.asarray(problem.point, dtype=np.float64), np.asarray(analytic, dtype=np.float64)
    precision = problem.input_precision
    sizes = scales(x, problem.scale)
    step = STEP * sizes.step
    numeric = np.empty(claimed.shape)
    block = max(1, FLOATS_AT_ONCE // max(x.size, claimed.shape[0], 1))
    value = np.zeros(claimed.shape[0])
    for start in range(0, x.size, block):
        stop = min(start + block, x.size)
        points = np.tile(x.astype(np.complex128), (stop - start, 1))
        points[np.arange(stop - start), np.arange(start, stop)] += 1j * step[start:stop]
        values = evaluate(points)
        numeric[:, start:stop] = (values.imag / step[start:stop, None]).T
        value = np.abs(values.real[0])
    # An independent cross-check: it takes no base value and writes its points out.
    plain = replace(problem, row_precision=precision, base_value=None, takes_moves=False)
    central = estimate(plain, method="central")
    rule = plain.rule
    with np.errstate(all="ignore"):
        weight = row_scale(numeric, sizes.weight)[:, None]
        allowed = allowed_error(rule, (claimed, numeric), weight, value[:, None], sizes.step)
        terms = np.abs(numeric) + value[:, None] / sizes.step
        uncertainty = OF_MANY_OPERATIONS * precision.unit_roundoff * terms
        # A central difference in float64 is accurate to about 1e-6 where the first pass is.
        room = central.uncertainty + DIGITS * (np.abs(numeric) + weight / sizes.step)
        is_analytic = np.abs(numeric - central.numeric) <= room
        is_right = np.abs(claimed - numeric) <= allowed + uncertainty
    verdict = np.where(is_right, Verdict.PASS, Verdict.MISMATCH)
    verdict = np.where(is_analytic, verdict, Verdict.INCONCLUSIVE)
    reason = np.where(is_analytic, Reason.NONE, Reason.NOT_ANALYTIC)
    return Judgement(
        verdict=verdict.astype(np.int8),
        numeric=numeric,
        uncertainty=uncertainty,
        allowed=allowed,
        reason=reason.astype(np.int8),
        evaluations=x.size + central.evaluations,
        method="complex_step",
    )
