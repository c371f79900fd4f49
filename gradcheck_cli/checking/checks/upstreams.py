"""A vjp as a function of its upstream: which upstreams it is tried with, and what each must give.

One-hot upstreams, which make up the Jacobian, don't show a gradient that clips, squares, ignores or replaces
what flows in. What an upstream must give has two sources: the rows of the Jacobian, where it is at hand; else
sums, since what two upstreams give must add up. Either way a multiple must give the multiple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.jacobian import packed_point, pull_back, working_precision
from gradcheck_cli.checking.ops.packing import Float, pack, packed_magnitude, packed_size
from gradcheck_cli.numerics import FLOAT64, rule_for
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.probes.probe_direction import chunks
from gradcheck_cli.numerics.steps import scales, typical_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.numerics import Precision
    from gradcheck_cli.spec.case import Case

# Sizes of the random upstreams: far below a mean's (1/n), such a one, a loss's own, beyond any customary
# clipping norm, and beyond any loss scale. float16 can't hold the outer two.
_SIZES = (2.0**-40, 2.0**-10, 1.0, 2.0**10, 2.0**40)
_SIZES_FLOAT16 = (2.0**-10, 1.0, 2.0**10)
# Of a gradient too small for the above: nothing beyond what its dtype holds.
_SIZES_SHIFTED = (2.0**-10, 1.0, 2.0**5)
# Rows whose negative is pulled back alone.
_NEGATIVE_ROWS = 4
# A row's gradient and the same row within a sum differ by rounding alone: n terms of relative error u
# each, and what the vjp itself loses on the way, a few hundred operations' worth. 2^10 u of the sum of
# magnitudes is 1e-13 in float64 and 6e-5 in float32.
ROUNDINGS = 2.0**10
# A kernel that leaves its result as it found the memory finds zeros one time in two. (empirical)
_TRIES = 16
# Floats of upstreams and their gradients that are held at once.
_MOST_TOGETHER = 2**22
_MOST_TRIED = 2**22  # elements of all tries together: a large table's gradient is pulled back once
# What flushed products may be multiplied by later on their way: an upstream times a residual is flushed, and
# then divided by an input of 1e-7. float16 has no such range.
_MAGNIFIED = 2.0**24
_MAGNIFIED_FLOAT16 = 2.0**10
# An upstream and itself times 1 + k 2^-s are rounded differently throughout: what the gradient differs by,
# beyond the factor, is the vjp's own rounding, measured. s leaves the product exact: 8 bits are the
# upstream's, at least 5 are k's. What isn't linear in the upstream changes by 2^-s of itself only.
_NUDGE = {"float64": 2.0**-44, "float32": 2.0**-14}
_NUDGES = (1.0, 3.0, 5.0, 7.0)
# The largest of eight differences, times this, bounds what may be between any two: 4 sigma of each of two
# terms, over the half sigma that the largest of eight has at least 999 times in 1,000, and as much again, for
# upstreams whose own sums cancel less than random ones'.
_MEASURED = 32.0
# The halves have no bits for that: relative to the gradient's largest element, what a vjp that cancels
# inside may lose unseen by its rows.
_CANCELLED = 0.5
# Where underflow may be as large as this share of the gradient's largest element, nothing is told.
_TELLING = 0.25


@dataclass(frozen=True)
class Flow:
    """An upstream, in words and numbers; `factor` is what it is of the first one, if it is a multiple."""

    words: str
    upstream: Float
    factor: float | None = None

    @property
    def size(self) -> float:
        """The largest component."""
        return float(np.max(np.abs(self.upstream), initial=0.0))


@dataclass(frozen=True)
class Fault:
    """An element that isn't what it must be: its packed number, what it is, and what it must be."""

    where: int
    found: float
    wanted: float


@dataclass(frozen=True)
class Sum:
    """What a gradient must add up to.

    Attributes:
        terms: factors, and the gradients that they go with.
        bounds: what the sum's own terms amount to without their signs, where `terms` don't tell, and what
            rounding may have lost of these: of rows. Asked for where the sum itself leaves a doubt.
        others: vjps of other outputs, which have terms in the sum.
    """

    terms: Sequence[tuple[float, Float]]
    bounds: Callable[[], tuple[Float, Float]] | None = None
    others: Sequence[Pulled] = ()


