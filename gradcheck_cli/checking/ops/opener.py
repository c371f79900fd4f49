"""What opens a case as ops: the one Protocol through which `checking` reaches a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from gradcheck_cli.checking.ops.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.opening import Dtype, Opening
    from gradcheck_cli.spec.case import Case


class OpenedOperation(Operation, Protocol):
    """An op that an opener opened."""

    @property
    def opening(self) -> Opening:
        """Which form of its case it is."""


Op = TypeVar("Op", bound=OpenedOperation)


class Opener(Protocol[Op]):
    """Opens a case as ops; what is traced for one sample point serves every point."""

    @property
    def case(self) -> Case:
        """The case, with what only opening it can tell: its variables are among the arguments."""

    def open(self, opening: Opening) -> Op:
        """Open a form of the case in the dtypes that the spec names; `in_dtype` gives it in others.

        CaseFailedError where that can't be done.
        """

    def in_dtype(self, op: Op, dtype: Dtype) -> Op | None:
        """Open an opened op in float64, or in complex128 for the complex step.

        `None` where float64 isn't needed, or isn't the same function. CaseFailedError where the op can't be
        opened in complex128.
        """

    def again(self, op: Op) -> Op:
        """Trace an opened op's gradient once more, for the same point."""

    def vjp(self, op: Op) -> Opener[Op]:
        """Return what opens the vjp of an opened op as an op of its own, to be differentiated again."""

    def gradients_seen(self, op: Op) -> Mapping[str, int]:
        """Return how often each registered gradient function was called as an opened op's vjp was built.

        CaseFailedError where one that the spec covers wasn't.
        """
