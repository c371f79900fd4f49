"""Gradients that are zero by nature, and are computed as differences of what is not."""

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked


def like(value, tensor):
    return tf.cast(value, tensor.dtype)


def fixed(shape, seed, tensor):
    values = np.random.default_rng(seed).standard_normal(shape)
    return tf.constant(values, tensor.dtype)


def causal_attention(q, k, v):
    """Row 0 sees itself alone: its weights are 1 and 0, whatever the scores."""
    scores = tf.matmul(q, k, transpose_b=True) / like(q.shape[-1] ** 0.5, q)
    count = scores.shape[-1]
    mask = tf.linalg.band_part(tf.ones([count, count], q.dtype), -1, 0)
    weights = tf.nn.softmax(scores - like(1e9, q) * (1 - mask))
    return tf.matmul(weights, v)


def attention_of_one(x):
    """Queries, keys and values of one input, projected; keys have a bias that changes nothing."""
    size = x.shape[-1]
    q, k, v = (tf.matmul(x, fixed([size, size], seed, x)) for seed in (1, 2, 3))
    return causal_attention(q, k, v)


def key_bias(b):
    x = fixed([3, 4], 5, b)
    scores = tf.matmul(x, x + b, transpose_b=True)
    return tf.matmul(tf.nn.softmax(scores), x)


def causal_softmax(x):
    count = x.shape[-1]
    mask = tf.linalg.band_part(tf.ones([count, count], x.dtype), -1, 0)
    return tf.nn.softmax(x - like(1e9, x) * (1 - mask))


def own_softmax(x):
    """A softmax with its textbook gradient."""

    @tf.custom_gradient
    def call(x):
        y = tf.exp(x - tf.reduce_max(x, -1, keepdims=True))
        y /= tf.reduce_sum(y, -1, keepdims=True)
        return y, lambda u: y * (u - tf.reduce_sum(u * y, -1, keepdims=True))

    return call(x)


def own_causal(change=None):
    """Causal softmax with values, and its gradient by hand; `change` makes it wrong."""

    @tf.custom_gradient
    def call(x, v):
        y = causal_softmax(x)

        def gradient(u):
            to_y = tf.matmul(u, v, transpose_b=True)
            to_x = y * (to_y - tf.reduce_sum(to_y * y, -1, keepdims=True))
            if change is not None:
                to_x = change(to_x, to_y)
            return to_x, tf.matmul(y, u, transpose_a=True)

        return tf.matmul(y, v), gradient

    return call


def leak(size):
    """Put a little where nothing belongs: relative to the gradient's largest element."""

    def change(to_x, to_y):
        return to_x + like(size, to_x) * tf.linalg.band_part(tf.ones_like(to_x) * to_y[0, 0], 0, 0)

    return change


def leak_above(size):
    def change(to_x, to_y):
        return to_x + like(size, to_x) * (to_y - tf.linalg.band_part(to_y, -1, 0))

    return change


def flash(out_size, change=None):
    """Causal attention with flash attention's gradient, which takes the product of output and upstream."""

    def attend(q, k, v):
        @tf.custom_gradient
        def call(q, k, v):
            count = q.shape[0]
            mask = tf.linalg.band_part(tf.ones([count, count], q.dtype), -1, 0)
            scores = tf.matmul(q, k, transpose_b=True) - like(1e9, q) * (1 - mask)
            p = tf.nn.softmax(scores)
            o = tf.matmul(p, v)

            def gradient(u):
                to_p = tf.matmul(u, v, transpose_b=True)
                to_s = p * (to_p - tf.reduce_sum(u * o, -1, keepdims=True))
                if change is not None:
                    to_s = change(to_s, to_p)
                to_v = tf.matmul(p, u, transpose_a=True)
                return tf.matmul(to_s, k), tf.matmul(to_s, q, transpose_a=True), to_v

            return o, gradient

        o = call(q, k, v)
        return tf.matmul(o, fixed([v.shape[-1], out_size], 11, v)) / like(out_size * 8, v)

    return attend


