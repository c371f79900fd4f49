"""What rounding to the declared dtype may explain, and errors that look as small beside something else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ONCE = {"samples": 1}
HALVES = ("bfloat16", "float16")


def like(value: Any, tensor: Any) -> Any:
    return tf.constant(value, tensor.dtype)


def weighed(slopes: Any, claimed: Any) -> Callable[[Any], Any]:
    """A weighted sum whose gradient claims other weights."""

    @tf.custom_gradient
    def call(x: Any) -> Any:
        return tf.reduce_sum(like(slopes, x) * x), lambda u: u * like(claimed, x)

    return call


def tuned(slopes: Any, claimed: Any) -> Callable[[Any], Any]:
    """The same, curved, so that an element's slope depends on its input."""

    @tf.custom_gradient
    def call(x: Any) -> Any:
        return like(slopes, x) * tf.sin(x), lambda u: u * like(claimed, x) * tf.cos(x)

    return call


# Weights, and what the gradient claims: one large element within half of float32's digits, the others wrong.
MASKED = {
    "sign": ([1000, 0.1], [1000.2, -0.1]),
    "missing": ([1000, 0.1], [1000.2, 0.0]),
    "doubled": ([1000, 0.1], [1000.2, 0.2]),
    "halved": ([1000, 0.1], [1000.2, 0.05]),
    "a_tenth_off": ([1000, 0.1], [1000.2, 0.11]),
    "five_per_cent": ([1000, 1.0], [1000.2, 1.05]),
    "one_per_cent": ([1000, 3.0], [1000.2, 3.03]),
    "one_in_a_thousand": ([1000, 50.0], [1000.3, 50.05]),
    "three": ([100, 10, 1.0], [100.02, 10.01, 0.99]),
    "sign_of_two": ([300, 0.02, -0.01], [300.06, -0.02, 0.01]),
    "swapped": ([2000, 0.1, -0.2], [2000.4, -0.2, 0.1]),
    "one_tiny_sign": ([1e6, 1.0], [1.0002e6, -1.0]),
}


def masked() -> Iterator[Row]:
    for name, (slopes, claimed) in MASKED.items():
        inputs = {"x": {"shape": [len(slopes)], "dtype": "float32", "uniform": {"low": 0.5, "high": 1.2}}}
        yield Row(f"sum_{name}", weighed(slopes, claimed), None, inputs, "wrong", keys=ONCE)
        yield Row(f"curved_{name}", tuned(slopes, claimed), None, inputs, "wrong", keys=ONCE)
    for name in ("sign", "missing", "three"):
        slopes, claimed = MASKED[name]
        inputs = {"x": {"shape": [len(slopes)], "dtype": "complex64"}}
        yield Row(f"complex_{name}", weighed(slopes, claimed), None, inputs, "wrong", keys=ONCE)
    # Elements of very different sizes, each within half of the digits of its own: an approximation.
    for factor in (1 + 1e-4, 1 - 3e-4):
        inputs = {"x": {"shape": [3], "dtype": "float32", "uniform": {"low": 0.5, "high": 1.2}}}
        slopes = np.array([1000, 1.0, 0.001])
        yield Row(
            f"approximate_{factor:g}", weighed(slopes, factor * slopes), None, inputs, "right", keys=ONCE
        )
    inputs = {"x": {"shape": [2], "dtype": "float32", "uniform": {"low": 0.5, "high": 1.2}}}
    yield Row("sum_right", weighed([1000, 0.1], [1000, 0.1]), None, inputs, "right", keys=ONCE)


def penalised(decay: float) -> Callable[[Any], Any]:
    """A loss with weight decay, which the gradient forgets."""

    @tf.custom_gradient
    def call(w: Any) -> Any:
        total = tf.reduce_sum(tf.sin(3 * w)) + like(0.5 * decay, w) * tf.reduce_sum(w * w)
        return total, lambda u: u * 3 * tf.cos(3 * w)

    return call


