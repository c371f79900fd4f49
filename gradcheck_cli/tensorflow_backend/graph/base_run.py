"""Evaluate a traced forward at the base point, once, and keep what is held from then on.

One run gives the outputs, the value of each `stop_gradient` and the draws, so that they belong together. The
draws are the case's: every other trace at that point (the gradient's, float64's, one made afresh) has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.graph.batching import Batches
from gradcheck_cli.tensorflow_backend.graph.state import State, call_once, put_back
from gradcheck_cli.tensorflow_backend.private.private_sites import GradientLog
from gradcheck_cli.tensorflow_backend.twin.float64_twin import Twins

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gradcheck_cli.tensorflow_backend.binding.binder import Binder, Bound
    from gradcheck_cli.tensorflow_backend.graph.frozen import Held
    from gradcheck_cli.tensorflow_backend.graph.second_order import Vjp
    from gradcheck_cli.tensorflow_backend.graph.trace_mode import How
    from gradcheck_cli.tensorflow_backend.graph.tracing import ForwardTrace

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Draws:
    """One sample point's draws, which every trace of it shares: their op types, and values in order."""

    types: tuple[str, ...]
    values: tuple[Array, ...]
    inner_types: tuple[str, ...]
    inner_values: tuple[tuple[list[Array], ...], ...]  # per op, per call, its outputs

    def cast(self, held: Held) -> list[Array]:
        """Return the values for the draws of another trace, in its own dtypes.

        Raises:
            CaseFailedError: that trace draws something else.
        """
        inner = held.stand_ins.draw_types() if held.stand_ins else ()
        if self.types != tuple(tensor.op.type for tensor in held.draws) or self.inner_types != inner:
            raise _differs()
        cast = []
        for value, tensor in zip(self.values, held.draws, strict=True):
            if not tensor.shape.is_compatible_with(value.shape):
                raise _differs()
            cast.append(value.astype(tensor.dtype.as_numpy_dtype))
        return cast


def _differs() -> CaseFailedError:
    return CaseFailedError(
        "forward",
        "the forward draws other random numbers each time it is traced (their number, kinds or shapes "
        "differ), so that no draw can be held; keep no state between calls.",
    )


@dataclass
class Shared:
    """What all ops of one case share: its draws, and what its factory built.

    Attributes:
        draws: by sample point and by whether the reference makes them.
        built: what `build` made, once; a layer's weights are the same in every trace.
        variables: what stands behind the inputs that are variables, in their order.
        vjp: where the case is the vjp of another.
        state: what the case's gradients have written to.
        graphs: the op that was opened first, by how: its graphs serve every point.
        compiled: what runs in place of traced functions, by their ids, with these to keep the ids theirs.
        twins: the float64 twins of what is traced.
        batches: what was traced of functions to take batches, by their ids, with these likewise.
        gradients: the hand-written gradients that were made and ran.
    """

    built: dict[str, Any] = field(default_factory=dict)
    draws: dict[tuple[int, bool], Draws] = field(default_factory=dict)
    variables: tuple[Any, ...] = ()
    vjp: Vjp | None = None
    twins: Twins = field(default_factory=Twins)
    state: State = field(default_factory=State)
    graphs: dict[Any, Any] = field(default_factory=dict)
    compiled: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    batches: dict[int, tuple[Any, Batches]] = field(default_factory=dict)
    gradients: GradientLog = field(default_factory=GradientLog)

    def made_of(self, how: How, function: Any) -> Any:
        """Return what is to run in place of a traced function, made once, as XLA takes its time."""
        if id(function) not in self.compiled:
            self.compiled[id(function)] = (function, how.made(function))
        return self.compiled[id(function)][1]

    def batches_of(self, function: Any) -> Batches:
        """Return what was traced of a function to take batches, at whichever sample point."""
        return self.batches.setdefault(id(function), (function, Batches()))[1]

    def bound(self, binder: Binder, *, surrogate: bool = False) -> Bound:
        """Bind what the case is of, its forward or another's vjp; or the same of the spec's reference."""
        if self.vjp is not None:
            return self.vjp.bound(binder, self.variables, surrogate=surrogate)
        return binder.reference() if surrogate else binder.forward()


@dataclass(frozen=True)
class Base:
    """A run at the base point: the outputs, and what is held from then on, stops before draws."""

    outputs: tuple[Array, ...]
    values: tuple[Array, ...]


def run_at_base(
    trace: ForwardTrace,
    point: Sequence[Any],
    shared: Shared,
    key: tuple[int, bool],
    stops: Sequence[Any] = (),
) -> Base:
    """Evaluate outputs and held tensors in one run, with the draws that the case has had there, if any.

    Args:
        trace: of the forward.
        point: the inputs, as tensors.
        shared: the case's draws; those of a first run are added.
        key: the sample point's number, and whether this is the reference.
        stops: tensors of the `stop_gradient`s that are held.

    Raises:
        CaseFailedError: the forward draws otherwise than it did in the trace before.
    """
    held, known = trace.held, shared.draws.get(key)
    drawn = [] if known is None else known.cast(held)
    fed = held.draws if known is not None else ()
    function = trace.pruned(fed, [*stops, *(() if known is not None else held.draws)])
    draws = [tf.constant(value, tensor.dtype) for value, tensor in zip(drawn, fed, strict=True)]
    if known is None and held.draws:  # each point has a draw of its own, whichever is the first to be opened
        for _ in range(key[0]):
            put_back(function)(list(point))
    stand_ins = held.stand_ins
    if stand_ins is None:
        results = call_once(function, [*point, *draws])
    else:
        if known is not None:
            stand_ins.use_draws(known.inner_values)
        with stand_ins.noting():
            results = put_back(function)([*point, *draws])
    values = [result.numpy() for result in results]
    count = len(trace.outputs)
    outputs, rest = values[:count], [*values[count:], *drawn]
    if known is None:
        shared.draws[key] = Draws(
            tuple(tensor.op.type for tensor in held.draws),
            tuple(rest[len(stops) :]),
            stand_ins.draw_types() if stand_ins else (),
            stand_ins.draw_values() if stand_ins else (),
        )
    return Base(tuple(outputs), tuple(rest))
