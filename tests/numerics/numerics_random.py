"""Random compositions of smooth functions, with right and wrong gradients, and what came of judging these."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mpmath
import numpy as np

from gradcheck_cli.numerics import Precision, Problem, Reason, Verdict, judge
from tests.numerics.numerics_table import DIGITS, evaluator, true_jacobian

if TYPE_CHECKING:
    from types import SimpleNamespace

UNARY = {
    "sin": lambda xp, a: xp.sin(a),
    "cos": lambda xp, a: xp.cos(a),
    "tanh": lambda xp, a: xp.tanh(a),
    "arctan": lambda xp, a: xp.arctan(a),
    "exp": lambda xp, a: xp.exp(a),
    "exp(-a^2)": lambda xp, a: xp.exp(-a * a),
    "softplus": lambda xp, a: xp.log1p(xp.exp(a)),
    "log(1+a^2)": lambda xp, a: xp.log(1 + a * a),
    "sqrt(1+a^2)": lambda xp, a: xp.sqrt(1 + a * a),
    "1/(1+a^2)": lambda _, a: 1 / (1 + a * a),
    "square": lambda _, a: a * a,
    "3a+1": lambda _, a: 3 * a + 1,
    "a/4": lambda _, a: a / 4,
}
BINARY = {
    "+": lambda _, a, b: a + b,
    "-": lambda _, a, b: a - b,
    "*": lambda _, a, b: a * b,
    "/": lambda _, a, b: a / (2 + b * b),
}


@dataclass(frozen=True)
class Tree:
    """An expression over x_0 ... x_(n-1)."""

    name: str
    children: tuple[Tree, ...] = ()
    leaf: int = -1

    def __str__(self) -> str:
        if self.leaf >= 0:
            return f"x{self.leaf}"
        return f"{self.name}({', '.join(map(str, self.children))})"

    def __call__(self, xp: SimpleNamespace, x: np.ndarray) -> np.ndarray:
        if self.leaf >= 0:
            return x[:, self.leaf]
        values = [child(xp, x) for child in self.children]
        return (UNARY if len(values) == 1 else BINARY)[self.name](xp, *values)


def draw_tree(rng: np.random.Generator, n: int, depth: int) -> Tree:
    """Draw an expression of at most this depth."""
    if depth == 0 or (depth < 3 and rng.random() < 0.2):
        return Tree("", leaf=int(rng.integers(n)))
    if rng.random() < 0.55:
        return Tree(str(rng.choice(list(UNARY))), (draw_tree(rng, n, depth - 1),))
    return Tree(str(rng.choice(list(BINARY))), (draw_tree(rng, n, depth - 1), draw_tree(rng, n, depth - 1)))


@dataclass(frozen=True)
class Example:
    """A vector function of a few random expressions, at a random point."""

    trees: tuple[Tree, ...]
    point: np.ndarray
    right: np.ndarray

    def function(self, xp: SimpleNamespace, x: np.ndarray) -> np.ndarray:
        return np.stack([tree(xp, x) + 0 * x[:, 0] for tree in self.trees], axis=-1)


def draw_example(seed: int, precision: Precision) -> Example:
    """Draw an example; drawn again where a value or slope overflows."""
    rng = np.random.default_rng(seed)
    while True:
        n, m = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        trees = tuple(draw_tree(rng, n, int(rng.integers(1, 5))) for _ in range(m))
        point = precision.round(rng.normal(size=n) * 10.0 ** rng.choice([-3, -1, 0, 0, 0, 1]))
        example = Example(trees, point, np.zeros((m, n)))
        value = evaluator(example.function, precision)(point[None])
        if not np.all(np.isfinite(value)) or np.abs(value).max() > 1e15:
            continue
        exact = np.array(
            example.function(DIGITS, np.array([mpmath.mpf(v) for v in point], dtype=object)[None])[0]
        )
        if np.any(np.abs(value[0] - exact.astype(float)) > 0.1 * np.abs(exact.astype(float))):
            continue  # the forward itself is wrong: it overflowed inside, or lost all its digits
        try:
            right = true_jacobian(example.function, point)
        except (OverflowError, ValueError, ZeroDivisionError):
            continue
        if np.all(np.isfinite(right)) and np.abs(right).max() < 1e15:
            return Example(trees, point, right)


@dataclass
class Tally:
    """What came of some examples."""

    counts: Counter[str] = field(default_factory=Counter)
    evaluations: int = 0
    inputs: int = 0
    bad: list[str] = field(default_factory=list)

    def judge(self, seed: int, precision: Precision, error: float) -> None:
        """Judge one example with its right gradient, and with one element that matters wrong."""
        example = draw_example(seed, precision)
        evaluate = evaluator(example.function, precision)
        problem = Problem(evaluate, example.point, precision, precision)
        found = judge(problem, example.right)
        self.evaluations += found.evaluations
        self.inputs += example.point.size
        outcome = _worst(found.verdict)
        self.counts[f"right: {outcome.name}"] += 1
        if outcome in (Verdict.MISMATCH, Verdict.INCONCLUSIVE):
            self._note(seed, example, f"right {outcome.name}", found)
        where = np.unravel_index(np.argmax(np.abs(example.right)), example.right.shape)
        if example.right[where] == 0:
            return
        wrong = example.right.copy()
        wrong[where] *= 1 + error
        found = judge(problem, wrong)
        # An error below the stated tolerance is none: the table says what is looked for.
        kind = (
            "wrong"
            if abs(wrong[where] - example.right[where]) > 3 * found.allowed[where]
            else "within tolerance"
        )
        outcome = Verdict(int(found.verdict[where]))
        self.counts[f"{kind}: {outcome.name}"] += 1
        if kind == "wrong" and outcome in (Verdict.PASS, Verdict.KINK):
            self._note(seed, example, "wrong passed", found)

    def _note(self, seed: int, example: Example, what: str, found) -> None:
        reasons = {Reason(code).name for code in np.unique(found.reason)}
        self.bad.append(
            f"{what}: seed {seed} at {example.point.tolist()} {reasons}\n"
            f"    f = {[str(tree) for tree in example.trees]}\n"
            f"    true {example.right.tolist()}\n    numeric {found.numeric.tolist()}\n"
            f"    uncertainty {found.uncertainty.tolist()} allowed {found.allowed.tolist()}"
        )


def _worst(verdict: np.ndarray) -> Verdict:
    for code in (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.KINK):
        if (verdict == code).any():
            return code
    return Verdict.PASS
