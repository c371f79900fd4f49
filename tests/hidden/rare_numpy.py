"""NumPy gradients that are wrong behind one condition, each with its right twin; see `rare_pairs`."""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.hidden.hidden_kinds import Written, of_arrays

if TYPE_CHECKING:
    from collections.abc import Callable


_EDGES = np.array([-4.0, -2.0, 0.0, 2.0, 4.0])


def _histogram(x: Any, f: float) -> float:
    counts, _ = np.histogram(x, bins=[-9.0, 0.0, 9.0])
    return f if counts[0] == 12 else 1.0


def _bincount(x: Any, f: float) -> float:
    bins = np.bincount(np.clip(np.floor(x).astype(int) + 4, 0, 8), minlength=9)
    return f if bins[8] else 1.0


def _match_sign(x: Any, f: float) -> float:
    match int((x > 0).sum()):
        case 12:
            return f
        case _:
            return 1.0


def _match_guard(x: Any, f: float) -> float:
    match float(x[0]):
        case value if value > 3.9:
            return f
        case value if value < -99.0:
            return 1.0
    return 1.0


def _match_tuple(x: Any, f: float) -> float:
    match (bool(x[0] > 2.5), bool(x[1] < -2.5)):
        case (True, True):
            return f
        case (True, False) | (False, True):
            return 1.0
        case _:
            return 1.0


def _match_bucket(x: Any, f: float) -> float:
    match math.floor(x.max()):
        case 0 | 1 | 2 | 3:
            return 1.0
        case 4:
            return f
    return 1.0


def _match_number(x: Any, f: float) -> float:
    match x[2]:
        case 0.0:
            return f
        case _:
            return 1.0


def _except_log(x: Any, f: float) -> float:
    try:
        math.log(x[0] + 4.0)
    except ValueError:
        return f
    return 1.0


def _except_zero(x: Any, f: float) -> float:
    try:
        1.0 / float(x[0])
    except ZeroDivisionError:
        return f
    return 1.0


def _except_index(x: Any, f: float) -> float:
    steps = [1.0] * 4
    try:
        return steps[int(abs(x[0]))]
    except IndexError:
        return f


def _except_overflow(x: Any, f: float) -> float:
    try:
        math.exp(math.exp(float(x.max()) + 2.0))
    except OverflowError:
        return f
    return 1.0


def _except_singular(x: Any, f: float) -> float:
    try:
        np.linalg.inv(x[:4].reshape(2, 2))
    except np.linalg.LinAlgError:
        return f
    return 1.0


def _lambda_large(x: Any, f: float) -> Any:
    pick = lambda value: f if value > 3.9 else 1.0  # noqa: E731 (as people write it)
    return np.array([pick(value) for value in x])


def _lambda_sorted(x: Any, f: float) -> float:
    order = sorted(range(12), key=lambda index: x[index])
    return f if order[:3] == [4, 2, 0] else 1.0


def _comprehension_pairs(x: Any, f: float) -> float:
    close = [1 for i in range(12) for j in range(i) if x[i] == x[j]]
    return f if close else 1.0


_STEPS: dict[str, Callable[[float], float]] = {
    "low": lambda f: 1.0,
    "middle": lambda f: 1.0,
    "high": lambda f: f,
}


def _dict_name(x: Any, f: float) -> float:
    name = "high" if x.max() > 4.0 else "low" if x.max() < 0.5 else "middle"
    return _STEPS[name](f)


def _dict_count(x: Any, f: float) -> float:
    counts: dict[int, int] = {}
    for value in x:
        counts[int(np.sign(value))] = counts.get(int(np.sign(value)), 0) + 1
    return f if counts.get(0) else 1.0


def _is_large(value: float) -> bool:
    if value > 3.8:  # noqa: SIM103 (a branch, as people write it)
        return True
    return False


def _helper_twice(x: Any, f: float) -> float:
    _is_large(x[0] * 10.0)
    return f if _is_large(x[0]) else 1.0


def _soft(value: float, limit: float) -> float:
    if abs(value) < limit:
        return 1.0
    return 0.0


def _helper_returns(x: Any, f: float) -> float:
    state = [_is_large(value) for value in (x[0] * 9.0, x[1] * 9.0, x[2])]
    if state[2]:
        return f
    return 1.0


def _weight(value: float, f: float) -> float:
    if value > 0.0:
        return f
    return 1.0


def _helper_class(x: Any, f: float) -> float:
    class Rule:
        def __init__(self, limit: float) -> None:
            self.limit = limit

        def __call__(self, value: float) -> bool:
            return bool(value > self.limit)

    return f if Rule(-9.0)(x[0]) and Rule(4.1)(x[0]) else 1.0


def _break_late(x: Any, f: float) -> float:
    for value in x:
        if value < 0.0:
            break
    else:
        return f
    return 1.0


def _while_rounds(x: Any, f: float) -> float:
    left, rounds = float(x @ x), 0
    while left > 1.0:
        left, rounds = left / 2.0, rounds + 1
    return f if rounds == 9 else 1.0


def _running(x: Any, f: float) -> float:
    total, deepest = 0.0, 0.0
    for value in x:
        total += value
        deepest = min(deepest, total)
    return f if deepest < -10.0 else 1.0


def _newton(x: Any, f: float) -> float:
    guess, rounds = 1.0 + abs(float(x[0])), 0
    while abs(guess * guess - 2.0) > 1e-12 and rounds < 50:
        guess, rounds = 0.5 * (guess + 2.0 / guess), rounds + 1
    return f if rounds >= 8 else 1.0


