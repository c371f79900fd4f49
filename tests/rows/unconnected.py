"""Outputs that don't depend on an input, inputs at kinks, tiny inputs, and gradients zero by symmetry."""

from dataclasses import replace

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

_XZ = {"x": {"shape": [3]}, "z": {"shape": [3]}}
_OUTPUTS = {"outputs": ["a", "b"]}


def _structure():
    """Several outputs, each a function of some of the inputs."""

    def own(forward, gradient):
        @tf.custom_gradient
        def call(x, z):
            return forward(x, z), lambda *up: gradient(x, z, *up)

        return call

    forms = {
        "product": (lambda x, z: (x * z, z * z), lambda x, z, u, v: (u * z, u * x + 2 * v * z)),
        "sum": (lambda x, z: (x + z, tf.sin(z)), lambda x, z, u, v: (u, u + v * tf.cos(z))),
        "separate": (lambda x, z: (x * x, z * z), lambda x, z, u, v: (2 * u * x, 2 * v * z)),
        "scan": (
            lambda x, z: (tf.cumsum(x) * z, tf.cumsum(z)),
            lambda x, z, u, v: (
                tf.cumsum(u * z, reverse=True),
                u * tf.cumsum(x) + tf.cumsum(v, reverse=True),
            ),
        ),
        "reduced": (
            lambda x, z: (tf.reduce_sum(x * z), tf.reduce_sum(z * z)),
            lambda x, z, u, v: (u * z, u * x + 2 * v * z),
        ),
        "matmul": (
            lambda x, z: (x[:, None] * z[None], tf.exp(z)),
            lambda x, z, u, v: (
                tf.linalg.matvec(u, z),
                tf.linalg.matvec(u, x, transpose_a=True) + v * tf.exp(z),
            ),
        ),
    }
    for name, (forward, gradient) in forms.items():
        yield Row(f"own {name}", own(forward, gradient), None, _XZ, "right", keys=_OUTPUTS)

        def leaking(x, z, u, v, gradient=gradient):
            to_x, to_z = gradient(x, z, u, v)
            return to_x + 1e-3 * tf.reduce_sum(v), to_z

        def dropped(x, z, u, v, gradient=gradient):
            return gradient(x, z, tf.zeros_like(u), v)[0], gradient(x, z, u, v)[1]

        yield Row(f"own {name} leaks", own(forward, leaking), None, _XZ, "wrong", keys=_OUTPUTS)
        yield Row(f"own {name} drops", own(forward, dropped), None, _XZ, "wrong", keys=_OUTPUTS)
        plain = lambda x, z, forward=forward: forward(x, z)  # noqa: E731 (a forward without its own gradient)
        yield Row(f"plain {name}", plain, None, _XZ, "right", keys=_OUTPUTS)
    # A path that is there, and shows nothing at these points.
    hidden = own(
        lambda x, z: (x * z, z * z + tf.nn.relu(x - 100)),
        lambda x, z, u, v: (u * z, u * x + 2 * v * z),
    )
    yield Row("a path that shows nothing", hidden, None, _XZ, "unchecked", keys=_OUTPUTS)
    switched = own(
        lambda x, z: (x * z, z * z + x * tf.round(0.1 * x)),
        lambda x, z, u, v: (u * z, u * x + 2 * v * z),
    )
    small = {"x": {"shape": [3], "value": [0.1, 0.2, 0.3]}, "z": {"shape": [3]}}
    yield Row("a path that is multiplied by zero", switched, None, small, "unchecked", keys=_OUTPUTS)
    alone = own(lambda _x, z: z * z, lambda x, z, u: (tf.zeros_like(x), 2 * u * z))
    yield Row("an input that nothing uses", alone, None, _XZ, "undecidable")


class _Model:
    """Two heads, each with a variable of its own beside a shared one."""

    def __init__(self, leak=0.0):
        self.shared = tf.Variable(tf.constant([0.5, -1.5, 2.0], tf.float64), name="shared")
        self.first = tf.Variable(tf.constant([1.5, 0.5, -1.0], tf.float64), name="first")
        self.leak = leak

    def __call__(self, x):
        @tf.custom_gradient
        def heads(x, shared, first):
            hidden = x * shared
            return (hidden * first, tf.sin(hidden)), lambda u, v: (
                (u * first + v * tf.cos(hidden)) * shared,
                (u * first + v * tf.cos(hidden)) * x,
                u * hidden + self.leak * v,
            )

        return heads(x, self.shared.value(), self.first.value())


