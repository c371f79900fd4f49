"""Values beside those that never change: stated values and weights, each element moved by itself.

A term that a 0, a 1 or an identity switches off has a gradient that no draw of the other inputs can show.
Moved all alike, a constant matrix would stay its own transpose; moved one way only, `abs(w)` would stay `w`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gradcheck_cli.spec.case import UNBOUNDED, Case, InputSpec, kind_of
from gradcheck_cli.spec.values.draw_values import draw, mirror, stream
from gradcheck_cli.visible import join_first

Array = np.ndarray[Any, Any]

# Indices of additional sample points. Values are those of the first one, but what is stated is moved: half of
# its elements up and half down; the other way; all nearer to zero, and zeros up; all farther, and zeros down.
# The last two are for forwards that refuse something, such as a gate below 0 or a share above 1. Four further
# down, values keep the first structure that they have, and so on.
MOVED, MOVED_BACK = -1, -2
POINTS = (MOVED, MOVED_BACK, -3, -4)
WAYS = 1, -1, 2, -2  # of each of these
MOVED_ALIKE = MOVED - len(POINTS)
# By which share of its size an element moves: far more than rounding, and not so far that its sign changes.
_LEAST, _MOST = 0.2, 0.5
# A weight that is nowhere more than this was set to let hardly anything through, as LayerScale's 1e-6 is, or
# a last layer's: it counts as zero. Moved by its own size, it would hide what it is multiplied by.
_NEARLY_OFF = 1e-3
# The size that counts for a zero: it moves by 0.3 at most. In a matrix it is at most that of LeCun's initial
# values, one over the root of the fan-in, so that a large product of moved zeros keeps the size of its input.
_OF_ZERO = 0.6
_LARGER = (
    4.0  # times a weight's value: a matrix of usual initial values is beyond the norms at which it is clipped
)
SYMMETRIC = "is symmetric"  # a spec can say so of an input
ASCENDS = "ascends"  # as do all that `np.linspace` makes
_SHOWN = 3  # numbers of an input, and inputs, that a message shows
_OF_SETTING = 0.7  # times a setting
_TRIES = 8  # draws, of which one is another value
_NEAR = 1e-6  # how exactly a stated structure holds: values are often written with seven digits


def point_like(sample: int) -> int:
    """Return which of `POINTS` moves values as an additional point does that keeps a structure as well."""
    return POINTS[(-1 - sample) % len(POINTS)]


def variable_value(case: Case, tensor: InputSpec, sample: int, direction: int = 1) -> Array:
    """Return a variable's value at a sample point: its own at the first one, and moved at every other.

    What its owner lets it be, it stays: a Keras constraint is applied to the moved value.

    Args:
        direction: one of `WAYS`; 0 to let it stay.
    """
    value: Array = np.asarray(tensor.source.arguments["value"])
    if sample == 0 or direction == 0 or tensor.keeps:
        return value
    is_back = sample < 0 and point_like(sample) == MOVED_BACK and abs(direction) == 1
    return _constrain(
        tensor, move(case, tensor, value, max(sample, MOVED), -direction if is_back else direction)
    )


def _constrain(tensor: InputSpec, value: Array) -> Array:
    constraint = tensor.source.arguments.get("constraint")
    return np.asarray(constraint(value)) if callable(constraint) else value


def value_beside(case: Case, tensor: InputSpec, sample: int) -> Array:
    """Return an input's value at one of the additional points: moved if it is stated, else another draw."""
    if not tensor.is_stated:  # where nothing is stated, the additional point is another draw
        return draw(case, tensor, 0 if any(map(moves, case.tensors)) else max(2, case.judging.samples))
    value = draw(case, tensor, 0)
    if not moves(tensor):
        return value
    kept, way = divmod(-1 - sample, len(WAYS))
    moved = move(case, tensor, value, MOVED, WAYS[way])
    if kept:
        return _keep(value, kept - 1)(moved)
    # In order and one place on: a permutation that isn't its own inverse.
    return np.roll(np.sort(moved, axis=-1), 1, axis=-1) if _ascends(value) and not tensor.symmetric else moved


