"""What a case may cost: what is judged element by element, what is probed together, and what is left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradcheck_cli.checking.ops.analytic import find_costly_pairs
from gradcheck_cli.checking.ops.budget import Budget, OverBudgetError
from gradcheck_cli.checking.sample_point import listen_to_progress
from gradcheck_cli.results import Status
from tests.support.numpy_op import Numpy, check

RNG = np.random.default_rng(0)
POINT = {"x": RNG.normal(size=30), "w": RNG.normal(size=(30, 40)), "b": RNG.normal(size=40)}


class Clock:
    """A clock that evaluations move on, and nothing else: no test depends on the machine."""

    seconds = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(Clock, "seconds", 0.0)
    monkeypatch.setattr("gradcheck_cli.clock.now", lambda: Clock.seconds)


def layer(spoil=None, pause=0.0):
    """tanh(x w + b), and the sum of its squares; `spoil` is given the gradients of x, w and b."""

    def forward(x, w, b):
        Clock.seconds += pause
        y = np.tanh(x @ w + b)
        return y, np.sum(y**2)

    def pull(u, x, w, b):
        inner = u * (1 - np.tanh(x @ w + b) ** 2)
        found = [w @ inner, np.outer(x, inner), inner]
        return tuple(found if spoil is None else spoil(found))

    def of_sum(u, x, w, b):
        return pull(2 * u * np.tanh(x @ w + b), x, w, b)

    return Numpy(forward, (pull, of_sum), POINT, outputs=("y", "s"))


def statuses(found):
    return {pair.label: pair.status for pair in found.pairs}


def test_an_error_among_many_inputs_is_followed_to_its_element():
    def spoil(gradients):
        gradients[1] = gradients[1].copy()
        gradients[1][7, 11] *= 1.01
        return gradients

    found = check(layer(spoil, pause=2e-4), budget=2.0)
    wrong = [pair for pair in found.pairs if pair.status is Status.MISMATCHED]
    assert {pair.input for pair in wrong} == {"w"}
    assert {pair.numbers.worst.input_index for pair in wrong} == {(7, 11)}


def test_what_the_budget_leaves_unseen_is_never_green():
    def spoil(gradients):
        return [-gradients[0], -gradients[1], -gradients[2]]

    found = check(layer(spoil, pause=2e-3), budget=1e-3)
    assert Status.MISMATCHED in statuses(found).values()
    assert Status.PASSED not in statuses(found).values()
    told = [pair.message for pair in found.pairs if pair.status is Status.INCONCLUSIVE]
    assert told
    assert all("budget of 0.001 s" in message for message in told)


def test_the_smallest_inputs_are_judged_whole_first():
    op = layer(pause=1e-3)
    operations = op.operations()
    pairs = [(0, 0), (0, 1), (0, 2)]
    assert find_costly_pairs(operations, pairs, {}, np.inf) == set()
    # Three evaluations a column: 30 and 40 take 0.21 s, 1,200 take 3.6 s.
    assert find_costly_pairs(operations, pairs, {}, 1.5) == {(0, 1)}
    assert find_costly_pairs(operations, pairs, {}, 1e-6) == set(pairs)


def test_one_slow_call_on_a_busy_machine_makes_no_pair_costly():
    operations = layer(pause=1e-4).operations()
    # The call that traces, and the first that is timed: something else ran meanwhile.
    seconds = iter([0.0, 3.0])
    evaluate = operations.differenced.evaluate

    def evaluate_late(moved):
        Clock.seconds += next(seconds, 0.0)
        return evaluate(moved)

    operations = replace(operations, differenced=replace(operations.differenced, evaluate=evaluate_late))
    assert find_costly_pairs(operations, [(0, 0), (0, 1), (0, 2)], {}, 30.0) == set()
    assert next(seconds, None) is None  # both were made


def test_a_budget_ends_and_its_shares_end_before():
    budget = Budget(1e-9)
    Clock.seconds += 1.0
    assert budget.is_spent
    with pytest.raises(OverBudgetError):
        budget.require()
    long = Budget(100.0)
    Clock.seconds += 40.0
    assert not long.share(0.5).is_spent
    Clock.seconds += 20.0
    assert long.share(0.5).is_spent
    assert not long.is_spent
    assert long.share(0.5).seconds == 50.0
    assert not Budget().is_spent


def test_slow_points_are_evaluated_in_parts_between_which_the_time_is_looked_at():
    sizes = []

    def evaluate(points):
        sizes.append(len(points))
        Clock.seconds += 0.1 * len(points)
        return 2 * points

    limited = Budget(1.0).limit(evaluate)
    points = np.arange(6.0).reshape(6, 1)
    np.testing.assert_array_equal(limited(points[:1]), 2 * points[:1])
    np.testing.assert_array_equal(limited(points), 2 * points)
    assert sizes == [1, 2, 2, 2]
    with pytest.raises(OverBudgetError):
        limited(points)
    assert sizes == [1, 2, 2, 2, 2, 2]


def test_progress_is_told_to_who_listens_and_only_rises():
    told = []
    with listen_to_progress(told.append):
        check(layer())
    assert told == sorted(told)
    assert told
    assert 0 < told[0] < 1
    count = len(told)
    check(layer())
    assert len(told) == count
