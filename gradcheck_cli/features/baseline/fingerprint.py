"""A few numbers by which a baseline recognises a gradient and its forward, in place of whole Jacobians.

For seeded upstreams u and directions v, the gradient's numbers are <vjp(u), v>, and the forward's are the
secants u'(f(x + hv) - f(x - hv)) / 2h. A direction is relative to the point, so that a step neither changes a
sign nor leaves the domain of a logarithm. h is far above rounding: the secants identify f to nine digits,
although they aren't its derivative to nine digits. The inputs of a small op move one by one. All the weights
of a model move together, since evaluating it for each of them would take longer than checking it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import Float, Operation, TensorInfo, pack, packed_size, unpack
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.gate import Fingerprint, Projection
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.spec.case import UNBOUNDED, Case, Interval

# Beyond this many elements in a tensor, projections are taken one at a time. Beyond this many in all inputs,
# they move together.
_LARGE = 2**18
_LARGEST_SEED = 2**32  # of `_draw_frozen`
COUNT = 3  # one random projection may hide a change by chance; three don't
_DIGITS = 8  # after the point: nine in all
_SAME = 1e-8  # numbers that differ by at most this share of the sum of magnitudes are equal: the ninth digit


class _Scale(NamedTuple):
    """Step and slack for one precision.

    Rounding is amplified by 1/step, relative to the point, but a step in half precision must be large enough
    to change the value. `roundings` says by how many roundings a sum in another order may differ; in half
    precision, as many as in the others would allow any change.
    """

    largest_roundoff: float
    step: float
    roundings: float


_SCALES = (
    _Scale(1e-12, 2.0**-10, 2.0**10),  # float64
    _Scale(1e-6, 2.0**-6, 2.0**8),  # float32
    _Scale(1.0, 2.0**-2, 2.0**3),  # the halves
)


def take_fingerprints(case: Case, formula: Operation, pairs: Sequence[PairKey]) -> dict[PairKey, Fingerprint]:
    """Return the fingerprint of each pair of a case at a sample point; see `hooks.fingerprints`."""
    domains = dict(enumerate(tensor.domain for tensor in case.tensors))
    return fingerprints(formula, pairs, domains=domains, nondeterminism=case.judging.nondeterminism)


def fingerprints(
    op: Operation,
    pairs: Sequence[PairKey],
    *,
    domains: Mapping[int, Interval] | None = None,
    nondeterminism: float = 0.0,
) -> dict[PairKey, Fingerprint]:
    """Return the fingerprint of each pair.

    It costs one batch of upstreams per output and one batch of points per input, or one for all if they are
    large.

    Args:
        domains: input index -> bounds that no point leaves.
        nondeterminism: how far a gradient's elements may differ from one evaluation to the next.

    Returns:
        A pair without a path has no projections of a gradient. A forward that can't be evaluated near its
        point has none of the forward. A pair without elements has none at all: there is nothing to
        recognise, and a kernel that never writes its result would look changed each time.
    """
    by_pair = {
        (output, input_index): Fingerprint((), ())
        for output, input_index in pairs
        if not (op.outputs[output].size and op.inputs[input_index].size)
    }
    pairs = [pair for pair in pairs if pair not in by_pair]
    if not pairs:
        return by_pair
    largest = max(packed_size(info) for info in (*op.inputs, *op.outputs))
    indices = list(range(COUNT))
    # Large projections are taken one after another: each needs as much memory as the inputs and outputs.
    for chosen in [indices] if largest <= _LARGE else [[index] for index in indices]:
        for pair, projected in _project(op, pairs, chosen, domains or {}, nondeterminism).items():
            before = by_pair.get(pair, Fingerprint((), ()))
            by_pair[pair] = Fingerprint(
                before.analytic + projected.analytic, before.forward + projected.forward
            )
    return by_pair


def _project(
    op: Operation,
    pairs: Sequence[PairKey],
    indices: Sequence[int],
    domains: Mapping[int, Interval],
    nondeterminism: float,
) -> dict[PairKey, Fingerprint]:
    """Return some projections of each pair's gradient and forward."""
    unit = _unit_roundoff(op)
    scale = next(scale for scale in _SCALES if unit <= scale.largest_roundoff)
    step, rounding = scale.step, scale.roundings * unit
    moving = sorted({pair[1] for pair in pairs})
    are_large = sum(packed_size(op.inputs[input_index]) for input_index in moving) > _LARGE
    directions = {input_index: _draw_direction(op, input_index, indices) for input_index in moving}
    secants: dict[int, list[Float] | None] = {}
    for group in [moving] if are_large else [[input_index] for input_index in moving]:
        steps = {input_index: step * directions[input_index] for input_index in group}
        secants |= dict.fromkeys(group, _differences(op, steps, domains))
    projected: dict[PairKey, Fingerprint] = {}
    for output in sorted({pair[0] for pair in pairs}):
        info = op.outputs[output]
        upstream = _draw_seeded("upstream", info, indices)
        gradients = op.vjp(output, unpack(upstream, info))
        size = _magnitude(op, output, upstream)
        for input_index in [own for output_of_pair, own in pairs if output_of_pair == output]:
            analytic: tuple[Projection, ...] = ()
            forward: tuple[Projection, ...] = ()
            if (gradient := gradients[input_index]) is not None:
                direction = directions[input_index]
                noise = nondeterminism * np.abs(direction).sum(axis=1)
                terms = pack(gradient, op.inputs[input_index]) * direction
                analytic = _projections(terms, max(_SAME, rounding), rounding * size + noise)
            if (differences := secants[input_index]) is not None:
                terms = upstream * differences[output] / (2 * step)
                forward = _projections(terms, _SAME, rounding * size / step)
            projected[output, input_index] = Fingerprint(analytic, forward)
    return projected


