"""What two independent draws of few elements see half of, and inputs without elements."""

from __future__ import annotations

import tensorflow as tf
from attacking import Attack


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
            yield Attack(
                f"square_wrong_where_{side}_{seed}",
                "wrong",
                {"x": {"shape": []}},
                tf.square,
                _where_positive(lambda x: 2 * x, lambda x: 3 * x, negative=negative),
                {"seed": seed},
            )
    yield Attack(
        "wrong_below_the_mean",
        "wrong",
        {"x": {"shape": [1], "uniform": {"low": 1, "high": 3}}},
        tf.square,
        _times(lambda x: tf.where(x > 2, 2 * x, 2.2 * x)),
    )
    yield Attack(
        "wrong_above_the_mean",
        "wrong",
        {"x": {"shape": [1], "uniform": {"low": 1, "high": 3}}},
        tf.square,
        _times(lambda x: tf.where(x < 2, 2 * x, 2.2 * x)),
    )
    yield Attack(
        "wrong_where_both_are_negative",
        "wrong",
        {"x": {"shape": []}, "y": {"shape": [], "differentiate": False, "uniform": {"low": -1, "high": 1}}},
        lambda x, y: x * x * y,
        _times(lambda x, y: tf.where(y < 0, x * y, 2 * x * y)),
    )
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

    yield Attack("keeps_the_size_of_its_first_point", "wrong", {"x": {"shape": [1]}}, forward)


def _of_few_values():
    """Wrong for one value of an input that isn't differentiated."""
    for seed in range(3):
        for value in (False, True):
            yield Attack(
                f"wrong_if_training_is_{value}_{seed}",
                "wrong",
                {"x": {"shape": [3]}, "training": {"shape": [], "dtype": "bool"}},
                lambda x, training: tf.where(training, 2 * x, x),
                _times(
                    lambda x, training, value=value: (
                        tf.where(
                            training,
                            tf.cast(1.5 if value else 2, x.dtype),
                            tf.cast(1 if value else 1.5, x.dtype),
                        )
                        + 0 * x
                    )
                ),
                {"seed": seed},
            )
    for wrong in range(3):
        yield Attack(
            f"wrong_for_power_{wrong}",
            "wrong",
            {"x": {"shape": [2]}, "n": {"shape": [], "dtype": "int32", "integers": {"low": 1, "high": 4}}},
            lambda x, n: x ** tf.cast(n, x.dtype),
            _times(
                lambda x, n, wrong=wrong: (
                    tf.cast(n, x.dtype)
                    * x ** (tf.cast(n, x.dtype) - 1)
                    * tf.where(tf.equal(n, wrong + 1), tf.cast(1.1, x.dtype), tf.cast(1, x.dtype))
                )
            ),
        )
    yield Attack(
        "wrong_where_masked",
        "wrong",
        {"x": {"shape": [2]}, "mask": {"shape": [2], "dtype": "bool"}},
        lambda x, mask: tf.where(mask, x * x, x),
        _times(lambda x, mask: tf.where([True, False] & mask, 3 * x, tf.where(mask, 2 * x, tf.ones_like(x)))),
    )
    yield Attack(
        "right_for_all_choices",
        "right",
        {
            "x": {"shape": [2]},
            "n": {"shape": [], "dtype": "int32", "choice": [2, 5, 7]},
            "mask": {"shape": [2], "dtype": "bool", "bool": 0.9},
        },
        lambda x, n, mask: tf.where(mask, tf.cast(n, x.dtype), 1.0) * x,
    )


def _of_distributions():
    """Right ones, whose draws keep to what is asked for."""
    for name, keys in (
        ("positive", {"uniform": {"low": 0.5, "high": 2}}),
        ("in a domain", {"domain": {"low": 0}}),
        ("away from zero", {"away_from": [0]}),
        ("with gaps", {"min_gap": 0.3}),
        ("far from zero", {"normal": {"mean": 10, "stddev": 1}}),
    ):
        yield Attack(
            f"logarithm_{name}".replace(" ", "_"),
            "right",
            {"x": {"shape": [2], **keys}},
            lambda x: tf.math.log(x * x),
        )


def _of_nothing():
    for name, shape in (("vector", [0]), ("matrix", [3, 0]), ("batch", [0, 4])):
        yield Attack(
            f"no_elements_{name}", "unchecked", {"x": {"shape": shape}}, tf.square, _times(lambda x: 3 * x)
        )
    yield Attack("no_output_elements", "unchecked", {"x": {"shape": [3]}}, lambda x: tf.square(x)[:0])
    yield Attack(
        "no_elements_in_one_case",
        "right",
        {"x": {"shape": [3]}},
        tf.square,
        keys={"cases": [{"name": "empty", "inputs": {"x": {"shape": [0]}}}]},
    )


def _of_repeats():
    for name, atol, truth in (("anything", 1e9, "not green"), ("more_than_anything", 1e12, "not green")):
        yield Attack(
            f"repeats_let_through_{name}",
            truth,
            {"x": {"shape": [3]}},
            tf.square,
            lambda op, upstream: upstream * 2 * op.inputs[0],
            {"nondeterminism": {"atol": atol}},
        )
    yield Attack(
        "repeats_within_rounding",
        "right",
        {"x": {"shape": [3]}},
        tf.square,
        lambda op, upstream: upstream * 2 * op.inputs[0],
        {"nondeterminism": {"atol": 1e-6}},
    )


ATTACKS = (
    *_of_sides(),
    *_of_few_values(),
    *_of_distributions(),
    *_of_nothing(),
    *_of_repeats(),
)
