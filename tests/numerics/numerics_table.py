"""Functions with true derivatives: written once over a namespace, run in NumPy and in 60-digit arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import mpmath
import numpy as np

from gradcheck_cli.numerics import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Precision

mpmath.mp.dps = 60

_NAMES = ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt", "expm1", "log1p")


def _numpy() -> SimpleNamespace:
    space = {name: getattr(np, name) for name in _NAMES}
    return SimpleNamespace(
        **space, arctan=np.arctan, arcsin=np.arcsin, arcsinh=np.arcsinh, maximum=np.maximum
    )


def _digits() -> SimpleNamespace:
    space = {name: np.frompyfunc(getattr(mpmath, name), 1, 1) for name in _NAMES}
    return SimpleNamespace(
        **space,
        arctan=np.frompyfunc(mpmath.atan, 1, 1),
        arcsin=np.frompyfunc(mpmath.asin, 1, 1),
        arcsinh=np.frompyfunc(mpmath.asinh, 1, 1),
        maximum=np.frompyfunc(max, 2, 1),
    )


NUMPY, DIGITS = _numpy(), _digits()
Function = Callable[[SimpleNamespace, np.ndarray], np.ndarray]


def evaluator(function: Function, precision: Precision):
    """Run a function in the arithmetic of a precision (bfloat16: float32, rounded at the end)."""
    dtype = {"float64": np.float64, "float32": np.float32, "float16": np.float16}.get(
        precision.name, np.float32
    )

    def evaluate(points: np.ndarray) -> np.ndarray:
        x = points.astype(dtype)
        assert np.array_equal(x.astype(np.float64), points, equal_nan=True), "points must be representable"
        with np.errstate(all="ignore"):
            values = function(NUMPY, x)
        # NumPy 1 promotes float16 where a Python number is too large for it.
        assert values.dtype == dtype or dtype is np.float16, f"promoted to {values.dtype}"
        return precision.round(values.astype(np.float64))

    return evaluate


def true_jacobian(function: Function, point: np.ndarray) -> np.ndarray:
    """Differentiate in 60 digits: central differences at 1e-22 of the scale are good to 40 of them."""
    n = point.size
    x = np.array([mpmath.mpf(float(v)) for v in point], dtype=object)
    steps = np.array([mpmath.mpf(10) ** -22 * max(abs(v), mpmath.mpf(10) ** -9) for v in x], dtype=object)
    moves = np.diag(steps)
    zero = np.full((n, n), mpmath.mpf(0), dtype=object)
    moves = np.where(np.eye(n, dtype=bool), moves, zero)
    up, down = function(DIGITS, x + moves), function(DIGITS, x - moves)
    jacobian = (up - down) / (2 * steps[:, None])
    return np.array([[float(v) for v in row] for row in jacobian]).T


@dataclass(frozen=True)
class Row:
    """One function at one point."""

    name: str
    function: Function
    point: tuple[float, ...]
    kind: str = "smooth"
    low: float | None = None
    high: float | None = None


def _scalar() -> list[tuple[str, Function, tuple[float, ...]]]:
    one = 1.0
    return [
        ("identity", lambda _, x: x * 1, (0.0, 1.7, -3e5)),
        ("affine", lambda _, x: 3 * x + 5, (0.0, 1.7, -40.0)),
        ("square", lambda _, x: x * x, (0.5, -1.7, 1e4, 1e-6)),
        ("cube", lambda _, x: x * x * x, (1.3, -2.0, 1e-3)),
        ("polynomial", lambda _, x: ((x - 2) * x + 1) * x - 7, (0.3, 2.2, -1.1)),
        ("power 7", lambda _, x: x**7, (0.9, -1.2)),
        ("exp", lambda xp, x: xp.exp(x), (0.0, 1.0, -12.0, 20.0)),
        ("exp(-x^2)", lambda xp, x: xp.exp(-x * x), (0.4, -1.9, 3.0)),
        ("expm1", lambda xp, x: xp.expm1(x), (1e-4, 1.0, -5.0)),
        ("log", lambda xp, x: xp.log(x), (0.01, 1.0, 37.0, 1e8)),
        ("log1p", lambda xp, x: xp.log1p(x), (1e-5, 2.0, -0.9)),
        ("sin", lambda xp, x: xp.sin(x), (0.0, 1.0, 3.0, 100.0)),
        ("cos", lambda xp, x: xp.cos(x), (0.3, 1.5, -8.0)),
        ("tan", lambda xp, x: xp.tan(x), (0.3, 1.2, 1.5)),
        ("sinh", lambda xp, x: xp.sinh(x), (0.1, -3.0)),
        ("cosh", lambda xp, x: xp.cosh(x), (0.7, 5.0)),
        ("tanh", lambda xp, x: xp.tanh(x), (0.0, 0.8, -2.5)),
        ("arctan", lambda xp, x: xp.arctan(x), (0.0, 1.0, -30.0)),
        ("arcsin", lambda xp, x: xp.arcsin(x), (0.1, 0.9)),
        ("arcsinh", lambda xp, x: xp.arcsinh(x), (0.2, 50.0)),
        ("sqrt", lambda xp, x: xp.sqrt(x), (0.04, 2.0, 1e10)),
        ("1/x", lambda _, x: one / x, (0.03, 1.0, -500.0)),
        ("1/(x-1)", lambda _, x: one / (x - 1), (1.125, 0.5, 3.0)),
        ("1/(1+x^2)", lambda _, x: one / (1 + x * x), (0.5, -2.0, 20.0)),
        ("rsqrt", lambda xp, x: one / xp.sqrt(x), (0.3, 7.0)),
        ("sigmoid", lambda xp, x: one / (1 + xp.exp(-x)), (0.0, 2.0, -6.0)),
        ("softplus", lambda xp, x: xp.log1p(xp.exp(x)), (0.0, 3.0, -4.0)),
        ("swish", lambda xp, x: x / (1 + xp.exp(-x)), (0.5, -3.0)),
        ("gelu tanh", lambda xp, x: x * (1 + xp.tanh((x + x**3 / 16) * 0.75)) / 2, (0.5, -1.5)),
        ("mish", lambda xp, x: x * xp.tanh(xp.log1p(xp.exp(x))), (0.5, -2.0)),
        ("softsign", lambda xp, x: x / xp.sqrt(1 + x * x), (0.4, -3.0)),
        ("log cosh", lambda xp, x: xp.log(xp.cosh(x)), (0.3, -2.0)),
        ("x log x", lambda xp, x: x * xp.log(x), (0.1, 2.0)),
        ("entropy", lambda xp, x: -x * xp.log(x) - (1 - x) * xp.log(1 - x), (0.125, 0.8)),
        ("logit", lambda xp, x: xp.log(x / (1 - x)), (0.1, 0.7)),
        ("sin(10x)", lambda xp, x: xp.sin(10 * x), (0.3, 1.0)),
        ("sin x / x", lambda xp, x: xp.sin(x) / x, (0.5, 4.0)),
        ("exp(sin x)", lambda xp, x: xp.exp(xp.sin(x)), (0.4, 2.5)),
        ("sin(exp x)", lambda xp, x: xp.sin(xp.exp(x)), (0.4, 2.0)),
        ("chirp", lambda xp, x: xp.sin(x * x), (0.7, 5.0)),
        ("damped", lambda xp, x: xp.exp(-x / 4) * xp.cos(3 * x), (0.4, 4.0)),
        ("rational", lambda _, x: (x * x + 1) / (x * x * x + 3), (0.7, 2.0)),
        ("wide bell", lambda _, x: one / (1 + x * x / 1024), (7.0, -40.0)),
        ("tiny output", lambda xp, x: xp.sin(x) * 2.0**-60, (0.5, 2.0)),
        ("huge output", lambda xp, x: xp.cos(x) * 2.0**60, (0.5, 2.0)),
        ("offset 100", lambda xp, x: 100 + xp.sin(x), (0.5, 1.2)),
        ("log(exp+exp)", lambda xp, x: xp.log(xp.exp(x) + xp.exp(-2 * x)), (0.3, -1.0)),
        ("pow 2.5", lambda xp, x: xp.exp(2.5 * xp.log(x)), (0.4, 3.0)),
        ("exp(1/x)", lambda xp, x: xp.exp(one / x), (0.5, 2.0)),
        ("cauchy log", lambda xp, x: xp.log(1 + x * x), (0.5, -9.0)),
        ("atan(x^2)", lambda xp, x: xp.arctan(x * x), (0.6, 1.4)),
        ("x exp(-x)", lambda xp, x: x * xp.exp(-x), (0.3, 4.0)),
        ("sqrt(1+x^2)", lambda xp, x: xp.sqrt(1 + x * x), (0.3, -4.0)),
        ("tanh(x)^2", lambda xp, x: xp.tanh(x) ** 2, (0.4, -1.2)),
        ("sech", lambda xp, x: one / xp.cosh(x), (0.4, 2.0)),
    ]


def _total(x: np.ndarray) -> np.ndarray:
    return x.sum(axis=-1, keepdims=True)


def _softmax(xp: SimpleNamespace, x: np.ndarray) -> np.ndarray:
    powers = xp.exp(x - x.max(axis=-1, keepdims=True))
    return powers / _total(powers)


def _layer_norm(xp: SimpleNamespace, x: np.ndarray) -> np.ndarray:
    centred = x - _total(x) / x.shape[-1]
    return centred / xp.sqrt(_total(centred * centred) / x.shape[-1] + 2.0**-10)


def _matmul(_: SimpleNamespace, x: np.ndarray) -> np.ndarray:
    a, b = x[:, :6].reshape(-1, 2, 3), x[:, 6:].reshape(-1, 3, 2)
    return np.stack([(a[:, i, :] * b[:, :, j]).sum(axis=-1) for i in range(2) for j in range(2)], axis=-1)


def _inverse2(_: SimpleNamespace, x: np.ndarray) -> np.ndarray:
    a, b, c, d = (x[:, i] for i in range(4))
    det = a * d - b * c
    return np.stack([d / det, -b / det, -c / det, a / det], axis=-1)


def _network(xp: SimpleNamespace, x: np.ndarray) -> np.ndarray:
    hidden = xp.tanh(x[:, :2] * x[:, 2:4] + x[:, [1, 0]] * x[:, 4:6])
    return hidden[:, :1] * x[:, 6:] + hidden[:, 1:]


_V3 = (0.7, -1.3, 2.1)
_V4 = (0.7, -1.3, 2.1, 0.25)
_V5 = (1.7, 0.6, -0.4, 2.5, -1.1)


def _vector() -> list[tuple[str, Function, tuple[tuple[float, ...], ...]]]:
    return [
        ("softmax", _softmax, (_V3, (3.0, -4.0, 0.5, 1.0))),
        ("log softmax", lambda xp, x: x - xp.log(_total(xp.exp(x))), (_V3, _V5)),
        ("logsumexp", lambda xp, x: xp.log(_total(xp.exp(x))), (_V3, _V5)),
        ("matmul", _matmul, ((0.5, 1.5, -2.0, 0.3, 1.1, -0.7, 0.9, -1.2, 0.4, 2.2, -0.6, 1.3),)),
        ("bilinear", lambda _, x: x[:, :2] * x[:, 2:], (_V4,)),
        ("norm", lambda xp, x: xp.sqrt(_total(x * x)), (_V3, _V5)),
        ("normalise", lambda xp, x: x / xp.sqrt(_total(x * x)), (_V3, _V5)),
        ("layer norm", _layer_norm, (_V4, _V5)),
        ("cumsum", lambda _, x: np.cumsum(x, axis=-1), (_V4,)),
        ("cumprod", lambda _, x: np.cumprod(x, axis=-1), (_V4, _V5)),
        ("product", lambda _, x: np.prod(x, axis=-1, keepdims=True), (_V4,)),
        ("sort", lambda _, x: np.sort(x, axis=-1), (_V4, _V5)),
        ("max", lambda _, x: x.max(axis=-1, keepdims=True), (_V4, _V5)),
        ("top 2 sum", lambda _, x: np.sort(x, axis=-1)[:, -2:].sum(axis=-1, keepdims=True), (_V4,)),
        ("relu away", lambda xp, x: xp.maximum(x, 0 * x), (_V4, _V5)),
        ("inverse 2x2", _inverse2, ((1.5, 0.3, -0.6, 2.0),)),
        ("network", _network, ((0.5, -0.8, 1.2, 0.3, -0.9, 0.7, 1.4),)),
        ("mean square", lambda _, x: _total(x * x) / x.shape[-1], (_V5,)),
        ("variance", lambda _, x: _total((x - _total(x) / x.shape[-1]) ** 2), (_V5,)),
        ("outer", lambda _, x: (x[:, :2, None] * x[:, None, 2:]).reshape(len(x), -1), (_V4,)),
        (
            "rosenbrock",
            lambda _, x: 100 * (x[:, 1:] - x[:, :1] ** 2) ** 2 + (1 - x[:, :1]) ** 2,
            ((1.2, 0.8),),
        ),
        (
            "polar",
            lambda xp, x: np.stack([x[:, 0] * xp.cos(x[:, 1]), x[:, 0] * xp.sin(x[:, 1])], -1),
            ((2.0, 0.7),),
        ),
        ("reverse", lambda _, x: x[:, ::-1] * 1, (_V4,)),
        ("gather twice", lambda _, x: x[:, [0, 2, 2]] * x[:, [1, 1, 0]], (_V3,)),
        ("decades", lambda _, x: x * x, ((1e-6, 1e-3, 1.0, 1e3, 1e6),)),
        ("18 orders apart", lambda _, x: x * x, ((1e-8, 1e8, 2.0),)),
        ("tiny jacobian", lambda xp, x: xp.sin(x) * 2.0**-100, (_V3,)),
        ("sparse", lambda xp, x: np.concatenate([xp.exp(x[:, :1]), x[:, 1:2] * x[:, 2:3]], axis=-1), (_V3,)),
        ("small beside large", lambda xp, x: x[:, :1] + xp.sin(x[:, 1:2]) * 2.0**-7, ((1.0, 0.5),)),
        ("attention", lambda xp, x: _softmax(xp, x[:, :2] * x[:, 2:3]) * x[:, 3:], (_V4,)),
    ]


def smooth_rows() -> list[Row]:
    """Return every smooth function at every one of its points."""
    rows = [Row(f"{name} at {x}", f, (x,)) for name, f, points in _scalar() for x in points]
    return rows + [Row(f"{name} #{k}", f, x) for name, f, points in _vector() for k, x in enumerate(points)]


def wrong_versions(right: np.ndarray, sizes: tuple[float, ...]) -> dict[str, np.ndarray]:
    """Return Jacobians with one planted error each, where that changes anything of note."""
    wrong: dict[str, np.ndarray] = {}
    biggest = np.unravel_index(np.argmax(np.abs(right)), right.shape)
    if right[biggest] == 0:
        return {"one": right + 1}
    for size in sizes:
        wrong[f"all by {size}"] = right * (1 + size)
        if right.size > 1:
            one = right.copy()
            one[biggest] *= 1 + size
            wrong[f"one by {size}"] = one
    wrong["sign"] = -right
    wrong["doubled"] = 2 * right
    wrong["zero"] = 0 * right
    wrong["not a number"] = right * np.nan
    row = right.copy()
    row[biggest[0]] *= 1.5
    wrong["one row"] = row
    if right.shape[0] == right.shape[1] and not np.allclose(right, right.T, rtol=0.05, atol=0):
        wrong["transposed"] = right.T.copy()
    return wrong


PRECISIONS = {p.name: p for p in (FLOAT64, FLOAT32, FLOAT16, BFLOAT16)}