def _unit_roundoff(op: Operation) -> float:
    names = {info.dtype for info in (*op.inputs, *op.outputs) if info.is_differentiable}
    return max(precision_of(name).unit_roundoff for name in {*names, *op.facts.low_precision, "float64"})


def _draw_seeded(role: str, info: TensorInfo, indices: Sequence[int]) -> Float:
    """Return (len(indices), packed size) numbers of size 1/2 to 1 with random signs, the same in each run.

    They depend only on the tensor's name and shape, so a new output changes no other pair's fingerprint. None
    is near 0, since it would hide an element.
    """
    rows = np.empty((len(indices), packed_size(info)))
    for row, index in enumerate(indices):
        text = f"{role}:{index}:{info.name}:{info.shape}".encode("utf-8", "surrogatepass")
        seed = int.from_bytes(hashlib.sha256(text).digest()[:8], "big") % _LARGEST_SEED
        _draw_frozen(seed, rows[row])
    return rows


def _draw_direction(op: Operation, input_index: int, indices: Sequence[int]) -> Float:
    """Return (len(indices), packed size): relative to each element, and to the largest where one is 0."""
    info = op.inputs[input_index]
    point = np.abs(pack(op.point[input_index][np.newaxis], info)[0])
    largest = float(np.max(point, initial=0.0)) or 1.0
    return np.asarray(_draw_seeded("direction", info, indices) * np.where(point > 0, point, largest))


def _magnitude(op: Operation, output: int, upstream: Float) -> Float:
    """Return sum |u_i f_i| for each upstream: rounding of the forward is relative to it."""
    value = np.abs(pack(op.base_values[output][np.newaxis], op.outputs[output])[0])
    return np.asarray(np.abs(upstream) @ np.where(np.isfinite(value), value, 0.0))


def _differences(
    op: Operation, steps: Mapping[int, Float], domains: Mapping[int, Interval]
) -> list[Float] | None:
    """Return f(x + d) - f(x - d) of every output, d by input; `None` where f can't be evaluated."""
    moved: dict[int, Any] = {}
    for input_index, displacement in steps.items():
        info = op.inputs[input_index]
        point = pack(op.point[input_index][np.newaxis], info)
        points = precision_of(info.dtype).round(np.concatenate([point + displacement, point - displacement]))
        moved[input_index] = unpack(np.clip(points, *domains.get(input_index, UNBOUNDED)), info)
    try:
        values = op.evaluate(moved)
    except CaseFailedError:  # the forward may assert something that doesn't hold nearby
        return None
    differences, count = [], len(next(iter(steps.values())))
    for value, output_info in zip(values, op.outputs, strict=True):
        if not output_info.is_differentiable:
            differences.append(np.zeros((count, 0)))
            continue
        packed = pack(value, output_info)
        differences.append(np.asarray(packed[:count] - packed[count:]))
    return differences


def _projections(terms: Float, share: float, more: Float) -> tuple[Projection, ...]:
    """Return the sum of each row, whose slack is a share of the terms' magnitudes, and more."""
    # One upstream's gradient may cancel where another's doesn't.
    slack = share * float(np.max(np.abs(terms).sum(axis=1), initial=0.0)) + more
    return tuple(
        Projection(float(f"{value:.{_DIGITS}e}"), _round_up(float(allowed)))
        for value, allowed in zip(terms.sum(axis=1), slack, strict=True)
    )


def _round_up(value: float) -> float:
    """Round up to one digit, since people read baselines."""
    if value <= 0 or not math.isfinite(value):
        return value
    quantum = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / quantum) * quantum:.0e}") if quantum else value


def _draw_frozen(seed: int, out: Float) -> None:
    """Fill a vector with multiples of 2^-7 between a half and one, with random signs: exact in every dtype.

    Baselines store numbers computed from them. NumPy's legacy generator has a stream that is frozen for ever.
    The new generator's stream may change with NumPy, which would break all baselines.

    Args:
        seed: below `_LARGEST_SEED`.
        out: (n,) the vector.
    """
    generator = np.random.RandomState(seed)
    drawn = generator.randint(64, 129, out.shape[0], dtype=np.int16)  # int16 keeps a large array small
    drawn *= 2 * generator.randint(0, 2, drawn.shape, dtype=np.int16) - 1
    np.divide(drawn, 128.0, out=out)
