"""A pair under judgement, and the verdicts on it at one sample point.

A pair is one output and one input of an op in all its forms, with the spec's rule for it. Verdicts are on all
elements of its Jacobian, on those that its sparsity leaves, or on some that random probes led to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import (
    PairKey,
    packed_point,
    pull_back,
    working_precision,
)
from gradcheck_cli.checking.ops.operation import (
    Float,
    Operation,
    Operations,
    TensorInfo,
    index_of,
    packed_size,
)
from gradcheck_cli.checking.ops.space import Space, function_between
from gradcheck_cli.numerics import (
    FLOAT64,
    Judgement,
    Precision,
    Problem,
    Reason,
    ToleranceRule,
    Verdict,
    precision_of,
    rule_for,
)
from gradcheck_cli.numerics.precision import coarsest, largest_finite
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.spec.case import Case, Interval, PairRule


@dataclass(frozen=True, eq=False)
class Pair:
    """An output and an input of a case at a sample point."""

    case: Case  # says the tolerances, domains and scales
    operations: Operations  # the op in its forms
    key: PairKey
    rule: PairRule | None = None  # what the spec says of this pair; `None` where it says nothing

    @property
    def output_index(self) -> int:
        """The output's index."""
        return self.key[0]

    @property
    def input_index(self) -> int:
        """The input's index."""
        return self.key[1]

    @property
    def output(self) -> TensorInfo:
        """The output, as declared."""
        return self.operations.declared.outputs[self.output_index]

    @property
    def input(self) -> TensorInfo:
        """The input, as declared."""
        return self.operations.declared.inputs[self.input_index]

    @property
    def label(self) -> str:
        """The pair's label, such as `dy/dx`."""
        return label_of(self.operations.declared, self.key)

    @property
    def domain(self) -> Interval:
        """The input's bounds, as the spec states them."""
        return self.case.tensors[self.input_index].domain

    @property
    def scale(self) -> float | None:
        """The input's typical magnitude, where the spec states it."""
        return self.case.tensors[self.input_index].scale

    @cached_property
    def tolerance(self) -> ToleranceRule:
        """The tolerance rule: the table's, changed by the case's own, changed by the pair's own."""
        formula = self.operations.formula
        gradient = coarsest(
            self.precision_in(formula), *[precision_of(name) for name in formula.facts.vjp_low_precision]
        )
        table = rule_for(gradient, self.precision_in(self.operations.differenced))
        stated = self.case.judging.tolerance
        table = table.with_user(stated.atol, stated.rtol)
        return table if self.rule is None else table.with_user(self.rule.atol, self.rule.rtol)

    @property
    def declared_precision(self) -> Precision:
        """The precision that the pair's tensors are declared in."""
        return coarsest(precision_of(self.output.dtype), precision_of(self.input.dtype))

    @cached_property
    def formula_precision(self) -> Precision:
        """The precision that the formula may have been written for.

        A model of mixed precision takes and returns float32, but computes in a half precision between, and
        its constants are rounded to that. A pair that is declared in float64 is judged as float64.
        """
        declared, op = self.declared_precision, self.operations.declared
        if declared == FLOAT64 or coarsest(declared, *map(precision_of, op.facts.low_precision)) == declared:
            return declared
        return coarsest(declared, *map(precision_of, op.facts.low_precision_between(*self.key)))

    @property
    def may_be_rounded(self) -> bool:
        """Whether the declared dtype may explain errors: it is narrower, and the spec states no `atol`."""
        return (
            self.operations.has_reference_precision
            and self.formula_precision != FLOAT64
            and self.tolerance.atol is None
        )

    @property
    def is_expected_wrong(self) -> bool:
        """Whether the spec says that the pair mismatches."""
        return is_expected_wrong(self.rule)

    def precision_in(self, op: Operation) -> Precision:
        """Return the precision in which one form of the op computes the pair."""
        return coarsest(
            working_precision(op, op.inputs[self.input_index].dtype),
            working_precision(op, op.outputs[self.output_index].dtype),
        )

    def place(self, row: int, column: int) -> str:
        """Return an element of the packed Jacobian in words, such as `y[0] / x[2, 1]`."""
        return place_in(self.operations.declared, self.key, row, column)

    def indices(self, row: int, column: int) -> str:
        """Return where an element of the packed Jacobian is, such as `output [0], input [2, 1]`."""
        return f"output {list(index_of(row, self.output))}, input {list(index_of(column, self.input))}"

    def pull(self, upstream: Float, op: Operation | None = None) -> Float:
        """Pull packed upstreams (B, rows) back to packed gradients (B, columns); `None` counts as zero.

        Args:
            upstream: of the pair's output.
            op: a form of the op; default: the formula.
        """
        op = op or self.operations.formula
        gradient = pull_back(op, self.output_index, upstream)[self.input_index]
        return np.zeros((len(upstream), packed_size(self.input))) if gradient is None else gradient

    def problem(
        self,
        op: Operation | None = None,
        *,
        tolerance: ToleranceRule | None = None,
        sparsity: Sparsity | None = None,
    ) -> Problem:
        """Return one form of the op as a function of the packed input, to judge or estimate.

        Args:
            op: a form of the op; default: what is differenced.
            tolerance: default: the pair's own.
            sparsity: of the analytic Jacobian.
        """
        problem = joint_problem([self], op)
        return replace(problem, tolerance=tolerance or self.tolerance, sparsity=sparsity)

    def with_operations(self, operations: Operations) -> Pair:
        """Return the same pair with other ops."""
        return replace(self, operations=operations)


