"""Whether a `stop_gradient` makes a gradient pass: wherever one can stand, meant, by mistake, or idle."""

from dataclasses import replace

import numpy as np
import tensorflow as tf
from attacking import Attack

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
    attack
    for name, function in PLACES.items()
    for attack in (
        Attack(f"{name}, unsaid", "unchecked", X, function),
        Attack(f"{name}, meant", "right", X, function, keys=TRUE),
        Attack(f"{name}, never", "wrong", X, function, keys=FALSE),
        Attack(f"{name}, tripled", "wrong", X, lambda x, function=function: tripled(function(x))),
    )
]
MODES = [
    Attack(f"{name} in {mode}, {said}", truth, X, function, keys={"modes": [mode], **keys})
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
    Attack(f"idle: {name}{mode}", "right", inputs, function, keys=keys)
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
    # 1e9 is added and taken away: differences are noise, and forward mode takes what is stopped for constant.
    return x * stop(x) + 1e9 - 1e9, lambda upstream: upstream * x


PAIRS = [
    Attack("None behind a stop", "unchecked", XW, lambda x, w: tf.tanh(x) * stop(tf.exp(w))),
    Attack("None behind a stop, meant", "right", XW, lambda x, w: tf.tanh(x) * stop(tf.exp(w)), keys=TRUE),
    Attack("None behind a stop, never", "wrong", XW, lambda x, w: tf.tanh(x) * stop(tf.exp(w)), keys=FALSE),
    Attack("None behind a stop, eagerly", "unchecked", XW, lambda x, w: x * stop(tf.exp(w)), keys=EAGER),
    Attack(
        "None behind a stop, nothing moving",
        "unchecked",
        {**X, "w": {"value": -1.0, "shape": [3]}},
        lambda x, w: x * stop(tf.nn.relu(w) + 1),
    ),
    Attack("wrong beside a stop", "wrong", XW, lambda x, w: tripled(x) * stop(w)),
    Attack("a soft target", "unchecked", XW, lambda x, w: tf.square(x - stop(w))),
    Attack("a soft target, meant", "right", XW, lambda x, w: tf.square(x - stop(w)), keys=TRUE),
    Attack(
        "an integer behind a stop", "right", X, lambda x: x * x * tf.cast(stop(tf.argmax(x)) + 1, x.dtype)
    ),
    Attack("inside a custom gradient", "right", X, stopped_inside),
    Attack("inside one, as if held", "wrong", X, stopped_inside_as_if_held),
    Attack("inside one, as if held, meant", "wrong", X, stopped_inside_as_if_held, keys=TRUE),
    Attack("inside one, as if held, noisy", "not green", X, noisy_and_wrong, keys=EAGER),
    Attack("the whole derivative beside a stop", "right", X, lambda x: total(x, stop(tf.sin(x)))),
    Attack("both at once", "unchecked", X, lambda x: tf.sin(stop(x)) * x + stopped_inside(x)),
]
SAMPLES = [
    # Of x stop(x)^2 and x^3 the derivatives agree at 0, and nowhere else.
    Attack(
        "agrees at one of the points",
        "unchecked",
        {"x": {"shape": [1], "choice": [0.0, 1.0]}},
        lambda x: x + x * stop(x) ** 2,
        keys={"samples": 8},
    ),
    Attack("small", "unchecked", X, lambda x: x * stop(1 + 1e-4 * tf.sin(x))),
    Attack("one element of many", "unchecked", {"x": {"shape": [40]}}, lambda x: x[:1] * stop(x[:1]) + x),
    Attack("a value far below the rest", "unchecked", X, lambda x: tf.exp(x) + 1e-3 * stop(tf.exp(2 * x))),
]
DTYPES = [
    Attack(f"{dtype}, {said}", truth, {"x": {**X["x"], "dtype": dtype}}, swish, keys=keys)
    for dtype in ("float32", "float16", "bfloat16")
    for said, truth, keys in (("unsaid", "unchecked", {}), ("meant", "right", TRUE))
] + [
    Attack(
        "complex, unsaid", "unchecked", {"x": {"shape": [2], "dtype": "complex128"}}, lambda x: x * stop(x)
    ),
    Attack(
        "complex, meant",
        "right",
        {"x": {"shape": [2], "dtype": "complex128"}},
        lambda x: x * stop(x),
        keys=TRUE,
    ),
]
LARGE = [
    Attack(f"probed, {said}", truth, {"x": {"shape": [80]}}, function, keys={"method": "probe", **keys})
    for said, truth, function, keys in (
        ("unsaid", "unchecked", swish, {}),
        ("meant", "right", swish, TRUE),
        ("never", "wrong", swish, FALSE),
        ("idle", "right", lambda x: x * stop(tf.sign(x)) + tf.reduce_logsumexp(x), {}),
        ("tripled", "wrong", lambda x: tripled(swish(x)), {}),
    )
]

REFERENCES = [
    Attack(
        f"reference {name}",
        truth,
        X,
        forward,
        keys={"reference": "attacked:reference", **keys},
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
    Attack(
        "reference that stops idly, near a small variance, twice",
        "wrong",
        {"x": {"shape": [4], "value": [0.995, 1.0, 1.006, 1.0025]}},
        normalised_closely,
        keys={"reference": "attacked:reference", **TWICE},
        functions={"reference": normalised_closely_by_hand},
    ),
    Attack("moments, twice", "wrong", AB, lambda x: tf.nn.moments(x, -1)[1], keys=TWICE),
    Attack(
        "moments, twice, eagerly", "wrong", AB, lambda x: tf.nn.moments(x, -1)[1], keys={**TWICE, **EAGER}
    ),
    Attack("moments, twice, meant", "right", AB, lambda x: tf.nn.moments(x, -1)[1], keys={**TWICE, **TRUE}),
    Attack("normalised, twice", "wrong", {"x": {"shape": [5]}}, normalised, keys=TWICE),
    Attack("normalised by hand, twice", "right", {"x": {"shape": [5]}}, normalised_by_hand, keys=TWICE),
    Attack("softmax, twice", "right", {"x": {"shape": [4]}}, softmax, keys=TWICE),
    Attack("log-sum-exp, twice", "right", {"x": {"shape": [4]}}, tf.reduce_logsumexp, keys=TWICE),
    Attack(
        "log-sum-exp in a function, twice",
        "right",
        {"x": {"shape": [4]}},
        tf.function(tf.reduce_logsumexp),
        keys=TWICE,
    ),
    Attack("value trick, twice", "wrong", X, trick_that_is_right, keys=TWICE),
    Attack(
        "value trick, twice, meant", "right", X, lambda x: x * trick_that_is_right(x), keys={**TWICE, **TRUE}
    ),
    Attack("swish, twice", "unchecked", X, lambda x: x * swish(x), keys=TWICE),
    Attack("swish, twice, meant", "right", X, lambda x: x * swish(x), keys={**TWICE, **TRUE}),
    Attack("swish, twice, never", "wrong", X, lambda x: x * swish(x), keys={**TWICE, **FALSE}),
    Attack("swish, twice, eagerly", "unchecked", X, lambda x: x * swish(x), keys={**TWICE, **EAGER}),
    Attack("loop, twice, meant", "right", X, in_loop, keys={**TWICE, **TRUE}),
    Attack("loop, twice", "unchecked", X, in_loop, keys=TWICE),
    Attack(
        "one of each, twice",
        "wrong",
        {"x": {"shape": [4]}},
        lambda x: (tf.nn.moments(x, 0)[1], x * stop(x)),
        keys={**TWICE, "outputs": ["v", "y"]},
    ),
]

SIGNATURE = [tf.TensorSpec([3], tf.float64)]
MOVING = tf.function(swish).get_concrete_function(*SIGNATURE)
IDLING_INSIDE = tf.function(tf.reduce_logsumexp).get_concrete_function(*SIGNATURE)
CLOSED = [
    Attack("ready-made", "unchecked", X, lambda x: MOVING(x) + x),
    Attack("ready-made, eagerly", "unchecked", X, lambda x: MOVING(x) + x, keys=EAGER),
    Attack("ready-made, meant", "unchecked", X, lambda x: MOVING(x) + x, keys=TRUE),
    Attack("ready-made, never", "wrong", X, lambda x: MOVING(x) + x, keys=FALSE),
    Attack("ready-made, idle", "right", X, lambda x: IDLING_INSIDE(x) + x),
    Attack("ready-made, idle, eagerly", "right", X, lambda x: IDLING_INSIDE(x) + x, keys=EAGER),
    Attack("wrong beside a ready-made one", "wrong", XW, lambda x, w: tripled(tf.sin(x)) + IDLING_INSIDE(w)),
    Attack(
        "prevented", "unchecked", X, lambda x: x * tf.raw_ops.PreventGradient(input=tf.sin(x), message="no")
    ),
    Attack(
        "prevented behind a stop",
        "unchecked",
        X,
        lambda x: x * stop(tf.raw_ops.PreventGradient(input=tf.sin(x), message="no")),
    ),
]


def draws(x):
    return x * tf.random.uniform([3], dtype=x.dtype)


DRAWN = [
    Attack("a draw", "right", X, draws),
    Attack("a draw, never", "right", X, draws, keys=FALSE),
    Attack("a draw and a stop", "unchecked", X, lambda x: draws(x) * stop(x)),
    Attack("a draw and a stop, meant", "right", X, lambda x: draws(x) * stop(x), keys=TRUE),
    Attack("a draw and an idle stop", "right", X, lambda x: draws(x) + tf.reduce_logsumexp(x)),
    Attack("a mask, straight through", "unchecked", X, lambda x: x + stop(tf.round(draws(x)) - x)),
    Attack(
        "a stopped draw in a loop",
        "unchecked",
        X,
        lambda x: tf.map_fn(lambda y: y * stop(y * tf.random.uniform([], dtype=y.dtype)), x),
    ),
]


def with_variable(meant):
    weight = tf.Variable(np.array([0.5, 1.0, 1.5]), name="weight")
    return lambda x: x * stop(weight) + (weight if meant else 0.0)


VARIABLES = [
    Attack(
        f"variable behind a stop, {mode}, {truth}",
        truth,
        X,
        "attacked:factory",
        keys={"variables": True, "build": {}, "modes": [mode], **keys},
        functions={"factory": lambda: with_variable(meant=True)},
    )
    for mode in ("graph", "eager")
    for truth, keys in (("unchecked", {}), ("right", TRUE))
]

ROWS = (
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
ATTACKS = tuple(replace(row, name=row.name.replace(",", "").replace(" ", "-")) for row in ROWS)
