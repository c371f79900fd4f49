"""`check_function` and `assert_gradients`: calls as people type them, right, wrong and mistaken."""

import dataclasses
import functools
import inspect
import json
import sys
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli  # and with it gradcheck_cli.features
from gradcheck_cli import assert_gradients, check, check_function
from gradcheck_cli.errors import UsageError
from gradcheck_cli.results import Status

X = np.array([-1.0, 0.5, 2.0])


class Point(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass
class Fields:
    a: object


@tf.custom_gradient
def softplus(x):
    return tf.math.log1p(tf.exp(x)), lambda upstream: upstream * tf.sigmoid(x)


@tf.custom_gradient
def wrong(x):
    return tf.math.log1p(tf.exp(x)), lambda upstream: 1.01 * upstream * tf.sigmoid(x)


@tf.custom_gradient
def surrogate(x):
    return tf.sign(x), lambda upstream: upstream / (1 + x * x)


def scaled(x, factor=2.0, *, exponent=1):
    return factor * x**exponent


class Scale(tf.keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1],), name="kernel", initializer="ones")

    def call(self, inputs):
        return wrong(inputs * self.kernel)


def labels(*args, **kwargs):
    report = check_function(*args, **kwargs)
    return report.exit_code, [pair.label for case in report.cases for pair in case.pairs]


@pytest.mark.on_change(
    "<lambda>-1-pairs1",
    "<lambda>-0-pairs2",
    "<lambda>-1-pairs4",
    "<lambda>-1-pairs6",
    "<lambda>-0-pairs7",
    "<lambda>-1-pairs8",
    "<lambda>-0-pairs17",
)
@pytest.mark.parametrize(
    ("call", "code", "pairs"),
    [
        (lambda: labels(softplus, X), 0, ["dy/dx"]),
        (lambda: labels(wrong, X), 1, ["dy/dx"]),
        (lambda: labels(wrong, X, rtol=0.1), 0, ["dy/dx"]),
        (lambda: labels(softplus, 1.5), 0, ["dy/dx"]),
        (lambda: labels(tf.function(wrong), tf.constant([1.0])), 1, ["dy/dx"]),
        (lambda: labels(softplus, X, modes=("graph", "eager")), 0, ["dy/dx", "dy/dx"]),
        (lambda: labels(wrong, X, modes="eager"), 1, ["dy/dx"]),
        (lambda: labels(surrogate, X, reference=tf.atan), 0, ["dy/dx"]),
        (lambda: labels(surrogate, X), 1, ["dy/dx"]),
        (lambda: labels(scaled, X, 3.0), 0, ["dy/dx", "dy/dfactor"]),
        (lambda: labels(scaled, X, factor=3.0, exponent=2), 0, ["dy/dx"]),
        (lambda: labels(tf.multiply, X, y=X), 0, ["dy/dx", "dy/dy"]),
        (lambda: labels(tf.reduce_sum, X, 0), 0, ["dy/dinput_tensor"]),
        (lambda: labels(lambda *xs: xs[0] * xs[1], X, X), 0, ["dy/dxs0", "dy/dxs1"]),
        (lambda: labels(lambda p: p["b"] * p["a"], {"b": X, "a": X, "n": 3}), 0, ["dy/dp.a", "dy/dp.b"]),
        (lambda: labels(lambda p: p.a * p.b, Point(2.0, X)), 0, ["dy/dp.a", "dy/dp.b"]),
        (lambda: labels(lambda p: p[0] * p[1][0], (X, [X, None])), 0, ["dy/dp[0]", "dy/dp[1][0]"]),
        (
            lambda: labels(tf.sparse.reduce_sum, tf.sparse.from_dense([[2.0, 0.0]])),
            0,
            ["dy/dsp_input.values"],
        ),
        (lambda: labels(wrong, tf.Variable([1.0, 2.0])), 1, ["dy/dx"]),
        (lambda: labels(lambda z: z * tf.math.conj(z), X + 1j), 0, ["dy/dz"]),
        (lambda: labels(Scale(), np.ones((2, 3), np.float32)), 1, ["dy/dinputs", "dy/dkernel"]),
    ],
)
def test_a_call_is_checked(call, code, pairs):
    assert call() == (code, pairs)


