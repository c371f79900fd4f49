"""The gradient's own gradient: what is checked of it, what can't be, and that the first order stays."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.results import Status

X = {"x": {"shape": [3]}}
MODES = ["graph", "dynamic", "eager", "xla"]


def statuses(result):
    return {pair.label: str(pair.status) for pair in result.pairs}


def pair_of(result, label):
    return next(pair for pair in result.pairs if pair.label == label)


def check_of(result, name):
    return next(check for check in result.checks if check.name == name)


def product(x, w):
    return tf.tanh(x) * w * w


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", MODES)
def test_every_gradient_by_every_input_and_by_its_upstream(run, mode):
    result = run(
        forward=product, inputs={**X, "w": {"shape": [3]}}, second_order=True, modes=[mode], variables=False
    )
    labels = ["dy/dx", "dy/dw"]
    labels += [f"d2y/d{one}.d{other}" for one in "xw" for other in "xwu"]
    assert statuses(result) == dict.fromkeys(labels, "passed")
    assert [pair.order for pair in result.pairs] == [1, 1, *[2] * 6]
    assert check_of(result, "second_order.linearity").status is Status.PASSED


def test_without_the_key_there_is_no_second_order(run):
    assert list(statuses(run(forward=tf.tanh, inputs=X))) == ["dy/dx"]


def test_of_several_outputs_each_has_its_own_upstream(run):
    result = run(
        forward=lambda x: (x * x, tf.exp(x), tf.argmax(x)),
        outputs=["a", "b", "i"],
        inputs=X,
        second_order=True,
    )
    assert list(statuses(result)) == [
        *("da/dx", "db/dx"),
        *("d2a/dx.dx", "d2a/dx.du", "d2b/dx.dx", "d2b/dx.du"),
    ]
    assert result.status is Status.PASSED


def test_an_input_of_the_upstreams_name_keeps_it(run):
    result = run(forward=lambda u: u * u, inputs={"u": {"shape": [2]}}, second_order=True)
    assert list(statuses(result)) == ["dy/du", "d2y/du.du", "d2y/du.dupstream"]
    assert result.status is Status.PASSED


def test_the_formula_is_judged_in_float64(run):
    result = run(forward=tf.exp, inputs={"x": {"shape": [3], "dtype": "float32"}}, second_order=True)
    assert {pair.judged_by.reference_dtype for pair in result.pairs} == {"float64"}
    assert result.status is Status.PASSED


def test_complex(run):
    result = run(
        forward=lambda z: z * z * tf.math.conj(z),
        inputs={"z": {"shape": [2], "dtype": "complex128"}},
        second_order=True,
    )
    assert statuses(result) == dict.fromkeys(("dy/dz", "d2y/dz.dz", "d2y/dz.du"), "passed")


def make_scale():
    scale = tf.Variable([1.0, 2.0, 3.0], dtype=tf.float64, name="scale")
    return lambda x: tf.sin(x) * scale * scale


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", MODES)
def test_variables(run, mode):
    result = run(forward=make_scale, build={}, inputs=X, variables=True, second_order=True, modes=[mode])
    labels = ["dy/dx", "dy/dscale"] + [f"d2y/d{a}.d{b}" for a in ("x", "scale") for b in ("x", "u", "scale")]
    assert statuses(result) == dict.fromkeys(labels, "passed")


@tf.custom_gradient
def detached(x):
    def grad(upstream):
        return upstream * tf.stop_gradient(tf.exp(x))

    return tf.exp(x), grad


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_stops_itself_is_right_once_and_wrong_twice(run, mode):
    result = run(forward=lambda x: tf.sin(detached(x)), inputs=X, second_order=True, modes=[mode])
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "mismatched", "d2y/dx.du": "passed"}
    if mode == "graph":
        (line,) = [line for line in pair_of(result, "d2y/dx.dx").cause.diagnosis if line.startswith("blame")]
        assert "a stop_gradient inside the custom gradient at" in line
        assert "test_second_order.py:" in line


@tf.custom_gradient
def wrong_cosine(x):
    return tf.cos(x), lambda upstream: upstream * tf.sin(x)


@tf.custom_gradient
def sine(x):
    return tf.sin(x), lambda upstream: upstream * wrong_cosine(x)


def test_a_wrong_gradient_of_the_gradient_is_blamed(run):
    result = run(forward=lambda x: tf.exp(sine(x * x)), inputs=X, second_order=True)
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "mismatched", "d2y/dx.du": "passed"}
    (line,) = [line for line in pair_of(result, "d2y/dx.dx").cause.diagnosis if line.startswith("blame")]
    assert "gradient wrong_cosine.<locals>.<lambda> at" in line
    assert "the sign is flipped" in line


def test_a_constant_of_the_base_point_is_found(run):
    @tf.custom_gradient
    def square(x):
        kept = 2 * x.numpy()
        return x * x, lambda upstream: upstream * tf.constant(kept)

    result = run(forward=square, inputs=X, second_order=True, modes=["eager"])
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "mismatched", "d2y/dx.du": "passed"}
    assert "None is not zero" in pair_of(result, "d2y/dx.dx").message


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_stop_gradient_of_the_forwards_is_held(run, mode):
    def forward(x):
        return x * x * tf.stop_gradient(tf.sin(x))

    spec = {"forward": forward, "inputs": X, "second_order": True, "modes": [mode]}
    held = run(**spec, freeze=True)
    assert (held.status, len(held.how.held)) == (Status.PASSED, 1)
    wrong = statuses(run(**spec, freeze=False))
    assert wrong == {"dy/dx": "mismatched", "d2y/dx.dx": "mismatched", "d2y/dx.du": "passed"}
    open_ = run(**spec)
    assert statuses(open_) == {"dy/dx": "inconclusive", "d2y/dx.dx": "inconclusive", "d2y/dx.du": "passed"}
    assert "'freeze: true'" in pair_of(open_, "d2y/dx.dx").message


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_one_that_changes_no_first_derivative_is_never_held(run, mode):
    result = run(
        forward=lambda x: tf.nn.moments(x, 0)[1],
        inputs={"x": {"shape": [5]}},
        second_order=True,
        modes=[mode],
    )
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "mismatched", "d2y/dx.du": "passed"}
    if mode == "graph":
        (line,) = [line for line in pair_of(result, "d2y/dx.dx").cause.diagnosis if line.startswith("blame")]
        assert "a stop_gradient of the forward at tests/tensorflow_backend/test_second_order.py:" in line


WEIGHTS = np.array([[0.5, -1.0, 2.0, 0.25, -0.75, 1.5]])
POINT = np.array([[0.3, -1.2, 0.8, 1.7, -0.4, 0.1]])


def weighted_normal_form(x):
    """Return what the layers compute of one row (or of one group, or of a batch's one feature), by NumPy."""
    centred = x - x.mean()
    return float(np.sum(WEIGHTS * centred / np.sqrt(np.mean(centred**2) + 1e-3)))


def hessian_element(i, j, step=1e-4):
    """Difference the plain formula twice, which knows of no gradient."""
    total = 0.0
    for left, right in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        x = POINT.copy()
        x[0, i] += left * step
        x[0, j] += right * step
        total += left * right * weighted_normal_form(x)
    return total / (4 * step**2)


BARE = {"center": False, "scale": False}  # no weights, which would move


@pytest.mark.on_change("<lambda>-shape0")
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda keras: keras.layers.LayerNormalization(epsilon=1e-3, dtype="float64", **BARE), [1, 6]),
        (lambda keras: keras.layers.GroupNormalization(1, epsilon=1e-3, dtype="float64", **BARE), [1, 6]),
        (lambda keras: keras.layers.BatchNormalization(epsilon=1e-3, dtype="float64", **BARE), [6, 1]),
    ],
)
def test_hessians_through_keras_normalisations_are_wrong_by_an_independent_derivation(run, layer, shape):
    keras = pytest.importorskip("keras")
    built = layer(keras)

    def forward(x):
        keys = {"training": True} if shape == [6, 1] else {}
        return tf.reduce_sum(WEIGHTS.reshape(shape) * built(x, **keys))

    inputs = {"x": {"value": POINT.reshape(shape).tolist(), "shape": shape}}
    result = run(forward=forward, inputs=inputs, second_order=True)
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "mismatched", "d2y/dx.du": "passed"}
    worst = pair_of(result, "d2y/dx.dx").numbers.worst
    i, j = max(worst.output_index), max(worst.input_index)
    x = tf.constant(POINT.reshape(shape))
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = forward(x)
        first = tf.reshape(inner.gradient(y, x), [-1])[i]
    tensorflows = outer.gradient(first, x).numpy().ravel()[j]
    upstream = worst.analytic / tensorflows
    assert worst.numeric == pytest.approx(upstream * hessian_element(i, j), rel=1e-5)
    assert abs(tensorflows - hessian_element(i, j)) > 0.02 * abs(hessian_element(i, j))


