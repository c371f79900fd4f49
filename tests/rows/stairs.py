"""Staircases and sawteeth of arrays; and ramps and curves, which are none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.support.row import Row, in_precision, marked

# Near pi / 2, where a cosine's risers vanish, and elsewhere.
POINT = np.array([0.51, 0.93, 1.21, 1.552, 1.5598])
STEP = 1e-4


def rounds(per_unit):
    return lambda x: np.round(per_unit * x) / per_unit


def floors(per_unit):
    return lambda x: np.floor(per_unit * x) / per_unit


def identity(x):
    return x


# Each function takes what rounds; the smooth one that is meant has the identity there.
TREADS = {
    "times_cos": lambda x, r: r(x) * np.cos(x),
    "plus_sin": lambda x, r: r(x) + np.sin(3 * x),
    "cos_of_it": lambda x, r: np.cos(r(x)) * x,
    "swish": lambda x, r: x * r(1 / (1 + np.exp(-x))),
    "kaiser": lambda x, r: np.i0(4 * np.sqrt(1 - (x - 0.1 * r(x)) ** 2 / 9)) * np.sin(r(x)),
    "polynomial": lambda x, r: 1 + r(x) * (x + 0.3 * x * x),
    "exp": lambda x, r: np.exp(-x) * r(x * x),
    "remainder": lambda x, r: (x - r(x)) * np.cos(x) + r(x),
}
ROUNDINGS = {
    "round": rounds(1024.0),
    "floor": floors(1000.0),
    "coarse": rounds(32.0),
    "int8": rounds(127.0),
}
SMOOTH = {
    "cos": lambda x: x * np.cos(x),
    "wiggle": lambda x: x + 1e-3 * np.sin(500 * x),
    "fast": lambda x: np.sin(60 * x) * np.cos(x),
    "kinks": lambda x: np.maximum(x - 0.5, 0) * np.cos(x) + np.maximum(x - 1, 0) + np.maximum(1.3 - x, 0),
    "triangle": lambda x: np.abs(np.mod(20 * x, 2) - 1) * np.cos(x),
    "one_step": lambda x: np.where(x > 1, x, 0) + x * np.cos(x),
    "small_step": lambda x: np.where(x > 1, 1e-3, 0) + x * np.cos(x),
    "box": lambda x: np.where((x > 0.45) & (x < 1.65), x, 0) * np.cos(x),
    "two_steps": lambda x: (np.where(x > 0.7, 0.1, 0) + np.where(x > 1.1, 0.1, 0)) * np.cos(x) + x * x,
    "large": lambda x: 1e3 + x * np.cos(x),
    "clipped": lambda x: np.clip(x, 0.39, 1.61) * np.cos(x),
    "spline": lambda x: np.where(x < 0.8, x * x, 1.6 * x - 0.64) * np.cos(x),
}


def slope_of(function):
    """Return the slope by Richardson's extrapolation, far closer than 1e-6."""
    far, near = ((function(POINT + step) - function(POINT - step)) / (2 * step) for step in (STEP, STEP / 2))
    return (4 * near - far) / 3


RAMPS = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: x > 0),
    "relu6": (lambda x: np.clip(x, 0, 6), lambda x: (x > 0) & (x < 6)),
    "clip": (lambda x: np.clip(x, -1, 1), lambda x: abs(x) < 1),
    "soft threshold": (lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0), lambda x: abs(x) > 0.5),
    "hinge": (lambda x: -np.maximum(1 - x, 0), lambda x: x < 1),
    "hard sigmoid": (lambda x: np.clip(x + 0.5, 0, 1), lambda x: abs(x) < 0.5),
    "squared hinge": (lambda x: np.maximum(x - 1, 0) ** 2 / 2, lambda x: np.maximum(x - 1, 0)),
    "a relu's slope": (lambda x: np.where(x > 0, 2.5, 0), lambda x: 0 * x),
    "a clip's slope": (lambda x: np.where(abs(x) < 1, 2.5, 0), lambda x: 0 * x),
    "hard shrink": (lambda x: np.where(abs(x) > 0.5, x, 0), lambda x: abs(x) > 0.5),
}
STAIRS = {
    "32nds": lambda x: np.round(x * 32) / 32,
    "64ths": lambda x: np.floor(x * 64) / 64,
    "thousandths": lambda x: np.round(x * 1000) / 1000,
    "float16": lambda x: x.astype(np.float16).astype(float),
    "1e-6": lambda x: np.rint(x * 1e6) / 1e6,
}
SAWTEETH = {
    "remainder": lambda x: np.mod(x, 3.0),
    "fraction": lambda x: x - np.floor(x),
    "angle": lambda x: np.mod(x + np.pi, 2 * np.pi) - np.pi,
    "of rounding": lambda x: (x + 2.0**52) - 2.0**52 - x,
}


def _with_sloping_treads() -> Iterator[Row]:
    for name, treads in TREADS.items():
        meant = slope_of(partial(treads, r=identity))
        for rounding, rounded in ROUNDINGS.items():
            op = in_precision(partial(treads, r=rounded))
            yield Row(f"{name} {rounding}", op, np.diag(meant), POINT, "open", at="diagonal")
            if name in FAR_FROM_ANY:
                yield Row(f"{name} {rounding}, -6 times", op, np.diag(-6 * meant), POINT, "wrong")
    for name, smooth in SMOOTH.items():
        op, right = in_precision(smooth), slope_of(smooth)
        yield Row(name, op, np.diag(right), POINT, "right")
        for factor in (1.01, 0.5, -1.0):
            gradient = np.diag(factor * right)
            yield Row(f"{name}, {factor:g} times", op, gradient, POINT, "wrong", at="diagonal")


def _with_flat_treads() -> Iterator[Row]:
    point = np.random.default_rng(1).normal(size=40)
    for name, stairs in STAIRS.items():
        for factor, truth in ((0.0, "undecidable"), (1.0, "undecidable"), (2.0, "not green")):
            yield Row(f"{name} {factor:g}", in_precision(stairs), factor * np.eye(40), point, truth)


def _ramps() -> Iterator[Row]:
    for name, (ramp, slope) in RAMPS.items():
        for seed in range(6):
            point = np.random.default_rng(seed).normal(size=400)
            gradient = np.diag(np.asarray(slope(point), float))
            yield Row(f"{name} {seed}", in_precision(ramp), gradient, point, "right")


def _teeth() -> Iterator[Row]:
    point = np.random.default_rng(2).uniform(100, 200, 8)
    for name, teeth in SAWTEETH.items():
        op, tread = in_precision(teeth), -1.0 if name == "of rounding" else 1.0
        # The teeth may be those of a constant. Else they hide the slope of their climb alone.
        yield Row(f"{name} 0", op, np.zeros((8, 8)), point, "undecidable")
        for factor in (-1.0, 0.5, 0.98, 1.1, 2.0, 3.0):
            gradient = factor * tread * np.eye(8)
            yield Row(f"{name} {factor:g}", op, gradient, point, "wrong")


FAR_FROM_ANY = ("times_cos", "plus_sin", "remainder", "exp")  # no stairs explain -6 times the slope
ROWS = marked(
    (*_with_sloping_treads(), *_with_flat_treads(), *_ramps(), *_teeth()),
    "64ths 1",
    "box, 0.5 times",
    "fraction 2",
    "of rounding 0.5",
)
