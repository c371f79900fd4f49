"""Rows at ties: what no element shows, since nothing but all tied inputs together does.

Right ones are those of one of the smooth functions that meet at the point, or shares between them; wrong ones
lie between each element's own slopes.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked


def _tensor(value, **keys):
    shape = list(tf.constant(value, tf.float64).shape)
    return {"value": value, "shape": shape, **keys}


def _row(name, truth, forward, gradient=None, *, keys=None, functions=None, **inputs):  # noqa: PLR0913 (a line of a table)
    """Return a row, whose inputs are values, or as a spec has them."""
    inputs = {key: one if isinstance(one, dict) else _tensor(one) for key, one in inputs.items()}
    return Row(name, forward, gradient, inputs, truth, keys=keys or {}, functions=functions or {})


def _largest(x):
    return tf.reduce_max(x, axis=-1)


# Where a gradient is a constant that is right at the tie alone.
_STAYS = {"move": False, "reason": "the tie is meant"}


def _jacobian(matrix):
    """Return a gradient of one input and one output by its Jacobian."""

    def gradient(op, upstream):
        there = tf.constant(matrix, upstream.dtype)
        flat = tf.linalg.matvec(there, tf.reshape(upstream, [-1]), transpose_a=True)
        return tf.reshape(flat, tf.shape(op.inputs[0]))

    return gradient


def _shares(reduce, share):
    """Return the gradient of a reduction over the last axis, of which each tied element gets a share."""

    def gradient(op, upstream):
        x = op.inputs[0]
        tied = tf.cast(tf.equal(x, reduce(x, axis=-1, keepdims=True)), x.dtype)
        count = tf.reduce_sum(tied, axis=-1, keepdims=True)
        rank = tf.cumsum(tied, axis=-1) * tied
        return share(tied, count, rank) * upstream[..., None]

    return gradient


_SHARES = {
    "shared": ("right", lambda tied, count, _rank: tied / count),
    "first": ("right", lambda tied, _count, rank: tf.cast(tf.equal(rank, 1), tied.dtype)),
    "last": ("right", lambda tied, count, rank: tf.cast(tf.equal(rank, count), tied.dtype)),
    "by rank": ("right", lambda _tied, count, rank: 2 * rank / (count * (count + 1))),
    "full": ("wrong", lambda tied, _count, _rank: tied),
    "none": ("wrong", lambda tied, _count, _rank: 0 * tied),
    "nine tenths": ("wrong", lambda tied, count, _rank: 0.9 * tied / count),
    "half each": ("wrong", lambda tied, count, _rank: tf.where(count > 2, 0.5 * tied, 0.7 * tied)),
}
_ROWS = {
    "two": [1.0, 1.0, 0.5],
    "three": [0.3, 2.0, 2.0, 2.0, -1.0],
    "at zero": [0.0, 0.0],
    "eight": [0.7] * 8,
    "of several rows": [[1.0, 1.0, 0.2], [0.1, 0.4, 0.3], [2.0, 2.0, 2.0]],
}


def _of_reductions():
    for (kind, (truth, share)), (point, value) in itertools.product(_SHARES.items(), _ROWS.items()):
        keys = {"dtypes": ["float32"]} if point == "two" else {}
        gradient = _shares(tf.reduce_max, share)
        yield _row(f"maximum of {point}, {kind}", truth, _largest, gradient, keys=keys, x=value)
    for kind in ("shared", "full"):
        truth, share = _SHARES[kind]
        smallest, largest = _shares(tf.reduce_min, share), _shares(tf.reduce_max, share)
        least = lambda x: tf.reduce_min(x, axis=-1)  # noqa: E731
        yield _row(f"minimum of three, {kind}", truth, least, smallest, x=[0.3, 0.3, 0.3, 1.0])
        yield _row(f"maximum of three inside, {kind}", truth, _inside(share), x=[1.0, 1.0, 1.0, 0.0], a=1.5)
        yield _row(f"maximum of forty, {kind}", truth, _largest, largest, x=[0.25] * 40)


def _inside(share):
    """A maximum with its own gradient, inside of a smooth function."""

    @tf.custom_gradient
    def largest(x):
        def gradient(upstream):
            tied = tf.cast(tf.equal(x, tf.reduce_max(x)), x.dtype)
            count = tf.reduce_sum(tied)
            return share(tied, count, tf.cumsum(tied) * tied) * upstream

        return tf.reduce_max(x), gradient

    return lambda x, a: tf.tanh(a * largest(tf.sin(x))) + tf.reduce_sum(x * x)


def _over_windows(share):
    def gradient(op, upstream):
        x, y = op.inputs[0], op.outputs[0]
        wide = lambda z: tf.repeat(tf.repeat(z, 2, axis=1), 2, axis=2)  # noqa: E731
        tied = tf.cast(tf.equal(x, wide(y)), x.dtype)
        count = 4 * wide(tf.nn.avg_pool2d(tied, 2, 2, "VALID"))
        return share(tied, count, None) * wide(upstream)

    return gradient


def _of_drawn_ones():
    """Where no value is tied at the sample points."""
    pool, segments = lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), tf.range(24) // 3
    of_segments = lambda x: tf.math.segment_max(x, segments)  # noqa: E731
    for kind in ("shared", "full"):
        truth, share = _SHARES[kind]
        truth = "not green" if truth == "wrong" else truth  # a tie beside 0 is asked about

        def of_segment(op, upstream, share=share):
            tied = tf.cast(tf.equal(op.inputs[0], tf.gather(op.outputs[0], segments)), upstream.dtype)
            count = tf.gather(tf.math.segment_sum(tied, segments), segments)
            return share(tied, count, None) * tf.gather(upstream, segments)

        for size in (3, 7):
            steps, windows = ({"shape": shape} for shape in ([3, 5, size], [1, 8, 8, size]))
            largest = lambda x: tf.reduce_max(x, 1)  # noqa: E731
            yield _row(f"drawn steps of {size}, {kind}", truth, largest, _over_steps(share), x=steps)
            yield _row(f"drawn windows of {size}, {kind}", truth, pool, _over_windows(share), x=windows)
        yield _row(f"drawn segments, {kind}", truth, of_segments, of_segment, x={"shape": [24]})


def _over_steps(share):
    def gradient(op, upstream):
        tied = tf.cast(tf.equal(op.inputs[0], op.outputs[0][:, None]), upstream.dtype)
        return share(tied, tf.reduce_sum(tied, 1, keepdims=True), None) * upstream[:, None]

    return gradient


_PAIRS = {
    "half": ("right", 0.5, 0.5),
    "first": ("right", 1.0, 0.0),
    "second": ("right", 0.0, 1.0),
    "quarter": ("right", 0.25, 0.75),
    "both": ("wrong", 1.0, 1.0),
    "neither": ("wrong", 0.0, 0.0),
    "too little": ("wrong", 0.45, 0.5),
}


def _of_two(kind, forward, slope):
    truth, first, second = _PAIRS[kind]

    def gradient(op, upstream):
        x, y = op.inputs
        tied = tf.equal(x, y)
        return (
            upstream * tf.where(tied, tf.cast(first, x.dtype), slope(x, y)),
            upstream * tf.where(tied, tf.cast(second, x.dtype), 1 - slope(x, y)),
        )

    x, y = _tensor([1.0, 0.0, -2.0, 0.4]), _tensor([1.0, 0.0, -3.0, 0.5])
    return Row(f"{forward.__name__}, {kind}", forward, gradient, {"x": x, "y": y}, truth)


def _of_differences():
    """|x - y|, relu(x - y): shares of the sign at the tie; the same sign for both is wrong."""
    x, y = _tensor([1.0, 0.0, -2.0, 0.4]), _tensor([1.0, 0.0, -3.0, 0.5])
    for name, forward, away, at in (
        ("|x - y|", lambda x, y: tf.abs(x - y), tf.sign, (-1.0, 0.0, 0.3, 1.0)),
        ("relu(x - y)", lambda x, y: tf.nn.relu(x - y), lambda d: (1 + tf.sign(d)) / 2, (0.0, 0.5, 1.0)),
    ):
        for first, second in itertools.product(at, at):
            truth = "right" if first == second else "wrong"

            def gradient(op, upstream, first=first, second=second, away=away):
                d = op.inputs[0] - op.inputs[1]
                one = tf.where(tf.equal(d, 0), tf.cast(first, d.dtype), away(d))
                other = tf.where(tf.equal(d, 0), tf.cast(second, d.dtype), away(d))
                return upstream * one, -upstream * other

            yield Row(f"{name}, {first:g} and {second:g}", forward, gradient, {"x": x, "y": y}, truth)


def _permutation(order):
    return [[float(column == at) for column in range(len(order))] for at in order]


def _slope_of_sorted_halves(x):
    """Return a slope of the distance of the sorted halves, by the order that sorts them."""
    places = [tf.argsort(x[:5]), 5 + tf.argsort(x[5:])]
    sign = tf.sign(tf.gather(x, places[0]) - tf.gather(x, places[1])) / 5
    return tf.tensor_scatter_nd_add(
        tf.zeros_like(x), tf.concat(places, 0)[:, None], tf.concat([sign, -sign], 0)
    )


def _of_sorts():
    three, all_equal = [0.0, 0.0, 0.0, 1.0], [0.5] * 6
    for name, forward in (
        ("sort", tf.sort),
        ("top_k", lambda x: tf.math.top_k(x, 4).values),
        ("nth_element", lambda x: tf.reshape(tf.raw_ops.NthElement(input=x, n=1), [1])),
        ("median", lambda x: tf.sort(x)[len(x.shape) : 3]),
    ):
        yield _row(f"{name} of three", "right", forward, x=three)
        yield _row(f"{name} of six", "right", forward, x=all_equal)
    yield _row("sort of twenty", "right", "tensorflow:sort", x=[1.0] * 20)
    yield _row("sort of rows", "right", "tensorflow:sort", x=[[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    third = [[1 / 3, 1 / 3, 1 / 3, 0]] * 3 + [[0, 0, 0, 1]]
    for name, truth, matrix in (
        ("shared", "right", third),
        ("another order", "right", _permutation([2, 0, 1, 3])),
        ("one of them thrice", "right", _permutation([1, 1, 1, 3])),
        ("full", "wrong", [[1, 1, 1, 0]] * 3 + [[0, 0, 0, 1]]),
        ("none of the middle", "wrong", [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]),
        ("of another element", "wrong", _permutation([0, 3, 2, 1])),
        ("sum of two", "wrong", [[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]),
    ):
        yield _row(f"sort of three, {name}", truth, tf.sort, _jacobian(matrix), x=_tensor(three, **_STAYS))
    for name, forward in (("sort", tf.sort), ("median", lambda x: tf.sort(x)[2])):
        zeros = lambda op, _u: tf.zeros_like(op.inputs[0])  # noqa: E731
        yield _row(f"{name} of five, none", "wrong", forward, zeros, x=[0.5] * 5)
    weighted = lambda x, w: tf.sin(tf.sort(x)) * w  # noqa: E731
    yield _row("sorted rows times weights", "right", weighted, x=[0.2, 0.2, 0.2, 0.2, -1.0], w={"shape": [5]})
    # Three and four equal numbers, and three of the other half: one piece of many is narrow.
    yield _row(
        *("distance of sorted halves", "right"),
        lambda x: tf.reduce_mean(tf.abs(tf.sort(x[:5]) - tf.sort(x[5:]))),
        lambda op, u: u * _slope_of_sorted_halves(op.inputs[0]),
        x=_tensor([-4, 4, -4, -4, 0.3, 4, -4, 4, 0.5, -0.7], **_STAYS),
    )
    isotonic = lambda x: tf.nn.isotonic_regression(x[None])[0]  # noqa: E731
    yield _row("isotonic regression", "right", isotonic, x=three)


def _pool_gradient(kind):
    def gradient(op, upstream):
        x = op.inputs[0]
        wide = tf.repeat(tf.repeat(tf.nn.max_pool2d(x, 2, 2, "VALID"), 2, axis=1), 2, axis=2)
        back = tf.repeat(tf.repeat(upstream, 2, axis=1), 2, axis=2)
        tied = tf.cast(tf.equal(x, wide), x.dtype)
        count = 4 * tf.nn.avg_pool2d(tied, 2, 2, "VALID")
        shared = tf.repeat(tf.repeat(count, 2, axis=1), 2, axis=2)
        return back * tied / (shared if kind == "shared" else 1)

    return gradient


def _segment(share):
    ids = [0, 0, 1, 1, 1]

    def gradient(op, upstream):
        x = op.inputs[0]
        tied = tf.cast(tf.equal(x, tf.gather(tf.math.segment_max(x, ids), ids)), x.dtype)
        count = tf.gather(tf.math.segment_sum(tied, ids), ids)
        return share(tied, count) * tf.gather(upstream, ids)

    return lambda x: tf.math.segment_max(x, ids), gradient


def _of_networks():
    image = [[[[1.0], [1.0], [0.0], [0.0]], [[0.5], [1.0], [0.0], [0.0]]]]
    pool = lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID")  # noqa: E731
    yield _row("max pool", "right", pool, x=image)
    for kind, truth in (("shared", "right"), ("full", "wrong")):
        yield _row(f"max pool, {kind}", truth, pool, _pool_gradient(kind), x=image)
    value = [1.0, 1.0, 0.5, 0.5, 0.5]
    for kind, truth, share in (
        ("shared", "right", lambda tied, count: tied / count),
        ("full", "wrong", lambda tied, _count: tied),
        ("none", "wrong", lambda tied, _count: tied * 0),
    ):
        yield _row(f"segment_max, {kind}", truth, *_segment(share), x=value)
    yield _row("segment_max", "right", lambda x: tf.math.segment_max(x, [0, 0, 1, 1, 1]), x=value)
    for name in ("maximum", "minimum"):
        x, y = [1.0, 0.0, -2.0, 3.0], [1.0, 0.0, 3.0, -1.0]
        yield _row(f"tf.{name}", "right", f"tensorflow:{name}", x=x, y=y)
    yield _row("broadcast maximum", "right", tf.maximum, x=[[1.0, 0.0], [0.5, 1.0]], y=1.0)
    zeros = [0.0, 1.3, -0.7, 0.0]
    for name, forward in (
        ("relu", tf.nn.relu),
        ("abs", tf.abs),
        ("leaky relu", tf.nn.leaky_relu),
        ("clip", lambda x: tf.clip_by_value(x, 0.0, 1.3)),
        ("elu", tf.nn.elu),
        ("hinge", lambda x: tf.nn.relu(1 - x * tf.constant([1.0, 1.0, -1.0, -1.0], x.dtype)) + x),
        ("huber", lambda x: tf.where(tf.abs(x) <= 1.3, x * x / 2, 1.3 * tf.abs(x) - 0.845)),
        ("cummax", lambda x: tf.math.cumulative_logsumexp(x) + tf.scan(tf.maximum, x)),
        ("sum of relus", lambda x: tf.reduce_sum(tf.nn.relu(x) * tf.constant([1.0, 2, 3, 4], x.dtype))),
        ("largest size", lambda x: tf.reduce_max(tf.abs(x * tf.constant([1.0, 1, 1.3 / 0.7, 1], x.dtype)))),
        ("hinge of all", lambda x: tf.reduce_sum(tf.nn.relu(0.5 - tf.abs(x)) + x)),
    ):
        yield _row(name, "right", forward, x=zeros)
    for slope in (0.0, 0.5, 1.0):

        def of_relu(op, u, slope=slope):
            x = op.inputs[0]
            return u * tf.where(x == 0, tf.cast(slope, u.dtype), tf.cast(x > 0, u.dtype))

        yield _row(f"relu with slope {slope:g} at 0", "right", tf.nn.relu, of_relu, x=zeros)
    yield _row(
        *("a small network at zero", "undecidable"),
        lambda x, w, v: tf.reduce_sum(tf.abs(tf.linalg.matvec(w, x, transpose_a=True)) * v),
        x=[0.0, 0.0, 0.0],
        w={"shape": [3, 5]},
        v={"shape": [5], "uniform": {"low": 0.5, "high": 1}},
    )


def _norm(at_zero):
    def gradient(op, upstream):
        x = op.inputs[0]
        size = tf.norm(x)
        return upstream * tf.where(size > 0, tf.math.divide_no_nan(x, size), tf.constant(at_zero, x.dtype))

    return gradient


def _of_norms():
    for name, truth, at_zero in (
        ("zero", "undecidable", [0.0, 0.0, 0.0]),
        ("inside", "right", [0.3, -0.4, 0.2]),
        ("on the edge", "right", [0.0, 1.0, 0.0]),
        ("a direction", "right", [0.6, 0.0, -0.8]),
        ("ones", "wrong", [1.0, 1.0, 1.0]),
        ("two of them", "wrong", [0.9, 0.9, 0.0]),
        ("just too long", "wrong", [0.8, 0.0, -0.7]),
    ):
        norm = lambda x: tf.sqrt(tf.reduce_sum(x * x))  # noqa: E731
        yield _row(f"norm at zero, {name}", truth, norm, _norm(at_zero), x=[0.0, 0.0, 0.0])
    x = _tensor([2.0, -2.0, 1.0], **_STAYS)
    for name, truth, slope in (
        ("shared", "right", [0.5, -0.5, 0.0]),
        ("first", "right", [1.0, 0.0, 0.0]),
        ("full", "wrong", [1.0, -1.0, 0.0]),
        ("opposite", "wrong", [0.5, 0.5, 0.0]),
    ):
        norm = lambda x: tf.reshape(tf.reduce_max(tf.abs(x)), [1])  # noqa: E731
        yield _row(f"norm by the largest, {name}", truth, norm, _jacobian([slope]), x=x)


def _of_smooth_ones():
    """A function that is smooth where two inputs are equal, made of parts that aren't."""

    def forward(x, y):
        return tf.maximum(x, y) + tf.math.log1p(tf.exp(-tf.abs(x - y)))

    def gradient(op, upstream, at_tie):
        x, y = op.inputs
        share = tf.where(x == y, tf.cast(at_tie, x.dtype), tf.sigmoid(x - y))
        return share * upstream, (1 - share) * upstream

    inputs = {"x": [1.0, 1.0, 2.7], "y": [0.0, 1.0, 2.7]}
    for name, truth, at_tie in (
        ("halves", "right", 0.5),
        ("all to one", "wrong", 1.0),
        ("none to one", "wrong", 0.0),
    ):
        yield _row(f"logaddexp, {name}", truth, forward, partial(gradient, at_tie=at_tie), **inputs)
    yield _row("logaddexp, by its parts", "wrong", forward, **inputs)