def keep_structure(tensor: InputSpec) -> InputSpec:
    """Return a weight that nobody trains, which may be more than numbers, as it may move.

    A filter, a mask, a basis beside its inverse, a triangle: it stays as it is, since a right gradient may
    rely on that, and one that forgets it is wrong there. All alike, or a multiple of an identity, it may be a
    running average's first value, which shows nothing of the gradient; then shares stay shares.
    """
    value: Array = np.asarray(tensor.source.arguments["value"])
    is_square = value.ndim > 1 and value.shape[-1] == value.shape[-2]
    is_plain = (
        not value.size
        or np.ptp(value) == 0
        or (is_square and np.all(value == value.flat[0] * np.eye(value.shape[-1])))
    )
    constraint = {"constraint": _keep(value) if is_plain else lambda _: value, **tensor.source.arguments}
    return replace(tensor, source=replace(tensor.source, arguments=constraint))


def moves(tensor: InputSpec) -> bool:
    """Whether an input is stated and moves at the additional points."""
    return tensor.is_stated and tensor.is_differentiable and not tensor.keeps and 0 not in tensor.shape


def is_single_zero(tensor: InputSpec) -> bool:
    """Whether an input is one weight or stated value, and 0: a point moves it to one side alone.

    Of several elements, half move to each side.
    """
    is_single = (tensor.is_variable or moves(tensor)) and math.prod(tensor.shape) == 1 and not tensor.keeps
    return is_single and not np.any(np.asarray(tensor.source.arguments["value"]))


def describe_values(case: Case, first: Sequence[Array], point: Sequence[Array]) -> str:
    """Say where weights and stated values have moved to, such as `alpha = 0.31`; empty if none has."""
    texts = []
    for tensor, stated, value in zip(case.tensors, first, point, strict=True):
        if not (tensor.is_variable or tensor.is_stated) or np.array_equal(stated, value):
            continue
        flat = value.ravel()
        shown = ", ".join(f"{number:.3g}" for number in flat[:_SHOWN])
        more = ", ..." if flat.size > _SHOWN else ""
        texts.append(f"{tensor.name} = [{shown}{more}]" if tensor.shape else f"{tensor.name} = {shown}")
    return join_first(texts, _SHOWN)


def describe_structures(case: Case) -> list[str]:
    """Say what the stated values of a case are, such as rows that sum to 1; each at once, then the next."""
    named = [(tensor.name, _structures(draw(case, tensor, 0))) for tensor in filter(moves, case.tensors)]
    most = max((len(structures) for _, structures in named), default=0)
    return [
        " and ".join(structures[:index][-1][0].format(name) for name, structures in named if structures)
        for index in range(1, most + 1)
    ]


def are_symmetric(case: Case, tensor: InputSpec) -> bool:
    """Whether the values of an input are symmetric matrices, at two sample points if they are drawn."""
    return not tensor.is_variable and all(is_symmetric(draw(case, tensor, sample)) for sample in (0, 1))


def is_symmetric(matrix: Array) -> bool:
    """Whether a value is a symmetric (Hermitian) matrix, or a stack of them."""
    if matrix.ndim <= 1 or matrix.shape[-1] != matrix.shape[-2]:  # no square matrix
        return False
    # A product that makes a matrix symmetric does so only up to rounding, in float32 too.
    difference = np.abs(matrix - np.conj(np.swapaxes(matrix, -1, -2)))
    return bool(np.all(difference <= 1e-5 * np.max(np.abs(matrix), initial=0.0)))


def turn(tensor: InputSpec) -> Array | None:
    """Return a weight's value with the other sign; `None` if it has both, or can't have that one."""
    value = _weight_value(tensor)
    if value is None:
        return None
    turned = _constrain(tensor, (-value).clip(*tensor.domain))
    return turned if np.ptp(np.sign(value)) == 0 and (value * turned < 0).all() else None


def enlarge(tensor: InputSpec) -> Array | None:
    """Return a weight's value four times as large; `None` if it is zero, or its spec says how far it goes."""
    value = _weight_value(tensor)
    if value is None or tensor.domain != UNBOUNDED:
        return None
    enlarged = _constrain(tensor, value * _LARGER)
    return enlarged if (enlarged != value).any() else None


