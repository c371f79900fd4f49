"""What reaches a reference of the forward's attrs and of what builds it, and whose errors are whose."""

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [4]}}


def _surrogate(slope):
    @tf.custom_gradient
    def hard(x):
        return tf.sign(x), lambda u: slope * u * tf.sigmoid(slope * x) * (1 - tf.sigmoid(slope * x))

    return hard


def _with_slope(x, slope=1.0):
    return _surrogate(slope)(x)


def _soft(x, slope):
    return tf.sigmoid(slope * x)


def _fixed(x):
    return tf.sigmoid(2.0 * x)


def _made(slope):
    return lambda x: tf.sigmoid(slope * x)


@tf.custom_gradient
def _noisy(x):
    noise = tf.numpy_function(lambda values: np.random.default_rng().normal(size=values.shape), [x], x.dtype)
    return x + tf.ensure_shape(noise, x.shape), lambda u: u


@tf.custom_gradient
def _noisy_in_its_gradient(x):
    noise = tf.numpy_function(lambda values: np.random.default_rng().normal(size=values.shape), [x], x.dtype)
    noise = tf.ensure_shape(noise, x.shape)
    return x * noise, lambda u: u * noise


_CALLS = []


@tf.custom_gradient
def _counting(x):
    _CALLS.append(x)
    return x + len(_CALLS), lambda u: u


def _raises(_):
    raise ValueError("of the reference")


def _case(name, truth, forward, reference, **keys):
    return Row(
        name,
        forward,
        None,
        X,
        truth,
        keys={"reference": "of_a_row:reference", **keys},
        functions={"reference": reference},
    )


ROWS = marked(
    (
        _case("attr_taken", "right", _with_slope, _soft, attrs={"slope": 2.0}),
        _case("attr_not_taken", "right", _with_slope, _fixed, attrs={"slope": 2.0}),
        _case("attr_wrong", "wrong", _with_slope, _fixed, attrs={"slope": 3.0}),
        _case("build_taken", "right", _surrogate, _soft, build={"slope": 2.0}),
        _case("build_not_taken", "right", _surrogate, _fixed, build={"slope": 2.0}),
        _case("build_makes_both", "right", _surrogate, _made, build={"slope": 2.0}),
        _case("build_wrong", "wrong", _surrogate, _fixed, build={"slope": 3.0}),
        _case(
            "any_keyword",
            "right",
            _with_slope,
            lambda x, **given: tf.sigmoid(given["slope"] * x),
            attrs={"slope": 2.0},
        ),
        _case("noise_of_numpy", "right", _noisy, tf.identity),
        _case("noise_of_numpy_in_the_gradient", "wrong", _noisy_in_its_gradient, tf.identity),
        _case("state_in_python", "right", _counting, tf.identity),
        _case("noise_must_equal_the_reference", "unchecked", _noisy, tf.identity, reference_forward=True),
        _case("reference_raises", "unchecked", _with_slope, _raises),
        _case("reference_lacks_an_argument", "unchecked", _with_slope, _soft),
    ),
    "build_wrong",
    "noise_must_equal_the_reference",
    "noise_of_numpy",
    "noise_of_numpy_in_the_gradient",
    "reference_lacks_an_argument",
    "state_in_python",
)
