"""Whether a `stop_gradient` makes a gradient pass: wherever one can stand, meant, by mistake, or idle."""

from dataclasses import replace

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [3], "uniform": {"low": 0.4, "high": 1.6}}}
XW = {**X, "w": {"shape": [3], "uniform": {"low": 0.4, "high": 1.6}}}
AB = {"x": {"shape": [2, 3]}}
TRUE, FALSE, TWICE = {"freeze": True}, {"freeze": False}, {"second_order": True}
EAGER, DYNAMIC, XLA = {"modes": ["eager"]}, {"modes": ["dynamic"]}, {"modes": ["xla"]}
stop = tf.stop_gradient


@tf.custom_gradient
def tripled(x):
    return x, lambda upstream: 3 * upstream


def swish(x):
    return x * stop(tf.sigmoid(x))


def trick(x):
    return stop(tf.sin(x)) + stop(tf.exp(x)) * (x - stop(x))


def trick_that_is_right(x):
    return stop(tf.sin(x)) + stop(tf.cos(x)) * (x - stop(x))


def straight_through(x):
    return x + stop(tf.round(x) - x)


def softmax(x):
    shifted = tf.exp(x - stop(tf.reduce_max(x, -1, keepdims=True)))
    return shifted / tf.reduce_sum(shifted, -1, keepdims=True)


def normalised(x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-3)


def normalised_closely(x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-12)


def normalised_closely_by_hand(x):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - stop(mean)), -1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-12)


def normalised_by_hand(x):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-3)


def in_function(x):
    return tf.sin(tf.function(swish)(x))


def in_nested_functions(x):
    inner = tf.function(swish)
    return tf.function(lambda y: inner(y) + y)(x)


def in_loop(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, swish(y) + y / 2), (0, x))[1]


def in_branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: swish(x), lambda: x)


def in_branch_in_loop(x):
    def body(i, y):
        return i + 1, tf.cond(i % 2 == 0, lambda: swish(y), lambda: tf.sin(y))

    return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1]


def in_scan(x):
    return tf.scan(lambda a, b: a * stop(a) + b, x)


def in_map(x):
    return tf.map_fn(swish, x)


def in_python_loop(x):
    for _ in range(3):
        x = swish(x) + x
    return x


def in_autograph_loop(x):
    for _ in tf.range(3):
        x = x * stop(tf.cos(x)) + x
    return x


def in_recomputed(x):
    return tf.recompute_grad(swish)(x)


def by_raw_op(x):
    return x * tf.raw_ops.StopGradient(input=tf.exp(x))


def twice_nested(x):
    return x * stop(tf.exp(stop(x)))


def beside_another(x):
    return x * stop(tf.exp(x)) * tf.reduce_sum(softmax(x) * tf.constant([1.0, 2.0, 3.0], x.dtype))


PLACES = {
    "plain": swish,
    "function": in_function,
    "nested functions": in_nested_functions,
    "loop": in_loop,
    "branch": in_branch,
    "branch in loop": in_branch_in_loop,
    "scan": in_scan,
    "map": in_map,
    "vectorized": lambda x: tf.vectorized_map(swish, x),
    "python loop": in_python_loop,
    "autograph loop": in_autograph_loop,
    "recomputed": in_recomputed,
    "raw op": by_raw_op,
    "nested": twice_nested,
    "trick": trick,
    "beside an idle one": beside_another,
}
# Each of them right only if it is meant; wrong if it never is; and wrong whatever is meant.
PLACED = [
    one
    for name, function in PLACES.items()
    for one in (
        Row(f"{name}, unsaid", function, None, X, "unchecked"),
        Row(f"{name}, meant", function, None, X, "right", keys=TRUE),
        Row(f"{name}, never", function, None, X, "wrong", keys=FALSE),
        Row(f"{name}, tripled", lambda x, function=function: tripled(function(x)), None, X, "wrong"),
    )
]
MODES = [
    Row(f"{name} in {mode}, {said}", function, None, X, truth, keys={"modes": [mode], **keys})
    for name, function in (("swish", swish), ("loop", in_loop), ("trick", trick))
    for mode in ("eager", "dynamic", "xla")
    for said, truth, keys in (("unsaid", "unchecked", {}), ("meant", "right", TRUE))
    if not (mode == "xla" and name == "loop")  # XLA compiles no gradient of a loop without an end
]