def test_one_that_changes_a_first_derivative_doesnt_excuse_another(run):
    def forward(x):
        return tf.nn.moments(x, 0)[1], x * tf.stop_gradient(x)

    result = run(forward=forward, outputs=["v", "y"], inputs={"x": {"shape": [5]}}, second_order=True)
    assert [str(pair_of(result, label).status) for label in ("dv/dx", "dy/dx", "d2v/dx.dx", "d2y/dx.dx")] == [
        *("passed", "inconclusive"),
        *("mismatched", "inconclusive"),
    ]


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_reference_decides_at_second_order_as_well(run, mode):
    def swish(x):
        return x * tf.stop_gradient(tf.sigmoid(x))

    spec = {"forward": swish, "inputs": X, "second_order": True, "modes": [mode]}
    stopping = {**spec, "reference": lambda x: x * tf.stop_gradient(tf.sigmoid(x))}
    for freeze in ({}, {"freeze": True}):
        assert run(**stopping, **freeze).status is Status.PASSED
    assert statuses(run(**stopping, freeze=False))["dy/dx"] == "mismatched"
    moving = statuses(run(**spec, reference=lambda x: x * tf.sigmoid(x)))
    assert moving == {"dy/dx": "mismatched", "d2y/dx.dx": "mismatched", "d2y/dx.du": "mismatched"}


