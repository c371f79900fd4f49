"""`python -m tests.hidden run|search [KIND|NAME ...]`: which faults are found; what of their twins.

`GRADCHECK_SEARCH_SECONDS` is how long a search is, in processor time; `GRADCHECK_TABLE` is "rows", "pairs",
both (the default) or "fresh", whose kinds are "first" and "later".
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from dataclasses import replace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from gradcheck_cli.results import CaseResult, Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import Wanted
from gradcheck_cli.spec.load import load_mapping
from tests.hidden.fresh_pairs import FRESH
from tests.hidden.hidden_faults import ROWS
from tests.hidden.rare_pairs import PAIRS

SECONDS = float(os.environ.get("GRADCHECK_SEARCH_SECONDS", "10"))
TABLES = {"rows": ROWS, "pairs": PAIRS, "both": ROWS | PAIRS, "fresh": FRESH}
TABLE = TABLES[os.environ.get("GRADCHECK_TABLE", "both")]


def checked(name: str, how: str, *, wrong: bool, seconds: float = SECONDS) -> CaseResult:
    """Run or search one row, or its twin."""
    (case,) = load_mapping(TABLE[name].spec(wrong=wrong))
    return run_case(replace(case, wanted=Wanted(search=seconds)) if how == "search" else case)


def main() -> None:
    how, *wanted = sys.argv[1:]
    names = [name for name, row in TABLE.items() if not wanted or name in wanted or row.kind in wanted]
    found, asked, named, silent, alarms = [], [], [], [], []
    kinds: Counter[str] = Counter()
    twin_seconds = min(float(os.environ.get("GRADCHECK_TWIN_SECONDS", "1.5")), SECONDS)
    for name in names:
        kind = TABLE[name].kind
        began = time.process_time()
        result = checked(name, how, wrong=True)
        unseen = [branch.label(side) for branch in result.seen.branches for side in branch.unseen]
        is_found = result.status is Status.MISMATCHED
        asked.extend([name] * any(pair.undecided == "range" for pair in result.pairs))
        kinds[kind] += is_found
        (found if is_found else named if unseen else silent).append(name)
        twin = checked(name, how, wrong=False, seconds=twin_seconds)
        alarms += [] if twin.status is Status.PASSED else [f"{name} {twin.status}"]
        if result.search is not None and result.search.found is not None:
            unseen = [f"{key}={value}" for key, value in result.search.found.inputs]
        told = f"{'found' if is_found else f'{result.status}; never:'} {'; '.join(unseen) or '-'}"
        told += f" {result.error.message[:200]}" if result.error is not None else ""
        used = time.process_time() - began
        print(f"{kind:<19} {name:<22} {used:6.2f} s  twin {twin.status}  {told[:220]}", flush=True)  # noqa: T201
    total = f"{len(found)} of {len(names)} found, {len(asked)} asked about"
    print(f"{how}: {total}; {dict(kinds)}")  # noqa: T201
    print(f"side named: {len(named)} {named}")  # noqa: T201
    print(f"silent: {len(silent)} {silent}")  # noqa: T201
    print(f"twins that didn't pass: {alarms}")  # noqa: T201


if __name__ == "__main__":
    main()
