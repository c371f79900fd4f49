"""`python tests/hidden run|search [NAME ...]`: which faults are found, and what is said of their twins."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

from hidden_faults import ROWS

from gradcheck_cli.results import CaseResult, Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.load import load_mapping

SECONDS = float(os.environ.get("GRADCHECK_SEARCH_SECONDS", "30"))


def checked(name: str, how: str, *, wrong: bool, seconds: float = SECONDS) -> CaseResult:
    """Run or search one row, or its twin."""
    (case,) = load_mapping(ROWS[name].spec(wrong=wrong))
    return run_case(replace(case, search=seconds) if how == "search" else case)


def main() -> None:
    how, *names = sys.argv[1:]
    found, kinds, alarms, unnamed = [], Counter(), [], []
    for name in names or ROWS:
        kind = ROWS[name].kind
        began = time.process_time()
        result = checked(name, how, wrong=True)
        unseen = [branch.label(side) for branch in result.branches for side in branch.unseen]
        is_found = result.status is Status.MISMATCHED
        kinds[kind] += is_found
        found += [name] if is_found else []
        unnamed += [] if is_found or unseen else [name]
        twin = checked(name, how, wrong=False, seconds=min(1.5, SECONDS))
        alarms += [] if twin.status is Status.PASSED else [f"{name} {twin.status}"]
        if result.search is not None and result.search.found is not None:
            unseen = [f"{key}={value}" for key, value in result.search.found.inputs]
        told = f"{'found' if is_found else f'{result.status}; never:'} {'; '.join(unseen) or '-'}"
        used = time.process_time() - began
        print(f"{kind:<11} {name:<20} {used:6.2f} s  twin {twin.status}  {told}", flush=True)  # noqa: T201
    print(f"{how}: {len(found)} of {len(names or ROWS)} found; {dict(kinds)}")  # noqa: T201
    print(f"not found, and no side named: {unnamed}; false alarms: {alarms}")  # noqa: T201


if __name__ == "__main__":
    main()
