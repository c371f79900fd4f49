"""The forms of an op that are used at a sample point: declared, in float64, the reference, in complex128."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.errors import CaseFailedError

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.opener import Op, Opener
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class Operations:
    """The ops at one sample point.

    Attributes:
        declared: the op in the dtypes that the spec names.
        formula: the same op in float64, or `declared` where there is none.
        differenced: the op that is differenced: `formula`, or the spec's reference.
        in_complex: the same in complex128, for the complex step.
        budget: limits what judging element by element may spend.
        on_kinks: the inputs that are known to be on a kink of some element; probing adds to them.
    """

    declared: Operation
    formula: Operation
    differenced: Operation
    in_complex: Operation | None = None
    budget: Budget = field(default_factory=Budget)
    on_kinks: set[int] = field(default_factory=set)

    @staticmethod
    def of_one(op: Operation) -> Operations:
        """Return one op in every form, without a budget."""
        return Operations(op, op, op)

    @cached_property
    def piece(self) -> Operation:
        """The differenced op with its kinks held where they are; the op itself where none can be held."""
        return self.differenced.on_one_piece() or self.differenced

    @property
    def has_reference_precision(self) -> bool:
        """Whether the formula is judged in float64 although the declared dtype is another."""
        return self.formula is not self.declared


def open_operations(case: Case, opener: Opener[Op], sample: int, op: Op) -> Operations:
    """Open the forms of an op that are used at a sample point.

    Args:
        case: says whether there is a reference, and which method is used.
        opener: of the case.
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
