"""Networks with an error in the gradient of one of their parts, each planted by a wrapped custom gradient."""

from __future__ import annotations

import tensorflow as tf


def _altered(alter):
    """Return an identity whose gradient is altered."""

    @tf.custom_gradient
    def identity(x):
        return tf.identity(x), alter

    return identity


def _scaled(place, size):
    """Return what multiplies one element of a gradient by 1 + size; nothing where there is no place."""

    def alter(upstream):
        if place is None:
            return upstream
        factor = tf.scatter_nd([place], [size], upstream.shape) + 1.0
        return upstream * tf.cast(factor, upstream.dtype)

    return alter


def _loss(logits, labels, alter=None):
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(each if alter is None else _altered(alter)(each))


_UNITS, _WIDTH = 16, 16
WEIGHTS = {
    "mlp": {"first": (16, 64), "a": (64,), "middle": (64, 64), "b": (64,), "last": (64, 10)},
    "lstm": {
        "kernel": (8, 4 * _UNITS),
        "recurrent": (_UNITS, 4 * _UNITS),
        "bias": (4 * _UNITS,),
        "last": (_UNITS, 10),
    },
    "transformer": {
        **dict.fromkeys(("query", "key", "value", "output"), (_WIDTH, _WIDTH)),
        "up": (_WIDTH, 64),
        "down": (64, _WIDTH),
        "last": (_WIDTH, 10),
    },
}


def _variables(name):
    """Return a model's weights by name; the same each time."""
    generator = tf.random.Generator.from_seed(1 + list(WEIGHTS).index(name))
    drawn = {weight: generator.normal(shape, stddev=0.3) for weight, shape in WEIGHTS[name].items()}
    return {weight: tf.Variable(value, name=weight) for weight, value in drawn.items()}


def mlp(place=None, size=0.0, mistake=""):
    """Return the loss of two dense layers; an error in the middle one's kernel, or a mistake."""
    w = _variables("mlp")
    lose_bias = _altered(tf.zeros_like) if mistake == "dropped bias" else tf.identity
    wrapped = _altered(_scaled(place, size))

    def forward(x, labels):
        h = tf.tanh(x @ w["first"] + w["a"])
        h = tf.tanh(h @ wrapped(w["middle"]) + lose_bias(w["b"]))
        forgets = (lambda upstream: upstream * float(labels.shape[0])) if mistake == "no mean" else None
        return _loss(h @ w["last"], labels, forgets)

    return forward


def lstm(place=None, size=0.0, mistake=""):
    """Return the loss of an LSTM, step by step; an error in its recurrent kernel, or a mistake."""
    w = _variables("lstm")

    def swap(upstream):
        first, second, *rest = tf.split(upstream, 4, axis=-1)
        return tf.concat([second, first, *rest], axis=-1)

    swapped = _altered(swap) if mistake == "swapped gates" else tf.identity
    wrapped = _altered(_scaled(place, size))

    def forward(x, labels):
        h = c = tf.zeros((x.shape[0], _UNITS), x.dtype)
        recurrent = wrapped(w["recurrent"])
        for step in range(x.shape[1]):
            gates = swapped(x[:, step] @ w["kernel"] + h @ recurrent + w["bias"])
            into, forget, new, out = tf.split(gates, 4, axis=-1)
            c = tf.sigmoid(forget) * c + tf.sigmoid(into) * tf.tanh(new)
            h = tf.sigmoid(out) * tf.tanh(c)
        return _loss(h @ w["last"], labels)

    return forward


def transformer(place=None, size=0.0, mistake=""):
    """Return the loss of an attention block; an error in its query's kernel, or a mistake."""
    w = _variables("transformer")
    wrapped = _altered(_scaled(place, size))

    @tf.custom_gradient
    def masked_softmax(scores, mask):
        y = tf.nn.softmax(scores + mask)

        def gradient(upstream):
            # The mistake: the gradient of a softmax over all positions, as if none were masked.
            s = tf.nn.softmax(scores) if mistake == "forgotten mask" else y
            return s * (upstream - tf.reduce_sum(upstream * s, -1, keepdims=True)), None

        return y, gradient

    def forward(x, labels):
        length = x.shape[1]
        mask = -1e9 * (1.0 - tf.linalg.band_part(tf.ones((length, length), x.dtype), -1, 0))
        query, key = x @ wrapped(w["query"]), x @ w["key"]
        scores = masked_softmax(tf.matmul(query, key, transpose_b=True) / 4.0, mask)
        h = x + (scores @ (x @ w["value"])) @ w["output"]
        h = h + tf.nn.gelu(h @ w["up"]) @ w["down"]
        return _loss(tf.reduce_mean(h, axis=1) @ w["last"], labels)

    return forward


# Of each: the weight with the error, its shape, and the shape of the input.
MODELS = {
    "mlp": ("middle", (64, 64), (8, 16)),
    "lstm": ("recurrent", (16, 64), (4, 6, 8)),
    "transformer": ("query", (16, 16), (2, 6, 16)),
}
MISTAKES = {"dropped bias": "mlp", "no mean": "mlp", "swapped gates": "lstm", "forgotten mask": "transformer"}


def spec_of(name, **build):
    """Return the spec of a model with an error or a mistake; judged by probes alone, at one point."""
    shape = MODELS[name][2]
    return {
        "op": name,
        "forward": f"tests.benchmarks.planted_models:{name}",
        "build": build,
        "variables": True,
        "inputs": {
            "x": {"shape": list(shape), "dtype": "float32"},
            "labels": {"shape": [shape[0]], "dtype": "int32", "integers": {"low": 0, "high": 10}},
        },
        "samples": 1,
        "method": "probe",
        # What is measured is what the probes find: a second trace says nothing of it.
        "checks": {"retrace": False, "linearity": False, "repeat": False, "zero_upstream": False},
    }
