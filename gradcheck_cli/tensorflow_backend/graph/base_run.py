"""Evaluate a traced forward at the base point, once, and keep what is held from then on.

One run gives the outputs, the value of each `stop_gradient` and the draws, so that they belong together. The
draws are the case's: every other trace at that point (the gradient's, float64's, one made afresh) has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend.graph.case_state import Draws
from gradcheck_cli.tensorflow_backend.traces.state import call_once, put_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
    from gradcheck_cli.tensorflow_backend.traces.forward_trace import ForwardTrace

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Base:
    """A run at the base point: the outputs, and what is held from then on, stops before draws."""

    outputs: tuple[Array, ...]
    values: tuple[Array, ...]


def run_at_base(
    trace: ForwardTrace,
    point: Sequence[Any],
    state: CaseState,
    key: tuple[int, bool],
    stops: Sequence[Any] = (),
) -> Base:
    """Evaluate outputs and held tensors in one run, with the draws that the case has had there, if any.

    Args:
        trace: of the forward.
        point: the inputs, as tensors.
        state: the case's draws; those of a first run are added.
        key: the sample point's number, and whether this is the reference.
        stops: tensors of the `stop_gradient`s that are held.

    Raises:
        CaseFailedError: the forward draws otherwise than it did in the trace before.
    """
    held, known = trace.held, state.draws.get(key)
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
        state.draws[key] = Draws(
            tuple(tensor.op.type for tensor in held.draws),
            tuple(rest[len(stops) :]),
            stand_ins.draw_types() if stand_ins else (),
            stand_ins.draw_values() if stand_ins else (),
        )
    return Base(tuple(outputs), tuple(rest))
