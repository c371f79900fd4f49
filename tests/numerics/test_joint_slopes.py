"""Gradients at ties, by NumPy alone: what lies in the hull of a function's pieces, and what doesn't."""

from __future__ import annotations

import numpy as np

from gradcheck_cli.numerics import FLOAT64
from gradcheck_cli.numerics.joint_slopes import (
    Claims,
    Neighbourhood,
    Place,
    judge_rows,
    nearest_to_zero,
)


def neighbourhood(function, point, **room):
    x = np.asarray(point, dtype=float)
    rows = function(x[None]).shape[1]
    return Neighbourhood(
        evaluate=function,
        point=x,
        scale=np.where(x != 0, np.abs(x), 1.0),
        below=room.get("below", np.full(x.size, np.inf)),
        above=room.get("above", np.full(x.size, np.inf)),
        unit=np.full(rows, 2.0**-53),
        input_unit=2.0**-53,
        round=np.asarray,
        reach=FLOAT64.pieces,
        generator=np.random.default_rng(0),
    )


def places(function, point, gradient):
    near = neighbourhood(function, point)
    own = np.reshape(gradient, (near.unit.size, near.point.size)) * near.scale
    every = np.arange(near.point.size)
    claims = Claims(
        rows=np.arange(len(own)),
        slopes_along=lambda directions: directions @ own.T,
        allowed=lambda sizes: sizes @ (1e-6 * np.abs(own) + 1e-10).T,
        involved=lambda number: (every, own[number]),
        widest=every.size,
    )
    return {Place(place).name for place in judge_rows(near, claims, np.eye(every.size)).place}


def largest(points):
    return points.max(axis=1, keepdims=True)


def size(points):
    return np.linalg.norm(points, axis=1, keepdims=True)


def test_of_a_smooth_function_nothing_is_said():
    assert places(lambda points: np.sin(points).sum(axis=1, keepdims=True), [0.3, 0.7], [9, 9]) == {"SMOOTH"}


def test_ends_keep_to_the_domain():
    seen = []

    def function(points):
        seen.append(points)
        return largest(points)

    near = neighbourhood(function, np.ones(3), below=np.zeros(3))
    near.find_pieces(near.generator.standard_normal((5, 3)), np.eye(3), np.arange(1))
    assert np.concatenate(seen).min() >= 1
    assert np.concatenate(seen).max() > 1


def test_hulls_that_hold_zero_and_those_that_do_not():
    square = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]) * 1e6
    hulls = np.stack([square + np.array([right, 0.0]) for right in (0.0, 2e6, 1e6 - 0.5)])
    nearest, bound = nearest_to_zero(hulls, np.ones((3, 4), dtype=bool))
    assert np.abs(nearest[[0, 2]]).max() <= 1
    assert bound[1] > 5
    assert bound[0] <= 0
