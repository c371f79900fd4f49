"""Custom gradients with settings, of which the gradient function returns `None` or nothing."""

import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [3]}}
MODES = ("graph", "dynamic", "eager")


def powered(factor=1.0, off=0, for_setting=None):
    """x to a whole power, the setting; `off` is what its gradient takes the power for."""

    def call(x, power=2):
        assert isinstance(power, int)

        def gradient(u):
            read = power + off
            dx = factor * u * read * x ** (read - 1)
            return dx if for_setting is None else (dx, for_setting(u))

        return x**power, gradient

    return tf.custom_gradient(call)


def between(factor=1.0):
    """A setting in between, whose gradient is `None`; and one that only names a way."""

    @tf.custom_gradient
    def call(x, power, w, kind="sum"):
        y = x**power + w if kind == "sum" else x**power * w
        dw = tf.ones_like(x) if kind == "sum" else x**power
        rest = tf.ones_like(x) if kind == "sum" else w
        return y, lambda u: (u * rest * power * x ** (power - 1), None, factor * u * dw, None)

    return call


def with_variable(factor=1.0):
    w = tf.Variable([0.5, 1.5, 2.5], dtype=tf.float64)

    @tf.custom_gradient
    def call(x, power=2):
        def gradient(u, variables=None):
            return (u * w * power * x ** (power - 1), None), [factor * u * x**power]

        return w * x**power, gradient

    return call


class Powers:
    """Methods of an object, and of a class."""

    def __init__(self, factor=1.0):
        self.factor = factor

    @tf.custom_gradient
    def method(self, x, power=2):
        return x**power, lambda u: (self.factor * u * power * x ** (power - 1), None)

    @staticmethod
    @tf.custom_gradient
    def static(x, power=2):
        return x**power, lambda u: (u * power * x ** (power - 1), None)


def rows():
    keys = {"attrs": {"power": 3}}
    nothing = {"none": lambda u: None, "zero": tf.zeros_like, "times_0": lambda u: 0 * u[0]}
    for name, for_setting in {"nothing": None, **nothing}.items():
        yield Row(f"right_{name}", powered(for_setting=for_setting), None, X, "right", keys=keys)
        yield Row(f"factor_{name}", powered(1.01, for_setting=for_setting), None, X, "wrong", keys=keys)
        yield Row(f"misread_{name}", powered(off=1, for_setting=for_setting), None, X, "wrong", keys=keys)
    for mode in MODES:
        of_mode = {**keys, "modes": [mode]}
        given = {"ones": tf.ones_like, "sum": tf.reduce_sum}
        for name, for_setting in given.items():
            yield Row(f"{name}_{mode}", powered(for_setting=for_setting), None, X, "unchecked", keys=of_mode)
        yield Row(
            f"under_function_{mode}",
            tf.function(powered(for_setting=lambda u: None)),
            None,
            X,
            "right",
            keys=of_mode,
        )
        two = {**X, "w": {"shape": [3]}}
        for truth, factor in (("right", 1.0), ("wrong", 1.01)):
            many = {"attrs": {"power": 3, "kind": "product"}, "modes": [mode]}
            yield Row(f"between_{mode}_{truth}", between(factor), None, two, truth, keys=many)
            yield Row(f"variable_{mode}_{truth}", with_variable(factor), None, X, truth, keys=of_mode)
            made = {**of_mode, "build": {"factor": factor}}
            functions = {"Powers": Powers}
            method = "of_a_row:Powers.method"
            yield Row(f"method_{mode}_{truth}", method, None, X, truth, keys=made, functions=functions)
        static = "of_a_row:Powers.static"
        yield Row(f"static_{mode}", static, None, X, "right", keys=of_mode, functions={"Powers": Powers})
    computed = powered(for_setting=tf.reduce_sum)
    yield Row("sum_xla", computed, None, X, "not green", keys={**keys, "modes": ["xla"]})
    yield Row(
        "zero_xla", powered(for_setting=lambda u: 0 * u), None, X, "right", keys={**keys, "modes": ["xla"]}
    )
    yield Row("left_out", powered(for_setting=lambda u: None), None, X, "unchecked")


ROWS = marked(rows(), "*")
