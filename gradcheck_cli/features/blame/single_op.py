"""Check one op of a forward alone: its own gradient against its differences, at its own operating point.

A small op is checked element by element. For a large op, the outputs are added up with random weights and
the inputs move in random directions. No upstream is 1, so a gradient that ignores its upstream is found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli import hooks
from gradcheck_cli.checking.ops.jacobian import packed_function, packed_point, working_precision
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.ops.packing import Float, index_of, pack, packed_size, part_of, unpack
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.checking.pairs.pair_view import PointData
from gradcheck_cli.checking.pairs.triangles import hint_on_triangle
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import EXPLANATIONS, Judgement, Problem, Reason, Verdict, judge
from gradcheck_cli.numerics.agreement import VJP_ROUNDINGS
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.random_vectors import draw_spread
from gradcheck_cli.numerics.steps import scales
from gradcheck_cli.results import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.ops.operation import Array, Operation, TensorInfo
    from gradcheck_cli.numerics import Precision

# Up to this many rows or columns are checked one by one: a call costs up to a millisecond.
_MOST_ROWS = 64
_MOST_COLUMNS = 128
# Directions of a large input.
_DIRECTIONS = 8
_SEED = 20261123
# Each pair of elements is told apart by a quarter of these masks; the moves are far above rounding.
_MASKS = 32
_MASKED = 1e-3
# A gradient that isn't linear differs by at least this part of its largest element.
_NONLINEAR = 1e-2


_ONE_TRIANGLE = (
    "it reads one triangle of a matrix, and its gradient is right if that stays symmetric: say 'symmetric: "
    "true' of the input that it is made of"
)


@dataclass(frozen=True)
class SingleOpVerdict:
    """The verdict on one op alone.

    `evidence` says where its gradient is wrong, by how much, and what the mistake looks like. `reason` says
    why it couldn't be decided. `at_kink` says whether an element is at a kink.
    """

    status: Status
    evidence: str = ""
    reason: str = ""
    at_kink: bool = False


@dataclass(frozen=True)
class _Pulled:
    """The op's own gradient for weighted upstreams.

    Attributes:
        weights: the upstreams, (rows, packed output size), all outputs side by side.
        gradients: of each input, (rows, packed input size), or `None`.
        of_sum: the same for the sum of all upstreams, (packed input size,).
    """

    weights: Float
    gradients: list[Float | None]
    of_sum: list[Float | None]


def check_alone(op: Operation, generator: np.random.Generator) -> SingleOpVerdict:
    """Check an op's gradient for every input that moves.

    Args:
        op: the op at its own operating point; all its inputs and outputs are differentiable.
        generator: of upstreams and directions.

    Raises:
        CaseFailedError: it can't be evaluated at its point, or its gradient raises.
        GradientFormError: its gradient has the wrong form.
    """
    if op.dtype_faults:
        return SingleOpVerdict(Status.MISMATCHED, next(iter(op.dtype_faults.values())))
    if op.random_types:
        return SingleOpVerdict(
            Status.INCONCLUSIVE, reason=f"it draws anew at each call ({', '.join(op.random_types)})"
        )
    pulled = _pull(op, generator)
    undecided, at_kink = "", False
    for input_index in range(len(op.inputs)):
        verdict = _check_input(op, input_index, pulled, generator)
        if verdict.status is Status.MISMATCHED:
            return verdict
        undecided = undecided or verdict.reason
        at_kink |= verdict.at_kink
    if _is_nonlinear(op, pulled):
        return SingleOpVerdict(Status.MISMATCHED, "its gradient isn't linear in its upstream")
    return (
        SingleOpVerdict(Status.INCONCLUSIVE, reason=undecided)
        if undecided
        else SingleOpVerdict(Status.PASSED, at_kink=at_kink)
    )


def are_right_alone(ops: Sequence[Operation] | None) -> bool:
    """Whether each op's gradient is right by itself, at its own operating point.

    At a kink this can be said only of an elementwise op. Where elements meet in one output, as in a maximum,
    each may have a slope of the function, and all of them together still be wrong.

    Args:
        ops: the ops; `None` if they aren't known.
    """
    generator = np.random.default_rng(_SEED)
    try:
        return ops is not None and all(_is_right_alone(op, generator) for op in ops)
    except (CaseFailedError, GradientFormError):
        return False


def _is_right_alone(op: Operation, generator: np.random.Generator) -> bool:
    verdict = check_alone(op, generator)
    return verdict.status is Status.PASSED and not (verdict.at_kink and not _is_elementwise(op, generator))


def _is_elementwise(op: Operation, generator: np.random.Generator) -> bool:
    """Whether no element of the only input moves another element of the only output, as far as was tried."""
    if len(op.inputs) != 1 or len(op.outputs) != 1 or op.inputs[0].shape != op.outputs[0].shape:
        return False
    point = op.point[0]
    moves = generator.choice([True, False], (_MASKS, *point.shape))
    steps = generator.choice([-_MASKED, _MASKED], moves.shape) * (1 + np.abs(point))
    (values,) = op.evaluate({0: point + np.where(moves, steps, 0.0)})
    return bool(np.all(moves | (values == op.base_values[0])))


def _pull(op: Operation, generator: np.random.Generator) -> _Pulled:
    heights = [packed_size(info) for info in op.outputs]
    total = sum(heights)
    upstream = draw_spread(generator, total)
    weights = np.diag(upstream) if total <= _MOST_ROWS else upstream[np.newaxis]
    ends = np.cumsum([0, *heights])

    def pull(rows: Float) -> list[Float | None]:
        upstreams = {
            output_index: unpack(rows[:, ends[output_index] : ends[output_index + 1]], info)
            for output_index, info in enumerate(op.outputs)
        }
        gradients = op.joint_vjp(upstreams)
        return [
            None if gradient is None else pack(gradient, info)
            for gradient, info in zip(gradients, op.inputs, strict=True)
        ]

    return _Pulled(
        weights, pull(weights), [None if row is None else row[0] for row in pull(upstream[np.newaxis])]
    )


def _check_input(
    op: Operation, input_index: int, pulled: _Pulled, generator: np.random.Generator
) -> SingleOpVerdict:
    info = op.inputs[input_index]
    columns = packed_size(info)
    if not columns or not pulled.weights.size:
        return SingleOpVerdict(Status.PASSED)
    gradient = pulled.gradients[input_index]
    analytic = np.zeros((len(pulled.weights), columns)) if gradient is None else gradient
    whole = packed_function(op, input_index, range(len(op.outputs)))
    point = packed_point(op, input_index)
    precision = _precision(op, input_index)
    directions = None
    if columns > _MOST_COLUMNS:
        # In float32, a rounded step no longer points in its direction; only float64 allows directions.
        directions = _draw_directions(point, generator)
        analytic = analytic @ directions.T

    def evaluate(points: Float) -> Float:
        moved = points if directions is None else precision.round(point + points @ directions)
        with np.errstate(invalid="ignore"):
            return np.asarray(whole(moved) @ pulled.weights.T)

    problem = Problem(
        evaluate,
        point if directions is None else np.zeros(_DIRECTIONS),
        precision,
        precision,
        scale=None if directions is None else 1.0,
    )
    judged = judge(problem, analytic)
    if (judged.verdict == Verdict.MISMATCH).any():
        # A Cholesky factor reads one triangle: its gradient is right for a matrix that stays symmetric.
        if (
            directions is None
            and _is_symmetric(op.point[input_index])
            and hint_on_triangle(analytic, judged.numeric, info)
        ):
            return SingleOpVerdict(Status.INCONCLUSIVE, reason=_ONE_TRIANGLE)
        name = f"its input {input_index}" if len(op.inputs) > 1 else "its input"
        if gradient is None:
            evidence = f"its gradient for {name} is None, but its output moves with it"
        elif directions is None and len(pulled.weights) > 1:
            evidence = _evidence_of_elements(op, input_index, pulled, analytic, judged)
        else:
            evidence = _evidence_along(name, analytic, judged)
        return SingleOpVerdict(Status.MISMATCHED, evidence)
    undecided = judged.verdict == Verdict.INCONCLUSIVE
    if undecided.any():
        code = Reason(int(judged.reason[undecided][0]))
        return SingleOpVerdict(Status.INCONCLUSIVE, reason=str(EXPLANATIONS[code]))
    return SingleOpVerdict(Status.PASSED, at_kink=bool((judged.verdict == Verdict.KINK).any()))


def _is_symmetric(matrix: Array) -> bool:
    if matrix.ndim <= 1 or matrix.shape[-1] != matrix.shape[-2]:  # no square matrix
        return False
    # A product that makes a matrix symmetric does so only up to rounding, in float32 too.
    difference = np.abs(matrix - np.conj(np.swapaxes(matrix, -1, -2)))
    return bool(np.all(difference <= 1e-5 * np.max(np.abs(matrix), initial=0.0)))


def _draw_directions(point: Float, generator: np.random.Generator) -> Float:
    """Draw directions with a part in every element, (`_DIRECTIONS`, n)."""
    return np.asarray(draw_spread(generator, (_DIRECTIONS, point.size)) * scales(point).step)


def _evidence_along(name: str, analytic: Float, judged: Judgement) -> str:
    """Compare the gradient with differences along the worst direction, in words."""
    with np.errstate(invalid="ignore"):
        error = np.where(judged.verdict == Verdict.MISMATCH, np.abs(analytic - judged.numeric), -1.0)
    row, column = np.unravel_index(int(np.argmax(np.nan_to_num(error, nan=np.inf))), error.shape)
    return (
        f"along a direction of {name} its gradient gives {analytic[row, column]:.6g}, "
        f"differences {judged.numeric[row, column]:.6g}"
    )


def _evidence_of_elements(
    op: Operation, input_index: int, pulled: _Pulled, analytic: Float, judged: Judgement
) -> str:
    """Compare a small op's gradient with differences, in words, and add a diagnosis."""
    weights = np.diag(pulled.weights)
    heights = np.cumsum([0, *[packed_size(info) for info in op.outputs]])
    output = next(
        output_index
        for output_index in range(len(op.outputs))
        if (judged.verdict[heights[output_index] : heights[output_index + 1]] == Verdict.MISMATCH).any()
    )
    rows = slice(int(heights[output]), int(heights[output + 1]))
    judged = replace(
        judged,
        numeric=judged.numeric / weights[:, np.newaxis],
        uncertainty=judged.uncertainty / np.abs(weights[:, np.newaxis]),
        allowed=judged.allowed / np.abs(weights[:, np.newaxis]),
    )
    dtype = op.inputs[input_index].dtype
    sample = PairSample.of_judgement(judged, analytic[rows] / weights[rows, np.newaxis], dtype, rows=rows)
    output_info, input_info = (
        _rename(op.outputs[output], "out"),
        _rename(op.inputs[input_index], f"in{input_index}" if len(op.inputs) > 1 else "in"),
    )
    scene = PointData.of([input_info], [op.point[input_index]], [output_info], [op.base_values[output]])
    lines = hooks.diagnose([sample], output_info, input_info, [{}], [scene])
    return "; ".join([_describe_worst(sample, output_info, input_info), *lines])