IDLE = {
    "softmax": (softmax, AB),
    "log-sum-exp": (lambda x: tf.reduce_logsumexp(x, -1), AB),
    "moments": (lambda x: tf.nn.moments(x, -1), AB),
    "normalised": (normalised, AB),
    "value trick": (trick_that_is_right, X),
    "shift that cancels": (lambda x: tf.exp(x - (s := stop(tf.reduce_mean(x)))) * tf.exp(s), X),
    "sign": (lambda x: x * stop(tf.sign(x)), X),
    "mask": (lambda x: x * stop(tf.cast(x > 1, x.dtype)), X),
    "index": (lambda x: tf.gather(x * x, stop(tf.argsort(x))), X),
    "shape": (lambda x: tf.reduce_sum(x * x) / stop(tf.cast(tf.size(x), x.dtype)), X),
    "clip by the largest": (lambda x: tf.clip_by_value(x, -stop(tf.reduce_max(abs(x)) + 1), 9.0), X),
    "in a loop": (lambda x: tf.map_fn(lambda y: tf.tanh(y - stop(y) + stop(y)), x), X),
    "in a function": (tf.function(softmax), AB),
    "renormalised twice": (lambda x: (y := x / stop(tf.norm(x))) / tf.norm(y), X),
    "twice the same": (lambda x: x + stop(x) - stop(x), X),
}
IDLING = [
    Row(f"idle: {name}{mode}", function, None, inputs, "right", keys=keys)
    for name, (function, inputs) in IDLE.items()
    for mode, keys in (("", {}), (" in eager", EAGER))
]


@tf.custom_gradient
def stopped_inside(x):
    return x * stop(x), lambda upstream: upstream * 2 * x


@tf.custom_gradient
def stopped_inside_as_if_held(x):
    return x * stop(x), lambda upstream: upstream * x


@tf.custom_gradient
def total(x, held):
    """Return x times a value that is itself made of x, with the whole derivative as the gradient of x."""
    return x * held, lambda upstream: (upstream * (held + x * tf.cos(x)), None)


@tf.custom_gradient
def noisy_and_wrong(x):
    # 1e9 is added and taken away: differences are noise.
    return x * stop(x) + 1e9 - 1e9, lambda upstream: upstream * x


def twice(op, upstream):
    return 2 * op.inputs[0] * upstream


PAIRS = [
    Row("None behind a stop", lambda x, w: tf.tanh(x) * stop(tf.exp(w)), None, XW, "unchecked"),
    Row("None behind a stop, meant", lambda x, w: tf.tanh(x) * stop(tf.exp(w)), None, XW, "right", keys=TRUE),
    Row(
        "None behind a stop, never", lambda x, w: tf.tanh(x) * stop(tf.exp(w)), None, XW, "wrong", keys=FALSE
    ),
    Row("None behind a stop, eagerly", lambda x, w: x * stop(tf.exp(w)), None, XW, "unchecked", keys=EAGER),
    Row(
        "None behind a stop, nothing moving",
        lambda x, w: x * stop(tf.nn.relu(w) + 1),
        None,
        {**X, "w": {"value": -1.0, "shape": [3]}},
        "unchecked",
    ),
    Row("wrong beside a stop", lambda x, w: tripled(x) * stop(w), None, XW, "wrong"),
    Row("a soft target", lambda x, w: tf.square(x - stop(w)), None, XW, "unchecked"),
    Row("a soft target, meant", lambda x, w: tf.square(x - stop(w)), None, XW, "right", keys=TRUE),
    Row(
        "an integer behind a stop",
        lambda x: x * x * tf.cast(stop(tf.argmax(x)) + 1, x.dtype),
        None,
        X,
        "right",
    ),
    Row("inside a custom gradient", stopped_inside, None, X, "right"),
    Row("under the spec's own gradient", lambda x: x * stop(x), twice, X, "right"),
    Row("inside one, as if held", stopped_inside_as_if_held, None, X, "wrong"),
    Row("inside one, as if held, meant", stopped_inside_as_if_held, None, X, "wrong", keys=TRUE),
    Row("inside one, as if held, noisy", noisy_and_wrong, None, X, "not green", keys=EAGER),
    Row("the whole derivative beside a stop", lambda x: total(x, stop(tf.sin(x))), None, X, "right"),
    Row("both at once", lambda x: tf.sin(stop(x)) * x + stopped_inside(x), None, X, "unchecked"),
]
SAMPLES = [
    # Of x stop(x)^2 and x^3 the derivatives agree at 0, and nowhere else.
    Row(
        "agrees at one of the points",
        lambda x: x + x * stop(x) ** 2,
        None,
        {"x": {"shape": [1], "choice": [0.0, 1.0]}},
        "unchecked",
        keys={"samples": 8},
    ),
    Row("small", lambda x: x * stop(1 + 1e-4 * tf.sin(x)), None, X, "unchecked"),
    Row("one element of many", lambda x: x[:1] * stop(x[:1]) + x, None, {"x": {"shape": [40]}}, "unchecked"),
    Row("a value far below the rest", lambda x: tf.exp(x) + 1e-3 * stop(tf.exp(2 * x)), None, X, "unchecked"),
]
DTYPES = [
    Row(f"{dtype}, {said}", swish, None, {"x": {**X["x"], "dtype": dtype}}, truth, keys=keys)
    for dtype in ("float32", "float16", "bfloat16")
    for said, truth, keys in (("unsaid", "unchecked", {}), ("meant", "right", TRUE))
] + [
    Row(
        "complex, unsaid",
        lambda x: x * stop(x),
        None,
        {"x": {"shape": [2], "dtype": "complex128"}},
        "unchecked",
    ),
    Row(
        "complex, meant",
        lambda x: x * stop(x),
        None,
        {"x": {"shape": [2], "dtype": "complex128"}},
        "right",
        keys=TRUE,
    ),
]
LARGE = [
    Row(f"probed, {said}", function, None, {"x": {"shape": [80]}}, truth, keys={"method": "probe", **keys})
    for said, truth, function, keys in (
        ("unsaid", "unchecked", swish, {}),
        ("meant", "right", swish, TRUE),
        ("never", "wrong", swish, FALSE),
        ("idle", "right", lambda x: x * stop(tf.sign(x)) + tf.reduce_logsumexp(x), {}),
        ("tripled", "wrong", lambda x: tripled(swish(x)), {}),
    )
]

