"""State: forwards that write to variables and tables, and gradients that remember."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [3, 2]}}
MODES = ("graph", "dynamic", "eager", "xla")
NO_XLA = ("graph", "dynamic", "eager")


def _variable(value, **settings):
    return tf.Variable(value, dtype=tf.float64, trainable=False, **settings)


# --- forwards with state, whose gradient by TensorFlow is right: what they read doesn't move with x ---


def counter():
    count = _variable(0.0)

    def forward(x):
        count.assign_add(1.0)
        return tf.sin(x) * count

    return forward


def set_before():
    scale = _variable([1.0, 1.0])

    def forward(x):
        scale.assign([2.0, 3.0])
        return tf.tanh(x) * scale

    return forward


def read_twice():
    scale = _variable(2.0)

    def forward(x):
        first = x * scale
        scale.assign(scale * 3.0)
        return first + tf.sin(x) * scale

    return forward


def unread_average():
    mean = _variable([0.0, 0.0])

    def forward(x):
        mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0))
        return tf.exp(x)

    return forward


def read_before_the_average():
    mean = _variable([1.0, 0.5])

    def forward(x):
        result = x * mean
        mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0))
        return result

    return forward


def in_a_function():
    count = _variable(1.0)

    @tf.function
    def inner(x):
        count.assign_add(1.0)
        return x * count

    return lambda x: inner(tf.sin(x)) + inner(x)


def written_by_a_function():
    count = _variable(1.0)

    @tf.function
    def step():
        count.assign_add(1.0)

    def forward(x):
        step()
        return x * x * count

    return forward


def in_a_branch():
    count = _variable(1.0)

    def forward(x):
        tf.cond(count > 0.5, lambda: count.assign_add(1.0), lambda: count.assign_add(5.0))
        return tf.sin(x) * count

    return forward


def in_a_loop():
    count = _variable(1.0)

    def body(i, y):
        count.assign_add(0.25)
        return i + 1, tf.sin(y) * count

    def forward(x):
        return tf.while_loop(lambda i, _: i < 3, body, (0, x), maximum_iterations=3)[1]

    return forward


def scattered():
    buffer = _variable([0.5, 0.25])

    def forward(x):
        buffer.scatter_nd_update([[1]], [3.0])
        return x * buffer

    return forward


def sliced():
    buffer = _variable([0.5, 0.25])

    def forward(x):
        buffer[0].assign(2.0)
        return x * buffer

    return forward


def ring_buffer():
    buffer, place = _variable([[0.5, 0.25], [1.0, 2.0]]), tf.Variable(0, trainable=False)

    def forward(x):
        buffer.scatter_nd_update([[place % 2]], [[3.0, 4.0]])
        place.assign_add(1)
        return tf.sin(x) * tf.reduce_sum(buffer, 0) + tf.cast(place, x.dtype)

    return forward


def table():
    known = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float64, default_value=1.0)

    def forward(x):
        known.insert(tf.constant([3], tf.int64), known.lookup(tf.constant([3], tf.int64)) + 1.0)
        return tf.sin(x) * known.lookup(tf.constant([3], tf.int64))

    return forward


def static_table():
    keys, values = tf.constant([1], tf.int64), tf.constant([2.0], tf.float64)
    known = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0.0)
    return lambda x: tf.sin(x) * known.lookup(tf.constant([1], tf.int64))


def dropout():
    layer = keras.layers.Dropout(0.5, seed=3, dtype="float64")
    return lambda x: layer(x, training=True) * x


def two_draws():
    generator = keras.random.SeedGenerator(3)

    def forward(x):
        first = keras.random.uniform((3, 2), dtype="float64", seed=generator)
        return x * x * first + x * keras.random.uniform((3, 2), dtype="float64", seed=generator)

    return forward


def generated():
    generator = tf.random.Generator.from_seed(3)

    def forward(x):
        return x * x * generator.normal((3, 2), dtype=x.dtype) + x * generator.normal((3, 2), dtype=x.dtype)

    return forward


def stateful_layer():
    layer = keras.layers.LSTM(2, stateful=True, dtype="float64")
    return lambda x: layer(x[:, None])


def measured():
    metric = keras.metrics.Mean(dtype="float64")

    def forward(x):
        metric.update_state(x)
        return tf.sin(x)

    return forward


def stopped_in_a_function():
    count = _variable(1.0)

    @tf.function
    def inner(x):
        count.assign_add(1.0)
        return x * x * count + 0.0 * tf.stop_gradient(x)

    return inner


def normalised():
    layer = keras.layers.BatchNormalization(dtype="float64")
    return lambda x: layer(x, training=True) * tf.range(1.0, 3.0, dtype=x.dtype)


def inference_then_training():
    layer = keras.layers.BatchNormalization(dtype="float64")
    return lambda x: layer(x, training=False) + layer(x, training=True) * x


def spectral():
    layer = keras.layers.SpectralNormalization(keras.layers.Dense(2, dtype="float64"), dtype="float64")
    return lambda x: layer(x, training=True)


def spectral_layer():
    return keras.layers.SpectralNormalization(keras.layers.Dense(2, dtype="float64"), dtype="float64")


def average_with_its_slope():
    mean = _variable([1.0, 0.5])

    @tf.custom_gradient
    def forward(x):
        rows = tf.cast(tf.shape(x)[0], x.dtype)
        new = mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0)) + 0.0

        def gradient(u):
            return u * new + 0.1 * tf.reduce_sum(u * x, 0, keepdims=True) * tf.ones_like(x) / rows

        return x * mean, gradient

    return forward


def counted_by_its_gradient():
    count = _variable(0.0)

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            count.assign_add(1.0)
            return u * tf.cos(x)

        return tf.sin(x), gradient

    return forward


def step_by_its_gradient():
    scale = _variable(2.0)

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            old = scale + 0.0
            scale.assign(scale * 0.5)
            return u * tf.cos(x) * old

        return tf.sin(x) * scale, gradient

    return forward


def saved_by_numpy():
    """Keep what the gradient takes, as an autograd's context does: each call its own."""

    @tf.custom_gradient
    def forward(x):
        saved = {}

        def value(x):
            saved["x"] = x.copy()
            return np.sin(x)

        y = tf.ensure_shape(tf.numpy_function(value, [x], tf.float64), x.shape)

        def gradient(u):
            slope = tf.numpy_function(lambda u: u * np.cos(saved["x"]), [u], tf.float64)
            return tf.ensure_shape(slope, x.shape)

        return y, gradient

    return forward


