"""The noise of a function's values, from high-order differences at tiny, evenly spaced steps.

References:
    J. J. More and S. M. Wild, Estimating Computational Noise, SIAM J. Sci. Comput. 33 (2011), 1292-1314.
"""

from __future__ import annotations

from math import factorial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gradcheck_cli.numerics.precision import Float

POINTS = 7  # ECnoise's own choice for "few evaluations": orders up to 6
OFFSETS = np.arange(POINTS) - POINTS // 2
# Steps are random odd multiples of the spacing: power-of-two multiples missed a hundredfold noise (rounding
# of x repeats itself), 25 to 63 ulp aliased with the rounding of intermediates (NUMERICS).
ODD_MULTIPLES = np.array([3, 5, 7, 9, 11, 13])
# Values err by more than one standard deviation: uniform rounding by a factor of 1.7, and the estimate
# itself, from a handful of differences, by another factor of two.
BOUND_PER_SIGMA = 4.0


# Estimates of independent noise agree over the orders (More and Wild require a factor of 4); those of a
# smooth shape don't.
SAME_OVER_ORDERS = 4.0


def standard_deviation(values: Float, *, only_noise: bool = False) -> Float:
    """Estimate the noise from values at evenly spaced points.

    For independent noise of variance s^2 the k-th difference has variance s^2 (2k)! / (k!)^2, while a smooth
    function's k-th difference vanishes with the k-th power of the spacing. The estimate is the median over
    orders 4 to 6, because the last relies on a single difference, which may be small by chance.

    Args:
        values: (POINTS, ...).
        only_noise: whether to return 0 where the orders disagree, since it may then be shape instead.

    Returns:
        (...), NaN where a value isn't finite.
    """
    estimates = []
    with np.errstate(all="ignore"):
        for order in range(4, POINTS):
            gamma = factorial(order) ** 2 / factorial(2 * order)
            table = np.diff(values, n=order, axis=0)
            estimates.append(np.sqrt(gamma * np.mean(table * table, axis=0)))
        middle = np.median(estimates, axis=0)
        if only_noise:
            is_noise = np.max(estimates, axis=0) <= SAME_OVER_ORDERS * np.min(estimates, axis=0)
            return np.where(is_noise, middle, 0.0)
        return np.asarray(middle)
