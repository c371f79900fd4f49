"""Samplers: draws that are held, those whose parameters move, and what they may be held against."""

from __future__ import annotations

import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [3], "uniform": {"low": 1.0, "high": 2.0}}}


def _gamma(x):
    return tf.random.stateless_gamma([3], [1, 2], x, dtype=x.dtype)


def _by_quantile(factor):
    """Return a function whose value is a gamma's draw, by one step of Newton: right to first order."""

    def reference(x):
        sample = tf.stop_gradient(_gamma(x))
        quantile = tf.stop_gradient(tf.math.igamma(x, sample))
        density = tf.exp((x - 1) * tf.math.log(sample) - sample - tf.math.lgamma(x))
        return factor * (sample - (tf.math.igamma(x, sample) - quantile) / density)

    return reference


def _drawn_anew(x):
    return x**2 + tf.math.igamma(x, tf.random.gamma([], x, dtype=x.dtype))


def _in_a_defun():
    keys = {"binding": "defun", "outputs": {"y": {"dtype": "float64"}}}
    dropped = lambda x: x * tf.nn.dropout(tf.ones_like(x), 0.5)  # noqa: E731 (an op)
    return Row("in_a_defun", dropped, lambda op, u: u * op.outputs[0] / op.inputs[0], X, "right", keys=keys)


def _against(name, op, reference, truth, **keys):
    keys = {"reference": "of_a_row:reference", **keys}
    return Row(name, op, None, X, truth, keys=keys, functions={"reference": reference})


ROWS = marked(
    (
        Row("gamma", _gamma, None, X, "unchecked"),
        Row("gamma_of_constants", lambda x: x * _gamma(tf.constant(2.0, x.dtype)), None, X, "right"),
        Row("shuffle", tf.random.shuffle, None, X, "unchecked"),
        Row("dropout_float32", lambda x: tf.nn.dropout(x * x, 0.5), None, {"x": [64]}, "right"),
        _in_a_defun(),
        _against("gamma_by_quantile", _gamma, _by_quantile(1.0), "right"),
        _against("gamma_by_twice_the_quantile", _gamma, _by_quantile(2.0), "wrong"),
        _against("drawn_anew", _drawn_anew, tf.square, "unchecked"),
        _against("drawn_anew_within_noise", _drawn_anew, tf.square, "right", nondeterminism={"atol": 1e-9}),
    ),
    "gamma",
    "gamma_by_twice_the_quantile",
)