def _of_other_kinds():
    """Domains, complex numbers, several outputs, the second order."""
    for kind in ("half", "both"):
        truth, first, second = _PAIRS[kind]

        def gradient(_op, one, other, first=first, second=second):
            share = one * first, one * second
            return share[0] + other, share[1] - other

        tie = _tensor([1.0, 2.0], **_STAYS)
        both = lambda x, y: (tf.maximum(x, y), x - y)  # noqa: E731
        yield _row(f"one of two outputs, {kind}", truth, both, gradient, x=tie, y=tie)
    for kind in ("shared", "full"):
        truth, share = _SHARES[kind]
        x = _tensor([1.0, 1.0, 0.2], domain={"low": 0.1, "high": 2.0})
        yield _row(f"in a domain, {kind}", truth, _largest, _shares(tf.reduce_max, share), x=x)
    for name, truth, weight in (("shared", "right", 0.5), ("full", "wrong", 1.0)):

        def of_complex(_op, u, weight=weight):
            part = u * tf.constant([weight, 0.0], tf.float64)
            return tf.complex(part, part)

        part = lambda z: tf.reduce_max(tf.maximum(tf.math.real(z), tf.math.imag(z)))  # noqa: E731
        z = {"value": ["1+1j", "0.5+0.2j"], "shape": [2], "dtype": "complex128", **_STAYS}
        yield _row(f"largest part of complex, {name}", truth, part, of_complex, z=z)
    square, twice = lambda x, y: tf.maximum(x, y) ** 2, {"second_order": True}
    name = "a square of a maximum, second order"
    yield _row(name, "undecidable", square, keys=twice, x=[1.0, 1.0], y=[1.0, 0.5])


