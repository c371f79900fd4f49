"""The floating-point formats in which ops compute, and every number that is different from one to another.

One of them is how far a gradient may be from the exact one (`ToleranceRule`). A new format is a row at the
end of the table, and its names in `_BY_DTYPE`. It has eight bits at least, since upstreams have as many
(`problem.draw_eight_bits`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LadderSteps:
    """Steps as exponents of two of the scale.

    `sentinels` are tiny steps. Every estimate must agree with them within noise, which avoids most traps of
    extrapolation and decides kinks. `inner` rungs, two at least, lie around and below the first pass's step.
    `middle` is the spacing of the second set of noise points. `depths` says how many powers of two closer to
    the point all of this is tried again.
    """

    sentinels: tuple[int, ...]
    inner: tuple[int, ...]
    middle: int
    depths: tuple[int, ...] = ()

    def sentinels_at(self, depth: int, working: Precision) -> tuple[int, ...]:
        """Return the sentinels that x can still step by if all points are nearer: at least an ulp."""
        least = np.log2(2 * working.unit_roundoff) + depth
        return tuple(exponent for exponent in self.sentinels if exponent >= least)


@dataclass(frozen=True)
class PieceSteps:
    """How far to step, over the inputs' scale."""

    # the distance from the tie at which slopes are taken. They change on the way by `near` times the
    # curvature, and are rounded by 2 u |f| / (near * spread): in float64 1e-6 and 1e-7, about a gradient's
    # tolerance; in float32 4e-3 and 2e-4, about twice the tolerance.
    near: float
    far: float  # a larger distance, which shows how the slope changes on the way
    # at this distance the function must still move as it does at `far`; otherwise there is a kink close to
    # the point, not at it
    nearest: float
    # the distance of the points that a slope is taken from, over the distance from the tie. A piece that is
    # narrower than that, as seen along a direction, isn't seen.
    spread: float
    # the largest difference between the two halves of a slope, over the row's largest slope. In a curve they
    # differ by `spread` times its curvature; where a piece ends in between, by as much as the pieces do.
    bent: float
    # likewise for slopes along d at `far` and `nearest`: in a curve they differ by `far` times its curvature
    apart: float


@dataclass(frozen=True)
class Precision:
    """A binary floating-point format whose values are held, exactly, in float64."""

    name: str  # TensorFlow's name of the real dtype
    unit_roundoff: float  # largest relative rounding error to nearest, 2^-p with p significant bits
    smallest_subnormal: float  # the distance between values next to zero
    largest: float  # the largest finite value; a value that rounds beyond it is infinite
    # kernels flush anything smaller to zero. It is the smallest normal number, except for float16, whose
    # kernels compute in float32.
    smallest_kept: float
    # of a gradient in this dtype, by the dtype of what it is compared with: (rtol, ratol, roundings of the
    # output's value); see `ToleranceRule`. Found on 134 functions with 80-digit derivatives.
    tolerances: tuple[tuple[str, tuple[float, float, float]], ...]
    # the first pass's, over the input's scale. Truncation and rounding of a central difference balance near
    # u^(1/3). The step is four to five times that, so that elements on which f hardly depends (where rounding
    # dominates) don't all go to the second stage.
    first_step: float
    ladder: LadderSteps  # the second stage's steps
    # over the input's scale, by their reach: short, middle, long and smooth. At the middle one, truncation
    # (h^2) and rounding (u / h) of sums over 10^7 rows balance. A long step suits straight functions; a short
    # one crosses few kinks where there are many, as in a sort. The last one is for smooth functions, whose
    # differences are extrapolated: there truncation (h^4) and rounding balance farther away.
    probe_steps: tuple[float, float, float, float]
    # the steps that find smooth pieces; `None` where no difference of slopes shows, and elements are judged
    # one by one
    pieces: PieceSteps | None
    # whether upstreams in it are often cast to a format of eight bits, as bfloat16 has, so that a gradient's
    # bits are compared with those that such a cast leaves
    is_narrowed: bool = True
    # how many times the other terms of a sum a first one must be to absorb each of them, where they are added
    # one by one; 1 where TensorFlow itself adds so, or where there are bits to spare
    absorbing: float = 1.0

    def __hash__(self) -> int:
        """Hash the name alone: it is a key of small tables."""
        return hash(self.name)

    @property
    def is_short_ranged(self) -> bool:
        """Whether it holds only sizes near 1: float16 ends at 65504."""
        return self.largest < 2.0**20

    @property
    def half_the_digits(self) -> float:
        """Half of its digits, as a share: the square root of the distance from 1 to the next number."""
        return float(np.sqrt(2 * self.unit_roundoff))

    @property
    def is_half(self) -> bool:
        """Whether it has so few bits, at most 11, that rounding can't be measured."""
        return self.unit_roundoff >= 2.0**-11

    @property
    def agreement(self) -> float:
        """How far two ways of computing one function may differ, relative to the largest value.

        No sane forward loses more by summing in another order; another function differs by far more.
        """
        return 4 * math.sqrt(self.unit_roundoff)

    def round(self, x: npt.ArrayLike) -> Float:
        """Round to the nearest representable value, ties to even; overflow goes to infinity.

        Args:
            x: any shape.

        Returns:
            The rounded values, as float64 of the same shape.
        """
        wide = np.asarray(x, dtype=np.float64)
        if self.name == "float64":
            return wide
        quantum = self.spacing(wide)
        rounded = np.rint(wide / quantum) * quantum
        rounded = np.where(np.abs(rounded) > self.largest, np.copysign(np.inf, wide), rounded)
        return np.where(np.isfinite(wide), rounded, wide)

    def spacing(self, x: npt.ArrayLike) -> Float:
        """Return the distance from |x| to the next larger value, never less than the smallest subnormal.

        Args:
            x: any shape; non-finite values count as 1.

        Returns:
            Powers of two, same shape.
        """
        wide = np.asarray(x, dtype=np.float64)
        # |x| = mantissa * 2^exponent with mantissa in [0.5, 1), so ulp = 2 u * 2^(exponent - 1).
        exponent = np.frexp(np.where(np.isfinite(wide), wide, 1.0))[1]
        return np.maximum(np.ldexp(self.unit_roundoff, exponent), self.smallest_subnormal)