RIGHT = {
    counter: MODES,
    set_before: MODES,
    read_twice: MODES,
    unread_average: MODES,
    read_before_the_average: MODES,
    in_a_function: MODES,
    written_by_a_function: MODES,
    in_a_branch: NO_XLA,
    in_a_loop: NO_XLA,
    scattered: NO_XLA,
    sliced: NO_XLA,
    ring_buffer: ("graph", "eager"),
    table: NO_XLA,
    static_table: ("graph", "eager"),
    dropout: ("graph", "eager"),
    two_draws: NO_XLA,
    generated: NO_XLA,
    stateful_layer: ("graph",),
    measured: ("graph", "eager"),
    stopped_in_a_function: NO_XLA,
    normalised: MODES,
    inference_then_training: ("graph", "eager"),
    spectral: ("graph", "eager"),
    average_with_its_slope: MODES,
    counted_by_its_gradient: MODES,
    step_by_its_gradient: ("graph", "eager"),
    saved_by_numpy: ("graph", "dynamic"),
}


# --- forwards whose gradient by TensorFlow is wrong: what they read moves with x, which it does not see ---


def average():
    mean = _variable([1.0, 0.5])

    def forward(x):
        mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0))
        return x * mean

    return forward


def average_in_a_function():
    return tf.function(average())


def average_of_a_branch():
    mean = _variable([1.0, 0.5])

    def forward(x):
        tf.cond(
            tf.reduce_sum(mean) > 0.0,
            lambda: mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0)),
            lambda: mean.assign(mean),
        )
        return tf.sin(x) * mean

    return forward


def training_then_inference():
    layer = keras.layers.BatchNormalization(dtype="float64", momentum=0.5)

    def forward(x):
        layer(x, training=True)
        return layer(x, training=False)

    return forward


def codebook():
    book = _variable([[1.0, 0.5], [-1.0, -0.5]])

    def forward(x):
        nearest = tf.argmin(tf.reduce_sum((x[:, None] - book[None]) ** 2, -1), 1)
        weights = tf.one_hot(nearest, 2, dtype=x.dtype)
        book.assign(0.5 * book + 0.5 * tf.matmul(weights, x, transpose_a=True))
        return (x - tf.gather(book, nearest)) ** 2

    return forward


def table_of_x():
    known = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float64, default_value=1.0)

    def forward(x):
        known.insert(tf.constant([3], tf.int64), x[0, :1])
        return tf.sin(x) * known.lookup(tf.constant([3], tf.int64))

    return forward


def sliced_of_x():
    buffer = _variable([0.5, 0.25])

    def forward(x):
        buffer[0].assign(x[0, 0])
        return x * buffer

    return forward


def of_the_value_before():
    scale = _variable([2.0, 3.0])

    @tf.custom_gradient
    def forward(x):
        old = scale + 0.0
        scale.assign(scale * 1.5)
        return tf.sin(x) * scale, lambda u: u * tf.cos(x) * old

    return forward


def average_without_its_slope():
    mean = _variable([1.0, 0.5])

    @tf.custom_gradient
    def forward(x):
        mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0))
        return x * mean, lambda u: u * mean

    return forward


def count_too_many():
    count = _variable(0.0)

    @tf.custom_gradient
    def forward(x):
        count.assign_add(1.0)

        def gradient(u):
            return u * tf.cos(x) * (count + 1.0)

        return tf.sin(x) * count, gradient

    return forward


