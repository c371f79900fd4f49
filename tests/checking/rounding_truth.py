"""What random rounding says of gradients, beside their true errors: functions with derivatives in 50 digits.

`python -m tests.checking.rounding_truth` prints a line for each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

mpmath.mp.dps = 50


class InDigits:
    """The functions that a row may use, in mpmath."""

    exp, log, sin, cos, tanh, sqrt, erf, erfc = (
        getattr(mpmath, name) for name in ("exp", "log", "sin", "cos", "tanh", "sqrt", "erf", "erfc")
    )
    expm1, log1p, atan, sinh, cosh, asin, acos, lgamma, digamma = (
        getattr(mpmath, name)
        for name in ("expm1", "log1p", "atan", "sinh", "cosh", "asin", "acos", "loggamma", "digamma")
    )

    @staticmethod
    def sigmoid(x: Any) -> Any:
        return 1 / (1 + mpmath.exp(-x))

    @staticmethod
    def repeat(step: Callable[[Any], Any], times: int, x: Any) -> Any:
        for _ in range(times):
            x = step(x)
        return x


ROWS: dict[str, tuple[Callable[[Any, Any], Any], list[float]]] = {
    "sin": (lambda m, x: m.sin(x), [0.3, 2.0, 1e3]),
    "sin far out": (lambda m, x: m.sin(x), [1e6, 12345678.9]),
    "tanh": (lambda m, x: m.tanh(x), [0.1, 3.0, 10.0, 18.0]),
    "1 - tanh^2": (lambda m, x: 1 - m.tanh(x) ** 2, [0.5, 10.0, 18.0]),
    "sigmoid": (lambda m, x: m.sigmoid(x), [-40.0, -3.0, 2.0, 30.0]),
    "1 - sigmoid": (lambda m, x: 1 - m.sigmoid(x), [-3.0, 10.0, 30.0]),
    "s (1 - s)": (lambda m, x: m.sigmoid(x) * (1 - m.sigmoid(x)), [0.7, 20.0]),
    "swish": (lambda m, x: x * m.sigmoid(x), [-12.0, 0.4, 8.0]),
    "exp": (lambda m, x: m.exp(x), [-20.0, 0.5, 50.0]),
    "exp - 1": (lambda m, x: m.exp(x) - 1, [1e-3, 1.7]),
    "(exp - 1) / x": (lambda m, x: (m.exp(x) - 1) / x, [1e-4, 0.1, 2.0]),
    "expm1 / x": (lambda m, x: m.expm1(x) / x, [1e-4, 0.1]),
    "log": (lambda m, x: m.log(x), [1e-8, 0.9, 1 + 1e-9, 1e9]),
    "log^2": (lambda m, x: m.log(x) ** 2, [1 + 1e-9, 3.0]),
    "log(1 + x)": (lambda m, x: m.log(1 + x), [1e-9, 0.2]),
    "log1p(x) / x": (lambda m, x: m.log1p(x) / x, [1e-5, 0.3]),
    "softplus composed": (lambda m, x: m.log(1 + m.exp(x)), [-20.0, 0.0, 25.0]),
    "log sigmoid composed": (lambda m, x: m.log(m.sigmoid(x)), [-5.0, 20.0]),
    "mish": (lambda m, x: x * m.tanh(m.log(1 + m.exp(x))), [-6.0, 1.0, 9.0]),
    "sin(x) / x": (lambda m, x: m.sin(x) / x, [1e-6, 1e-3, 1.0]),
    "(1 - cos) / x": (lambda m, x: (1 - m.cos(x)) / x, [1e-5, 0.1]),
    "(1 - cos) / x^2": (lambda m, x: (1 - m.cos(x)) / (x * x), [1e-3, 0.5]),
    "(x - sin) / x^3": (lambda m, x: (x - m.sin(x)) / (x * x * x), [1e-2, 0.7]),
    "cos^2 + sin^2": (lambda m, x: m.cos(x) ** 2 + m.sin(x) ** 2, [0.4, 3.0]),
    "atan": (lambda m, x: m.atan(x), [0.3, 1e5]),
    "atan(1 / x)": (lambda m, x: m.atan(1 / x), [1e-4, 2.0]),
    "acos near 1": (lambda m, x: m.acos(x), [1 - 1e-9, 0.3]),
    "asin": (lambda m, x: m.asin(x), [-0.999, 0.2]),
    "sqrt(1 + x^2) - 1": (lambda m, x: m.sqrt(1 + x * x) - 1, [1e-5, 0.5]),
    "sqrt(x + 1) - sqrt(x)": (lambda m, x: m.sqrt(x + 1) - m.sqrt(x), [1e4, 1e10]),
    "sqrt": (lambda m, x: m.sqrt(x), [1e-12, 7.0]),
    "1 / x": (lambda m, x: 1 / x, [1e-9, 3.0]),
    "1 / x^2 - 1": (lambda m, x: 1 / (x * x) - 1, [1.0000001, 4.0]),
    "(x + 1) / x - 1 / x": (lambda m, x: (x + 1) / x - 1 / x, [1e-3, 3.0]),
    "x^2 - 2 x + 1": (lambda m, x: x * x - 2 * x + 1, [1.00001, 7.0]),
    "(x - 1)^7 expanded": (
        lambda m, x: ((((((x - 7) * x + 21) * x - 35) * x + 35) * x - 21) * x + 7) * x - 1,
        [1.05, 2.0],
    ),
    "Chebyshev 8": (lambda m, x: 128 * x**8 - 256 * x**6 + 160 * x**4 - 32 * x**2 + 1, [0.95, 1.3]),
    "erf": (lambda m, x: m.erf(x), [0.2, 4.0]),
    "(1 + erf) / 2": (lambda m, x: 0.5 * (1 + m.erf(x)), [-5.0, 0.7]),
    "erfc": (lambda m, x: m.erfc(x), [1.0, 6.0]),
    "GELU": (lambda m, x: 0.5 * x * (1 + m.erf(x / m.sqrt(x * 0 + 2))), [-6.0, -0.75, 2.0]),
    "Gauss": (lambda m, x: m.exp(-x * x / 2), [0.1, 6.0, 20.0]),
    "exp(log^2)": (lambda m, x: m.exp(m.log(x) ** 2), [0.05, 30.0]),
    "x^x": (lambda m, x: m.exp(x * m.log(x)), [0.3679, 8.0]),
    "lgamma": (lambda m, x: m.lgamma(x), [0.01, 1.46163, 30.0]),
    "sinh - cosh": (lambda m, x: m.sinh(x) - m.cosh(x), [0.5, 8.0]),
    "sinh(x) / cosh(x)": (lambda m, x: m.sinh(x) / m.cosh(x), [0.5, 12.0]),
    "logistic map, 10": (lambda m, x: m.repeat(lambda y: 3.9 * y * (1 - y), 10, x), [0.3, 0.81]),
    "logistic map, 20": (lambda m, x: m.repeat(lambda y: 3.9 * y * (1 - y), 20, x), [0.3]),
    "Newton's square root": (lambda m, x: m.repeat(lambda y: (y + x / y) / 2, 6, x), [2.0, 9.7]),
    "tanh, 20 times": (lambda m, x: m.repeat(lambda y: m.tanh(1.5 * y), 20, x), [0.2, 2.0]),
    "sin, 30 times": (lambda m, x: m.repeat(m.sin, 30, x), [1.1]),
    "continued fraction": (lambda m, x: m.repeat(lambda y: 1 / (1 + y * x), 12, x), [0.4, 3.0]),
    "sum of cubes that cancels": (lambda m, x: (x + 1) ** 3 - x**3 - 3 * x**2 - 3 * x, [5.0, 1e3]),
    "KL": (lambda m, x: x * m.log(x / 0.3) + (1 - x) * m.log((1 - x) / 0.7), [0.3001, 0.9]),
    "entropy": (lambda m, x: -x * m.log(x) - (1 - x) * m.log(1 - x), [1e-6, 0.4999]),
    "logit": (lambda m, x: m.log(x) - m.log(1 - x), [1e-7, 0.5001]),
    "quadratic's root": (lambda m, x: (-x + m.sqrt(x * x - 4)) / 2, [2.001, 1e5]),
    "1 / (exp(x) - 1)": (lambda m, x: 1 / (m.exp(x) - 1), [1e-4, 3.0]),
    "x - x^3 / 6 - sin": (lambda m, x: x - x**3 / 6 - m.sin(x), [0.05, 2.0]),
    "power by log": (lambda m, x: m.exp(0.1 * m.log(x)), [1e-10, 5.0]),
    "cos(1e4 x)": (lambda m, x: m.cos(1e4 * x), [0.3, 2.0]),
}


@dataclass(frozen=True)
class Measured:
    """What was measured of one row, at each of its points."""

    gradient: np.ndarray
    error: np.ndarray  # its true error
    rounding: np.ndarray  # what random rounding moves it by


def in_tensorflow() -> ModuleType:
    """Return the functions that a row may use, in TensorFlow."""
    import tensorflow as tf

    found = ModuleType("functions")
    names = "exp log sin cos tanh sqrt sigmoid atan sinh cosh asin acos erf erfc expm1 log1p lgamma digamma"
    for name in names.split():
        setattr(found, name, getattr(tf.math, name))

    def repeat(step, times, x):
        return tf.while_loop(lambda i, _: i < times, lambda i, y: (i + 1, step(y)), (0, x))[1]

    found.repeat = repeat
    return found


@cache
def measure(name: str) -> Measured:
    """Measure a row."""
    from gradcheck_cli.checking.ops.operation import Opening
    from gradcheck_cli.checking.ops.random_rounding import measure_rounding_of
    from gradcheck_cli.spec.load import load_mapping
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
    from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState

    function, points = ROWS[name]
    module = sys.modules["rounding_truth_row"] = ModuleType("rounding_truth_row")
    functions = in_tensorflow()
    module.forward = lambda x: function(functions, x)
    inputs = {"x": {"shape": [len(points)], "dtype": "float64", "value": points}}
    (case,) = load_mapping({"op": "row", "forward": "rounding_truth_row:forward", "inputs": inputs})
    op = GraphOperation.open(CaseState(case), Opening())
    (rows,) = op.vjp(0, np.eye(len(points)))
    *_, moved = measure_rounding_of(op, 0, np.eye(len(points)), 0)
    gradient = np.diagonal(rows)
    truth = [mpmath.diff(lambda x: function(InDigits, x), mpmath.mpf(point)) for point in points]
    error = np.array([abs(float(mpmath.mpf(float(a)) - b)) for a, b in zip(gradient, truth, strict=True)])
    return Measured(gradient, error, np.diagonal(moved[0]))


def main() -> None:
    for name in ROWS:
        found = measure(name)
        lines = zip(ROWS[name][1], found.gradient, found.error, found.rounding, strict=True)
        for point, *numbers in lines:
            print(f"{name:<28} {point:>12.6g}", *(f"{number:>11.3e}" for number in numbers))  # noqa: T201


if __name__ == "__main__":
    main()
