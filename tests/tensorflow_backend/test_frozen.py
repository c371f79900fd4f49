"""What is held while the inputs move, and what isn't: each rule of decision 9."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode

X = {"x": {"shape": [3]}}
POSITIVE = {"x": {"shape": [3], "uniform": {"low": 0.5, "high": 1.5}}}


def frozen_of(result):
    """Return the message of the check `frozen`, without its opening words."""
    (check,) = [check for check in result.checks if check.name == "frozen"]
    return check.message.removeprefix("held at the base point's values: ")


# --- stop_gradient ---


def constant_self(x):
    return x * tf.stop_gradient(x)


@tf.custom_gradient
def stopped_inside(x):
    return x * tf.stop_gradient(x), lambda upstream: upstream * x


def test_a_stop_gradient_inside_a_custom_gradient_is_said_not_to_be_held(run):
    line = stopped_inside.__wrapped__.__code__.co_firstlineno + 2
    for function in (stopped_inside, lambda x: stopped_inside(x) * tf.stop_gradient(x)):
        result = run(forward=function, inputs=POSITIVE, freeze=True)
        assert result.status is Status.MISMATCHED
        place = f"stop_gradient at tests/tensorflow_backend/test_frozen.py:{line}"
        reason = "inside a custom gradient's forward, which is differenced as it is"
        assert f"not {place} ({reason})" in result.how.held


def test_the_message_names_the_line_and_the_change(run):
    result = run(forward=constant_self, inputs={"x": {"value": [1.0, 2.0], "shape": [2]}})
    line = constant_self.__code__.co_firstlineno + 1
    (pair,) = result.pairs
    assert pair.message == (
        f"a stop_gradient at tests/tensorflow_backend/test_frozen.py:{line} changes this derivative by up to "
        "50 %; if it is meant, say so: 'freeze: true'."
    )


def test_of_several_the_guilty_ones_are_named(run):
    def forward(x):
        shifted = x - tf.stop_gradient(tf.reduce_max(x))
        weights = tf.exp(shifted) / tf.reduce_sum(tf.exp(shifted))
        return weights * tf.stop_gradient(tf.sin(x))

    line = forward.__code__.co_firstlineno
    for mode in ("graph", "eager"):
        (pair,) = run(forward=forward, inputs=X, modes=[mode]).pairs
        assert [place.rpartition(":")[2] for place in pair.cause.stops] == [str(line + 3)]


def test_one_of_a_library_is_placed_at_the_users_line_that_calls_it(run):
    def forward(x):
        mean, variance = tf.nn.moments(x, 0)
        return (x - tf.stop_gradient(mean)) / tf.sqrt(variance)

    (pair,) = run(forward=forward, inputs={"x": {"shape": [5]}}).pairs
    assert pair.cause.stops == (
        f"tests/tensorflow_backend/test_frozen.py:{forward.__code__.co_firstlineno + 2}",
    )


def test_a_reference_holds_its_own(run):
    reverse = tf.custom_gradient(lambda x: (tf.identity(x), lambda upstream: -upstream))
    result = run(
        forward=reverse,
        reference=lambda x: tf.stop_gradient(2 * x) - x,
        reference_forward=True,
        inputs=X,
        second_order=True,
    )
    assert result.status is Status.PASSED
    assert result.how.held[0].endswith(" of the reference")


# --- draws ---


def dropout(x):
    return tf.nn.dropout(x * x, 0.5)


def bernoulli(x):
    return tf.cast(tf.random.uniform([3], dtype=x.dtype) < 0.5, x.dtype) * x * x


GENERATOR = tf.random.Generator.from_seed(1)
DRAWS = [
    (dropout, "1 RandomUniform."),
    (bernoulli, "1 RandomUniform."),
    (lambda x: x * x + tf.random.normal([3], dtype=x.dtype), "1 RandomStandardNormal."),
    (lambda x: x * tf.random.truncated_normal([3], dtype=x.dtype), "1 TruncatedNormal."),
    (lambda x: tf.gather(x * x, tf.random.uniform([5], 0, 3, tf.int32)), "1 RandomUniformInt."),
    (lambda x: tf.gather(x * x, tf.random.categorical(x[None], 4)[0]), "1 Multinomial."),
    (lambda x: tf.gather(x * x, tf.random.shuffle(tf.range(3))), "1 RandomShuffle."),
    (lambda x: x * x * tf.random.poisson([3], 4.0, tf.float64), "1 RandomPoissonV2."),
    (lambda x: x * GENERATOR.normal([3], dtype=x.dtype), "1 RngReadAndSkip."),
    (lambda x: dropout(x) + tf.nn.dropout(x, 0.5), "2 RandomUniform."),
]


@pytest.mark.on_change("dropout-1 RandomUniform.")
@pytest.mark.parametrize(("function", "held"), DRAWS)
def test_a_draw_is_held(run, function, held):
    result = run(forward=function, inputs=POSITIVE)
    assert (result.status, frozen_of(result)) == (Status.PASSED, held)
    for freeze in (True, False):  # which is of stop_gradient alone
        found = run(forward=function, inputs=POSITIVE, freeze=freeze)
        assert (found.status, frozen_of(found)) == (Status.PASSED, held)


def test_float64_takes_the_same_draw(case_of):
    opener = CaseOpener(
        GraphMode(), CaseState(case_of(forward=dropout, inputs={"x": {"shape": [64], "dtype": "float32"}}))
    )
    own = opener.open(Opening())
    wide = opener.in_float64(own)
    assert wide is not None
    np.testing.assert_array_equal(own.base_values[0] == 0, wide.base_values[0] == 0)
    again = opener.open(Opening())
    np.testing.assert_array_equal(own.base_values[0], again.base_values[0])
    other = opener.open(Opening(1))
    assert ((own.base_values[0] == 0) != (other.base_values[0] == 0)).any()


def test_a_draw_with_a_gradient_of_its_own_is_never_held(run):
    result = run(forward=lambda x: x * tf.random.gamma([], x, dtype=x.dtype), inputs=POSITIVE)
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")
    assert "(RandomGamma)" in result.checks[0].message
    assert "implicit reparameterisation" in result.checks[0].message


def test_another_number_of_draws_in_each_trace_is_said_so(run):
    calls = []

    def forward(x):
        calls.append(1)
        for _ in calls:
            x = tf.nn.dropout(x, 0.5)
        return x

    result = run(forward=forward, inputs=X)
    assert (result.status, result.error.kind) == (Status.ERROR, "forward")
    assert "draws other random numbers each time it is traced" in result.error.message


# --- inside functions, loops and branches ---


def in_nested_functions(x):
    inner = tf.function(constant_self)
    return tf.function(lambda y: inner(y) + dropout(y))(x)


def in_nested_loops(x):
    def body(i, y):
        _, z = tf.while_loop(
            lambda j, _: j < 2, lambda j, z: (j + 1, tf.stop_gradient(tf.sin(z)) * z + z), (0, y)
        )
        # Small, since what grows to 1e6 and goes into a sine is noise to whoever can't see into a loop.
        return i + 1, 0.1 * tf.cond(i % 2 == 0, lambda: constant_self(z), lambda: dropout(z))

    return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1]


def whose_rounds_could_overlap(x):
    def body(i, y):
        z = x * tf.cast(i, x.dtype)  # nothing that the round before has made
        return i + 1, y + constant_self(z) * tf.random.normal([], dtype=x.dtype)

    return tf.while_loop(lambda i, _: i < 30, body, (0, x))[1]


class Holder:
    @tf.function
    def method(self, x):
        return constant_self(x) + dropout(x)


INSIDE = [
    (Holder().method, "1 RandomUniform, 1 StopGradient."),
    (in_nested_functions, "1 RandomUniform, 1 StopGradient."),
    (in_nested_loops, "1 RandomUniform, 2 StopGradient."),
    (whose_rounds_could_overlap, "1 RandomStandardNormal, 1 StopGradient."),
    (lambda x: tf.scan(lambda a, b: a * tf.stop_gradient(a) + b, x), "1 StopGradient."),
]


@pytest.mark.on_change("in_nested_functions-1 RandomUniform, 1 StopGradient.")
@pytest.mark.parametrize(("function", "held"), INSIDE)
def test_inside_functions_loops_and_branches(run, function, held):
    result = run(forward=function, inputs=POSITIVE, samples=1, freeze=True)
    assert (result.status, frozen_of(result)) == (Status.PASSED, held)
    (pair,) = run(forward=function, inputs=POSITIVE, samples=1).pairs
    assert pair.status is Status.INCONCLUSIVE
    assert pair.cause.stops
    assert all("test_frozen.py:" in place for place in pair.cause.stops)


def test_a_ready_made_function_is_closed(run):
    concrete = tf.function(constant_self).get_concrete_function(tf.TensorSpec([3], tf.float64))
    result = run(forward=lambda x: concrete(x) + x, inputs=X, freeze=True)
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "frozen")
    assert "Check the Python function that it was made of" in result.checks[0].message
    (pair,) = run(forward=lambda x: concrete(x) + x, inputs=X).pairs
    assert "which is closed" in pair.message
    drawing = tf.function(dropout).get_concrete_function(tf.TensorSpec([3], tf.float64))
    result = run(forward=drawing, inputs=X)
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")
