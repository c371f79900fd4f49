"""A pair under judgement: one output and one input of an op in all its forms, with the spec's rule for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradcheck_cli.checking.ops.jacobian import (
    PairKey,
    packed_function,
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
    packed_magnitude,
    packed_size,
)
from gradcheck_cli.numerics import FLOAT64, Precision, Problem, ToleranceRule, precision_of, rule_for
from gradcheck_cli.numerics.precision import coarsest, largest_finite
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.spec.case import Case, PairRule


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
    def domain(self) -> tuple[float | None, float | None]:
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
        table = table.with_user(self.case.tolerance.atol, self.case.tolerance.rtol)
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
    infos = [op.outputs[output] for output in outputs]
    values = [
        packed_magnitude(op.base_values[output], info) for output, info in zip(outputs, infos, strict=True)
    ]
    low, high = first.domain
    return Problem(
        operations.budget.limit(packed_function(op, input_index, outputs)),
        packed_point(op, input_index),
        working_precision(op, op.inputs[input_index].dtype),
        np.concatenate(
            [np.full(packed_size(info), working_precision(op, info.dtype).unit_roundoff) for info in infos]
        ),
        tolerance=first.tolerance,
        low=low,
        high=high,
        scale=first.scale,
        base_value=np.concatenate(values),
        largest_beside=np.concatenate([np.full(each.size, largest_finite(each)) for each in values]),
        rounded_size=lambda: _rounded_size(op, input_index, outputs),
        takes_moves=not op.inputs[input_index].is_complex,
        may_round=bool(op.facts.quantisers),
    )


def _rounded_size(op: Operation, input_index: int, outputs: Sequence[int]) -> Float:
    """Return the size that each element's rounding is relative to, packed."""
    sizes = op.rounded_sizes(input_index)
    return np.concatenate([packed_magnitude(sizes[output], op.outputs[output]) for output in outputs])


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