def normalised_twice(x):
    """A row that is scaled to its norm and multiplied by it again, far from exactly."""
    size = tf.norm(x, axis=-1, keepdims=True)
    return tf.math.log(tf.reduce_sum((x / size) ** 2, -1)) + x[..., 0]


def inverse_times_itself(x):
    """The identity, plus something to see."""
    return tf.matmul(tf.linalg.inv(x), x) + tf.linalg.diag(tf.linalg.diag_part(x) ** 2)


def layer_norm(x):
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return centred / tf.sqrt(tf.reduce_mean(centred * centred, -1, keepdims=True) + like(1e-5, x))


def mean_of_layer_norm(x):
    y = layer_norm(x)
    return tf.concat([y[:, :1], tf.reduce_mean(y, -1, keepdims=True) + 1], -1)


def shifted_softmax(shift):
    """What is added to every logit changes nothing."""
    logits = fixed([4], 7, shift)
    return tf.nn.softmax(logits * shift[0] + shift[1])


def two_layer_norms(x):
    return layer_norm(layer_norm(x) * like(3, x) + like(100, x))


def rotation(x):
    """cos^2 + sin^2 beside an angle."""
    return tf.stack([tf.cos(x) ** 2 + tf.sin(x) ** 2, tf.sin(x)])


def exp_log(x):
    """x / x by way of logarithms, scaled, beside x."""
    return tf.concat([like(1000, x) * tf.exp(tf.math.log(x) - tf.math.log(x)), x * x], 0)


def whitened(x):
    """The covariance of whitened rows is the identity."""
    centred = x - tf.reduce_mean(x, 0)
    cov = tf.matmul(centred, centred, transpose_a=True) / like(x.shape[0], x)
    factor = tf.linalg.inv(tf.linalg.cholesky(cov))
    white = tf.matmul(centred, factor, transpose_b=True)
    return tf.matmul(white, white, transpose_a=True) + tf.reduce_sum(x[0] ** 2)


def logdet_of_scaled(x):
    """The determinant of the orthogonal part is 1; of the rest there is something to see."""
    q, r = tf.linalg.qr(x)
    return tf.stack([tf.math.log(tf.abs(tf.linalg.det(q))), tf.reduce_sum(tf.linalg.diag_part(r) ** 2)])


def probabilities_sum(x):
    y = tf.nn.softmax(x)
    return tf.concat([tf.reduce_sum(y, -1, keepdims=True), y], -1)


def centre_of_centred(x):
    centred = x - tf.reduce_mean(x)
    return tf.concat([centred, [tf.reduce_sum(centred) + 1]], 0)


def triangle_of_product(x):
    lower = tf.linalg.band_part(x, -1, 0)
    return tf.linalg.band_part(tf.matmul(lower, lower), 0, -1) + x


def own_layer_norm(change=None):
    @tf.custom_gradient
    def call(x):
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        inverse = tf.math.rsqrt(tf.reduce_mean(centred * centred, -1, keepdims=True))
        y = centred * inverse

        def gradient(u):
            found = inverse * (
                u - tf.reduce_mean(u, -1, keepdims=True) - y * tf.reduce_mean(u * y, -1, keepdims=True)
            )
            return found if change is None else change(found, u)

        return y, gradient

    return call


