"""The Protocol through which `checking` makes a backend open a case as ops, and the key of each form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from gradcheck_cli.checking.ops.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.spec.case import Case


class OpenedOperation(Operation, Protocol):
    """An op that an opener opened."""

    @property
    def opening(self) -> Opening:
        """The form of the case that this op is."""


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
        sample: index of the sample point.
        of: the case's forward, or the spec's reference function.
        dtype: the dtypes that the spec names; or float64, with complex128 for complex tensors; or complex128.
        reversed: give custom gradients their variables in reverse order.
    """

    sample: int = 0
    of: Literal["forward", "reference"] = "forward"
    dtype: Dtype = "declared"
    reversed: bool = False

    @property
    def is_reference(self) -> bool:
        """Whether this is the spec's reference function."""
        return self.of == "reference"
