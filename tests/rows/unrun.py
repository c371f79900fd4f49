"""Custom gradients that no backward pass runs, and gradients that are numbers instead of tensors."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

NUMBERS = itertools.count()
X = {"x": {"shape": [3]}}
MATRIX = {"x": {"shape": [2, 3]}}
WITH_SCALE = {**X, "k": {"shape": []}}
EAGER = {"modes": ["eager"]}
SLOPES = {"right": 2.0, "wrong": 3.0}


def square(slope):
    """x ** 2, with the derivative `slope * x`."""

    @tf.custom_gradient
    def call(x):
        return x * x, lambda u: slope * x * u

    return call


def differentiated(function, tape=None):
    """The derivative of a function of sin(x), as physics-informed losses take it."""
    tape = tape or {}

    def forward(x):
        with tf.GradientTape(**tape) as recording:
            recording.watch(x)
            y = function(tf.sin(x))
        return recording.gradient(y, x)

    return forward


def loss_of_both(function):
    """A function and its own derivative: backpropagation runs the custom gradient, too."""

    def forward(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y + tape.gradient(y, x)

    return forward


def vectorized(function):
    return lambda x: tf.vectorized_map(function, x)


def mapped(function):
    return lambda x: tf.map_fn(function, x)


def nested(function):
    """Inside of another custom gradient, whose own gradient is run."""

    @tf.custom_gradient
    def call(x):
        return function(x) + 1.0, lambda u: 2.0 * x * u

    return call


def of_a_constant(function):
    return lambda x: x * function(tf.constant([1.0, 2.0, 3.0], x.dtype))


def for_an_integer(function):
    """Beside sin, a count that the custom gradient is called for."""
    return lambda x: (tf.sin(x), tf.cast(tf.reduce_sum(function(x)), tf.int32))


def for_both(function):
    def forward(x):
        y = function(x)
        return y, tf.cast(tf.reduce_sum(y), tf.int32)

    return forward


def in_a_function(function):
    return tf.function(function, autograph=False)


def in_a_branch(function):
    return lambda x: tf.cond(tf.reduce_sum(x) > -100.0, lambda: function(x), lambda: x)


def in_a_loop(function):
    def forward(x):
        return tf.while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, function(y)), (0, 0.5 * x), maximum_iterations=2
        )[1]

    return forward


def in_own_gradient(function):
    """A gradient that a custom gradient takes by a tape: another pass of backpropagation."""

    @tf.custom_gradient
    def call(x):
        def gradient(u):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return u * tape.gradient(y, x)

        return x * x, gradient

    return call


def scaled(for_k, for_x=lambda u, k: u * k):
    """k * x, whose gradient for k is what `for_k` makes of the upstream and x."""

    @tf.custom_gradient
    def call(x, k):
        return x * k, lambda u: (for_x(u, k), for_k(u, x))

    return call


def in_a_chain(for_k):
    return lambda x, k: tf.sin(scaled(for_k)(tf.exp(x), tf.tanh(k)))


def first_axis(number):
    """The first of three numbers, whose gradient is a constant."""

    @tf.custom_gradient
    def call(x):
        return tf.reduce_sum(0.0 * x) + 1.0, lambda _: number

    return call


class MadeOnFirstCall:
    """A layer that makes its variable when it is first called."""

    def __init__(self, slope):
        self.weight = None
        self.square = square(slope)

    def __call__(self, x):
        if self.weight is None:
            self.weight = tf.Variable([1.0, 2.0, 3.0], dtype=x.dtype, name="weight")
        return self.square(x) * self.weight


def two_tapes(function):
    """A second derivative, by one tape in another."""

    def forward(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.sin(x) * x
            slope = inner.gradient(y, x)
        return outer.gradient(slope, x) + function(x)

    return forward


def used_twice(function):
    """A persistent tape that is asked twice."""

    def forward(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.sin(x)
            z = y * x
        return tape.gradient(y, x) + tape.gradient(z, x) + function(x)

    return forward


def overridden(forward, *op_types):
    """A function under an override of some op types, with a gradient that is half of Square's."""
    name = f"HalfOfSquare{next(NUMBERS)}"
    tf.RegisterGradient(name)(lambda op, u: u * op.inputs[0])

    def call(x):
        with tf.compat.v1.get_default_graph().gradient_override_map(dict.fromkeys(op_types, name)):
            return forward(x)

    return call


def of_a_weight(slope, read=tf.identity, inside=lambda function: function):
    """x times the square of a weight, which no input moves."""
    weight = tf.Variable([0.5, -1.5, 2.0], dtype=tf.float64)
    return inside(lambda x: x * square(slope)(read(weight)))