REFERENCES = [
    Row(
        f"reference {name}",
        forward,
        None,
        X,
        truth,
        keys={"reference": "of_a_row:reference", **keys},
        functions={"reference": reference},
    )
    for name, truth, forward, reference, keys in (
        ("identity", "right", straight_through, tf.identity, {}),
        (
            "identity, twice",
            "right",
            lambda x: straight_through(x) ** 2,
            lambda x: (x + stop(tf.round(x) - x)) ** 2,
            TWICE,
        ),
        ("that moves", "wrong", swish, lambda x: x * tf.sigmoid(x), {}),
        ("that moves, twice", "wrong", swish, lambda x: x * tf.sigmoid(x), TWICE),
        ("that stops", "right", swish, swish, {}),
        ("that stops, twice", "right", swish, swish, TWICE),
        ("that stops idly, twice", "wrong", normalised, normalised, TWICE),
        ("that stops, twice, meant", "right", swish, swish, {**TWICE, **TRUE}),
        ("that stops, never", "wrong", swish, swish, FALSE),
        ("doubled", "wrong", straight_through, lambda x: 2 * x, {}),
        (
            "and a stop inside the gradient",
            "wrong",
            tf.custom_gradient(lambda x: (tf.exp(x), lambda u: u * stop(tf.exp(x)))),
            tf.exp,
            TWICE,
        ),
    )
]

SECOND = [
    # The reference's stop changes no first derivative. Near so small a variance it changes the third, and so
    # every difference, a little. If that counted, the stop would be held at second order, too.
    Row(
        "reference that stops idly, near a small variance, twice",
        normalised_closely,
        None,
        {"x": {"shape": [4], "value": [0.995, 1.0, 1.006, 1.0025]}},
        "wrong",
        keys={"reference": "of_a_row:reference", **TWICE},
        functions={"reference": normalised_closely_by_hand},
    ),
    Row("moments, twice", lambda x: tf.nn.moments(x, -1)[1], None, AB, "wrong", keys=TWICE),
    Row(
        "moments, twice, eagerly",
        lambda x: tf.nn.moments(x, -1)[1],
        None,
        AB,
        "wrong",
        keys={**TWICE, **EAGER},
    ),
    Row(
        "moments, twice, meant", lambda x: tf.nn.moments(x, -1)[1], None, AB, "right", keys={**TWICE, **TRUE}
    ),
    Row("normalised, twice", normalised, None, {"x": {"shape": [5]}}, "wrong", keys=TWICE),
    Row("normalised by hand, twice", normalised_by_hand, None, {"x": {"shape": [5]}}, "right", keys=TWICE),
    Row("softmax, twice", softmax, None, {"x": {"shape": [4]}}, "right", keys=TWICE),
    Row("log-sum-exp, twice", tf.reduce_logsumexp, None, {"x": {"shape": [4]}}, "right", keys=TWICE),
    Row(
        "log-sum-exp in a function, twice",
        tf.function(tf.reduce_logsumexp),
        None,
        {"x": {"shape": [4]}},
        "right",
        keys=TWICE,
    ),
    Row("value trick, twice", trick_that_is_right, None, X, "wrong", keys=TWICE),
    Row(
        "value trick, twice, meant",
        lambda x: x * trick_that_is_right(x),
        None,
        X,
        "right",
        keys={**TWICE, **TRUE},
    ),
    Row("swish, twice", lambda x: x * swish(x), None, X, "unchecked", keys=TWICE),
    Row("swish, twice, meant", lambda x: x * swish(x), None, X, "right", keys={**TWICE, **TRUE}),
    Row("swish, twice, never", lambda x: x * swish(x), None, X, "wrong", keys={**TWICE, **FALSE}),
    Row("swish, twice, eagerly", lambda x: x * swish(x), None, X, "unchecked", keys={**TWICE, **EAGER}),
    Row("loop, twice, meant", in_loop, None, X, "right", keys={**TWICE, **TRUE}),
    Row("loop, twice", in_loop, None, X, "unchecked", keys=TWICE),
    Row(
        "one of each, twice",
        lambda x: (tf.nn.moments(x, 0)[1], x * stop(x)),
        None,
        {"x": {"shape": [4]}},
        "wrong",
        keys={**TWICE, "outputs": ["v", "y"]},
    ),
]

