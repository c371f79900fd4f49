"""Where a gradient is written: an op's, and a case's, in every form that people write."""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli
from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.tensorflow_backend.backward_walk import Walk
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode
from gradcheck_cli.tensorflow_backend.registry import source_of
from gradcheck_cli.tensorflow_backend.users_code import importable, load

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
        source = CaseOpener(GraphMode(), CaseState(case_of(**{"inputs": X, **spec}))).open(Opening())
        return Walk.of(source, 0, [0]).places[-1]

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


MODULES = ("ops", "pkg", "broken", "one", "two")
OPS = """import tensorflow as tf
from numpy import square
from pkg.deep import far as near
from pkg import deep
import pkg.deep

def forward(x):
    return x * x

def grad(op, u):
    return u

@tf.custom_gradient
def soft(x):
    def plain():
        return 1
    def backward(u):
        return u
    return x, backward

@tf.custom_gradient
def with_lambda(x):
    return x, lambda u: u

def factory(delta):
    @tf.custom_gradient
    def loss(x):
        def backward(u):
            return u * delta
        return x, backward
    return loss

class Ops:
    @staticmethod
    def method(x):
        return x

wrapped = tf.custom_gradient(forward)

if True:
    def twice(x):
        return 1
try:
    def twice(x):
        return 2
except ImportError:
    pass

def noisy(function):
    return lambda *args: function(*args)

@tf.function
@noisy
def decorated(x):
    return x

@tf.keras.utils.register_keras_serializable()
class Layer(tf.keras.layers.Layer):
    @tf.custom_gradient
    def call(self, x):
        def backward(u):
            return u
        return x, backward

layer = Layer()
square_root = tf.keras.layers.ReLU()
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from .deep import far as exported\nfrom . import deep\n")
    (tmp_path / "pkg" / "deep.py").write_text("x = 1\n\ndef far(x):\n    return x\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)

    def of(forward=None, gradient=None, **more):
        spec = {"op": "a", "forward": forward, "inputs": {"x": {"shape": [2]}}, **more}
        if gradient is not None:
            spec["gradient"] = gradient
        (case,) = load_mapping(spec)
        with importable(str(tmp_path)):
            for reference in (case.code.forward, case.code.gradient):
                if reference is not None:
                    with suppress(CaseFailedError):
                        load(reference.target, "forward")
            return source_of(case.code)

    yield of
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("forward", "place"),
    [
        ("ops:forward", "ops.py:7"),
        ("ops:soft", "ops.py:17"),  # the function that it returns as its gradient
        ("ops:with_lambda", "ops.py:22"),
        ("ops:factory", "ops.py:28"),
        ("ops:Ops.method", "ops.py:35"),
        ("ops:wrapped", "ops.py:7"),
        ("ops:twice", "ops.py:44"),  # the last one holds
        ("ops:near", "pkg/deep.py:3"),
        ("ops:deep.far", "pkg/deep.py:3"),
        ("ops:pkg.deep.far", "pkg/deep.py:3"),
        ("pkg:exported", "pkg/deep.py:3"),
        ("pkg:deep.far", "pkg/deep.py:3"),
        ("pkg.deep:far", "pkg/deep.py:3"),
        ("ops:decorated", "ops.py:54"),
        ("ops:Layer", "ops.py:61"),
        ("ops:layer", "ops.py:61"),
        ("ops:square_root", ""),
        ("ops:square", ""),  # an installed package's
        ("ops:missing", ""),
        ("ops:Ops.missing", ""),
        ("broken:f", ""),
        ("no_such_module:f", ""),
        ("pkg.no_such_module:f", ""),
        ("math:sqrt", ""),
        ("sys:exit", ""),
        ("os.path:join", ""),
    ],
)
def test_the_place_of_a_forward_that_carries_its_gradient(source, forward, place):
    assert source(forward) == place


def test_a_gradient_of_its_own_comes_first(source):
    assert source("ops:forward", "ops:grad") == "ops.py:10"


def test_the_place_of_a_numpy_gradient(source):
    outputs = {"y": {"dtype": "float64"}}
    more = {"binding": "py_func", "outputs": outputs}
    assert source("ops:forward", {"numpy": "ops:grad"}, **more) == "ops.py:10"


def test_an_op_type_has_no_place():
    (case,) = load_mapping({"op": "a", "op_type": "Tanh", "inputs": {"x": {"shape": [2]}}})
    assert source_of(case.code) == ""


def test_a_module_that_was_not_imported_has_no_place(tmp_path, monkeypatch):
    (tmp_path / "ops.py").write_text(OPS)
    monkeypatch.chdir(tmp_path)
    (case,) = load_mapping({"op": "a", "forward": "ops:soft", "inputs": {"x": {"shape": [2]}}})
    assert source_of(case.code) == ""
    assert "ops" not in sys.modules