@dataclass
class Pulled:
    """One output's vjp, with a first random upstream and what others must give.

    Attributes:
        case: says which tolerances its author set, and how far a repeated gradient may differ.
        op: the op.
        output: the output's number.
        numbers: of the inputs whose gradients are to be right, all connected.
        matrices: Jacobians, where they are at hand.
        shift: a power of two that every upstream is multiplied by.
        ahead: names of the checks whose upstreams are pulled back together with the first one.
    """

    case: Case
    op: Operation
    output: int
    numbers: Sequence[int]
    matrices: Mapping[int, Jacobian]
    shift: float = 1.0
    ahead: frozenset[str] = frozenset()
    told: set[int] = field(default_factory=set)  # of which inputs an upstream has told something
    _typical: dict[int, float] = field(default_factory=dict)
    _both: tuple[Flow, dict[int, Float]] | None = None

    @cached_property
    def precision(self) -> Precision:
        """The coarsest precision between the output and its inputs."""
        infos = [self.op.outputs[self.output], *[self.op.inputs[number] for number in self.numbers]]
        return coarsest(*[working_precision(self.op, info.dtype) for info in infos])

    @cached_property
    def base(self) -> Float:
        """The first random upstream."""
        return self.shift * random_upstream(self.op, self.output, self.case.seed, 0)

    @cached_property
    def first(self) -> dict[int, Float]:
        """What it gives, for every input that there is a gradient for."""
        return next(self.pulled_for("first"))

    def largest(self, number: int) -> float:
        """Return the largest finite element of what the first upstream gives."""
        return _largest(self.first[number])

    @property
    def rows(self) -> int:
        """Packed size of the output."""
        return self.base.size

    def label(self, number: int) -> str:
        """Return the pair's label for messages."""
        return f"d{self.op.outputs[self.output].name}/d{self.op.inputs[number].name}"

    def pull(self, upstream: Float) -> dict[int, Float]:
        """Pull one upstream back to every input that there is a gradient for."""
        return self.pull_each(upstream[None])[0]

    def pulled_for(self, check: str) -> Iterator[dict[int, Float]]:
        """Give what each of a check's upstreams gives; "first" stands for the first random one."""
        if check in self._together:
            yield from self._together[check]
        else:
            for upstream in self._upstreams(check):
                yield self.pull(upstream)

    def _upstreams(self, check: str) -> list[Float]:
        if check == "linearity":
            return [flow.upstream for flow in self.flows()]
        return [np.zeros(self.rows) if check == "zero_upstream" else self.base]

    @cached_property
    def _together(self) -> dict[str, list[dict[int, Float]]]:
        """What is pulled back in one batch, where it is small, in the order in which it is looked at."""
        checks = ["first", *[one for one in ("linearity", "zero_upstream", "repeat") if one in self.ahead]]
        upstreams = {check: self._upstreams(check) for check in checks}
        every = [upstream for each in upstreams.values() for upstream in each]
        if len(every) * self._width > _MOST_TOGETHER:
            return {}
        gradients = iter(self.pull_each(np.stack(every)))
        return {check: [next(gradients) for _ in each] for check, each in upstreams.items()}

    @property
    def _width(self) -> int:
        """What an upstream and its gradients take up, in floats."""
        taken = [packed_size(info) for info in self.op.inputs if info.is_differentiable]
        return self.rows + sum(taken)

    def pull_each(self, upstreams: Float) -> list[dict[int, Float]]:
        """Pull several upstreams, (B, rows), back to every input that there is a gradient for."""
        gradients = pull_back(self.op, self.output, upstreams)
        found = {number: gradient for number, gradient in gradients.items() if gradient is not None}
        return [{number: each[row] for number, each in found.items()} for row in range(len(upstreams))]

    def flows(self) -> Iterator[Flow]:
        """Give the upstreams to try, those of training among them; all are exact in the output's dtype."""
        sizes = _SIZES_FLOAT16 if self.precision.name == "float16" else _SIZES
        for size in sizes if self.shift == 1.0 else _SIZES_SHIFTED:
            yield Flow(f"a random upstream of size {size * self._size:.1e}", size * self.base, size)
        yield Flow("the negative of a random upstream", -self.base, -1.0)
        ones = np.full(self.rows, self.shift)
        if self.op.outputs[self.output].is_complex:
            ones[self.op.outputs[self.output].size :] = 0.0
        yield Flow("an upstream of all ones", ones)
        if self.rows == 1:
            return
        yield Flow("an upstream of all 1/n", self.precision.round(ones / self.rows))
        yield Flow("an upstream that is positive throughout", np.maximum(np.abs(self.base), self.shift / 128))
        yield Flow(
            "an upstream that is negative throughout", np.minimum(-np.abs(self.base), -self.shift / 128)
        )
        if not self.matrices:
            return
        generator = np.random.default_rng([self.case.seed, self.output, 1])
        for row in generator.choice(self.rows, min(_NEGATIVE_ROWS, self.rows), replace=False):
            alone = np.zeros(self.rows)
            alone[row] = -self.shift
            yield Flow("an upstream with one negative element", alone)

    @property
    def _size(self) -> float:
        return float(np.max(np.abs(self.base), initial=0.0))

    def find_fault(self, number: int, flow: Flow, found: Float) -> tuple[Fault, str] | None:
        """Find an element of a pulled gradient that isn't what the upstream must give.

        Returns:
            The fault, and words for what it must be; `None` where there is none.
        """
        matrix = self.matrices.get(number)
        if matrix is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                wanted = matrix.pulled(flow.upstream[None])[0]
            bounds = partial(self._bounds, number, matrix, flow.upstream[None])
            fault = self.compare(number, found, Sum([(1.0, wanted)], bounds), flow)
            if fault is not None:
                return fault, "the rows of its own Jacobian add up to"
        if flow.factor is not None:
            fault = self.compare(number, found, Sum([(flow.factor, self.first[number])]), flow)
            return None if fault is None else (fault, f"{flow.factor:.3g} times what that one gives is")
        if matrix is not None:
            return None
        share = 2.0 ** np.round(np.log2(flow.size / self._size)) if self._size else 1.0
        both = self._with_base(flow, share)[number]
        fault = self.compare(number, found, Sum([(1.0, both), (-share, self.first[number])]), flow)
        return None if fault is None else (fault, "what it adds to another one's is")

    def _bounds(self, number: int, matrix: Jacobian, upstream: Float) -> tuple[Float, Float]:
        """Return what the rows in a sum amount to without their signs, and what rounding loses of them."""
        with np.errstate(invalid="ignore", over="ignore"):
            size = matrix.magnitudes.pulled(np.abs(upstream))[0]
            return size, rounding_slack(self.op, self.output, number, upstream, matrix)[0]

    def _with_base(self, flow: Flow, share: float) -> dict[int, Float]:
        """Pull an upstream and a share of the first one back together: once for all inputs."""
        if self._both is None or self._both[0] is not flow:
            self._both = None  # may be large: goes before the next one comes
            self._both = (flow, self.pull(flow.upstream + share * self.base))
        return self._both[1]

    def compare(self, number: int, found: Float, wanted: Sum, flow: Flow) -> Fault | None:
        """Compare a gradient with a sum, element by element.

        Args:
            number: the input's number.
            found: (n,) what the upstream gives.
            wanted: what it must add up to.
            flow: the upstream.

        Returns:
            An element that differs by more than the vjp may lose. Where the sum isn't finite there is none
            (that is judged in the pair), nor where the gradient overflows for an upstream beyond 1, or near
            the end of its dtype's range: that is no matter of linearity.
        """
        terms = wanted.terms
        weight = float(np.sum(np.abs(flow.upstream))) if wanted.bounds is not None else 0.0
        weight += sum(abs(factor) for factor, _ in terms)
        flushed = self.flushed(number) * (1.0 + weight)
        slack = flushed + (self.case.tolerance.atol or 0.0) * max(weight, 1.0)
        is_multiple = wanted.bounds is None and len(terms) == 1
        largest = max(_largest(factor * each) for factor, each in terms)
        if is_multiple:
            # A gradient may take the upstream's logarithm, whose rounding grows with it.
            slack += abs(math.log(abs(terms[0][0]))) * self.precision.unit_roundoff * largest
        if flushed < _TELLING * largest:
            self.told.add(number)
        if self.precision.name not in _NUDGE and not is_multiple:
            slack += _CANCELLED * largest
        ends = flow.size > 1 or largest > self.precision.largest / 2**10
        share = self._share(is_multiple=is_multiple)
        bounds: tuple[Float, Float] | None = None
        for part in chunks(found.size):
            with np.errstate(invalid="ignore", over="ignore"):
                total = np.sum([factor * each[part] for factor, each in terms], axis=0)
                # What the terms amount to is no less than their sum.
                if (np.abs(found[part] - total) <= share * np.abs(total)).all():
                    continue
                if wanted.bounds is not None and bounds is None:
                    bounds = wanted.bounds()
                size = sum(abs(factor) * np.abs(each[part]) for factor, each in terms)
                allowed = share * (size if bounds is None else bounds[0][part]) + slack
                allowed = allowed if bounds is None else allowed + bounds[1][part]
                right = (np.abs(found[part] - total) <= allowed) | ~np.isfinite(total)
                right |= ~np.isfinite(found[part]) & ends
                if not right.all() and self.precision.name in _NUDGE:
                    lost = sum(one.rounding[number][part] for one in (self, *wanted.others))
                    allowed = allowed + _MEASURED * lost * (flow.size / self.shift)
                    right |= np.abs(found[part] - total) <= allowed
            if not right.all():
                where = int(np.argmin(right))
                return Fault(part.start + where, float(found[part][where]), float(total[where]))
        return None

    def find_change(self, number: int, again: Float) -> Fault | None:
        """Find an element in which the first upstream's gradient is another one when it is pulled again.

        Measured rounding has no say here: a gradient that draws would count as rounded.
        """
        first, matrix = self.first[number], self.matrices.get(number)
        unit = self.precision.unit_roundoff
        if matrix is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                slack = rounding_slack(self.op, self.output, number, self.base[None], matrix)[0]
        else:
            slack = np.broadcast_to(
                min(ROUNDINGS * unit, 0.25) * _largest(first) + self.flushed(number), first.shape
            )
        for part in chunks(first.size):
            allowed = slack[part] + self.case.nondeterminism
            with np.errstate(invalid="ignore", over="ignore"):
                right = (np.abs(first[part] - again[part]) <= allowed) | (first[part] == again[part])
            right |= (np.isnan(first[part]) & np.isnan(again[part])) | ~np.isfinite(allowed)
            if not right.all():
                where = int(np.argmin(right))
                return Fault(part.start + where, float(again[part][where]), float(first[part][where]))
        return None

    @cached_property
    def rounding(self) -> dict[int, Float]:
        """The vjp's own rounding in each element, for upstreams of size 1 times the shift, measured."""
        nudge = _NUDGE[self.precision.name]
        found: dict[int, Float] = {}
        for place, times in enumerate(_NUDGES):
            upstream = self.shift * random_upstream(self.op, self.output, self.case.seed, 2 + place)
            factors = (1.0, 1 + times * nudge, 1 - times * nudge)
            once, *others = (
                self.pull_each(np.stack([factor * upstream for factor in factors]))
                if len(factors) * self._width <= _MOST_TOGETHER
                else [self.pull(factor * upstream) for factor in factors]
            )
            for factor, gradients in zip(factors[1:], others, strict=True):
                for number, gradient in gradients.items():
                    with np.errstate(invalid="ignore", over="ignore"):
                        moved = np.abs(gradient - factor * once[number])
                    moved = np.where(np.isfinite(moved), moved, 0.0)
                    found[number] = np.maximum(found.get(number, 0.0), moved)
        return found

    def shift_of(self, number: int) -> float:
        """Return the power of two by which upstreams must be larger for nothing to be flushed."""
        matrix = self.matrices.get(number)
        largest = _largest(self.first[number] if matrix is None else matrix.values)
        # A million times what may be flushed, as a tolerance of 1e-6 wants it; float16's is a tenth.
        needed = _TELLING**-2 if self.precision.name == "float16" else 2.0**20
        if not 0 < largest < needed * self.flushed(number):
            return 1.0
        # Upstreams of up to 2^5 times the shift are finite, and so are a thousand of them in a sum.
        most = np.floor(np.log2(self.precision.largest)) - 24.0
        return float(2.0 ** max(min(np.floor(-np.log2(largest)), most), 0.0))

    def flushed(self, number: int) -> float:
        """Return what flushed products may have become by the time that they are an input's gradient.

        That of a product is had by dividing by the input (cumprod, pow), of which its typical size tells.
        """
        magnified = _MAGNIFIED_FLOAT16 if self.precision.name == "float16" else _MAGNIFIED
        if number not in self._typical:
            self._typical[number] = typical_size(packed_point(self.op, number), None)
        return magnified * self.precision.smallest_kept / min(self._typical[number], 1.0)

    def _share(self, *, is_multiple: bool) -> float:
        """What a gradient may lose, relative to the terms that it adds up.

        A right gradient may be off by the table's tolerance, and so may each of its rows: one that is solved
        for step by step is no more linear than it is right. A power of two, or a sign, changes no rounding,
        but of sums that are added up in another order each time, and of a vjp that takes the upstream's
        logarithm (cumulative_logsumexp).
        """
        share = rule_for(self.precision, FLOAT64).rtol
        if is_multiple:
            share = min(share, ROUNDINGS * self.precision.unit_roundoff)
        return max(share, self.case.tolerance.rtol or 0.0)


