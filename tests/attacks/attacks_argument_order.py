"""Inputs in another order than the function's parameters: an error where the names tell, else as ever."""

import functools

import numpy as np
import tensorflow as tf
from attacking import Attack

A, B = {"shape": [3]}, {"shape": [3]}


def _plain(a, b):
    return a * b * b


def _gradient(op, u):
    a, b = op.inputs
    return u * b * b, 2 * u * a * b


def _with_keyword(a, b, *, power=2):
    return a * b**power


def _with_default(a, b, power=2):
    return a * b**power


def _third(a, b, c):
    return a * b + c


def _any(*tensors):
    return tensors[0] * tensors[1] ** 2


def _renamed(left, right):
    return left * right * right


def _positional(a, b, /):
    return a * b * b


def _collected(a, *b):
    return a * b[0] ** 2


def _logged(function):
    @functools.wraps(function)
    def wrapper(*args, **keywords):
        return function(*args, **keywords)

    return wrapper


def _array(a, b):
    return a * np.square(b)


class _Layer(tf.Module):
    def __call__(self, a, b):
        return a * b * b


_ARRAYS = {"binding": "py_func", "outputs": {"y": {"dtype": "float64", "shape": [3]}}}
_ORDERED = {
    "plain": (_plain, {}),
    "keyword_only": (_with_keyword, {}),
    "attr": (_with_default, {"attrs": {"power": 2}}),
    "default": (_with_default, {}),
    "wrapped": (_logged(_plain), {}),
    "layer": (_Layer(), {}),
    "tf_function": (tf.function(_plain), {}),
    "partial": (functools.partial(_with_default, power=2), {}),
}
_SILENT = {"star": _any, "renamed": _renamed, "positional_only": _positional, "collected": _collected}

ATTACKS = (
    *[
        Attack(f"{name}_in_order", "right", {"a": A, "b": B}, f, keys=keys)
        for name, (f, keys) in _ORDERED.items()
    ],
    *[
        Attack(f"{name}_swapped", "unchecked", {"b": B, "a": A}, f, keys=keys)
        for name, (f, keys) in _ORDERED.items()
    ],
    *[Attack(f"{name}_tells_nothing", "right", {"b": B, "a": A}, f) for name, f in _SILENT.items()],
    Attack("gradient_swapped", "unchecked", {"b": B, "a": A}, _plain, _gradient),
    Attack("gradient_in_order", "right", {"a": A, "b": B}, _plain, _gradient),
    Attack("numpy_swapped", "unchecked", {"b": B, "a": A}, _array, _gradient, _ARRAYS),
    Attack("numpy_in_order", "right", {"a": A, "b": B}, _array, _gradient, _ARRAYS),
    Attack("three_rotated", "unchecked", {"b": B, "c": B, "a": A}, _third),
    Attack("some_swapped", "unchecked", {"b": B, "a": A}, lambda a, b, c=1.0: a * b * b * c),
    Attack("some_in_order", "right", {"a": A, "b": B}, lambda a, b, c=1.0: a * b * b * c),
    Attack("other_names_beside", "right", {"b": B, "x": A}, lambda a, b: a * a + b),
    Attack(
        "reference_swapped",
        "unchecked",
        {"a": A, "b": B},
        _plain,
        keys={"reference": "attacked:reference"},
        functions={"reference": lambda b, a: a * b * b},
    ),
)