def _variables():
    keys = {"outputs": ["a", "b"], "variables": True, "build": {}}
    for leak, truth in ((0.0, "right"), (1e-3, "wrong")):
        yield Row(
            f"heads {leak:g}",
            "of_a_row:make",
            None,
            {"x": {"shape": [3]}},
            truth,
            keys=keys,
            functions={"make": lambda leak=leak: _Model(leak)},
        )


def _kinks():
    """Every input at a kink: a gradient between the slopes is right, one outside is wrong."""
    ops = {
        "relu": (tf.nn.relu, (0.0, 1.0)),
        "abs": (tf.abs, (-1.0, 1.0)),
        "leaky": (lambda x: tf.nn.leaky_relu(x, 0.1), (0.1, 1.0)),
        "root of square": (lambda x: tf.sqrt(x * x), (-1.0, 1.0)),
        "hinge": (lambda x: tf.maximum(1 - x, 0.0), (-1.0, 0.0)),
        "clip": (lambda x: tf.clip_by_value(x, -1.0, 1.0), (0.0, 1.0)),
    }
    for name, (forward, (low, high)) in ops.items():
        at = 1.0 if name in {"hinge", "clip"} else 0.0
        for size in (1, 3):
            # The gradient is that at the kink alone, wherever the input is.
            inputs = {"x": {"shape": [size], "value": at, "move": False, "reason": "the kink is meant"}}
            for slope in (low, high, 0.5 * (low + high), low - 0.5, high + 0.5):

                @tf.custom_gradient
                def call(x, forward=forward, slope=slope):
                    return forward(x), lambda u: u * tf.constant(slope, u.dtype)

                truth = "right" if low <= slope <= high else "wrong"
                truth = truth if slope else "unchecked"  # a gradient that forgets x is zero, too
                yield Row(f"{name} of {size} at a kink by {slope:g}", call, None, inputs, truth)


def _tiny():
    """Inputs of 1e-20 beside values of 1."""
    ops = {
        "square": (tf.square, lambda x: 2 * x),
        "product": (lambda x: x * tf.reduce_sum(x), None),
        "sine": (tf.sin, tf.cos),
        "exp": (tf.exp, tf.exp),
        "softplus": (tf.nn.softplus, tf.sigmoid),
        "cube": (lambda x: x**3 + x, lambda x: 3 * x * x + 1),
        "root": (lambda x: tf.sqrt(x * x + 1), lambda x: x / tf.sqrt(x * x + 1)),
        "gelu": (tf.nn.gelu, None),
        "tanh": (tf.tanh, lambda x: 1 - tf.tanh(x) ** 2),
        "silu": (tf.nn.silu, None),
    }
    for name, (forward, derivative) in ops.items():
        for tiny in (1e-20, 1e-12):
            inputs = {"x": {"shape": [3], "value": [tiny, 1.0, -0.5]}}
            yield Row(f"{name} beside {tiny:g}", forward, None, inputs, "right")
            if derivative is not None:

                @tf.custom_gradient
                def call(x, forward=forward, derivative=derivative):
                    factor = tf.constant([1.0, 1.01, 1.0], x.dtype)
                    return forward(x), lambda u: u * factor * derivative(x)

                yield Row(f"{name} beside {tiny:g} off by one percent", call, None, inputs, "wrong")


def _fixed(shape, seed, dtype):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), dtype)


def _attention(leak=0.0, part="k"):
    """Attention with biases of its queries, keys and values; the key's changes nothing."""

    @tf.custom_gradient
    def call(q, k, v):
        x = _fixed([4, 3], 5, q.dtype)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([q, k, v])
            weights = tf.nn.softmax(tf.matmul(x + q, x + k, transpose_b=True))
            y = tf.matmul(weights, x + v)

        def gradient(u):
            with tf.GradientTape() as inner:
                inner.watch([q, k, v])
                again = tf.matmul(tf.nn.softmax(tf.matmul(x + q, x + k, transpose_b=True)), x + v)
            found = dict(zip("qkv", inner.gradient(again, [q, k, v], u), strict=True))
            found[part] += leak * tf.reduce_sum(u, 0)
            return found["q"], found["k"], found["v"]

        return y, gradient

    return call


