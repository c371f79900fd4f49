"""Upstreams that a gradient clips, bends or mistakes, below float64 too; and right gradients that look so."""

import itertools

import tensorflow as tf

from tests.support.row import Row, marked


def scalar_like(value, tensor):
    return tf.cast(value, tensor.dtype)


def bent(forward, use):
    """Return a function whose gradient is that of `forward` for what `use` makes of the upstream."""

    @tf.custom_gradient
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)

        def gradient(upstream):
            return tape.gradient(y, x, output_gradients=use(upstream))

        return y, gradient

    return call


def negative(share):
    return lambda u: tf.where(u < 0, scalar_like(share, u) * u, u)


def above(limit, share):
    return lambda u: tf.where(u > scalar_like(limit, u), scalar_like(share, u) * u, u)


def only_if_equal(u):
    is_equal = tf.reduce_all(tf.equal(u, tf.reduce_mean(u)))
    return tf.where(is_equal, u * scalar_like(0.9, u), u)


def only_if_one(u):
    return tf.where(tf.reduce_all(tf.equal(u, 1)), u * scalar_like(1.1, u), u)


def only_if_negative(u):
    return tf.where(tf.reduce_all(u < 0), u * scalar_like(0.9, u), u)


def only_if_positive(u):
    return tf.where(tf.reduce_all(u > 0), u * scalar_like(0.9, u), u)


def is_beside(u, share):
    """Which elements are below a share of the largest: a gradient that is sent in less, or by its largest."""
    return tf.abs(u) < scalar_like(share, u) * tf.reduce_max(tf.abs(u))


def more_beside_zeros(u):
    """Take more where some elements are zero, but not all but one: some rows of a loss are padding."""
    is_sparse = tf.reduce_any(tf.equal(u, 0)) & (tf.math.count_nonzero(u) > 1)
    return tf.where(is_sparse, scalar_like(1.1, u) * u, u)


def more_beside_rows_of_zeros(u):
    is_sparse = tf.reduce_any(tf.reduce_all(tf.equal(u, 0), -1)) & (tf.math.count_nonzero(u) > 1)
    return tf.where(is_sparse, scalar_like(1.1, u) * u, u)


USES = {
    "negative_times_0.91": negative(0.91),
    "negative_times_1.2": negative(1.2),
    "absolute": tf.abs,
    "clipped_at_1": lambda u: tf.clip_by_value(u, scalar_like(-1, u), scalar_like(1, u)),
    "clipped_at_100": lambda u: tf.clip_by_value(u, scalar_like(-100, u), scalar_like(100, u)),
    "clipped_below": lambda u: tf.maximum(u, scalar_like(-0.5, u)),
    "squashed": tf.tanh,
    "large_ones_times_0.9": above(4, 0.9),
    "small_ones_dropped": lambda u: tf.where(tf.abs(u) < scalar_like(1e-3, u), tf.zeros_like(u), u),
    "less_where_equal": only_if_equal,
    "more_where_all_is_one": only_if_one,
    "less_where_all_is_negative": only_if_negative,
    "less_where_all_is_positive": only_if_positive,
    "smaller_ones_dropped": lambda u: tf.where(tf.abs(u) < scalar_like(1e-4, u), tf.zeros_like(u), u),
    "small_beside_the_rest_dropped": lambda u: tf.where(is_beside(u, 1e-3), tf.zeros_like(u), u),
    "the_largest_alone": lambda u: tf.where(is_beside(u, 0.2), tf.zeros_like(u), u),
    "norm_clipped": lambda u: u / tf.maximum(tf.sqrt(tf.reduce_sum(u * u)) / 8, scalar_like(1, u)),
}
FORWARDS = {
    "tanh": tf.tanh,
    "matrix": lambda x: tf.linalg.matvec(
        tf.cast(tf.reshape(tf.range(12), [4, 3]) % 5 - 2, x.dtype), tf.sin(x)
    ),
}
# Uses that only vectors show, and those of which the halves have too few bits.
_NOT_IN_HALVES = {"clipped_at_100", "small_beside_the_rest_dropped"}


def complex_clip(u):
    return tf.complex(
        tf.clip_by_value(tf.math.real(u), -1.0, 1.0), tf.clip_by_value(tf.math.imag(u), -1.0, 1.0)
    )


def negative_real(u):
    return tf.complex(tf.where(tf.math.real(u) < 0, 0.91 * tf.math.real(u), tf.math.real(u)), tf.math.imag(u))


