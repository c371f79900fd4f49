"""Random numbers drawn in the backward pass: the forward's own are right, others never are."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [3, 2]}}
STATELESS = {
    "stateless_uniform": lambda shape, seed: tf.random.stateless_uniform(shape, seed, dtype=tf.float64),
    "stateless_normal": lambda shape, seed: tf.random.stateless_normal(shape, seed, dtype=tf.float64),
}


def own(forward_draw, backward_draw=None, *, keep=True):
    """x * (1 + draw), by a custom gradient whose backward pass has the draw kept, or draws again."""

    @tf.custom_gradient
    def call(x):
        drawn = forward_draw(x.shape)

        def gradient(u):
            again = drawn if keep else (backward_draw or forward_draw)(x.shape)
            return u * (1.0 + again)

        return x * (1.0 + drawn), gradient

    return lambda x: call(x)  # noqa: PLW0108 (AutoGraph is to leave the custom gradient alone)


def generator(kind="uniform"):
    made = tf.random.Generator.from_seed(3)
    return lambda shape: getattr(made, kind)(shape, dtype=tf.float64)


def global_generator(shape):
    return tf.random.get_global_generator().uniform(shape, dtype=tf.float64)


def keras_generator():
    seeds = keras.random.SeedGenerator(3)
    return lambda shape: tf.convert_to_tensor(keras.random.uniform(shape, dtype="float64", seed=seeds))


def split_generator():
    made = tf.random.Generator.from_seed(3)
    return lambda shape: tf.random.stateless_uniform(shape, made.make_seeds(1)[:, 0], dtype=tf.float64)


def in_function(draw):
    return tf.function(draw, autograph=False)


def drawn_seed(shape):
    seed = tf.random.uniform([2], maxval=2**30, dtype=tf.int32)
    return tf.random.stateless_uniform(shape, seed, dtype=tf.float64)


def shuffled(shape):
    return tf.random.shuffle(tf.reshape(tf.range(1.0, 7.0, dtype=tf.float64), [6]))[
        : shape[0], None
    ] + tf.zeros(shape, tf.float64)


def as_mask(draw):
    return lambda shape: tf.cast(draw(shape) > 0.5, tf.float64) * 2.0


DRAWS = {
    "uniform": lambda: lambda shape: tf.random.uniform(shape, dtype=tf.float64),
    "uniform_seeded": lambda: lambda shape: tf.random.uniform(shape, dtype=tf.float64, seed=7),
    "normal": lambda: lambda shape: tf.random.normal(shape, dtype=tf.float64),
    "truncated": lambda: lambda shape: tf.random.truncated_normal(shape, dtype=tf.float64),
    "generator": generator,
    "generator_normal": lambda: generator("normal"),
    "generator_mask": lambda: as_mask(generator()),
    "global_generator": lambda: global_generator,
    "keras_generator": keras_generator,
    "made_seeds": split_generator,
    "drawn_seed": lambda: drawn_seed,
    "shuffle": lambda: shuffled,
    "mask": lambda: as_mask(lambda shape: tf.random.uniform(shape, dtype=tf.float64)),
    "in_function": lambda: in_function(generator()),
    "generator_normal_mask": lambda: as_mask(generator("normal")),
}


def _classical():
    """A draw kept for the backward pass, and one that is drawn again there."""
    for name, make in DRAWS.items():
        for keep in (True, False):
            truth, what = ("right", "kept") if keep else ("wrong", "again")
            for mode in ("graph", "eager") if "global" not in name else ("graph",):
                keys = {"build": {}, "modes": [mode]}

                def build(make=make, keep=keep):
                    return own(make(), keep=keep)

                yield Row(f"{name}_{what}_{mode}", build, None, X, truth, keys=keys)


def constant(shape):
    return tf.ones(shape, tf.float64) * 0.5


def _backward_only():
    """The forward draws nothing; the gradient is right on average, or by a factor that is drawn."""
    for name, make in DRAWS.items():

        def build(make=make):
            return own(constant, make(), keep=False)

        yield Row(f"backward_only_{name}", build, None, X, "wrong", keys={"build": {}})


def faint(size):
    """A draw of the gradient's own that is added, as large as `size`."""
    made = tf.random.Generator.from_seed(3)

    @tf.custom_gradient
    def call(x):
        return tf.sin(x), lambda u: u * (tf.cos(x) + size * made.normal(x.shape, dtype=x.dtype))

    return lambda x: call(x)  # noqa: PLW0108 (AutoGraph is to leave the custom gradient alone)


