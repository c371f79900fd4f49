"""Gradients that are Python numbers or NumPy arrays: a tape may broadcast them, an optimizer fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODES = ("graph", "eager", "dynamic")


def _scaled(claimed: Callable[[Any], Any]) -> Any:
    """The product of x and the sign of y, whose slope by y is zero."""

    @tf.custom_gradient
    def call(x: Any, y: Any) -> Any:
        return x * tf.sign(y), lambda u: (u * tf.sign(y), claimed(y))

    return call


# What the gradient by y claims, which must be zeros in the shape of y.
CLAIMS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "float": (lambda _: 0.0, False),
    "integer": (lambda _: 0, False),
    "numpy_scalar": (lambda _: np.float64(0.0), False),
    "row": (lambda _: np.zeros(3), False),
    "column": (lambda _: np.zeros((4, 1, 1)), False),
    "zeros": (lambda _: np.zeros((4, 3)), True),
    "tensor": (tf.zeros_like, True),
}


def _as_it_is(y: Any) -> Any:
    return y


WHERE = (_as_it_is, tf.sin)


def _rows() -> Iterator[Row]:
    for name, (claimed, is_right) in CLAIMS.items():
        for mode in MODES:
            for path in WHERE:

                def build(claimed: Any = claimed, path: Any = path) -> Any:
                    call = _scaled(claimed)
                    return lambda x, y: call(x, path(y))

                inputs: dict[str, Any] = {"x": {"shape": [4, 3]}, "y": {"shape": [4, 3]}}
                zero = {"dy/dy": {"expect": "zero"}}
                keys: dict[str, Any] = {"build": {}, "modes": [mode], "pairs": zero}
                beside = "" if path is _as_it_is else "_sin"
                truth = "right" if is_right else "wrong"
                yield Row(f"{name}{beside}_{mode}", build, None, inputs, truth, keys=keys)
            inputs = {"x": {"shape": [4, 3]}, "y": {"shape": [4, 3], "differentiate": False}}
            keys = {"build": {}, "modes": [mode]}
            yield Row(f"{name}_constant_{mode}", build, None, inputs, "right", keys=keys)


ROWS = marked(tuple(_rows()), "float_sin_graph", "integer_constant_dynamic", "row_eager")