def wrong():
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for kind, forward in FORWARDS.items():
            for name, use in USES.items():
                if dtype in ("float16", "bfloat16") and (name in _NOT_IN_HALVES or kind == "matrix"):
                    continue
                inputs = {"x": {"shape": [3], "dtype": dtype}}
                yield Row(f"{kind}_{name}_{dtype}", bent(forward, use), None, inputs, "wrong")
        for use in (more_beside_zeros, more_beside_rows_of_zeros):
            inputs = {"x": {"shape": [4, 3], "dtype": dtype}}
            yield Row(f"tanh_{use.__name__}_{dtype}", bent(tf.tanh, use), None, inputs, "wrong")
    for name, use in (("clipped", complex_clip), ("negative_real", negative_real)):
        inputs = {"x": {"shape": [3], "dtype": "complex64"}}
        yield Row(f"square_{name}_complex64", bent(tf.square, use), None, inputs, "wrong")
    for name in ("negative_times_0.91", "absolute", "clipped_at_1", "less_where_equal", "clipped_at_100"):
        for dtype in ("float32", "float64"):  # too large for a Jacobian
            inputs = {"x": {"shape": [90], "dtype": dtype}}
            spec = {"method": "probe", "samples": 1}
            yield Row(f"large_{name}_{dtype}", bent(spread, USES[name]), None, inputs, "wrong", keys=spec)


def one_sided():
    """Clip a loss' upstream, or one element's, to one side: no draw's sign may decide what is seen."""
    uses = {
        "above_10": lambda u: tf.minimum(u, scalar_like(10, u)),
        "below_minus_10": lambda u: tf.maximum(u, scalar_like(-10, u)),
        "first_above_3": lambda u: tf.concat([tf.minimum(u[:1], scalar_like(3, u)), u[1:]], 0),
        "first_below_minus_3": lambda u: tf.concat([tf.maximum(u[:1], scalar_like(-3, u)), u[1:]], 0),
    }
    for (name, use), dtype in itertools.product(uses.items(), ("float32", "float64", "float16")):
        inputs = {"x": {"shape": [3], "dtype": dtype}}
        forward = tf.tanh if name.startswith("first") else lambda x: tf.reduce_sum(tf.tanh(x))
        yield Row(f"one_sided_{name}_{dtype}", bent(forward, use), None, inputs, "wrong")


def spread(x):
    return tf.tanh(x) + tf.reduce_mean(x)


def layer_norm(x):
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return centred / tf.sqrt(tf.reduce_mean(centred * centred, -1, keepdims=True) + scalar_like(1e-3, x))


@tf.custom_gradient
def clipped_itself(x):
    """What is clipped is the input, not the upstream."""
    limit = scalar_like(1, x)

    def gradient(u):
        return u * tf.cast(tf.abs(x) < limit, x.dtype)

    return tf.clip_by_value(x, -limit, limit), gradient


@tf.custom_gradient
def branched(x):
    """A branch on x alone, in forward and gradient alike."""
    is_up = tf.reduce_sum(x) > 0

    def gradient(u):
        return tf.where(is_up, 2 * u, 3 * u)

    return tf.where(is_up, 2 * x, 3 * x), gradient


@tf.custom_gradient
def solved_by_steps(x):
    """An implicit gradient that is solved for by fixed-point iteration, to 1e-9 or so."""
    a = tf.constant([[4.0, 1.0, 0.0], [1.0, 5.0, 1.0], [0.0, 1.0, 6.0]], x.dtype)

    def solve(b):
        found = tf.zeros_like(b)
        diagonal = tf.linalg.diag_part(a)
        for _ in range(30):
            found += (b - tf.linalg.matvec(a, found)) / diagonal
        return found

    return tf.linalg.solve(a, x[:, None])[:, 0], solve


def scaled_layer_norm(x, w):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + scalar_like(1e-2, x)) * w


@tf.custom_gradient
def scaled_to_its_norm(x):
    """A gradient that takes its upstream apart into size and direction, and puts it together again."""
    w = scalar_like(2.5, x)

    def gradient(u):
        size = tf.reduce_max(tf.abs(u))
        safe = tf.where(size > 0, size, tf.ones_like(size))
        return size * (w * (u / safe))

    return w * x, gradient


@tf.custom_gradient
def halved_and_added(x):
    """Positive and negative parts of the upstream by themselves, added up again."""

    def gradient(u):
        return 3 * (tf.nn.relu(u) - tf.nn.relu(-u))

    return 3 * x, gradient