UNRUN = {"differentiated": differentiated, "vectorized": vectorized, "for_an_integer": for_an_integer}
RUN = {
    "for_both": for_both,
    "loss_of_both": loss_of_both,
    "mapped": mapped,
    "in_a_function": in_a_function,
    "in_a_branch": in_a_branch,
    "in_a_loop": in_a_loop,
    "two_tapes": two_tapes,
    "used_twice": used_twice,
    "made_on_first_call": lambda function: MadeOnFirstCall(2.0 if function.slope == "right" else 3.0),
}
ZERO = {"python": 0.0, "integer": 0, "numpy": np.float64(0.0), "array": np.zeros([])}


def named(kind):
    function = square(SLOPES[kind])
    function.slope = kind
    return function


ROWS = marked(
    [
        *(
            Row(f"{name}_{kind}_{mode}", make(named(kind)), None, X, "unchecked", keys=keys)
            for name, make in UNRUN.items()
            for kind in SLOPES
            for mode, keys in (("graph", {}), ("eager", EAGER))
        ),
        Row("persistent_tape", differentiated(square(3.0), {"persistent": True}), None, X, "unchecked"),
        Row("vectorized_rows", vectorized(square(3.0)), None, MATRIX, "unchecked"),
        Row("in_a_vectorized_function", vectorized(in_a_function(square(3.0))), None, MATRIX, "unchecked"),
        Row(
            "meant",
            differentiated(square(2.0)),
            None,
            X,
            "right",
            keys={"checks": {"custom_gradient": False}},
        ),
        *(
            Row(f"{name}_{kind}", make(named(kind)), None, X, kind)
            for name, make in RUN.items()
            for kind in SLOPES
        ),
        *(
            Row(f"{name}_{kind}_eager", RUN[name](named(kind)), None, X, kind, keys=EAGER)
            for name in ("loss_of_both", "two_tapes", "made_on_first_call")
            for kind in SLOPES
        ),
        Row("override_of_another_type", overridden(lambda x: x * x, "Square"), None, X, "unchecked"),
        Row("override_of_a_function", overridden(tf.function(tf.square), "Square"), None, X, "unchecked"),
        Row("override_eager", overridden(tf.square, "Square"), None, X, "unchecked", keys=EAGER),
        Row("override_of_two_types", overridden(tf.square, "Square", "Exp"), None, X, "wrong"),
        Row("override_half", overridden(lambda x: tf.square(x) / 2 + 0 * x, "Square"), None, X, "wrong"),
        Row("of_a_weight_right", of_a_weight(2.0), None, X, "right"),
        Row("of_a_weight_wrong", of_a_weight(3.0), None, X, "wrong"),
        Row("of_a_weight_in_a_function", of_a_weight(3.0, inside=tf.function), None, X, "wrong"),
        Row("of_a_weight_in_a_branch", of_a_weight(3.0, inside=in_a_branch), None, X, "wrong"),
        Row("of_a_weight_eager", of_a_weight(3.0), None, X, "wrong", keys=EAGER),
        Row("of_rows_of_a_weight", of_a_weight(3.0, lambda w: tf.gather(w, [2, 0, 1])), None, X, "wrong"),
        Row("nested_right", nested(square(3.0)), None, X, "right"),
        Row("of_a_constant", of_a_constant(square(3.0)), None, X, "right"),
        Row("in_own_gradient_right", in_own_gradient(square(2.0)), None, X, "right"),
        Row("in_own_gradient_wrong", in_own_gradient(square(3.0)), None, X, "wrong"),
        *(
            Row(
                f"number_{name}_{mode}",
                scaled(lambda *_, zero=zero: zero),
                None,
                WITH_SCALE,
                "wrong",
                keys=keys,
            )
            for name, zero in ZERO.items()
            for mode, keys in (("graph", {}), ("eager", EAGER))
        ),
        Row("number_one", scaled(lambda *_: 1.0), None, WITH_SCALE, "wrong"),
        Row("number_in_a_chain", in_a_chain(lambda *_: 1.0), None, WITH_SCALE, "wrong"),
        Row("tensor_beside", scaled(lambda u, x: tf.reduce_sum(u * x)), None, WITH_SCALE, "right"),
        Row(
            "number_not_differentiated",
            scaled(lambda *_: 0.0),
            None,
            {**X, "k": {"shape": [], "differentiate": False}},
            "right",
        ),
        Row("number_for_a_vector", first_axis(1.0), None, X, "wrong"),
        Row(
            "array_in_float32",
            first_axis(np.ones(3)),
            None,
            {"x": {"shape": [3], "dtype": "float32"}},
            "wrong",
        ),
        Row(
            "array_right",
            first_axis(np.zeros(3)),
            None,
            X,
            "right",
            keys={"pairs": {"dy/dx": {"expect": "zero"}}},
        ),
    ],
    "differentiated_right_eager",
    "for_*_*",
    "number_numpy_eager",
    "of_rows_of_a_weight",
    "override_of_another_type",
    "vectorized_rows",
)
