"""Adjoints that are solved for by steps until an absolute error, and vjps that really aren't linear."""

import tensorflow as tf

from tests.support.row import Row, marked

MATRIX = [[4.0, 1.0, 0.0], [1.0, 5.0, 1.0], [0.0, 1.0, 6.0]]


def matrix(like):
    return tf.constant(MATRIX, like.dtype)


def conjugate_gradients(b, least):
    """Solve until the residual's norm is at most `least`."""
    a, zero = matrix(b), tf.zeros_like(b)

    def step(x, rest, direction, size):
        image = tf.linalg.matvec(a, direction)
        share = size / tf.reduce_sum(direction * image)
        rest -= share * image
        new_size = tf.reduce_sum(rest * rest)
        return x + share * direction, rest, rest + new_size / size * direction, new_size

    def goes_on(_x, _rest, _direction, size):
        return size > tf.cast(least, b.dtype) ** 2

    return tf.while_loop(goes_on, step, (zero, b, b, tf.reduce_sum(b * b)), maximum_iterations=20)[0]


def by_steps(b, least):
    """Jacobi's iteration, until a step is at most `least` long."""
    a = matrix(b)
    diagonal = tf.linalg.diag_part(a)

    def step(x, _length):
        change = (b - tf.linalg.matvec(a, x)) / diagonal
        return x + change, tf.norm(change)

    start = (tf.zeros_like(b), tf.norm(b) + tf.cast(2 * least, b.dtype))
    return tf.while_loop(
        lambda _x, length: length > tf.cast(least, b.dtype), step, start, maximum_iterations=60
    )[0]


def solved(adjoint):
    @tf.custom_gradient
    def call(x):
        return tf.linalg.solve(matrix(x), x[:, None])[:, 0], adjoint

    return call


def two(adjoint):
    @tf.custom_gradient
    def call(x):
        y = tf.linalg.solve(matrix(x), x[:, None])[:, 0]
        return (y, 2 * y), lambda u, v: adjoint(u) + 2 * adjoint(v)

    return call


def exactly(b):
    return tf.linalg.solve(matrix(b), b[:, None])[:, 0]


def relative(solve):
    def adjoint(u):
        size = tf.norm(u)
        safe = tf.where(size > 0, size, tf.ones_like(size))
        return size * solve(u / safe, 1e-9)

    return adjoint


def dropped(below):
    return lambda u: exactly(tf.where(tf.abs(u) < tf.cast(below, u.dtype), tf.zeros_like(u), u))


# What is wrong for upstreams of a size that a loss has, or by far more than a solver leaves.
BENT = {
    "dropped_1e-3": dropped(1e-3),
    "dropped_3e-5": dropped(3e-5),
    "clipped": lambda u: exactly(tf.clip_by_value(u, -1, 1)),
    "tanh": lambda u: exactly(tf.tanh(u)),
    "norm": lambda u: exactly(u / (1e-3 + tf.norm(u)) * tf.norm(u)),
    "guarded": lambda u: exactly(u * tf.abs(u) / (tf.abs(u) + 1e-4)),
    "square": lambda u: exactly(u + 1e-4 * u * u),
    "negative": lambda u: exactly(tf.where(u < 0, 0.9 * u, u)),
    "added": lambda u: exactly(u) + 1e-8,
    "few_steps": lambda u: by_steps(u, 1e-2),
}


def rows():
    for dtype in ("float64", "float32"):
        x = {"x": {"shape": [3], "dtype": dtype}}
        solvers = {"conjugate": conjugate_gradients, "jacobi": by_steps}
        for name, solve in solvers.items():
            for least in (1e-7, 1e-8, 1e-10, 1e-12):
                adjoint = lambda u, solve=solve, least=least: solve(u, least)  # noqa: E731 (one for each)
                yield Row(f"{name}_{least}_{dtype}", solved(adjoint), None, x, "undecidable")
            yield Row(f"{name}_relative_{dtype}", solved(relative(solve)), None, x, "right")
            twice = lambda u, solve=solve: 2 * solve(u, 1e-9)  # noqa: E731
            yield Row(f"{name}_doubled_{dtype}", solved(twice), None, x, "wrong")
        outputs = {"outputs": ["y", "z"]}
        last = lambda u: conjugate_gradients(u, 1e-9)  # noqa: E731
        yield Row(f"two_outputs_{dtype}", two(last), None, x, "undecidable", keys=outputs)
        for name, adjoint in BENT.items():
            if dtype == "float32" and name in {"dropped_3e-5", "added"}:
                continue
            yield Row(f"{name}_{dtype}", solved(adjoint), None, x, "wrong")
    yield Row("modes", solved(last), None, x, "undecidable", keys={"modes": ["dynamic", "eager"]})


ROWS = marked(tuple(rows()), "conjugate_1e-07_float64")
