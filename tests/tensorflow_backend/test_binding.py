from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.binding.binder import OpView


def tanh(x):
    return tf.tanh(x)


def slope(op, upstream):
    return (1 - tf.square(op.outputs[0])) * upstream


def wrong(op, upstream):
    return 1.01 * slope(op, upstream)


def slope_numpy(upstream, x):
    return (1 - np.tanh(x) ** 2) * upstream


def autodiff(gradient):
    @tf.custom_gradient
    def forward(x):
        y = tf.tanh(x)
        return y, lambda upstream: gradient(OpView("Tanh", "tanh", [x], [y], {}), upstream)

    return {"forward": forward}


OUTPUT = {"y": {"shape": [3], "dtype": "float64"}}
BINDINGS = {
    "autodiff": autodiff,
    "custom_gradient": lambda gradient: {"forward": tanh, "gradient": gradient},
    "override": lambda gradient: {
        "forward": tanh,
        "gradient": gradient,
        "op_type": "Tanh",
        "binding": "override",
    },
    "override of the raw op": lambda gradient: {
        "gradient": gradient,
        "op_type": "Tanh",
        "binding": "override",
    },
    "py_func": lambda gradient: {
        "forward": np.tanh,
        "gradient": gradient,
        "binding": "py_func",
        "outputs": OUTPUT,
    },
    "defun": lambda gradient: {"forward": tanh, "gradient": gradient, "binding": "defun", "outputs": OUTPUT},
    "defun of NumPy": lambda gradient: {
        "forward": np.tanh,
        "gradient": gradient,
        "binding": "defun",
        "outputs": OUTPUT,
    },
}
INPUT = {"inputs": {"x": {"shape": [3]}}}


@pytest.mark.on_change(
    "slope-passed-defun", "wrong-mismatched-autodiff", "wrong-mismatched-override of the raw op"
)
@pytest.mark.parametrize("bind", BINDINGS.values(), ids=BINDINGS)
@pytest.mark.parametrize(("gradient", "status"), [(slope, Status.PASSED), (wrong, Status.MISMATCHED)])
def test_every_binding_attaches_the_gradient_that_it_is_given(run, bind, gradient, status):
    spec = {key: value for key, value in bind(gradient).items() if value is not None}
    if spec.get("op_type") == "Tanh":
        spec["inputs"] = {"x": {"shape": [3]}}
    result = run(**{**INPUT, **spec})
    assert result.error is None
    assert result.status is status


def test_an_attr_that_is_not_there_is_the_gradients_fault(run):
    result = run(
        forward=tanh, gradient=lambda op, upstream: op.get_attr("alpha") * upstream, attrs={}, **INPUT
    )
    assert (result.status, result.error.kind) == (Status.ERROR, "gradient")
    assert result.error.message == (
        "the gradient function raised ValueError: Operation 'op' has no attr named 'alpha'; "
        "the spec's attrs: none."
    )


CONCAT = {
    "inputs": {
        "values": [{"shape": [2, 3]}, {"shape": [1, 3]}],
        "axis": {"value": 0, "shape": [], "dtype": "int32"},
    }
}


def test_a_list_argument_is_flat_for_the_gradient(run):
    def gradient(op, upstream):
        first, second, axis = op.inputs
        assert axis.dtype == tf.int32
        return (*tf.split(upstream, [first.shape[0], second.shape[0]]), None)

    assert run(forward=tf.concat, gradient=gradient, **CONCAT).status is Status.PASSED
    result = run(forward=tf.concat, gradient=lambda op, u: (*reversed(gradient(op, u)[:2]), None), **CONCAT)
    # Each has the other's shape.
    assert result.status is Status.MISMATCHED


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"op_type": "Tanhh", "inputs": {"x": {"shape": [2]}}},
            f"TensorFlow {tf.__version__} has no op type 'Tanhh'. Did you mean 'Tanh'?",
        ),
        (
            {"op_type": "Qqqqqqqqqqqq", "inputs": {"x": {"shape": [2]}}},
            f"TensorFlow {tf.__version__} has no op type 'Qqqqqqqqqqqq'. See 'gradcheck list --status all'.",
        ),
        (
            {"op_type": "MatMul", "inputs": {"a": {"shape": [2, 2]}, "c": {"shape": [2, 2]}}},
            "op_type MatMul takes the inputs a, b, but the spec gives a, c.",
        ),
        (
            {"op_type": "Tanh", "inputs": {"x": {"shape": [2]}}, "attrs": {"alpha": 1}},
            "op_type Tanh has no attr 'alpha'; it has T.",
        ),
    ],
)
def test_a_raw_op_that_can_not_be_made(run, spec, message):
    result = run(**spec)
    assert (result.status, result.error.kind, result.error.message) == (Status.ERROR, "op_type", message)
    assert result.error.traceback == ()


