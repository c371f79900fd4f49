"""The gradient's own gradient: what is checked of it, what can't be, and that the first order stays."""

from __future__ import annotations

import pytest
import tensorflow as tf

from gradcheck_cli.results import Status

X = {"x": {"shape": [3]}}
MODES = ["graph", "dynamic", "eager", "xla"]


def statuses(result):
    return {pair.label: str(pair.status) for pair in result.pairs}


def pair_of(result, label):
    return next(pair for pair in result.pairs if pair.label == label)


def check_of(result, name):
    return next(check for check in result.checks if check.name == name)


def product(x, w):
    return tf.tanh(x) * w * w


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", MODES)
def test_every_gradient_by_every_input_and_by_its_upstream(run, mode):
    result = run(
        forward=product, inputs={**X, "w": {"shape": [3]}}, second_order=True, modes=[mode], variables=False
    )
    labels = ["dy/dx", "dy/dw"]
    labels += [f"d2y/d{one}.d{other}" for one in "xw" for other in "xwu"]
    assert statuses(result) == dict.fromkeys(labels, "passed")
    assert [pair.order for pair in result.pairs] == [1, 1, *[2] * 6]
    assert check_of(result, "second_order.linearity").status is Status.PASSED


def test_of_several_outputs_each_has_its_own_upstream(run):
    result = run(
        forward=lambda x: (x * x, tf.exp(x), tf.argmax(x)),
        outputs=["a", "b", "i"],
        inputs=X,
        second_order=True,
    )
    assert list(statuses(result)) == [
        *("da/dx", "db/dx"),
        *("d2a/dx.dx", "d2a/dx.du", "d2b/dx.dx", "d2b/dx.du"),
    ]
    assert result.status is Status.PASSED


def make_scale():
    scale = tf.Variable([1.0, 2.0, 3.0], dtype=tf.float64, name="scale")
    return lambda x: tf.sin(x) * scale * scale


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", MODES)
def test_variables(run, mode):
    result = run(forward=make_scale, build={}, inputs=X, variables=True, second_order=True, modes=[mode])
    labels = ["dy/dx", "dy/dscale"] + [f"d2y/d{a}.d{b}" for a in ("x", "scale") for b in ("x", "u", "scale")]
    assert statuses(result) == dict.fromkeys(labels, "passed")


def numpy_gradient(x):
    @tf.custom_gradient
    def square(x):
        return x * x, lambda upstream: upstream * tf.numpy_function(lambda value: 2 * value, [x], tf.float64)

    return square(x)


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", ["graph", "dynamic", "eager"])
def test_where_numpy_lies_on_the_vjps_path_it_is_skipped(run, mode):
    result = run(forward=numpy_gradient, inputs=X, second_order=True, modes=[mode])
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "skipped", "d2y/dx.du": "passed"}
    assert "NumPy" in pair_of(result, "d2y/dx.dx").note
    assert result.status is Status.PASSED


def test_no_path_is_judged_like_any_other(run):
    result = run(forward=lambda x: 3 * x, inputs=X, second_order=True)
    second = pair_of(result, "d2y/dx.dx")
    assert (second.connected, second.status, second.note) == (False, Status.PASSED, "no path, and no slope")


def test_a_gradient_without_a_gradient_is_an_error_beside_what_was_found(run):
    @tf.custom_gradient
    def once(x):
        def grad(upstream):
            return upstream * tf.raw_ops.PreventGradient(input=2 * x, message="not twice")

        return x * x, grad

    result = run(forward=once, inputs=X, second_order=True)
    assert statuses(result) == {"dy/dx": "passed"}
    assert result.status is Status.ERROR
    assert "not twice" in check_of(result, "second_order").message


def test_where_every_gradient_is_none_it_is_skipped(run):
    for inputs in (X, {"x": {"value": [0.2, 0.4], "shape": [2]}}):
        result = run(
            forward=tf.round, inputs=inputs, second_order=True, pairs={"dy/dx": {"expect": "disconnected"}}
        )
        assert check_of(result, "second_order").status is Status.SKIPPED


def test_a_rule_that_matches_neither_order_is_an_error(run):
    result = run(forward=tf.tanh, inputs=X, second_order=True, pairs={"d2y/dw.dx": {"expect": "zero"}})
    assert "'d2y/dw.dx' matches none of the pairs: dy/dx, d2y/dx.dx, d2y/dx.du" in result.error.message