def stateless(name, *, same):
    draw = STATELESS[name]
    return own(
        lambda shape: draw(shape, [1, 2]), lambda shape: draw(shape, [1, 2] if same else [3, 4]), keep=False
    )


def numpy_in_gradient(x):
    @tf.custom_gradient
    def call(x):
        return tf.sin(x), lambda u: u * tf.cos(x) * (1.0 + np.random.default_rng().random())

    return call(x)


def numpy_by_function(x):
    def slope(value):
        return np.cos(value) * (1.0 + np.random.default_rng().random())

    @tf.custom_gradient
    def call(x):
        return tf.sin(x), lambda u: u * tf.ensure_shape(tf.numpy_function(slope, [x], tf.float64), x.shape)

    return call(x)


def doubled_at_times(x):
    """The gradient is right in four calls of five."""

    @tf.custom_gradient
    def call(x):
        return tf.sin(x), lambda u: u * tf.cos(x) * (1 + tf.cast(tf.random.uniform([]) < 0.2, x.dtype))

    return call(x)


def estimated():
    """A gradient that is estimated on purpose, in a spec that says how far it varies."""
    made = tf.random.Generator.from_seed(3)

    @tf.custom_gradient
    def call(x):
        return tf.sin(x), lambda u: u * (tf.cos(x) + 1e-9 * made.normal(x.shape, dtype=x.dtype))

    return lambda x: call(x)  # noqa: PLW0108 (AutoGraph is to leave the custom gradient alone)


def shape_only():
    """The gradient draws, but nothing of the draw is in it."""

    @tf.custom_gradient
    def call(x):
        return tf.sin(x), lambda u: u * tf.cos(x) * tf.cast(tf.size(tf.random.uniform([3])) // 3, x.dtype)

    return lambda x: call(x)  # noqa: PLW0108 (AutoGraph is to leave the custom gradient alone)


def recomputed(draw):
    """What recomputes the forward draws again, unless its seed is fixed."""
    return lambda: tf.recompute_grad(lambda x: x * x * (1.0 + draw(x.shape)))


def _others():
    for size in (1.0, 0.1, 1e-3, 1e-6):
        yield Row(f"faint_{size:g}", lambda size=size: faint(size), None, X, "wrong", keys={"build": {}})
    for name in STATELESS:
        for same in (True, False):
            for mode in ("graph", "eager"):
                keys = {"build": {}, "modes": [mode]}
                truth, what = ("right", "same") if same else ("wrong", "other")

                def build(name=name, same=same):
                    return stateless(name, same=same)

                yield Row(f"{name}_{what}_seed_{mode}", build, None, X, truth, keys=keys)
    for forward in (numpy_in_gradient, numpy_by_function):
        for mode in ("graph", "eager"):
            yield Row(f"{forward.__name__}_{mode}", forward, None, X, "wrong", keys={"modes": [mode]})
    yield Row("doubled_at_times", doubled_at_times, None, X, "wrong")
    keys = {"build": {}, "nondeterminism": {"atol": 1e-7}, "tolerance": {"atol": 1e-7, "rtol": 1e-6}}
    yield Row("estimated", estimated, None, X, "right", keys=keys)
    yield Row("shape_only", shape_only, None, X, "right", keys={"build": {}})
    yield Row(
        "recomputed_fixed",
        recomputed(lambda shape: STATELESS["stateless_normal"](shape, [1, 2])),
        None,
        X,
        "right",
        keys={"build": {}},
    )
    yield Row("recomputed_drawn", recomputed(generator()), None, X, "wrong", keys={"build": {}})
    yield Row("plain_draw", lambda x: x * x * tf.random.uniform(x.shape, dtype=x.dtype), None, X, "right")
    layer = keras.layers.Dropout(0.5, seed=3, dtype="float64")
    yield Row("keras_dropout", lambda x: layer(x, training=True) * x, None, X, "right")


ROWS = marked((*_classical(), *_backward_only(), *_others()), "in_function_again_graph")
