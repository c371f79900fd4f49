"""Which hand-written gradients run for which pairs, and where each of them is written."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.python.framework import function

from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.modes import in_each_mode

HERE = "test_private_sites"


@tf.custom_gradient
def square(x):
    return x * x, lambda dy: 2 * dy * x


def make(k):
    @tf.custom_gradient
    def scaled(x):
        return k * x, lambda dy: k * dy

    return scaled


def library_wrapper(forward, backward):
    """What TensorFlow Probability's decorator does: TensorFlow is given the wrapper's own function."""

    @tf.custom_gradient
    def wrapped(x):
        return forward(x), lambda dy: backward(dy, x)

    return wrapped


def cube(x):
    return x**3


wrapped_cube = library_wrapper(cube, lambda dy, x: 3 * dy * x * x)


@tf.RegisterGradient("SitesSquare")
def square_grad(op, dy):
    return 2 * dy * op.inputs[0]


def overridden(x):
    with tf.compat.v1.get_default_graph().gradient_override_map({"Square": "SitesSquare"}):
        return tf.square(x)


def with_tensorflows_own(x):
    with tf.compat.v1.get_default_graph().gradient_override_map({"Tanh": "Identity"}):
        return tf.tanh(x)


def defun_grad(op, dy):
    return 2 * dy * op.inputs[0]


@function.Defun(tf.float64, python_grad_func=defun_grad)
def defun_square(x):
    return x * x


def in_a_branch(x):
    return tf.cond(tf.reduce_sum(x) > -1e9, lambda: square(x), lambda: x)


def in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, square(v)), [0, x])[1]


SHARED = tf.function(square)


def in_a_function(x):
    return SHARED(x)


def in_its_gradient(x):
    @tf.custom_gradient
    def inner(y):
        return y + 0, lambda dy: square(dy) / dy

    return inner(x)


def two(x, w):
    return square(x), w + 0 * x


def tensorflows_own(x):
    return tf.nn.silu(x)


def run(target, **changes):
    changes = {"inputs": {"x": {"shape": [2], "uniform": {"low": 1, "high": 2}}}, **changes}
    spec = {"op": "op", "forward": f"{HERE}:{target}", "samples": 1, **changes}
    (case,) = in_each_mode(load_mapping(spec), (), None)
    result = run_case(case)
    assert result.error is None, result.error
    return {one.function.partition(":")[2]: one for one in result.custom_gradients}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize(
    ("target", "changes", "name", "source"),
    [
        ("square", {}, "square", square),
        ("square", {"modes": ["eager"]}, "square", square),
        ("make", {"build": {"k": 2.0}}, "make.<locals>.scaled", make),
        ("make", {"build": {"k": 2.0}, "modes": ["eager"]}, "make.<locals>.scaled", make),
        ("overridden", {}, "square_grad", square_grad),
        ("defun_square", {}, "defun_grad", defun_grad),
        ("in_a_branch", {}, "square", square),
        ("in_a_loop", {}, "square", square),
        ("in_a_function", {}, "square", square),
        ("in_a_function", {"dtypes": ["float32"]}, "square", square),
        ("in_its_gradient", {}, "square", square),
    ],
)
def test_what_runs_is_known_with_its_place(target, changes, name, source):
    by_name = run(target, **changes)
    assert by_name[name].pairs == ("dy/dx",)
    own = inspect.unwrap(getattr(source, "_f", source))
    first = own.__code__.co_firstlineno + (1 if name.startswith("make") else 0)
    assert by_name[name].places[0].endswith(f"{HERE}.py:{first}")


def test_a_wrapper_leads_to_the_functions_that_it_was_given():
    found = run("wrapped_cube")["library_wrapper.<locals>.wrapped"]
    lines = [int(one.rpartition(":")[2]) for one in found.places]
    assert cube.__code__.co_firstlineno in lines
    assert lines[0] == library_wrapper.__code__.co_firstlineno + 3


def test_an_override_with_tensorflows_own_gradient_is_known_by_its_line():
    (found,) = run("with_tensorflows_own").values()
    first = with_tensorflows_own.__code__.co_firstlineno
    assert found.places == ()
    assert [int(one.rpartition(":")[2]) for one in found.makers if HERE in one] == [first + 1]


def test_a_pair_counts_only_where_the_gradient_leads():
    inputs = {name: {"shape": [2], "uniform": {"low": 1, "high": 2}} for name in ("x", "w")}
    found = run("two", inputs=inputs, outputs=["y", "z"], pairs={"dy/dw": {"expect": "disconnected"}})
    assert found["square"].pairs == ("dy/dx",)


def test_tensorflows_own_are_nobodys():
    assert run("tensorflows_own") == {}


def test_a_gradient_of_the_specs_own_is_known():
    found = run("cube", gradient=f"{HERE}:cube_grad")
    (one,) = found.values()
    assert any(place.endswith(f"{HERE}.py:{cube_grad.__code__.co_firstlineno}") for place in one.places)


def cube_grad(op, dy):
    return 3 * dy * op.inputs[0] ** 2
