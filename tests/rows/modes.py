"""What a mode is checked in: each kind of op, NumPy beside a second order, XLA, overrides, covers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tests.support.row import Row, marked

X = {"x": {"shape": [3]}}
MATRICES = {"a": {"shape": [2, 2]}, "b": {"shape": [2, 2]}}
MODES = ("graph", "dynamic", "eager")


def _numpy(function, *tensors):
    return tf.ensure_shape(tf.numpy_function(function, list(tensors), tensors[0].dtype), tensors[0].shape)


# --- second order beside NumPy ---


def forward_by_numpy(slope):
    """Return sin by NumPy, with a gradient by TensorFlow."""

    @tf.custom_gradient
    def forward(x):
        return _numpy(np.sin, x), lambda u: u * slope(x)

    return forward


def _cosine(factor):
    """Return the cosine, with `-factor * sin` for its own slope."""

    @tf.custom_gradient
    def cosine(x):
        return tf.cos(x), lambda u: -factor * u * tf.sin(x)

    return cosine


def _numpy_cosine(factor):
    """Return the cosine by NumPy, with `-factor * sin` for its own slope."""

    @tf.custom_gradient
    def cosine(x):
        return _numpy(np.cos, x), lambda u: -factor * u * tf.sin(x)

    return cosine


def logged(factor):
    """Return sin with a gradient that shows its upstream to NumPy."""

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            tf.numpy_function(lambda u: u, [u], u.dtype)
            return u * _cosine(factor)(x)

        return tf.sin(x), gradient

    return forward


def log_added(factor):
    """Return sin with a gradient to which what NumPy returns is added, times zero."""

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            return u * _cosine(factor)(x) + 0.0 * _numpy(lambda x: x, tf.stop_gradient(x))

        return tf.sin(x), gradient

    return forward


def half_by_numpy(x):
    """Return sin with a gradient of which a part that moves with x comes from NumPy: a wrong Hessian."""

    @tf.custom_gradient
    def forward(x):
        return tf.sin(x), lambda u: 0.5 * u * tf.cos(x) + 0.5 * u * _numpy(np.cos, x)

    return forward(x)


def all_by_numpy(x):
    @tf.custom_gradient
    def forward(x):
        return tf.sin(x), lambda u: u * _numpy(np.cos, x)

    return forward(x)


def _second_order():
    kinds = {
        "forward_numpy": lambda factor: forward_by_numpy(_cosine(factor)),
        "gradient_numpy": lambda factor: forward_by_numpy(_numpy_cosine(factor)),
        "logged": logged,
        "log_added": log_added,
    }
    for mode in MODES:
        keys = {"second_order": True, "modes": [mode]}
        for name, make in kinds.items():
            for truth, factor in (("right", 1.0), ("wrong", 1.3)):
                yield Row(f"{name}_{truth}_{mode}", make(factor), None, X, truth, keys=keys)
        yield Row(f"half_by_numpy_{mode}", half_by_numpy, None, X, "wrong", keys=keys)
        yield Row(f"all_by_numpy_{mode}", all_by_numpy, None, X, "right", keys=keys)


# --- code that asks whether XLA compiles it ---


def _is_compiled():
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def asks(wrong_where):
    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            return u * tf.cos(x) * (1.5 if _is_compiled() == wrong_where else 1.0)

        return tf.sin(x), gradient

    return forward


def asks_forward(x):
    return tf.sin(x) * (2.0 if _is_compiled() else 2.0 + 0.0)


def _compiled():
    for mode in ("graph", "xla"):
        for wrong_where in (True, False):
            truth = "wrong" if wrong_where == (mode == "xla") else "right"
            name = f"asks_{'inside' if wrong_where else 'outside'}_{mode}"
            yield Row(name, asks(wrong_where), None, X, truth, keys={"modes": [mode]})
        yield Row(f"asks_forward_{mode}", asks_forward, None, X, "right", keys={"modes": [mode]})


# --- an override that reaches some ops of its type ---


def _product_gradient(op, upstream):
    a, b = op.inputs
    return tf.matmul(upstream, b, transpose_b=True), tf.matmul(a, upstream, transpose_a=True)


@tf.function
def _hidden(a, b):
    return tf.matmul(a, b)


@tf.custom_gradient
def _with_its_own(a, b):
    return tf.matmul(a, b), lambda u: (tf.matmul(u, b, transpose_b=True), tf.matmul(a, u, transpose_a=True))


def _loop(a, b):
    return tf.while_loop(
        lambda i, _: i < 2, lambda i, y: (i + 1, tf.matmul(y, b)), (0, a), maximum_iterations=2
    )[1]


def _off_the_path(a, b):
    known = tf.constant([[1.0, 2.0], [3.0, 4.0]], a.dtype)
    return tf.matmul(a, b) + _hidden(known, known) + tf.stop_gradient(_hidden(a, b)) * 0.0


def _overrides():
    rows = {
        "both_reached": ("right", lambda a, b: tf.matmul(a, b) + tf.matmul(b, a)),
        "one_in_a_function": ("not green", lambda a, b: tf.matmul(a, b) + _hidden(a, b)),
        "one_in_a_loop": ("not green", lambda a, b: tf.matmul(a, b) + _loop(a, b)),
        "one_in_a_custom_gradient": ("right", lambda a, b: tf.matmul(a, b) + _with_its_own(a, b)),
        "one_off_the_path": ("right", _off_the_path),
    }
    for mode in ("graph", "dynamic"):
        keys = {"op_type": "MatMul", "binding": "override", "modes": [mode]}
        for name, (truth, forward) in rows.items():
            yield Row(f"{name}_{mode}", forward, _product_gradient, MATRICES, truth, keys=keys)
    keys = {"op_type": "MatMul", "binding": "override", "checks": {"override": False}}
    forward = rows["one_in_a_function"][1]
    yield Row("one_is_meant", forward, _product_gradient, MATRICES, "right", keys=keys)


# --- what a custom gradient differentiates itself covers nothing ---


@tf.custom_gradient
def own_tape(x):
    def gradient(u):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.sinh(x)
        return tape.gradient(y, x, u)

    return tf.sinh(x), gradient


@tf.custom_gradient
def own_body(x):
    return tf.sinh(x), lambda u: u * tf.cosh(x)


def _covers():
    for mode in (*MODES, "xla"):
        keys = {"covers": ["Sinh"], "modes": [mode]}
        yield Row(f"own_tape_covers_{mode}", own_tape, None, X, "unchecked", keys=keys)
        yield Row(f"own_body_covers_{mode}", own_body, None, X, "unchecked", keys=keys)
        yield Row(f"recomputed_covers_{mode}", tf.recompute_grad(tf.sinh), None, X, "right", keys=keys)
        yield Row(
            f"plain_covers_{mode}", lambda x: tf.sinh(tf.function(tf.sinh)(x)), None, X, "right", keys=keys
        )


# --- gradients for variables that nobody asked for ---


def scaled(factor, *, none=False):
    def make():
        scale = tf.Variable([1.0, 2.0, 0.5], dtype=tf.float64, name="scale")

        @tf.custom_gradient
        def forward(x):
            def gradient(u, variables=None):
                return u * scale, [None if none else factor * u * x for _ in variables]

            return x * scale, gradient

        return forward

    return make


def _variables():
    for mode in (*MODES, "xla"):
        keys = {"build": {}, "modes": [mode]}
        yield Row(f"scale_right_{mode}", scaled(1.0), None, X, "right", keys=keys)
        yield Row(f"scale_wrong_{mode}", scaled(1.2), None, X, "wrong", keys=keys)
        yield Row(f"scale_none_{mode}", scaled(1.0, none=True), None, X, "wrong", keys=keys)


# --- ops that are right in every mode, and what a mode alone must not spoil ---


def _smooth(x, w):
    return tf.tanh(tf.matmul(x, w)), tf.reduce_sum(x)


@tf.function
def _python_branches(x):
    return x if tf.reduce_sum(x) > 1e3 else x * x


@tf.function
def _straight_through(x):
    return x + tf.stop_gradient(tf.round(x) - x)


def _traced_before():
    _straight_through(tf.zeros([3], tf.float64))
    return _straight_through


def _untraced(then):
    """Return a function that no graph can trace, since it asks for a value."""
    return lambda x: then(tf.sin(x) if float(x.numpy().sum()) else x)


def _each():
    taken = {"x": {"shape": [5, 2]}, "i": {"shape": [3], "dtype": "int32", "integers": {"low": 0, "high": 5}}}
    matrices = {"x": {"shape": [3, 4]}, "w": {"shape": [4, 2]}}
    ops = {
        "matrix_product": (_smooth, matrices),
        "matrix_product_float32": (
            _smooth,
            {name: {**one, "dtype": "float32"} for name, one in matrices.items()},
        ),
        "own_gradient": (scaled(1.0)(), X),
        "loop": (
            lambda x: tf.while_loop(
                lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x), maximum_iterations=3
            )[1],
            X,
        ),
        "tf_function": (_python_branches, X),
        "softmax": (tf.nn.softmax, {"x": {"shape": [3, 4]}}),
        "integers_beside": (lambda x, i: tf.gather(x, i) ** 2, taken),
        "complex": (lambda x: tf.math.conj(x) * x * x, {"x": {"shape": [3], "dtype": "complex128"}}),
        "scalar": (tf.exp, {"x": {"shape": []}}),
        "scalar_bfloat16": (tf.exp, {"x": {"shape": [], "dtype": "bfloat16"}}),
        "counted_rows": (lambda x: tf.reduce_sum(x**2) / tf.cast(tf.shape(x)[0], x.dtype), X),
        "inner_dimension": (lambda x: tf.reshape(x, [-1, x.shape[1] // 2, 2]) ** 2, {"x": {"shape": [3, 4]}}),
    }
    for name, (op, inputs) in ops.items():
        yield Row(f"each_{name}", op, None, inputs, "right", keys={"modes": [*MODES, "xla"], "samples": 1})
    half = {"x": {"shape": [], "dtype": "bfloat16"}}
    yield Row(
        "numpy_scalar_bfloat16",
        forward_by_numpy(tf.cos),
        None,
        half,
        "right",
        keys={"modes": ["graph", "dynamic"]},
    )
    on_device = {"modes": [*MODES, "xla"], "device": "CPU:0"}
    yield Row("each_on_a_device", tf.tanh, None, X, "right", keys=on_device)
    narrow = tf.function(lambda x: tf.cast(tf.tanh(tf.cast(x, tf.float32)), tf.float64))
    ready = narrow.get_concrete_function(tf.TensorSpec([3], tf.float64))
    yield Row("ready_made_in_float32", ready, None, X, "right", keys={"modes": ["graph", "eager"]})
    for modes in (["graph", "eager"], ["eager", "graph"], ["xla", "graph"]):
        keys = {"modes": modes, "checks": {"modes": False}}
        other = lambda x: x * (2 if tf.executing_eagerly() else 3)  # noqa: E731 (an op)
        yield Row(f"not_compared_{'_'.join(modes)}", other, None, X, "right", keys=keys)


def _eagerly():
    raw = {
        "Squeeze": ({"input": {"shape": [2, 1]}}, {"squeeze_dims": [1]}),
        "SplitV": (
            {
                "value": {"shape": [3]},
                "size_splits": {"value": [1, 2], "dtype": "int32"},
                "split_dim": {"value": 0, "dtype": "int32"},
            },
            {"num_split": 2},
        ),
        "Select": (
            {
                "condition": {"value": [True, False], "dtype": "bool"},
                "t": {"shape": [2]},
                "e": {"shape": [2]},
            },
            {},
        ),
    }
    for op_type, (inputs, attrs) in raw.items():
        keys = {"op_type": op_type, "attrs": attrs, "modes": ["eager"]}
        yield Row(f"raw_{op_type}", "", None, inputs, "right", keys=keys)
    eagerly, frozen = {"modes": ["eager"]}, {"modes": ["eager"], "freeze": True}
    at = {"x": {"value": [0.3, 1.2]}}
    rounded = _untraced(lambda x: x + tf.stop_gradient(tf.round(x) - x))
    yield Row("untraced_draw", _untraced(lambda x: tf.nn.dropout(x, 0.5)), None, at, "right", keys=eagerly)
    yield Row("untraced_stop", rounded, None, at, "unchecked", keys=eagerly)
    yield Row("untraced_stop_meant", rounded, None, at, "right", keys=frozen)
    yield Row("traced_before", _traced_before(), None, X, "right", keys=frozen)
    stopped = tf.custom_gradient(lambda x: (x * tf.stop_gradient(x), lambda u: 2 * x * u))
    yield Row("stop_inside_a_custom_gradient", stopped, None, X, "right", keys=eagerly)
    gamma = lambda x: tf.random.stateless_gamma([3], [1, 2], x, dtype=x.dtype)  # noqa: E731 (an op)
    positive = {"x": {"shape": [3], "uniform": {"low": 1, "high": 2}}}
    yield Row("gamma", gamma, None, positive, "unchecked", keys=eagerly)


ROWS = marked(
    (*_second_order(), *_compiled(), *_overrides(), *_covers(), *_variables(), *_each(), *_eagerly()),
    "each_matrix_product_float32",
    "each_tf_function",
    "each_complex",
    "each_scalar_bfloat16",
    "one_in_a_function_dynamic",
    "one_is_meant",
    "own_body_covers_eager",
)