def negate(tensor: InputSpec) -> Array | None:
    """Return a weight's value negated, its smallest element 0.

    `None` if it has one sign, as `turn` takes it, or a structure, or if its spec says how far it goes.
    """
    value = _weight_value(tensor)
    if value is None or np.ptp(np.sign(value)) <= 1 or tensor.domain != UNBOUNDED or _structures(value):
        return None
    sizes = np.abs(value)
    return _constrain(tensor, np.where(sizes == sizes.min(), 0, -value))


def _weight_value(tensor: InputSpec) -> Array | None:
    """Return the value of a weight that is real and may move; `None` for any other input."""
    value: Array = np.asarray(tensor.source.arguments.get("value", ()))
    is_fixed = not tensor.is_variable or tensor.keeps or np.iscomplexobj(value) or not value.size
    return None if is_fixed else value


def rearrange(case: Case, tensor: InputSpec) -> Array | None:
    """Return another value that stated booleans or numbers may have that aren't differentiated; or `None`.

    Whole numbers are often indices, so that no value is new in its column. Permutations stay so, rows that
    all differ do so, and what ascends does, with its ends. A number alone is one less, or one more. Floating
    zeros are no labels.
    """
    kind = kind_of(tensor.dtype)
    is_constant = not tensor.is_stated or tensor.keeps or 0 in tensor.shape
    if is_constant or tensor.differentiate != (kind in ("integer", "bool")) or kind in ("complex", "string"):
        return None
    value: Any = draw(case, tensor, 0)
    if kind == "float" and ((value != np.round(value)).any() or (value.size > 1 and not value.any())):
        return _keep(value)(move(case, tensor, value, MOVED))
    if value.size == 1:
        return np.asarray(~value if kind == "bool" else np.where(value > 1, value - 1, value + 1))
    generator = stream(case, tensor, MOVED, "move")
    others = (_rearranged(value, generator) for _ in range(_TRIES))
    return next((other for other in others if not np.array_equal(other, value)), None)


def _rearranged(value: Any, generator: np.random.Generator) -> Array:  # noqa: ANN401 (of several dtypes)
    size, kind = len(value), value.dtype.kind
    places = np.asarray(generator.integers(size, size=value.shape))
    drawn: Array = np.take_along_axis(value, places, 0)
    if kind == "b":
        return generator.permuted(np.resize([True, False], value.shape))
    if np.ptp(value) == 0:  # such as lengths, or a mask of ones
        return np.asarray(value - np.asarray(places % 2 * (value > (kind != "f")), value.dtype))
    if any(words.endswith(SYMMETRIC) for words, _ in _structures(value)[:1]):
        return np.roll(value, 1, (-2, -1))
    if value.ndim == 1 and (np.diff(value) >= 0).all():
        drawn[[0, -1]] = value[[0, -1]]
        drawn.sort()
    if np.all(np.sort(value) == np.arange(value.shape[-1])):
        drawn = generator.permuted(value, axis=-1)
    is_spoilt = value.ndim > 1 and len(np.unique(drawn, axis=0)) < size == len(np.unique(value, axis=0))
    return np.asarray(generator.permutation(value) if kind == "f" or is_spoilt else drawn)


def other_setting(name: str, value: float) -> float:
    """Return another value of a flag or a number: what must be positive stays so, and a share stays one."""
    if isinstance(value, bool) or name in {"axis", "dim"}:  # the second axis for the first, or the first
        return type(value)(not value)
    if isinstance(value, int):
        return value - 1 if value > 1 else value + 1
    return float(f"{value * _OF_SETTING:.9g}") or 0.3


