"""Which ops `mutate` is tried on, every tenth of a folder, and the table of what became of its corruptions.

for part in tensorflow functions keras probability; do
    gradcheck mutate specs/$part $(python -m tests.audit.mutation_table $part) --format json > $part.json
done
python -m tests.audit.mutation_table tensorflow.json functions.json keras.json probability.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gradcheck_cli.spec.load import load
from tests.audit.audit_table import ROOT

OUTCOMES = ("caught", "undecided", "missed", "out of sight")


def every_tenth(folder):
    """Return every tenth op of a folder of specs as options of `mutate`."""
    ops = dict.fromkeys(case.op for case in load([ROOT / "specs" / folder]).cases)
    return " ".join(f"--op {op}" for op in list(ops)[::10])


def rows(paths):
    """Yield the table's rows: one for each folder, then one for each kind of corruption."""
    reports = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    yield "| | cases | tried | called a mismatch | undecided | missed | out of sight |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for stem, report in reports.items():
        yield _row(f"`specs/{stem}`", f"{report['summary']['cases']:,}", report["summary"])
    kinds = list(dict.fromkeys(kind for report in reports.values() for kind in report["kinds"]))
    for kind in kinds:
        counts = [report["kinds"][kind] for report in reports.values() if kind in report["kinds"]]
        yield _row(kind, "", {outcome: sum(count[outcome] for count in counts) for outcome in OUTCOMES})


def _row(name, cases, counts):
    tried = sum(counts[outcome] for outcome in OUTCOMES[:3])
    numbers = [f"{number:,}" for number in (tried, *(counts[outcome] for outcome in OUTCOMES))]
    return f"| {name} | {cases} | " + " | ".join(numbers) + " |"


if __name__ == "__main__":
    names = sys.argv[1:]
    reports = [Path(name) for name in names if name.endswith(".json")]
    sys.stdout.write("\n".join(rows(reports) if reports else map(every_tenth, names)) + "\n")