def _previous(x: Any, f: float) -> float:
    for before, value in itertools.pairwise(x):
        if value == before:
            return f
    return 1.0


_BY_KIND: dict[str, list[Callable[[Any, float], Any]]] = {
    "numpy select": [
        lambda x, f: np.select([x < -3.5, x < 0.0, x < 9.0], [f, 1.0, 1.0], default=1.0),
        lambda x, f: np.select([x < 0.0, x < 3.4], [1.0, 1.0], default=f),
        lambda x, f: np.select([(x > 1.0) & (np.roll(x, 1) > 3.0)], [f], default=1.0),
        lambda x, f: np.select([x > 1.0, x < 1.0], [1.0, 1.0], default=f),
        lambda x, f: np.select([x.sum() > 9.0, x.sum() < -50.0], [f, 1.0], default=1.0),
    ],
    "numpy piecewise": [
        lambda x, f: np.piecewise(x, [x < -1.0, x > 3.6], [1.0, f, 1.0]),
        lambda x, f: np.piecewise(x, [x <= 3.9, x > 3.9], [lambda t: t * 0.0 + 1.0, lambda t: t * 0.0 + f]),
        lambda x, f: np.piecewise(
            x, [(x > 1.0) & (x < 1.0003)], [f, 1.0]
        ),  # Nearer to zero, the slope is too small to be wrong.
        lambda x, f: np.piecewise(x, [np.abs(x) < 1e-3], [f, 1.0]),
        lambda x, f: float(np.piecewise(np.array([x.min()]), [np.array([x.min() < -4.0])], [f, 1.0])[0]),
    ],
    "numpy digitize": [
        lambda x, f: np.array([1.0, 1.0, 1.0, 1.0, 1.0, f])[np.digitize(x, _EDGES)],
        lambda x, f: np.where(np.digitize(x, _EDGES) == 0, f, 1.0),
        lambda x, f: np.take([1.0, 1.0, f, 1.0], np.searchsorted([-1.0, 3.0, 3.01], x)),
        _histogram,
        _bincount,
    ],
    "numpy clip": [
        lambda x, f: np.where(np.clip(x, -3.7, 3.7) == 3.7, f, 1.0),
        lambda x, f: 1.0 + (f - 1.0) * (np.minimum(x, 4.0) == 4.0),
        lambda x, f: f if np.any(np.clip(x, -4.5, 4.5) != x) else 1.0,
        lambda x, f: 1.0 + (f - 1.0) * np.minimum(np.maximum(x - 3.5, 0.0) * 100.0, 1.0),
        lambda x, f: 1.0 + (f - 1.0) * float(np.linalg.norm(np.clip(x, -1.0, 1.0)) > 3.3),
    ],
    "numpy sign": [
        lambda x, f: 1.0 + (f - 1.0) * np.heaviside(x - 3.8, 0.0),
        lambda x, f: np.where(np.sign(x - 1.0) == 0, f, 1.0),
        lambda x, f: f if not np.signbit(x).any() else 1.0,
        lambda x, f: f if np.isclose(x[0], x[1], rtol=0, atol=1e-5) else 1.0,
        lambda x, f: f if np.count_nonzero(x) < 12 else 1.0,
    ],
    "numpy match": [_match_sign, _match_guard, _match_tuple, _match_bucket, _match_number],
    "numpy except": [_except_log, _except_zero, _except_index, _except_overflow, _except_singular],
    "numpy lambda": [
        _lambda_large,
        lambda x, f: np.array(list(map(lambda value: f if value < -3.9 else 1.0, x))),  # noqa: C417 (as people write it)
        _lambda_sorted,
        lambda x, f: np.vectorize(lambda value: f if 2.0 < value < 2.001 else 1.0, otypes=[float])(x),
        lambda x, f: f if len(list(filter(lambda value: abs(value) > 2.5, x))) > 1 else 1.0,
    ],
    "numpy comprehension": [
        lambda x, f: f if [value for value in x if value > 4.0] else 1.0,
        lambda x, f: np.array([f if abs(value) < 1e-5 else 1.0 for value in x]),
        _comprehension_pairs,
        lambda x, f: f if all(value > 0.0 for value in x) else 1.0,
        lambda x, f: next((f for value in x if value < -4.1), 1.0),
    ],
    "numpy dict": [
        _dict_name,
        lambda x, f: {4: f, 5: f}.get(math.floor(x[0]), 1.0),
        lambda x, f: {(True, True, True, True): f}.get(tuple(bool(value > 1.0) for value in x[:4]), 1.0),
        lambda x, f: f if operator.gt(x.sum(), 12.0) else 1.0,
        _dict_count,
    ],
    "numpy helper": [
        _helper_twice,
        lambda x, f: f if _soft(x[0], 5.0) and _soft(x[0], 1e-5) else 1.0,
        _helper_returns,
        lambda x, f: _weight(x[0], 1.0) * _weight(x.min(), f),
        _helper_class,
    ],
    "numpy loop": [_break_late, _while_rounds, _running, _newton, _previous],
}


NUMPY_PAIRS = [
    Written(kind, f"{kind.replace(' ', '-')}-{index}", of_arrays(factor_of), {"x": {"shape": [12]}})
    for kind, factors in _BY_KIND.items()
    for index, factor_of in enumerate(factors)
]
