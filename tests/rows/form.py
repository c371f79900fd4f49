"""Gradients of wrong form: one input's says nothing of the others, and nobody's own says nothing at all."""

import tensorflow as tf

from tests.support.row import Row, marked

FORMS = {
    "too_short": lambda g: g[:1],
    "too_many_dimensions": lambda g: g[None],
    "not_summed": lambda g: g + tf.zeros([4, 1], g.dtype),
    "scalar": tf.reduce_sum,
}


def custom(form, guilty=(1,), factor=1.0):
    """x * w + v, with gradients of wrong form for some arguments, and x's times a factor."""

    @tf.custom_gradient
    def call(x, w, v):
        def gradient(u):
            found = [factor * u * w, u * x, u]
            return [form(one) if number in guilty else one for number, one in enumerate(found)]

        return x * w + v, gradient

    return call


def of(form, guilty=(1,), factor=1.0):
    """The same as a gradient of its own."""

    def gradient(op, u):
        x, w, _ = op.inputs
        found = [factor * u * w, u * x, u]
        return [form(one) if number in guilty else one for number, one in enumerate(found)]

    return gradient


def plain(x, w, v):
    return x * w + v


def through_a_constant(form):
    """The guilty argument is a constant of the forward's own: nobody differentiates it."""
    return lambda x, v: custom(form)(x, tf.constant([1.0, 2.0, 3.0], x.dtype), v)


def with_an_integer(form, factor=1.0):
    """x to the power of an integer, for which there is a gradient that a tape drops."""

    @tf.custom_gradient
    def call(x, n):
        power = tf.cast(n, x.dtype)

        def gradient(u):
            return factor * u * power * x ** (power - 1), form(u * tf.math.log(tf.abs(x)) * x**power)

        return x**power, gradient

    return call


def inputs(*, passed=()):
    found = {name: {"shape": [3]} for name in ("x", "w", "v")}
    for name in passed:
        found[name]["differentiate"] = False
    return found


def rows():
    two = {name: {"shape": [3]} for name in ("x", "v")}
    count = {"x": {"shape": [3]}, "n": {"value": 3, "dtype": "int32"}}
    for name, form in FORMS.items():
        yield Row(f"{name}_of_one", custom(form), None, inputs(), "wrong")
        yield Row(f"{name}_own", plain, of(form), inputs(), "wrong")
        yield Row(f"{name}_passed_through", custom(form), None, inputs(passed=["w"]), "right")
        yield Row(f"{name}_passed_through_own", plain, of(form), inputs(passed=["w"]), "right")
        yield Row(f"{name}_of_an_integer", with_an_integer(form), None, count, "right")
        yield Row(f"{name}_of_an_integer_and_x_wrong", with_an_integer(form, 1.01), None, count, "wrong")
        yield Row(f"{name}_of_a_constant", through_a_constant(form), None, two, "right")
        keys = {"pairs": {"dy/dw": {"expect": "mismatch", "reason": "its shape"}}}
        yield Row(f"{name}_and_x_wrong", custom(form, factor=1.01), None, inputs(passed=["w"]), "wrong")
        yield Row(f"{name}_expected", custom(form, factor=1.01), None, inputs(), "wrong", keys=keys)


ROWS = marked(tuple(rows()))
