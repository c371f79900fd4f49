"""The upstreams that a vjp is tried with.

One-hot upstreams give the Jacobian. They don't show a gradient that clips, squares, ignores or replaces its
upstream.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import pull_back
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.ops.packing import Float, packed_size
from gradcheck_cli.numerics import Precision
from gradcheck_cli.numerics.random_vectors import draw_eight_bits

# Sizes of the random upstreams: far below that of a mean (1/n), that of a mean, that of a loss, above any
# usual clipping norm, and above any loss scale. float16 can't hold the outer two.
_SIZES = (2.0**-40, 2.0**-10, 1.0, 2.0**10, 2.0**40)
# For a gradient that is too small for the sizes above; the shifted upstreams must still fit the dtype.
_SIZES_SHIFTED = (2.0**-10, 1.0, 2.0**5)
# The halvings of neighbouring elements in an upstream of mixed sizes. A few random elements are often all
# within a factor of ten; then a gradient that drops what is small beside the rest looks linear.
_HALVINGS = (0, 12, 4, 8)
_HALVINGS_FLOAT16 = (0, 8, 4)
# The first upstream times this has all bits of its dtype. Rounded to bfloat16, whose numbers are 1/256 to
# 1/128 apart, it is that upstream again.
_NUDGED = 1 + math.pi / 3000
# How many rows' negatives are pulled back, one at a time.
_NEGATIVE_ROWS = 4
# A kernel that never writes its result returns zeros every other time. (empirical)
_TRIES = 16
_MOST_TRIED = 2**22  # elements of all tries together: a large table's gradient is pulled back once


@dataclass(frozen=True)
class Flow:
    """An upstream in words and numbers.

    Attributes:
        is_nudged: whether it is the first one but for a thousandth, so that each gradient must be another.
    """

    words: str
    upstream: Float  # (m,) packed
    factor: float | None = None  # set if it is exactly this multiple of the first one
    is_nudged: bool = False

    @property
    def size(self) -> float:
        """The largest component."""
        return float(np.max(np.abs(self.upstream), initial=0.0))


@dataclass(frozen=True)
class Upstreams:
    """The upstreams of one output.

    Attributes:
        first_rows: in half precision, the first row of each column of a Jacobian that isn't zero.
    """

    op: Operation
    output: int
    seed: int  # for the random ones
    precision: Precision  # all upstreams must be exact in it
    shift: float = 1.0  # a power of two that every upstream is multiplied by
    has_rows: bool = False  # whether single rows can be judged, since the Jacobian is at hand
    first_rows: npt.NDArray[np.int64] | None = None

    @cached_property
    def base(self) -> Float:
        """The first random upstream."""
        return self.shift * random_upstream(self.op, self.output, self.seed, 0)

    @property
    def nudged(self) -> Float:
        """The first one, a thousandth larger."""
        return self.precision.round(_NUDGED * self.base)

    @property
    def size(self) -> float:
        """The largest component of the first one."""
        return float(np.max(np.abs(self.base), initial=0.0))

    @property
    def _rows(self) -> int:
        return self.base.size

    def flows(self) -> Iterator[Flow]:
        """Yield the upstreams to try, including those of training; all are exact in the output's dtype.

        All but one have at most eight bits, so that most of their sums are exact.
        """
        largest = self.precision.largest
        sizes = [size for size in _SIZES if 1 / largest < size < largest]
        for size in sizes if self.shift == 1.0 else _SIZES_SHIFTED:
            yield Flow(f"a random upstream of size {size * self.size:.1e}", size * self.base, size)
        yield Flow("the negative of a random upstream", -self.base, -1.0)
        ones = np.full(self._rows, self.shift)
        if self.op.outputs[self.output].is_complex:
            ones[self.op.outputs[self.output].size :] = 0.0
        yield Flow("an upstream of all ones", ones)
        if self.precision.nudge is not None:
            yield Flow("a random upstream with all bits of its dtype", self.nudged, is_nudged=True)
        if self._rows == 1:
            return
        if self.first_rows is not None:
            # Half precision loses each one that is added to this. What adds in a wider dtype, or in pairs,
            # doesn't.
            saturating = ones.copy()
            saturating[self.first_rows] /= self.precision.unit_roundoff
            yield Flow("an upstream of ones, but for a first one that a sum absorbs them in", saturating)
        yield Flow("an upstream of all 1/n", self.precision.round(ones / self._rows))
        yield Flow("an upstream that is positive throughout", np.maximum(np.abs(self.base), self.shift / 128))
        yield Flow(
            "an upstream that is negative throughout", np.minimum(-np.abs(self.base), -self.shift / 128)
        )
        halvings = _HALVINGS_FLOAT16 if self.precision.name == "float16" else _HALVINGS
        mixed = self.shift * np.exp2(-np.resize(np.array(halvings, dtype=float), self._rows))
        yield Flow("an upstream whose elements are of different sizes", np.copysign(mixed, self.base))
        if not self.has_rows:
            return
        generator = np.random.default_rng([self.seed, self.output, 1])
        for row in generator.choice(self._rows, min(_NEGATIVE_ROWS, self._rows), replace=False):
            alone = np.zeros(self._rows)
            alone[row] = -self.shift
            yield Flow("an upstream with one negative element", alone)


def pull_empty(op: Operation, output: int) -> dict[int, Float]:
    """Pull empty upstreams of an output without elements back, many times: memory may be zero by chance."""
    widest = max((packed_size(info) for info in op.inputs if info.is_differentiable), default=1)
    tries = max(1, min(_TRIES, _MOST_TRIED // widest)) if widest else 1
    gradients = pull_back(op, output, np.zeros((tries, 0)))
    return {input_index: gradient for input_index, gradient in gradients.items() if gradient is not None}


def random_upstream(op: Operation, output: int, seed: int, draw: int) -> Float:
    """Draw an upstream whose components are exact in every dtype: eight bits, below one."""
    return draw_eight_bits(np.random.default_rng([seed, output, draw]), packed_size(op.outputs[output]))
