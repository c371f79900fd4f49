"""Custom gradients that no backward pass runs, and gradients that are numbers instead of tensors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from attacking import Attack

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


ATTACKS = [
    *(
        Attack(f"{name}_{kind}_{mode}", "unchecked", X, make(named(kind)), keys=keys)
        for name, make in UNRUN.items()
        for kind in SLOPES
        for mode, keys in (("graph", {}), ("eager", EAGER))
    ),
    Attack("persistent_tape", "unchecked", X, differentiated(square(3.0), {"persistent": True})),
    Attack("vectorized_rows", "unchecked", MATRIX, vectorized(square(3.0))),
    Attack("in_a_vectorized_function", "unchecked", MATRIX, vectorized(in_a_function(square(3.0)))),
    Attack(
        "meant",
        "right",
        X,
        differentiated(square(2.0)),
        keys={"checks": {"custom_gradient": False}},
    ),
    *(Attack(f"{name}_{kind}", kind, X, make(named(kind))) for name, make in RUN.items() for kind in SLOPES),
    *(
        Attack(f"{name}_{kind}_eager", kind, X, RUN[name](named(kind)), keys=EAGER)
        for name in ("loss_of_both", "two_tapes", "made_on_first_call")
        for kind in SLOPES
    ),
    Attack("nested_right", "right", X, nested(square(3.0))),
    Attack("of_a_constant", "right", X, of_a_constant(square(3.0))),
    Attack("in_own_gradient_right", "right", X, in_own_gradient(square(2.0))),
    Attack("in_own_gradient_wrong", "wrong", X, in_own_gradient(square(3.0))),
    *(
        Attack(f"number_{name}_{mode}", "wrong", WITH_SCALE, scaled(lambda *_, zero=zero: zero), keys=keys)
        for name, zero in ZERO.items()
        for mode, keys in (("graph", {}), ("eager", EAGER))
    ),
    Attack("number_one", "wrong", WITH_SCALE, scaled(lambda *_: 1.0)),
    Attack("number_in_a_chain", "wrong", WITH_SCALE, in_a_chain(lambda *_: 1.0)),
    Attack("tensor_beside", "right", WITH_SCALE, scaled(lambda u, x: tf.reduce_sum(u * x))),
    Attack(
        "number_not_differentiated",
        "right",
        {**X, "k": {"shape": [], "differentiate": False}},
        scaled(lambda *_: 0.0),
    ),
    Attack("number_for_a_vector", "wrong", X, first_axis(1.0)),
    Attack("array_in_float32", "wrong", {"x": {"shape": [3], "dtype": "float32"}}, first_axis(np.ones(3))),
    Attack(
        "array_right",
        "right",
        X,
        first_axis(np.zeros(3)),
        keys={"pairs": {"dy/dx": {"expect": "zero"}}},
    ),
]