FUNCTIONS = {
    "attention_of_one": (attention_of_one, {"x": [4, 3]}),
    "attention_of_one_8": (attention_of_one, {"x": [3, 8]}),
    "causal_softmax": (causal_softmax, {"x": [4, 4]}),
    "own_softmax_of_one": (own_softmax, {"x": [3, 1]}),
    "own_softmax": (own_softmax, {"x": [3, 3]}),
    "own_causal": (own_causal(), {"x": [4, 4], "v": [4, 3]}),
    "own_causal_wide": (own_causal(), {"x": [3, 3], "v": [3, 24]}),
    "inverse_times_itself": (inverse_times_itself, {"x": [3, 3]}),
    "normalised_twice": (normalised_twice, {"x": [2, 4]}),
    "mean_of_layer_norm": (mean_of_layer_norm, {"x": [2, 5]}),
    "two_layer_norms": (two_layer_norms, {"x": [2, 4]}),
    "shifted_softmax": (shifted_softmax, {"shift": [2]}),
    "probabilities_sum": (probabilities_sum, {"x": [2, 4]}),
    "rotation": (rotation, {"x": [4]}),
    "exp_log": (exp_log, {"x": [3]}),
    "whitened": (whitened, {"x": [6, 2]}),
    "determinant_of_q": (logdet_of_scaled, {"x": [3, 3]}),
    "centre_of_centred": (centre_of_centred, {"x": [5]}),
    "triangle_of_product": (triangle_of_product, {"x": [4, 4]}),
    "own_layer_norm": (own_layer_norm(), {"x": [2, 4]}),
    "own_layer_norm_of_two": (own_layer_norm(), {"x": [3, 2]}),
    "flash": (flash(3), {"q": [3, 4], "k": [3, 4], "v": [3, 8]}),
    "flash_wide": (flash(2), {"q": [4, 16], "k": [4, 16], "v": [4, 48]}),
    "flash_long": (flash(2), {"q": [8, 4], "k": [8, 4], "v": [8, 32]}),
    "attention": (causal_attention, {"q": [3, 2], "k": [3, 2], "v": [3, 4]}),
    "attention_wide": (causal_attention, {"q": [3, 2], "k": [3, 2], "v": [3, 24]}),
}


# Of these nothing but rounding is left in some rows, on both sides, or in the whole pair: a softmax of one,
# or one that is saturated by large scores.
_HARD = {"own_softmax_of_one", "inverse_times_itself", "determinant_of_q"}
_HARD_WHEN_LARGE = {"flash", "flash_wide", "flash_long", "attention", "attention_wide"}
# Differences take a rounding step of the value for a jump, at some points.
_HARD_AT = {
    # rounding of a value near 1 hides a thousandth of a slope of 1e-11
    ("causal_softmax", 30.0),
    ("normalised_twice", 1.0),
    ("probabilities_sum", 30.0),
    ("centre_of_centred", 30.0),
    ("own_layer_norm_of_two", 1.0),
    ("flash_long", 1.0),
}


def is_hard(name, scale):
    return name in _HARD or (name in _HARD_WHEN_LARGE and scale > 1) or (name, scale) in _HARD_AT


def right():
    for name, (forward, shapes) in FUNCTIONS.items():
        for dtype, scale in (("float64", 1.0), ("float64", 30.0), ("float32", 1.0)):
            if scale > 1 and name == "rotation":
                continue
            values = {"normal": {"stddev": scale}}
            if name == "exp_log":
                values = {"uniform": {"low": scale, "high": 3 * scale}}
            values["dtype"] = dtype
            inputs = {key: {"shape": shape, **values} for key, shape in shapes.items()}
            truth = "undecidable" if is_hard(name, scale) else "right"
            yield Row(f"{name}_{scale:g}_{dtype}", forward, None, inputs, truth)
    # Nothing but rounding: nothing to test.
    yield Row("key_bias", key_bias, None, {"b": {"shape": [4]}}, "undecidable")