def joint_problem(pairs: Sequence[Pair], op: Operation | None = None) -> Problem:
    """Return one form of the op as a function of one packed input, with several outputs side by side.

    Args:
        pairs: pairs with the same input and the same tolerance.
        op: a form of the op; default: what is differenced.
    """
    first = pairs[0]
    operations, input_index = first.operations, first.input_index
    op = op or operations.differenced
    outputs = [pair.output_index for pair in pairs]
    space = Space.of(op.outputs, outputs)
    sizes = space.magnitudes(op.base_values)
    low, high = first.domain
    return Problem(
        operations.budget.limit(function_between(op, [input_index], outputs)),
        packed_point(op, input_index),
        working_precision(op, op.inputs[input_index].dtype),
        space.each([working_precision(op, info.dtype).unit_roundoff for info in space.infos.values()]),
        tolerance=first.tolerance,
        low=low,
        high=high,
        scale=first.scale,
        base_value=sizes,
        largest_beside=space.each([largest_finite(own) for own in space.split(sizes)]),
        rounded_size=lambda: space.magnitudes(op.rounded_sizes(input_index)),
        takes_moves=not op.inputs[input_index].is_complex,
        may_round=bool(op.facts.quantisers),
    )


def pairs_at(
    case: Case, operations: Operations, rules: Mapping[PairKey, PairRule | None]
) -> dict[PairKey, Pair]:
    """Return the pairs at a sample point for which `rules` has an entry, even if it is `None`."""
    return {key: Pair(case, operations, key, rule) for key, rule in rules.items()}


def pair_keys(op: Operation) -> list[PairKey]:
    """Return the pairs to check: every differentiable output with every differentiable input."""
    return [
        (output_index, input_index)
        for output_index, output in enumerate(op.outputs)
        if output.is_differentiable
        for input_index, input_info in enumerate(op.inputs)
        # For a vjp: a gradient of one output doesn't depend on another output's upstream.
        if input_info.is_differentiable and input_info.of in {"", output.of}
    ]


def label_of(op: Operation, key: PairKey) -> str:
    """Return a pair's label, such as `dM1/dM0`; `d2M1/dM0.dt0` where the output is the gradient dM1/dM0."""
    return label_between(op.outputs[key[0]], op.inputs[key[1]])


