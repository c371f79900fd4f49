"""The modes graph and dynamic: a case traced with known shapes, or with as few as possible."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.opening.same_function import float64_twin
from gradcheck_cli.tensorflow_backend.traces.trace_mode import ALL_UNKNOWN, FIRST_UNKNOWN, GRAPH, TraceMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.checking.ops.opener import Opening
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState


def open_graph(case: Case, opening: Opening, state: CaseState, mode: TraceMode = GRAPH) -> GraphOperation:
    """Open a form of a case as a graph. In every mode, its reference has known shapes and isn't compiled.

    Raises:
        CaseFailedError: the forward raises, or its outputs aren't what the spec says.
    """
    op = GraphOperation.open(case, opening, state, GRAPH if opening.is_reference else mode)
    if not (opening.is_reference or opening.reversed):
        op.check_output_shapes()
    return op


@dataclass(frozen=True)
class GraphMode:
    """Graph mode. If a case can be called eagerly but can't be traced, the error says so.

    Attributes:
        works_eagerly: whether a case's forward has gradients where it is called eagerly.
    """

    works_eagerly: Callable[[Case, Opening, CaseState], bool] = lambda *_: False

    def refusal(self, case: Case) -> str | None:  # noqa: ARG002 (as `Mode` has it)
        """Refuse nothing."""
        return None

    def open(self, case: Case, opening: Opening, state: CaseState) -> GraphOperation:
        """Open a form of a case as a graph; see `Mode`."""
        try:
            return open_graph(case, opening, state)
        except CaseFailedError as error:
            if (
                error.kind != "forward"
                or "use binding: py_func" in error.message
                or not self.works_eagerly(case, opening, state)
            ):
                raise
            raise CaseFailedError(
                error.kind,
                f"{error.message.rstrip('.')}. It works where it is called eagerly: say 'modes: [eager]' "
                "(or --mode eager) to check it there.",
                error.traceback,
            ) from error

    def in_float64(self, op: GraphOperation) -> GraphOperation | None:
        """Return an op's float64 twin; see `Mode`."""
        return float64_twin(op)


@dataclass(frozen=True)
class DynamicMode:
    """The dynamic mode: traced with unknown dimensions, all of them or, where that fails, only the first."""

    def refusal(self, case: Case) -> str | None:  # noqa: ARG002 (as `Mode` has it)
        """Refuse nothing."""
        return None

    def open(self, case: Case, opening: Opening, state: CaseState) -> GraphOperation:
        """Open a form of a case with as few known dimensions as possible; see `Mode`.

        A matrix product with weights may need its inner dimension; the batch is what usually varies.

        Raises:
            CaseFailedError: forward or gradient raises, even where only first dimensions are unknown.
        """
        if opening.is_reference or opening.reversed:
            return open_graph(case, opening, state, ALL_UNKNOWN)
        if case.build is not None and not state.built:
            # A Keras layer takes its shapes from its first call, which must know them.
            open_graph(case, opening, state)
        try:
            return self._open_and_trace(case, opening, state, ALL_UNKNOWN)
        except CaseFailedError:
            pass
        try:
            return self._open_and_trace(case, opening, state, FIRST_UNKNOWN)
        except CaseFailedError as error:
            failure = error
        self._open_and_trace(case, opening, state, GRAPH)  # if this fails as well, the mode isn't the cause
        raise CaseFailedError(
            failure.kind,
            f"{failure.message.rstrip('.')}. This also happens if the first dimension of every input is "
            "unknown (None), as in mode dynamic, but not if all are known: take sizes from tf.shape(x).",
            failure.traceback,
        ) from failure

    def _open_and_trace(
        self, case: Case, opening: Opening, state: CaseState, mode: TraceMode
    ) -> GraphOperation:
        op = open_graph(case, opening, state, mode)
        # A gradient of wrong form is a finding, and is reported where the form is checked.
        with contextlib.suppress(GradientFormError):
            _ = op.dtype_faults  # traces the vjp, which may need more dimensions than the forward
        return op

    def in_float64(self, op: GraphOperation) -> GraphOperation | None:
        """Return an op's float64 twin; see `Mode`."""
        return float64_twin(op)
