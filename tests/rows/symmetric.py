"""Functions of a symmetric matrix that read one triangle of it, and gradients by either convention."""

import tensorflow as tf

from tests.support.row import Row, marked

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


def shared(inner):
    """Squares of one triangle; the gradient shares them among both, as if the other one were read, too."""

    @tf.custom_gradient
    def squares(x):
        lower = tf.linalg.band_part(x, -1, 0)

        def gradient(u):
            slope = 2 * u * lower
            return (slope + tf.transpose(slope)) / 2

        return tf.reduce_sum(lower**2), gradient

    return lambda x: squares(inner(x))


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


def rows():
    yield Row("cholesky", tf.linalg.cholesky, None, {"x": SPD}, "right")
    yield Row("cholesky_float32", tf.linalg.cholesky, None, {"x": {**SPD, "dtype": "float32"}}, "right")
    yield Row("cholesky_complex", tf.linalg.cholesky, None, {"x": COMPLEX}, "right")
    yield Row("logdet", logdet, None, {"x": SPD}, "right")
    yield Row("logdet_complex", logdet, None, {"x": COMPLEX}, "right")
    yield Row("solve", solve, None, {"x": SPD, "b": {"shape": [3, 2]}}, "right")
    yield Row("eigenvalues", eigenvalues, None, {"x": SPD}, "right")
    yield Row("eigenvalues_complex", eigenvalues, None, {"x": COMPLEX}, "right")
    yield Row("stack", tf.linalg.cholesky, None, {"x": {**SPD, "shape": [2, 3, 3]}}, "right")
    yield Row("plain", lambda x: tf.sin(x) @ x, None, {"x": {"shape": [3, 3], "symmetric": True}}, "right")
    yield Row("one_triangle", one_triangle, None, {"x": {"shape": [3, 3], "symmetric": True}}, "right")
    yield Row(
        "value", tf.linalg.cholesky, None, {"x": {"value": [[2, 0.5], [0.5, 1]], "symmetric": True}}, "right"
    )
    for name, (form, truth) in FORMS.items():
        yield Row(f"own_{name}", own_logdet(form), None, {"x": SPD}, truth)
        yield Row(f"own_{name}_unsaid", own_logdet(form), None, {"x": LOOSE}, truth)
    yield Row("cholesky_unsaid", tf.linalg.cholesky, None, {"x": LOOSE}, "right")
    yield Row(
        "cholesky_unsaid_float32", tf.linalg.cholesky, None, {"x": {**LOOSE, "dtype": "float32"}}, "right"
    )
    yield Row("solve_unsaid", solve, None, {"x": LOOSE, "b": {"shape": [3, 2]}}, "right")
    yield Row(
        "eigenvalues_unsaid_complex", eigenvalues, None, {"x": {**LOOSE, "dtype": "complex128"}}, "right"
    )
    yield Row("stack_unsaid", tf.linalg.cholesky, None, {"x": {**LOOSE, "shape": [2, 3, 3]}}, "right")
    yield Row("second_order_unsaid", logdet, None, {"x": LOOSE}, "right", keys={"second_order": True})
    yield Row("stated", tf.linalg.cholesky, None, {"x": {"value": [[2, 0.5], [0.5, 1]]}}, "undecidable")
    yield Row("identity", logdet, None, {"x": {"value": [[1, 0], [0, 1]]}}, "undecidable")
    yield Row("drawn", one_triangle, None, {"x": {"shape": [3, 3]}}, "right")
    yield Row("shared_by_both", shared(tf.identity), None, {"x": {"shape": [3, 3]}}, "wrong")
    yield Row("shared_by_both_of_spd", shared(tf.identity), None, {"x": LOOSE}, "right")
    yield Row("shared_by_both_of_product", shared(lambda x: x @ x), None, {"x": LOOSE}, "wrong")
    yield Row("second_order", logdet, None, {"x": SPD}, "right", keys={"second_order": True})


ROWS = marked(tuple(rows()), "own_lower_once", "own_symmetric")
