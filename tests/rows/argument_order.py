"""Inputs in another order than the function's parameters: an error where the names tell, else as ever."""

import functools

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

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

ROWS = marked(
    (
        *[
            Row(f"{name}_in_order", f, None, {"a": A, "b": B}, "right", keys=keys)
            for name, (f, keys) in _ORDERED.items()
        ],
        *[
            Row(f"{name}_swapped", f, None, {"b": B, "a": A}, "unchecked", keys=keys)
            for name, (f, keys) in _ORDERED.items()
        ],
        *[Row(f"{name}_tells_nothing", f, None, {"b": B, "a": A}, "right") for name, f in _SILENT.items()],
        Row("gradient_swapped", _plain, _gradient, {"b": B, "a": A}, "unchecked"),
        Row("gradient_in_order", _plain, _gradient, {"a": A, "b": B}, "right"),
        Row("numpy_swapped", _array, _gradient, {"b": B, "a": A}, "unchecked", keys=_ARRAYS),
        Row("numpy_in_order", _array, _gradient, {"a": A, "b": B}, "right", keys=_ARRAYS),
        Row("three_rotated", _third, None, {"b": B, "c": B, "a": A}, "unchecked"),
        Row("some_swapped", lambda a, b, c=1.0: a * b * b * c, None, {"b": B, "a": A}, "unchecked"),
        Row("some_in_order", lambda a, b, c=1.0: a * b * b * c, None, {"a": A, "b": B}, "right"),
        Row("other_names_beside", lambda a, b: a * a + b, None, {"b": B, "x": A}, "right"),
        Row(
            "reference_swapped",
            _plain,
            None,
            {"a": A, "b": B},
            "unchecked",
            keys={"reference": "of_a_row:reference"},
            functions={"reference": lambda b, a: a * b * b},
        ),
    ),
    "wrapped_swapped",
)
