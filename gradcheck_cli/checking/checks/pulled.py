"""One output's vjp as a function of its upstream: what is pulled back, together where it is small."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.upstreams import Upstreams, random_upstream
from gradcheck_cli.checking.ops.jacobian import packed_point, pull_back, working_precision
from gradcheck_cli.checking.ops.packing import Float, packed_size
from gradcheck_cli.numerics.agreement import largest_finite
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.steps import typical_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gradcheck_cli.checking.checks.upstreams import Flow
    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.numerics import Precision
    from gradcheck_cli.spec.case import Case

# Elements of gradients that may be at hand at once, of all outputs together; beyond it one after another, and
# then no joint upstream is tried.
_MOST_AT_HAND = 2**24
# Floats of upstreams and their gradients that are held at once.
_MOST_TOGETHER = 2**22
# What flushed products may be multiplied by later on their way: an upstream times a residual is flushed, and
# then divided by an input of 1e-7. float16 has no such range.
_MAGNIFIED = 2.0**24
_MAGNIFIED_FLOAT16 = 2.0**10
# An upstream and itself times 1 + k 2^-s are rounded differently throughout: what the gradient differs by,
# beyond the factor, is the vjp's own rounding, measured. s leaves the product exact: 8 bits are the
# upstream's, at least 5 are k's. What isn't linear in the upstream changes by 2^-s of itself only.
NUDGE = {"float64": 2.0**-44, "float32": 2.0**-14}
_NUDGES = (1.0, 3.0, 5.0, 7.0)
# Where underflow may be as large as this share of the gradient's largest element, nothing is told.
TELLING = 0.25


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
    def upstreams(self) -> Upstreams:
        """What is pulled back."""
        return Upstreams(
            self.op, self.output, self.case.seed, self.precision, self.shift, bool(self.matrices)
        )

    @property
    def base(self) -> Float:
        """The first random upstream."""
        return self.upstreams.base

    @cached_property
    def first(self) -> dict[int, Float]:
        """What it gives, for every input that there is a gradient for."""
        return next(self.pulled_for("first"))

    def largest(self, number: int) -> float:
        """Return the largest finite element of what the first upstream gives."""
        return largest_finite(self.first[number])

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
            return [flow.upstream for flow in self.upstreams.flows()]
        return [np.zeros(self.base.size) if check == "zero_upstream" else self.base]

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
        return self.base.size + sum(taken)

    def pull_each(self, upstreams: Float) -> list[dict[int, Float]]:
        """Pull several upstreams, (B, rows), back to every input that there is a gradient for."""
        gradients = pull_back(self.op, self.output, upstreams)
        found = {number: gradient for number, gradient in gradients.items() if gradient is not None}
        return [{number: each[row] for number, each in found.items()} for row in range(len(upstreams))]

    def with_base(self, flow: Flow, share: float) -> dict[int, Float]:
        """Pull an upstream and a share of the first one back together: once for all inputs."""
        if self._both is None or self._both[0] is not flow:
            self._both = None  # may be large: goes before the next one comes
            self._both = (flow, self.pull(flow.upstream + share * self.base))
        return self._both[1]

    @cached_property
    def rounding(self) -> dict[int, Float]:
        """The vjp's own rounding in each element, for upstreams of size 1 times the shift, measured."""
        nudge = NUDGE[self.precision.name]
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
        largest = largest_finite(self.first[number] if matrix is None else matrix.values)
        # A million times what may be flushed, as a tolerance of 1e-6 wants it; float16's is a tenth.
        needed = TELLING**-2 if self.precision.name == "float16" else 2.0**20
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


def pull_outputs(
    case: Case,
    op: Operation,
    pairs: Sequence[tuple[int, int]],
    matrices: Mapping[tuple[int, int], Jacobian],
    ahead: Collection[str] = (),
) -> list[Pulled]:
    """Return the vjp of each output; twice where gradients are too small for upstreams of ordinary sizes.

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


def group_at_hand(every: list[Pulled]) -> Iterator[list[Pulled]]:
    """Give the vjps of all outputs at once, or one by one where their gradients are too large together."""
    sizes = [sum(info.size for info in each.op.inputs if info.is_differentiable) for each in every]
    if every and sum(sizes) <= _MOST_AT_HAND:
        yield every
        return
    while every:
        yield [every.pop(0)]
