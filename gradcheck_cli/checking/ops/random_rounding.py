"""How far rounding moves a gradient: it runs again, and what is inexact in it rounds up or down at random."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

import numpy as np

from gradcheck_cli.checking.ops.jacobian import pull_back
from gradcheck_cli.checking.ops.operation import Array, Float, Operation, pack, unpack
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.shared_limits import BOUND_PER_SIGMA, RUNS

# The largest of eight runs, twice: of 140 gradients with known errors, none is beyond (decision 53). What is
# beyond has two equal sources that cancelled in each run: one in 2^8.
FACTOR = 2.0


def measure_rounding_of(
    op: Operation, output: int, upstream: Float, seed: int, draws: Iterable[int] = range(RUNS)
) -> Iterator[dict[int, Float]]:
    """Yield how far rounding moves each input's gradient for some upstreams, (B, n) by input index.

    After each run, the largest change so far is yielded, in the same dict. It only grows: what it explains
    needs no more runs.

    What can't be seen into (`OpForms.rounded_otherwise`), or refuses to run so, runs with other upstreams and
    at points beside.

    Args:
        upstream: (B, m), packed.
        seed: decides on the directions.
        draws: numbers of the runs.
    """

    def run(draw: int) -> Mapping[int, Float | None]:
        rounded = op.forms.rounded_otherwise(draw)
        with suppress(CaseFailedError):  # a kernel may refuse what isn't quite symmetric, or positive
            return {} if rounded is None else pull_back(rounded, output, upstream)
        return {}

    # Draw 0 rounds as the gradient does. What the copy makes infinite even so shows nothing: only a prepared
    # graph may compute it.
    base, runs = run(0), filter(None, (run(1 + draw) for draw in draws))
    if not base or (first := next(runs, None)) is None:
        yield from _measure_black_box(op, output, upstream, seed)
    else:
        yield from largest_changes(base, chain([first], runs))


# Points beside are up to eight times this away, relative to the inputs: of a smooth gradient, a polynomial of
# degree 5 leaves no more than rounding there. At even distances, what is rounded off would often grow evenly.
_SPACING = 2.0**-12
_PLACES = np.random.default_rng(0).uniform(1.0, 8.0, 16)
_DEGREE = 5
_ROUGH = np.linalg.qr(np.vander(_PLACES - 4.5, _DEGREE + 1), mode="complete")[0][:, _DEGREE + 1 :]


def _noise(values: Float) -> Float:
    """Estimate the standard deviation of the noise of values at the points, (points, ...)."""
    left = np.tensordot(_ROUGH.T, values - values[0], 1)
    noise = np.sqrt(np.einsum("i...,i...->...", left, left) / len(left))
    return np.asarray(np.where(np.isfinite(noise), noise, 0.0))


def _measure_black_box(op: Operation, output: int, upstream: Float, seed: int) -> Iterator[dict[int, Float]]:
    """Yield how far other upstreams move gradients, then noise along the inputs where that is more.

    The noise is that of the quieter side of the point: a branch of Python code may change at the point.
    """
    runs = run_beside(op, output, upstream, seed, {})
    for moved in largest_changes(pull_back(op, output, upstream), runs):
        yield moved
    steps = {
        index: np.multiply(_SPACING, op.point[index])
        for index, of in enumerate(op.inputs)
        if of.is_differentiable
    }

    def pull(times: float) -> Mapping[int, Float | None]:
        beside = {index: times * np.asarray(step) for index, step in steps.items()}
        return _pull_at(op, output, upstream, 1.0, beside)

    sides = [[pull(sign * place) for place in _PLACES] for sign in (1, -1)]
    for index in moved:
        noise = [
            _noise(np.array([at[index] for at in side]))
            for side in sides
            if all(at.get(index) is not None for at in side)
        ]
        if len(noise) == len(sides):
            moved[index] = np.fmax(moved[index], BOUND_PER_SIGMA / FACTOR * np.minimum(*noise))
    yield moved


def run_beside(
    op: Operation, output: int, upstream: Float, seed: int, moves: Mapping[int, Array]
) -> Iterator[Mapping[int, Float | None]]:
    """Yield gradients of runs in which only arguments and upstreams are rounded otherwise: kinks are crossed.

    Args:
        moves: how far elements of the inputs move, up or down, by index.
    """

    def run(draw: int) -> Mapping[int, Float | None]:
        signs = np.random.default_rng([seed, draw])
        steps = {index: move * signs.choice([-1.0, 1.0], size=move.shape) for index, move in moves.items()}
        # Its products round otherwise; it is so near that what isn't linear in it stays wrong.
        factor = 1 + 2.0**-12 * signs.choice([-7, -5, -3, -1, 1, 3, 5, 7])
        return _pull_at(op, output, upstream, factor, steps)

    return map(run, range(RUNS))


def largest_changes(
    base: Mapping[int, Float | None], runs: Iterable[Mapping[int, Float | None]]
) -> Iterator[dict[int, Float]]:
    """Yield the largest change of each gradient so far, after each run.

    Of an element that a rounding makes infinite no digit is known.
    """
    moved = {index: np.zeros(gradient.shape) for index, gradient in base.items() if gradient is not None}
    for run in runs:
        for index, gradient in run.items():
            first = base.get(index)
            if gradient is not None and first is not None:
                change = np.where(np.isfinite(first), np.abs(gradient - first), 0.0)
                moved[index] = np.maximum(moved[index], np.nan_to_num(change, nan=np.inf, posinf=np.inf))
        yield moved


def _pull_at(
    op: Operation, output: int, upstream: Float, factor: float, steps: Mapping[int, Array]
) -> Mapping[int, Float | None]:
    """Pull upstreams back, times a factor that the gradients are divided by, where the inputs have moved."""
    stacks = {
        index: np.broadcast_to(np.add(op.point[index], step), (len(upstream), *step.shape))
        for index, step in steps.items()
    }
    with suppress(CaseFailedError):
        pulled = op.vjp_beside(output, unpack(factor * upstream, op.outputs[output]), stacks)
        if pulled is not None:
            infos = enumerate(zip(pulled, op.inputs, strict=True))
            return {index: pack(each, of) / factor for index, (each, of) in infos if each is not None}
    gradients = pull_back(op, output, factor * upstream)
    return {index: None if gradient is None else gradient / factor for index, gradient in gradients.items()}
