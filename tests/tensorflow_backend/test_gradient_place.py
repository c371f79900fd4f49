"""Where an op's gradient function is written."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.tensorflow_backend.opening.case_opener import CaseOpener
from gradcheck_cli.tensorflow_backend.opening.graph_modes import GraphMode
from gradcheck_cli.tensorflow_backend.walk.backward_walk import walk

X = {"x": {"value": [0.5, -1.0], "shape": [2]}}

Y = {"y": {"shape": [2], "dtype": "float64"}}


def its_gradient(op, upstream):
    return tf.cos(op.inputs[0]) * upstream


def its_numpy_gradient(upstream, x):
    return np.cos(x) * upstream


@tf.custom_gradient
def square(x):
    def square_grad(upstream):
        return 2 * x * upstream

    return tf.square(x), square_grad


@pytest.fixture
def place(case_of):
    """Return a function that gives the place of the last op before the inputs."""

    def find(**spec):
        source = CaseOpener(case_of(**{"inputs": X, **spec}), GraphMode()).open(Opening())
        return walk(source, 0, [0]).places[-1]

    return find


def line_of(function):
    return inspect.getsourcelines(function)[1]


def is_here(found, name, line):
    return (found.gradient, Path(found.file).name, found.line) == (name, Path(__file__).name, line)


def test_a_custom_gradients_own_function(place):
    line = line_of(square.__wrapped__ if hasattr(square, "__wrapped__") else square._f) + 2
    assert is_here(place(forward=square), "square.<locals>.square_grad", line)


@pytest.mark.parametrize(
    "spec",
    [
        {"forward": tf.sin, "binding": "custom_gradient"},
        {"forward": tf.sin, "binding": "override", "op_type": "Sin"},
        {"forward": tf.sin, "binding": "defun", "outputs": Y},
        {"forward": np.sin, "binding": "py_func", "outputs": Y},
    ],
    ids=lambda spec: spec["binding"],
)
def test_a_specs_gradient_is_the_users_in_every_binding(place, spec):
    found = place(gradient=its_gradient, **spec)
    assert is_here(found, "its_gradient", line_of(its_gradient))


def test_a_numpy_gradient(place):
    found = place(forward=tf.sin, gradient={"numpy": its_numpy_gradient})
    assert is_here(found, "its_numpy_gradient", line_of(its_numpy_gradient))


def test_that_of_our_own_py_func(place):
    def forward(x):
        return gradcheck_cli.py_func(np.sin, [x], tf.float64, grad=its_gradient)

    assert is_here(place(forward=forward), "its_gradient", line_of(its_gradient))


def test_tensorflows_own(place):
    found = place(forward=tf.sin)
    assert (found.type, found.gradient) == ("Sin", "_SinGrad")
    assert found.file == "tensorflow/python/ops/math_grad.py"


def test_an_op_without_one(place):
    found = place(forward=lambda x: 2.0 * tf.numpy_function(np.sin, [x], tf.float64))
    assert (found.gradient, found.file, found.line) == ("", "", 0)


def test_a_loop_names_those_inside_it(place):
    def forward(x):
        return tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, tf.sin(square(y))), [0, x])[1]

    assert [name for name, _, _ in place(forward=forward).inside] == ["square.<locals>.square_grad"]


def test_what_is_computed_anew_names_those_inside_it(place):
    found = place(forward=tf.recompute_grad(lambda y: tf.sin(square(y))))
    assert [name for name, _, _ in found.inside] == ["square.<locals>.square_grad"]


def test_what_a_custom_gradient_steps_over_is_not_inside_it(place):
    @tf.custom_gradient
    def outer(x):
        return tf.sin(square(x)), lambda upstream: upstream

    assert place(forward=outer).inside == ()


def logged(function):
    """Decorate as people do who don't know functools.wraps."""

    def wrapper(*args):
        return function(*args)

    return wrapper


def made_of(slope):
    def gradient(op, upstream):
        return slope(op.inputs[0]) * upstream

    return gradient


@logged
def decorated(op, upstream):
    return upstream


def a_slope(x):
    return x


OF_A_FACTORY = made_of(a_slope)


def test_a_decorated_gradient_is_the_one_that_was_written(place):
    found = place(forward=tf.sin, gradient=decorated)
    assert found.gradient == "decorated"


def test_the_gradient_that_a_factory_makes_is_its_own(place):
    found = place(forward=tf.sin, gradient=OF_A_FACTORY)
    assert found.gradient.endswith("made_of.<locals>.gradient")