def views(
    case: Case,
    op: Operation,
    pairs: Sequence[tuple[int, int]],
    matrices: Mapping[tuple[int, int], Jacobian],
    ahead: Collection[str] = (),
) -> list[Pulled]:
    """Return the vjp of each output; twice where it has gradients too small for upstreams of ordinary sizes.

    Args:
        case: the case.
        op: the op.
        pairs: those that are to be right.
        matrices: Jacobians of some of them.
        ahead: names of the checks that are to come, as far as these are on.
    """
    checks = frozenset(ahead).difference(case.checks_off)
    found = []
    for output in sorted({output for output, _ in pairs}):
        numbers = [number for of, number in pairs if of == output and op.is_connected(output, number)]
        if not numbers or not op.outputs[output].size:
            continue
        own = {number: matrices[output, number] for number in numbers if (output, number) in matrices}
        pulled = Pulled(case, op, output, tuple(numbers), own, ahead=checks)
        shifts = {number: pulled.shift_of(number) for number in numbers}
        for shift in sorted(set(shifts.values())):
            group = tuple(number for number in numbers if shifts[number] == shift)
            if shift == 1.0:
                pulled.numbers = group
                found.append(pulled)
            else:  # the rows are as small as what is flushed
                found.append(Pulled(case, op, output, group, {}, shift, checks))
    return found