def dtypes(*args, **kwargs):
    report = check_function(*args, **kwargs)
    return report.exit_code, {(case.dtype, pair.label) for case in report.cases for pair in case.pairs}


@pytest.mark.parametrize(
    "scalar", [np.float16(1.5), np.float32(1.5), np.float64(1.5), np.complex128(1.5 + 1j)]
)
def test_a_numpy_scalar_keeps_its_dtype(scalar):
    """`np.float64` and `np.complex128` are Python numbers, too, whose dtype would be float32."""
    dtype = scalar.dtype.name
    constant = tf.constant(2.0, dtype)
    assert dtypes(lambda x: constant * x, scalar) == (0, {(dtype, "dy/dx")})
    assert dtypes(lambda p: constant * p["a"], {"a": scalar}) == (0, {(dtype, "dy/dp.a")})


@pytest.mark.parametrize(
    ("settings", "pairs", "code"),
    [
        ("", {"dy/dw": "skip"}, 0),
        ("", {"*": "skip"}, 3),
        ("strict = true", {"dy/dw": "skip"}, 3),
        ("ignore = ['GC208']", {}, 2),
    ],
)
def test_what_counts_is_what_counts_in_a_run(tmp_path, monkeypatch, settings, pairs, code):
    (tmp_path / "pyproject.toml").write_text(f"[tool.gradcheck]\n{settings}\n")
    monkeypatch.chdir(tmp_path)
    spec = {"op": "a", "forward": lambda x, w: x * w, "inputs": {"x": X, "w": X}, "pairs": pairs}
    if code == 2:
        with pytest.raises(UsageError, match="'GC208' always counts"):
            check(spec)
        return
    assert check(spec).exit_code == code


def test_variables_that_the_function_uses_are_checked_if_asked():
    kernel, bias, unused = tf.Variable([1.0, 2.0]), tf.Variable([0.5, 0.1]), tf.Variable(1.0)

    def layer(x):
        return wrong(x * kernel) + bias

    x = np.ones(2, np.float32)
    assert labels(layer, x) == (1, ["dy/dx"])
    assert labels(layer, x, variables=True)[1] == ["dy/dx", "dy/dkernel", "dy/dbias"]
    assert labels(layer, x, variables=[bias])[1] == ["dy/dx", "dy/dbias"]
    assert labels(lambda: layer(tf.ones(2)), variables=kernel) == (1, ["dy/dVariable"])
    message = check_function(layer, x, variables=[unused]).cases[0].error.message
    assert "the function doesn't use Variable, or it isn't trainable" in message


@pytest.mark.feature  # the diagnosis
def test_a_wrong_gradient_fails_a_test_with_its_table():
    with pytest.raises(AssertionError) as caught:
        assert_gradients(wrong, X)
    text = str(caught.value)
    assert text.startswith("<gradcheck report: 1 mismatched; exit code 1>\n")
    assert "MISMATCH GC101  3 of 9 elements" in text
    assert "the gradient is 1.01 times the derivative" in text
    assert text.endswith("`gradcheck explain GC101` says what that means, and what to do")
    assert "reproduce" not in text


