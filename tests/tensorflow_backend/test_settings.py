"""What is said of settings of a custom gradient."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli
from gradcheck_cli.results import Status

NOT_ZERO = (
    "the gradient for the setting times must be None or zero, but is not: a setting is not differentiated. "
    "Return None for it, or make it an input: times: {value: 3}."
)
COUNT = (
    "If it returns one for a setting that has a default, give that a value: 'attrs: {NAME: VALUE}' in a "
    "spec, NAME=VALUE in assert_gradients."
)
MODES = ["graph", "dynamic", "eager"]


def powered(for_setting=lambda u: None):
    @tf.custom_gradient
    def call(x, times=2, kind="same"):
        assert isinstance(times, int)
        return x**times, lambda u: (u * times * x ** (times - 1), for_setting(u), None)

    return call


def test_a_gradient_for_a_setting_is_told(run):
    result = run(forward=powered(tf.ones_like), inputs={"x": {"shape": [3]}}, attrs={"times": 3})
    assert (result.error.kind, result.error.message) == ("gradient", NOT_ZERO)


@pytest.mark.parametrize("mode", MODES)
def test_a_setting_that_is_counted_and_not_given_is_told(run, mode):
    result = run(forward=powered(), inputs={"x": {"shape": [3]}}, modes=[mode])
    assert result.error.kind == "gradient_count"
    assert result.error.message.endswith(COUNT)


def test_keywords_of_a_custom_gradient_inside_of_another_function_are_told(run):
    result = run(forward=lambda x: powered()(x, times=3), inputs={"x": {"shape": [3]}})
    assert result.error.message.endswith(
        "In a graph, a tf.custom_gradient takes no keyword argument, and makes a tensor of any other. Write "
        "a function of the settings that defines it and returns it: def make(bits): ..., and call make(4)(x)."
    )


@pytest.mark.parametrize(("args", "keywords"), [((3, "same"), {}), ((), {"kind": "other", "times": 3})])
def test_settings_of_a_call_are_bound(args, keywords):
    x = np.array([0.5, 1.5, -2.0])
    gradcheck_cli.assert_gradients(powered(), x, *args, modes=("graph", "eager"), **keywords)


def test_a_function_of_a_module_in_a_module_is_no_method(run):
    result = run(forward="tensorflow:math.tanh", inputs={"x": {"shape": [3]}})
    assert result.status is Status.PASSED, result.error
