"""What a structural check is, what the checks of each stage look at, and an output's vjp as a function.

One-hot upstreams give the Jacobian. They don't show a gradient that clips, squares, ignores or replaces its
upstream, so checks look at each output's vjp as a function of its upstream (`OutputVjp`). Small upstreams
are pulled back in one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import Jacobian, PairKey, packed_point, pull_back, working_precision
from gradcheck_cli.checking.ops.operation import Float, Opener, Operation, Operations, packed_size
from gradcheck_cli.checking.ops.random_rounding import measure_rounding_of
from gradcheck_cli.checking.pairs.pair import PairSample, label_of
from gradcheck_cli.numerics import FLOAT16, FLOAT32, FLOAT64, Precision, precision_of, rule_for
from gradcheck_cli.numerics.precision import coarsest, largest_finite
from gradcheck_cli.numerics.problem import draw_eight_bits, typical_size
from gradcheck_cli.numerics.shared_limits import DIRECTIONS, FEW, FLOATS_AT_ONCE, KNOWN
from gradcheck_cli.results import CheckResult, PairResult, Status
from gradcheck_cli.spec.case import Case, PairRule

View = TypeVar("View")


@dataclass(frozen=True)
class Check(Generic[View]):
    """A structural check."""

    name: str  # its name in the spec and in the report. Two checks may report under one name.
    looks_at: type[View]  # the type of its view, which says the stage at which it runs
    # returns its results; none where there is nothing to check. If several have one name, the report shows
    # the first that didn't pass, else the first.
    run: Callable[[View], list[CheckResult]]


def report(name: str, fault: str, status: Status = Status.MISMATCHED) -> CheckResult:
    """Return a check's result: passed where there is no fault."""
    return CheckResult(name, status if fault else Status.PASSED, fault)


@dataclass(frozen=True)
class OpenedView:
    """A case at its first sample point, before anything is judged. A failing check ends the case."""

    case: Case
    op: Operation


@dataclass(frozen=True)
class JudgedView:
    """The pairs of one sample point, judged."""

    case: Case
    operations: Operations  # the ops at the point
    warnings: Sequence[str]  # on the declared dtype's loss of precision
    is_coarse: bool  # whether a pair was judged in less precision than declared


@dataclass(frozen=True)
class UpstreamView:
    """Some outputs' vjps at one sample point, as functions of their upstreams."""

    case: Case
    op: Operation
    pulled: list[OutputVjp]  # each output's vjp
    empty: Sequence[PairKey] = ()  # pairs whose output has no elements
    is_formula: bool = False  # whether `op` is the formula in float64, checked in addition to the declared op
    is_last: bool = True  # whether no later view covers the gradients that are too small in this one


@dataclass(frozen=True)
class PointView:
    """A case at one sample point."""

    case: Case
    opener: Opener[Any]  # opens the case
    operations: Operations
    expected_right: list[PairKey]  # the pairs that are to be right
    # those at hand of the declared op, and those of its formula
    jacobians: tuple[Mapping[PairKey, Jacobian | None], Mapping[PairKey, Jacobian | None]]
    sample: int
    compared_at: int  # index of the sample point at which another trace is compared
    is_first: bool  # whether this is the first point

    @property
    def op(self) -> Any:  # noqa: ANN401 (an op of the opener's)
        """The declared op."""
        return self.operations.declared

    def expecting_right(self, pairs: list[PairKey]) -> PointView:
        """Return the same view, in which these are the pairs that are to be right."""
        return replace(self, expected_right=pairs)


@dataclass(frozen=True)
class CaseView:
    """A case after all sample points."""

    case: Case
    op: Operation  # the declared op at the first point
    # the verdicts of the pairs that are to be right, at each sample point
    samples: Mapping[PairKey, Sequence[PairSample]]
    pairs: tuple[PairResult, ...]  # every pair's result
    points: Sequence[Sequence[Any]]  # the declared op's values at each sample point
    # the custom gradients that the forward called and no backward pass ran, and why
    unrun: Sequence[str] = ()


@dataclass(frozen=True)
class ModesView:
    """A case in its own mode, and openers for the other modes."""

    case: Case  # the case; its `mode` is that of `operations`
    operations: Operations  # the ops at the first sample point
    rules: Mapping[PairKey, PairRule | None]  # the spec's rule for each pair that is to be right
    sample: int  # index of the sample point
    # mode -> a function that makes its opener
    others: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


