"""Which hand-written gradients run for which pairs, and where each of them is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

from gradcheck_cli import check_function
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import in_each_mode
from gradcheck_cli.spec.load import load_mapping

MODULE = "sites_functions"
LINES = Path(__file__).with_name(f"{MODULE}.py").read_text().splitlines()
X = {"shape": [2], "uniform": {"low": 1, "high": 2}}


def line_of(text):
    return next(number for number, line in enumerate(LINES, start=1) if line.strip().startswith(text))


def lines(places):
    return [int(one.rpartition(":")[2]) for one in places if f"{MODULE}.py:" in one]


def run(target, **changes):
    spec = {"op": "op", "forward": f"{MODULE}:{target}", "samples": 1, "inputs": {"x": X}, **changes}
    (case,) = in_each_mode(load_mapping(spec), (), None)
    result = run_case(case)
    assert result.error is None, result.error
    return {one.function.partition(":")[2]: one for one in result.seen.custom_gradients}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.on_change(
    "square-changes1-square-def square",
    "make-changes2-make.<locals>.scaled-def scaled",
    "in_a_branch-changes6-square-def square",
    "in_its_gradient-changes10-in_its_gradient.<locals>.inner-def inner",
)
@pytest.mark.parametrize(
    ("target", "changes", "name", "line"),
    [
        ("square", {}, "square", "def square"),
        ("square", {"modes": ["eager"]}, "square", "def square"),
        ("make", {"build": {"k": 2.0}}, "make.<locals>.scaled", "def scaled"),
        ("make", {"build": {"k": 2.0}, "modes": ["eager"]}, "make.<locals>.scaled", "def scaled"),
        ("overridden", {}, "square_grad", "def square_grad"),
        ("defun_square", {}, "defun_grad", "def defun_grad"),
        ("in_a_branch", {}, "square", "def square"),
        ("in_a_loop", {}, "square", "def square"),
        ("in_a_function", {}, "square", "def square"),
        ("in_a_function", {"tags": ["again"]}, "square", "def square"),  # differentiated before
        ("in_its_gradient", {}, "in_its_gradient.<locals>.inner", "def inner"),
    ],
)
def test_what_runs_is_known_with_its_place(target, changes, name, line):
    found = run(target, **changes)[name]
    assert found.pairs == ("dy/dx",)
    first = line_of(line)
    is_decorated = LINES[first - 2].strip().startswith("@")
    assert lines(found.places)[0] == first - is_decorated


def test_a_wrapper_leads_to_the_functions_that_it_was_given():
    found = run("wrapped_cube")["library_wrapper.<locals>.wrapped"]
    assert lines(found.places)[0] == line_of("def wrapped") - 1
    assert line_of("def cube(") in lines(found.places)
    decorated, called = lines(found.makers)[:2]
    # Python 3.10 names the function that is decorated, later ones its decorator.
    assert decorated in (line_of("def wrapped") - 1, line_of("def wrapped"))
    assert called == line_of("wrapped_cube =")


def test_an_override_with_tensorflows_own_gradient_is_known_by_its_line():
    (found,) = run("with_tensorflows_own").values()
    assert (found.places, lines(found.makers)) == ((), [line_of("def with_tensorflows_own") + 1])


def test_a_pair_counts_only_where_the_gradient_leads():
    found = run(
        "two", inputs={"x": X, "w": X}, outputs=["y", "z"], pairs={"dy/dw": {"expect": "disconnected"}}
    )
    assert found["square"].pairs == ("dy/dx",)


def test_what_a_gradient_calls_is_not_differentiated_by_that():
    assert list(run("in_its_gradient")) == ["in_its_gradient.<locals>.inner"]


def test_a_gradient_of_the_specs_own_is_known():
    (found,) = run("cube", gradient=f"{MODULE}:cube_grad").values()
    assert line_of("def cube_grad") in lines(found.places)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "forward": {"numpy": f"{MODULE}:cube_of_arrays"},
            "gradient": f"{MODULE}:cube_grad",
            "outputs": {"y": {"dtype": "float64"}},
        },
        {"forward": f"{MODULE}:through_py_func"},
        {"forward": f"{MODULE}:through_py_func", "modes": ["eager"]},
    ],
)
def test_the_users_function_is_named_not_our_wrapper_around_it(changes):
    (found,) = run("", **changes).values()
    assert found.function == f"{MODULE}:cube_grad"
    assert found.pairs == ("dy/dx",)
    assert lines(found.places)[0] == line_of("def cube_grad")


def test_what_is_registered_for_a_cases_graphs_goes_with_it_and_what_the_users_function_needs_stays():
    @tf.custom_gradient
    def square(x):
        return x * x, lambda upstream: upstream * 2 * x

    inside = tf.function(lambda x: square(x) + 0)

    def names():
        return {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient-")}

    def in_a_loop(x):
        for _ in tf.range(2):
            x = square(x)
        return x

    point = tf.constant([0.3, 0.7], tf.float64)
    before = names()
    assert check_function(square, point)
    assert check_function(in_a_loop, point)
    assert names() == before
    assert check_function(lambda x: inside(square(x)), point)
    assert names() - before, "the user's own graph of `inside`"
    with tf.GradientTape() as tape:
        tape.watch(point)
        value = inside(point)
    assert tape.gradient(value, point).numpy().tolist() == pytest.approx([0.6, 1.4])
    again = tf.compat.v1.wrap_function(lambda x: tf.gradients(inside(x), x), [tf.TensorSpec([2], tf.float64)])
    assert again(point)[0].numpy().tolist() == pytest.approx([0.6, 1.4])