def label_between(output: TensorInfo, input_info: TensorInfo) -> str:
    """Return the label of the pair of an output and an input."""
    return f"d2{output.name[1:]}.d{input_info.name}" if output.of else f"d{output.name}/d{input_info.name}"


def place_in(op: Operation, key: PairKey, row: int, column: int) -> str:
    """Return an element of a packed Jacobian in words; see `Pair.place`."""
    output, input_info = op.outputs[key[0]], op.inputs[key[1]]
    return (
        f"{output.name}{list(index_of(row, output))} / {input_info.name}{list(index_of(column, input_info))}"
    )


def is_expected_wrong(rule: PairRule | None) -> bool:
    """Whether a rule says that its pairs mismatch."""
    return rule is not None and rule.expect == "mismatch"


def is_skipped(rule: PairRule | None) -> bool:
    """Whether a rule says that its pairs aren't checked."""
    return rule is not None and rule.expect == "skip"


Index = npt.NDArray[np.int64]


class Rule(IntEnum):
    """The rule that decided an element: a comparison, or an entry of `judging.ledger`."""

    PLAIN = 0
    KINK = 1
    TIE = 2
    ROUNDING = 3
    EXACT_POINT = 4
    DECLARED = 5
    APPROXIMATION = 6
    STOP = 7
    JOINED_KINKS = 8
    NOT_FINITE = 9
    LOOP = 10

    @property
    def words(self) -> str:
        """What reports say of the elements that this rule decided."""
        return _WORDS[self]


_WORDS = {
    Rule.PLAIN: "plainly",
    Rule.KINK: "at a kink",
    Rule.TIE: "at a tie",
    Rule.ROUNDING: "within measured rounding",
    Rule.EXACT_POINT: "at the values before rounding",
    Rule.DECLARED: "in the declared dtype",
    Rule.APPROXIMATION: "tuned to its dtype",
    Rule.STOP: "open for a stop_gradient",
    Rule.JOINED_KINKS: "open at joined kinks",
    Rule.NOT_FINITE: "open where the forward isn't finite",
    Rule.LOOP: "where a loop runs on",
}


# The remark of a sample that is right beside points at which the pair is zero.
RIGHT_BESIDE = "zero here; right beside"


@dataclass(frozen=True)
class Stopped:
    """How `stop_gradient`s change a pair's derivative, where the spec doesn't say whether they are meant."""

    places: tuple[str, ...]  # where they are, as `file:line`
    change: float  # by how much they change an element, as a share of the larger of both derivatives

    def __str__(self) -> str:
        """Return the text for the report."""
        percent = 100 * self.change
        amount = f"{percent:.0f}" if percent >= 1 else f"{percent:.2g}"
        if len(self.places) == 1:
            what, meant = f"a stop_gradient at {self.places[0]} changes", "it is"
        else:
            where = f"{', '.join(self.places[:-1])} and {self.places[-1]}"
            what, meant = f"stop_gradients at {where} change", "they are"
        return f"{what} this derivative by up to {amount} %; if {meant} meant, say so: 'freeze: true'."

    @staticmethod
    def combine(stops: Sequence[Stopped]) -> Stopped | None:
        """Combine what was found at several points."""
        if not stops:
            return None
        places = tuple(dict.fromkeys(place for stop in stops for place in stop.places))
        return Stopped(places, max(stop.change for stop in stops))


@dataclass(frozen=True)
class ProbeNumbers:
    """What random probes say of a pair as a whole."""

    # the probability of missing an error of `miss_size`, relative, in one element
    miss_probability: float | None = None
    miss_size: float | None = None
    gradient_is_zero: bool = False  # whether it was zero in every probe
    output_is_still: bool = False  # whether the output didn't move in any
    is_faint: bool = False  # whether the gradient was too small to be told from zero
    error: float = 0.0  # the largest of their errors, relative to the terms of that probe
    bound: float = 0.0  # the error that was allowed there
    is_weak: bool = False  # whether the only doubt is that they could have missed an error; they found none