def _rename(info: TensorInfo, name: str) -> TensorInfo:
    return type(info)(name, info.dtype, info.shape)


def _describe_worst(sample: PairSample, output_info: TensorInfo, input_info: TensorInfo) -> str:
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - sample.numeric)
    error = np.where(sample.verdict == Verdict.MISMATCH, np.nan_to_num(error, nan=np.inf), -1.0)
    row, column = (int(index) for index in np.unravel_index(int(np.argmax(error)), error.shape))

    def element(position: int, info: TensorInfo) -> str:
        index = ",".join(map(str, index_of(position, info)))
        part = part_of(position, info)
        return f"{part} {info.name}[{index}]".strip() if index else f"{part} {info.name}".strip()

    return (
        f"at {element(row, output_info)} / {element(column, input_info)} it is "
        f"{sample.analytic[row, column]:.6g}, differences give {sample.numeric[row, column]:.6g}"
    )


def _is_nonlinear(op: Operation, pulled: _Pulled) -> bool:
    """Whether the gradient for the sum of all upstreams differs from the sum of gradients beyond rounding.

    Clipping, squaring or replacing an upstream changes a gradient by its own size. A right gradient that
    cancels (y (1 - y) near saturation) is as accurate as its terms, whose size the outputs' values measure.
    """
    if len(pulled.weights) == 1:
        return False
    sizes = [
        np.abs(pack(value[np.newaxis], info)[0])
        for value, info in zip(op.base_values, op.outputs, strict=True)
    ]
    value = np.concatenate(sizes)
    weighted = float(np.abs(np.diag(pulled.weights)) @ np.where(np.isfinite(value), value, 0.0))
    for input_index, (rows, of_sum) in enumerate(zip(pulled.gradients, pulled.of_sum, strict=True)):
        if rows is None or of_sum is None or not np.isfinite(rows).all():
            continue
        unit = _precision(op, input_index).unit_roundoff
        slack = VJP_ROUNDINGS * unit * weighted / scales(packed_point(op, input_index)).step
        size = float(np.abs(rows).sum(axis=0).max(initial=0.0))
        if not np.all(
            np.abs(rows.sum(axis=0) - of_sum) <= slack + max(_NONLINEAR, VJP_ROUNDINGS * unit) * size
        ):
            return True
    return False


def _precision(op: Operation, input_index: int) -> Precision:
    """Return the coarsest precision between an input and the outputs."""
    return coarsest(*[working_precision(op, info.dtype) for info in (op.inputs[input_index], *op.outputs)])
