"""What is held while the inputs move, and what isn't: each rule of decision 0009."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.opening import GraphOpener

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


def straight_through(x):
    return x + tf.stop_gradient(tf.round(x) - x)


def constant_self(x):
    return x * tf.stop_gradient(x)


STOPPED = [
    constant_self,
    straight_through,
    lambda x: tf.stop_gradient(tf.sign(x)) * x,
    lambda x: tf.stop_gradient(tf.exp(tf.stop_gradient(x))) * x,
    lambda x: tf.reduce_logsumexp(x) * tf.stop_gradient(x),
    lambda x: tf.raw_ops.StopGradient(input=x) * x,
    tf.recompute_grad(constant_self),
    lambda x: tf.vectorized_map(constant_self, x),
]


@pytest.mark.parametrize("function", STOPPED)
def test_a_stop_gradient_on_the_path_is_held(run, function):
    result = run(forward=function, inputs=POSITIVE)
    assert result.status is Status.PASSED
    assert "StopGradient" in frozen_of(result)
    assert run(forward=lambda x: tripled(function(x)), inputs=POSITIVE).status is Status.MISMATCHED


def test_without_freezing_it_moves(run):
    result = run(forward=constant_self, inputs=X, freeze=False)
    assert result.status is Status.MISMATCHED
    assert "frozen" not in [check.name for check in result.checks]


def test_a_gradient_for_the_moving_function_is_a_mismatch(run):
    # 2 x is the derivative of x * x, and not of x times a constant.
    moving = tf.custom_gradient(lambda x: (x, lambda upstream: 2 * upstream))
    result = run(forward=lambda x: constant_self(moving(x)), inputs=X)
    assert result.status is Status.MISMATCHED


@tf.custom_gradient
def stepped_over(x):
    return x * tf.stop_gradient(x), lambda upstream: upstream * 2 * x


@tf.custom_gradient
def as_if_held(x):
    return x * tf.stop_gradient(x), lambda upstream: upstream * x


def test_one_in_a_custom_gradients_own_forward_moves(run):
    result = run(forward=stepped_over, inputs=X)
    assert result.status is Status.PASSED
    assert "frozen" not in [check.name for check in result.checks]
    assert run(forward=as_if_held, inputs=X).status is Status.MISMATCHED


def test_so_it_does_under_a_gradient_of_the_spec(run):
    def gradient(op, upstream):
        return 2 * op.inputs[0] * upstream

    assert run(forward=constant_self, gradient=gradient, inputs=X).status is Status.PASSED


def test_one_before_a_custom_gradient_is_held(run):
    result = run(forward=lambda x: x * stepped_over(tf.stop_gradient(x)), inputs=X)
    assert (result.status, frozen_of(result)) == (Status.PASSED, "1 StopGradient.")


def quantised(x, book):
    distance = tf.reduce_sum((x[:, None, :] - book[None]) ** 2, -1)
    q = tf.gather(book, tf.argmin(distance, -1))
    commitment = tf.reduce_mean((tf.stop_gradient(q) - x) ** 2)
    codebook = tf.reduce_mean((q - tf.stop_gradient(x)) ** 2)
    return x + tf.stop_gradient(q - x), commitment, codebook


def test_vector_quantisation(run):
    result = run(forward=quantised, inputs={"x": {"shape": [4, 2]}, "book": {"shape": [3, 2]}})
    assert result.status is Status.PASSED
    assert [pair.connected for pair in result.pairs] == [True, False, True, False, False, True]
    assert frozen_of(result) == "3 StopGradient."


def test_a_reference_holds_its_own(run):
    reverse = tf.custom_gradient(lambda x: (tf.identity(x), lambda upstream: -upstream))
    result = run(
        forward=reverse, reference=lambda x: tf.stop_gradient(2 * x) - x, reference_forward=True, inputs=X
    )
    assert result.status is Status.PASSED


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_in_other_dtypes(run, dtype):
    assert run(forward=constant_self, inputs={"x": {"shape": [3], "dtype": dtype}}).status is Status.PASSED


def test_a_complex_step_leaves_it_where_it_is(run):
    assert run(forward=constant_self, inputs=X, method="complex_step").status is Status.PASSED


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


@pytest.mark.parametrize(("function", "held"), DRAWS)
def test_a_draw_is_held(run, function, held):
    result = run(forward=function, inputs=POSITIVE)
    assert (result.status, frozen_of(result)) == (Status.PASSED, held)
    found = run(forward=function, inputs=POSITIVE, freeze=False)
    assert (found.status, found.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")


@tf.custom_gradient
def saves_its_mask(x):
    mask = tf.cast(tf.random.uniform([40], dtype=x.dtype) < 0.5, x.dtype)
    return x * x * mask, lambda upstream: upstream * 2 * x * mask


@tf.custom_gradient
def draws_its_mask_again(x):
    def mask():
        return tf.cast(tf.random.uniform([40], dtype=x.dtype) < 0.5, x.dtype)

    return x * x * mask(), lambda upstream: upstream * 2 * x * mask()


def test_in_a_custom_gradients_forward_too(run):
    inputs = {"x": {"shape": [40]}}
    result = run(forward=saves_its_mask, inputs=inputs)
    assert (result.status, frozen_of(result)) == (Status.PASSED, "1 RandomUniform.")
    assert run(forward=draws_its_mask_again, inputs=inputs).status is Status.MISMATCHED


def test_in_a_defuns_body_too(run):
    result = run(
        forward=lambda x: x * tf.nn.dropout(tf.ones_like(x), 0.5),
        gradient=lambda op, upstream: upstream * op.outputs[0] / op.inputs[0],
        binding="defun",
        inputs={"x": {"shape": [32], "uniform": {"low": 0.5, "high": 2.0}}},
        outputs={"y": {"dtype": "float64"}},
    )
    assert (result.status, frozen_of(result)) == (Status.PASSED, "1 RandomUniform.")


def test_a_straight_through_draw(run):
    def attend(p, features):
        mask = tf.cast(tf.random.uniform([32], dtype=p.dtype) < p, p.dtype)
        return (p + tf.stop_gradient(mask - p)) * features

    p = {"shape": [32], "uniform": {"low": 0.1, "high": 0.9}}
    result = run(forward=attend, inputs={"p": p, "features": {"shape": [32]}})
    assert (result.status, frozen_of(result)) == (Status.PASSED, "1 RandomUniform, 1 StopGradient.")


def test_float64_takes_the_same_draw(case_of):
    opener = GraphOpener(case_of(forward=dropout, inputs={"x": {"shape": [64], "dtype": "float32"}}))
    own = opener.declared(0)
    wide = opener.in_float64(own)
    assert wide is not None
    np.testing.assert_array_equal(own.base_values[0] == 0, wide.base_values[0] == 0)
    again = opener.declared(0)
    np.testing.assert_array_equal(own.base_values[0], again.base_values[0])
    other = opener.declared(1)
    assert ((own.base_values[0] == 0) != (other.base_values[0] == 0)).any()


def dropped(x):
    return tf.nn.dropout(tf.ones([64], x.dtype), 0.5) * x


def dropped_in_a_branch(x):
    return tf.cond(tf.reduce_all(x < 9), lambda: dropped(x), lambda: x)


@pytest.mark.parametrize("function", [dropped, dropped_in_a_branch])
def test_a_run_can_be_reproduced(case_of, function):
    case = case_of(forward=function, inputs={"x": {"shape": [64]}})
    first, second = (GraphOperation(case).base_values[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    before, after = tf.random.uniform([8]), tf.random.uniform([8])
    assert (before != after).numpy().any()  # the user's own generator is left alone


def test_draws_in_different_bodies_differ(case_of):
    def forward(x):
        return dropped(x), dropped_in_a_branch(x), dropped_in_a_branch(x)

    values = GraphOperation(case_of(forward=forward, inputs={"x": {"shape": [64]}})).base_values
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


def test_a_stateless_truncated_normal_draw_is_no_derivative_either(run):
    def forward(x):
        return tf.random.stateless_parameterized_truncated_normal([3], [1, 2], x, 1.0, x - 1, x + 2)

    result = run(forward=forward, inputs={"x": {"shape": [3], "dtype": "float32"}})
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")


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
        return i + 1, tf.cond(i % 2 == 0, lambda: constant_self(z), lambda: dropout(z))

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


INSIDE = [
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


@pytest.mark.parametrize(("function", "held"), INSIDE)
def test_inside_functions_loops_and_branches(run, function, held):
    result = run(forward=function, inputs=POSITIVE)
    assert (result.status, frozen_of(result)) == (Status.PASSED, held)
    assert run(forward=lambda x: tripled(function(x)), inputs=POSITIVE).status is Status.MISMATCHED


def test_inside_them_in_float32_too(run):
    inputs = {"x": {**POSITIVE["x"], "dtype": "float32"}}
    result = run(forward=in_loop, inputs=inputs)
    assert (result.status, result.numeric_dtype) == (Status.PASSED, "float64")


def test_more_points_than_one_batch_has(run):
    assert (
        run(forward=in_loop, inputs={"x": {**POSITIVE["x"], "shape": [300]}}, samples=1).status
        is Status.PASSED
    )


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
        result = run(forward=lambda x, function=function: function(x) + x, inputs=X)
        assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "frozen")
        assert "Check the Python function that it was made of" in result.checks[0].message
        assert run(forward=lambda x, function=function: function(x) + x, inputs=X, freeze=False).pairs
    result = run(forward=loaded.draw, inputs=X)
    assert (result.status, result.checks[0].name) == (Status.INCONCLUSIVE, "deterministic")


def test_a_tf_function_that_writes_is_left_as_it_is(run):
    state = tf.Variable(1.0, dtype=tf.float64)

    @tf.function
    def forward(x):
        state.assign_add(1.0)
        return dropout(x) * state

    result = run(forward=forward, inputs=X)
    assert result.status is Status.INCONCLUSIVE
    assert "RandomUniform" in result.checks[0].message


# --- cost ---


def test_a_graph_without_any_is_traced_no_more_than_before(case_of):
    calls = []

    def forward(x):
        calls.append(1)
        return tf.function(tf.sin)(x)

    op = GraphOperation(case_of(forward=forward, inputs=X))
    op.evaluate({0: np.zeros((4, 3))})
    assert len(calls) == 1
    op.vjp(0, np.ones((1, 3)))
    assert len(calls) == 2


def test_a_keras_layer_that_draws_by_a_seed_of_its_own(run):
    keras = pytest.importorskip("keras")
    layer = keras.layers.Dropout(0.5, seed=1)
    result = run(forward=lambda x: layer(x, training=True), inputs={"x": {"shape": [40]}})
    assert result.status is Status.PASSED
