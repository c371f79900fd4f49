"""How far rounding moves a gradient: it runs again, and what is inexact in it rounds up or down at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from gradcheck_cli.checking.ops.jacobian import packed_point, pull_back, working_precision
from gradcheck_cli.checking.ops.operation import Float, Operation, pack, unpack
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.problem import typical_size
from gradcheck_cli.numerics.shared_limits import RUNS

# Of 2,112 elements with an error, none was more than twice beyond the largest of eight runs; with four runs,
# one in 600 was. What is beyond has two equal sources that cancelled in each run: one in 2^8.
FACTOR = 2.0


def rounding_of(
    op: Operation, output: int, upstream: Float, seed: int, draws: Iterable[int] = range(RUNS)
) -> dict[int, Float]:
    """Return how far rounding moves each input's gradient for some upstreams, (B, n) by input index.

    What can't be seen into (`OpForms.rounded_otherwise`) is run as `rounding_beside` does.

    Args:
        upstream: (B, m), packed.
        seed: decides on the directions.
        draws: numbers of the runs, of which the largest change counts.
    """

    def run(draw: int) -> Mapping[int, Float | None]:
        rounded = op.forms.rounded_otherwise(draw + 1)
        if rounded is not None:
            with suppress(CaseFailedError):  # a kernel may refuse what isn't quite symmetric, or positive
                return pull_back(rounded, output, upstream)
        return _pull_beside(op, output, upstream, [seed, draw])

    return _largest_changes(pull_back(op, output, upstream), map(run, draws))


def rounding_beside(
    op: Operation, output: int, upstream: Float, seed: int, *, has_least: bool = False
) -> dict[int, Float]:
    """Return the same by runs in which only arguments and upstreams are rounded otherwise: kinks are crossed.

    Args:
        has_least: whether elements move by a rounding of their input's typical size, of 1 at least.
    """
    runs = (_pull_beside(op, output, upstream, [seed, draw], has_least=has_least) for draw in range(RUNS))
    return _largest_changes(pull_back(op, output, upstream), runs)


def _largest_changes(
    base: Mapping[int, Float | None], runs: Iterable[Mapping[int, Float | None]]
) -> dict[int, Float]:
    moved = {index: np.zeros(gradient.shape) for index, gradient in base.items() if gradient is not None}
    for run in runs:
        for index, gradient in run.items():
            first = base[index]
            if gradient is not None and first is not None:
                with np.errstate(invalid="ignore", over="ignore"):
                    change = np.abs(gradient - first)
                moved[index] = np.fmax(moved[index], np.where(np.isfinite(change), change, 0.0))
    return moved


def _pull_beside(
    op: Operation, output: int, upstream: Float, seed: Sequence[int], *, has_least: bool = False
) -> Mapping[int, Float | None]:
    """Pull upstreams back with other roundings of what goes in: of the upstream, and of the inputs."""
    generator, info = np.random.default_rng(seed), op.outputs[output]
    # Another upstream's products round otherwise. It is so near that what isn't linear in it stays wrong.
    factor = 1 + 2.0**-12 * generator.choice([-7, -5, -3, -1, 1, 3, 5, 7])
    stacks = {}
    for index, (value, of_input) in enumerate(zip(op.point, op.inputs, strict=True)):
        if of_input.is_differentiable:
            unit = working_precision(op, of_input.dtype).unit_roundoff
            size = max(typical_size(packed_point(op, index), None), 1.0) if has_least else 0.0
            move = unit * np.maximum(np.abs(value), size) * generator.choice([-2.0, 2.0], size=value.shape)
            stacks[index] = np.broadcast_to(np.add(value, move), (len(upstream), *value.shape))
    with suppress(CaseFailedError):
        pulled = op.vjp_beside(output, unpack(factor * upstream, info), stacks)
        if pulled is not None:
            infos = enumerate(zip(pulled, op.inputs, strict=True))
            return {index: pack(each, of) / factor for index, (each, of) in infos if each is not None}
    gradients = pull_back(op, output, factor * upstream)
    return {index: None if gradient is None else gradient / factor for index, gradient in gradients.items()}