_IN, _OUT = (np.random.default_rng(3).normal(size=shape) for shape in ((3, 20), (20, 2)))


@tf.custom_gradient
def _relu_of_nine(x):
    """A relu whose gradient at zero is far from both of its slopes."""

    def gradient(u):
        return u * (tf.cast(x > 0, x.dtype) + 9 * tf.cast(tf.equal(x, 0), x.dtype))

    return tf.nn.relu(x), gradient


def _loss(x):
    return tf.reduce_sum(x**2 + x)


def _before_relu(op, x, w):
    return _loss(tf.nn.relu(op(x) @ w) @ _OUT)


def _in_a_loss(op, x, w):
    return _loss(op(x @ w) @ _OUT)


def _by_hand(forward, slope):
    """An elementwise op with a slope of its own."""

    @tf.custom_gradient
    def op(x):
        return forward(x), lambda u: u * tf.cast(slope(x), u.dtype)

    return op


@tf.custom_gradient
def _largest_to_both(x):
    """The larger of neighbours, whose gradient gives the whole upstream to both if they are equal."""
    left, right = x, tf.roll(x, 1, axis=-1)

    def gradient(u):
        return u * tf.cast(left >= right, u.dtype) + tf.roll(u * tf.cast(right >= left, u.dtype), -1, axis=-1)

    return tf.maximum(left, right), gradient


