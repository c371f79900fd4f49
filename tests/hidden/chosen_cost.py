"""`python -m tests.hidden.chosen_cost SECONDS SPEC...`: what points beside the samples cost.

Processor time of a case with them over that without, case by case, within one process.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from gradcheck_cli.features.search import other_points
from gradcheck_cli.running import session
from gradcheck_cli.spec.load import load_cases


def main() -> None:
    limit, *paths = sys.argv[1:]
    cases = load_cases(paths)
    spent = [0.0]
    look = other_points.choose_points

    def timed(*arguments: object) -> None:
        began = time.process_time()
        look(*arguments)
        spent[0] = time.process_time() - began

    other_points.choose_points = timed
    costs: list[tuple[float, float, str]] = []
    wrong: list[str] = []
    session.run_case(cases[0])  # what only the first case of a process pays
    began = time.process_time()
    for number in np.random.default_rng(0).permutation(len(cases)):
        if time.process_time() - began > float(limit):
            break
        spent[0], start = 0.0, time.process_time()
        result = session.run_case(cases[number])
        whole = time.process_time() - start
        name = f"{cases[number].op} {cases[number].name}"
        costs.append((whole / max(whole - spent[0], 1e-9), spent[0], name))
        if any(
            "right at the sample points" in text for pair in result.pairs for text in pair.cause.diagnosis
        ):
            wrong.append(name)
    factors = np.array([factor for factor, _, _ in costs])
    print(f"{len(factors)} of {len(cases)} cases; factor: median {np.median(factor := factors):.3f}, ")  # noqa: T201
    print(f"mean {factor.mean():.3f}, 90 % {np.quantile(factor, 0.9):.2f}, worst {factor.max():.2f}")  # noqa: T201
    for factor_of_case, seconds, name in sorted(costs, reverse=True)[:8]:
        print(f"  {factor_of_case:.2f}, {seconds:.2f} s more: {name}")  # noqa: T201
    print(f"wrong there: {wrong}")  # noqa: T201


if __name__ == "__main__":
    main()
