"""Forwards and adjoints that are solved for by steps until an error, and vjps that really aren't linear."""

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


def settled(x, least):
    """Return the fixed point of `tanh(A y + x)`, by steps until one is at most `least` long."""

    def step(y, _length):
        new = tf.tanh(tf.linalg.matvec(matrix(x), y) / 10 + x)
        return new, tf.norm(new - y)

    start = (tf.zeros_like(x), tf.norm(x) + 1)
    return tf.while_loop(lambda _y, length: length > least, step, start, maximum_iterations=99)[0]


@tf.function
def settled_by_break(x, least):
    y = tf.zeros_like(x)
    for _ in tf.range(99):
        new = tf.tanh(tf.linalg.matvec(matrix(x), y) / 10 + x)
        if tf.norm(new - y) < least:
            break
        y = new
    return y


@tf.function
def settled_in_steps(x, count):
    y = tf.zeros_like(x)
    for _ in tf.range(count):
        y = tf.tanh(tf.linalg.matvec(matrix(x), y) / 10 + x)
    return y


def at_limit(solve, least, *, factor=1.0, is_transposed=True):
    """A fixed point with the gradient of the limit, or a wrong one."""

    @tf.custom_gradient
    def call(x):
        y = solve(x, least)
        slope = 1 - y * y
        of_step = tf.eye(3, dtype=y.dtype) - slope[:, None] * matrix(y) / 10

        def gradient(u):
            return factor * tf.linalg.solve(of_step, u[:, None], adjoint=is_transposed)[:, 0] * slope

        return y, gradient

    return call


def solution(solve, least, *, factor=1.0):
    """A solution by steps, with the gradient of the exact one, or a wrong one."""
    return tf.custom_gradient(lambda x: (solve(x, least), lambda u: factor * exactly(u)))


@tf.custom_gradient
def rooted(x):
    """Roots until all are small: a loop without a tolerance, which changes the slope each time."""

    def step(y, k):
        return tf.sqrt(y), 2 * k

    y, k = tf.while_loop(lambda y, _: tf.reduce_max(y) > 1.5, step, (x, tf.ones([], x.dtype)))
    return y, lambda u: 1.001 * u * y / (k * x)


def written(size):
    """All values of a loop that shrinks them, off by a half; in an array that has an end, or grows."""

    @tf.custom_gradient
    def call(x):
        array = tf.TensorArray(x.dtype, size=size, dynamic_size=not size, element_shape=x.shape)

        def goes_on(i, y, _array):
            return (tf.norm(y) > 1e-2) & (i < (size or 99))

        def step(i, y, array):
            return i + 1, 0.5 * tf.tanh(y), array.write(i, y)

        array = tf.while_loop(goes_on, step, (0, x, array))[2]
        return array.stack(), lambda u: 1.5 * tf.reduce_sum(u, 0)

    return call


def limits():
    """Gradients of the limit of a loop that stops before, and of loops whose values don't stop them."""
    for dtype in ("float64", "float32"):
        x = {"x": {"shape": [3], "dtype": dtype}}
        for name, solve in (("while", settled), ("break", settled_by_break)):
            for least in (1e-3, 1e-5, 1e-7):
                of = f"{name}_{least}_{dtype}"
                yield Row(f"limit_of_{of}", at_limit(solve, least), None, x, "undecidable")
                wrong = at_limit(solve, least, factor=1.01)
                yield Row(f"limit_of_{of}_one_percent_off", wrong, None, x, "wrong")
                wrong = at_limit(solve, least, is_transposed=False)
                yield Row(f"limit_of_{of}_not_transposed", wrong, None, x, "wrong")
        early = at_limit(settled_in_steps, 5)
        yield Row(f"limit_of_five_steps_{dtype}", early, None, x, "wrong", "five are what it is")
        for name, solve in (("conjugate", conjugate_gradients), ("jacobi", by_steps)):
            for least in (1e-2, 1e-5):
                of = f"{name}_{least}_{dtype}"
                yield Row(f"limit_of_{of}", solution(solve, least), None, x, "undecidable")
                wrong = solution(solve, least, factor=1.02)
                why = "where rounds are few, their number changes beside the point, and values jump"
                yield Row(f"limit_of_{of}_off", wrong, None, x, "wrong" if least < 1e-2 else "not green", why)
    yield Row("roots", rooted, None, {"x": {"shape": [3], "uniform": {"low": 2, "high": 9}}}, "wrong")
    for size in (0, 5):
        yield Row(
            f"written_{size}", written(size), None, {"x": {"shape": [3]}}, "wrong", "and nothing is an error"
        )
    x, probed = {"x": {"shape": [3]}}, {"method": "probe"}
    yield Row("limit_probed", at_limit(settled, 1e-5), None, x, "undecidable", keys=probed)
    wrong = at_limit(settled, 1e-5, factor=1.01)
    yield Row("limit_probed_one_percent_off", wrong, None, x, "wrong", keys=probed)


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


ROWS = marked((*rows(), *limits()), "conjugate_1e-07_float64", "limit_of_break_1e-05_float64")