# In a network with relus, by what is true of the op by itself.
_WRITTEN = {
    "tanh by hand": ("undecidable", _by_hand(tf.tanh, lambda x: 1 - tf.tanh(x) ** 2)),
    "half a tanh": ("not green", _by_hand(tf.tanh, lambda x: 0.5 - 0.5 * tf.tanh(x) ** 2)),
    "relu by hand": ("undecidable", _by_hand(tf.nn.relu, lambda x: x > 0)),
    "largest to both": ("not green", _largest_to_both),
}
_CHAINS = {
    "relu": lambda x: tf.nn.relu(x @ _IN) @ _OUT,
    "a loss of relu": lambda x: _loss(tf.nn.relu(x @ _IN) @ _OUT),
    "maximum": lambda x: tf.maximum(x @ _IN, 0.0) @ _OUT,
    "relu6": lambda x: tf.nn.relu6(x @ _IN) @ _OUT,
    "clip": lambda x: tf.clip_by_value(x @ _IN, 0.0, 1.0) @ _OUT,
    "hinge": lambda x: tf.reduce_mean(tf.nn.relu(1.0 - tf.cos(x) + x) - 3 * tf.nn.relu(-x), axis=-1),
    "of both signs": lambda x: tf.nn.relu(x) - 2 * tf.nn.relu(-x),
    "of differences": lambda x: (
        3 * tf.abs(x[:, :2] - x[:, 1:]) - tf.nn.relu(x[:, :2]) + 2 * tf.nn.relu(-x[:, 1:])
    ),
    "nearly normalised": lambda x: tf.math.l2_normalize(tf.nn.relu(x @ _IN) @ _OUT, axis=-1),
}


