"""Open a case traced with unknown dimensions: all of them, or where it can't do without some, the first."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.opening.graph_opening import GraphOpener
from gradcheck_cli.tensorflow_backend.traces.trace_mode import ALL_UNKNOWN, FIRST_UNKNOWN, GRAPH, How

if TYPE_CHECKING:
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation


@dataclass(frozen=True)
class DynamicOpener(GraphOpener):
    """Opens one case with unknown dimensions."""

    how: How = ALL_UNKNOWN

    def declared(self, sample: int) -> GraphOperation:
        """Open the op in the dtypes that the spec names, knowing as few dimensions as it takes.

        A matrix product of weights may need to know its inner dimension; a batch is what really varies.

        Raises:
            CaseFailedError: forward or gradient raises, even where only first dimensions are unknown.
        """
        if self.case.build is not None and not self.state.built:
            # A Keras layer takes its shapes from the first call, which is to know them.
            GraphOpener(self.case, self.state, GRAPH).declared(sample)
        try:
            return self._opened(ALL_UNKNOWN, sample)
        except CaseFailedError:
            pass
        try:
            return self._opened(FIRST_UNKNOWN, sample)
        except CaseFailedError as error:
            failure = error
        self._opened(GRAPH, sample)  # where this fails as well, the failure isn't of this mode
        raise CaseFailedError(
            failure.kind,
            f"{failure.message.rstrip('.')}. So it does where the first dimension of every input is unknown "
            "(None), as mode dynamic traces it, though not where all are known: take sizes from tf.shape(x).",
            failure.traceback,
        ) from failure

    def _opened(self, how: How, sample: int) -> GraphOperation:
        op = GraphOpener(self.case, self.state, how).declared(sample)
        # A gradient of wrong form is a finding, and comes up again where it is looked for.
        with contextlib.suppress(GradientFormError):
            op.dtype_faults  # noqa: B018 (traces the vjp, which may need to know more than the forward)
        return op
