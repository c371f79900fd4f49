"""Rounding of terms that are far larger than what is left of them, and jumps that climb nothing."""

import itertools
from functools import partial

import tensorflow as tf

from tests.support.row import Row, marked


def log_probability(change=None):
    """The log-probability of class 0, with its textbook gradient; `change` makes it wrong."""

    @tf.custom_gradient
    def call(z):
        total = tf.reduce_logsumexp(z, -1)

        def gradient(u):
            p = tf.exp(z - total[:, None])
            rest = tf.reduce_sum(p[:, 1:], -1, keepdims=True)
            found = u[:, None] * tf.concat([rest, -p[:, 1:]], -1)
            return found if change is None else change(found)

        return z[:, 0] - total, gradient

    return call


def difference_of(left, right, slope):
    """`left - right`, which is small, and its slope by hand."""

    def make(factor):
        @tf.custom_gradient
        def call(x):
            return left(x) - right(x), lambda u: factor * u * slope(x)

        return call

    return make


# As large as scores, of which next to nothing is left.
DIFFERENCES = {
    "squares": difference_of(lambda x: (x + 1000) ** 2, lambda x: x**2 + 2000 * x + 999999, lambda x: 0 * x),
    "entropy": difference_of(
        lambda x: 50 + x, lambda x: 50 + tf.sqrt(x * x + 1e-6), lambda x: 1 - x * tf.math.rsqrt(x * x + 1e-6)
    ),
    "softplus": difference_of(tf.math.softplus, lambda x: x, lambda x: -tf.sigmoid(-x)),
    "scaled": lambda factor: (
        lambda x: (
            0.25
            * difference_of(lambda t: 3 * t + 40, lambda t: 3 * t + 40 - tf.exp(-t), lambda t: -tf.exp(-t))(
                factor
            )(x)
        )
    ),
}


def box(size):
    """What a quantiser's learned step does to its own gradient: within the levels the weight, beyond 0."""

    @tf.custom_gradient
    def call(step):
        x = tf.constant([0.5, -0.9, 1.1, 0.3], step.dtype)
        inside = tf.abs(x / step) <= 3
        value = tf.where(inside, x * (1 / step) * step, tf.zeros_like(x))
        return value, lambda u: tf.cast(size, step.dtype) * tf.reduce_sum(u)

    return call


def stairs(step):
    """Up, and up again, where a box goes down."""
    return _flat(lambda x: tf.round(x * 10) / 10)(step)


def _flat(forward):
    @tf.custom_gradient
    def call(x):
        return forward(x), tf.zeros_like

    return call


