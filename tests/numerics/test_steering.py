"""Steering reaches where a score is positive, along its slope: thresholds, bands, many conditions at once."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.numerics.steering import Steering

RNG = np.random.default_rng(0)
STARTS = RNG.standard_normal((8, 6))


def missing(margins):
    short = np.minimum(margins, 0).sum(axis=1)
    return np.where(short < 0, short, margins.min(axis=1))


SCORES = {
    "far": lambda x: x[:, 3] - 40.0,
    "narrow": lambda x: 1e-7 - np.abs(x[:, 1] - 0.7),
    "all": lambda x: missing(x * np.array([1, -1, 1, -1, 1, -1.0]) - 2.0),
    "curved": lambda x: 1e-6 - np.abs((x**2).sum(axis=1) - 9.0),
    "equal": lambda x: np.where(x[:, 0] == x[:, 5], 1.0, -np.abs(x[:, 0] - x[:, 5])),
    "constant": lambda x: np.where(x[:, 2] == 0.3, 1.0, -1.0),
    "stairs": lambda x: np.floor(x.max(axis=1)) - 2.5,
}


def scored(score, *needed):
    """Return what evaluates a score that needs some conditions."""

    def evaluate(points):
        guards = [guard(points) for guard in needed]
        is_there = np.all([guard > 0 for guard in guards], axis=0)
        return np.stack([np.where(is_there, score(points), -np.inf), *guards], axis=1)

    return evaluate


@pytest.mark.parametrize("name", SCORES)
def test_it_arrives(name):
    score = SCORES[name]
    steering = Steering(
        scored(score), lambda x: np.clip(x, -100, 100), np.ones(6), [0.3], np.random.default_rng(1)
    )
    steering.start(STARTS, scored(score)(STARTS))
    for number in range(12):
        steering.round(thorough=number > 2)
        if steering.score > 0:
            break
    assert steering.score > 0
    assert score(steering.best[None])[0] == steering.score


def test_bounds_are_kept():
    score = SCORES["far"]
    steering = Steering(scored(score), lambda x: np.clip(x, -3, 3), np.ones(6), [], np.random.default_rng(1))
    steering.start(STARTS, scored(score)(STARTS))
    for _ in range(6):
        steering.round(thorough=True)
    assert steering.score == pytest.approx(-37.0)
    assert np.abs(steering.best).max() <= 3


def test_what_a_score_needs_is_kept():
    # Straight down, the sum falls below nine long before x[0] does.
    evaluate = scored(lambda x: -3.0 - x[:, 0], lambda x: x.sum(axis=1) - 9.0, lambda x: 4.0 - x[:, 1])
    starts = np.full((1, 6), 1.6)
    steering = Steering(evaluate, lambda x: np.clip(x, -100, 100), np.ones(6), [], np.random.default_rng(1))
    steering.start(starts, evaluate(starts))
    assert steering.round()
    assert steering.score > 0
    assert (steering.guards > 0).all()