RIGHT = {
    "sum": tf.reduce_sum,
    "mean": tf.reduce_mean,
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "layer_norm": layer_norm,
    "variance": tf.math.reduce_variance,
    "centred": lambda x: x - tf.reduce_mean(x),
    "logsumexp": tf.reduce_logsumexp,
    "cumsum": tf.cumsum,
    "norm": tf.norm,
    "prod": tf.reduce_prod,
    "softmax_cross_entropy": lambda x: tf.nn.softmax_cross_entropy_with_logits(
        tf.ones_like(x) / x.shape[0], x
    ),
    "l2_normalize": tf.math.l2_normalize,
    "clipped_itself": clipped_itself,
    "branched": branched,
    "scaled_to_its_norm": scaled_to_its_norm,
    "halved_and_added": halved_and_added,
    "sigmoid_far_out": lambda x: tf.sigmoid(scalar_like(9, x) * x),
    "differences_of_sums": lambda x: tf.cumsum(x)[1:] - tf.cumsum(x)[:-1],
}


def right():
    for dtype in ("float32", "float64"):
        for size in (3, 40):
            for name, forward in RIGHT.items():
                shape = [size]
                inputs = {"x": {"shape": shape, "dtype": dtype}}
                if name == "clipped_itself":
                    inputs["x"]["away_from"] = [-1, 1]
                if name == "prod" and size > 3:
                    inputs["x"]["uniform"] = {"low": 0.8, "high": 1.2}
                yield Row(f"{name}_{size}_{dtype}", forward, None, inputs, "right")
        inputs = {"x": {"shape": [3], "dtype": dtype}}
        yield Row(f"solved_by_steps_{dtype}", solved_by_steps, None, inputs, "right")
        inputs = {"x": {"shape": [700], "dtype": dtype}}
        yield Row(
            f"large_softmax_{dtype}",
            tf.nn.softmax,
            None,
            inputs,
            "right",
            keys={"method": "probe", "samples": 1},
        )
        yield Row(
            f"large_spread_{dtype}", spread, None, inputs, "right", keys={"method": "probe", "samples": 1}
        )
        # All rows of a normalisation at once hide errors of its scale; blocks of rows don't.
        inputs = {"x": {"shape": [1200, 8], "dtype": dtype}, "w": {"shape": [8], "dtype": dtype}}
        keys = {"method": "probe", "samples": 1}
        yield Row(f"large_normalised_{dtype}", scaled_layer_norm, None, inputs, "right", keys=keys)
    for dtype, spread_of_logits in (("float32", 8.0), ("float32", 15.0), ("float64", 30.0)):
        # One probability of nearly 1 a row, beside which the others' part in the gradient is lost. Whether an
        # error of one of them would be seen is another question: probes say that it might not.
        inputs = {
            "x": {"shape": [500, 40], "dtype": dtype, "normal": {"mean": 0, "stddev": spread_of_logits}}
        }
        keys = {"method": "probe", "samples": 1}
        yield Row(
            f"saturated_{spread_of_logits:g}_{dtype}", tf.nn.softmax, None, inputs, "undecidable", keys=keys
        )
    for name in ("softmax", "layer_norm", "sum"):
        for dtype in ("float16", "bfloat16"):
            yield Row(f"{name}_{dtype}", RIGHT[name], None, {"x": {"shape": [4], "dtype": dtype}}, "right")
    for dtype in ("complex64", "complex128"):
        inputs = {"x": {"shape": [4], "dtype": dtype}}
        yield Row(f"fft_{dtype}", tf.signal.fft, None, inputs, "right")
        yield Row(f"square_{dtype}", tf.square, None, inputs, "right")


def exponential(by_size, change=None):
    """A matrix exponential, whose adjoint is a block of one twice as large, with the upstream in it."""

    @tf.custom_gradient
    def call(x):
        size = x.shape[0]

        def gradient(u):
            u = u if change is None else change(u)
            scale = tf.reduce_max(tf.abs(u)) if by_size else scalar_like(1, u)
            scale = tf.where(scale > 0, scale, tf.ones_like(scale))
            turned = tf.transpose(x)
            rows = [tf.concat(row, 1) for row in ([turned, u / scale], [tf.zeros_like(x), turned])]
            return scale * tf.linalg.expm(tf.concat(rows, 0))[:size, size:]

        return tf.linalg.expm(x), gradient

    return call


