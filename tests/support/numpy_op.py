"""Ops in NumPy that stand in for traced ones: the checks are tested by what they are told, and told fast."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops.operation import (
    OpenedOperation,
    Opening,
    Operations,
    OpFacts,
    OpForms,
    TensorInfo,
)
from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.spec.case import Argument, Case, FunctionRef, InputSpec, Origin, Reference
from tests.support.flat_results import altered

WIDE = {"f": np.float64, "V": np.float64, "c": np.complex128, "i": np.int64, "b": np.bool_}
IN_FLOAT64 = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def widen(value):
    return np.asarray(value).astype(WIDE[np.asarray(value).dtype.kind])


def written_out(stack, shape):
    return stack.points().reshape(len(stack), *shape) if isinstance(stack, Moves) else stack


class Nothing(dict):
    """No entries; hashable, so that it can be a dataclass's default."""

    __hash__ = object.__hash__


FIRST = Opening()
NOTHING = Nothing()


@dataclass(frozen=True, kw_only=True)
class NumpyFacts(OpFacts):
    """What a test says of an op."""

    inputs: tuple = ()
    outputs: tuple = ()
    point: tuple = ()
    base_values: tuple = ()
    low_precision: tuple = ()
    random_types: tuple = ()
    stops: dict = NOTHING  # (output, input) -> key -> place
    gradient_variables: tuple = ()
    dtype_faults: dict = NOTHING

    def stops_between(self, output, input_index):
        return self.stops.get((output, input_index), {})


@dataclass(frozen=True, kw_only=True)
class NumpyOperation(OpenedOperation):
    """An `Operation` at one point that remembers where it was evaluated."""

    evaluated: list


def operation_of(forward, gradients, inputs, point, names, **said):
    """Return a function as an op; `said` is what a test says of it."""
    runs = NumpyRuns(forward, gradients, inputs, point, names, said.pop("joint", None))
    held, own = said.pop("held", None), dict(said)

    def hold(stops):
        return operation_of(held(stops), gradients, inputs, point, names, **own)

    return NumpyOperation(
        opening=said.pop("opening"),
        facts=NumpyFacts(
            is_connected=runs.is_connected,
            inputs=inputs,
            outputs=runs.outputs,
            point=point,
            base_values=runs.base_values,
            **said,
        ),
        forms=OpForms(*([hold] if held else [])),
        evaluate=runs.evaluate,
        vjp=runs.vjp,
        joint_vjp=runs.joint_vjp,
        vjp_beside=runs.vjp_beside,
        rounded_sizes=lambda _: [np.abs(value) for value in runs.base_values],
        evaluated=runs.evaluated,
    )


@dataclass
class NumpyRuns:
    """Runs a function and its gradients at one point; remembers where it was evaluated."""

    forward: object
    gradients: object
    inputs: tuple
    point: tuple
    names: tuple
    joint: object = None
    evaluated: list = field(default_factory=list)

    def _own(self, values):
        return [
            value.astype(numpy_dtype(info.dtype)) for value, info in zip(values, self.inputs, strict=True)
        ]

    def _forward(self, values):
        result = self.forward(*self._own(values))
        return [np.asarray(output) for output in (result if isinstance(result, tuple) else (result,))]

    @property
    def base_values(self):
        return [widen(output) for output in self._forward(self.point)]

    @property
    def outputs(self):
        return tuple(
            TensorInfo(name, output.dtype.name, output.shape, output.dtype.kind in "fcV")
            for name, output in zip(self.names, self._forward(self.point), strict=True)
        )

    def evaluate(self, batch):
        batch = {
            input_index: written_out(stack, self.inputs[input_index].shape)
            for input_index, stack in batch.items()
        }
        rows = len(next(iter(batch.values())))
        self.evaluated += [
            {input_index: values[row] for input_index, values in batch.items()} for row in range(rows)
        ]
        every = [
            self._forward(
                [
                    batch[input_index][row] if input_index in batch else value
                    for input_index, value in enumerate(self.point)
                ]
            )
            for row in range(rows)
        ]
        return [widen(np.stack(column)) for column in zip(*every, strict=True)]

    def _pull(self, output, upstream):
        own = np.asarray(upstream).astype(numpy_dtype(self.outputs[output].dtype))
        result = self.gradients[output](own, *self._own(self.point))
        return list(result) if isinstance(result, tuple | list) else [result]

    def is_connected(self, output, input_index):
        return self._pull(output, np.zeros(self.outputs[output].shape))[input_index] is not None

    def vjp(self, output, upstream):
        rows = [self._pull(output, row) for row in written_out(upstream, self.outputs[output].shape)]
        return [
            None if column[0] is None else widen(np.stack([np.asarray(value) for value in column]))
            for column in zip(*rows, strict=True)
        ]

    def vjp_beside(self, output, upstream, point):
        moved = [point[index][0] if index in point else value for index, value in enumerate(self.point)]
        return replace(self, point=tuple(moved)).vjp(output, upstream)

    def joint_vjp(self, upstreams):
        """The sum of what each output's upstream gives, unless `joint` mixes them: `(upstreams, *inputs)`."""
        if self.joint is not None:
            rows = [
                self.joint([flow[row] for _, flow in sorted(upstreams.items())], *self._own(self.point))
                for row in range(len(next(iter(upstreams.values()))))
            ]
            return [
                None if column[0] is None else widen(np.stack(column)) for column in zip(*rows, strict=True)
            ]
        parts = zip(*[self.vjp(output, flow) for output, flow in upstreams.items()], strict=True)
        flows = [[flow for flow in column if flow is not None] for column in parts]
        return [sum(flow) if flow else None for flow in flows]


