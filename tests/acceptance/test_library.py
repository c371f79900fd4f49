"""The library entrance, as notebooks and tests use it."""

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, NoSpecsError, SpecError

TANH = {"op": "tanh", "forward": "tensorflow:tanh", "inputs": {"x": {"shape": [3]}}}


@pytest.mark.parametrize("as_type", [str, lambda path: path])
def test_a_file_or_folder(tmp_path, as_type):
    file = tmp_path / "sine.yaml"
    file.write_text("forward: tensorflow:sin\ninputs: {x: {shape: [2]}}\n")
    for path in (file, tmp_path):
        report = gradcheck_cli.check(as_type(path))
        assert (report.exit_code, report.cases[0].op) == (0, "sine")


def test_a_case_and_a_seed():
    spec = {**TANH, "cases": [{"name": "wide", "inputs": {"x": {"shape": [5]}}}]}
    assert [case.case for case in gradcheck_cli.check(spec).cases] == ["default", "wide"]
    (only,) = gradcheck_cli.check(spec, case="wide", seed=7).cases
    assert (only.case, only.pairs[0].numbers.elements) == ("wide", 25)
    assert only.ran.reproduce == "gradcheck_cli.check(spec, case='wide', seed=7)"
    assert gradcheck_cli.check(spec, seed=7).seed == 7


def test_what_is_wrong_is_raised():
    with pytest.raises(SpecError) as caught:
        gradcheck_cli.check({**TANH, "forwrad": "m:f", "samples": "many"})
    assert len(caught.value.faults) == 2
    with pytest.raises(NoSpecsError, match=r"no case is named 'wid'; there are default\."):
        gradcheck_cli.check(TANH, case="wid")


def test_tensorflows_settings_are_given_back():
    level = tf.get_logger().level
    options = tf.config.optimizer.get_experimental_options()
    gradcheck_cli.check(TANH)
    assert tf.get_logger().level == level
    assert tf.config.optimizer.get_experimental_options() == options


# --- py_func ---


def cube_grad(op, upstream):
    return 3 * op.inputs[0] ** 2 * upstream


def slope_of(function, value):
    with tf.GradientTape() as tape:
        x = tf.constant(value)
        tape.watch(x)
        y = function(x)
    return np.asarray(y), np.asarray(tape.gradient(y, x))


def cube(x, **changes):
    return gradcheck_cli.py_func(lambda value: value**3, [x], tf.float64, cube_grad, **changes)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "tf.function"])
def test_a_numpy_function_gets_a_gradient(wrap):
    value, slope = slope_of(wrap(cube), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(value, [1, 8])
    np.testing.assert_array_equal(slope, [3, 12])


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "tf.function"])
def test_two_of_one_name_keep_their_own_gradients_and_their_shapes(wrap):
    def both(x):
        twice = lambda op, u: 2 * op.inputs[0] * u  # noqa: E731 (one line)
        first = gradcheck_cli.py_func(np.square, [x], tf.float64, twice, name="same")
        second = gradcheck_cli.py_func(np.square, [x], tf.float64, lambda _, u: 100 * u, name="same")
        told = cube(x, shapes=[2])  # beside a ufunc's, which is known
        assert first.shape == told.shape == [2]
        return first + second + 0 * told

    np.testing.assert_array_equal(slope_of(wrap(both), np.array([3.0, 1.0]))[1], [106, 102])
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        wrap(lambda x: cube(x, shapes=[7]))(tf.zeros([2], tf.float64))


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "tf.function"])
def test_several_inputs_and_outputs(wrap):
    def sum_and_product(a):
        s, p = gradcheck_cli.py_func(
            lambda x, y: [x + y, x * y],
            [a, 2 * a],
            [tf.float64, tf.float64],
            lambda op, us, up: (us + op.inputs[1] * up, us + op.inputs[0] * up),
        )
        return s + p

    value, slope = slope_of(wrap(sum_and_product), np.array(3.0))
    assert (value, slope) == (27.0, 15.0)  # 3 a + 2 a^2


@pytest.mark.parametrize(
    ("gradient", "error", "message"),
    [
        (lambda _, u: (u, u), CaseFailedError, "must return 1 gradient"),
        (lambda *_: np.ones(2), CaseFailedError, "the gradient for input 0 must be a tensor or None"),
        (
            lambda _, u: tf.cast(u, tf.float32),
            GradientFormError,
            "must be float64, as its input is, but is float32",
        ),
        (lambda _, u: u[:1], GradientFormError, r"must have shape \[2\], as its input has, but has \[1\]"),
    ],
)
def test_a_gradient_of_wrong_form_is_refused(gradient, error, message):
    with pytest.raises(error, match=message):
        slope_of(lambda x: gradcheck_cli.py_func(np.square, [x], tf.float64, gradient), np.array([1.0, 2.0]))


def test_a_gradient_given_as_a_function():
    spec = {"forward": tf.square, "gradient": lambda op, u: 3 * op.inputs[0] * u, "inputs": {"x": np.ones(2)}}
    assert gradcheck_cli.check(spec).exit_code == 1
    in_numpy = {**spec, "gradient": {"numpy": lambda u, x: 2 * x * u}}
    assert gradcheck_cli.check(in_numpy).exit_code == 0


@pytest.mark.parametrize("given", [3, [3], [TANH, None], np.ones(2)])
def test_what_is_no_spec_is_named(given):
    with pytest.raises(TypeError, match="a spec must be a mapping or the path of a file, or a list of such"):
        gradcheck_cli.check(given)


def test_py_func_takes_a_list():
    x = tf.constant([1.0, 2.0])
    with pytest.raises(TypeError, match=r"must be a list of tensors, but is a \w+; write \[x\]"):
        gradcheck_cli.py_func(np.square, x, tf.float32, grad=lambda op, u: 2 * op.inputs[0] * u)
