"""What is held while the inputs move, and what isn't: each rule of decision 9."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState, TracedCase
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode

X = {"x": {"shape": [3]}}
POSITIVE = {"x": {"shape": [3], "uniform": {"low": 0.5, "high": 1.5}}}


def frozen_of(result):
    """Return the message of the check `frozen`, without its opening words."""
    (check,) = [check for check in result.checks if check.name == "frozen"]
    return check.message.removeprefix("held at the base point's values: ")


@tf.custom_gradient
def tripled(x):
    return x, lambda upstream: 3 * upstream


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


@tf.custom_gradient
def stepped_over(x):
    return x * tf.stop_gradient(x), lambda upstream: upstream * 2 * x


def quantised(x, book):
    distance = tf.reduce_sum((x[:, None, :] - book[None]) ** 2, -1)
    q = tf.gather(book, tf.argmin(distance, -1))
    commitment = tf.reduce_mean((tf.stop_gradient(q) - x) ** 2)
    codebook = tf.reduce_mean((q - tf.stop_gradient(x)) ** 2)
    return x + tf.stop_gradient(q - x), commitment, codebook


def test_vector_quantisation(run):
    inputs = {"x": {"shape": [4, 2]}, "book": {"shape": [3, 2]}}
    result = run(forward=quantised, inputs=inputs, freeze=True)
    assert result.status is Status.PASSED
    assert [pair.connected for pair in result.pairs] == [True, False, True, False, False, True]
    assert frozen_of(result) == "3 StopGradient."
    unsaid = run(forward=quantised, inputs=inputs)
    assert [str(pair.status) for pair in unsaid.pairs] == [
        *("inconclusive", "inconclusive"),
        *("passed", "inconclusive"),  # the nearest entry stays the nearest
        *("inconclusive", "passed"),
    ]


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


def test_in_a_defuns_body_too(run):
    result = run(
        forward=lambda x: x * tf.nn.dropout(tf.ones_like(x), 0.5),
        gradient=lambda op, upstream: upstream * op.outputs[0] / op.inputs[0],
        binding="defun",
        inputs={"x": {"shape": [32], "uniform": {"low": 0.5, "high": 2.0}}},
        outputs={"y": {"dtype": "float64"}},
    )
    assert (result.status, frozen_of(result)) == (Status.PASSED, "1 RandomUniform.")


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


def dropped(x):
    return tf.nn.dropout(tf.ones([64], x.dtype), 0.5) * x


def dropped_in_a_branch(x):
    return tf.cond(tf.reduce_all(x < 9), lambda: dropped(x), lambda: x)


@pytest.mark.parametrize("function", [dropped, dropped_in_a_branch])
def test_a_run_can_be_reproduced(case_of, function):
    case = case_of(forward=function, inputs={"x": {"shape": [64]}})
    first, second = (TracedCase(CaseState(case)).base_values[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    before, after = tf.random.uniform([8]), tf.random.uniform([8])
    assert (before != after).numpy().any()  # the user's own generator is left alone


def test_draws_in_different_bodies_differ(case_of):
    def forward(x):
        return dropped(x), dropped_in_a_branch(x), dropped_in_a_branch(x)

    values = TracedCase(CaseState(case_of(forward=forward, inputs={"x": {"shape": [64]}}))).base_values
    masks = {tuple(value == 0) for value in values}
    assert len(masks) == 3


def test_a_draw_with_a_gradient_of_its_own_is_never_held(run):
    result = run(forward=lambda x: x * tf.random.gamma([], x, dtype=x.dtype), inputs=POSITIVE)
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")
    assert "(RandomGamma)" in result.checks[0].message
    assert "implicit reparameterisation" in result.checks[0].message


def test_a_stateless_gamma_draw_is_no_derivative_either(run):
    def forward(x):
        return x * tf.random.stateless_gamma(tf.shape(x), seed=[1, 2], alpha=x, dtype=x.dtype)

    result = run(forward=forward, inputs=POSITIVE)
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")


def gamma_by_quantile(x):
    sample = tf.stop_gradient(tf.random.stateless_gamma([3], [1, 2], x, dtype=x.dtype))
    quantile = tf.stop_gradient(tf.math.igamma(x, sample))
    density = tf.exp((x - 1) * tf.math.log(sample) - sample - tf.math.lgamma(x))
    # One step of Newton: right to first order.
    return sample - (tf.math.igamma(x, sample) - quantile) / density


def test_a_stateless_sampler_is_held_against_a_reference(run):
    def forward(x):
        return tf.random.stateless_gamma([3], [1, 2], x, dtype=x.dtype)

    def doubled(x):
        return 2 * gamma_by_quantile(x)

    parameters = {"x": {"shape": [3], "uniform": {"low": 1, "high": 2}}}
    assert run(forward=forward, reference=gamma_by_quantile, inputs=parameters).status is Status.PASSED
    assert run(forward=forward, reference=doubled, inputs=parameters).status is Status.MISMATCHED


def test_a_sampler_that_draws_anew_needs_a_gradient_that_is_the_same_at_every_draw(run):
    def forward(x):
        return x**2 + tf.math.igamma(x, tf.random.gamma([], x, dtype=x.dtype))

    spec = {"forward": forward, "reference": tf.square, "inputs": POSITIVE}
    assert run(**spec).status is Status.INCONCLUSIVE
    assert run(**spec, nondeterminism={"atol": 1e-9}).status is Status.PASSED


def test_a_stateless_gamma_draw_with_constant_parameters_is_a_constant(run):
    def forward(x):
        alpha = tf.constant(2.0, x.dtype)
        return x * tf.random.stateless_gamma(tf.shape(x), seed=[1, 2], alpha=alpha, dtype=x.dtype)

    assert run(forward=forward, inputs=POSITIVE).status is Status.PASSED


def test_a_shuffle_of_the_inputs_themselves_is_not_held(run):
    result = run(forward=tf.random.shuffle, inputs=X)
    assert result.status is Status.INCONCLUSIVE


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


def in_function(x):
    return tf.sin(tf.function(lambda y: constant_self(y) + dropout(y))(x))


def in_nested_functions(x):
    inner = tf.function(constant_self)
    return tf.function(lambda y: inner(y) + dropout(y))(x)


def in_loop(x):
    _, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, constant_self(y) / 2 + dropout(y)), (0, x))
    return y


def in_branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: constant_self(x) + dropout(x), lambda: x)


def in_nested_loops(x):
    def body(i, y):
        _, z = tf.while_loop(
            lambda j, _: j < 2, lambda j, z: (j + 1, tf.stop_gradient(tf.sin(z)) * z + z), (0, y)
        )
        # Small, since what grows to 1e6 and goes into a sine is noise to whoever can't see into a loop.
        return i + 1, 0.1 * tf.cond(i % 2 == 0, lambda: constant_self(z), lambda: dropout(z))

    return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1]


def in_python_control_flow(x):
    y = constant_self(x) if tf.reduce_sum(x) > 0 else x
    for _ in tf.range(3):
        y = dropout(y) + y
    return y


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
    (in_function, "1 RandomUniform, 1 StopGradient."),
    (in_nested_functions, "1 RandomUniform, 1 StopGradient."),
    (in_loop, "1 RandomUniform, 1 StopGradient."),
    (in_branch, "1 RandomUniform, 1 StopGradient."),
    (in_nested_loops, "1 RandomUniform, 2 StopGradient."),
    (in_python_control_flow, "1 RandomUniform, 1 StopGradient."),
    (whose_rounds_could_overlap, "1 RandomStandardNormal, 1 StopGradient."),
    (lambda x: tf.scan(lambda a, b: a * tf.stop_gradient(a) + b, x), "1 StopGradient."),
    (
        lambda x: tf.map_fn(lambda row: dropout(row) * tf.stop_gradient(row), x),
        "1 RandomUniform, 1 StopGradient.",
    ),
]


@pytest.mark.on_change("in_nested_functions-1 RandomUniform, 1 StopGradient.")
@pytest.mark.parametrize(("function", "held"), INSIDE)
def test_inside_functions_loops_and_branches(run, function, held):
    result = run(forward=function, inputs=POSITIVE, samples=1, freeze=True)
    assert (result.status, frozen_of(result)) == (Status.PASSED, held)
    wrong = run(forward=lambda x: tripled(function(x)), inputs=POSITIVE, samples=1)
    assert wrong.status is Status.MISMATCHED
    (pair,) = run(forward=function, inputs=POSITIVE, samples=1).pairs
    assert pair.status is Status.INCONCLUSIVE
    assert pair.cause.stops
    assert all("test_frozen.py:" in place for place in pair.cause.stops)


def test_inside_them_in_float32_too(run):
    inputs = {"x": {**POSITIVE["x"], "dtype": "float32"}}
    result = run(forward=in_loop, inputs=inputs, freeze=True)
    assert (result.status, result.how.numeric_dtype) == (Status.PASSED, "float64")


def test_more_points_than_one_batch_has(run):
    inputs = {"x": {**POSITIVE["x"], "shape": [300]}}
    assert run(forward=in_loop, inputs=inputs, samples=1, freeze=True).status is Status.PASSED


def test_a_custom_gradient_is_stepped_over_inside_them_too(run):
    def loop(x):
        return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, stepped_over(y)), (0, x))[1]

    @tf.custom_gradient
    def around(x):
        _, y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, constant_self(y)), (0, x))
        return y, lambda upstream: upstream * 4 * x**3

    for function in (loop, around, tf.function(stepped_over)):
        assert run(forward=lambda x, function=function: function(x), inputs=X).status is Status.PASSED


def test_a_ready_made_function_is_closed(run, tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([3], tf.float64)])
        def __call__(self, x):
            return constant_self(x)

        @tf.function(input_signature=[tf.TensorSpec([3], tf.float64)])
        def draw(self, x):
            return dropout(x)

    tf.saved_model.save(Module(), tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    concrete = tf.function(constant_self).get_concrete_function(tf.TensorSpec([3], tf.float64))
    for function in (concrete, loaded):
        result = run(forward=lambda x, function=function: function(x) + x, inputs=X, freeze=True)
        assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "frozen")
        assert "Check the Python function that it was made of" in result.checks[0].message
        (pair,) = run(forward=lambda x, function=function: function(x) + x, inputs=X).pairs
        assert pair.status is Status.INCONCLUSIVE
        assert "which is closed" in pair.message
        found = run(forward=lambda x, function=function: function(x) + x, inputs=X, freeze=False)
        assert found.status is Status.MISMATCHED
    result = run(forward=loaded.draw, inputs=X)
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")


def test_a_ready_made_function_whose_stops_change_nothing_is_right(run):
    signature = tf.TensorSpec([3], tf.float64)
    concrete = tf.function(tf.reduce_logsumexp).get_concrete_function(signature)
    assert run(forward=lambda x: concrete(x) + x, inputs=X).status is Status.PASSED


# --- cost ---


def test_a_keras_layer_that_draws_by_a_seed_of_its_own(run):
    keras = pytest.importorskip("keras")
    layer = keras.layers.Dropout(0.5, seed=1)
    result = run(forward=lambda x: layer(x, training=True), inputs={"x": {"shape": [40]}})
    assert result.status is Status.PASSED