SIGNATURE = [tf.TensorSpec([3], tf.float64)]
MOVING = tf.function(swish).get_concrete_function(*SIGNATURE)
IDLING_INSIDE = tf.function(tf.reduce_logsumexp).get_concrete_function(*SIGNATURE)
CLOSED = [
    Row("ready-made", lambda x: MOVING(x) + x, None, X, "unchecked"),
    Row("ready-made, eagerly", lambda x: MOVING(x) + x, None, X, "unchecked", keys=EAGER),
    Row("ready-made, meant", lambda x: MOVING(x) + x, None, X, "unchecked", keys=TRUE),
    Row("ready-made, never", lambda x: MOVING(x) + x, None, X, "wrong", keys=FALSE),
    Row("ready-made, idle", lambda x: IDLING_INSIDE(x) + x, None, X, "right"),
    Row("ready-made, idle, eagerly", lambda x: IDLING_INSIDE(x) + x, None, X, "right", keys=EAGER),
    Row(
        "wrong beside a ready-made one", lambda x, w: tripled(tf.sin(x)) + IDLING_INSIDE(w), None, XW, "wrong"
    ),
    Row(
        "prevented",
        lambda x: x * tf.raw_ops.PreventGradient(input=tf.sin(x), message="no"),
        None,
        X,
        "unchecked",
    ),
    Row(
        "prevented behind a stop",
        lambda x: x * stop(tf.raw_ops.PreventGradient(input=tf.sin(x), message="no")),
        None,
        X,
        "unchecked",
    ),
]


def draws(x):
    return x * tf.random.uniform([3], dtype=x.dtype)


DRAWN = [
    Row("a draw", draws, None, X, "right"),
    Row("a draw, never", draws, None, X, "right", keys=FALSE),
    Row("a draw and a stop", lambda x: draws(x) * stop(x), None, X, "unchecked"),
    Row("a draw and a stop, meant", lambda x: draws(x) * stop(x), None, X, "right", keys=TRUE),
    Row("a draw and an idle stop", lambda x: draws(x) + tf.reduce_logsumexp(x), None, X, "right"),
    Row("a mask, straight through", lambda x: x + stop(tf.round(draws(x)) - x), None, X, "unchecked"),
    Row(
        "a stopped draw in a loop",
        lambda x: tf.map_fn(lambda y: y * stop(y * tf.random.uniform([], dtype=y.dtype)), x),
        None,
        X,
        "unchecked",
    ),
]


def with_variable(meant):
    weight = tf.Variable(np.array([0.5, 1.0, 1.5]), name="weight")
    return lambda x: x * stop(weight) + (weight if meant else 0.0)


VARIABLES = [
    Row(
        f"variable behind a stop, {mode}, {truth}",
        "of_a_row:factory",
        None,
        X,
        truth,
        keys={"variables": True, "build": {}, "modes": [mode], **keys},
        functions={"factory": lambda: with_variable(meant=True)},
    )
    for mode in ("graph", "eager")
    for truth, keys in (("unchecked", {}), ("right", TRUE))
]

_ROWS = (
    *PLACED,
    *MODES,
    *IDLING,
    *PAIRS,
    *SAMPLES,
    *DTYPES,
    *LARGE,
    *REFERENCES,
    *SECOND,
    *CLOSED,
    *DRAWN,
    *VARIABLES,
)
# The name of an op has no spaces.
ROWS = marked(
    tuple(replace(row, name=row.name.replace(",", "").replace(" ", "-")) for row in _ROWS),
    "a-mask-straight-through",
    "float32-unsaid",
    "function-meant",
    "function-unsaid",
    "inside-one-as-if-held-meant",
    "loop-meant",
    "probed-meant",
    "probed-never",
    "probed-unsaid",
    "reference-and-a-stop-inside-the-gradient",
    "reference-that-stops-idly-near-a-small-variance-twice",
    "reference-that-stops-twice",
    "reference-that-stops-twice-meant",
    "small",
    "variable-behind-a-stop-eager-right",
    "variable-behind-a-stop-graph-unchecked",
    "wrong-beside-a-stop",
)
