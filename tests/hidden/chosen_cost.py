"""`python tests/hidden/chosen_cost.py SECONDS SPEC...`: what choosing points costs, and which sides it adds.

Processor time of it over that of all else, case by case, within one process.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from gradcheck_cli.covered import side_counts
from gradcheck_cli.features.search import chosen_points
from gradcheck_cli.running import session
from gradcheck_cli.spec.load import load_cases


def main() -> None:
    limit, *paths = sys.argv[1:]
    cases = load_cases(paths)
    order = np.random.default_rng(0).permutation(len(cases))
    spent: list[float] = []
    before: list[tuple[int, int]] = []
    choose, look = chosen_points._check_chosen, chosen_points.check_unseen_sides

    def timed(*arguments: object) -> None:
        began = time.process_time()
        look(*arguments)
        spent.append(time.process_time() - began)

    def noted(opener, sides, findings) -> None:
        before[-1] = side_counts(sides.branches(opener.case.unreached))
        choose(opener, sides, findings)

    chosen_points.check_unseen_sides, chosen_points._check_chosen = timed, noted
    factors, seen, wrong = [], np.zeros(4, int), []
    costs: list[tuple[float, float, str]] = []
    began = time.process_time()
    for number in order:
        if time.process_time() - began > float(limit):
            break
        spent.clear()
        before.append((0, 0))
        start = time.process_time()
        result = session.run_case(cases[number])
        whole = time.process_time() - start
        after = side_counts(result.branches)
        first = before[-1] if before[-1][1] else after
        seen += [*first, *after]
        factors.append(whole / max(whole - sum(spent), 1e-9))
        costs.append((factors[-1], sum(spent), f"{cases[number].op} {cases[number].name}"))
        if any("was chosen" in text for pair in result.pairs for text in pair.diagnosis):
            wrong.append(f"{cases[number].op} {cases[number].name}")
    chosen = np.array(factors)
    print(f"{len(chosen)} of {len(cases)} cases; factor: median {np.median(chosen):.2f}, ")  # noqa: T201
    print(f"90 % {np.quantile(chosen, 0.9):.2f}, worst {chosen.max():.2f}, mean {chosen.mean():.2f}")  # noqa: T201
    for factor, seconds, name in sorted(costs, reverse=True)[:12]:
        print(f"  {factor:.2f}, {seconds:.2f} s more: {name}")  # noqa: T201
    print(f"sides: {seen[0]} of {seen[1]} before, {seen[2]} of {seen[3]} after; wrong there: {wrong}")  # noqa: T201


if __name__ == "__main__":
    main()
