"""Evaluates a traced forward once at the base point, and keeps the values that are held from then on.

One run gives the outputs, the value of each `stop_gradient` and the draws, so that they are consistent. The
draws belong to the case: every other trace at that point (the gradient's, the twin's, a new one) uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.traces.state import call_once, restoring_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gradcheck_cli.tensorflow_backend.traces.forward_trace import ForwardTrace
    from gradcheck_cli.tensorflow_backend.traces.frozen import Held

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Draws:
    """The draws at one sample point, which all its traces share: their op types, and the values in order."""

    types: tuple[str, ...]
    values: tuple[Array, ...]
    inner_types: tuple[str, ...]
    inner_values: tuple[tuple[list[Array], ...], ...]  # per op, per call, its outputs

    def cast(self, held: Held) -> list[Array]:
        """Return the values for the draws of another trace, in its own dtypes.

        Raises:
            CaseFailedError: that trace has other draws.
        """
        inner = held.body_holds.draw_types() if held.body_holds else ()
        if self.types != tuple(tensor.op.type for tensor in held.draws) or self.inner_types != inner:
            raise _other_draws_error()
        cast_values = []
        for value, tensor in zip(self.values, held.draws, strict=True):
            if not tensor.shape.is_compatible_with(value.shape):
                raise _other_draws_error()
            cast_values.append(value.astype(tensor.dtype.as_numpy_dtype))
        return cast_values


def _other_draws_error() -> CaseFailedError:
    return CaseFailedError(
        "forward",
        "the forward draws other random numbers each time it is traced (their number, kinds or shapes "
        "differ), so that no draw can be held; keep no state between calls.",
    )


@dataclass(frozen=True)
class Base:
    """A run at the base point: the outputs, and the values held from then on, stops before draws."""

    outputs: tuple[Array, ...]
    values: tuple[Array, ...]


def run_at_base(
    trace: ForwardTrace,
    point: Sequence[Any],
    draws_by_point: dict[tuple[int, bool], Draws],
    key: tuple[int, bool],
    stops: Sequence[Any] = (),
) -> Base:
    """Evaluate outputs and held tensors in one run, with the case's earlier draws at that point, if any.

    Args:
        trace: of the forward.
        point: the inputs, as tensors.
        draws_by_point: the case's draws by point; those of a first run are added.
        key: the sample point's index, and whether this is the reference.
        stops: tensors of the `stop_gradient`s that are held.

    Raises:
        CaseFailedError: the forward has other draws than in the trace before.
    """
    held, earlier_draws = trace.held, draws_by_point.get(key)
    drawn = [] if earlier_draws is None else earlier_draws.cast(held)
    fed = held.draws if earlier_draws is not None else ()
    function = trace.pruned(fed, [*stops, *(() if earlier_draws is not None else held.draws)])
    draws = [tf.constant(value, tensor.dtype) for value, tensor in zip(drawn, fed, strict=True)]
    if earlier_draws is None and held.draws:  # each point has its own draw, whichever point is opened first
        for _ in range(key[0]):
            restoring_call(function)(list(point))
    body_holds = held.body_holds
    if body_holds is None:
        results = call_once(function, [*point, *draws])
    else:
        if earlier_draws is not None:
            body_holds.use_draws(earlier_draws.inner_values)
        with body_holds.record_base():
            results = restoring_call(function)([*point, *draws])
    values = [result.numpy() for result in results]
    count = len(trace.outputs)
    outputs, rest = values[:count], [*values[count:], *drawn]
    if earlier_draws is None:
        draws_by_point[key] = Draws(
            tuple(tensor.op.type for tensor in held.draws),
            tuple(rest[len(stops) :]),
            body_holds.draw_types() if body_holds else (),
            body_holds.draw_values() if body_holds else (),
        )
    return Base(tuple(outputs), tuple(rest))