def make_scaled(factor):
    @tf.custom_gradient
    def scaled(x):
        return factor * x, lambda upstream: 2.0 * upstream

    return scaled


@pytest.mark.parametrize(
    ("factory", "build", "message"),
    [
        (lambda: 3.0, {}, "must return the function, layer or module to check, but returned a float."),
        (
            make_scaled,
            {"factr": 2.0},
            "raised TypeError: make_scaled() got an unexpected keyword argument 'factr'",
        ),
    ],
)
def test_a_factory_that_makes_none(run, factory, build, message):
    result = run(forward=factory, build=build, **INPUT)
    assert (result.status, result.error.kind) == (Status.ERROR, "forward")
    assert result.error.message.startswith("build: functions_of_a_test_")
    assert message in result.error.message


def test_a_numpy_gradient_may_have_no_gradient_for_an_input(run):
    spec = {
        "forward": lambda x, y: x * np.sign(y),
        "binding": "py_func",
        "inputs": {"x": {"shape": [3]}, "y": {"shape": [3], "away_from": [0], "scale": 1e-3}},
        "outputs": OUTPUT,
        "pairs": {"dy/dy": {"expect": "disconnected"}},
    }
    right = run(gradient={"numpy": lambda u, _, y: (u * np.sign(y), None)}, **spec)
    assert [(pair.label, pair.connected) for pair in right.pairs] == [("dy/dx", True), ("dy/dy", False)]
    assert right.status is Status.PASSED
    wrong = run(gradient={"numpy": lambda *_: (None, None)}, **spec)
    assert [pair.status for pair in wrong.pairs] == [Status.MISMATCHED, Status.PASSED]


@pytest.mark.parametrize(
    ("gradient", "kind", "message"),
    [
        (
            lambda u, x: (u, x),
            "gradient_count",
            "the NumPy gradient must return 1 array, one (or None) for each of",
        ),
        (lambda _: None, "gradient", "takes 1 positional argument but 2 were given"),
    ],
)
def test_a_numpy_gradient_of_wrong_form(run, gradient, kind, message):
    result = run(**{**INPUT, **BINDINGS["py_func"]({"numpy": gradient})})
    assert (result.status, result.error.kind) == (Status.ERROR, kind)
    assert message in result.error.message


def test_a_numpy_gradient_of_another_dtype_is_a_mismatch(run):
    result = run(
        **{**INPUT, **BINDINGS["py_func"]({"numpy": lambda u, x: slope_numpy(u, x).astype(np.float32)})}
    )
    (pair,) = result.pairs
    assert pair.status is Status.MISMATCHED
    assert pair.message == (
        "the gradient for x must be float64, as its input is, but is float32; NumPy may have promoted it."
    )


REMEDY = (
    "return a tensor, such as tf.constant(...), or name a NumPy function as "
    "'gradient: {numpy: module:function}'."
)
GUARDED = {
    "too many": (
        lambda _, u: (u, u),
        "gradient_count",
        "the gradient function must return 1 gradient, one (or None) for each of x, but returned 2.",
    ),
    "an array": (
        lambda *_: np.ones(3),
        "gradient",
        f"the gradient for x must be a tensor or None, but is a numpy.ndarray; {REMEDY}",
    ),
    "a number": (
        lambda *_: 1.0,
        "gradient",
        f"the gradient for x must be a tensor or None, but is a float; {REMEDY}",
    ),
    "an exception": (
        lambda *_: 1 / 0,
        "gradient",
        "the gradient function raised ZeroDivisionError: division by zero",
    ),
}


@pytest.mark.on_change("a number-py_func", "an exception-defun")
@pytest.mark.parametrize("name", ["custom_gradient", "override", "py_func", "defun", "defun of NumPy"])
@pytest.mark.parametrize(("gradient", "kind", "message"), GUARDED.values(), ids=GUARDED)
def test_what_a_gradient_returns_is_looked_at_before_tensorflow_sees_it(run, name, gradient, kind, message):
    result = run(**{**INPUT, **BINDINGS[name](gradient)})
    assert (result.status, result.error.kind, result.error.message) == (Status.ERROR, kind, message)