def test_what_is_idle_in_a_reference_is_not_held_at_second_order(run):
    def variance(x):
        return tf.nn.moments(x, 0)[1]

    result = run(forward=variance, reference=variance, inputs={"x": {"shape": [5]}}, second_order=True)
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "mismatched", "d2y/dx.du": "passed"}


def test_a_numpy_reference_leaves_the_second_order_to_its_own_differences(run):
    result = run(
        forward=hard_sign,
        reference=lambda x: 1 / (1 + np.exp(-x)),
        outputs={"y": {"dtype": "float64"}},
        inputs=X,
        second_order=True,
    )
    assert statuses(result) == dict.fromkeys(("dy/dx", "d2y/dx.dx", "d2y/dx.du"), "passed")


def test_a_draw_is_held(run):
    result = run(
        forward=lambda x: x * x * tf.random.uniform([3], dtype=tf.float64), inputs=X, second_order=True
    )
    assert statuses(result) == dict.fromkeys(("dy/dx", "d2y/dx.dx", "d2y/dx.du"), "passed")


def numpy_gradient(x):
    @tf.custom_gradient
    def square(x):
        return x * x, lambda upstream: upstream * tf.numpy_function(lambda value: 2 * value, [x], tf.float64)

    return square(x)


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", ["graph", "dynamic", "eager"])
def test_where_numpy_lies_on_the_vjps_path_it_is_skipped(run, mode):
    result = run(forward=numpy_gradient, inputs=X, second_order=True, modes=[mode])
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "skipped", "d2y/dx.du": "passed"}
    assert "NumPy" in pair_of(result, "d2y/dx.dx").note
    assert result.status is Status.PASSED


def square_grad(op, upstream):
    return 2 * op.inputs[0] * upstream


def exp_grad(op, upstream):
    return op.outputs[0] * upstream


@pytest.mark.parametrize(("forward", "gradient"), [(np.square, square_grad), (np.exp, exp_grad)])
def test_a_py_func_whose_gradient_is_of_tensorflow_has_a_second_order(run, forward, gradient):
    result = run(
        forward=forward,
        gradient=gradient,
        binding="py_func",
        outputs={"y": {"dtype": "float64"}},
        inputs=X,
        second_order=True,
    )
    assert statuses(result) == dict.fromkeys(("dy/dx", "d2y/dx.dx", "d2y/dx.du"), "passed")


