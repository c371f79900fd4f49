"""Random rounding bounds what rounding does to a gradient: beside true errors, and in each kind of graph."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli
from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from tests.checking import rounding_truth

pytestmark = pytest.mark.feature  # `gradcheck_cli.check`


@pytest.mark.parametrize("name", rounding_truth.ROWS)
def test_a_true_error_is_within_twice_what_rounding_moves(name):
    found = rounding_truth.measure(name)
    assert (found.error <= 2 * found.rounding).all(), found


# At some of their points, these gradients have no three digits.
FEW_DIGITS = {
    *("1 - tanh^2", "tanh", "sigmoid", "1 - sigmoid", "(1 - cos) / x^2", "(x + 1) / x - 1 / x"),
    *("sin(x) / x", "cos^2 + sin^2", "sum of cubes that cancels"),
}


@pytest.mark.parametrize("name", rounding_truth.ROWS)
def test_an_error_of_a_thousandth_is_beyond(name):
    found = rounding_truth.measure(name)
    has_digits = 2 * found.rounding < 1e-3 * np.abs(found.gradient)
    assert has_digits.all() == (name not in FEW_DIGITS)


def loop(x):
    return tf.while_loop(lambda i, _: i < 5, lambda i, y: (i + 1, tf.sin(y) * 1.3), (0, x))[1]


def branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * 1.3, lambda: x)


@tf.custom_gradient
def own(x):
    return tf.sin(x), lambda u: u * tf.cos(x)


FORWARDS = {
    "ops": lambda x: tf.sin(x) / x,
    "a loop": loop,
    "a branch": branch,
    "a tf.function": tf.function(lambda x: tf.exp(tf.sin(x))),
    "a scan": lambda x: tf.scan(lambda a, b: tf.sin(a + b), x),
    "map_fn": lambda x: tf.map_fn(tf.sin, x),
    "a custom gradient": own,
    "cross entropy": lambda x: tf.nn.softmax_cross_entropy_with_logits(
        [0.0, 1.0, 0.0], tf.cast(x, tf.float32)
    ),
    "a Fourier transform": lambda x: tf.abs(tf.signal.fft(tf.cast(x, tf.complex64))),
    "a solver": lambda x: tf.linalg.solve(tf.linalg.diag(x) + 0.1, x[:, None]),
    "a cast": lambda x: tf.cast(tf.sin(tf.cast(x, tf.bfloat16)), x.dtype),
    "a segment sum": lambda x: tf.math.segment_sum(x * 0.3, [0, 0, 1]),
}


def rounded(forward, dtype, draws=8, value=(0.7, 1.9, -0.3)):
    """Return a gradient, and what it is in some draws."""
    sys.modules["rounded_function"] = module = ModuleType("rounded_function")
    module.forward = forward
    inputs = {"x": {"shape": [3], "dtype": dtype, "value": list(value)}}
    (case,) = load_mapping({"op": "op", "forward": "rounded_function:forward", "inputs": inputs})
    op = GraphOperation.open(CaseState(case), Opening())
    upstream = np.ones((2, *op.outputs[0].shape))
    runs = [op.forms.rounded_otherwise(draw).vjp(0, upstream)[0] for draw in range(draws)]
    return op.vjp(0, upstream)[0], runs


ALL = ("float64", "float32", "float16", "bfloat16")
DTYPES = {"a solver": ALL[:2], "cross entropy": ("float32",), "a Fourier transform": ("float32",)}


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", FORWARDS)
def test_a_gradient_moves_by_some_roundings_of_its_dtype(name, dtype):
    if dtype not in DTYPES.get(name, ALL):
        pytest.skip("has no kernel, or computes in float32")
    exact, (still, *runs) = rounded(FORWARDS[name], dtype)
    np.testing.assert_array_equal(still, exact)
    units = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
    unit = units["bfloat16" if name == "a cast" else dtype]
    moved = np.max(np.abs(np.stack(runs) - exact), axis=0)
    assert np.max(moved) > 0
    assert (moved <= 200 * unit * np.max(np.abs(exact))).all()


def test_a_tie_keeps_its_sides():
    exact, runs = rounded(lambda x: tf.reduce_max(x * x), "float64", value=(1.3, 1.3, -1.3))
    np.testing.assert_allclose(np.stack(runs), np.stack([exact] * len(runs)), rtol=1e-14)


@tf.custom_gradient
def narrowed(x):
    return tf.sin(x), lambda u: u * tf.cast(tf.cos(tf.cast(x, tf.float32)), x.dtype)


def test_a_gradient_narrower_than_its_forward_is_no_rounding():
    exact, runs = rounded(narrowed, "float64")
    np.testing.assert_allclose(np.stack(runs), np.stack([exact] * len(runs)), rtol=1e-14)


def hiding(factor, size):
    """Return a sine whose gradient, times a factor, hides in a sum with something of a size."""

    @tf.custom_gradient
    def op(x):
        def gradient(u):
            large = tf.cos(x) * factor + size
            return u * (large - size)

        return tf.sin(x), gradient

    return op


def judged(forward, value=(1.3, 1.7, 2.9, 3.1), dtype="float64", mode="graph"):
    module = sys.modules["rounded_function"] = ModuleType("rounded_function")
    module.forward = forward
    inputs = {"x": {"shape": [len(value)], "dtype": dtype, "value": list(value)}}
    spec = {"op": "op", "forward": "rounded_function:forward", "inputs": inputs, "modes": [mode]}
    report = gradcheck_cli.check(spec)
    (pair,) = report.cases[0].pairs
    return pair


@pytest.mark.parametrize("factor", [1.0, 1.0001])
def test_what_rounding_leaves_open_names_the_line(factor):
    pair = judged(hiding(factor, 1e12))
    assert pair.undecided == "rounding"
    line = hiding.__code__.co_firstlineno + 6
    assert f"most of it at tests/checking/test_random_rounding.py:{line}, may move y[" in pair.message


def exprel_in_numpy(x, u):
    return u * (x * np.exp(x) - (np.exp(x) - 1)) / x**2


@tf.custom_gradient
def exprel(x):
    def gradient(u):
        return tf.ensure_shape(tf.numpy_function(exprel_in_numpy, [x, u], x.dtype), x.shape)

    return tf.math.expm1(x) / x, gradient


@tf.custom_gradient
def exprel_in_tensorflow(x):
    return tf.math.expm1(x) / x, lambda u: u * (x * tf.exp(x) - (tf.exp(x) - 1)) / x**2


@tf.custom_gradient
def gelu(x):
    def gradient(u):
        half, turn = (tf.constant(each, x.dtype) for each in (2.0, 2 * np.pi))
        return u * (0.5 * (1 + tf.math.erf(x / tf.sqrt(half))) + x * tf.exp(-x * x / 2) / tf.sqrt(turn))

    return tf.nn.gelu(x), gradient


@pytest.mark.parametrize(
    ("forward", "low", "high", "dtype"),
    [
        (exprel, 1e-6, 4e-6, "float64"),
        (exprel_in_tensorflow, 1e-6, 4e-6, "float64"),
        (gelu, -6, -2, "bfloat16"),
    ],
)
def test_each_of_many_rows_is_measured(forward, low, high, dtype):
    points = np.random.default_rng(0).uniform(low, high, 300)
    pair = judged(forward, points.tolist(), dtype)
    assert (pair.status, pair.numbers.decided_by["within measured rounding"] > 256) == (Status.PASSED, True)


@tf.custom_gradient
def noisy_near_one(x):
    return tf.acosh(x), lambda u: u / tf.sqrt(x * x - 1)


def test_what_differences_leave_open_isnt_said_to_be_open_for_rounding():
    pair = judged(noisy_near_one, [1 + 1e-12, 2.0, 3.0, 4.0])
    assert pair.undecided == "noise"  # of steps that are short enough for the slope not to change
    assert "within measured rounding" not in pair.numbers.decided_by


def sizes_of(forward, dtype, value, dtypes=None):
    """Return what the output's rounding is relative to if the first input moves."""
    sys.modules["rounded_function"] = module = ModuleType("rounded_function")
    module.forward = forward
    inputs = {
        name: {"shape": list(np.shape(each)), "dtype": dtype, "value": np.asarray(each).tolist()}
        for name, each in zip("ab", value, strict=False)
    }
    (case,) = load_mapping({"op": "op", "forward": "rounded_function:forward", "inputs": inputs})
    return GraphOperation.open(CaseState(case), Opening()).rounded_sizes(0)[0]


