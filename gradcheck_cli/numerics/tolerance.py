"""How far an analytic gradient may be from the exact one: one table, scaled per element."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.precision import Float, Precision


@dataclass(frozen=True)
class ToleranceRule:
    """The allowed error of output j with respect to input i.

    tol = rtol * max(|a|, |n|) + ratol * A_j / xs_i + value_term * |f_j| / xs_i + underflow,
    with A_j = max_i |n_ji| * ws_i over the pair, from the numeric side only: a wrong analytic value must not
    widen its own tolerance.

    Attributes:
        ratol: relative to the row: an element far below the others of its row is only as accurate as they
            are.
        value_term: relative to the output's value over the input's scale; y(1 - y) near saturation is off by
            2,600 to 30,000 ulp in TensorFlow's own gradients.
        atol: a user's absolute tolerance, which replaces `ratol` and `value_term`; `None` keeps these.
    """

    rtol: float  # relative to the element itself
    ratol: float
    value_term: float
    underflow: float = 0.0  # absolute; kernels of the gradient's own dtype flush anything smaller to zero
    atol: float | None = None
    is_rtol_fixed: bool = False  # whether a user set `rtol`; then a noisy forward doesn't widen it

    def with_user(self, atol: float | None = None, rtol: float | None = None) -> ToleranceRule:
        """Return this rule with a user's own tolerances in place of the defaults.

        Args:
            atol: absolute, exactly as written; replaces the scaled absolute terms. `None` keeps those.
            rtol: relative; replaces `rtol`. `None` keeps it.

        Returns:
            The new rule.
        """
        rule = self
        if atol is not None:
            rule = replace(rule, atol=float(atol), ratol=0.0, value_term=0.0, underflow=0.0)
        if rtol is not None:
            rule = replace(rule, rtol=float(rtol), is_rtol_fixed=True)
        return rule


def rule_for(gradient: Precision, reference: Precision) -> ToleranceRule:
    """Return the default rule for a gradient of one precision against differences taken in another.

    Args:
        gradient: the precision of the gradient under test.
        reference: the precision in which the numeric derivative is taken.

    Returns:
        The rule of the dtype's row. If the reference is the coarser of the two, it is the rule for the
        reference's precision on both sides, since no more can be seen.
    """
    row = dict(gradient.tolerances).get(reference.name)
    if row is None:
        gradient, row = reference, dict(reference.tolerances)[reference.name]
    rtol, ratol, roundings = row
    # A gradient that underflows is flushed to zero: up to `smallest_kept` per operation. Allow four.
    return ToleranceRule(rtol, ratol, roundings * gradient.unit_roundoff, 4 * gradient.smallest_kept)


def allowed_error(  # noqa: PLR0913, PLR0917 (each is one symbol of the formula)
    rule: ToleranceRule,
    slopes: tuple[npt.ArrayLike, npt.ArrayLike],
    row_scale: npt.ArrayLike,
    value: npt.ArrayLike,
    step_scale: npt.ArrayLike,
    rtol: npt.ArrayLike | None = None,
) -> Float:
    """Return the error allowed per element; see `ToleranceRule` for the formula.

    Args:
        rule: the rule to apply.
        slopes: a and n, broadcast; non-finite values count as 0.
        row_scale: A_j, broadcast with both; see `row_scale`.
        value: f_j(x).
        step_scale: xs_i.
        rtol: in place of the rule's own, where a noisy forward widens it.

    Returns:
        Non-negative tolerances.
    """
    size = np.maximum(_finite_magnitude(slopes[0]), _finite_magnitude(slopes[1]))
    relative = (rule.rtol if rtol is None else np.asarray(rtol, dtype=np.float64)) * size
    if rule.atol is not None:
        return np.asarray(relative + rule.atol)
    with np.errstate(over="ignore"):
        absolute = (
            rule.ratol * np.asarray(row_scale) + rule.value_term * _finite_magnitude(value)
        ) / np.asarray(step_scale)
    return np.asarray(relative + absolute + rule.underflow)


def row_scale(numeric: Float, weight_scale: Float) -> Float:
    """Return A_j = max_i |n_ji| * ws_i, the effect of the most important input; non-finite ones are left out.

    Args:
        numeric: (m, n).
        weight_scale: ws, (n,) or (1 or m, n): |x|, or the typical scale where x is 0.

    Returns:
        (m,).
    """
    if numeric.shape[1] == 0:
        return np.zeros(numeric.shape[0])
    with np.errstate(over="ignore"):
        effect = _finite_magnitude(numeric) * weight_scale
    return np.asarray(np.max(np.where(np.isfinite(effect), effect, 0.0), axis=1))


def _finite_magnitude(x: npt.ArrayLike) -> Float:
    wide = np.asarray(x, dtype=np.float64)
    return np.where(np.isfinite(wide), np.abs(wide), 0.0)


# Two runs of one function or of one vjp differ by rounding only: by the order of their sums, of n terms of
# relative error u each, and by what some hundred operations lose. 2^10 u of the sum of magnitudes, or of the
# largest element, is 1e-13 in float64 and 6e-5 in float32.
ROUNDINGS_OF_A_RUN = 2.0**10


def agree(first: npt.ArrayLike, second: npt.ArrayLike, allowed: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Say which elements are equal, both NaN, or differ by no more than is allowed.

    Args:
        second: another of its shape.
        allowed: the largest difference, broadcast to both.
    """
    left, right = np.asarray(first), np.asarray(second)
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(left - right) <= np.asarray(allowed)
    return np.asarray(close | (left == right) | (np.isnan(left) & np.isnan(right)))


def largest_finite(values: npt.NDArray[Any] | Float) -> float:
    """Return the largest finite magnitude; 0 where there is none."""
    if not np.iscomplexobj(values):
        largest = float(max(np.max(values, initial=0.0), -np.min(values, initial=0.0)))
        if math.isfinite(largest):  # usually: avoids a copy of what may be large
            return largest
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))
