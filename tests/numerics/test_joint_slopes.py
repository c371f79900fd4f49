"""Gradients at ties, by NumPy alone: what lies in the hull of a function's pieces, and what doesn't."""

from __future__ import annotations

import numpy as np
import pytest

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


def ordered(points):
    return np.sort(points, axis=1)


def size(points):
    return np.linalg.norm(points, axis=1, keepdims=True)


def distance(points):
    return np.abs(points[:, :1] - points[:, 1:])


def saddle(points):
    """A difference of maxima, neither convex nor concave."""
    return np.maximum(points[:, :1], points[:, 1:2]) - np.maximum(points[:, 2:3], np.sin(points[:, 3:4]))


def median(points):
    return np.median(points, axis=1)[:, None]


RIGHT = {
    "maximum, shared": (largest, np.ones(5), np.full(5, 0.2)),
    "maximum, first": (largest, np.ones(5), np.eye(5)[0]),
    "sorted": (ordered, np.zeros(6), np.eye(6)),
    "sorted, in reverse": (ordered, np.zeros(6), np.eye(6)[::-1]),
    "sorted, shared": (ordered, np.zeros(4), np.full((4, 4), 0.25)),
    "sorted, many": (ordered, np.full(12, 0.3), np.eye(12)),
    "norm, zero": (size, np.zeros(3), np.zeros(3)),
    "norm, on the edge": (size, np.zeros(3), [0.6, 0, -0.8]),
    "norm, inside": (size, np.zeros(3), [0.3, 0.3, 0.3]),
    "distance": (distance, [0.4, 0.4], [0.3, -0.3]),
    "saddle": (saddle, np.zeros(4), [0.5, 0.5, -0.2, -0.8]),
    "median": (median, np.zeros(5), [0, 0, 1, 0, 0]),
    "median, shared": (median, np.zeros(5), np.full(5, 0.2)),
}
WRONG = {
    "maximum, full": (largest, np.ones(5), np.ones(5)),
    "maximum, none": (largest, np.ones(5), np.zeros(5)),
    "maximum, a hundredth less": (largest, np.ones(5), np.full(5, 0.198)),
    "maximum, a part in ten thousand": (largest, np.ones(5), np.full(5, 0.20002)),
    "sorted, full": (ordered, np.zeros(6), np.ones((6, 6))),
    "sorted, none": (ordered, np.zeros(6), np.zeros((6, 6))),
    "norm, ones": (size, np.zeros(3), np.ones(3)),
    "norm, one too long": (size, np.zeros(3), [0.7, 0, -0.8]),
    "distance, one sign": (distance, [0.4, 0.4], [1, 1]),
    "distance, once": (distance, [0.4, 0.4], [1, 0]),
    "saddle": (saddle, np.zeros(4), [0.5, 0.6, -0.2, -0.8]),
    "median": (median, np.zeros(5), np.zeros(5)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_shares_of_the_pieces_are_inside(name):
    assert places(*RIGHT[name]) == {"INSIDE"}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_piece_shares_in_is_outside(name):
    assert "INSIDE" not in places(*WRONG[name])
    assert "OUTSIDE" in places(*WRONG[name])


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
