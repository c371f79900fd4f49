"""Random probes on functions with known Jacobians: no alarm where all is right; else an alarm, and where."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.numerics import FLOAT64, rule_for
from gradcheck_cli.numerics.probes import (
    LONG,
    MIDDLE,
    SHORT,
    Span,
    Target,
    bisect_input,
    bisect_output,
    compare,
    count_unseen,
    draw_direction,
    take_difference,
)
from gradcheck_cli.numerics.problem import draw_signed, typical_size

N = 3000


class Linear:
    """y = A x with a banded A of three elements a row, and its vjp; errors can be planted in the vjp."""

    def __init__(self, seed=0, decades=0.0):
        generator = np.random.default_rng(seed)
        self.values = generator.normal(size=(N, 3))
        self.values *= 10.0 ** np.linspace(0, decades, N)[:, None]
        self.columns = (np.arange(N)[:, None] + [0, 7, 40]) % N
        self.wrong = {}

    def forward(self, x):
        return (self.values * x[self.columns]).sum(axis=1)

    def pull(self, upstream):
        gradient = np.bincount(self.columns.ravel(), (upstream[:, None] * self.values).ravel(), N)
        for (row, column), error in self.wrong.items():
            gradient[column] += upstream[row] * error
        return gradient


def target(forward, pull, point, *, precision=FLOAT64, low=-np.inf, high=np.inf):  # noqa: PLR0913
    point = precision.round(np.asarray(point, dtype=np.float64))
    return Target(
        evaluate=lambda x: precision.round(forward(x)),
        pull=pull,
        point=point,
        base=precision.round(forward(point)),
        spans=[Span(point.size, typical_size(point, None), precision, low, high)],
        unit=precision.unit_roundoff,
        working=precision,
        rule=rule_for(FLOAT64, FLOAT64),
    )


def probed(aim, seed=1, reach=MIDDLE):
    generator = np.random.default_rng(seed)
    differenced = take_difference(draw_direction(aim, generator, reach))
    return differenced, compare(differenced, draw_signed(generator, aim.base.size) * differenced.weight)


POINT = np.random.default_rng(9).normal(size=N)
RIGHT = {
    "tanh": (np.tanh, lambda u: u * (1 - np.tanh(POINT) ** 2)),
    "relu": (lambda x: np.maximum(x, 0), lambda u: u * (POINT > 0)),
    "abs": (np.abs, lambda u: u * np.sign(POINT)),
    "sum of squares": (lambda x: np.array([x @ x]), lambda u: 2 * u[0] * POINT),
    "cumsum": (np.cumsum, lambda u: np.cumsum(u[::-1])[::-1]),
    "reverse": (lambda x: x[::-1], lambda u: u[::-1]),
    "1e-200": (lambda x: 1e-200 * x, lambda u: 1e-200 * u),
    "1e200": (lambda x: 1e200 * x, lambda u: 1e200 * u),
    "half dead": (lambda x: np.where(POINT > 0, 0.0, x), lambda u: np.where(POINT > 0, 0.0, u)),
    "sort": (np.sort, lambda u: u[np.argsort(np.argsort(POINT))]),
    "constant": (lambda _: np.ones(5), lambda _: np.zeros(N)),
    "exp of large": (lambda x: np.exp(20 * x), lambda u: u * 20 * np.exp(20 * POINT)),
}


@pytest.mark.parametrize("reach", [SHORT, MIDDLE, LONG])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_vjp_raises_no_alarm(name, reach):
    aim = target(*RIGHT[name], POINT)
    for seed in range(5):
        differenced, probe = probed(aim, seed, reach)
        # Where more rows than these are unusable, a shorter step is taken instead.
        assert not probe.is_alarm or differenced.is_unusable.mean() > 0.01, (seed, probe.error, probe.bound)


@pytest.mark.parametrize("decades", [0.0, 12.0])
@pytest.mark.parametrize("share", [1.0, 0.01, 1e-4])
def test_one_wrong_element_is_found_and_located(share, decades):
    op = Linear(decades=decades)
    generator = np.random.default_rng(4)
    for _ in range(10):
        row, slot = int(generator.integers(N)), int(generator.integers(3))
        column = int(op.columns[row, slot])
        op.wrong = {(row, column): share * op.values[row, slot]}
        differenced, probe = probed(target(op.forward, op.pull, POINT))
        if abs(op.values[row, slot]) < 0.05 * abs(op.values[row]).max():
            continue  # as much smaller than its row as the error is than it
        assert probe.is_alarm
        assert bisect_input(differenced, probe) == column
        assert bisect_output(differenced, probe, column) == row


def test_what_is_said_to_be_missed_is_missed():
    """The estimate against the truth: elements of the matrix, one by one, at a size that some show at."""
    op = Linear()
    op.values *= 10.0 ** np.random.default_rng(2).uniform(-4, 0, op.values.shape)
    aim = target(op.forward, op.pull, POINT)
    generator = np.random.default_rng(3)
    differenced = take_difference(draw_direction(aim, generator))
    upstream = draw_signed(generator, N) * differenced.weight
    plain = compare(differenced, upstream)
    size = 1e-5
    missed = []
    for row in range(0, N, 7):
        for slot in range(3):
            op.wrong = {(row, int(op.columns[row, slot])): size * op.values[row, slot]}
            missed.append(not compare(differenced, upstream).is_alarm)
    op.wrong = {}
    unseen = count_unseen(differenced.direction, plain, size, slice(0, N), generator)
    truth = np.mean(missed)
    assert 0.05 < truth < 0.95
    # What is stated may only err upwards, but for chance.
    assert truth - 0.05 <= unseen.hidden[0] / unseen.seen[0] <= truth + 0.25


def test_rows_at_a_kink_are_left_out_of_both_sides():
    point = POINT.copy()
    point[:5] = 0.0
    differenced, probe = probed(target(np.abs, lambda u: u * np.sign(point), point))
    assert differenced.is_unusable[:5].all()
    assert not differenced.is_unusable[5:].any()
    assert (probe.upstream[:5] == 0).all()
    assert not probe.is_alarm


def test_a_curve_is_no_kink():
    """Near its minimum a parabola's two sides differ by more than it moves; so do a kink's, at every step."""
    point = np.where(np.arange(N) % 2 == 0, 1.0, 1e-9)
    differenced, _ = probed(target(np.square, lambda u: 2 * u * point, point))
    assert not differenced.is_unusable.any()


def test_no_point_leaves_the_bounds():
    low, high = POINT.min(), POINT.max()

    def forward(x):
        assert (x >= low).all()
        assert (x <= high).all()
        return x

    _, probe = probed(target(forward, lambda u: u, POINT, low=low, high=high), reach=LONG)
    assert not probe.is_alarm


def test_signed_magnitudes_lie_between_a_half_and_one():
    drawn = draw_signed(np.random.default_rng(0), 10_000)
    assert np.abs(drawn).min() >= 0.5
    assert np.abs(drawn).max() <= 1.0
    assert abs(np.sign(drawn).mean()) < 0.05