# What the rounding of a result is relative to, from a least to a largest size. The largest is twice a unit
# roundoff for each number: what is moved is the number next to it.
SIZES = {
    "its own size": (lambda a: a * 3.7, [0.3], 1.11, 2.3),
    "a difference of large terms": (lambda a: a * 51.3 - a * 51.2, [0.9], 30, 300),
    "terms that cancel in a product of matrices": (
        lambda a: tf.linalg.matvec(tf.constant([[1.0, -1.0]], a.dtype), a * 47.1),
        [[1.1, 1.1]],
        30,
        600,
    ),
    "one that vanishes in a logarithm": (lambda a: tf.math.log(1 + tf.exp(a)), [-39.0], 0.9, 4),
    "terms in a loop": (
        lambda a: (
            tf.while_loop(lambda _: True, lambda y: [y + 70.3], [a * 1.3], maximum_iterations=3)[0] - 210.0
        ),
        [0.7],
        100,
        1200,
    ),
    "terms in a tf.function": (tf.function(lambda a: a * 51.3 - a * 51.2), [0.9], 30, 300),
    "exact terms": (lambda a: a * 64.0 - a * 32.0, [0.75], 24, 24),
    "what no input moves": (lambda a: a * 0.3 + tf.sin(tf.constant(1e6, a.dtype)) * 1e9 * 0, [0.7], 0.2, 0.6),
    "what another input moves": (lambda a, b: a * 0.3 + (b * 1e9 - b * 1e9), [0.7, 0.3], 0.2, 0.6),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SIZES)
def test_what_rounding_is_relative_to(name, dtype):
    forward, value, least, largest = SIZES[name]
    size = sizes_of(forward, dtype, value)
    assert (least <= size).all()
    assert (size <= largest).all()


def test_where_a_graph_calls_python_only_the_own_size_is_known():
    numpy_op = tf.autograph.experimental.do_not_convert(
        lambda a: tf.numpy_function(lambda x: x * 51.3 - x * 51.2, [a], a.dtype)
    )
    np.testing.assert_allclose(sizes_of(numpy_op, "float64", [0.9]), 0.09, rtol=1e-6)