def test_what_cannot_be_decided_fails_too_and_names_the_way_to_say_more():
    with pytest.raises(AssertionError, match=r"if\s+it\s+is\s+meant,\s+say\s+so:\s+freeze=True"):
        assert_gradients(lambda x: x * tf.stop_gradient(x), X)
    assert_gradients(lambda x: x * tf.stop_gradient(x), X, freeze=True)
    with pytest.raises(AssertionError, match=r"nothing was tested[\s\S]*say\s+expect='zero'"):
        assert_gradients(lambda x: 0 * x, X)
    assert_gradients(lambda x: 0 * x, X, expect="zero")
    assert_gradients(lambda x, y: 0 * x + y, X, X, expect={"dy/dx": "zero"})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: assert_gradients(softplus(X), X), TypeError, "Pass the function itself"),
        (lambda: assert_gradients("specs/a.yaml"), TypeError, r"is for gradcheck_cli\.check\(spec\)"),
        (lambda: assert_gradients(softplus), TypeError, "pass the function's arguments after it"),
        (lambda: assert_gradients(softplus, [1, 2]), TypeError, r"x is of type list of int\. Pass floating"),
        (lambda: assert_gradients(softplus, X, eps=1e-6), TypeError, "unexpected keyword argument 'eps'"),
        (lambda: assert_gradients(softplus, X, mode="eager"), TypeError, r"Type modes=\['eager'\]"),
        (lambda: assert_gradients(wrong, [0.1, 0.2]), AssertionError, r"Pass\s+np\.array"),
        (lambda: assert_gradients(Scale, X), TypeError, r"Scale is a class: pass an object of it"),
        (lambda: assert_gradients(Scale.call, X), TypeError, "Pass the method of an object"),
        (lambda: assert_gradients(softplus, X, seed="a"), ValueError, "seed: must be"),
        (lambda: assert_gradients(softplus, X, order=2), TypeError, "For order=2 type second_order=True"),
        (lambda: assert_gradients(softplus, X, eps=1e-3), TypeError, "Steps are chosen for each element"),
        (lambda: assert_gradients(softplus, X, nondet_tol=1e-3), TypeError, "Type nondeterminism=1e-6"),
        (lambda: assert_gradients(softplus, X, fast_mode=True), TypeError, "Type method='probe'"),
        (
            lambda: assert_gradients(softplus, X, method="fast", modes=["rev"]),
            ValueError,
            r"modes\[0\]: must be one of graph, .*\nmethod: must be one of auto, ",
        ),
        (lambda: assert_gradients(softplus, X, checks={"linear": False}), ValueError, "checks.linear: unk"),
        (lambda: assert_gradients(softplus, X, device="gpu"), ValueError, "such as GPU:0"),
        (lambda: assert_gradients(softplus, X, differentiate="y"), ValueError, "no input is named 'y'"),
        (lambda: assert_gradients(softplus, X, domain=(0, None)), ValueError, "x has values outside of 0 to"),
        (lambda: assert_gradients(softplus, X, expect="nought"), ValueError, r"pairs\.\*"),
        (lambda: assert_gradients(lambda k: tf.gather(X, k), [1]), TypeError, "no argument is floating"),
        (lambda: assert_gradients(lambda x: x.numpy(), X), AssertionError, r"compute\s+with TensorFlow"),
        (
            lambda: assert_gradients(tf.function(tf.square, input_signature=[tf.TensorSpec([3])]), X),
            AssertionError,
            r"GC310 +forward: the forward raised TypeError: Binding inputs",
        ),
        (
            lambda: assert_gradients(lambda x: tf.vectorized_map(softplus, x), X),
            AssertionError,
            r"If that is meant:\s+checks=\{'custom_gradient': False\}\.",
        ),
        (lambda: assert_gradients(tf.multiply, (X, X)), TypeError, "Arguments are passed one by one"),
        (
            lambda: assert_gradients(lambda x: x.shape[0] * x, [X]),
            AssertionError,
            r"Pass its parts one by one",
        ),
        (lambda: assert_gradients(softplus, X, modes="grph"), ValueError, "Did you mean 'graph'"),
        (lambda: assert_gradients(softplus, X, budget=0), ValueError, "budget: must be seconds, more than 0"),
        (lambda: assert_gradients(softplus, X, rtol=-1), ValueError, "of 0 or more, but got -1"),
        (lambda: assert_gradients(softplus, X, reference=X), TypeError, "reference must be a function"),
        (lambda: assert_gradients(softplus, X, variables=[X]), TypeError, r"a list of tf\.Variable"),
        (lambda: assert_gradients(lambda p: p.a, Fields(X)), TypeError, "its a would stay unchecked"),
        (lambda: assert_gradients(softplus, X.astype(np.longdouble)), TypeError, "no dtype float128"),
        (lambda: tf.function(lambda x: assert_gradients(softplus, x))(X), TypeError, "symbolic tensor"),
        (lambda: gradcheck_cli.check(softplus, X), TypeError, r"call\s+gradcheck_cli\.check_function"),
        (lambda: gradcheck_cli.gradcheck(softplus, X), AttributeError, "assert_gradients, check"),
        (
            lambda: assert_gradients(tf.nn.leaky_relu, X, 0.1),
            AssertionError,
            r"Pass it by keyword\s+if it is a setting",
        ),
    ],
)
def test_a_mistaken_call_says_what_to_type(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("option", [{"seed": 3}, {"modes": ["eager"]}, {"reference": tf.sin}, {"rtol": 0.1}])
def test_an_option_that_the_function_has_too_is_refused(option):
    (name,) = option
    scope = {"tf": tf}
    exec(f"def own(x, {name}=2.0): return {name} * tf.sin(x)", scope)  # noqa: S102 (text of ours)
    remedy = f"own has a parameter '{name}', and so has this call: .*lambda x: own.x, {name}=.*, x.[.]$"
    for check_it in (check_function, assert_gradients):
        with pytest.raises(TypeError, match=remedy):
            check_it(scope["own"], X, **option)
    assert_gradients(scope["own"], X)  # with its default, as nothing else was passed


def test_a_mistaken_call_is_told_all_options():
    options = inspect.signature(assert_gradients).parameters.values()
    names = [option.name for option in options if option.kind is option.KEYWORD_ONLY]
    with pytest.raises(TypeError, match=f"Options of gradcheck's are {', '.join(names)}; other"):
        assert_gradients(softplus, X, strange=1)


def test_inputs_may_be_left_out_by_name():
    assert labels(scaled, X, 3.0, differentiate="x") == (0, ["dy/dx"])
    params = {"a": X, "b": [X, X]}
    product = lambda p, x: p["a"] * p["b"][0] * p["b"][1] * x  # noqa: E731 (a function of a nest)
    assert labels(product, params, X, differentiate=["p.b"]) == (0, ["dy/dp.b[0]", "dy/dp.b[1]"])
    assert labels(product, params, X, differentiate=["*[0]", "x"]) == (0, ["dy/dp.b[0]", "dy/dx"])


def test_one_infinite_element_leaves_the_other_arguments_to_be_checked():
    mask = np.array([-np.inf, 0.0, 0.0])
    report = check_function(lambda x, mask: tf.nn.softmax(x + mask), X, mask)
    assert report.exit_code == 3
    assert [(pair.label, str(pair.status)) for pair in report.cases[0].pairs] == [
        ("dy/dx", "passed"),
        ("dy/dmask", "inconclusive"),
    ]
    assert "mask is -inf at [0]" in report.cases[0].pairs[1].message
    assert check_function(lambda x, mask: tf.nn.softmax(x + mask), X, mask, differentiate="x")
    assert check_function(softplus, np.array([1.0, np.inf])).cases[0].error.kind == "values"


def test_a_gradient_that_forgets_a_permutation_is_asked_about():
    rising = tf.range(1.0, 8.0, dtype=tf.float64)
    forget = tf.custom_gradient(
        lambda x: (tf.sort(x) * rising, lambda u: tf.gather(u * rising, tf.argsort(x)))
    )
    report = check_function(forget, np.linspace(-3, 3, 7))
    assert report.exit_code == 3
    assert "right where x ascends, wrong beside" in report.cases[0].pairs[0].message
    assert check_function(forget, np.linspace(-3, 3, 7)[::-1]).exit_code == 1
    assert check_function(lambda x: tf.sort(x) * rising, np.linspace(-3, 3, 7))


def test_what_is_wrong_where_numbers_ascend_too_is_shown_there():
    ends = tf.constant([-1.0, 0, 0, 0, 1], tf.float64)
    forget = tf.custom_gradient(
        lambda knots, a: (a * (knots[-1] - knots[0]), lambda u: (ends * tf.reduce_sum(u * a), u))
    )
    whole, apart = check_function(forget, np.linspace(0, 1, 5), np.array([0.4, 1.2, -0.7])).cases[0].pairs
    assert (whole.status, apart.status) == (Status.PASSED, Status.MISMATCHED)
    shown = json.loads(dict(apart.cause.point)["knots"])
    assert shown == sorted(shown)


def test_what_numpy_raises_elsewhere_it_does_not_raise_in_a_check():
    with np.errstate(all="raise"):
        assert check_function(lambda x: tf.tanh(tf.nn.relu(x) * 2 + x), np.linspace(-1, 2, 4))
        assert not check_function(wrong, X)
        assert np.geterr()["under"] == "raise"


def test_both_jacobians_are_arrays_of_the_report():
    report = check_function(lambda a, b: a[:, None] * b, np.ones(2), np.array([[3.0, 4.0, 5.0]]))
    by_a, by_b = report.cases[0].pairs
    assert by_a.analytic.shape == by_a.numeric.shape == (2, 3, 2)
    assert by_b.numeric.shape == (2, 3, 1, 3)
    np.testing.assert_allclose(by_a.numeric[1], [[0, 3], [0, 4], [0, 5]], atol=1e-9)
    turned = check_function(lambda z: (1 + 2j) * z, np.array([1j, 2.0])).cases[0].pairs[0]
    assert turned.analytic.shape == (2, 2, 2)
    np.testing.assert_allclose(turned.analytic, turned.numeric, atol=1e-9)
    wrong_pair = check_function(wrong, X).cases[0].pairs[0]
    np.testing.assert_allclose(wrong_pair.analytic, 1.01 * wrong_pair.numeric, atol=1e-9)
    large = check_function(tf.sin, np.linspace(-1, 1, 3000)).cases[0].pairs[0]  # nine million, most zero
    assert (str(large.status), large.analytic) == ("passed", None)
    spec = {"op": "a", "forward": softplus, "inputs": {"x": X}}
    assert check(spec).cases[0].pairs[0].analytic is None


def test_a_report_has_a_truth_value_a_short_text_and_a_page():
    right, bad = check_function(softplus, X), check_function(wrong, X)
    assert right
    assert not bad
    assert repr(right) == "<gradcheck report: 1 passed; exit code 0>"
    assert "MISMATCH" not in repr(bad)
    assert bad._repr_html_().startswith("<iframe srcdoc=")


def test_a_module_that_is_imported_stays_whatever_the_working_folder_has(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "namesake", ModuleType("namesake"))
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("namesake.py").touch()
    kept = sys.modules["namesake"]
    assert check_function(tf.sin, np.array([0.5]))
    assert sys.modules["namesake"] is kept


def test_a_setting_that_the_gradient_forgets_is_a_question():
    def softened(x, by=1.0, times=1):
        return tf.custom_gradient(lambda x: (by * times * tf.sin(x), lambda upstream: upstream * tf.cos(x)))(
            x
        )

    with pytest.raises(AssertionError, match=r"(?s)with by = 0\.7 the gradient is off.+functools\.partial"):
        assert_gradients(softened, X, by=1.0)
    with pytest.raises(AssertionError, match="with times = 2 the gradient is off"):
        assert_gradients(softened, X, times=1)
    assert_gradients(functools.partial(softened, by=1.0), X)