@pytest.mark.parametrize(
    ("binding", "more"), [("custom_gradient", {}), ("defun", {"outputs": {"y": {"dtype": "float64"}}})]
)
def test_other_bindings(run, binding, more):
    result = run(
        forward=tf.square, gradient=square_grad, binding=binding, inputs=X, second_order=True, **more
    )
    assert statuses(result) == dict.fromkeys(("dy/dx", "d2y/dx.dx", "d2y/dx.du"), "passed")


def test_an_override(run):
    result = run(
        forward=tf.square,
        gradient=square_grad,
        binding="override",
        op_type="Square",
        inputs=X,
        second_order=True,
    )
    assert statuses(result) == dict.fromkeys(("dy/dx", "d2y/dx.dx", "d2y/dx.du"), "passed")


@tf.custom_gradient
def hard_sign(x):
    def grad(upstream):
        slope = tf.sigmoid(x)
        return upstream * slope * (1 - slope)

    return tf.sign(x), grad


def test_a_surrogates_second_order_is_its_own(run):
    result = run(forward=hard_sign, reference=tf.sigmoid, inputs=X, second_order=True)
    assert statuses(result) == dict.fromkeys(("dy/dx", "d2y/dx.dx", "d2y/dx.du"), "passed")


def test_loops_and_branches(run):
    def forward(x):
        grown = tf.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y * tf.sin(x)), [0, x])[1]
        return tf.cond(tf.reduce_sum(x) > 0, lambda: grown * x, lambda: tf.exp(grown))

    result = run(forward=forward, inputs=X, second_order=True)
    assert result.status is Status.PASSED


def test_zero_by_nature_passes_where_the_gradient_moves_with_its_upstream(run):
    plain = run(forward=tf.nn.relu, inputs=X, second_order=True)
    assert statuses(plain) == dict.fromkeys(("dy/dx", "d2y/dx.dx", "d2y/dx.du"), "passed")
    told = run(forward=tf.nn.relu, inputs=X, second_order=True, pairs={"d2y/dx.dx": {"expect": "zero"}})
    assert told.status is Status.PASSED


def test_no_path_is_judged_like_any_other(run):
    result = run(forward=lambda x: 3 * x, inputs=X, second_order=True)
    second = pair_of(result, "d2y/dx.dx")
    assert (second.connected, second.status, second.note) == (False, Status.PASSED, "no path, and no slope")


def test_a_gradient_without_a_gradient_is_an_error_beside_what_was_found(run):
    @tf.custom_gradient
    def once(x):
        def grad(upstream):
            return upstream * tf.raw_ops.PreventGradient(input=2 * x, message="not twice")

        return x * x, grad

    result = run(forward=once, inputs=X, second_order=True)
    assert statuses(result) == {"dy/dx": "passed"}
    assert result.status is Status.ERROR
    assert "not twice" in check_of(result, "second_order").message


def test_where_every_gradient_is_none_it_is_skipped(run):
    for inputs in (X, {"x": {"value": [0.2, 0.4], "shape": [2]}}):
        result = run(
            forward=tf.round, inputs=inputs, second_order=True, pairs={"dy/dx": {"expect": "disconnected"}}
        )
        assert check_of(result, "second_order").status is Status.SKIPPED


def test_a_rule_that_matches_neither_order_is_an_error(run):
    result = run(forward=tf.tanh, inputs=X, second_order=True, pairs={"d2y/dw.dx": {"expect": "zero"}})
    assert "'d2y/dw.dx' matches none of the pairs: dy/dx, d2y/dx.dx, d2y/dx.du" in result.error.message


def test_an_expected_mismatch_may_be_of_second_order(run):
    result = run(forward=detached, inputs=X, second_order=True, pairs={"d2y/dx.dx": {"expect": "mismatch"}})
    assert statuses(result) == {"dy/dx": "passed", "d2y/dx.dx": "expected_mismatch", "d2y/dx.du": "passed"}
    assert result.status is Status.EXPECTED_MISMATCH


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_recompute_grad_has_no_second_order_by_its_own_word(run, mode):
    result = run(
        forward=tf.recompute_grad(lambda x: tf.sin(x) * x), inputs=X, second_order=True, modes=[mode]
    )
    assert statuses(result) == {"dy/dx": "passed"}
    assert result.status is Status.ERROR
    assert "recompute_grad tried to transpose grad" in check_of(result, "second_order").message