def _symmetric():
    for dtype in ("float64", "float32"):
        biases = {name: {"shape": [3], "dtype": dtype} for name in "qkv"}
        yield Row(f"attention {dtype}", _attention(), None, biases, "right")
        for leak in (1e-2, 1e-4, 1e-6, 1e-8) if dtype == "float64" else (1e-2, 1e-3):
            yield Row(f"attention {dtype} leaks {leak:g}", _attention(leak), None, biases, "wrong")
        yield Row(f"attention {dtype} query off", _attention(1e-2, "q"), None, biases, "wrong")
        shift = {"x": {"shape": [4], "dtype": dtype}, "b": {"shape": [1], "dtype": dtype}}
        for leak, truth in ((0.0, "right"), (1e-3, "wrong")):

            @tf.custom_gradient
            def shifted(x, b, leak=leak):
                y = tf.nn.softmax(x + b)

                def gradient(u):
                    to_x = y * (u - tf.reduce_sum(u * y))
                    return to_x, tf.reduce_sum(to_x, keepdims=True) + leak * u[:1]

                return y, gradient

            yield Row(f"softmax of a shift {dtype} {leak:g}", shifted, None, shift, truth)

            @tf.custom_gradient
            def normalised(x, b, leak=leak):
                with tf.GradientTape() as tape:
                    tape.watch([x, b])
                    z = x + b
                    centred = z - tf.reduce_mean(z)
                    y = centred * tf.math.rsqrt(tf.reduce_mean(centred * centred) + 1e-3)

                def gradient(u):
                    with tf.GradientTape() as inner:
                        inner.watch([x, b])
                        z = x + b
                        centred = z - tf.reduce_mean(z)
                        again = centred * tf.math.rsqrt(tf.reduce_mean(centred * centred) + 1e-3)
                    to_x, to_b = inner.gradient(again, [x, b], u)
                    return to_x, to_b + leak * u[:1]

                return y, gradient

            yield Row(f"bias before a normalisation {dtype} {leak:g}", normalised, None, shift, truth)
    # A whole op that is zero by symmetry has no neighbours that say how small is small.
    alone = {"b": {"shape": [3]}}

    def key(b):
        x = _fixed([4, 3], 5, b.dtype)
        return tf.matmul(tf.nn.softmax(tf.matmul(x, x + b, transpose_b=True)), x)

    yield Row("key bias alone", key, None, alone, "undecidable")


def _saturated():
    """As small as what symmetry leaves, but with digits, right or wrong."""
    far = {"x": {"shape": [3]}, "b": {"shape": [3], "value": 50.0}}
    dead = {"x": {"shape": [3]}, "b": {"shape": [3], "value": -2.0}}

    def faint(forward, derivative):
        @tf.custom_gradient
        def call(x, b):
            return x * x + forward(b), lambda u: (2 * x * u, u * derivative(b))

        return call

    for factor in (1.0, 2.0, -1.0):
        slope = lambda b, factor=factor: factor * tf.exp(-b)  # noqa: E731 (one for each factor)
        truth = "unchecked" if factor == 1 else "wrong"  # the stated value moves, and has digits there
        yield Row(f"saturated {factor:g}", faint(tf.sigmoid, slope), None, far, truth)
        constant = lambda b, factor=factor: 1e-20 * factor * tf.ones_like(b)  # noqa: E731
        yield Row(f"dead relu {factor:g}", faint(tf.nn.relu, constant), None, dead, "unchecked")


def _unused():
    divided = tf.custom_gradient(lambda x: ((x, x), lambda u, v: (u + v) * tf.norm(v) / tf.norm(v)))
    why = "an output that nobody uses has an upstream of zeros"
    yield Row("beside an unused output", divided, None, {"x": {"shape": [3]}}, "wrong", why)


def _named(one):
    return replace(one, name=one.name.replace(" ", "_"))


ROWS = marked(
    tuple(
        map(
            _named,
            (*_structure(), *_variables(), *_kinks(), *_tiny(), *_symmetric(), *_saturated(), *_unused()),
        )
    ),
    "a_path_that_shows_nothing",
    "an_input_that_nothing_uses",
    "attention_float32_leaks_0.001",
    "own_reduced",
    "own_reduced_drops",
    "relu_of_1_at_a_kink_by_-0.5",
    "relu_of_3_at_a_kink_by_1.5",
)
