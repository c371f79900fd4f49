"""Where the gradient of a case is written, in every form that people write."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.tensorflow_backend.registry import source_of
from gradcheck_cli.tensorflow_backend.users_code import importable, load

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


def test_a_module_that_was_not_imported_has_no_place(tmp_path, monkeypatch):
    (tmp_path / "ops.py").write_text(OPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ops", raising=False)  # another test of this process may have one
    (case,) = load_mapping({"op": "a", "forward": "ops:soft", "inputs": {"x": {"shape": [2]}}})
    assert source_of(case.code) == ""
    assert "ops" not in sys.modules
