"""Custom gradients with settings, of which the gradient function returns `None` or nothing."""

import tensorflow as tf
from attacking import Attack

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


def attacks():
    keys = {"attrs": {"power": 3}}
    nothing = {"none": lambda u: None, "zero": tf.zeros_like, "times_0": lambda u: 0 * u[0]}
    for name, for_setting in {"nothing": None, **nothing}.items():
        yield Attack(f"right_{name}", "right", X, powered(for_setting=for_setting), keys=keys)
        yield Attack(f"factor_{name}", "wrong", X, powered(1.01, for_setting=for_setting), keys=keys)
        yield Attack(f"misread_{name}", "wrong", X, powered(off=1, for_setting=for_setting), keys=keys)
    for mode in MODES:
        of_mode = {**keys, "modes": [mode]}
        given = {"ones": tf.ones_like, "sum": tf.reduce_sum}
        for name, for_setting in given.items():
            yield Attack(f"{name}_{mode}", "unchecked", X, powered(for_setting=for_setting), keys=of_mode)
        yield Attack(
            f"under_function_{mode}",
            "right",
            X,
            tf.function(powered(for_setting=lambda u: None)),
            keys=of_mode,
        )
        two = {**X, "w": {"shape": [3]}}
        for truth, factor in (("right", 1.0), ("wrong", 1.01)):
            many = {"attrs": {"power": 3, "kind": "product"}, "modes": [mode]}
            yield Attack(f"between_{mode}_{truth}", truth, two, between(factor), keys=many)
            yield Attack(f"variable_{mode}_{truth}", truth, X, with_variable(factor), keys=of_mode)
            made = {**of_mode, "build": {"factor": factor}}
            functions = {"Powers": Powers}
            method = "attacked:Powers.method"
            yield Attack(f"method_{mode}_{truth}", truth, X, method, keys=made, functions=functions)
        static = "attacked:Powers.static"
        yield Attack(f"static_{mode}", "right", X, static, keys=of_mode, functions={"Powers": Powers})
    computed = powered(for_setting=tf.reduce_sum)
    yield Attack("sum_xla", "not green", X, computed, keys={**keys, "modes": ["xla"]})
    yield Attack(
        "zero_xla", "right", X, powered(for_setting=lambda u: 0 * u), keys={**keys, "modes": ["xla"]}
    )
    yield Attack("left_out", "unchecked", X, powered(for_setting=lambda u: None))


ATTACKS = tuple(attacks())
