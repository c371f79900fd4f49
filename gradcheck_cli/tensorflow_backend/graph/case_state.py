"""The state that all ops of a case share: what `build` returned, its draws, its graphs and their twins."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gradcheck_cli.tensorflow_backend.binding.seeding import seed_globals
from gradcheck_cli.tensorflow_backend.graph.batching import Batches
from gradcheck_cli.tensorflow_backend.private.private_sites import GradientLog
from gradcheck_cli.tensorflow_backend.traces.state import State
from gradcheck_cli.tensorflow_backend.twin.float64_twin import Twins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.tensorflow_backend.graph.base_run import Draws
    from gradcheck_cli.tensorflow_backend.graph.second_order import Vjp
    from gradcheck_cli.tensorflow_backend.traces.trace_mode import TraceMode


@dataclass
class CaseState:
    """What all ops of one case share: what was built, drawn, traced and written to.

    Attributes:
        built: what `build` returned; it is called once, so a layer's weights are the same in every trace.
        draws: the random draws by sample point, and by whether the reference draws them.
        variables: the variables among the inputs, in order.
        vjp: set where the case is the vjp of another.
        written: what the case's gradients have written to, with the earlier values.
        graphs: the first traced case of each form and mode of tracing; its graphs serve every point.
        compiled: what runs instead of traced functions, by their ids, together with the functions, so that
            the ids stay in use.
        twins: the float64 twins of traces.
        batches: the batched traces of functions, likewise by their ids.
        chosen: the arguments' values at points that were chosen rather than drawn, by sample number.
        gradients: the hand-written gradients that were made, and those that ran.
    """

    built: dict[str, Any] = field(default_factory=dict)
    draws: dict[tuple[int, bool], Draws] = field(default_factory=dict)
    variables: tuple[Any, ...] = ()
    vjp: Vjp | None = None
    twins: Twins = field(default_factory=Twins)
    written: State = field(default_factory=State)
    graphs: dict[Any, Any] = field(default_factory=dict)
    compiled: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    batches: dict[int, tuple[Any, Batches]] = field(default_factory=dict)
    chosen: dict[int, Sequence[Any]] = field(default_factory=dict)
    gradients: GradientLog = field(default_factory=GradientLog)

    def compiled_form(self, mode: TraceMode, function: Any) -> Any:
        """Return what runs instead of a traced function; it is made once, since XLA takes its time."""
        if id(function) not in self.compiled:
            self.compiled[id(function)] = (function, mode.compile(function))
        return self.compiled[id(function)][1]

    def batches_of(self, function: Any) -> Batches:
        """Return the batched traces of a function, which serve every sample point."""
        return self.batches.setdefault(id(function), (function, Batches()))[1]

    def seed_at_first_use(self, seed: int) -> contextlib.AbstractContextManager[None]:
        """Seed the global generators when the forward is called for the first time: it may build layers."""
        return contextlib.nullcontext() if self.draws else seed_globals(seed)
