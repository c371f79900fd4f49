"""Compare the cases of two folders of specs as data, such as those before and after a rewriting.

git worktree add /tmp/before COMMIT
python -m tests.audit.same_cases /tmp/before/specs/tensorflow specs/tensorflow
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from gradcheck_cli.spec.load import load


def cases(folder):
    """Return each case's text, without where it is written, by op and name."""
    found = defaultdict(list)
    for case in load([folder]).cases:
        text = repr(replace(case, origin=replace(case.origin, path="", line=0)))
        text = text.replace(str(folder.resolve().parent), "")
        found[f"{case.op} {case.name}"].append(text)
    return {name: sorted(texts) for name, texts in found.items()}


if __name__ == "__main__":
    before, after = (cases(Path(folder)) for folder in sys.argv[1:])
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    counts = " and ".join(str(sum(map(len, each.values()))) for each in (before, after))
    sys.stdout.write("\n".join([f"{counts} cases, {len(changed)} differ", *changed]) + "\n")
    sys.exit(bool(changed))
