"""`python tests/attacks [TABLE ...]`: what is said of each attack, counted by table and by truth.

A table is a module `attacks_NAME.py` beside this one, with a tuple `ATTACKS`. `--excused` is explained in
`excused.py`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

from attacking import ALLOWED
from excused import what_is_excused

ALL_TABLES = sorted(path.stem.removeprefix("attacks_") for path in Path(__file__).parent.glob("attacks_*.py"))


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--excused"] or ALL_TABLES
    if "--excused" in sys.argv:
        attacks = [attack for name in names for attack in import_module(f"attacks_{name}").ATTACKS]
        for line in what_is_excused(attacks):
            print(line, flush=True)  # noqa: T201 (what it is for)
        return
    print(f"{'table':<24} {'truth':<10} {'tried':>5} {'as it is':>8}  otherwise")  # noqa: T201 (what it is for)
    for name in names:
        counts: dict[str, Counter[str]] = {}
        otherwise: dict[str, list[str]] = {}
        for attack in import_module(f"attacks_{name}").ATTACKS:
            found = {str(case.status) for case in attack.report().cases}
            is_true = found <= ALLOWED[attack.truth]
            counts.setdefault(attack.truth, Counter())[str(is_true)] += 1
            if not is_true:
                otherwise.setdefault(attack.truth, []).append(f"{attack.name} {'+'.join(sorted(found))}")
        for truth, count in counts.items():
            rest = ", ".join(otherwise.get(truth, []))
            print(f"{name:<24} {truth:<10} {count.total():>5} {count['True']:>8}  {rest}")  # noqa: T201


if __name__ == "__main__":
    main()