# IEEE 754-2019, table 3.5 (binary64, binary32, binary16); bfloat16 is binary32 cut to 8 significant bits.
# Which values are flushed was tried with TensorFlow 2.21 on a CPU (products, sums, matmuls).
# Sentinels: 2^-24 and 2^-36 in float64, 2^-12 and 2^-17 in float32, moved by an octave or two to clear the
# ladder below them; the smallest step is 32 ulp in float32 and 4 ulp in half precision. Depths: a ladder
# spans 18 powers of two in float64 and 10 in float32. Each next one overlaps it by a half, so that some
# ladder has several rungs below any scale at which a function turns. The deepest ladder ends where x can step
# no further: 2^-45, with 2^-50 for its sentinel.
FLOAT64 = Precision(
    "float64",
    unit_roundoff=2.0**-53,
    smallest_subnormal=2.0**-1074,
    largest=float(np.finfo(np.float64).max),
    smallest_kept=2.0**-1022,
    tolerances=(("float64", (1e-6, 1e-10, 1024)),),  # finds errors from 1e-4
    first_step=2.0**-15,
    ladder=LadderSteps((-36, -26), (-21, -19, -17, -15, -13, -11, -9, -7, -5, -3), -27, (8, 16, 24)),
    probe_steps=(2.0**-26, 2.0**-17, 2.0**-9, 2.0**-13),
    pieces=PieceSteps(2.0**-20, 2.0**-17, 2.0**-32, 2.0**-9, 2.0**-6, 2.0**-8),
)
FLOAT32 = Precision(
    "float32",
    unit_roundoff=2.0**-24,
    smallest_subnormal=2.0**-149,
    largest=float(np.finfo(np.float32).max),
    smallest_kept=2.0**-126,
    tolerances=(("float64", (1e-4, 1e-5, 16)), ("float32", (2e-3, 1e-4, 16))),  # from 1e-3; from 1e-2
    first_step=2.0**-6,
    ladder=LadderSteps((-18, -16), (-13, -11, -9, -7, -5, -3), -18, (4, 8)),
    probe_steps=(2.0**-12, 2.0**-7, 2.0**-4, 2.0**-6),
    pieces=PieceSteps(2.0**-8, 2.0**-6, 2.0**-12, 2.0**-3, 2.0**-4, 2.0**-3),
)
# In the half precisions a doubling or a sign is found; within the dtype itself, gross errors at most.
FLOAT16 = Precision(
    "float16",
    unit_roundoff=2.0**-11,
    smallest_subnormal=2.0**-24,
    largest=65504.0,
    smallest_kept=2.0**-24,
    tolerances=(("float64", (1e-2, 5e-3, 16)), ("float32", (1e-2, 5e-3, 16)), ("float16", (5e-2, 2e-2, 4))),
    first_step=2.0**-3,
    ladder=LadderSteps((-8,), (-7, -5, -3), -8),
    probe_steps=(2.0**-5, 2.0**-3, 2.0**-2, 2.0**-3),
    pieces=None,
)
BFLOAT16 = Precision(
    "bfloat16",
    unit_roundoff=2.0**-8,
    smallest_subnormal=2.0**-133,
    largest=(2.0 - 2.0**-7) * 2.0**127,
    smallest_kept=2.0**-126,
    tolerances=(("float64", (5e-2, 2e-2, 16)), ("float32", (5e-2, 2e-2, 16)), ("bfloat16", (1e-1, 4e-2, 4))),
    first_step=2.0**-2,
    ladder=LadderSteps((-6,), (-5, -3), -5),
    probe_steps=(2.0**-4, 2.0**-2, 2.0**-1, 2.0**-2),
    pieces=None,
    is_narrowed=False,
    absorbing=2.0**8,
)
PRECISIONS = (FLOAT64, FLOAT32, FLOAT16, BFLOAT16)

