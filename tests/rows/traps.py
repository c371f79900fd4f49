"""Functions of arrays with an element that traps numeric derivatives: kinks, jumps, noise, scale."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradcheck_cli.numerics import FLOAT32, FLOAT64
from tests.support.row import Row, in_precision, marked


def relu(x):
    return np.maximum(x - 1, 0)


def huber(x):
    return np.where(np.abs(x) <= 1, x * x / 2, np.abs(x) - x.dtype.type(0.5))


def almost_tied(x):
    return np.maximum(x, 1 + 40 * np.finfo(x.dtype).eps)


def half_inside(x):
    return (x.astype(np.float16) * 2).astype(x.dtype)


def root(x):  # 2 sinh(x / 2), bitwise flat next to 0
    return np.sign(x) * np.sqrt(2 * (np.cosh(x) - 1))


def cube_root(x):  # x, flat in still more of its neighbourhood
    return np.cbrt((1 + x**3) - 1)


def dead_zone(x):
    return np.sign(x) * np.maximum(np.abs(x) - np.sqrt(np.finfo(x.dtype).eps), 0)


E = float(np.e)
SINGLE = {
    # Kinks: right between both slopes, and only there.
    "|x| at 0, a slope": (np.abs, 0.0, 1.0, "at a kink"),
    "|x| at 0, between": (np.abs, 0.0, 0.3, "at a kink"),
    "|x| at 0, beyond": (np.abs, 0.0, 1.2, "wrong"),
    "|x| at 0, nan": (np.abs, 0.0, np.nan, "wrong"),
    "relu at its kink, 0": (relu, 1.0, 0.0, "at a kink"),
    "relu at its kink, 1": (relu, 1.0, 1.0, "at a kink"),
    "relu at its kink, -1": (relu, 1.0, -1.0, "wrong"),
    "relu near its kink": (relu, 1.0078125, 1.0, "right"),
    "relu near its kink, 1 % off": (relu, 1.0078125, 1.01, "wrong"),
    "relu, dead near its kink": (relu, 0.9921875, 0.0, "right"),
    "relu, dead, leaking": (relu, 0.9921875, 0.01, "wrong"),
    "bent kink": (lambda x: np.exp(x) * np.abs(x - 1), 1.0, E, "at a kink"),
    "bent kink, 2 % off": (lambda x: np.exp(x) * np.abs(x - 1), 1.0, 1.02 * E, "wrong"),
    "tie 40 ulp away, this side": (almost_tied, 1.0, 0.0, "at a kink"),
    "tie 40 ulp away, other side": (almost_tied, 1.0, 1.0, "at a kink"),
    # Once differentiable.
    "huber at its seam": (huber, 1.0, 1.0, "right"),
    "huber at its seam, 2 % off": (huber, 1.0, 1.02, "wrong"),
    "x|x| at 0, off": (lambda x: x * np.abs(x), 0.0, 0.1, "wrong"),
    "|x|^1.5 at 0": (lambda x: np.abs(x) ** 1.5, 0.0, 0.0, "right"),
    # Stationary points, where tolerances relative to the slope are zero.
    "x^2 at 0": (lambda x: x * x, 0.0, 0.0, "right"),
    "x^2 at 0, off": (lambda x: x * x, 0.0, 0.01, "wrong"),
    "x^3 at 0": (lambda x: x * x * x, 0.0, 0.0, "right"),
    "cos at 0": (np.cos, 0.0, 0.0, "right"),
    "cos at 0, rounding": (np.cos, 0.0, 1e-17, "right"),
    # Jumps, before noise: with noise first, any gradient passed at floor of an integer.
    "floor at 2, 0": (np.floor, 2.0, 0.0, "open"),
    "floor at 2, 1": (np.floor, 2.0, 1.0, "open"),
    "sign at 0": (np.sign, 0.0, 0.0, "open"),
    "sign off 0": (np.sign, 1.7, 1.0, "wrong"),
    "jump some way off": (lambda x: np.where(x > 1, x * x, x / 2), 0.8, 0.5, "right"),
    "jump some way off, wrong": (lambda x: np.where(x > 1, x * x, x / 2), 0.8, 0.6, "wrong"),
    # Staircases.
    "floor off its steps": (np.floor, 2.3, 0.0, "right"),
    "floor off its steps, straight through": (np.floor, 2.3, 1.0, "open"),
    "rounding, straight through": (lambda x: np.round(x * 32) / 32, 1.2345, 1.0, "open"),
    "half inside, zero": (half_inside, 1.2345, 0.0, "open"),
    # Flat beside the point, since terms cancel: the flat part is a tread, whose edges are jumps.
    "root of what cancels": (root, 0.0, 1.0, "right"),
    "root of what cancels, zero": (root, 0.0, 0.0, "open"),
    "root of what cancels, doubled": (root, 0.0, 2.0, "wrong"),
    "root of what cancels, half": (root, 0.0, 0.5, "wrong"),
    "root of what cancels, nan": (root, 0.0, np.nan, "wrong"),
    "root of what cancels and 3": (lambda x: root(x) + 3, 0.0, 1.0, "right"),
    "root of what cancels and 3, zero": (lambda x: root(x) + 3, 0.0, 0.0, "open"),
    "root of what cancels at 1": (lambda x: root(x - 1), 1.0, 1.0, "right"),
    "root of what cancels at 1, zero": (lambda x: root(x - 1), 1.0, 0.0, "open"),
    "cube root of what cancels": (cube_root, 0.0, 1.0, "right"),
    "cube root of what cancels, zero": (cube_root, 0.0, 0.0, "open"),
    "dead zone": (dead_zone, 0.0, 0.0, "right"),
    "dead zone, 1 % of its slope": (dead_zone, 0.0, 0.01, "wrong"),
    # Singular points.
    "sqrt at 0": (np.sqrt, 0.0, np.inf, "open"),
    "cbrt at 0": (np.cbrt, 0.0, np.inf, "open"),
    "log at 0": (np.log, 0.0, np.inf, "open"),
    # Non-finite values never pass.
    "nan for a slope": (np.exp, 1.0, np.nan, "wrong"),
    "inf for a slope": (np.exp, 1.0, np.inf, "wrong"),
    "nan forward": (lambda x: x * x.dtype.type(np.nan), 1.0, np.nan, "open"),
    "nan forward, zero": (lambda x: x * x.dtype.type(np.nan), 1.0, 0.0, "open"),
    # Saturation and scale.
    "tanh saturated": (np.tanh, 20.0, 0.0, "right"),
    "tanh saturated, exact": (np.tanh, 20.0, 4 * np.exp(-40.0), "right"),
    "sigmoid far out": (lambda x: 1 / (1 + np.exp(-x)), -30.0, np.exp(-30.0), "right"),
    "sigmoid far out, doubled": (lambda x: 1 / (1 + np.exp(-x)), -30.0, 2 * np.exp(-30.0), "wrong"),
    "1e-30": (lambda x: np.sin(x) * x.dtype.type(1e-30), 1.0, 1e-30 * np.cos(1), "right"),
    "1e-30, 1 % off": (lambda x: np.sin(x) * x.dtype.type(1e-30), 1.0, 1.01e-30 * np.cos(1), "wrong"),
    "1e-9, zero": (lambda x: np.sin(x) * x.dtype.type(1e-9), 1.0, 0.0, "wrong"),
    "constant": (lambda x: 0 * x + 3, 1.0, 0.0, "right"),
    "constant, off": (lambda x: 0 * x + 3, 1.0, 0.1, "wrong"),
}


POLE = 1 / np.cos(1.57) ** 2
DECADES = 10.0 ** -np.arange(13)
SMALL = np.array([1e-8, 1.0])


def ripple(x):  # no noise, though it is as fine
    return x + x.dtype.type(1e-4) * np.sin(x.dtype.type(1e5) * x)


def noisy(size):
    def function(x):
        seeds = [abs(hash(row.tobytes())) % 2**32 for row in x]
        factor = np.array([1 + size * np.random.default_rng(seed).standard_normal() for seed in seeds])
        return (np.sin(x) * factor[:, None]).astype(x.dtype)

    return function


def largest(x):
    return x.max(axis=-1, keepdims=True)


def beside_nan(x):
    return np.concatenate([x, x * np.nan], axis=-1)


def decades(x):
    return x * DECADES.astype(x.dtype)


# A function, a point, a Jacobian or its diagonal, what is true, of which element, and what else is known.
SEVERAL = {
    "ripple": (ripple, [0.5], [1 + 10 * np.cos(5e4)], "undecidable", "", {}),
    "log of 1e-8 beside 1": (np.log, SMALL, 1 / SMALL, "right", "", {}),
    "log of 1e-8 beside 1, 2 % off": (np.log, SMALL, [1.02, 1] / SMALL, "wrong", "0,0 diagonal", {}),
    "log of 1e-8 beside 1, with an end": (np.log, SMALL, 1 / SMALL, "right", "", {"low": 0.0}),
    "twelve decades": (decades, np.ones(13), DECADES, "right", "", {}),
    "twelve decades, the last 1 % off": (
        decades,
        np.ones(13),
        DECADES * [*np.ones(12), 1.01],
        "wrong",
        "12,12 diagonal",
        {},
    ),
    "maximum of a tie, shared": (largest, [1, 1, 0.5], [[0.5, 0.5, 0]], "at a kink", "", {}),
    "maximum of a tie, too much": (largest, [1, 1, 0.5], [[1.5, 0.5, 0]], "wrong", "0,0 diagonal", {}),
    "exp at its end": (np.exp, [1.0], [E], "right", "", {"high": 1.0}),
    "exp at its end, 2 % off": (np.exp, [1.0], [1.02 * E], "wrong", "", {"high": 1.0}),
    "sqrt near its end": (np.sqrt, [1e-6], [500.0], "right", "", {"low": 0.0}),
    "beside what isn't finite": (beside_nan, [1.0], [[1.0], [0.0]], "open", "", {}),
}
IN_FLOAT64 = {
    "ripple, without it": (ripple, [0.5], [1.0], "wrong", "", {}),
    "tan near its pole": (np.tan, [1.57], [POLE], "right", "", {}),
    "tan near its pole, slightly off": (np.tan, [1.57], [POLE * (1 + 1e-4)], "wrong", "", {}),
    "a slope below the first pass": (lambda x: 1 + 1e-12 * x, [1.0], [0.0], "not green", "", {}),
    "squares eighteen orders apart": (
        np.square,
        [1e-8, 1e8, 2.0],
        [2.02e-8, 2e8, 4.0],
        "wrong",
        "0,0 diagonal",
        {},
    ),
}
for size in (1e-13, 1e-10, 1e-8, 1e-5, 1e-3):
    right, wrong = ("right", "wrong") if size < 1e-6 else ("undecidable", "not green")
    IN_FLOAT64[f"noise of {size:g}"] = (noisy(size), [1.0], [np.cos(1)], right, "", {})
    for factor in (1.05, -1.0):
        IN_FLOAT64[f"noise of {size:g}, times {factor:g}"] = (
            noisy(size),
            [1.0],
            [factor * np.cos(1)],
            wrong,
            "",
            {},
        )


def _rows() -> Iterator[Row]:
    for precision, table in ((FLOAT64, SEVERAL | IN_FLOAT64), (FLOAT32, SEVERAL)):
        for name, (function, at, slopes, truth, where, known) in table.items():
            op, point = in_precision(function, precision), precision.round(np.array(at, float))
            jacobian = np.diag(slopes) if np.ndim(slopes) < 2 else np.array(slopes)
            keys = {"precision": precision, **known}
            name = f"{name} {precision.name}"  # noqa: PLW2901
            yield Row(name, op, jacobian, point, truth, at=where, keys=keys, on_change=True)
    for precision in (FLOAT64, FLOAT32):
        for name, (function, at, slope, truth) in SINGLE.items():
            op, point = in_precision(function, precision), precision.round(np.array([at]))
            keys = {"precision": precision}
            yield Row(
                f"{name} {precision.name}", op, np.array([[slope]]), point, truth, keys=keys, on_change=True
            )


ROWS = marked(_rows())  # all of which take milliseconds