def find_difference(
    case: Case, op: Operation, other: Operation, pair: tuple[int, int], rtol: float
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
    both = [Pulled(case, one, output, (number,), {}) for one in (op, other)]
    first, second = (one.first[number] for one in both)
    is_half = both[0].precision.name not in _NUDGE
    largest = max(_largest(first), _largest(second))
    room = case.nondeterminism + (rtol + (_CANCELLED if is_half else 0.0)) * largest + both[0].flushed(number)
    for part in chunks(first.size):
        with np.errstate(invalid="ignore"):
            difference = np.abs(first[part] - second[part])
            right = (difference <= room) | (first[part] == second[part])
            right |= np.isnan(first[part]) & np.isnan(second[part])
        if not right.all() and not is_half:
            right |= difference <= room + _MEASURED * both[0].rounding[number][part]
        if not right.all():
            where = part.start + int(np.argmin(right))
            return where, float(first[where]), float(second[where])
    return None


def pull_empty(op: Operation, output: int) -> dict[int, Float]:
    """Pull upstreams of an output without elements back, often: what isn't computed may be zero by luck."""
    widest = max((packed_size(info) for info in op.inputs if info.is_differentiable), default=1)
    tries = max(1, min(_TRIES, _MOST_TRIED // widest)) if widest else 1
    gradients = pull_back(op, output, np.zeros((tries, 0)))
    return {number: gradient for number, gradient in gradients.items() if gradient is not None}


def random_upstream(op: Operation, output: int, seed: int, number: int) -> Float:
    """Draw an upstream with components exact in every dtype: eight bits, below one."""
    return coarse(np.random.default_rng([seed, output, number]), packed_size(op.outputs[output]))


def coarse(generator: np.random.Generator, shape: int | tuple[int, int]) -> Float:
    """Draw numbers between -1 and 1 of eight bits, bfloat16's: as upstreams they are exact in every dtype.

    They may be as many as memory allows: drawn in one array.
    """
    drawn = generator.random(shape)
    drawn -= 0.5
    drawn *= 256
    np.rint(drawn, out=drawn)
    drawn /= 128
    return drawn


def rounding_slack(op: Operation, output: int, number: int, upstream: Float, matrix: Jacobian) -> Float:
    """Return the rounding, (B, n), that a gradient may show in the coarser of the two dtypes.

    Beside the rows' own magnitudes, the outputs' values over the input's scale count: a vjp that cancels,
    such as softmax's u s - s sum(u s) or y(1 - y) near saturation, is as good as its terms.
    """
    taken, produced = op.inputs[number], op.outputs[output]
    precision = coarsest(*[working_precision(op, info.dtype) for info in (produced, taken)])
    point = np.abs(pack(op.point[number][np.newaxis], taken)[0])
    value = packed_magnitude(op.base_values[output], produced)
    value = np.where(np.isfinite(value), value, 0.0)
    size, step = np.abs(upstream), scales(point).step
    if matrix.sparsity is None:
        magnitudes = matrix.magnitudes.pulled(size) + (size @ value)[:, np.newaxis] / step[np.newaxis, :]
    else:  # other classes' outputs don't come into it
        terms = matrix.magnitudes.values + value[:, np.newaxis] / step[matrix.columns]
        magnitudes = replace(matrix, values=terms).pulled(size)
    return np.asarray(
        min(ROUNDINGS * precision.unit_roundoff, 0.25) * magnitudes + ROUNDINGS * precision.smallest_kept
    )


def _largest(values: Float) -> float:
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))