def forgotten() -> Iterator[Row]:
    values = {"a": [0.9, -0.4, 0.2, 0.7], "b": [0.3, 1.3, -0.8, 0.1], "c": [1.1, -1.2, 0.25, 0.6]}
    for name, value in values.items():
        inputs = {"w": {"shape": [4], "dtype": "float32", "value": value}}
        for decay in (1e-3, 3e-3, 1e-2):
            yield Row(f"decay_{decay:g}_{name}", penalised(decay), None, inputs, "wrong", keys=ONCE)


def exact_gelu(x: Any) -> Any:
    return tf.nn.gelu(x, approximate=False)


def tanh_gelu(x: Any) -> Any:
    return tf.nn.gelu(x, approximate=True)


def erf_gelu(x: Any) -> Any:
    return like(0.5, x) * x * (1 + tf.math.erf(x / like(math.sqrt(2), x)))


def quick_gelu(x: Any) -> Any:
    return x * tf.sigmoid(like(1.702, x) * x)


def mish(x: Any) -> Any:
    return x * tf.tanh(tf.math.softplus(x))


def normal_cdf(x: Any) -> Any:
    return like(0.5, x) * tf.math.erfc(-x * like(math.sqrt(0.5), x))


def bits(x: Any) -> Any:
    return tf.math.log1p(x * x) / like(math.log(2), x)


# Right ones, with constants that the declared dtype rounds: TensorFlow's own gradients.
ROUNDED = {
    "gelu": exact_gelu,
    "tanh_gelu": tanh_gelu,
    "erf_gelu": erf_gelu,
    "quick_gelu": quick_gelu,
    "silu": tf.nn.silu,
    "mish": mish,
    "normal_cdf": normal_cdf,
    "erf": tf.math.erf,
    "bits": bits,
    "selu": tf.nn.selu,
}


def rounded() -> Iterator[Row]:
    for dtype in HALVES:
        inputs = {"x": {"shape": [32], "dtype": dtype}}
        for seed in range(5):
            yield Row(f"gelu_{dtype}_{seed}", exact_gelu, None, inputs, "right", keys={**ONCE, "seed": seed})
        for name, forward in ROUNDED.items():
            if name != "gelu":
                yield Row(f"{name}_{dtype}", forward, None, inputs, "right", keys=ONCE)
    # Near the zero of its slope, at -0.7518, what rounding leaves is most of the gradient.
    for dtype in (*HALVES, "float32"):
        inputs = {"x": {"shape": [4], "dtype": dtype, "value": [-0.75, -0.7539, 0.5, 2.0]}}
        yield Row(f"gelu_level_{dtype}", exact_gelu, None, inputs, "right")
        yield Row(f"erf_gelu_level_{dtype}", erf_gelu, None, inputs, "right")