def _of_chains():
    """A row of zeros in front of several ops: no slope of the function is what the chain rule makes of it."""
    x = _tensor([[0.0, 0.0, 0.0], [1.0, 0.5, -2.0]])
    for name, forward in _CHAINS.items():
        yield _row(f"zeros into {name}", "undecidable", forward, x=x)
    eagerly = {"modes": ["eager"]}
    yield _row("zeros into relu, eagerly", "undecidable", _CHAINS["relu"], keys=eagerly, x=x)
    # What is written in TensorFlow itself is TensorFlow's own, also where it has a tf.custom_gradient.
    for mode in ("graph", "eager"):
        keys = {"modes": [mode]}
        right = lambda x: _CHAINS["of both signs"](tf.nn.silu(x))  # noqa: E731
        wrong = lambda x: 2 * _relu_of_nine(tf.nn.silu(x))  # noqa: E731
        yield _row(f"zeros into silu and {mode}", "undecidable", right, keys=keys, x=x)
        yield _row(f"zeros into silu, wrong, {mode}", "wrong", wrong, keys=keys, x=x)
    for name, (truth, op) in _WRITTEN.items():
        yield _row(f"zeros into {name}", truth, lambda x, op=op: op(x @ _IN) @ _OUT, x=x)
    both = {"x": x, "w": {"shape": [3, 20]}}
    for seed in range(4):
        keys = {"seed": seed}
        for name in ("tanh by hand", "half a tanh"):
            truth, op = _WRITTEN[name]
            forward = partial(_before_relu, op)
            yield _row(f"zeros into {name} and relu {seed}", truth, forward, keys=keys, **both)
        truth, op = _WRITTEN["relu by hand"]
        forward = partial(_in_a_loss, op)
        yield _row(f"zeros into a loss of relu by hand {seed}", truth, forward, keys=keys, **both)
    yield _row("zeros into both halves of x", "wrong", lambda x: tf.nn.relu(x) - tf.nn.relu(-x), x=x)
    yield _row("zeros into a norm", "wrong", lambda x: tf.norm(x, axis=-1) + tf.nn.relu(x[:, 0]), x=x)
    yield _row("zeros into a wrong relu", "wrong", lambda x: 2 * _relu_of_nine(x), x=x)
    yield _row("zeros into wrong relus", "not green", lambda x: _relu_of_nine(x @ _IN) @ _OUT, x=x)
    keys, functions = {"reference": "of_a_row:meant"}, {"meant": _CHAINS["of both signs"]}
    forward = _CHAINS["of both signs"]
    yield _row("zeros, and a reference", "wrong", forward, keys=keys, functions=functions, x=x)

    # The same with a gradient of one's own: it says what it likes at a kink, and none of this is a slope.
    def by_hand(op, u):
        return u * (tf.cast(op.inputs[0] > 0, u.dtype) + 2 * tf.cast(op.inputs[0] < 0, u.dtype))

    yield _row("zeros into relu, by hand", "wrong", forward, by_hand, x=x)


_ALL = (
    *_of_reductions(),
    *_of_drawn_ones(),
    *_of_chains(),
    *(
        _of_two(kind, forward, slope)
        for kind in _PAIRS
        for forward, slope in (
            (tf.maximum, lambda x, y: tf.cast(x > y, x.dtype)),
            (tf.minimum, lambda x, y: tf.cast(x < y, x.dtype)),
        )
    ),
    *_of_differences(),
    *_of_sorts(),
    *_of_networks(),
    *_of_norms(),
    *_of_smooth_ones(),
    *_of_other_kinds(),
)

# The name of an op has neither spaces nor commas.
ROWS = marked(
    tuple(replace(one, name=one.name.replace(",", ":").replace(" ", "_")) for one in _ALL),
    "a_square_of_a_maximum:_second_order",
    "cummax",
    "drawn_windows_of_7:_full",
    "largest_part_of_complex:_full",
    "largest_part_of_complex:_shared",
    "norm_at_zero:_zero",
    "zeros_into_half_a_tanh_and_relu_1",
    "zeros_into_silu:_wrong:_graph",
)