@dataclass
class Numpy:
    """A function with its gradients, and the opener of ops of it.

    `gradients` holds one function per output, `(upstream, *inputs) -> gradients`; `points` holds the
    inputs' values by name, per sample.
    """

    forward: object
    gradients: object
    points: object
    dtypes: dict = field(default_factory=dict)
    outputs: tuple = ("y",)
    reference: object = None
    facts: dict = field(default_factory=dict)
    opened: list = field(default_factory=list)
    refuses_float64: bool = False
    reordered: object = None  # opens the op with its variables in reverse order, if that is another op

    def __post_init__(self):
        if callable(self.gradients):
            self.gradients = (self.gradients,)
        if isinstance(self.points, dict):
            self.points = [self.points]
        self.points = [{name: np.asarray(value) for name, value in point.items()} for point in self.points]

    def _dtype(self, name):
        kind = self.points[0][name].dtype
        return self.dtypes.get(
            name, "complex128" if kind.kind == "c" else "int32" if kind.kind == "i" else "float64"
        )

    def operation(self, opening=FIRST):
        point, wide = self.points[opening.sample], opening.dtype == "float64"
        own = {name: self._dtype(name) for name in point}
        seen = {name: IN_FLOAT64.get(dtype, dtype) if wide else dtype for name, dtype in own.items()}
        inputs = tuple(
            TensorInfo(name, seen[name], value.shape, value.dtype.kind in "fc")
            for name, value in point.items()
        )
        low = tuple(sorted({dtype for dtype in seen.values() if dtype in IN_FLOAT64}))
        made = operation_of(
            self.reference if opening.is_reference else self.forward,
            self.gradients,
            inputs,
            # The values are those that the declared dtype can hold, in float64 too.
            tuple(widen(value.astype(numpy_dtype(own[name]))) for name, value in point.items()),
            self.outputs,
            opening=opening,
            **{"low_precision": low, **{name: fact for name, fact in self.facts.items() if name != "seen"}},
        )
        self.opened.append(made)
        return made

    def open(self, opening):
        if opening.reversed and self.reordered is not None:
            return self.reordered(opening)
        return self.operation(opening)

    def in_float64(self, op):
        if op.facts.low_precision and not self.refuses_float64:
            return self.operation(replace(op.opening, dtype="float64"))
        return None

    def retrace(self, op):
        return self.operation(op.opening)

    def at(self, _):
        return nullcontext()

    still_weights = ()  # it has none

    def written_ops(self, *_):
        """No graph shows them."""

    def unrun_gradients(self, op):
        return ()

    def gradients_seen(self, own):
        return self.facts.get("seen", {})

    def case(self, domains=None, **changes):
        arguments = tuple(
            Argument(
                name,
                (
                    InputSpec(
                        name,
                        self._dtype(name),
                        value.shape,
                        domain=(domains or {}).get(name, (-np.inf, np.inf)),
                    ),
                ),
            )
            for name, value in self.points[0].items()
        )
        reference = Reference(FunctionRef("a:reference")) if self.reference else None
        case = Case(
            "op", "default", "float64", arguments, reference=reference, origin=Origin("op.yaml", "", 1)
        )
        return altered(case, **changes)

    def operations(self, sample=0):
        """The ops that take part at a sample point, as `check_case` would open them."""
        declared = self.open(Opening(sample))
        formula = self.in_float64(declared) or declared
        return Operations(declared, formula, formula)


def check(op, **changes):
    """Check an op at all its points; `changes` are fields of its case."""
    return check_case(op.case(**changes), op, range(len(op.points)))


def tanh(gradient=None, **changes):
    """tanh at two points, with its gradient or another."""

    def right(upstream, x):
        return (1 - np.tanh(x) ** 2) * upstream

    fields = {"points": [{"x": [0.5, -1.0, 0.25]}, {"x": [1.5, 0.75, -0.5]}], **changes}
    return Numpy(np.tanh, gradient or right, **fields)


def product(gradient=None, **changes):
    """A product of two inputs, with its gradient or another."""

    def right(upstream, a, b):
        return upstream * np.conj(b), upstream * np.conj(a)

    fields = {"points": {"a": [2.0, -3.0], "b": [0.5, 4.0]}, **changes}
    return Numpy(lambda a, b: a * b, gradient or right, **fields)


__all__ = ["FIRST", "Numpy", "check", "product", "replace", "tanh"]
