# ruff: noqa: T201 (a script: printing is what it is for)
"""Compare verdicts with those of well-known rules on the same rows: `python -m tests.numerics.rivals`.

The rules are as published, written anew. tf.test.compute_gradient: central differences with a step of
1/1024, divided by the nominal step; as it is customarily used, its largest absolute error against 1e-4 or
1e-3. PyTorch's gradcheck: step 1e-6, atol 1e-5, rtol 1e-3 of the numeric side; float64 only by its own
advice. JAX's check_grads: one random direction and a step of 1e-4; J v, then w'J v, within 1e-5 in float64
and 2e-3 in float32, absolute plus relative, both times the array's size.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from gradcheck_cli.numerics import FLOAT32, FLOAT64, Problem, Verdict, judge
from tests.numerics.numerics_table import evaluator, smooth_rows, true_jacobian, wrong_versions


def central(evaluate, point, step, precision):
    """Difference every column with one step, divided by the nominal step, as these rules do."""
    moves = step * np.eye(point.size)
    up, down = evaluate(precision.round(point + moves)), evaluate(precision.round(point - moves))
    return ((up - down) / (2 * step)).T


def fixed(tolerance, step):
    """Return the rule: the largest error of a fixed-step difference is within a tolerance."""

    def is_right(evaluate, point, analytic, precision):
        error = np.abs(central(evaluate, point, step, precision) - analytic)
        return bool(np.max(error) <= tolerance)

    return is_right


def torch_rule(evaluate, point, analytic, precision):
    """Compare all elements with |a - n| <= 1e-5 + 1e-3 |n| at a step of 1e-6."""
    numeric = central(evaluate, point, 1e-6, precision)
    return bool(np.all(np.abs(analytic - numeric) <= 1e-5 + 1e-3 * np.abs(numeric)))


def jax_rule(evaluate, point, analytic, precision):
    """Compare J v and w'J v with a central difference along one random v."""
    generator = np.random.default_rng(0)
    v, step = generator.normal(size=point.size), 1e-4
    up, down = evaluate(precision.round(np.stack([point + step * v, point - step * v])))
    numeric, tolerance = (up - down) * (0.5 / step), 1e-5 if precision is FLOAT64 else 2e-3
    wide = tolerance * numeric.size
    forward = np.all(np.abs(analytic @ v - numeric) <= wide + wide * np.abs(numeric))
    w = generator.normal(size=numeric.size)
    expected = numeric @ w
    reverse = abs(w @ analytic @ v - expected) <= tolerance + tolerance * abs(expected)
    return bool(forward and reverse)


RULES = {
    "TensorFlow's, 1e-4": fixed(1e-4, 1 / 1024),
    "TensorFlow's, 1e-3": fixed(1e-3, 1 / 1024),
    "PyTorch's default": torch_rule,
    "JAX's default": jax_rule,
}


def ours(evaluate, point, analytic, precision):
    """Return `None` where undecided."""
    found = judge(Problem(evaluate, point, precision, precision), analytic)
    if (found.verdict == Verdict.MISMATCH).any():
        return False
    return None if (found.verdict == Verdict.INCONCLUSIVE).any() else True


def main() -> None:
    """Print false alarms, misses and undecided rows of every rule."""
    for precision, errors in ((FLOAT64, (1e-2, 1e-4)), (FLOAT32, (1e-2,))):
        tallies = {name: Counter() for name in (*RULES, "gradcheck")}
        for row in smooth_rows():
            point = precision.round(np.array(row.point))
            evaluate, right = evaluator(row.function, precision), true_jacobian(row.function, point)
            versions = {"right": right, **wrong_versions(right, errors)}
            for name, rule in {**RULES, "gradcheck": ours}.items():
                for version, analytic in versions.items():
                    with np.errstate(all="ignore"):
                        verdict = rule(evaluate, point, analytic, precision)
                    kind = "right" if version == "right" else "wrong"
                    tallies[name][f"{kind} {verdict}"] += 1
        print(f"{precision.name}{'false alarms':>34}{'misses':>16}{'undecided':>12}")
        for name, tally in tallies.items():
            rights = sum(n for key, n in tally.items() if key.startswith("right"))
            wrongs = sum(n for key, n in tally.items() if key.startswith("wrong"))
            alarms = f"{tally['right False']} of {rights}"
            misses = f"{tally['wrong True']} of {wrongs}"
            print(f"  {name:24}{alarms:>15}{misses:>16}{tally['right None'] + tally['wrong None']:>12}")


if __name__ == "__main__":
    main()