def faint():
    """What shows for the largest upstream alone, and there a little: a loss of digits, or a fault."""
    at_1e6 = lambda u: tf.clip_by_value(u, scalar_like(-1e6, u), scalar_like(1e6, u))  # noqa: E731
    halves = lambda u: tf.where(u < 0, scalar_like(0.5, u) * u, u)  # noqa: E731
    for dtype, end in (("float64", ""), ("float32", "_float32")):
        # Farther out, TensorFlow's float32 matrix exponential is off by a per cent.
        inputs = {"x": {"shape": [2, 2], "dtype": dtype, "uniform": {"low": -2, "high": 2}}}
        for name, by_size, change, truth in (
            ("by_size", True, None, "right"),
            ("by_itself", False, None, "undecidable"),  # in float32, it has no digit left
            ("of_halves", True, halves, "wrong"),
            ("clipped", False, at_1e6, "wrong"),
        ):
            yield Row(f"exponential_{name}{end}", exponential(by_size, change), None, inputs, truth)
    for share, truth in ((1e-16, "not green"), (1e-12, "wrong")):
        use = lambda u, share=share: u + scalar_like(share, u) * u * u  # noqa: E731 (one for each share)
        yield Row(f"square_share_{share:g}", bent(tf.sin, use), None, {"x": {"shape": [3]}}, truth)


def steep(by_size, least=0.0):
    """A slope whose terms are close to the smallest number of float16."""

    @tf.custom_gradient
    def call(x):
        squares = x * x + scalar_like(0.001, x)

        def gradient(u):
            scale = tf.where(tf.abs(u) > 0, tf.abs(u), tf.ones_like(u)) if by_size else tf.ones_like(u)
            kept = tf.where(tf.abs(u) < scalar_like(least, u), tf.zeros_like(u), u)
            return scale * (kept / scale * (scalar_like(0.001, x) - x * x) / squares**2)

        return x / squares, gradient

    return call


def underflowing():
    """What float16 loses of an upstream of 1e-3, and what a gradient drops of it."""
    inputs = {"x": {"value": [0.02, 0.2, 0.5], "dtype": "float16"}}
    yield Row("steep_by_size", steep(by_size=True), None, inputs, "right")
    yield Row("steep", steep(by_size=False), None, inputs, "undecidable")
    yield Row("steep_dropped", steep(by_size=False, least=0.01), None, inputs, "wrong")


def sums(dtype, terms):
    """Yield sums of ones in half precision: TensorFlow's bias gradient stops adding at 256."""
    x = {"x": {"shape": [2], "dtype": dtype}}
    shape = [terms, 2]
    forwards = {
        "broadcast": lambda x: tf.zeros(shape, x.dtype) + x,
        "matvec": lambda x: tf.linalg.matvec(tf.ones(shape, x.dtype), x),
        "tiled": lambda x: tf.tile(x, [terms]),
        "repeated": lambda x: tf.repeat(x, terms),
    }
    for name, forward in forwards.items():
        yield Row(f"{name}_{terms}_{dtype}", forward, None, x, "right")
    if dtype == "bfloat16":
        yield Row(f"bias_{terms}", lambda x: tf.nn.bias_add(tf.zeros(shape, x.dtype), x), None, x, "wrong")


def one_by_one(forward, backward):
    """A forward of x and a bias or matrix, whose gradient adds up one term after the other."""

    @tf.custom_gradient
    def call(x, w):
        def gradient(u):
            zeros = tf.zeros_like(w)
            added = tf.scan(lambda total, pair: total + backward(*pair, w), (x, u), initializer=zeros)
            return tf.gradients(forward(x, w), x, u)[0], added[-1]

        return forward(x, w), gradient

    return call


def probed_sums():
    """Yield sums of many terms whose Jacobian is too large to be at hand."""
    forwards = {
        "bias": (lambda x, w: x + w, lambda x, u, w: u, [8]),
        "matrix": (lambda x, w: tf.tanh(x) @ w, lambda x, u, w: tf.tanh(x)[:, None] * u, [8, 8]),
        "sine": (lambda x, w: tf.sin(x) * w, lambda x, u, w: u * tf.sin(x), [8]),
    }
    for terms, names in ((160, forwards), (600, ["bias"])):
        for name, dtype in itertools.product(names, ("bfloat16", "float16")):
            forward, backward, shape = forwards[name]
            inputs = {"x": {"shape": [terms, 8], "dtype": dtype}, "w": {"shape": shape, "dtype": dtype}}
            keys = {"method": "probe", "samples": 1}
            yield Row(f"probed_{name}_{terms}_{dtype}", forward, None, inputs, "right", keys=keys)
            truth = "wrong" if dtype == "bfloat16" else "right"  # TensorFlow's own sums in float16 do that
            added = one_by_one(forward, backward)
            yield Row(f"probed_{name}_added_{terms}_{dtype}", added, None, inputs, truth, keys=keys)


