"""Mistakes that people make in gradients, and the words by which the diagnosis must name each.

`FIRST` was written before the hints, `SECOND` after them, before it was tried. A hint on another cause is as
bad as none, so `words` are those of the cause. No hint is expected to name those in `UNNAMED`.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from tests.support.row import Row, marked


@dataclass(frozen=True)
class Mistake(Row):
    """A wrong gradient, and what the diagnosis must say: one of these words."""

    words: tuple[str, ...] = ()


def mistake(name, inputs, forward, gradient, *words, **keys):
    """Return a mistake of an op whose inputs are given by their shapes."""
    given = {
        key: shape if isinstance(shape, dict) else {"shape": list(shape)} for key, shape in inputs.items()
    }
    return Mistake(name, forward, gradient, given, "wrong", keys=keys, words=words)


def _matmul(a, b):
    return a @ b


def _t(tensor):
    return tf.linalg.matrix_transpose(tensor)


def _softmax(x):
    return tf.nn.softmax(x)


def _normed(x):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    return (x - mean) / tf.sqrt(tf.reduce_mean((x - mean) ** 2, -1, keepdims=True) + 1e-3)


def _norm_parts(x):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    scale = 1 / tf.sqrt(tf.reduce_mean((x - mean) ** 2, -1, keepdims=True) + 1e-3)
    return (x - mean) * scale, scale


def _norm_without_mean(op, u):
    y, scale = _norm_parts(op.inputs[0])
    return scale * (u - y * tf.reduce_mean(u * y, -1, keepdims=True))


def _norm_without_variance(op, u):
    _, scale = _norm_parts(op.inputs[0])
    return scale * (u - tf.reduce_mean(u, -1, keepdims=True))


def _norm_flipped(op, u):
    y, scale = _norm_parts(op.inputs[0])
    mean = tf.reduce_mean(u, -1, keepdims=True)
    return scale * (u - mean + y * tf.reduce_mean(u * y, -1, keepdims=True))


def _scaled_rows(op, u):
    return u * tf.constant([[1.0], [1.0], [2.0]], tf.float64) * tf.cos(op.inputs[0])


def _differences(x):
    return x[1:] - x[:-1]


def _pad(values, before, after):
    return tf.pad(values, [[before, after]])


@tf.custom_gradient
def _of_another_form_too(x, scale):
    """Return a product; the gradient for x lacks a factor, and that for a scale is a number."""
    y = tf.sin(x) * scale
    return y, lambda u: (u * x * scale * tf.cos(x), tf.constant(0.0, x.dtype))


FIRST = (
    mistake(
        "matmul_operand_not_transposed",
        {"a": [3, 3], "b": [3, 3]},
        _matmul,
        lambda op, u: (u @ op.inputs[1], _t(op.inputs[0]) @ u),
        "transposed",
    ),
    mistake(
        "matmul_gradient_transposed",
        {"a": [3, 3], "b": [3, 3]},
        _matmul,
        lambda op, u: (_t(u @ _t(op.inputs[1])), _t(op.inputs[0]) @ u),
        "transposed",
    ),
    mistake("cumsum_not_reversed", {"x": [4]}, tf.cumsum, lambda _, u: tf.cumsum(u), "transpose"),
    mistake(
        "mean_as_sum",
        {"x": [3, 4]},
        lambda x: tf.reduce_mean(x * x, 1),
        lambda op, u: 2 * op.inputs[0] * u[:, None],
        "mean",
    ),
    mistake(
        "sum_as_mean",
        {"x": [3, 4]},
        lambda x: tf.reduce_sum(x * x, 1),
        lambda op, u: 2 * op.inputs[0] * u[:, None] / 4,
        "mean",
    ),
    mistake(
        "relu_mask_inverted",
        {"x": [8]},
        tf.nn.relu,
        lambda op, u: u * tf.cast(op.inputs[0] < 0, u.dtype),
        "inverted",
    ),
    mistake("relu_mask_forgotten", {"x": [8]}, tf.nn.relu, lambda _, u: u, "mask"),
    mistake(
        "leaky_slope_lost",
        {"x": [8]},
        lambda x: tf.nn.leaky_relu(x, 0.2),
        lambda op, u: u * tf.cast(op.inputs[0] > 0, u.dtype),
        "is zero in",
    ),
    mistake("softmax_without_sum", {"x": [2, 4]}, _softmax, lambda op, u: u * op.outputs[0], "term"),
    mistake(
        "softmax_flipped_sum",
        {"x": [2, 4]},
        _softmax,
        lambda op, u: op.outputs[0] * (u + tf.reduce_sum(u * op.outputs[0], -1, keepdims=True)),
        "term",
    ),
    mistake("norm_without_mean", {"x": [2, 4]}, _normed, _norm_without_mean, "term"),
    mistake("norm_without_variance", {"x": [2, 4]}, _normed, _norm_without_variance, "term"),
    mistake("norm_flipped_variance", {"x": [2, 4]}, _normed, _norm_flipped, "term"),
    mistake("rows_off_by_two", {"x": [3, 4]}, tf.sin, _scaled_rows, "2 times", "x[2"),
    mistake(
        "product_swapped",
        {"a": [3], "b": [3]},
        lambda a, b: a * b,
        lambda op, u: (u * op.inputs[0], u * op.inputs[1]),
        "order",
    ),
    mistake(
        "difference_swapped_with_sign",
        {"a": [3], "b": [3]},
        lambda a, b: a * a - b * b * b,
        lambda op, u: (-3 * op.inputs[1] ** 2 * u, 2 * op.inputs[0] * u),
        "order",
    ),
    mistake(
        "swapped_and_negated",
        {"a": [3], "b": [3]},
        lambda a, b: a * a + b * b * b,
        lambda op, u: (-3 * op.inputs[1] ** 2 * u, -2 * op.inputs[0] * u),
        "order",
    ),
    mistake(
        "bias_takes_first_row", {"x": [3, 4], "b": [4]}, lambda x, b: x + b, lambda _, u: (u, u[0]), "y[1"
    ),
    mistake(
        "bias_takes_mean",
        {"x": [3, 4], "b": [4]},
        lambda x, b: x + b,
        lambda _, u: (u, tf.reduce_mean(u, 0)),
        "mean",
    ),
    mistake(
        "reverse_forgotten",
        {"x": [2, 4]},
        lambda x: tf.reverse(x * x, [1]),
        lambda op, u: 2 * op.inputs[0] * u,
        "revers",
    ),
    mistake(
        "axis_reversed",
        {"x": [2, 4]},
        lambda x: x * x,
        lambda op, u: tf.reverse(2 * op.inputs[0] * u, [1]),
        "revers",
    ),
    mistake("shift_by_one", {"x": [5]}, lambda x: tf.roll(x, 1, 0), lambda _, u: u, "shifted"),
    mistake("difference_sign", {"x": [5]}, _differences, lambda _, u: _pad(u, 1, 0) + _pad(u, 0, 1), "sign"),
    mistake("absolute_without_sign", {"x": [6]}, tf.abs, lambda _, u: u, "sign"),
    mistake("sigmoid_factor_lost", {"x": [5]}, tf.sigmoid, lambda op, u: u * op.outputs[0], "1 - y"),
    mistake("tanh_square_lost", {"x": [5]}, tf.tanh, lambda op, u: u * (1 - op.outputs[0]), "1 + y"),
    mistake("square_by_its_output", {"x": [5]}, tf.square, lambda op, u: 2 * u * op.outputs[0], "times x"),
    mistake(
        "conj_missing",
        {"z": {"shape": [3], "dtype": "complex128"}},
        lambda z: z * z,
        lambda op, u: 2 * op.inputs[0] * u,
        "conj",
    ),
    mistake(
        "transpose_permuted",
        {"x": [2, 3, 2]},
        lambda x: tf.transpose(x, [2, 1, 0]) ** 2,
        lambda op, u: 2 * op.inputs[0] * u,
        "permuted",
        "transposed",
    ),
    mistake("constant_factor", {"x": [5]}, tf.sin, lambda op, u: 2 * tf.cos(op.inputs[0]) * u, "2 times"),
)


def _attention(q, k):
    return tf.nn.softmax(q @ _t(k))


def _attention_grad(op, u, *, scores_transposed=False):
    q, k = op.inputs
    p = op.outputs[0]
    ds = p * (u - tf.reduce_sum(u * p, -1, keepdims=True))
    ds = _t(ds) if scores_transposed else ds
    return ds @ k, _t(ds) @ q


def _every_other(values):
    return values * tf.constant([1.0, -1.0, 1.0, -1.0, 1.0], tf.float64)


def _around_mean(x):
    return tf.exp(-((x - tf.stop_gradient(tf.reduce_mean(x))) ** 2))


def _turned(x):
    return (1 + 2j) * tf.cast(x, tf.complex128)


@tf.custom_gradient
def _sample(x):
    def draw(index, y):
        return index + 1, y + x * tf.random.stateless_uniform(x.shape, [index, 2], dtype=x.dtype)

    _, y = tf.while_loop(lambda index, _: index < 2, draw, [0, tf.zeros_like(x)])
    return y, lambda u: u * 0.1


SECOND = (
    mistake(
        "sampler_of_its_own",
        {"x": [3]},
        lambda x: tf.exp(_sample(x)),
        None,
        "blame: op 'IdentityN' draws random numbers (StatelessRandomUniform",
    ),
    mistake("sampler_alone", {"x": [3]}, _sample, None, "A sampler's implicit gradient, that of its distri"),
    mistake("stop_that_moves", {"x": [3]}, _around_mean, None, "stop_gradient at", freeze=False),
    mistake(
        "conj_missing_of_a_real_input",
        {"x": [3]},
        _turned,
        lambda _, u: tf.math.real((1 + 2j) * u),
        "conjugated",
    ),
    mistake(
        "upstream_conjugated",
        {"z": {"shape": [3], "dtype": "complex128"}},
        lambda z: (1 + 2j) * z,
        lambda _, u: (1 - 2j) * tf.math.conj(u),
        "conjugated upstream",
    ),
    mistake(
        "right_on_the_simplex_only",
        {"p": {"shape": [2, 4], "probabilities": True}},  # their elements move alone all the same
        lambda p: -tf.reduce_sum(p * tf.math.log(p), 1),
        lambda op, u: -u[:, None] * tf.math.log(op.inputs[0]),
        "sums along axis 1: if p holds probabilities, check the function of tf.nn.softmax",
    ),
    mistake(
        "scaled_on_purpose",
        {"x": [3]},
        tf.round,
        lambda _, u: 0.3 * u,
        "tf.stop_gradient((1 - k) * x)",
        reference="tensorflow:identity",
    ),
    mistake(
        "linear_input_side_not_transposed",
        {"x": [3, 3], "w": [3, 3]},
        lambda x, w: x @ w,
        lambda op, u: (u @ _t(op.inputs[1]), op.inputs[0] @ u),
        "transposed",
    ),
    mistake(
        "scores_transposed",
        {"q": [3, 3], "k": [3, 3]},
        _attention,
        lambda op, u: _attention_grad(op, u, scores_transposed=True),
        "transposed",
    ),
    mistake(
        "batch_mean_as_sum",
        {"x": [4, 3]},
        lambda x: tf.reduce_mean(x**3, 0),
        lambda op, u: 3 * op.inputs[0] ** 2 * u[None],
        "mean",
    ),
    mistake(
        "all_mean_as_sum",
        {"x": [2, 3]},
        lambda x: tf.reduce_mean(tf.sin(x)),
        lambda op, u: tf.cos(op.inputs[0]) * u,
        "mean",
    ),
    mistake(
        "clip_mask_forgotten",
        {"x": {"value": [-2.0, -0.5, 0.3, 0.8, 2.5, 3.5]}},
        lambda x: tf.minimum(x, 1.0),
        lambda _, u: u,
        "mask",
    ),
    mistake(
        "threshold_too_high",
        {"x": {"value": [0.2, 0.4, 0.6, 1.5, 2.5, 3.5]}},
        tf.nn.relu,
        lambda op, u: u * tf.cast(op.inputs[0] > 1, u.dtype),
        "too narrow",
    ),
    mistake(
        "where_branches_swapped",
        {"x": {"value": [-2.0, -0.5, 0.3, 0.8]}},
        lambda x: tf.where(x > 0, x * x, tf.zeros_like(x)),
        lambda op, u: tf.where(op.inputs[0] > 0, tf.zeros_like(u), 2 * op.inputs[0] * u),
        "inverted",
    ),
    mistake(
        "term_of_a_sum_dropped",
        {"x": [5]},
        lambda x: x**3 + 2 * x**2,
        lambda op, u: 3 * op.inputs[0] ** 2 * u,
        "4 x",
    ),
    mistake(
        "product_rule_half",
        {"x": [5]},
        lambda x: x * tf.sin(x),
        lambda op, u: tf.sin(op.inputs[0]) * u,
        "cos(x)",
    ),
    mistake(
        "product_rule_flipped",
        {"x": [5]},
        lambda x: x * tf.sin(x),
        lambda op, u: (tf.sin(op.inputs[0]) - op.inputs[0] * tf.cos(op.inputs[0])) * u,
        "cos(x)",
    ),
    mistake(
        "constant_term_dropped",
        {"x": [5]},
        lambda x: x * x + 3 * x,
        lambda op, u: 2 * op.inputs[0] * u,
        "minus 3",
    ),
    mistake(
        "other_factor_lost",
        {"a": [4], "b": [4]},
        lambda a, b: a * a * b,
        lambda op, u: (2 * op.inputs[0] * u, op.inputs[0] ** 2 * u),
        "divided by b",
    ),
    mistake(
        "divided_not_multiplied",
        {"x": {"shape": [4], "uniform": {"low": 0.5, "high": 2}}},
        tf.math.log,
        lambda op, u: u * op.inputs[0],
        "x**2",
    ),
    mistake(
        "square_root_inverted",
        {"x": {"shape": [4], "uniform": {"low": 0.5, "high": 2}}},
        tf.sqrt,
        lambda op, u: u * op.outputs[0] / 2,
        "times x",
    ),
    mistake("exponential_lost", {"x": [4]}, lambda x: tf.exp(2 * x), lambda _, u: 2 * u, "divided by y"),
    mistake("log_softmax_without_sum", {"x": [2, 4]}, tf.nn.log_softmax, lambda _, u: u, "term"),
    mistake(
        "logsumexp_flipped",
        {"x": [4]},
        lambda x: x - tf.reduce_logsumexp(x),
        lambda op, u: u + tf.nn.softmax(op.inputs[0]) * tf.reduce_sum(u),
        "term",
    ),
    mistake(
        "centering_of_positive_numbers_lost",
        {"x": {"shape": [5], "uniform": {"low": 0.1, "high": 1.0}}},
        lambda x: x - tf.reduce_mean(x),
        lambda _, u: u,
        "term",
    ),
    mistake("centering_lost", {"x": [5]}, lambda x: x - tf.reduce_mean(x), lambda _, u: u, "term"),
    mistake(
        "last_batch_lost",
        {"x": [3, 4]},
        tf.tanh,
        lambda op, u: u * (1 - op.outputs[0] ** 2) * tf.constant([[1.0], [1.0], [0.0]], tf.float64),
        "x[2",
    ),
    mistake(
        "column_off",
        {"x": [3, 4]},
        tf.tanh,
        lambda op, u: u * (1 - op.outputs[0] ** 2) * tf.constant([1.0, 0.5, 1.0, 1.0], tf.float64),
        "x[:, 1]",
    ),
    mistake(
        "signs_alternate", {"x": [5]}, tf.sin, lambda op, u: _every_other(u) * tf.cos(op.inputs[0]), "sign"
    ),
    mistake(
        "concat_in_wrong_order",
        {"a": [3], "b": [3]},
        lambda a, b: tf.concat([a * a, b**3], 0),
        lambda op, u: (2 * op.inputs[0] * u[3:], 3 * op.inputs[1] ** 2 * u[:3]),
        "shifted",
        "y",
    ),
    mistake(
        "bias_sum_over_wrong_axis",
        {"x": [3, 3], "b": [3]},
        lambda x, b: x + b,
        lambda _, u: (u, tf.reduce_sum(u, 1)),
        "transposed",
    ),
    mistake(
        "cumsum_off_by_one",
        {"x": [5]},
        lambda x: tf.cumsum(x, exclusive=True),
        lambda _, u: tf.cumsum(u, reverse=True),
        "shifted",
    ),
    mistake(
        "flip_missing_in_convolution",
        {"x": [6]},
        lambda x: x[:-2] + 2 * x[1:-1] + 3 * x[2:],
        lambda _, u: 3 * tf.pad(u, [[0, 2]]) + 2 * tf.pad(u, [[1, 1]]) + tf.pad(u, [[2, 0]]),
        "revers",
    ),
    mistake(
        "conj_too_many",
        {"z": {"shape": [3], "dtype": "complex128"}},
        lambda z: z * z,
        lambda op, u: tf.math.conj(2 * tf.math.conj(op.inputs[0]) * u),
        "conj",
    ),
    mistake(
        "permuted_back_wrongly",
        {"x": [3, 3, 3]},
        lambda x: tf.transpose(x, [1, 2, 0]) ** 2,
        lambda op, u: 2 * op.inputs[0] * tf.transpose(u, [1, 2, 0]),
        "permuted",
    ),
    mistake(
        "division_swapped_with_sign",
        {"a": [4], "b": {"shape": [4], "uniform": {"low": 1, "high": 2}}},
        lambda a, b: a - b,
        lambda _, u: (-u, u),
        "sign",
        "order",
    ),
    mistake(
        "dot_product_gradients_swapped",
        {"a": [4], "b": [4]},
        lambda a, b: tf.reduce_sum(a * b),
        lambda op, u: (op.inputs[0] * u, op.inputs[1] * u),
        "order",
    ),
    mistake(
        "another_argument_of_another_form",
        {"x": [4], "scale": {"shape": [4], "differentiate": False}},
        lambda x, scale: tf.exp(_of_another_form_too(x * x, scale)),
        None,
        "differences give",
    ),
    mistake(
        "norm_factor_lost", {"x": [4]}, lambda x: tf.reduce_sum(x * x), lambda op, u: op.inputs[0] * u, "1/2"
    ),
)

ROWS = marked(
    (*FIRST, *SECOND),
    "another_argument_of_another_form",
    "centering_of_positive_numbers_lost",
    "clip_mask_forgotten",
    "conj_missing_of_a_real_input",
    "matmul_operand_not_transposed",
    "norm_without_variance",
    "right_on_the_simplex_only",
    "sampler_alone",
    "sampler_of_its_own",
    "scaled_on_purpose",
    "stop_that_moves",
    "upstream_conjugated",
)


UNNAMED = {"scores_transposed", "flip_missing_in_convolution"}


def said(report) -> str:
    """Return every diagnosis of a report."""
    return "\n".join(line for case in report.cases for pair in case.pairs for line in pair.cause.diagnosis)
