"""What two independent draws of few elements see half of, and inputs without elements."""

from __future__ import annotations

import tensorflow as tf

from tests.support.row import Row, marked


def _times(slope):
    """Return a gradient of the first input that is the upstream times a function of the inputs."""

    def gradient(op, upstream):
        return (upstream * slope(*op.inputs), *[None] * (len(op.inputs) - 1))

    return gradient


def _where_positive(right, wrong, *, negative=False):
    return _times(lambda x: tf.where((x < 0) if negative else (x > 0), right(x), wrong(x)))


def _of_sides():
    """Wrong on one side of zero only; each under seeds of its own, as chance would see half of them."""
    for seed in range(6):
        for side, negative in (("positive", True), ("negative", False)):
            gradient = _where_positive(lambda x: 2 * x, lambda x: 3 * x, negative=negative)
            name, keys = f"square_wrong_where_{side}_{seed}", {"seed": seed}
            yield Row(name, tf.square, gradient, {"x": {"shape": []}}, "wrong", keys=keys)
    inputs = {"x": {"shape": [1], "uniform": {"low": 1, "high": 3}}}
    below, above = (
        _times(lambda x: tf.where(x > 2, 2 * x, 2.2 * x)),
        _times(lambda x: tf.where(x < 2, 2 * x, 2.2 * x)),
    )
    yield Row("wrong_below_the_mean", tf.square, below, inputs, "wrong")
    yield Row("wrong_above_the_mean", tf.square, above, inputs, "wrong")
    inputs = {
        "x": {"shape": []},
        "y": {"shape": [], "differentiate": False, "uniform": {"low": -1, "high": 1}},
    }
    gradient = _times(lambda x, y: tf.where(y < 0, x * y, 2 * x * y))
    yield Row("wrong_where_both_are_negative", lambda x, y: x * x * y, gradient, inputs, "wrong")
    # What is kept of the first point is right at -x too, where it depends on the size alone.
    kept: list[tf.Tensor] = []

    def forward(x):
        @tf.custom_gradient
        def own(x):
            size = tf.numpy_function(_first, [x * x], x.dtype)
            return x * x * x, lambda upstream: upstream * 3 * tf.reshape(size, x.shape)

        return own(x)

    def _first(value):
        kept.append(value)
        return kept[0]

    yield Row("keeps_the_size_of_its_first_point", forward, None, {"x": {"shape": [1]}}, "wrong")


def _if_training(value):
    """Return the slope of 2 x in training and x otherwise, which is wrong for one of them."""
    slopes = (1.5, 1.0) if value else (2.0, 1.5)
    return lambda x, training: tf.where(training, *(tf.cast(one, x.dtype) for one in slopes)) + 0 * x


def _of_power(wrong):
    def slope(x, n):
        off = tf.where(tf.equal(n, wrong + 1), tf.cast(1.1, x.dtype), tf.cast(1, x.dtype))
        return off * tf.cast(n, x.dtype) * x ** (tf.cast(n, x.dtype) - 1)

    return slope


def _of_few_values():
    """Wrong for one value of an input that isn't differentiated."""
    inputs = {"x": {"shape": [3]}, "training": {"shape": [], "dtype": "bool"}}
    forward = lambda x, training: tf.where(training, 2 * x, x)  # noqa: E731
    for seed in range(3):
        for value in (False, True):
            name, gradient = f"wrong_if_training_is_{value}_{seed}", _times(_if_training(value))
            yield Row(name, forward, gradient, inputs, "wrong", keys={"seed": seed})
    inputs = {"x": {"shape": [2]}, "n": {"shape": [], "dtype": "int32", "integers": {"low": 1, "high": 4}}}
    for wrong in range(3):
        power = lambda x, n: x ** tf.cast(n, x.dtype)  # noqa: E731
        yield Row(f"wrong_for_power_{wrong}", power, _times(_of_power(wrong)), inputs, "wrong")
    yield Row(
        "wrong_where_masked",
        lambda x, mask: tf.where(mask, x * x, x),
        _times(lambda x, mask: tf.where([True, False] & mask, 3 * x, tf.where(mask, 2 * x, tf.ones_like(x)))),
        {"x": {"shape": [2]}, "mask": {"shape": [2], "dtype": "bool"}},
        "wrong",
    )
    choices = {"n": {"shape": [], "dtype": "int32", "choice": [2, 5, 7]}}
    inputs = {"x": {"shape": [2]}, **choices, "mask": {"shape": [2], "dtype": "bool", "bool": 0.9}}
    forward = lambda x, n, mask: tf.where(mask, tf.cast(n, x.dtype), 1.0) * x  # noqa: E731
    yield Row("right_for_all_choices", forward, None, inputs, "right")


def _of_distributions():
    """Right ones, whose draws keep to what is asked for."""
    for name, keys in (
        ("positive", {"uniform": {"low": 0.5, "high": 2}}),
        ("in a domain", {"domain": {"low": 0}}),
        ("away from zero", {"away_from": [0]}),
        ("with gaps", {"min_gap": 0.3}),
        ("far from zero", {"normal": {"mean": 10, "stddev": 1}}),
    ):
        inputs = {"x": {"shape": [2], **keys}}
        label = f"logarithm_{name}".replace(" ", "_")
        yield Row(label, lambda x: tf.math.log(x * x), None, inputs, "right")


def _of_nothing():
    wrong, x = _times(lambda x: 3 * x), {"x": {"shape": [3]}}
    for name, shape in (("vector", [0]), ("matrix", [3, 0]), ("batch", [0, 4])):
        yield Row(f"no_elements_{name}", tf.square, wrong, {"x": {"shape": shape}}, "unchecked")
    yield Row("no_output_elements", lambda x: tf.square(x)[:0], None, x, "unchecked")
    keys = {"cases": [{"name": "empty", "inputs": {"x": {"shape": [0]}}}]}
    yield Row("no_elements_in_one_case", tf.square, None, x, "right", keys=keys)


def _of_repeats():
    for name, atol, truth in (
        ("let_through_anything", 1e9, "not green"),
        ("let_through_more_than_anything", 1e12, "not green"),
        ("within_rounding", 1e-6, "right"),
    ):
        keys = {"nondeterminism": {"atol": atol}}
        gradient = _times(lambda x: 2 * x)
        yield Row(f"repeats_{name}", tf.square, gradient, {"x": {"shape": [3]}}, truth, keys=keys)


ROWS = marked(
    (*_of_sides(), *_of_few_values(), *_of_distributions(), *_of_nothing(), *_of_repeats()),
    "no_elements_batch",
    "no_elements_in_one_case",
    "right_for_all_choices",
    "wrong_where_masked",
)