AnyView = OpenedView | JudgedView | UpstreamView | PointView | CaseView | ModesView


# An output's vjp, and the upstreams that it is tried with.

# Sizes of the random upstreams: far below that of a mean (1/n), that of a mean, that of a loss, above any
# usual clipping norm, and above any loss scale. float16 can't hold the outer two. Nor can another dtype if
# all are shifted, for a gradient that is too small otherwise.
SIZES = (2.0**-40, 2.0**-10, 1.0, 2.0**10, 2.0**40)
# The halvings of neighbouring elements in an upstream of mixed sizes. A few random elements are often all
# within a factor of ten; then a gradient that drops what is small beside the rest looks linear.
_HALVINGS = (0, 12, 4, 8)
# An upstream of eight bits times this has all bits of its dtype. bfloat16 rounds it to that upstream again;
# and it lies 3/8 to 3/4 of a spacing above one of float16's numbers.
_NUDGED = 1 + 3 * 2.0**-13 + math.pi * 2.0**-20
# In a half precision, this many spacings above one of bfloat16's numbers: bfloat16 rounds that to the same.
_ABOVE = 3
# A kernel that never writes its result returns zeros every other time. (empirical)
_TRIES = 16


@dataclass(frozen=True)
class Flow:
    """An upstream in words and numbers."""

    words: str
    upstream: Float  # (m,) packed
    factor: float | None = None  # set if it is exactly this multiple of the first one

    @property
    def size(self) -> float:
        """The largest component."""
        return largest_finite(self.upstream)