def wrong():
    for size in (1e-6, 1e-5, 1e-3):
        for width in (3, 24):
            inputs = {"x": {"shape": [4, 4]}, "v": {"shape": [4, width]}}
            yield Row(f"leak_{size}_{width}", own_causal(leak(size)), None, inputs, "wrong")
            yield Row(f"leak_above_{size}_{width}", own_causal(leak_above(size)), None, inputs, "wrong")
    for size in (1e-6, 1e-4):
        inputs = {"q": {"shape": [3, 4]}, "k": {"shape": [3, 4]}, "v": {"shape": [3, 16]}}
        yield Row(f"flash_leak_{size}", flash(2, leak(size)), None, inputs, "wrong")
        yield Row(f"flash_leak_above_{size}", flash(2, leak_above(size)), None, inputs, "wrong")
    inputs = {"x": {"shape": [3, 2]}}
    for size in (1e-6, 1e-4):
        change = lambda found, u, size=size: found + like(size, u) * u  # noqa: E731 (one for each size)
        yield Row(f"own_layer_norm_of_two_{size}", own_layer_norm(change), None, inputs, "wrong")


# Elementwise: a forward, its derivative, and a point whose first slope is sixteen or more orders the larger.
_BESIDE_LARGE = {
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2, [1e-20, 1.0]),
    "reciprocal_square": (lambda x: 1 / x**2, lambda x: -2 / x**3, [1e-8, 2.0]),
    "root": (tf.math.rsqrt, lambda x: -0.5 * x**-1.5, [1e-20, 10.0]),
    "logarithm": (tf.math.log, lambda x: 1 / x, [1e-20, 3.0]),
    "cube": (lambda x: x**3, lambda x: 3 * x * x, [1e9, 0.5]),
    "exponential": (tf.exp, tf.exp, [80.0, 0.5]),
}


def beside_large():
    """A wrong slope that is no remainder of the far larger one beside it."""
    for name, (forward, derivative, value) in _BESIDE_LARGE.items():
        for factor, truth in ((1.0, "right"), (1.01, "wrong"), (-1.0, "wrong"), (0.0, "not green")):

            @tf.custom_gradient
            def op(x, forward=forward, derivative=derivative, factor=factor):
                return forward(x), lambda u: u * derivative(x) * like([1.0, factor], u)

            for dtype in ("float64", "float32"):
                inputs = {"x": {"shape": [2], "value": value, "dtype": dtype}}
                if dtype == "float64" or value[0] > 1e-10:
                    yield Row(f"beside_large_{name}_{factor:g}_{dtype}", op, None, inputs, truth)


def beside_level(leave):
    """Return a function of which one element stays 0, and what its gradient leaves of `u` there."""

    @tf.custom_gradient
    def op(x):
        def gradient(u):
            slopes = u[:3] * tf.cos(x)
            return slopes + tf.concat([leave(u[3:], x), tf.zeros_like(x[1:])], 0)

        return tf.concat([tf.sin(x), tf.zeros_like(x[:1])], 0), gradient

    return op


def level():
    """An output that stays 0 beside others that move, as below the diagonal of R in a QR decomposition."""
    for dtype, shape in (("float64", [4, 3]), ("float64", [3, 3]), ("float32", [4, 3])):
        inputs = {"x": {"shape": shape, "dtype": dtype}}
        yield Row(f"qr_{shape[0]}_{dtype}", lambda x: tf.linalg.qr(x)[1], None, inputs, "right")
    inputs = {"x": {"shape": [3]}}
    # `u` times a difference that is zero but for rounding, and `u` times numbers that have digits.
    remainder = lambda u, x: u * tf.exp(x[:1]) * tf.exp(-x[:1]) * like(3, x) - u * like(3, x)  # noqa: E731
    yield Row("level_remainder", beside_level(remainder), None, inputs, "right")
    for size, truth in ((1e-17, "not green"), (1e-15, "not green"), (1e-12, "wrong"), (1e-6, "wrong")):
        digits = lambda u, x, size=size: u * like(size, u) * x[:1]  # noqa: E731 (one for each size)
        yield Row(f"level_digits_{size:g}", beside_level(digits), None, inputs, truth)


ROWS = marked(
    (*right(), *wrong(), *beside_large(), *level()),
    "beside_large_cube_0_float32",
    "level_digits_1e-15",
    "qr_4_float64",
)