def read_by_a_gradient():
    """Right after one call; after another, the gradient of the first takes what the second has written."""
    mean = _variable([1.0, 0.5])

    @tf.custom_gradient
    def forward(x):
        mean.assign(mean * 2.0)
        return tf.sin(x) * mean, lambda u: u * tf.cos(x) * mean

    return forward


WRONG = {
    average: MODES,
    average_in_a_function: MODES,
    average_of_a_branch: NO_XLA,
    training_then_inference: ("graph", "eager"),
    codebook: ("graph", "eager"),
    table_of_x: NO_XLA,
    sliced_of_x: NO_XLA,
    of_the_value_before: MODES,
    average_without_its_slope: MODES,
    count_too_many: MODES,
    read_by_a_gradient: MODES,
}


# --- gradients that remember ---


def _with(gradient):
    """Return sin with a gradient made of `gradient(x, u)`, a function of arrays, anew for each trace."""

    @tf.custom_gradient
    def forward(x):
        call = gradient()
        return tf.sin(x), lambda u: tf.ensure_shape(tf.numpy_function(call, [x, u], tf.float64), x.shape)

    return lambda x: forward(x)  # noqa: PLW0108 (AutoGraph is to leave the custom gradient alone)


def first_of_its_trace():
    def gradient():
        kept = []

        def call(x, u):
            kept.append(np.cos(x))
            return u * kept[0]

        return call

    return _with(gradient)


def first_of_the_process():
    kept = []

    def call(x, u):
        kept.append(np.cos(x))
        return u * kept[0]

    return _with(lambda: call)


def counts_its_calls():
    def gradient():
        calls = []

        def call(x, u):
            calls.append(1)
            return u * np.cos(x) * (1.0 if len(calls) < 3 else 1.1)

        return call

    return _with(gradient)


def counts_in_a_variable():
    count = _variable(0.0)

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            count.assign_add(1.0)
            return u * tf.cos(x) * count

        return tf.sin(x), gradient

    return forward


def counts_after_it_reads():
    count = _variable(1.0)

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            result = u * tf.cos(x) * count
            count.assign_add(1.0)
            return result

        return tf.sin(x), gradient

    return forward


def first_in_a_variable():
    kept, is_filled = _variable(np.zeros((3, 2))), _variable(0.0)

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            kept.assign(tf.where(is_filled > 0.0, kept, tf.cos(x)))
            is_filled.assign(1.0)
            return u * kept

        return tf.sin(x), gradient

    return forward


def another_in_each_trace():
    traces = []

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            traces.append(1)
            return u * tf.cos(x) * (1.0 + 0.1 * (len(traces) - 1))

        return tf.sin(x), gradient

    return forward


def momentum():
    kept = _variable(np.zeros((3, 2)))

    @tf.custom_gradient
    def forward(x):
        def gradient(u):
            kept.assign(0.5 * kept + u * tf.cos(x))
            return kept + 0.0

        return tf.sin(x), gradient

    return forward


REMEMBERS = {
    first_of_its_trace: ("graph", "dynamic", "eager"),
    first_of_the_process: ("graph", "dynamic", "eager"),
    counts_its_calls: ("graph", "dynamic"),
    counts_in_a_variable: MODES,
    counts_after_it_reads: MODES,
    first_in_a_variable: MODES,
    another_in_each_trace: ("graph", "dynamic", "eager"),
    momentum: MODES,
}
# Called anew each time, a gradient that keeps something of its own trace keeps nothing.
_RIGHT_WHERE_CALLED = {(first_of_its_trace, "eager")}


def _rows():
    for table_of, truth in ((RIGHT, "right"), (WRONG, "wrong"), (REMEMBERS, "not green")):
        for make, modes in table_of.items():
            for mode in modes:
                what = "right" if (make, mode) in _RIGHT_WHERE_CALLED else truth
                name = f"{make.__name__}_{mode}"
                yield Row(name, make, None, X, what, keys={"build": {}, "modes": [mode]})
    fixed = {"x": {"value": [[0.3, -0.7], [1.2, 0.4], [-0.1, 0.9]], "shape": [3, 2]}}
    for make, truth in (
        (first_of_its_trace, "not green"),
        (another_in_each_trace, "not green"),
        (counter, "right"),
        (average_with_its_slope, "right"),
    ):
        yield Row(f"{make.__name__}_at_one_point", make, None, fixed, truth, keys={"build": {}})
    for mode in ("graph", "eager"):
        keys = {"build": {}, "attrs": {"training": True}, "modes": [mode]}
        yield Row(f"spectral_layer_{mode}", spectral_layer, None, X, "right", keys=keys)
    for make in (counter, read_twice, normalised, spectral, in_a_function, table):
        keys = {"build": {}, "modes": ["graph", "eager"]}
        yield Row(f"{make.__name__}_in_both", make, None, X, "right", keys=keys)


ROWS = marked(
    tuple(_rows()),
    "another_in_each_trace_at_one_point",
    "counter_at_one_point",
    "counts_its_calls_graph",
    "first_in_a_variable_eager",
    "momentum_dynamic",
    "table_of_x_dynamic",
)
