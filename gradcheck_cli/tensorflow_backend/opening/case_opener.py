"""Opens the forms of a case in one mode, and knows in which dtypes they are the same function."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from gradcheck_cli import hooks
from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.second_order import case_of_vjp
from gradcheck_cli.tensorflow_backend.opening.same_function import in_complex
from gradcheck_cli.tensorflow_backend.registry.covered_types import require_seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.checking.ops.opener import Dtype, Opening
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.spec.case import Case

Op = TypeVar("Op")


class Mode(Protocol):
    """How a case is opened in one mode."""

    def refusal(self, case: Case) -> str | None:
        """Say why a case can't have this mode, whatever its functions do; `None` if it can."""

    def open(self, case: Case, opening: Opening, state: CaseState) -> Any:
        """Open a form of a case in the dtypes that the spec names.

        Raises:
            CaseFailedError: the forward raises, or its outputs aren't what the spec says.
            CaseSkippedError: the mode can't have what the forward or the gradient uses.
        """

    def in_float64(self, op: Any) -> Any:
        """Open an opened op in float64; `None` where that isn't needed, or isn't the same function."""


@dataclass(frozen=True)
class CaseOpener(Generic[Op]):
    """Opens one case in one mode; `checking.Opener`.

    Attributes:
        case: the case.
        mode: its mode.
        state: the state that all its ops share.
    """

    case: Case
    mode: Mode
    state: CaseState = field(default_factory=CaseState)

    def open(self, opening: Opening) -> Op:
        """Open a form of the case in the dtypes that the spec names; see `Opener`."""
        op: Op = self.mode.open(self.case, opening, self.state)
        return op

    def in_dtype(self, op: Any, dtype: Dtype) -> Op | None:
        """Open an opened op in float64, or in complex128 for the complex step; see `Opener`."""
        wide: Any = self.mode.in_float64(op) if dtype == "float64" else in_complex(op)
        opened: Op | None = wide
        return opened

    def retrace(self, op: Any) -> Op:
        """Trace or call an opened op's gradient again, for the same point."""
        retraced: Op = op.again()
        return retraced

    def vjp(self, op: Any) -> CaseOpener[Op]:
        """Return an opener of an opened op's vjp as an op of its own."""
        reference = None if self.case.reference is None else self._reference_at(op)
        case, vjp = case_of_vjp(self.case, op, reference)
        return replace(self, case=case, state=replace(self.state, draws={}, graphs={}, vjp=vjp))

    def _reference_at(self, op: Any) -> Any:
        return self.mode.open(self.case, replace(op.opening, of="reference"), self.state)

    def written_ops(self, op: Any, output: int, input_index: int) -> Sequence[Operation] | None:
        """Return the ops on a pair's path whose gradients the user wrote, each by itself; see `Opener`."""
        is_walked = isinstance(op, GraphOperation) and self.case.gradient is None and self.state.vjp is None
        if not is_walked:
            return None
        sources, count = [input_index], op.traced.at.count
        if input_index >= count:
            # A path isn't walked from a variable: its gradients must be on the paths from the other inputs.
            sources = [index for index in range(count) if op.is_connected(output, index)]
            sites: dict[int, set[object]] = {index: set() for index in range(len(op.inputs))}
            for site, of_output, of_input in op.traced.vjp_trace.sites:
                if of_output == output:
                    sites[of_input].add(site)
            if not sites[input_index] <= set().union(*(sites[index] for index in sources)):
                return None
        return hooks.find_written_ops(op, output, sources)

    def gradients_seen(self, op: Any) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when an op's vjp was built.

        Raises:
            CaseFailedError: of kind "covers": one that the spec covers wasn't called.
        """
        is_vjp = self.state.vjp is not None
        return require_seen(self.case, op.gradients_seen, op.gradients_seen_anew, is_vjp=is_vjp)

    def unrun_gradients(self) -> list[str]:
        """Say which custom gradients the forward called and no backward pass ran; see `Opener`."""
        return [] if self.state.vjp is not None else self.state.gradients.unrun()


GraphOpener = CaseOpener[GraphOperation]
