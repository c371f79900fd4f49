"""Which numbers of the numerics earn their place: what is said of functions in NumPy with other numbers.

`python tests/numerics/earning_numbers.py refine.slopes [verdict ...]` multiplies each number of some modules
of `gradcheck_cli.numerics` by 4 and by 1/4, wherever it is used, and lists what is said otherwise of 250
gradients of `numerics_near`, `numerics_random`, `test_near` and `test_sloping_treads`, right ones and wrong
ones. It takes about two minutes of processor time for 20 numbers.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from numerics_near import GROUPS
from numerics_random import draw_example
from numerics_table import evaluator
from test_near import SCALED
from test_sloping_treads import POINT, ROUNDINGS, SMOOTH, STAIRS, identity, slope

from gradcheck_cli import numerics
from gradcheck_cli.numerics import FLOAT32, FLOAT64, Precision, Problem, Verdict, judge

FACTORS = (4.0, 0.25)
EVERY = 12  # of the functions near something hard
EXAMPLES = {FLOAT64: 20, FLOAT32: 30}  # random ones
# By how much the largest element is changed in a wrong gradient: the least that is promised to be found.
ERRORS = {FLOAT64: 1e-4, FLOAT32: 1e-2}


@dataclass(frozen=True)
class Row:
    """A gradient of a function, and what is true of it."""

    name: str
    truth: str  # "right", "wrong", or "stairs", of which nothing can be said
    function: Callable[[np.ndarray], np.ndarray]
    point: np.ndarray
    gradient: np.ndarray
    precision: Precision = FLOAT64
    settings: dict[str, Any] | None = None

    def said(self) -> str:
        """Return the worst that is said of an element."""
        problem = Problem(self.function, self.point, self.precision, self.precision, **(self.settings or {}))
        with np.errstate(all="ignore"):
            verdict = judge(problem, self.gradient).verdict
        order = (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.KINK, Verdict.PASS)
        return next(code.name for code in order if (verdict == code).any())


def both(row: Row) -> Iterator[Row]:
    """Yield a right gradient, and the same with its largest element wrong."""
    yield row
    wrong = row.gradient.copy()
    wrong[np.unravel_index(np.argmax(np.abs(wrong)), wrong.shape)] *= 1 + ERRORS[row.precision]
    yield Row(f"{row.name}, wrong", "wrong", row.function, row.point, wrong, row.precision, row.settings)


def list_rows() -> Iterator[Row]:
    """Yield the gradients."""
    near = [row for group in GROUPS.values() for row in group()]
    for hard in near[::EVERY]:
        function = evaluator(hard.function, FLOAT64)
        point = np.array(hard.point)
        yield from both(Row(hard.name, "right", function, point, hard.right(), FLOAT64, hard.settings))
    for precision, count in EXAMPLES.items():
        for seed in range(count):
            example = draw_example(seed, precision)
            function = evaluator(example.function, precision)
            name = f"random {precision.name} {seed}"
            yield from both(Row(name, "right", function, example.point, example.right, precision))
    for name, treads in STAIRS.items():
        meant = np.diag(slope(partial(treads, r=identity)))
        for rounding in ("round", "int8"):
            function = partial(treads, r=ROUNDINGS[rounding])
            yield Row(f"{name} {rounding}", "stairs", function, POINT, meant)
            yield Row(f"{name} {rounding}, wrong", "wrong", function, POINT, -6 * meant)
    for name, smooth in SMOOTH.items():
        yield from both(Row(name, "right", smooth, POINT, np.diag(slope(smooth))))
    for name, (scaled, at, meant) in SCALED.items():
        yield from both(Row(name, "unknown", scaled, np.array([at]), np.array([[meant]])))


def variants(value: Any) -> Iterator[tuple[float, Any]]:
    """Yield other values in place of a number, or of several."""
    for factor in FACTORS:
        if isinstance(value, tuple):
            yield factor, tuple(type(part)(part * factor) for part in value)
        else:
            yield factor, max(1, int(value * factor)) if isinstance(value, int) else value * factor


def is_number(value: object) -> bool:
    """Whether a name stands for a number, or for several."""
    parts = value if isinstance(value, tuple) else (value,)
    return bool(parts) and all(type(part) in {int, float} for part in parts)


def say_with(rows: list[Row], name: str, value: object, other: object) -> dict[str, str]:
    """Return what is said of each gradient with another value of a number, in each module that has it."""
    package = [module for key, module in sys.modules.items() if key.startswith(numerics.__name__)]
    users = [module for module in package if vars(module).get(name) is value]
    try:
        for module in users:
            setattr(module, name, other)
        return {row.name: row.said() for row in rows}
    except Exception as error:  # noqa: BLE001 (whatever comes of such a number)
        return {row.name: type(error).__name__ for row in rows}
    finally:
        for module in users:
            setattr(module, name, value)


def main() -> None:
    """Print what each number of some modules changes."""
    rows = list(list_rows())
    before = {row.name: row.said() for row in rows}
    counts = Counter(f"{row.truth}: {before[row.name]}" for row in rows)
    print(f"{len(rows)} gradients: {dict(counts)}", flush=True)  # noqa: T201 (what it is for)
    for module_name in sys.argv[1:]:
        module = import_module(f"{numerics.__name__}.{module_name}")
        numbers = {name: value for name, value in vars(module).items() if name.lstrip("_").isupper()}
        own = "\n{} = ".format
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for name, value in numbers.items():
            if not is_number(value) or own(name) not in source:
                continue
            for factor, other in variants(value):
                after = say_with(rows, name, value, other)
                changed = [row for row in rows if after[row.name] != before[row.name]]
                print(f"{module_name}.{name} = {value} x {factor:g}: {len(changed)}", flush=True)  # noqa: T201
                for row in changed[:4]:
                    line = f"    {row.truth}: {row.name}: {before[row.name]} -> {after[row.name]}"
                    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
