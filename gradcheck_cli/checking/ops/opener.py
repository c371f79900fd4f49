"""The Protocol through which `checking` opens a case as ops, and the forms of a case at a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, TypeVar

from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Case


@dataclass(frozen=True, kw_only=True)
class OpenedOperation(Operation):
    """An op that an opener opened."""

    opening: Opening  # the form of the case that this op is


Op = TypeVar("Op", bound=OpenedOperation)


class Opener(Protocol[Op]):
    """Opens a case as ops. What is traced for one sample point serves every point."""

    @property
    def case(self) -> Case:
        """The case, with what only opening shows: its variables are among the arguments."""

    def open(self, opening: Opening) -> Op:
        """Open a form of the case in the dtypes that the spec names; `in_dtype` opens it in others.

        Raises:
            CaseFailedError: it can't be opened.
        """

    def in_dtype(self, op: Op, dtype: Dtype) -> Op | None:
        """Open an opened op in float64, or in complex128 for the complex step.

        Returns:
            `None` where float64 isn't needed, or isn't the same function.

        Raises:
            CaseFailedError: the op can't be opened in complex128.
        """

    def retrace(self, op: Op) -> Op:
        """Trace an opened op's gradient again, for the same point."""

    def vjp(self, op: Op) -> Opener[Op]:
        """Return an opener of an opened op's vjp as an op of its own, to be differentiated again."""

    def written_ops(self, op: Op, output: int, input_index: int) -> Sequence[Operation] | None:
        """Return the ops of a pair's path whose gradients the user wrote, each by itself, at its own point.

        Returns:
            `None` where they aren't known.
        """

    def gradients_seen(self, op: Op) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when an opened op's vjp was built.

        Raises:
            CaseFailedError: one that the spec covers wasn't called.
        """

    def unrun_gradients(self) -> Sequence[str]:
        """Say which custom gradients the forward called and no backward pass ran, and why."""


Dtype = Literal["declared", "float64", "complex128"]


@dataclass(frozen=True)
class Opening:
    """One form of a case.

    Attributes:
        dtype: the dtypes that the spec names; or float64, with complex128 for complex tensors; or complex128.
    """

    sample: int = 0  # index of the sample point
    of: Literal["forward", "reference"] = "forward"  # the case's forward, or the spec's reference function
    dtype: Dtype = "declared"
    reversed: bool = False  # give custom gradients their variables in reverse order

    @property
    def is_reference(self) -> bool:
        """Whether this is the spec's reference function."""
        return self.of == "reference"


@dataclass(frozen=True)
class Operations:
    """The ops at one sample point.

    Attributes:
        on_kinks: the inputs that are known to be on a kink of some element; probing adds to them.
    """

    declared: Operation  # the op in the dtypes that the spec names
    formula: Operation  # the same op in float64, or `declared` where there is none
    differenced: Operation  # the op that is differenced: `formula`, or the spec's reference
    in_complex: Operation | None = None  # the same in complex128, for the complex step
    budget: Budget = field(default_factory=Budget)  # limits what judging element by element may spend
    on_kinks: set[int] = field(default_factory=set)

    @staticmethod
    def of_one(op: Operation) -> Operations:
        """Return one op in every form, without a budget."""
        return Operations(op, op, op)

    @cached_property
    def piece(self) -> Operation:
        """The differenced op with its kinks held where they are; the op itself where none can be held."""
        return self.differenced.forms.on_one_piece() or self.differenced

    @property
    def has_reference_precision(self) -> bool:
        """Whether the formula is judged in float64 although the declared dtype is another."""
        return self.formula is not self.declared


def open_operations(case: Case, opener: Opener[Op], sample: int, op: Op) -> Operations:
    """Open the forms of an op that are used at a sample point.

    Args:
        case: says whether there is a reference, and which method is used.
        sample: index of the sample point.
        op: the declared op at that point.

    Raises:
        CaseFailedError: the reference can't be evaluated, or doesn't have the forward's outputs.
    """
    formula = opener.in_dtype(op, "float64") or op
    if case.reference is None:
        return Operations(op, formula, formula, _open_in_complex(case, opener, formula))
    try:
        surrogate = opener.open(Opening(sample, of="reference"))
        surrogate = opener.in_dtype(surrogate, "float64") or surrogate
        shapes = _shapes(surrogate)
    except CaseFailedError as error:
        if error.kind != "forward":
            raise
        message = error.message.replace("the forward raised", "the reference raised", 1)
        raise CaseFailedError("reference", message, error.traceback) from error
    if shapes != _shapes(op):
        raise CaseFailedError(
            "outputs",
            f"the reference's outputs must have the forward's shapes {_shapes(op)}, but have {shapes}.",
        )
    if _names(surrogate) != _names(op):
        # If outputs were matched by position alone, one's loss could be compared with the other's accuracy.
        raise CaseFailedError(
            "outputs",
            f"the reference must return what the forward does, {', '.join(_names(op))}, but returns "
            f"{', '.join(_names(surrogate))}: return the same structure, or name the outputs in the spec.",
        )
    return Operations(op, formula, surrogate, _open_in_complex(case, opener, surrogate))


def _open_in_complex(case: Case, opener: Opener[Op], differenced: Op) -> Op | None:
    return opener.in_dtype(differenced, "complex128") if case.method == "complex_step" else None


def _names(op: Operation) -> list[str]:
    return [output.name for output in op.outputs]


def _shapes(op: Operation) -> list[list[int]]:
    return [list(output.shape) for output in op.outputs]
