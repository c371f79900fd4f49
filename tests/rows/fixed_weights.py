"""Variables that nobody trains: a right gradient may rely on what they are, a wrong one forgets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.rows.stuck import own
from tests.support.row import Row, marked

X = {"x": {"shape": [4, 3]}}
ADJACENCY = np.array([[0.5, 0.5, 0, 0], [0.5, 0.3, 0.4, 0], [0, 0.4, 0.3, 0.5], [0, 0, 0.5, 0.5]])
RING = (np.eye(4) + np.eye(4)[[1, 2, 3, 0]] + np.eye(4)[[3, 0, 1, 2]]) / 3
LAPLACIAN = np.diag(ADJACENCY.sum(axis=1)) - ADJACENCY
HADAMARD = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
TURN = np.linalg.qr(np.array([[1.0, 2, 0], [0, 1, 3], [1, 0, 1]]))[0]
COLOURS = np.array([[0.299, -0.169, 0.5], [0.587, -0.331, -0.419], [0.114, 0.5, -0.081]])
TRIANGLE = np.array([[1.5, 0, 0], [0.3, 0.8, 0], [-0.4, 0.6, 1.2]])
PERMUTATION = np.eye(4)[[1, 2, 3, 0]]
AXIS, PRIOR, MASK = np.array([0.6, 0.0, 0.8]), np.array([0.2, 0.3, 0.5]), np.array([1.0, 0.0, 1.0])
Forward = Callable[..., Any]


def _cross_entropy(x: Any, prior: Any) -> Any:
    return -tf.reduce_sum(prior * tf.nn.log_softmax(x), -1)


def _reflect(x: Any, axis: Any) -> Any:
    return x - 2 * tf.reduce_sum(x * axis, -1, keepdims=True) * axis / tf.reduce_sum(axis * axis)


def _reflect_unit(upstream: Any, _: Any, axis: Any) -> tuple[Any, None]:
    return upstream - 2 * tf.reduce_sum(upstream * axis, -1, keepdims=True) * axis, None


def _blur(x: Any, kernel: Any) -> Any:
    return tf.nn.conv1d(x[..., None], kernel[:, None, None], 1, "SAME")[..., 0]


# The gradient of each is right for what its variable is.
RIGHT: dict[str, tuple[Forward, Any]] = {
    "adjacency": (own(lambda x, a: a @ x, lambda u, _, a: (a @ u, None)), ADJACENCY),
    "adjacency-of-a-ring": (own(lambda x, a: a @ x, lambda u, _, a: (a @ u, None)), RING),
    "laplacian": (own(lambda x, a: a @ x, lambda u, _, a: (a @ u, None)), LAPLACIAN),
    "hadamard": (own(lambda x, h: h @ x, lambda u, _, h: (h @ u, None)), HADAMARD),
    "hadamard-inverse": (own(lambda x, h: h @ x, lambda u, _, h: (tf.linalg.inv(h) @ u, None)), HADAMARD),
    "turn": (own(lambda x, q: x @ q, lambda u, _, q: (u @ tf.linalg.inv(q), None)), TURN),
    "permutation": (own(lambda x, p: p @ x, lambda u, _, p: (tf.linalg.inv(p) @ u, None)), PERMUTATION),
    "unit-axis": (own(_reflect, _reflect_unit), AXIS),
    "prior": (own(_cross_entropy, lambda u, x, p: (u[:, None] * (tf.nn.softmax(x) - p), None)), PRIOR),
    "mask": (own(lambda x, m: x * m, lambda u, _, m: (tf.where(m > 0, u, 0 * u), None)), MASK),
    "blur": (own(_blur, lambda u, _, k: (_blur(u, k), None)), np.array([1.0, 2, 1]) / 4),
    "causal-mask": (
        own(lambda x, m: m @ x, lambda u, *_: (tf.cumsum(u, 0, reverse=True), None)),
        np.tril(np.ones((4, 4))),
    ),
}
# Each relies on what its values are beside numbers: columns of length 1, an inverse, a triangle.
RELYING: dict[str, tuple[Forward, Any]] = {
    "frame": (own(lambda x, q: x @ q, lambda u, _, q: (u @ tf.linalg.pinv(q), None)), TURN[:, :2]),
    "and-its-inverse": (
        own(lambda x, p: x @ p[0], lambda u, _, p: (u @ tf.transpose(tf.linalg.inv(p[1])), None)),
        np.stack([COLOURS, np.linalg.inv(COLOURS)]),
    ),
    "and-its-transpose": (
        own(lambda x, p: x @ p[0], lambda u, _, p: (u @ p[1], None)),
        np.stack([COLOURS, COLOURS.T]),
    ),
    "triangle": (
        own(
            lambda x, a: tf.linalg.solve(a, tf.transpose(x)),
            lambda u, _, a: (tf.transpose(tf.linalg.triangular_solve(a, u, adjoint=True)), None),
        ),
        TRIANGLE,
    ),
    "diagonal": (
        own(lambda x, d: x @ d, lambda u, _, d: (u * tf.linalg.diag_part(d), None)),
        np.diag([1.0, 2, 0.5]),
    ),
    "idempotent": (
        own(lambda x, p: x @ p, lambda u, _, p: (u @ tf.transpose(p @ p), None)),
        np.array([[1.0, 0.5, 0.25], [0, 0, -0.5], [0, 0, 1]]),
    ),
    "ramp": (own(lambda x, w: x * w, lambda u, _, w: (u * (1 - w[::-1]), None)), np.array([0.2, 0.5, 0.8])),
}
# Wrong at other values than the first ones, or at all.
WRONG: dict[str, tuple[Forward, Any]] = {
    "variance": (own(lambda x, v: x / tf.sqrt(v), lambda u, *_: (u, None)), np.ones(3)),
    "whitening": (own(lambda x, w: x @ w, lambda u, *_: (u, None)), np.eye(3)),
    "whitening-not-transposed": (own(lambda x, w: x @ w, lambda u, _, w: (u @ w, None)), np.eye(3)),
    "turn-not-transposed": (own(lambda x, q: x @ q, lambda u, _, q: (u @ q, None)), TURN),
    "blur-not-flipped": (own(_blur, lambda u, _, k: (_blur(u, k), None)), np.array([1.0, 2, 3]) / 4),
    "box-forgotten": (own(_blur, lambda u, *_: (_blur(u, tf.ones(3, u.dtype)), None)), np.ones(3)),
    "mask-forgotten": (own(lambda x, m: x * m, lambda u, *_: (u, None)), MASK),
    "prior-forgotten": (
        own(_cross_entropy, lambda u, x, _: (u[:, None] * (tf.nn.softmax(x) - 1 / 3), None)),
        np.ones(3) / 3,
    ),
}


def _layer(forward: Forward, value: Any, *, trainable: bool) -> type:
    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = tf.Variable(value, trainable=trainable, dtype=tf.float64)

        def __call__(self, x: Any) -> Any:
            return forward(x, tf.convert_to_tensor(self.own))

    return Layer


def _row(name: str, forward: Forward, value: Any, truth: str, *, trainable: bool = False, **keys: Any) -> Row:
    functions = {"Layer": _layer(forward, value, trainable=trainable)}
    return Row(name, "of_a_row:Layer", None, X, truth, keys={"build": {}, **keys}, functions=functions)


def rows() -> Iterator[Row]:
    """Yield the rows."""
    for truth, table in (("right", RIGHT | RELYING), ("wrong", WRONG)):
        for name, (forward, value) in table.items():
            yield _row(name, forward, value, truth)
            yield _row(f"{name}-eager", forward, value, truth, modes=["eager"])
    # What is trained doesn't stay what it was.
    for name in ("adjacency", "turn", "prior", "frame", "triangle"):
        yield _row(f"{name}-trained", *(RIGHT | RELYING)[name], "wrong", trainable=True)


ROWS = marked(
    rows(),
    "adjacency",
    "adjacency-of-a-ring",
    "adjacency-trained",
    "blur",
    "hadamard-inverse",
    "laplacian",
    "mask",
    "permutation",
    "prior",
    "turn",
    "triangle",
    "unit-axis",
    "variance",
    "variance-eager",
    "whitening-not-transposed",
)