def together():
    """Two outputs: what one's upstream gives depends on whether the other's points the same way."""

    def build(factor):
        @tf.custom_gradient
        def call(x):
            def gradient(u, v):
                return (u * tf.cos(x) + v * 2 * x) * factor(tf.reduce_sum(u * v))

            return (tf.sin(x), x * x), gradient

        return lambda: call

    kinds = {
        "same_way": ("wrong", lambda way: tf.where(way > 0, scalar_like(1.2, way), scalar_like(1, way))),
        "other_way": ("wrong", lambda way: tf.where(way < 0, scalar_like(1.2, way), scalar_like(1, way))),
        "either_way": ("right", lambda way: tf.where(way < 0, scalar_like(1, way), scalar_like(1, way))),
    }
    for name, (truth, factor) in kinds.items():
        yield Row(f"together_{name}", build(factor), None, {"x": {"shape": [4]}}, truth, keys={"build": {}})


def saturated():
    """Attention with scores so far apart that dP - D is what rounding leaves, where the rows are zero."""

    def attention(q, k, v):
        return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / scalar_like(2, q)), v)

    def backward(factor):
        def gradient(op, u):
            (q, k, v), y = op.inputs, op.outputs[0]
            p = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / scalar_like(2, q))
            lost = tf.reduce_sum(u * y, -1, keepdims=True)
            s = p * (tf.matmul(u, v, transpose_b=True) - scalar_like(factor, u) * lost) / scalar_like(2, u)
            return tf.matmul(s, k), tf.matmul(s, q, transpose_a=True), tf.matmul(p, u, transpose_a=True)

        return gradient

    for size, dtype in itertools.product((30, 100), ("bfloat16", "float16")):
        wide = {"shape": [4, 4], "uniform": [-size, size], "dtype": dtype}
        inputs = {"q": wide, "k": wide, "v": {"shape": [4, 3], "dtype": dtype}}
        name = f"attention_{size}_{dtype}"
        yield Row(name, attention, backward(1), inputs, "undecidable")
        yield Row(f"{name}_half_lost", attention, backward(0.5), inputs, "wrong")


def decomposed():
    """Q and R, with the gradient of both: of two equal columns R[1, 1] is a rounding, and all is divided."""

    def decompose(a):
        q, r = tf.linalg.qr(a)
        sign = tf.sign(tf.linalg.diag_part(r))
        return q * sign, r * sign[:, None]

    def backward(mixed):
        def gradient(op, of_q, of_r):
            q, r = decompose(op.inputs[0])
            of_q *= 1 + scalar_like(mixed, of_r) * tf.reduce_sum(of_r)
            both = tf.matmul(r, of_r, transpose_b=True) - tf.matmul(of_q, q, transpose_a=True)
            low = tf.linalg.band_part(both, -1, 0)
            even = low + tf.transpose(low) - tf.linalg.diag(tf.linalg.diag_part(both))
            whole = tf.transpose(of_q + tf.matmul(q, even))
            return tf.transpose(tf.linalg.triangular_solve(r, whole, lower=False))

        return gradient

    equal = {"value": -1.5945611628187255, "shape": [4, 2], "move": False, "reason": "no two columns differ"}
    yield Row("decomposed_equal_columns", decompose, backward(0), {"a": equal}, "undecidable")
    yield Row("decomposed", decompose, backward(0), {"a": [4, 2]}, "right")
    yield Row("decomposed_mixed", decompose, backward(0.1), {"a": [4, 2]}, "wrong")


ROWS = marked(
    (
        *together(),
        *decomposed(),
        *saturated(),
        *probed_sums(),
        *wrong(),
        *one_sided(),
        *right(),
        *faint(),
        *underflowing(),
        *sums("bfloat16", 60),
        *sums("bfloat16", 90),
        *sums("bfloat16", 130),
        *sums("bfloat16", 300),
        *sums("float16", 300),
    ),
    "attention_100_bfloat16",
    "bias_300",
    "decomposed_equal_columns",
    "exponential_by_itself_float32",
    "exponential_clipped_float32",
    "steep",
    "broadcast_300_float16",
    "large_less_where_equal_float32",
    "large_normalised_float32",
    "large_normalised_float64",
    "one_sided_above_10_float64",
    "one_sided_below_minus_10_float64",
    "probed_bias_160_float16",
    "probed_matrix_added_160_bfloat16",
    "saturated_8_float32",
    "scaled_to_its_norm_3_float64",
    "square_complex128",
    "square_share_1e-16",
    "tanh_smaller_ones_dropped_float64",
    "together_other_way",
    "together_same_way",
)
