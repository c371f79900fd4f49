"""What opens a case as ops: the one Protocol through which `checking` reaches a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from gradcheck_cli.checking.ops.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.spec.case import Case

Op = TypeVar("Op", bound=Operation)


class Opener(Protocol[Op]):
    """Opens a case as an op at a sample point; what is traced serves every point.

    Attributes:
        case: the case, with what only opening it can tell: its variables are among the arguments.
    """

    @property
    def case(self) -> Case:
        """The case that is opened."""

    def declared(self, sample: int) -> Op:
        """Open the op in the dtypes that the spec names."""

    def gradients_seen(self, own: Op) -> Mapping[str, int]:
        """Return how often each registered gradient function was called as an opened op's vjp was built.

        CaseFailedError where one that the spec covers wasn't.
        """

    def in_float64(self, own: Op) -> Op | None:
        """Open an opened op in float64 too; `None` where that isn't needed, or isn't the same function."""

    def in_complex(self, own: Op) -> Op:
        """Open an opened op in complex128, for the complex step; CaseFailedError where it can't be."""

    def afresh(self, own: Op) -> Op:
        """Trace an opened op's gradient once more, for the same point."""

    def reordered(self, sample: int) -> Op:
        """Open the op as declared, with the variables of custom gradients in reverse order."""

    def vjp(self, own: Op) -> Opener[Op]:
        """Return what opens the vjp of an opened op as an op of its own, to be differentiated again."""

    def surrogate(self, sample: int) -> Op:
        """Open the spec's reference function in the dtypes that the spec names."""