def own_gelu(change: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """An exact GELU whose gradient is made of its two terms by hand."""

    @tf.custom_gradient
    def call(x: Any) -> Any:
        cdf = normal_cdf(x)
        density = like(1 / math.sqrt(2 * math.pi), x) * tf.exp(-like(0.5, x) * x * x)
        return x * cdf, lambda u: u * change(x, cdf, density)

    return call


@tf.custom_gradient
def divided_gelu(x: Any) -> Any:
    """The same by an erf, and a density that is divided by sqrt(2 pi): 2.5 in bfloat16, 2.507 in float32."""
    cdf = like(0.5, x) * (1 + tf.math.erf(x / like(math.sqrt(2), x)))

    def gradient(u: Any) -> Any:
        density = tf.exp(-x * x / 2) / like(math.sqrt(2 * math.pi), x)
        return u * (cdf + x * density)

    return x * cdf, gradient


GELUS = {
    "right": lambda x, cdf, density: cdf + x * density,
    "without_its_second_term": lambda x, cdf, density: cdf,
    "with_a_sign_turned": lambda x, cdf, density: cdf - x * density,
    "with_half_a_term": lambda x, cdf, density: cdf + like(0.5, x) * x * density,
    "five_per_cent_off": lambda x, cdf, density: like(1.0625, x) * (cdf + x * density),
    "without_its_tail": lambda x, cdf, density: tf.where(x < -1, tf.zeros_like(x), cdf + x * density),
    "turned_where_small": lambda x, cdf, density: tf.where(
        tf.abs(x + like(1.75, x)) < 1, -(cdf + x * density), cdf + x * density
    ),
}


def written() -> Iterator[Row]:
    for dtype in HALVES:
        inputs = {"x": {"shape": [32], "dtype": dtype}}
        for seed in range(10):
            keys = {**ONCE, "seed": seed}
            yield Row(f"divided_gelu_{dtype}_{seed}", divided_gelu, None, inputs, "right", keys=keys)
    for name, change in GELUS.items():
        for dtype in (*HALVES, "float32"):
            inputs = {"x": {"shape": [6], "dtype": dtype, "value": [-2.5, -1.5, -0.25, 0.5, 1.25, 2.0]}}
            truth = "right" if name == "right" else "wrong"
            yield Row(f"own_gelu_{name}_{dtype}", own_gelu(change), None, inputs, truth)


# What a gradient does to its upstream before it uses it.


def sent_through(dtype: str, forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function whose gradient rounds its upstream to a narrower dtype."""

    @tf.custom_gradient
    def call(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)

        def gradient(u: Any) -> Any:
            return tape.gradient(y, x, output_gradients=tf.cast(tf.cast(u, dtype), u.dtype))

        return y, gradient

    return call


FORWARDS = {
    "sine": (tf.sin, [4]),
    "scalar": (lambda x: tf.reduce_sum(tf.sin(x)), [3]),
    "softmax": (tf.nn.softmax, [2, 4]),
    "sums": (lambda x: tf.reduce_sum(x * x, -1), [8, 3]),
}


def high_part(u: Any, bits: int = 11) -> Any:
    """Round float32 to fewer bits, and keep its range (Veltkamp's splitting); 11 bits are TF32's."""
    large = u * like(2.0 ** (24 - bits) + 1, u)
    return large - (large - u)


# What a float32 gradient makes of its upstream.
NARROWED = {
    "tf32": ("wrong", high_part),
    "eight_bits": ("wrong", lambda u: high_part(u, 8)),
    "tf32_of_large_ones": ("wrong", lambda u: tf.where(tf.abs(u) > like(0.25, u), high_part(u), u)),
    "tf32_of_negative_ones": ("wrong", lambda u: tf.where(u < 0, high_part(u), u)),
    "tf32_scaled": ("wrong", lambda u: high_part(u * like(1024, u)) / like(1024, u)),
    "both_parts": ("right", lambda u: high_part(u) + (u - high_part(u))),
    "scaled": ("right", lambda u: (u * like(1024, u)) / like(1024, u)),
    "tripled": ("right", lambda u: (u * like(3, u)) / like(3, u)),
}


def bent(forward: Callable[[Any], Any], use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @tf.custom_gradient
    def call(x: Any) -> Any:
        def gradient(u: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = forward(x)
            return tape.gradient(y, x, output_gradients=use(u))

        return forward(x), gradient

    return call


def narrowed() -> Iterator[Row]:
    for use, (truth, change) in NARROWED.items():
        for name, (forward, shape) in FORWARDS.items():
            inputs = {"x": {"shape": shape, "dtype": "float32"}}
            for mode in ("graph", "eager"):
                # A scalar's upstream isn't always negative, or large; softmax mixes rounded ones with others.
                if name in {"scalar", "softmax"} and "_ones" in use:
                    continue
                keys = {**ONCE, "modes": [mode]}
                yield Row(f"{name}_{use}_{mode}", bent(forward, change), None, inputs, truth, keys=keys)
    # Half precision inside of the forward is the forward's own: what its gradient rounds is no fault.
    for dtype in HALVES:
        for name, (forward, shape) in FORWARDS.items():

            def inside(x: Any, forward: Any = forward, dtype: str = dtype) -> Any:
                return tf.cast(forward(tf.cast(x, dtype)), x.dtype)

            inputs = {"x": {"shape": shape, "dtype": "float32"}}
            yield Row(f"{name}_inside_{dtype}", inside, None, inputs, "right", keys=ONCE)


def biased(x: Any, b: Any) -> Any:
    return tf.nn.bias_add(x, b)


def added(x: Any, b: Any) -> Any:
    return x + b


def upstreams() -> Iterator[Row]:
    for name, (forward, shape) in FORWARDS.items():
        for dtype in ("float64", "float32"):
            inputs = {"x": {"shape": shape, "dtype": dtype}}
            for through in HALVES:
                wrong = sent_through(through, forward)
                yield Row(f"{name}_{dtype}_through_{through}", wrong, None, inputs, "wrong", keys=ONCE)
            yield Row(f"{name}_{dtype}_all_bits", forward, None, inputs, "right", keys=ONCE)
        for seed in range(1, 4):  # other upstreams: float16 mustn't keep one of them by chance
            inputs = {"x": {"shape": shape, "dtype": "float32"}}
            keys = {**ONCE, "seed": seed}
            wrong = sent_through("float16", forward)
            yield Row(f"{name}_float32_through_float16_{seed}", wrong, None, inputs, "wrong", keys=keys)
        for dtype in HALVES:
            inputs = {"x": {"shape": shape, "dtype": dtype}}
            yield Row(f"{name}_{dtype}_all_bits", forward, None, inputs, "right", keys=ONCE)
    for rows in (30, 64, 1000, 1500):
        for name, forward in (("biased", biased), ("added", added)):
            inputs = {
                "x": {"shape": [rows, 2], "dtype": "bfloat16"},
                "b": {"shape": [2], "dtype": "bfloat16"},
            }
            # The kernel of BiasAddGrad adds in bfloat16: a thousand ones are 256. Of 30 terms it loses a
            # tenth at most, which isn't found.
            truth = "wrong" if name == "biased" and rows > 30 else "right"
            yield Row(f"{name}_{rows}_bfloat16", forward, None, inputs, truth, keys=ONCE)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """TensorFlow's, whose gradient relies on labels that add up to 1."""
    return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)


@tf.custom_gradient
def cross_entropy_off(logits: Any, labels: Any) -> Any:
    """The same with 3 % too much of the softmax."""

    def gradient(u: Any) -> Any:
        share = 1.03 * tf.nn.softmax(logits) - labels
        return u[:, None] * share, -u[:, None] * tf.nn.log_softmax(logits)

    return cross_entropy(logits, labels), gradient


def summing() -> Iterator[Row]:
    for dtype in ("float32", *HALVES):
        inputs = {
            "logits": {"shape": [4, 6], "dtype": dtype},
            "labels": {"shape": [4, 6], "dtype": dtype, "probabilities": True},
        }
        for seed in range(2):
            keys = {"seed": seed}
            yield Row(f"cross_entropy_{dtype}_{seed}", cross_entropy, None, inputs, "right", keys=keys)
            yield Row(
                f"cross_entropy_off_{dtype}_{seed}", cross_entropy_off, None, inputs, "wrong", keys=keys
            )


ROWS = marked(
    (*masked(), *forgotten(), *rounded(), *written(), *upstreams(), *narrowed(), *summing()),
    "added_64_bfloat16",
    "complex_three",
    "erf_gelu_level_bfloat16",
    "own_gelu_without_its_tail_float16",
    "selu_float16",
    "softmax_eight_bits_eager",
)
