"""Entries of the ledger at their limits: approximations, joined kinks, forwards that are not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Function = Callable[[Any], Any]

ONCE = {"samples": 1}


def like(value: Any, tensor: Any) -> Any:
    return tf.constant(value, tensor.dtype)


# Approximations. What they may be off by, as a share of each element, as docs/verdicts.md says.
LIMITS = {"float32": 2.0**-11.5, "complex64": 2.0**-11.5, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SLOPES = np.array([0.25, -3.0, 40.0])


def claimed(factors: Any, curve: Function, slope: Function) -> Function:
    """A weighed function whose gradient claims other weights."""

    @tf.custom_gradient
    def call(x: Any) -> Any:
        y = like(SLOPES, x) * curve(x)
        return y, lambda u: u * tf.math.conj(like(SLOPES * factors, x) * slope(x))

    return call


CURVES: dict[str, tuple[Function, Function]] = {
    "line": (lambda x: x, tf.ones_like),
    "sine": (tf.sin, tf.cos),
    "exponential": (tf.exp, tf.exp),
}


def approximations() -> Iterator[Row]:
    for dtype in ("float32", "complex64"):
        inputs = {"x": {"shape": [3], "dtype": dtype, "value": [0.5, -0.3, 1.1]}}
        for name, curve in CURVES.items():
            for times in (0.3, 0.9, 1.2, 3.0, 30.0):
                truth = "right" if times < 1 else "wrong"
                for where, element in (("first", 0), ("last", 2)):
                    factors = np.ones(3)
                    factors[element] += times * LIMITS[dtype]
                    forward = claimed(factors, *curve)
                    yield Row(f"{name}_{where}_{times:g}_{dtype}", forward, None, inputs, truth, keys=ONCE)
    # One rounding of a weight is an approximation in half precision; two are an error.
    for dtype in ("float16", "bfloat16"):
        inputs = {"x": {"shape": [3], "dtype": dtype, "value": [0.5, -0.25, 1.0]}}
        for roundings, truth in ((0, "right"), (2, "wrong"), (4, "wrong"), (8, "wrong")):
            factors = np.array([1.0, 1.0, 1.0])
            factors[0] += roundings * LIMITS[dtype]
            forward = claimed(factors, *CURVES["line"])
            yield Row(f"{roundings}_roundings_{dtype}", forward, None, inputs, truth, keys=ONCE)


def decayed(decay: float) -> Function:
    """A loss with a weight decay that the gradient forgets. Its slopes are about 3, its weights about 1."""

    @tf.custom_gradient
    def call(w: Any) -> Any:
        loss = 3 * tf.reduce_sum(w) + like(0.5 * decay, w) * tf.reduce_sum(w * w)
        return loss, lambda u: u * like(3, w) * tf.ones_like(w)

    return call


def decays() -> Iterator[Row]:
    """What is forgotten is decay * w / 3 of an element: up to half of the digits, an approximation."""
    for dtype, least in (("float64", 0.0), ("float32", LIMITS["float32"])):
        for decay in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2):
            for weight in (0.1, 1.0):
                inputs = {"w": {"shape": [3], "dtype": dtype, "value": [weight, -weight, weight / 2]}}
                share = decay * weight / 3
                if share < 1e-5:
                    continue
                truth = "wrong" if share > 1.05 * least else "right"
                yield Row(
                    f"decay_{decay:g}_{weight:g}_{dtype}", decayed(decay), None, inputs, truth, keys=ONCE
                )


# Kinks of several ops at once, at 0: TensorFlow's chain rule gives no slope of the function. The first two
# are x itself, of which it says 0 and 2. The others have slopes from 1 to 2, of which it says 0 and 3.
JOINED: dict[str, tuple[str, Function]] = {
    "relus": ("not green", lambda x: tf.nn.relu(x) - tf.nn.relu(-x)),
    "extremes": ("not green", lambda x: tf.maximum(x, like(0, x)) + tf.minimum(x, like(0, x))),
    "uneven_relus": ("undecidable", lambda x: 2 * tf.nn.relu(x) - tf.nn.relu(-x)),
    "uneven_extremes": ("undecidable", lambda x: 2 * tf.maximum(x, like(0, x)) + tf.minimum(x, like(0, x))),
}
OWN: dict[str, Function] = {
    "right": lambda u: 2 * u,
    "a_tenth_off": lambda u: 2.2 * u,
    "negative": lambda u: -2 * u,
    "missing": tf.zeros_like,
}


def doubled(use: Function) -> Function:
    @tf.custom_gradient
    def call(x: Any) -> Any:
        return 2 * x, use

    return call


STRUCTURES: dict[str, Callable[[Function, Function], Function]] = {
    "before": lambda kink, own: lambda x: kink(own(x)),
    "after": lambda kink, own: lambda x: own(kink(x)),
    "beside": lambda kink, own: lambda x: kink(x) + own(x),
    "summed": lambda kink, own: lambda x: tf.reduce_sum(kink(x)) + tf.reduce_sum(own(x)),
    "summed_before": lambda kink, own: lambda x: tf.reduce_sum(kink(own(x))),
    "summed_after": lambda kink, own: lambda x: own(tf.reduce_sum(kink(x))),
}


def joined() -> Iterator[Row]:
    for kink_name, (of_kink, kink) in JOINED.items():
        for name, structure in STRUCTURES.items():
            for own_name, use in OWN.items():
                truth = of_kink if own_name == "right" else "wrong"
                forward = structure(kink, doubled(use))
                inputs = {"x": {"shape": [2], "value": [0.0, 0.7]}}
                yield Row(f"{kink_name}_{name}_{own_name}", forward, None, inputs, truth, keys=ONCE)


def largest(share: Function) -> Function:
    """A maximum with a gradient written by hand."""

    @tf.custom_gradient
    def call(x: Any) -> Any:
        y = tf.reduce_max(x)
        return y, lambda u: u * share(tf.cast(tf.equal(x, y), x.dtype))

    return call


def tied() -> Iterator[Row]:
    """A maximum of equal elements, the user's own, where TensorFlow's kinks are joined."""
    shares: dict[str, tuple[str, Function]] = {
        "shared": ("undecidable", lambda ties: ties / tf.reduce_sum(ties)),
        "each": ("wrong", tf.identity),
    }
    for kink_name in ("uneven_relus", "uneven_extremes"):
        for name, (truth, share) in shares.items():
            for place in ("before", "after", "summed"):
                forward = STRUCTURES[place](JOINED[kink_name][1], largest(share))
                for values in ([0.0, 0.0], [0.0, 0.0, -0.7]):
                    inputs = {"x": {"shape": [len(values)], "value": values}}
                    row = f"{kink_name}_{place}_largest_of_{len(values)}_{name}"
                    yield Row(row, forward, None, inputs, truth, keys=ONCE)


# Forwards that aren't finite at the first element. The second one is as ordinary as can be.
NOT_FINITE: dict[str, tuple[Function, Function, list[float]]] = {
    "log_of_0": (tf.math.log, lambda x: 1 / x, [0.0, 2.0]),
    "one_over_0": (lambda x: 1 / x, lambda x: -1 / (x * x), [0.0, 2.0]),
    "root_of_a_negative": (tf.sqrt, lambda x: 0.5 / tf.sqrt(x), [-1.0, 2.0]),
    "overflow": (tf.exp, tf.exp, [800.0, 1.0]),
    "log_of_a_negative": (tf.math.log, lambda x: 1 / x, [-1.0, 2.0]),
}
# What the gradient makes of the right slopes.
CLAIMS: dict[str, tuple[str, Function]] = {
    "as_it_is": (
        "not green",
        lambda slope: slope,
    ),  # 0 * inf is NaN in the other output
    "right": ("undecidable", lambda slope: slope),
    "second_off": ("wrong", lambda slope: slope * like([1.0, 1.01], slope)),
    "second_negative": ("wrong", lambda slope: slope * like([1.0, -1.0], slope)),
    "second_missing": ("wrong", lambda slope: slope * like([1.0, 0.0], slope)),
    "first_zero": ("not green", lambda slope: tf.where([True, False], tf.zeros_like(slope), slope)),
    "first_doubled": ("not green", lambda slope: slope * like([2.0, 1.0], slope)),
    "all_nan": ("not green", lambda slope: slope * like(np.nan, slope)),
}


def pulled(forward: Function, slope: Function, claim: Function, *, is_guarded: bool) -> Function:
    @tf.custom_gradient
    def call(x: Any) -> Any:
        def gradient(u: Any) -> Any:
            claimed = claim(slope(x))
            return tf.math.multiply_no_nan(claimed, u) if is_guarded else u * claimed

        return forward(x), gradient

    return call


def not_finite() -> Iterator[Row]:
    for name, (forward, slope, value) in NOT_FINITE.items():
        for claim_name, (truth, claim) in CLAIMS.items():
            inputs = {"x": {"shape": [2], "value": value}}
            of_claim = pulled(forward, slope, claim, is_guarded=claim_name == "right")
            yield Row(f"{name}_{claim_name}", of_claim, None, inputs, truth, keys=ONCE)
    # The well-known NaN behind a mask: the forward is finite, so that it is found.
    inputs = {"x": {"shape": [2], "value": [0.0, 2.0]}}
    for name, inner in (("reciprocal", lambda x: 1 / x), ("log", lambda x: tf.math.log(tf.abs(x)))):

        def masked(x: Any, inner: Function = inner) -> Any:
            return tf.where(tf.abs(x) > like(0.5, x), inner(x), tf.zeros_like(x))

        def guarded(x: Any, inner: Function = inner) -> Any:
            is_far = tf.abs(x) > like(0.5, x)
            return tf.where(is_far, inner(tf.where(is_far, x, tf.ones_like(x))), tf.zeros_like(x))

        yield Row(f"masked_{name}", masked, None, inputs, "wrong", keys=ONCE)
        yield Row(f"guarded_{name}", guarded, None, inputs, "right", keys=ONCE)


ROWS = marked(
    (*approximations(), *decays(), *joined(), *tied(), *not_finite()),
    "decay_0.0001_1_float32",
    "one_over_0_second_off",
    "uneven_extremes_after_right",
    "uneven_extremes_summed_before_right",
)