def move(case: Case, tensor: InputSpec, value: Array, sample: int, direction: int = 1) -> Array:
    """Return a value with each element, and each part of a complex one, moved by a random amount of its own.

    Values stay within their `domain`, and symmetric where they must stay so.

    Args:
        direction: one of `WAYS`.
    """
    generator = stream(case, tensor, sample, "move")
    if np.iscomplexobj(value):
        real, imaginary = (_shifts(part, np.abs(value), generator) for part in (value.real, value.imag))
        moved: Array = value + direction * (real + 1j * imaginary)
    else:
        low, high = tensor.domain
        sizes = np.abs(value)
        if tensor.is_variable and value.size and sizes.max() <= _NEARLY_OFF:
            value = np.zeros_like(value)
        shifts = _shifts(value, sizes * 0 if not value.any() else sizes, generator)
        if abs(direction) > 1:
            shifts = np.abs(shifts) * np.where(value > 0, -1, 1)
        shifts *= np.sign(direction)
        moved = value + np.where((value + shifts < low) | (value + shifts > high), -shifts, shifts)
        moved = moved.clip(low, high)
    return mirror(moved) if tensor.symmetric else moved


def _shifts(values: Array, sizes: Array, generator: np.random.Generator) -> Array:
    fan_in = values.size // max(values.shape[-1], 1) if values.ndim > 1 else 1
    sizes = np.where(values == 0, sizes, np.abs(values))
    sizes = np.where(sizes == 0, min(_OF_ZERO, 1 / math.sqrt(max(fan_in, 1))), sizes)
    signs = generator.permutation(np.resize([-1.0, 1.0], values.size)).reshape(values.shape)
    return np.asarray(signs * generator.uniform(_LEAST, _MOST, values.shape) * sizes)


Restore = Callable[[Array], Array]


def _structures(value: Array) -> list[tuple[str, Restore]]:
    """Return what a value is beside numbers, in words, and functions that make moved values that again.

    A gradient may rely on it: that of a cross-entropy on labels that sum to 1, that of a rotation on a
    quaternion of length 1. Zeros, ones and a permutation alone state no symmetric matrix.
    """
    if value.dtype.kind not in "fc" or not value.ndim or value.shape[-1] <= 1 or not value.size:
        return []
    is_real, is_square = value.dtype.kind == "f", value.ndim > 1 and value.shape[-1] == value.shape[-2]
    transposed = np.conj(np.swapaxes(value, -1, -2)) if is_square else value
    is_symmetric = is_square and np.allclose(value, transposed, _NEAR) and np.ptp(np.abs(value)) > 0
    identity = np.eye(value.shape[-1] if is_square else 0)  # of a long vector it has no room
    lengths, is_share = np.linalg.norm(value, axis=-1), is_real and (value >= 0).all()
    axes = (-1, *range(value.ndim - 1), None) if is_share else ()
    shares = [axis for axis in axes if np.allclose(value.sum(axis), 1, _NEAR)]
    structures: tuple[tuple[Any, str, Restore], ...] = (
        *(
            (
                True,
                "sums of {} are 1",
                lambda moved, axis=axis: np.abs(moved) / np.abs(moved).sum(axis=axis, keepdims=True),
            )
            for axis in shares
        ),
        (
            is_symmetric and not shares and (value * (1 - identity)).any(),
            f"{{}} {SYMMETRIC}",
            mirror,
        ),
        (
            is_square and value.any() and np.allclose(value, -transposed, _NEAR),
            "{} is antisymmetric",
            lambda moved: (moved - np.conj(np.swapaxes(moved, -1, -2))) / 2,
        ),
        (
            is_square and np.allclose(value @ transposed, identity, atol=_NEAR),
            "{} is orthogonal",
            _nearest_orthogonal,
        ),
        (
            np.allclose(lengths, 1, _NEAR),
            "each row of {} has length 1",
            lambda moved: moved / np.linalg.norm(moved, axis=-1, keepdims=True),
        ),
        (_ascends(value), f"{{}} {ASCENDS}", partial(np.sort, axis=-1)),
    )
    return [(words, restore) for holds, words, restore in structures if holds]


def _ascends(value: Array) -> bool:
    return value.dtype.kind == "f" and value.shape[-1:] > (1,) and bool((np.diff(value, axis=-1) > 0).all())


def _keep(value: Array, index: int = 0) -> Restore:
    """Return the function that keeps one of a value's structures: that of this index, or the last."""
    return ([restore for _, restore in _structures(value)] or [_as_it_is])[: index + 1][-1]


def _as_it_is(moved: Array) -> Array:
    return moved


def _nearest_orthogonal(moved: Array) -> Array:
    left, _, right = np.linalg.svd(moved)
    return np.asarray(left @ right)