FORMS = {
    "dtype": (
        lambda op, u: tf.cast(slope(op, u), tf.float32),
        "the gradient for x must be float64, as its input is, but is float32.",
    ),
    "shape": (
        lambda op, u: tf.reduce_sum(slope(op, u)),
        "the gradient for x must have shape [3], as its input has, but has [].",
    ),
    "broadcast": (
        lambda op, u: slope(op, u)[tf.newaxis] * tf.ones([4, 1], tf.float64),
        (
            "the gradient for x must have shape [3], as its input has, but has [4, 3]. Sum it over the axes "
            "that broadcasting added."
        ),
    ),
}


@pytest.mark.on_change("dtype-custom_gradient", "dtype-defun", "shape-override")
@pytest.mark.parametrize("name", ["custom_gradient", "override", "py_func", "defun"])
@pytest.mark.parametrize(("gradient", "message"), FORMS.values(), ids=FORMS)
def test_a_gradient_of_another_form_is_a_mismatch(run, name, gradient, message):
    result = run(**{**INPUT, **BINDINGS[name](gradient)})
    (pair,) = result.pairs
    assert (pair.status, pair.message) == (Status.MISMATCHED, message)
    # It isn't `None`, and nobody says that it is.
    assert [check.name for check in result.checks if check.status is Status.MISMATCHED] == ["form"]


def test_a_numpy_forward_that_writes_to_its_input_is_found(run):
    def forward(x):
        x *= 2
        return x

    result = run(forward=forward, gradient=lambda _, u: 2 * u, binding="py_func", outputs=OUTPUT, **INPUT)
    (found,) = [check for check in result.checks if check.name == "inputs_unmodified"]
    assert (result.status, found.status) == (Status.MISMATCHED, Status.MISMATCHED)
    assert found.message == "the NumPy forward writes to x; work on a copy (np.array)."
    # It got a copy each time: the pair is as it would be without the fault.
    assert [pair.status for pair in result.pairs] == [Status.PASSED]


def _scale_upstream(u, x):
    u *= np.cos(x)
    return u


def _overwrite_x(u, x):
    np.cos(x, out=x)
    return u * x


@pytest.mark.parametrize(("gradient", "what"), [(_scale_upstream, "its upstream"), (_overwrite_x, "x")])
def test_a_numpy_gradient_that_writes_to_its_arrays_is_found(run, gradient, what):
    result = run(forward=np.sin, gradient={"numpy": gradient}, binding="py_func", outputs=OUTPUT, **INPUT)
    (found,) = [check for check in result.checks if check.name == "inputs_unmodified"]
    assert (result.status, found.status) == (Status.MISMATCHED, Status.MISMATCHED)
    assert found.message == f"the NumPy gradient writes to {what}; work on a copy (np.array)."
    assert [pair.status for pair in result.pairs] == [Status.PASSED]


def test_a_numpy_function_needs_its_outputs_dtypes(run):
    result = run(forward=tanh, reference=np.tanh, **INPUT)
    assert (result.error.kind, result.error.message) == (
        "outputs",
        "a NumPy function needs 'outputs' as a mapping with each output's dtype.",
    )


def test_a_numpy_forward_of_another_dtype(run):
    spec = BINDINGS["py_func"](slope) | {"outputs": {"y": {"dtype": "float32"}}}
    result = run(**INPUT, **spec)
    assert (result.error.kind, result.error.message) == (
        "outputs",
        "the NumPy forward's output 0 must be float32 by the spec's 'outputs', but is float64.",
    )


@pytest.mark.parametrize("returned", [None, [], ()])
def test_a_forward_that_returns_nothing(run, returned):
    result = run(forward=lambda _: returned, **INPUT)
    assert result.error.kind == "outputs"
    assert result.error.message == (
        f"forward: must return tensors, but returned {type(returned).__name__}; return each output."
    )


def test_a_numpy_function_without_py_func_is_told_so(run):
    result = run(forward=np.tanh, gradient=slope, **INPUT)
    assert result.error.kind == "forward"
    assert result.error.message.endswith("It looks like a NumPy function: use binding: py_func.")
