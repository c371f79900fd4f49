"""The floating-point formats in which ops compute, and every number that is different from one to another.

A new format is a row at the end of the table, and its names in `_BY_DTYPE`. It has eight bits at least, since
upstreams have as many (`random_vectors`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]


# A step of fewer ulp than these is rounding: the step itself may be off by half an ulp.
LEAST = 4.0


@dataclass(frozen=True)
class LadderSteps:
    """Steps as exponents of two of the scale.

    `sentinels` are tiny steps. Every estimate must agree with them within noise, which avoids most traps of
    extrapolation and decides kinks. `inner` rungs, two at least, lie around and below the first pass's step;
    `outer` and `far` ones are used only where these don't decide. `middle` is the spacing of the second set
    of noise points. `depths` says how many powers of two closer to the point all of this is tried again.
    """

    sentinels: tuple[int, ...]
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    far: tuple[int, ...]
    middle: int
    depths: tuple[int, ...] = ()

    def sentinels_at(self, depth: int, working: Precision) -> tuple[int, ...]:
        """Return the sentinels that x can still step by if all points are nearer: at least `LEAST` ulp."""
        least = np.log2(LEAST * 2 * working.unit_roundoff) + depth
        return tuple(exponent for exponent in self.sentinels if exponent >= least)


@dataclass(frozen=True)
class PieceSteps:
    """How far to step, over the inputs' scale.

    Attributes:
        near: the distance from the tie at which slopes are taken. They change on the way by `near` times the
            curvature, and are rounded by 2 u |f| / (near * spread): in float64 1e-6 and 1e-7, about a
            gradient's tolerance; in float32 4e-3 and 2e-4, about twice the tolerance.
        nearest: at this distance the function must still move as it does at `far`; otherwise there is a kink
            close to the point, not at it.
        spread: the distance of the points that a slope is taken from, over the distance from the tie. A piece
            that is narrower than that, as seen along a direction, isn't seen.
        bent: the largest difference between the two halves of a slope, over the row's largest slope. In a
            curve they differ by `spread` times its curvature; where a piece ends in between, by as much as
            the pieces do.
        apart: likewise for slopes along d at `far` and `nearest`: in a curve they differ by `far` times its
            curvature.
    """

    near: float
    far: float  # a larger distance, which shows how the slope changes on the way
    nearest: float
    spread: float
    bent: float
    apart: float


@dataclass(frozen=True)
class Precision:
    """A binary floating-point format whose values are held, exactly, in float64.

    Attributes:
        smallest_kept: kernels flush anything smaller to zero. It is the smallest normal number, except for
            float16, whose kernels compute in float32.
        tolerances: of a gradient in this dtype, by the dtype of what it is compared with: (rtol, ratol,
            roundings of the output's value); see `ToleranceRule`. Found on 134 functions with 80-digit
            derivatives.
        first_step: the first pass's, over the input's scale. Truncation and rounding of a central difference
            balance near u^(1/3). The step is four to five times that, so that elements on which f hardly
            depends (where rounding dominates) don't all go to the second stage.
        probe_steps: over the input's scale, by their reach: short, middle, long and smooth. At the middle
            one, truncation (h^2) and rounding (u / h) of sums over 10^7 rows balance. A long step suits
            straight functions; a short one crosses few kinks where there are many, as in a sort. The last one
            is for smooth functions, whose differences are extrapolated: there truncation (h^4) and rounding
            balance farther away.
        pieces: the steps that find smooth pieces; `None` where no difference of slopes shows, and elements
            are judged one by one.
        agreement: how far two ways of computing one function may differ, relative to the largest value:
            twice the square root of the unit roundoff, or a little more, which no sane forward loses by
            summing in another order; another function differs by far more.
        nudge: upstreams u and u (1 + k nudge) are rounded differently throughout, for small odd k. It keeps
            the product exact: the upstream takes 8 bits, k at least 5. A part that isn't linear in the
            upstream changes only by this share of itself. `None` where there are too few bits.
        is_narrowed: whether upstreams in it are often cast to a format of eight bits, as bfloat16 has, so
            that a gradient's bits are compared with those that such a cast leaves.
        absorbing: how many times the other terms of a sum a first one must be to absorb each of them, where
            they are added one by one; 1 where TensorFlow itself adds so, or where there are bits to spare.
    """

    name: str  # TensorFlow's name of the real dtype
    unit_roundoff: float  # largest relative rounding error to nearest, 2^-p with p significant bits
    smallest_subnormal: float  # the distance between values next to zero
    largest: float  # the largest finite value; a value that rounds beyond it is infinite
    smallest_kept: float
    tolerances: tuple[tuple[str, tuple[float, float, float]], ...]
    first_step: float
    ladder: LadderSteps  # the second stage's steps
    probe_steps: tuple[float, float, float, float]
    pieces: PieceSteps | None
    agreement: float
    nudge: float | None
    is_narrowed: bool = True
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
        with np.errstate(over="ignore", invalid="ignore"):
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
    ladder=LadderSteps(
        (-36, -26), (-21, -19, -17, -15, -13, -11, -9, -7, -5, -3), (-1,), (1, 3), -27, (8, 16, 24)
    ),
    probe_steps=(2.0**-26, 2.0**-17, 2.0**-9, 2.0**-13),
    pieces=PieceSteps(2.0**-20, 2.0**-17, 2.0**-32, 2.0**-9, 2.0**-6, 2.0**-8),
    agreement=2e-8,
    nudge=2.0**-44,
)
FLOAT32 = Precision(
    "float32",
    unit_roundoff=2.0**-24,
    smallest_subnormal=2.0**-149,
    largest=float(np.finfo(np.float32).max),
    smallest_kept=2.0**-126,
    tolerances=(("float64", (1e-4, 1e-5, 16)), ("float32", (2e-3, 1e-4, 16))),  # from 1e-3; from 1e-2
    first_step=2.0**-6,
    ladder=LadderSteps((-18, -16), (-13, -11, -9, -7, -5, -3), (-1,), (1, 3), -18, (4, 8)),
    probe_steps=(2.0**-12, 2.0**-7, 2.0**-4, 2.0**-6),
    pieces=PieceSteps(2.0**-8, 2.0**-6, 2.0**-12, 2.0**-3, 2.0**-4, 2.0**-3),
    agreement=5e-4,
    nudge=2.0**-14,
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
    ladder=LadderSteps((-8,), (-7, -5, -3), (-1,), (1, 3), -8),
    probe_steps=(2.0**-5, 2.0**-3, 2.0**-2, 2.0**-3),
    pieces=None,
    agreement=0.05,
    nudge=None,
)
BFLOAT16 = Precision(
    "bfloat16",
    unit_roundoff=2.0**-8,
    smallest_subnormal=2.0**-133,
    largest=(2.0 - 2.0**-7) * 2.0**127,
    smallest_kept=2.0**-126,
    tolerances=(("float64", (5e-2, 2e-2, 16)), ("float32", (5e-2, 2e-2, 16)), ("bfloat16", (1e-1, 4e-2, 4))),
    first_step=2.0**-2,
    ladder=LadderSteps((-6,), (-5, -3), (-1,), (1, 3), -5),
    probe_steps=(2.0**-4, 2.0**-2, 2.0**-1, 2.0**-2),
    pieces=None,
    agreement=0.25,
    nudge=None,
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
