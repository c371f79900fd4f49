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


def plain(name, truth, op, inputs, keys=None):
    """Return a row of an op with TensorFlow's own gradient."""
    return Row(name, op, None, inputs, truth, keys=keys or {})


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


BEHIND = (lambda x, w: tf.tanh(x) * stop(tf.exp(w)), XW)
INDEX = (lambda x: x * x * tf.cast(stop(tf.argmax(x)) + 1, x.dtype), X)
PAIRS = [
    plain("None behind a stop", "unchecked", *BEHIND),
    plain("None behind a stop, meant", "right", *BEHIND, TRUE),
    plain("None behind a stop, never", "wrong", *BEHIND, FALSE),
    plain("None behind a stop, eagerly", "unchecked", lambda x, w: x * stop(tf.exp(w)), XW, EAGER),
    plain(
        *("None behind a stop, nothing moving", "unchecked", lambda x, w: x * stop(tf.nn.relu(w) + 1)),
        {**X, "w": {"value": -1.0, "shape": [3]}},
    ),
    plain("wrong beside a stop", "wrong", lambda x, w: tripled(x) * stop(w), XW),
    plain("a soft target", "unchecked", lambda x, w: tf.square(x - stop(w)), XW),
    plain("a soft target, meant", "right", lambda x, w: tf.square(x - stop(w)), XW, TRUE),
    plain("an integer behind a stop", "right", *INDEX),
    plain("inside a custom gradient", "right", stopped_inside, X),
    Row("under the spec's own gradient", lambda x: x * stop(x), twice, X, "right"),
    plain("inside one, as if held", "wrong", stopped_inside_as_if_held, X),
    plain("inside one, as if held, meant", "wrong", stopped_inside_as_if_held, X, TRUE),
    plain("inside one, as if held, noisy", "not green", noisy_and_wrong, X, EAGER),
    plain("the whole derivative beside a stop", "right", lambda x: total(x, stop(tf.sin(x))), X),
    plain("both at once", "unchecked", lambda x: tf.sin(stop(x)) * x + stopped_inside(x), X),
]
# Of x stop(x)^2 and x^3 the derivatives agree at 0, and nowhere else.
AGREES_AT_ZERO = (lambda x: x + x * stop(x) ** 2, {"x": {"shape": [1], "choice": [0.0, 1.0]}})
SAMPLES = [
    plain("agrees at one of the points", "unchecked", *AGREES_AT_ZERO, {"samples": 8}),
    plain("small", "unchecked", lambda x: x * stop(1 + 1e-4 * tf.sin(x)), X),
    plain("one element of many", "unchecked", lambda x: x[:1] * stop(x[:1]) + x, {"x": {"shape": [40]}}),
    plain("a value far below the rest", "unchecked", lambda x: tf.exp(x) + 1e-3 * stop(tf.exp(2 * x)), X),
]
COMPLEX = (lambda x: x * stop(x), {"x": {"shape": [2], "dtype": "complex128"}})
DTYPES = [
    Row(f"{dtype}, {said}", swish, None, {"x": {**X["x"], "dtype": dtype}}, truth, keys=keys)
    for dtype in ("float32", "float16", "bfloat16")
    for said, truth, keys in (("unsaid", "unchecked", {}), ("meant", "right", TRUE))
] + [plain("complex, unsaid", "unchecked", *COMPLEX), plain("complex, meant", "right", *COMPLEX, TRUE)]
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

SECOND_MOMENT = (lambda x: tf.nn.moments(x, -1)[1], AB)
SWISH = (lambda x: x * swish(x), X)
FOUR, FIVE = {"x": {"shape": [4]}}, {"x": {"shape": [5]}}
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
    plain("moments, twice", "wrong", *SECOND_MOMENT, TWICE),
    plain("moments, twice, eagerly", "wrong", *SECOND_MOMENT, {**TWICE, **EAGER}),
    plain("moments, twice, meant", "right", *SECOND_MOMENT, {**TWICE, **TRUE}),
    plain("normalised, twice", "wrong", normalised, FIVE, TWICE),
    plain("normalised by hand, twice", "right", normalised_by_hand, FIVE, TWICE),
    plain("softmax, twice", "right", softmax, FOUR, TWICE),
    plain("log-sum-exp, twice", "right", tf.reduce_logsumexp, FOUR, TWICE),
    plain("log-sum-exp in a function, twice", "right", tf.function(tf.reduce_logsumexp), FOUR, TWICE),
    plain("value trick, twice", "wrong", trick_that_is_right, X, TWICE),
    plain("value trick, twice, meant", "right", lambda x: x * trick_that_is_right(x), X, {**TWICE, **TRUE}),
    plain("swish, twice", "unchecked", *SWISH, TWICE),
    plain("swish, twice, meant", "right", *SWISH, {**TWICE, **TRUE}),
    plain("swish, twice, never", "wrong", *SWISH, {**TWICE, **FALSE}),
    plain("swish, twice, eagerly", "unchecked", *SWISH, {**TWICE, **EAGER}),
    plain("loop, twice, meant", "right", in_loop, X, {**TWICE, **TRUE}),
    plain("loop, twice", "unchecked", in_loop, X, TWICE),
    plain(
        *("one of each, twice", "wrong", lambda x: (tf.nn.moments(x, 0)[1], x * stop(x)), FOUR),
        {**TWICE, "outputs": ["v", "y"]},
    ),
]

SIGNATURE = [tf.TensorSpec([3], tf.float64)]
MOVING = tf.function(swish).get_concrete_function(*SIGNATURE)
IDLING_INSIDE = tf.function(tf.reduce_logsumexp).get_concrete_function(*SIGNATURE)
CLOSED = [
    plain("ready-made", "unchecked", lambda x: MOVING(x) + x, X),
    plain("ready-made, eagerly", "unchecked", lambda x: MOVING(x) + x, X, EAGER),
    plain("ready-made, meant", "unchecked", lambda x: MOVING(x) + x, X, TRUE),
    plain("ready-made, never", "wrong", lambda x: MOVING(x) + x, X, FALSE),
    plain("ready-made, idle", "right", lambda x: IDLING_INSIDE(x) + x, X),
    plain("ready-made, idle, eagerly", "right", lambda x: IDLING_INSIDE(x) + x, X, EAGER),
    plain("wrong beside a ready-made one", "wrong", lambda x, w: tripled(tf.sin(x)) + IDLING_INSIDE(w), XW),
    plain("prevented", "unchecked", lambda x: x * prevented(x), X),
    plain("prevented behind a stop", "unchecked", lambda x: x * stop(prevented(x)), X),
]


def prevented(x):
    return tf.raw_ops.PreventGradient(input=tf.sin(x), message="no")


def draws(x):
    return x * tf.random.uniform([3], dtype=x.dtype)


def drawn_in_a_loop(x):
    return tf.map_fn(lambda y: y * stop(y * tf.random.uniform([], dtype=y.dtype)), x)


DRAWN = [
    plain("a draw", "right", draws, X),
    plain("a draw, never", "right", draws, X, FALSE),
    plain("a draw and a stop", "unchecked", lambda x: draws(x) * stop(x), X),
    plain("a draw and a stop, meant", "right", lambda x: draws(x) * stop(x), X, TRUE),
    plain("a draw and an idle stop", "right", lambda x: draws(x) + tf.reduce_logsumexp(x), X),
    plain("a mask, straight through", "unchecked", lambda x: x + stop(tf.round(draws(x)) - x), X),
    plain("a stopped draw in a loop", "unchecked", drawn_in_a_loop, X),
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
