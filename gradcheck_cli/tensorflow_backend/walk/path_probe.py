"""One upstream and one direction along a path: how far each op moves, weighted by its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.numerics.random_vectors import draw_spread
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.traces.trace_faults import run_error

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.tensorflow_backend.walk.backward_walk import Walk

    Array = np.ndarray[Any, Any]


@dataclass
class WalkedProbe:
    """One upstream and one direction, with the backward pass for it; see `checking.blame.Probe`.

    Attributes:
        walk: the backward pass.
        upstream: the upstream at the output.
        directions: by input index, the direction in which it moves.
        slope: the pair's gradient along that direction.
        terms: for each op, its outputs with their upstreams, and its inputs with their gradients.
    """

    walk: Walk
    upstream: Array
    directions: dict[int, Array]
    slope: float
    terms: list[tuple[list[tuple[Any, Array]], list[tuple[Any, Array]]]]

    @cached_property
    def room(self) -> tuple[float, float]:
        """How far the inputs may move back and forth along the direction, in units of it."""
        low, high = -np.inf, np.inf
        for input_index, direction in self.directions.items():
            bounds = self.walk.source.case.tensors[input_index].domain
            if np.iscomplexobj(direction) or bounds == (None, None):
                continue
            point = self.walk.source.at.point[input_index]
            with np.errstate(divide="ignore", invalid="ignore"):
                ends = [(bound - point) / direction for bound in bounds if bound is not None]
            for end in ends:
                finite_ends = end[np.isfinite(end)]
                high = min([high, *finite_ends[finite_ends >= 0].tolist()])
                low = max([low, *finite_ends[finite_ends <= 0].tolist()])
        return low, high

    @property
    def is_finite(self) -> list[tuple[bool, bool]]:
        """For each op, whether all its upstreams are finite, and all its gradients."""
        return [
            (
                all(bool(np.isfinite(flow).all()) for _, flow in outputs),
                all(bool(np.isfinite(flow).all()) for _, flow in inputs),
            )
            for outputs, inputs in self.terms
        ]

    def contributions(self, steps: Float) -> Float:
        """Contract values at points along the direction.

        Args:
            steps: (B,) how far, in units of the direction.

        Returns:
            (B, 1 + 2 K): the output with the upstream; then for each op its outputs with their upstreams, and
            its inputs with their gradients. NaN where the forward refuses a point.
        """
        rows = []
        for step in steps:
            values = self._at(float(step))
            if values is None:
                rows.append([np.nan] * (1 + 2 * len(self.terms)))
                continue
            row = [inner(self.upstream, values[id(self.walk.result)])]
            for outputs, inputs in self.terms:
                row.append(sum((inner(flow, values[id(tensor)]) for tensor, flow in outputs), 0.0))
                row.append(sum((inner(flow, values[id(tensor)]) for tensor, flow in inputs), 0.0))
            rows.append(row)
        return np.array(rows, np.float64).reshape(len(steps), 1 + 2 * len(self.terms))

    def sizes(self, step: float) -> Float:
        """Return, for each op, the sum of the magnitudes of its gradients along the direction, (K,)."""
        there, back = self._at(step), self._at(-step)
        if there is None or back is None:
            return np.full(len(self.terms), np.nan)
        span = 2 * step
        with np.errstate(invalid="ignore", over="ignore"):
            return np.array(
                [
                    sum(
                        float(np.sum(np.abs(flow) * np.abs(there[id(tensor)] - back[id(tensor)]))) / span
                        for tensor, flow in (*outputs, *inputs)
                        if flow.shape == there[id(tensor)].shape
                    )
                    for outputs, inputs in self.terms
                ]
            )

    def _at(self, step: float) -> dict[int, Array] | None:
        point = list(self.walk.point)
        source = self.walk.source
        for input_index, direction in self.directions.items():
            dtype = source.inputs[input_index].dtype
            moved = source.at.point[input_index] + step * direction
            point[input_index] = tf.constant(dtypes.narrow(moved, dtype), dtype)
        try:
            return self.walk.values(point)
        except tf.errors.OpError as error:
            if step == 0:
                raise run_error(error, "forward") from error
            return None


def draw_both_signs(generator: np.random.Generator, shape: tuple[int, ...], *, is_complex: bool) -> Array:
    """Draw numbers of either sign, none of them small, so that no error is multiplied by almost zero."""
    values = draw_spread(generator, shape)
    if not is_complex:
        return values
    return values + 1j * draw_both_signs(generator, shape, is_complex=False)


def inner(flow: Array, value: Array) -> float:
    """Return Re<flow, value>, with TensorFlow's convention for complex gradients."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.real(np.vdot(flow, value))) if flow.shape == value.shape else float("nan")