@dataclass(frozen=True)
class Differencing:
    """How a pair was differenced."""

    method: str = "none"  # "central", "ladder", "probe" or "none"
    evaluations: int = 0  # of the forward
    dtype: str = ""  # in which it was differenced
    not_float64: str = ""  # why it wasn't judged in float64; empty where it was
    is_held: bool = False  # whether the stops of a reference were held


@dataclass(frozen=True)
class Places:
    """Which elements of a Jacobian were judged one by one."""

    shape: tuple[int, int]  # (m, n) of the Jacobian
    rows: Index | None = None  # row of each element, broadcast to (r, c); `None` for 0 to m - 1
    columns: Index | None = None  # column of each element; `None` for 0 to n - 1


@dataclass(frozen=True)
class Smallness:
    """Below which size a slope says nothing: it may be a zero that was rounded."""

    rtol: float = 0.0  # the part of the tolerance that is relative to the element
    # how large a zero slope may appear, in the gradient and in differences, by rounding of the output, (m,)
    rounding: tuple[Float | float, Float | float] = (0.0, 0.0)
    is_remainder: bool = False  # the output doesn't move at all, and the gradient is rounding of what cancels


_ARRAYS = ("analytic", "numeric", "uncertainty", "allowed", "verdict", "reason")


@dataclass(frozen=True)
class PairSample:
    """The verdicts on a packed Jacobian of shape `size`, for the elements that were judged one by one.

    All arrays have one shape, (r, c): that of the whole Jacobian; (rows, slots) for a sparse one; (r, 1) for
    the elements that random probes led to.
    """

    analytic: Float  # from the gradient under test
    numeric: Float  # from differences
    uncertainty: Float  # bound on the numeric side's error
    allowed: Float  # tolerance
    verdict: npt.NDArray[np.int8]  # `numerics.Verdict` codes
    reason: npt.NDArray[np.int8]  # `numerics.Reason` codes
    is_connected: bool  # whether the gradient is a tensor, not `None`
    differencing: Differencing  # how it was differenced
    places: Places | None = None  # which elements were judged; `None` where every one of the Jacobian was
    probes: ProbeNumbers | None = None  # what random probes say; `None` for a pair that isn't probed
    doubt: str = ""  # why probes couldn't decide, or why a stop leaves the pair open; empty otherwise
    stopped: Stopped | None = None  # the `stop_gradient` that leaves the pair open, if one does
    stop_keys: frozenset[str] = frozenset()  # keys of the stops that were found to change the derivative
    smallness: Smallness = Smallness()  # how small a slope may be for a reason
    # the message for a mismatch, or for what rounding leaves open, where the elements don't explain it; or
    # `RIGHT_BESIDE`
    remark: str = ""
    loss: str = ""  # the `precision` warning, where the declared dtype loses digits of a right formula
    # `Rule` codes: what decided each element; `None` where no entry of the ledger did
    rules: npt.NDArray[np.int8] | None = None

    @staticmethod
    def of_judgement(
        judgement: Judgement,
        analytic: Float,
        numeric_dtype: str,
        *,
        rows: slice = slice(None),
        places: Places | None = None,
    ) -> PairSample:
        """Return what differences say of some rows, before any entry of the ledger acts.

        Args:
            judgement: what they say of all rows.
            analytic: the gradient, of these rows.
            numeric_dtype: the dtype in which it was differenced.
            rows: which.
            places: where the elements are, if they aren't a whole Jacobian.
        """
        return PairSample(
            analytic=analytic,
            numeric=judgement.numeric[rows],
            uncertainty=judgement.uncertainty[rows],
            allowed=judgement.allowed[rows],
            verdict=judgement.verdict[rows],
            reason=judgement.reason[rows],
            is_connected=True,
            differencing=Differencing(judgement.method, judgement.evaluations, numeric_dtype),
            places=places,
        )

    def settle(
        self,
        where: npt.NDArray[np.bool_],
        verdict: int | npt.NDArray[np.int8],
        rule: Rule,
        reason: int | npt.NDArray[np.int8] = Reason.NONE,
        **numbers: Float | float,
    ) -> PairSample:
        """Return the verdicts with some elements decided anew: nothing else changes a verdict.

        Args:
            where: which elements.
            rule: what decided them.
            reason: why they are undecided, or are mismatches at a kink.
            numbers: new values of `numeric`, `uncertainty`, `allowed` or `analytic` there.
        """
        merged: dict[str, Any] = {
            name: np.where(where, value, getattr(self, name)) for name, value in numbers.items()
        }
        codes = (("verdict", verdict), ("reason", reason))
        merged |= {name: np.where(where, code, getattr(self, name)).astype(np.int8) for name, code in codes}
        return replace(self, **merged, rules=np.where(where, rule, self.decided_by).astype(np.int8))

    def with_differencing(self, **changes: Any) -> PairSample:  # noqa: ANN401 (as `replace` has it)
        """Return the same verdicts, with other facts about how they were differenced."""
        return replace(self, differencing=replace(self.differencing, **changes))

    @property
    def decided_by(self) -> npt.NDArray[np.int8]:
        """The `Rule` that decided each element."""
        if self.rules is not None:
            return self.rules
        return np.where(self.verdict == Verdict.KINK, Rule.KINK, Rule.PLAIN).astype(np.int8)

    def count_rules(self) -> Counter[Rule]:
        """Count the judged elements by the rule that decided them."""
        rules, counts = np.unique(self.decided_by, return_counts=True)
        return Counter({Rule(int(rule)): int(count) for rule, count in zip(rules, counts, strict=True)})

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the whole Jacobian."""
        return (self.verdict.shape[0], self.verdict.shape[1]) if self.places is None else self.places.shape

    @property
    def rows(self) -> Index | None:
        """The row of each element; see `Places`."""
        return None if self.places is None else self.places.rows

    @property
    def columns(self) -> Index | None:
        """The column of each element; see `Places`."""
        return None if self.places is None else self.places.columns

    @property
    def elements(self) -> int:
        """How many elements the whole Jacobian has."""
        return self.size[0] * self.size[1]

    @property
    def is_right(self) -> bool:
        """Whether every element passes, and nothing casts doubt on it."""
        return not self.doubt and bool((self.verdict < Verdict.MISMATCH).all())

    @property
    def is_wrong(self) -> bool:
        """Whether some element is a mismatch."""
        return bool((self.verdict == Verdict.MISMATCH).any())

    @property
    def is_whole(self) -> bool:
        """Whether the arrays are the Jacobian's own."""
        return self.places is None

    def place(self, row: int, column: int) -> tuple[int, int]:
        """Return the Jacobian's row and column of an element of the arrays."""
        rows, columns = self.each_place()
        return int(rows[row, column]), int(columns[row, column])

    def each_place(self) -> tuple[Index, Index]:
        """Return the Jacobian's row and column of each element of the arrays, in two arrays of their shape.

        All elements of a row of the arrays are of one row of the Jacobian.
        """
        shape = self.verdict.shape
        rows = np.arange(shape[0])[:, None] if self.rows is None else self.rows
        columns = np.arange(shape[1])[None] if self.columns is None else self.columns
        return np.broadcast_to(rows, shape), np.broadcast_to(columns, shape)

    def take(self, row: int, column: int) -> PairSample:
        """Return the verdict on one element of the arrays alone."""
        arrays: dict[str, Any] = {
            name: getattr(self, name)[row : row + 1, column : column + 1] for name in _ARRAYS
        }
        at_row, at_column = (places[row : row + 1, column : column + 1] for places in self.each_place())
        rules = self.decided_by[row : row + 1, column : column + 1]
        return replace(self, **arrays, places=Places(self.size, at_row, at_column), rules=rules)

    def whole(self) -> PairSample:
        """Return a sparse Jacobian with its zeros written out; any other as it is."""
        columns = self.columns
        if columns is None or self.rows is not None:
            return self

        def write_out(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            out = np.zeros(self.size, values.dtype)
            np.put_along_axis(out, columns, values, axis=1)
            return out

        arrays: dict[str, Any] = {name: write_out(getattr(self, name)) for name in _ARRAYS}
        rules = None if self.rules is None else write_out(self.rules)
        return replace(self, **arrays, rules=rules, places=None)

    @cached_property
    def analytic_is_zero(self) -> bool:
        """Whether the gradient was zero everywhere."""
        return self.probes.gradient_is_zero if self.probes is not None else not self.analytic.any()

    @cached_property
    def numeric_is_zero(self) -> bool:
        """Whether the output moved nowhere; or at kinks alone, and not to the gradient's side."""
        if self.probes is not None:
            return self.probes.output_is_still
        return not self.numeric.any()

    @property
    def is_zero(self) -> bool:
        """Whether there is no slope at all, on either side."""
        return self.numeric_is_zero and self.analytic_is_zero

    def passed_below(self, limit: Float) -> PairSample | None:
        """Return the verdicts, where each slope is below a limit: what can't be above it passes.

        Returns:
            `None` if a slope is above its limit, or if that leaves some element undecided or wrong.
        """
        if not self.is_whole or self.size != limit.shape or (self.larger > limit).any():
            return self if self.is_zero else None
        is_below = (self.verdict == Verdict.INCONCLUSIVE) & (self.larger + self.uncertainty <= limit)
        passed = self.settle(is_below, Verdict.PASS, Rule.PLAIN, allowed=limit)
        return passed if passed.is_right else None

    @property
    def larger(self) -> Float:
        """The larger of gradient and derivative in magnitude, of each element."""
        return np.maximum(np.abs(self.analytic), np.abs(self.numeric))


@dataclass(frozen=True)
class PairVerdicts:
    """The verdicts on a pair at each sample point."""

    output: TensorInfo  # the output that is differentiated
    input_info: TensorInfo  # the input that it is differentiated by
    samples: Sequence[PairSample] = ()  # one for each point that was judged
    points: Sequence[int] = ()  # the indices of these points

    @staticmethod
    def of(
        op: Operation, key: tuple[int, int], samples: Sequence[PairSample], points: Sequence[int] = ()
    ) -> PairVerdicts:
        """Return what was judged of an op's pair."""
        return PairVerdicts(op.outputs[key[0]], op.inputs[key[1]], samples, points)

    @property
    def label(self) -> str:
        """The pair's label, such as `dy/dx`."""
        return label_between(self.output, self.input_info)


@dataclass(frozen=True)
class PointData:
    """A sample point: the inputs' values and the outputs'."""

    point: Mapping[str, Float]
    values: Mapping[str, Float]

    @staticmethod
    def of(
        inputs: Sequence[TensorInfo],
        point: Sequence[npt.NDArray[np.generic]],
        outputs: Sequence[TensorInfo],
        values: Sequence[npt.NDArray[np.generic]],
    ) -> PointData:
        """Pack the differentiable tensors of a sample point."""

        def pack_all(
            infos: Sequence[TensorInfo], arrays: Sequence[npt.NDArray[np.generic]]
        ) -> dict[str, Float]:
            return {
                info.name: Space.of(infos, [index]).pack_one(arrays)
                for index, info in enumerate(infos)
                if info.is_differentiable
            }

        return PointData(pack_all(inputs, point), pack_all(outputs, values))
