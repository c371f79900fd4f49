"""Functions of a symmetric matrix that read one triangle of it, and gradients by either convention."""

import tensorflow as tf
from attacking import Attack

SPD = {"shape": [3, 3], "spd": True, "symmetric": True}
LOOSE = {"shape": [3, 3], "spd": True}
COMPLEX = {**SPD, "dtype": "complex128"}


def logdet(x):
    return 2 * tf.reduce_sum(tf.math.log(tf.math.real(tf.linalg.diag_part(tf.linalg.cholesky(x)))))


def solve(x, b):
    return tf.linalg.cholesky_solve(tf.linalg.cholesky(x), b)


def eigenvalues(x):
    return tf.linalg.eigvalsh(x)


def one_triangle(x):
    """Reads the lower triangle only, and knows it."""
    lower = tf.linalg.band_part(x, -1, 0)
    return tf.sin(lower) + tf.reduce_sum(lower**2)


def own_logdet(form):
    """The log determinant by its Cholesky factor, with a gradient of a chosen form."""

    @tf.custom_gradient
    def call(x):
        def gradient(u):
            return u * form(tf.linalg.inv(x))

        return logdet(x), gradient

    return call


def lower_twice(g):
    diagonal = tf.linalg.diag(tf.linalg.diag_part(g))
    return 2 * tf.linalg.band_part(g, -1, 0) - diagonal


def upper_twice(g):
    return tf.transpose(lower_twice(g))


FORMS = {
    "symmetric": (lambda g: g, "right"),
    "lower_twice": (lower_twice, "right"),
    "upper_twice": (upper_twice, "right"),
    "lower_once": (lambda g: tf.linalg.band_part(g, -1, 0), "wrong"),
    "both_twice": (lambda g: 2 * g - tf.linalg.diag(tf.linalg.diag_part(g)), "wrong"),
    "diagonal_twice": (lambda g: g + tf.linalg.diag(tf.linalg.diag_part(g)), "wrong"),
    "one_percent_off": (lambda g: 1.01 * g, "wrong"),
    "diagonal_alone": (lambda g: tf.linalg.diag(tf.linalg.diag_part(g)), "wrong"),
}


def attacks():
    yield Attack("cholesky", "right", {"x": SPD}, tf.linalg.cholesky)
    yield Attack("cholesky_float32", "right", {"x": {**SPD, "dtype": "float32"}}, tf.linalg.cholesky)
    yield Attack("cholesky_complex", "right", {"x": COMPLEX}, tf.linalg.cholesky)
    yield Attack("logdet", "right", {"x": SPD}, logdet)
    yield Attack("logdet_complex", "right", {"x": COMPLEX}, logdet)
    yield Attack("solve", "right", {"x": SPD, "b": {"shape": [3, 2]}}, solve)
    yield Attack("eigenvalues", "right", {"x": SPD}, eigenvalues)
    yield Attack("eigenvalues_complex", "right", {"x": COMPLEX}, eigenvalues)
    yield Attack("stack", "right", {"x": {**SPD, "shape": [2, 3, 3]}}, tf.linalg.cholesky)
    yield Attack("plain", "right", {"x": {"shape": [3, 3], "symmetric": True}}, lambda x: tf.sin(x) @ x)
    yield Attack("one_triangle", "right", {"x": {"shape": [3, 3], "symmetric": True}}, one_triangle)
    yield Attack(
        "value", "right", {"x": {"value": [[2, 0.5], [0.5, 1]], "symmetric": True}}, tf.linalg.cholesky
    )
    for name, (form, truth) in FORMS.items():
        yield Attack(f"own_{name}", truth, {"x": SPD}, own_logdet(form))
    yield Attack("cholesky_moved_freely", "wrong", {"x": LOOSE}, tf.linalg.cholesky)
    yield Attack("second_order", "right", {"x": SPD}, logdet, keys={"second_order": True})


ATTACKS = tuple(attacks())
