"""Pairs that are probed together: some outputs and some inputs, packed side by side as one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from gradcheck_cli.checking.ops.jacobian import (
    PairKey,
    pull_back,
    pull_back_together,
    unit_vectors,
    working_precision,
)
from gradcheck_cli.checking.ops.operation import Float, Operation, Operations, Stack, packed_size
from gradcheck_cli.checking.ops.space import Space
from gradcheck_cli.checking.pairs.pair import Pair
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.probes import Span, Target
from gradcheck_cli.numerics.problem import typical_size
from gradcheck_cli.numerics.shared_limits import FEW, FLOATS_AT_ONCE
from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class Group:
    """Each of some outputs with each of some inputs, all with one tolerance."""

    members: Mapping[PairKey, Pair]  # the pairs, and perhaps others that this group was split from
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    # the gradients of a few rows, by output and row, then by input; the groups of a point share them
    kept_rows: dict[tuple[int, int], dict[int, Float | None]] = field(default_factory=dict)
    # the steps that met kinks, which of `Precision.probe_steps`; the groups that this one is split into share
    # them
    spoilt: set[int] = field(default_factory=set)

    @staticmethod
    def of_pair(pair: Pair) -> Group:
        """Return one pair as a group of its own."""
        return Group({pair.key: pair}, (pair.output_index,), (pair.input_index,))

    @property
    def pairs(self) -> list[PairKey]:
        """All pairs of the group."""
        return [(output, input_index) for output in self.outputs for input_index in self.inputs]

    @property
    def first(self) -> Pair:
        """One of the pairs; it has the same case, ops and tolerance as all others."""
        return self.members[self.outputs[0], self.inputs[0]]

    @property
    def case(self) -> Case:
        """The case, which states the domains, the scales and the power that is asked for."""
        return self.first.case

    @property
    def operations(self) -> Operations:
        """The ops: `formula` has the vjp, `differenced` the forward."""
        return self.first.operations

    @cached_property
    def values(self) -> Space:
        """The outputs as one vector."""
        return Space.of(self.operations.differenced.outputs, self.outputs)

    @cached_property
    def points(self) -> Space:
        """The inputs as one vector."""
        return Space.of(self.operations.differenced.inputs, self.inputs)

    @property
    def rows(self) -> dict[int, slice]:
        """The rows of each output."""
        return self.values.places

    @property
    def columns(self) -> dict[int, slice]:
        """The columns of each input."""
        return self.points.places

    def locate(self, row: int, column: int) -> tuple[PairKey, tuple[int, int]]:
        """Return the pair that an element belongs to, and its place in that pair."""
        (output, own_row), (input_index, own_column) = self.values.locate(row), self.points.locate(column)
        return (output, input_index), (own_row, own_column)

    def restrict_to(self, outputs: Sequence[int], inputs: Sequence[int]) -> Group:
        """Return a smaller group."""
        return Group(self.members, tuple(outputs), tuple(inputs), self.kept_rows, self.spoilt)

    def target(self, piece: Operation | None = None) -> Target:
        """Set up forward and vjp, one point and one upstream at a time.

        Args:
            piece: what to difference in place of the forward, as a smooth function; see `Operations.piece`.
        """
        op = self.operations.differenced
        values = coarsest(*[working_precision(op, op.outputs[output].dtype) for output in self.outputs])
        spans = [self._span(input_index) for input_index in self.inputs]
        return Target(
            evaluate=partial(self._evaluate, piece or op),
            pull=self._pull,
            point=self.point,
            base=self.values.pack_one(op.base_values),
            spans=spans,
            unit=values.unit_roundoff,
            working=coarsest(values, *[span.precision for span in spans]),
            rule=self.first.tolerance,
            is_smooth=piece is not None,
            most_shared=max(self._declared_unit(key) for key in self.pairs),
        )

    def _declared_unit(self, key: PairKey) -> float:
        """Return the unit roundoff of a formula's constants; 0 where it is the declared op's own."""
        if not self.operations.has_reference_precision:
            return 0.0
        return self.members[key].formula_precision.unit_roundoff

    @cached_property
    def point(self) -> Float:
        """The base point, one input after another."""
        return self.points.pack_one(self.operations.differenced.point)

    def _span(self, input_index: int) -> Span:
        op, tensor = self.operations.differenced, self.case.tensors[input_index]
        return Span(
            packed_size(op.inputs[input_index]),
            typical_size(self.point[self.columns[input_index]], tensor.scale),
            working_precision(op, op.inputs[input_index].dtype),
            *tensor.domain,
        )

    def count_changed_sides(self, piece: Operation, point: Float) -> float:
        """Return how many elements are on another side of a kink at this point than at the base point."""
        return float(piece.evaluate(self._batch(point))[-1][0])

    def _batch(self, point: Float) -> dict[int, Stack]:
        """Return the moving inputs as a batch of one."""
        moved = [
            input_index
            for input_index, columns in self.columns.items()
            if not np.array_equal(point[columns], self.point[columns])
        ]
        stacks = self.points.unpack(point[np.newaxis])
        return {input_index: stacks[input_index] for input_index in moved or self.inputs[:1]}

    def _evaluate(self, op: Operation, point: Float) -> Float:
        return np.asarray(self.values.pack(op.evaluate(self._batch(point)))[0])

    @cached_property
    def has_few_rows(self) -> bool:
        """Whether the rows, as a loss has a single one, may all be kept."""
        rows = self.values.size
        wide = sum(packed_size(info) for info in self.operations.formula.inputs if info.is_differentiable)
        return rows == 1 or (rows <= FEW and rows * wide <= FLOATS_AT_ONCE)

    def _pull(self, upstream: Float) -> Float:
        op = self.operations.formula
        if self.has_few_rows:
            # A vjp is linear in the upstream, which is checked elsewhere: one gradient serves all multiples.
            rows = [self._join(dict(self._row(int(row))), upstream[row]) for row in np.flatnonzero(upstream)]
            return np.asarray(sum(rows[1:], rows[0])) if rows else np.zeros(self.points.size)
        flows = {
            output: upstream[rows][np.newaxis] for output, rows in self.rows.items() if upstream[rows].any()
        }
        if len(flows) > 1:
            return self._join(pull_back_together(op, flows))
        output = next(iter(flows), self.outputs[0])
        return self._join(pull_back(op, output, upstream[self.rows[output]][np.newaxis]))

    def _row(self, row: int) -> dict[int, Float | None]:
        """Return what one row's upstream, 1, gives each input of the op; it is pulled back once."""
        output, own_row = key = self.values.locate(row)
        if key not in self.kept_rows:
            op = self.operations.formula
            upstream = unit_vectors(np.array([own_row]), packed_size(op.outputs[output]))
            self.kept_rows[key] = pull_back(op, output, upstream)
        return self.kept_rows[key]

    def _join(self, parts: dict[int, Float | None], factor: float = 1.0) -> Float:
        """Put multiples of the moving inputs' gradients, (1, n) each, side by side; each is dropped then."""
        if len(self.inputs) == 1 and factor == 1:
            only = parts[self.inputs[0]]
            return np.zeros(self.points.size) if only is None else only[0]
        gradient = np.zeros(self.points.size)
        for input_index, columns in self.columns.items():
            if (array := parts.pop(input_index)) is not None:
                np.multiply(array[0], factor, out=gradient[columns])
        return gradient
