"""How much gradient and differences disagree at many points, along one random direction and upstream at each.

This is cheap: two evaluations of the forward and one pull-back per point. It decides nothing: points that
disagree go to the judge, who knows kinks, noise and tolerances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.features.search.branches.point_field import Looked
    from gradcheck_cli.spec.values.free_inputs import FreeInputs

    Array = np.ndarray[Any, Any]

_STEP = 1e-5  # of a component's size, or of its spread if that is larger
_ROUNDINGS = 16 * 2.0**-53


@dataclass(frozen=True)
class Suspicion:
    """What is suspicious at some points.

    Attributes:
        disagreement: (B,) the difference between u'Jv by the gradient and by differences, relative to their
            sizes; 0 where no difference can be taken.
        is_spoilt: (B,) whether a gradient isn't finite although the function and the differences are.
    """

    disagreement: Array
    is_spoilt: Array


def suspect(
    op: Operation,
    looked: Looked,
    points: Mapping[int, Array],
    free: FreeInputs,
    generator: np.random.Generator,
) -> Suspicion:
    """Compare gradients with differences.

    Args:
        op: the op that is differenced.
        looked: values, upstreams and gradients at the points.
        points: (B, *shape), by the input's index.
        free: the inputs that move.
        generator: draws the directions.
    """
    vectors = free.pack(points)
    signs = np.where(generator.random(vectors.shape) < 0.5, -1.0, 1.0)  # noqa: PLR2004 (half)
    moves = signs * _STEP * np.maximum(np.abs(vectors), free.spreads)
    others = free.others(points)
    above, below = free.clip(vectors + moves), free.clip(vectors - moves)
    count = len(vectors)
    both = {
        input_index: np.concatenate([stack, np.broadcast_to(low, stack.shape)])
        for (input_index, stack), low in zip(
            free.unpack(above, others).items(), free.unpack(below, others).values(), strict=True
        )
    }
    values = op.evaluate(both)
    numeric, size, noise = (np.zeros(count) for _ in range(3))
    with np.errstate(all="ignore"):
        for output_index, (_, flow) in zip(_differentiable_outputs(op), looked.outputs, strict=True):
            wide: Array = values[output_index]
            change = wide[:count] - wide[count:]
            products = _rows(np.real(np.conj(flow) * change))
            numeric += products.sum(axis=1)
            size += np.abs(products).sum(axis=1)
            noise += _ROUNDINGS * _rows(np.abs(flow * wide[:count])).sum(axis=1)
        analytic = np.zeros(count)
        is_whole = np.ones(count, bool)
        for free_input, own in zip(free.parts, free.split(above - below), strict=True):
            gradient = looked.gradients[free_input.index]
            if gradient is None:
                continue
            flat = _rows(gradient)
            flat = np.concatenate([flat.real, flat.imag], axis=1) if free_input.is_complex else flat.real
            is_whole &= np.isfinite(flat).all(axis=1)
            analytic += (flat * own).sum(axis=1)
            size += np.abs(flat * own).sum(axis=1)
        excess = np.maximum(np.abs(analytic - numeric) - noise, 0.0)
        share = np.where(size > 0, excess / size, 0.0)
    is_known = looked.is_finite & np.isfinite(numeric)
    return Suspicion(np.where(is_known & is_whole, np.nan_to_num(share), 0.0), is_known & ~is_whole)


def _differentiable_outputs(op: Operation) -> list[int]:
    return [output_index for output_index, output in enumerate(op.outputs) if output.is_differentiable]


def _rows(values: Array) -> Array:
    return values.reshape(len(values), -1)