def centred(factor):
    """The upstream less its weighted mean, of scores whose support is counted: a cast that rounds nothing."""

    @tf.custom_gradient
    def call(u):
        slope = tf.constant([0.99999, 0.0037, 0.0, 0.02], u.dtype)
        count = tf.reduce_sum(tf.cast(u > -100, tf.int32))
        weight = tf.cast(count // count, u.dtype)
        jacobian = tf.linalg.diag(slope) - slope[:, None] * slope / tf.reduce_sum(slope)
        value = weight * slope * (u - tf.reduce_sum(slope * u) / tf.reduce_sum(slope))
        return value, lambda v: factor * tf.linalg.matvec(jacobian, v, transpose_a=True)

    return call


def sobel(leak):
    """Sobel's filter, whose mirrored border cancels; a leak puts a little where nothing belongs."""

    @tf.custom_gradient
    def call(image):
        with tf.GradientTape() as tape:
            tape.watch(image)
            edges = tf.image.sobel_edges(image)

        def gradient(u):
            with tf.GradientTape() as inner:
                inner.watch(image)
                again = tf.image.sobel_edges(image)
            found = inner.gradient(again, image, u)
            return found + tf.cast(leak, found.dtype) * u[:, :, :, :, 0]

        return edges, gradient

    return call


def _differences():
    for gap in (5.0, 10.0, 15.0, 20.0, 23.0):
        for seed in range(3):
            others = [[gap + 20.0, 20.0 - 0.3 * seed, 18.0], [3.0, 2.0 + 0.1 * seed, 1.0]]
            inputs = {"z": {"shape": [2, 3], "value": others}}
            name = f"certain_{gap:g}_{seed}"
            yield Row(name, log_probability(), None, inputs, "right")
            for what, change in {
                "twice": lambda found: 2 * found,
                "turned": lambda found: -found,
                "off": lambda found: 1.001 * found,
            }.items():
                yield Row(f"{name}_{what}", log_probability(change), None, inputs, "wrong")
    for name, make in DIFFERENCES.items():
        for low in (0.5, 5.0, 12.0):
            inputs = {"x": {"shape": [3], "uniform": {"low": low, "high": low + 1}}}
            yield Row(
                f"{name}_{low:g}", make(1.0), None, inputs, "undecidable" if name == "squares" else "right"
            )
            if name != "squares":
                yield Row(f"{name}_{low:g}_twice", make(2.0), None, inputs, "wrong")


def _jumps():
    for step in (0.2, 0.4, 0.7, 1.3):
        inputs = {"step": {"shape": [], "value": step}}
        yield Row(f"box_{step}", box(0.0), None, inputs, "right", keys={"checks": {"all_zero": False}})
        yield Row(f"box_{step}_sloping", box(0.1), None, inputs, "not green")
        yield Row(f"stairs_{step}", stairs, None, inputs, "unchecked")

    for seed in range(6):
        for size, strides in ((3, 1), (2, 1), (3, 2)):
            pool = partial(tf.nn.max_pool2d, ksize=size, strides=strides, padding="SAME")
            inputs, keys = {"image": {"shape": [2, 5, 5, 2]}}, {"seed": seed, "second_order": True}
            name = f"pool_{size}_{strides}_{seed}"
            yield Row(name, lambda image, pool=pool: pool(image), None, inputs, "right", keys=keys)


def _cancelled():
    for seed in range(6):
        inputs, keys = {"u": {"shape": [4]}}, {"seed": seed}
        yield Row(f"centred_{seed}", centred(1.0), None, inputs, "right", keys=keys)
        yield Row(f"centred_{seed}_off", centred(1.001), None, inputs, "wrong", keys=keys)
    for seed in range(6):
        inputs, keys = {"image": {"shape": [1, 3 + seed % 2, 4, 1]}}, {"seed": seed}
        yield Row(f"sobel_{seed}", "tensorflow:image.sobel_edges", None, inputs, "right", keys=keys)
        yield Row(f"sobel_{seed}_by_hand", sobel(0.0), None, inputs, "right", keys=keys)
        yield Row(f"sobel_{seed}_leak", sobel(1e-5), None, inputs, "wrong", keys=keys)


def _density(x):
    return tf.exp(-x * x / 2) / tf.constant(2 * 3.141592653589793, x.dtype) ** 0.5


def _tail(x):
    return 1 + tf.math.erf(x / tf.constant(2.0, x.dtype) ** 0.5)


# Products whose factor is zero by rounding from -9 on, while their derivative is not: forward, derivative.
TAILS = {
    "gelu": (lambda x: 0.5 * x * _tail(x), lambda x: 0.5 * _tail(x) + x * _density(x)),
    "gelu_last": (lambda x: x * (0.5 * _tail(x)), lambda x: 0.5 * _tail(x) + x * _density(x)),
    "squared": (lambda x: _tail(x) * x * x, lambda x: 2 * x * _tail(x) + 2 * x * x * _density(x)),
    "divided": (lambda x: _tail(x) / x, lambda x: 2 * _density(x) / x - _tail(x) / x**2),
    "swish": (lambda x: x * (1 + tf.tanh(x)), lambda x: 1 + tf.tanh(x) + x / tf.cosh(x) ** 2),
}


def _tails():
    """The right derivative of a product that is zero by rounding, and one that isn't small."""
    for name, (forward, derivative) in TAILS.items():
        for where, value in {"far": [-22.0, -25.0], "near": [-21.0, 0.5]}.items():
            for truth, off in (("undecidable" if where == "far" else "right", 0.0), ("wrong", 1e-3)):

                @tf.custom_gradient
                def op(x, off=off, forward=forward, derivative=derivative):
                    return forward(x), lambda u: u * (derivative(x) + off)

                inputs = {"x": {"shape": [2], "value": value}}
                yield Row(f"tail_{name}_{where}{'_off' if off else ''}", op, None, inputs, truth)


def _of_tanh(factor):
    """A tanh whose gradient is off by a factor."""

    @tf.custom_gradient
    def op(x):
        y = tf.tanh(x)
        return y, lambda u: factor * u * (1 - y * y)

    return op


# Ways to mask, where 1 - m is zero: nothing of what it is multiplied by is left.
MASKS = {
    "added": lambda y, m, size: y * m + (1 - m) * size,
    "divided": lambda y, m, size: y - (1 - m) / (-1 / size),
    "reshaped": lambda y, m, size: tf.identity(y * m) + tf.reshape((1 - m[None]) * size, [-1]),
}


def _masked():
    """A mask that is a constant, an integer or an input of its own; another output doesn't depend on `x`."""
    x = {"shape": [4], "value": [0.3, -0.7, 1.1, 0.4]}
    masks = {
        "constant": {},
        "int": {"m": {"shape": [4], "value": [1, 1, 0, 1], "dtype": "int32"}},
        "input": {"m": {"shape": [4], "value": [1.0, 1.0, 0.0, 1.0]}},
    }
    for (name, mask), (kind, m), size in itertools.product(MASKS.items(), masks.items(), (-1e9, -1e30)):
        for truth, factor in (("right", 1), ("wrong", 1.01), ("wrong", 0.5)):
            # By the mask itself, divided by 1 / 1e30, nothing is left of x.
            is_lost = truth == "right" and kind == "input" and size == -1e30

            def op(x, m=None, mask=mask, size=size, factor=factor):
                m = tf.constant([1.0, 1, 0, 1], x.dtype) if m is None else tf.cast(m, x.dtype)
                return mask(_of_tanh(factor)(x), m, size), 1 - m

            yield Row(
                f"mask_{name}_{kind}_{size:g}_{factor}",
                op,
                None,
                {"x": x, **m},
                "undecidable" if is_lost else truth,
            )


def _guarded(guard):
    """A root that a guard keeps from numbers without one: there it is 0, whatever its slope beside 0."""

    def make(far):
        @tf.custom_gradient
        def op(x):
            y = guard(x + 3)
            slope = tf.where(x > -3, 0.5 / tf.where(x > -3, y, 1.0), tf.cast(far, x.dtype))
            return y, lambda u: u * slope

        return op

    return make


GUARDS = {
    "where": lambda t: tf.where(t > 0, tf.sqrt(tf.maximum(t, 1e-30)), tf.zeros_like(t)),
    "maximum": lambda t: tf.sqrt(tf.maximum(t, tf.zeros_like(t))),
    "log": lambda t: tf.where(t > 0, tf.sqrt(tf.where(t > 0, t, 1.0)), 0 * tf.math.log(1e-30 + tf.abs(t))),
}


def _not_chosen():
    """What a selection leaves out is not rounded, and a bias is added along the axis of channels."""
    for (name, guard), (dtype, far) in itertools.product(
        GUARDS.items(), itertools.product(("float64", "float32"), (0.0, 0.5, 1e-3))
    ):
        x = {"shape": [4], "value": [-65.0, 0.7, -0.4, -8.0], "dtype": dtype}
        truth = "wrong" if far else "right"
        yield Row(f"guard_{name}_{dtype}_{far:g}", _guarded(guard)(far), None, {"x": x}, truth)
    for shape, dtype, factor in itertools.product(
        ([2, 3, 2], [2, 3, 2, 2], [2, 3, 1, 2, 3]), ("float64", "float32"), (1.0, 1.01)
    ):

        def op(x, b, factor=factor):
            y = tf.nn.bias_add(_of_tanh(factor)(x), b, "NC...")
            return tf.reduce_sum(y, -1) - 50

        inputs = {"x": {"shape": shape, "dtype": dtype}, "b": {"shape": [3], "dtype": dtype}}
        truth = "right" if factor == 1 else "wrong"
        yield Row(f"channels_first_{len(shape)}_{dtype}_{factor}", op, None, inputs, truth)
    for dtype, factor in itertools.product(("float64", "float32"), (1.0, 1.01)):

        def looked_up(x, factor=factor):  # indices are whole numbers, which are not rounded
            index = tf.clip_by_value(tf.cast(tf.floor(x), tf.int32), 0, 2)
            return tf.gather(tf.constant([1.0, 2.0, 5.0], x.dtype), index) * _of_tanh(factor)(x) + 1

        x = {"shape": [3], "value": [0.4, 1.3, 7.6], "dtype": dtype}
        truth = "right" if factor == 1 else "wrong"
        yield Row(f"clipped_index_{dtype}_{factor}", looked_up, None, {"x": x}, truth)


ROWS = marked(
    (*_differences(), *_jumps(), *_cancelled(), *_tails(), *_masked(), *_not_chosen()), "squares_0.5"
)
