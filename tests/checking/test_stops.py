"""Stops of which nobody says whether they are meant: which verdicts they leave open, and what is said."""

from __future__ import annotations

import numpy as np

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import Status
from tests.support.numpy_op import Numpy, check

POINT = np.array([0.5, -1.25, 2.0])
ONE = {"slow": "ops.py:12"}


def slow(x):
    return 1 / (1 + np.exp(-x))


def whole(upstream, x):
    return upstream * (slow(x) + x * slow(x) * (1 - slow(x)))


def held(upstream, x):
    return upstream * slow(x)


def swish(gradient, stops=None, points=POINT, hold=None, **facts):
    """x slow(x), where `slow` may be held; any other stop is idle."""

    def with_held(keys):
        if "slow" not in keys:
            return forward
        return lambda x: x * slow(points.astype(x.dtype))

    def forward(x):
        return x * slow(x)

    facts = {"stops": {(0, 0): ONE if stops is None else stops}, "held": hold or with_held, **facts}
    return Numpy(forward, gradient, {"x": points}, facts=facts)


def pair_of(op, **changes):
    (pair,) = check(op, **changes).pairs
    return pair


def test_those_that_only_work_together_are_all_named():
    def with_held(keys):
        return (lambda x: x * slow(POINT)) if {"slow", "too"} <= keys else (lambda x: x * slow(x))

    pair = pair_of(swish(held, {**ONE, "too": "ops.py:13"}, hold=with_held))
    assert pair.message.startswith("stop_gradients at ops.py:12 and ops.py:13 change this derivative")
    assert pair.message.endswith("if they are meant, say so: 'freeze: true'.")


def test_nothing_is_held_where_nothing_is_in_doubt():
    def with_held(keys):
        raise AssertionError(keys)

    assert pair_of(swish(whole, hold=with_held)).status is Status.PASSED
    assert pair_of(swish(held, {}, hold=with_held)).status is Status.MISMATCHED
    assert pair_of(swish(held, hold=with_held), freeze=False).status is Status.MISMATCHED


def test_one_that_cant_be_held_after_all_leaves_a_mismatch_open():
    def with_held(keys):
        raise CaseFailedError("forward", f"no way to hold {', '.join(keys)}.")

    pair = pair_of(swish(held, hold=with_held))
    assert pair.status is Status.INCONCLUSIVE
    assert pair.message == (
        "a stop_gradient at ops.py:12 may change this derivative, and it can't be held to tell: no way to "
        "hold slow."
    )
