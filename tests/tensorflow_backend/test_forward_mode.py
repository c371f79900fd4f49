"""Forward mode as a third reference: what it settles, and what it must never settle."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.results import Status

# Differences have no room to settle here, though there is a derivative.
NARROW = {"x": {"value": [1.0], "domain": {"low": 1.0, "high": 1.00000000001}}}


def root(slope=0.5, *, stop=False):
    def function(x):
        @tf.custom_gradient
        def inner(x):
            body = tf.stop_gradient(x) if stop else x
            return tf.sqrt(body), lambda upstream: upstream * tf.cast(slope / tf.sqrt(x), x.dtype)

        return inner(x)

    return function


def verdict(run, forward, mode="eager", **more):
    (pair,) = run(forward=forward, inputs=NARROW, modes=[mode], **more).pairs
    return pair.status, pair.judged_by.method


def test_it_settles_what_differences_can_not(run):
    assert verdict(run, root(), "graph")[0] is Status.INCONCLUSIVE
    assert verdict(run, root()) == (Status.PASSED, "forward_mode")


@pytest.mark.on_change("nan")
@pytest.mark.parametrize("slope", [0.5003, -0.5, 0.0, np.nan])
def test_never_what_is_wrong(run, slope):
    assert verdict(run, root(slope))[0] in (Status.INCONCLUSIVE, Status.MISMATCHED)


@pytest.mark.parametrize("slope", [0.5, 0.5003])
def test_nor_by_a_body_that_stops_its_own_gradient(run, slope):
    assert verdict(run, root(slope, stop=True))[0] is Status.INCONCLUSIVE


def test_nor_where_the_gradients_are_those_that_are_checked(run):
    assert verdict(run, tf.sqrt)[0] is Status.INCONCLUSIVE


def test_nor_a_surrogate(run):
    assert verdict(run, root(), reference=tf.sqrt)[0] is Status.INCONCLUSIVE


def test_nor_a_jump(run):
    @tf.custom_gradient
    def step(x):
        return tf.where(x > 1.0, x + 1.0, x), lambda upstream: upstream

    (pair,) = run(forward=step, inputs={"x": {"value": [1.0]}}, modes=["eager"]).pairs
    assert pair.status is not Status.PASSED


def test_inside_a_tf_function_too(run):
    function = tf.function(root())
    assert verdict(run, function) == (Status.PASSED, "forward_mode")
    assert verdict(run, tf.function(root(0.51)))[0] is Status.INCONCLUSIVE


def test_a_variable(run):
    def make():
        weight = tf.Variable([2.0], dtype=tf.float64, name="weight")

        @tf.custom_gradient
        def scale(x):
            def grad(upstream, variables):
                (own,) = variables
                return upstream * own, [tf.reduce_sum(upstream * x, keepdims=True)]

            return x * weight, grad

        return scale

    result = run(forward=make, build={}, inputs=NARROW, modes=["eager"], variables=True)
    assert {pair.label: (pair.status, pair.judged_by.method) for pair in result.pairs} == {
        "dy/dx": (Status.PASSED, "forward_mode"),
        "dy/dweight": (Status.PASSED, "central"),
    }


def test_tensorflows_forward_mode_takes_no_notice_of_a_custom_gradient_eagerly():
    """What all of this relies on."""
    x = tf.constant([4.0], tf.float64)
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
        y = root(7.0)(x)
    assert forward.jvp(y).numpy() == pytest.approx([0.25])
