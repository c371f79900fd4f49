# ruff: noqa: T201 (a script: printing is what it is for)
"""Check random compositions as float32 ops, whole: `python -m tests.checking.float32_campaign 10000`.

Forward and gradient are computed in float32 (the gradient by dual numbers, so that it loses what a gradient
loses), the formula is judged in float64 and the declared dtype against it, as for a float32 spec. Each
example is checked with its right gradient, and with one that is wrong by 1e-3 in its largest element.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from gradcheck_cli.numerics import FLOAT32
from tests.numerics.numerics_random import draw_example
from tests.support.numpy_op import Numpy, check

ERROR = 1e-3


@dataclass
class Dual:
    """A value with its slopes along each input, in the value's own dtype."""

    value: np.ndarray
    slope: np.ndarray

    def _of(self, other):
        return other if isinstance(other, Dual) else Dual(self.value.dtype.type(other), 0 * self.slope)

    def __add__(self, other):
        other = self._of(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other):
        other = self._of(other)
        return Dual(self.value * other.value, self.slope * other.value + other.slope * self.value)

    def __truediv__(self, other):
        other = self._of(other)
        ratio = self.value / other.value
        return Dual(ratio, (self.slope - ratio * other.slope) / other.value)

    def __neg__(self):
        return Dual(-self.value, -self.slope)

    def __sub__(self, other):
        return self + (-self._of(other))

    def __rtruediv__(self, other):
        return self._of(other) / self

    def __rsub__(self, other):
        return self._of(other) - self

    __radd__, __rmul__ = __add__, __mul__


def _lifted(function, derivative):
    return lambda a: Dual(function(a.value), derivative(a.value) * a.slope)


DUALS = SimpleNamespace(
    sin=_lifted(np.sin, np.cos),
    cos=_lifted(np.cos, lambda v: -np.sin(v)),
    tanh=_lifted(np.tanh, lambda v: 1 - np.tanh(v) ** 2),
    arctan=_lifted(np.arctan, lambda v: 1 / (1 + v * v)),
    exp=_lifted(np.exp, np.exp),
    log=_lifted(np.log, lambda v: 1 / v),
    log1p=_lifted(np.log1p, lambda v: 1 / (1 + v)),
    sqrt=_lifted(np.sqrt, lambda v: 0.5 / np.sqrt(v)),
)


class _Columns:
    """Stands in for the points' array: `x[:, i]` is the i-th input with its slope."""

    def __init__(self, x):
        self.columns = [
            Dual(value, unit) for value, unit in zip(x, np.eye(x.size, dtype=x.dtype), strict=True)
        ]

    def __getitem__(self, key):
        return self.columns[key[1]]


def op_of(example, error=0.0):
    """Return an example as a float32 op whose gradient is off by a relative error in its largest element."""
    wrong = np.ones(example.right.shape)
    wrong[np.unravel_index(np.argmax(np.abs(example.right)), wrong.shape)] += error

    def jacobian(x):
        columns = _Columns(x)
        rows = [(tree(DUALS, columns) + columns[:, 0] * 0).slope for tree in example.trees]
        return np.stack(rows) * wrong.astype(x.dtype)

    def gradient(upstream, x):
        return upstream @ jacobian(x)

    return Numpy(
        lambda x: example.function(np, x[None])[0], gradient, {"x": example.point}, dtypes={"x": "float32"}
    )


def outcome(example, error=0.0):
    """Return the pair's status, and whether the precision warning came."""
    with np.errstate(all="ignore"):
        found = check(op_of(example, error), checks_off=frozenset({"all_zero", "retrace"}))
    checks = {str(one.status) for one in found.checks} - {"passed"}
    status = "mismatched" if "mismatched" in checks else str(found.pairs[0].status)
    if (
        error
        and status == "passed"
        and error * np.abs(example.right).max() <= 3 * found.pairs[0].numbers.allowed
    ):
        status = "passed (within three times the stated tolerance)"
    return status + (" (precision warning)" if found.warnings else "")


def main():
    """Run the campaign."""
    count, start = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    tally, began = Counter(), time.perf_counter()
    for seed in range(start, start + count):
        example = draw_example(seed, FLOAT32)
        tally["right: " + outcome(example)] += 1
        if np.abs(example.right).max() > 0:
            tally["wrong: " + outcome(example, ERROR)] += 1
    print(f"{count} examples in {time.perf_counter() - began:.0f} s")
    for kind, number in sorted(tally.items()):
        print(f"{number:9}  {kind}")


if __name__ == "__main__":
    main()