@dataclass(frozen=True)
class Upstreams:
    """The upstreams of one output."""

    op: Operation
    output: int
    seed: int  # for the random ones
    precision: Precision  # all upstreams must be exact in it
    shift: float = 1.0  # a power of two that every upstream is multiplied by
    has_rows: bool = False  # whether single rows can be judged, since the Jacobian is at hand
    # where a term may absorb others, the first row of each sum of many terms
    first_rows: npt.NDArray[np.int64] | None = None

    @cached_property
    def base(self) -> Float:
        """The first random upstream."""
        return self.shift * random_upstream(self.op, self.output, self.seed, 0)

    @property
    def nudged(self) -> Float:
        """The first one, with all bits of its dtype."""
        return self.precision.round(_NUDGED * self.base)

    def narrowed(self, draw: int) -> tuple[Float, ...]:
        """Return a random upstream with all bits of its dtype, and what bfloat16 and float16 keep of it."""
        eight_bits = random_upstream(self.op, self.output, self.seed, draw)
        if self.precision.is_half:
            spacing = self.precision.spacing(eight_bits)
            whole = eight_bits + _ABOVE * np.copysign(spacing, eight_bits)
            return self.shift * whole, self.shift * eight_bits
        whole = self.precision.round(_NUDGED * eight_bits)
        return self.shift * whole, self.shift * eight_bits, self.shift * FLOAT16.round(whole)

    @property
    def size(self) -> float:
        """The largest component of the first one."""
        return largest_finite(self.base)

    @property
    def _rows(self) -> int:
        return self.base.size

    def flows(self) -> Iterator[Flow]:
        """Yield the upstreams to try, including those of training; all are exact in the output's dtype.

        All but one have at most eight bits, so that most of their sums are exact.
        """
        largest = self.precision.largest
        sizes = [size for size in SIZES if 1 / largest < size < largest]
        for size in sizes if self.shift == 1.0 else SIZES[1:-1]:
            yield Flow(f"a random upstream of size {size * self.size:.1e}", size * self.base, size)
        # As large as the sum of a batch, and of the other sign: what clips to one side only shows there.
        yield Flow("the negative of a large random upstream", -SIZES[3] * self.base, -SIZES[3])
        ones = np.full(self._rows, self.shift)
        if self.op.outputs[self.output].is_complex:
            ones[self.op.outputs[self.output].size :] = 0.0
        yield Flow("an upstream of all ones", ones)
        if not self.precision.is_half:
            yield Flow("a random upstream with all bits of its dtype", self.nudged)
        if self._rows == 1:
            return
        if self.first_rows is not None and len(self.first_rows):
            saturating = ones.copy()
            saturating[self.first_rows] *= self.precision.absorbing
            yield Flow(ABSORBING, saturating)
        yield Flow("an upstream of all 1/n", self.precision.round(ones / self._rows))
        positive = np.maximum(np.abs(self.base), self.shift / 128)
        yield Flow("an upstream that is positive throughout", positive)
        yield Flow("an upstream that is negative throughout", -positive)
        mixed = self.shift * np.exp2(-np.resize(np.array(_HALVINGS, dtype=float), self._rows))
        mixed[self._rows - self._rows // 4 :] = 0.0  # as of rows that are padding
        yield Flow(
            "an upstream whose elements are of different sizes, the last of them zero",
            np.copysign(mixed, self.base),
        )
        if not self.has_rows:
            return
        generator = np.random.default_rng([self.seed, self.output, 1])
        for row in generator.choice(self._rows, min(FEW, self._rows), replace=False):
            alone = np.zeros(self._rows)
            alone[row] = -self.shift
            yield Flow("an upstream with one negative element", alone)


def pull_empty(op: Operation, output: int) -> dict[int, Float]:
    """Pull empty upstreams of an output without elements back, many times: memory may be zero by chance."""
    widest = max((packed_size(info) for info in op.inputs if info.is_differentiable), default=1)
    tries = max(1, min(_TRIES, FLOATS_AT_ONCE // widest)) if widest else 1
    gradients = pull_back(op, output, np.zeros((tries, 0)))
    return {input_index: gradient for input_index, gradient in gradients.items() if gradient is not None}


def random_upstream(op: Operation, output: int, seed: int, draw: int) -> Float:
    """Draw an upstream whose components are exact in every dtype: eight bits, below one."""
    return draw_eight_bits(np.random.default_rng([seed, output, draw]), packed_size(op.outputs[output]))


# A product that is flushed to zero may later be multiplied by this much: an upstream times a residual is
# flushed, and then divided by an input of 1e-7. float16 has no such range: there a 64th of its largest is.
_MAGNIFIED = 2.0**24
# An element is a sum of many terms if it has this many.
MANY = 48
ABSORBING = "a saturating upstream (a first element so large that a sum absorbs the ones after it)"


@dataclass(frozen=True)
class Formula:
    """An op in float64, with the Jacobians that are at hand: its own, and those of the declared dtypes."""

    op: Operation
    matrices: Mapping[PairKey, Jacobian]
    declared: Mapping[PairKey, Jacobian]


@dataclass
class OutputVjp:
    """One output's vjp, with a first random upstream."""

    case: Case  # has the author's tolerances, and how far a repeated gradient may differ
    op: Operation
    output: int
    input_indices: Sequence[int]  # indices of the inputs whose gradients are to be right, all connected
    matrices: Mapping[int, Jacobian]  # Jacobians by input index, where they are at hand
    shift: float = 1.0  # a power of two that every upstream is multiplied by
    # names of the checks whose upstreams are pulled back together with the first one
    ahead: frozenset[str] = frozenset()
    # the op in the dtypes that the spec names, which the gradient was written for; default: the op itself
    declared: Operation | None = None
    formula: Formula | None = None  # the op in float64, where `op` is below it
    # indices of the inputs for which some upstream's gradient was seen to be well above underflow
    resolved: set[int] = field(default_factory=set)
    _typical: dict[int, float] = field(default_factory=dict)
    _with_base: tuple[Flow, dict[int, Float]] | None = None
    _moved: list[dict[int, Float]] = field(default_factory=list)  # what was measured of rounding last

    @cached_property
    def precision(self) -> Precision:
        """The coarsest precision between the output and its inputs."""
        return coarsest(*[working_precision(self.op, dtype) for dtype in self._dtypes(self.op)])

    def _dtypes(self, op: Operation) -> list[str]:
        infos = [op.outputs[self.output], *[op.inputs[index] for index in self.input_indices]]
        return [info.dtype for info in infos]

    @cached_property
    def lossy(self) -> frozenset[int]:
        """Indices of the inputs whose Jacobian in the declared dtype is known to few digits."""
        return frozenset(index for index in self.input_indices if self._is_lossy(index))

    def _is_lossy(self, input_index: int) -> bool:
        """Whether a Jacobian differs from its formula in the first twelve bits.

        In half precision, by more than four roundings; there it is lossy, too, if the formula isn't known.
        """
        if self.formula is None:
            return self.precision.is_half
        key = self.output, input_index
        declared, formula = self.formula.declared.get(key), self.formula.matrices.get(key)
        if declared is None or formula is None or declared.values.shape != formula.values.shape:
            return self.precision.is_half
        error = largest_finite(declared.values - formula.values)
        return error > max(2.0**-12, 4 * self.precision.unit_roundoff) * largest_finite(formula.values)

    @property
    def own_share(self) -> float:
        """A quarter of the relative tolerance of the dtype that the gradient was written for.

        In the half precisions it is float32's: TensorFlow's matrix solvers have no kernels for them, so that
        what is solved for is solved for in float32 (decision 98).
        """
        own = (
            self.precision
            if self.declared is None
            else coarsest(*map(precision_of, self._dtypes(self.declared)))
        )
        return min(rule_for(own, FLOAT64).rtol, rule_for(FLOAT32, FLOAT64).rtol) / 4

    @cached_property
    def upstreams(self) -> Upstreams:
        """The upstreams to pull back."""
        may_absorb = self.precision.absorbing > 1
        first = [matrix.first_rows(MANY) for matrix in self.matrices.values() if may_absorb]
        return Upstreams(
            self.op,
            self.output,
            self.case.seed,
            self.precision,
            self.shift,
            has_rows=bool(self.matrices),
            first_rows=np.unique(np.concatenate(first)) if first else None,
        )

    @property
    def base(self) -> Float:
        """The first random upstream."""
        return self.upstreams.base

    @cached_property
    def first(self) -> dict[int, Float]:
        """The first upstream's gradients, for every input that has one."""
        return next(self.gradients_for("first"))

    def label(self, input_index: int) -> str:
        """Return the pair's label for messages."""
        return label_of(self.op, (self.output, input_index))

    def pull(self, upstream: Float) -> dict[int, Float]:
        """Pull one upstream back to every input that has a gradient."""
        return self.pull_each(upstream[None])[0]

    def gradients_for(self, check: str) -> Iterator[dict[int, Float]]:
        """Yield the gradients of each of a check's upstreams; "first" stands for the first random one.

        Only a repetition pulls that one back again where each takes long.
        """
        if check in self._batched:
            yield from self._batched[check]
            return
        for upstream in self._upstreams(check):
            is_known = check not in ("first", "repeat") and np.array_equal(upstream, self.base)
            yield self.first if is_known else self.pull(upstream)

    def pull_narrowed(self, draw: int) -> list[dict[int, Float]]:
        """Pull a random upstream back, and what narrower formats keep of it."""
        if draw == 0:  # together with the other checks' upstreams
            return list(self.gradients_for("narrowed"))
        return [self.pull(upstream) for upstream in self.upstreams.narrowed(draw)]

    def _upstreams(self, check: str) -> list[Float]:
        if check == "linearity":
            return [flow.upstream for flow in self.upstreams.flows()]
        if check == "narrowed":
            return list(self.upstreams.narrowed(0))
        return [np.zeros(self.base.size) if check == "zero_upstream" else self.base]

    @cached_property
    def _batched(self) -> dict[str, list[dict[int, Float]]]:
        """The gradients of all checks that were pulled back in one batch; empty if they are too large."""
        checks = [
            "first",
            *[check for check in ("linearity", "zero_upstream", "repeat") if check in self.ahead],
        ]
        if "linearity" in checks and not self.precision.is_half:
            checks.append("narrowed")
        upstreams = {check: self._upstreams(check) for check in checks}
        all_upstreams = [upstream for of_check in upstreams.values() for upstream in of_check]
        if len(all_upstreams) * self._width > FLOATS_AT_ONCE:
            return {}
        gradients = iter(self.pull_each(np.stack(all_upstreams)))
        return {check: [next(gradients) for _ in of_check] for check, of_check in upstreams.items()}

    @property
    def _width(self) -> int:
        """The size of an upstream and its gradients, in floats."""
        input_sizes = [packed_size(info) for info in self.op.inputs if info.is_differentiable]
        return self.base.size + sum(input_sizes)

    def pull_each(self, upstreams: Float) -> list[dict[int, Float]]:
        """Pull several upstreams, (B, rows), back to every input that has a gradient."""
        gradients = pull_back(self.op, self.output, upstreams)
        by_input = {
            input_index: gradient for input_index, gradient in gradients.items() if gradient is not None
        }
        return [
            {input_index: rows[row] for input_index, rows in by_input.items()}
            for row in range(len(upstreams))
        ]

    def pull_with_base(self, flow: Flow, share: float) -> dict[int, Float]:
        """Pull an upstream and a share of the first one back together: once for all inputs."""
        if self._with_base is None or self._with_base[0] is not flow:
            self._with_base = None  # may be large: free it before the next one is made
            self._with_base = (flow, self.pull(flow.upstream + share * self.base))
        return self._with_base[1]

    def measure_rounding(self, input_index: int) -> Iterator[Float]:
        """Yield the measured rounding of the vjp of an input, (n,), for upstreams of size 1 times the shift.

        It only grows: more is measured while it is asked for.
        """
        for moved in chain(self._moved, self._roundings):
            self._moved = [moved]
            yield np.max(moved[input_index], axis=0)

    @cached_property
    def _roundings(self) -> Iterator[dict[int, Float]]:
        upstreams = self.shift * np.stack(
            [random_upstream(self.op, self.output, self.case.seed, draw) for draw in range(2, 2 + DIRECTIONS)]
        )
        return measure_rounding_of(self.op, self.output, upstreams, self.case.seed)

    def choose_shift(self, input_index: int) -> float:
        """Return the power of two by which upstreams must be larger for nothing to be flushed."""
        matrix = self.matrices.get(input_index)
        largest = largest_finite(self.first[input_index] if matrix is None else matrix.values)
        # A million times what may be flushed, since the tolerance is 1e-6. float16's tolerance is a tenth.
        needed = KNOWN**-2 if self.precision.is_short_ranged else 2.0**20
        if not 0 < largest < needed * self.flushed_size(input_index):
            return 1.0
        # Upstreams of up to 2^10 times the shift stay finite, and so does a sum of a thousand of them.
        most = np.floor(np.log2(self.precision.largest)) - 24.0
        return float(2.0 ** max(min(np.floor(-np.log2(largest)), most), 0.0))

    def flushed_size(self, input_index: int) -> float:
        """Return how large flushed products may have grown by the time they reach an input's gradient.

        The gradient of a product is often computed by dividing by the input (cumprod, pow), so that the
        input's typical size matters.
        """
        magnified = min(_MAGNIFIED, self.precision.largest / 64)
        if input_index not in self._typical:
            self._typical[input_index] = typical_size(packed_point(self.op, input_index), None)
        return magnified * self.precision.smallest_kept / min(self._typical[input_index], 1.0)


def pull_outputs(
    case: Case,
    op: Operation,
    pairs: Sequence[PairKey],
    matrices: Mapping[PairKey, Jacobian],
    ahead: Collection[str] = (),
    **forms: Any,  # noqa: ANN401 (as `replace` has it)
) -> list[OutputVjp]:
    """Return the vjp of each output; twice where gradients are too small for upstreams of ordinary sizes.

    Args:
        pairs: the pairs that are to be right.
        matrices: Jacobians of some of them.
        ahead: names of the checks to come; those that the spec turns off are left out here.
        forms: the `declared` op or the `formula`; see `OutputVjp`.
    """
    checks = frozenset(ahead).difference(case.judging.checks_off)
    vjps = []
    for output in sorted({output for output, _ in pairs}):
        input_indices = [
            input_index
            for of_output, input_index in pairs
            if of_output == output and op.facts.is_connected(output, input_index)
        ]
        if not input_indices or not op.outputs[output].size:
            continue
        own_matrices = {
            input_index: matrices[output, input_index]
            for input_index in input_indices
            if (output, input_index) in matrices
        }
        pulled = OutputVjp(case, op, output, tuple(input_indices), own_matrices, ahead=checks, **forms)
        shifts = {input_index: pulled.choose_shift(input_index) for input_index in input_indices}
        for shift in sorted(set(shifts.values())):
            group = tuple(input_index for input_index in input_indices if shifts[input_index] == shift)
            if group != pulled.input_indices or shift != 1.0:
                # Rows that need a shift are too small to compare with: they may have been flushed.
                rows = own_matrices if shift == 1.0 else {}
                vjps.append(replace(pulled, input_indices=group, matrices=rows, shift=shift))
            else:
                vjps.append(pulled)
    return vjps


def group_at_hand(all_pulled: list[OutputVjp]) -> Iterator[list[OutputVjp]]:
    """Yield the vjps of all outputs at once, or one by one where their gradients are too large together."""
    sizes = [sum(info.size for info in pulled.op.inputs if info.is_differentiable) for pulled in all_pulled]
    if all_pulled and sum(sizes) <= 2 * FLOATS_AT_ONCE:
        yield all_pulled
        return
    while all_pulled:
        yield [all_pulled.pop(0)]