_BY_DTYPE = {
    "float64": FLOAT64,
    "float32": FLOAT32,
    "float16": FLOAT16,
    "half": FLOAT16,
    "bfloat16": BFLOAT16,
    "complex64": FLOAT32,
    "complex128": FLOAT64,
}


def precision_of(dtype_name: str) -> Precision:
    """Return the precision in which a dtype computes; a complex dtype has that of its parts.

    Args:
        dtype_name: TensorFlow's name, such as "float32" or "complex64".

    Returns:
        One of the four precisions.

    Raises:
        ValueError: the dtype is not a floating one.
    """
    if dtype_name not in _BY_DTYPE:
        names = ", ".join(sorted(_BY_DTYPE))
        raise ValueError(f"a derivative needs a floating dtype, one of {names}; got {dtype_name!r}")
    return _BY_DTYPE[dtype_name]


def coarsest(*precisions: Precision) -> Precision:
    """Return the precision with the largest rounding error: it limits what differences can show."""
    return max(precisions, key=lambda precision: precision.unit_roundoff)


def smallest_subnormals(unit: Float) -> Float:
    """Return, for each unit roundoff, its precision's smallest subnormal: what underflow may lose."""
    smallest = np.zeros(unit.shape)
    for precision in PRECISIONS:
        smallest = np.where(unit == precision.unit_roundoff, precision.smallest_subnormal, smallest)
    return smallest


# Tolerances.


@dataclass(frozen=True)
class ToleranceRule:
    """The allowed error of output j with respect to input i.

    tol = rtol * max(|a|, |n|) + ratol * A_j / xs_i + value_term * |f_j| / xs_i + underflow,
    with A_j = max_i |n_ji| * ws_i over the pair, from the numeric side only: a wrong analytic value must not
    widen its own tolerance.
    """

    rtol: float  # relative to the element itself
    # relative to the row: an element far below the others of its row is only as accurate as they are
    ratol: float
    # relative to the output's value over the input's scale; y(1 - y) near saturation is off by 2,600 to
    # 30,000 ulp in TensorFlow's own gradients
    value_term: float
    underflow: float = 0.0  # absolute; kernels of the gradient's own dtype flush anything smaller to zero
    # a user's absolute tolerance, which replaces `ratol` and `value_term`; `None` keeps these
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
    absolute = (rule.ratol * np.asarray(row_scale) + rule.value_term * _finite_magnitude(value)) / np.asarray(
        step_scale
    )
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
    close = np.abs(left - right) <= np.asarray(allowed)
    return np.asarray(close | (left == right) | (np.isnan(left) & np.isnan(right)))


def place_of_largest(values: npt.NDArray[Any]) -> tuple[int, ...]:
    """Return the indices of the first of the largest values; of booleans, of the first that is true."""
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(values)), values.shape))


def largest_finite(values: npt.NDArray[Any] | Float) -> float:
    """Return the largest finite magnitude; 0 where there is none."""
    if not np.iscomplexobj(values):
        largest = float(max(np.max(values, initial=0.0), -np.min(values, initial=0.0)))
        if math.isfinite(largest):  # usually: avoids a copy of what may be large
            return largest
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def is_conclusive(analytic: Float, numeric: Float, allowed: Float, working: Precision) -> np.ndarray:
    """Say where a pass means something: half precision's tolerance may let a doubling or a sign through.

    There, the element's own size must exceed twice its tolerance. In wider precisions such elements are far
    below the rest of their row, or below the value: they are noise to anyone who uses the gradient.
    """
    if not working.is_half:
        return np.ones(np.shape(allowed), dtype=bool)
    return np.asarray(2 * allowed <= np.fmax(np.abs(analytic), np.abs(numeric)))
