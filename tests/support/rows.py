# ruff: noqa: T201 (a script: printing is what it is for)
"""`python -m tests.support.rows [TABLE | TABLE-ROW ...]`: what is said of rows, beside what is true of them.

A table is a module of `tests/rows` with a tuple `ROWS`; `*` stands for anything. Rows of which something
untrue is said are printed, and then the exit code is 1. `--save FILE` keeps what was said; `--against FILE`
prints what is another now: a verdict, the rule that decided, the time. `--excused` prints the largest error
that each entry of the ledger excused.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

from tests.support.excused import what_is_excused, without_blame
from tests.support.row import Row, Said

FOLDER = Path(__file__).parents[1] / "rows"
TOLD_APART = ("diagnosis",)  # test_diagnosis.py runs them, and reads more than the verdict
SLOWER, SECONDS = 1.5, 0.5  # what is printed as another time


@cache
def tables(*, every: bool = False) -> dict[str, tuple[Row, ...]]:
    """Return the rows of each table, named `TABLE-ROW`."""
    names = sorted(path.stem for path in FOLDER.glob("[!_]*.py") if not path.stem.startswith("test_"))
    return {
        name: tuple(replace(row, table=name) for row in import_module(f"tests.rows.{name}").ROWS)
        for name in names
        if every or name not in TOLD_APART
    }


def parameters(rows: Iterable[Row]) -> list[Any]:
    """Return a parameter of a test for each row; one that doesn't run on each change is marked."""
    return [
        pytest.param(row, id=row.label, marks=[] if row.on_change else [pytest.mark.once]) for row in rows
    ]


def selected(wanted: Iterable[str], *, on_change: bool = False) -> list[Row]:
    """Return the rows of tables, or of names.

    Raises:
        SystemExit: nothing is named so.
    """
    every = [(table, row) for table, rows in tables(every=True).items() for row in rows]
    found = {}
    for pattern in wanted or ("*",):
        named = [
            row for table, row in every if fnmatchcase(table, pattern) or fnmatchcase(row.label, pattern)
        ]
        if not named:
            sys.exit(f"no table and no row is named {pattern}; tables: {', '.join(tables(every=True))}")
        found |= {row.label: row for row in named}
    return [row for row in found.values() if row.on_change or not on_change]


def as_json(said: Said) -> dict[str, Any]:
    """Return what is kept of a run."""
    statuses = sorted(said.statuses)
    return {"statuses": statuses, "parts": dict(said.parts), "rules": said.rules, "seconds": said.seconds}


def differences(now: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
    """Yield what of one row is another than it was."""
    if now["statuses"] != before["statuses"]:
        yield f"{'+'.join(before['statuses'])} -> {'+'.join(now['statuses'])}"
    parts = sorted(now["parts"].keys() | before["parts"].keys())
    for part in parts:
        was, given = before["parts"].get(part, "nothing"), now["parts"].get(part, "nothing")
        if was != given:
            yield f"{part}: {was} -> {given}"
    if now["rules"] != before["rules"]:
        yield f"decided by {before['rules']} -> {now['rules']}"
    if now["seconds"] > SLOWER * before["seconds"] + SECONDS:
        yield f"{before['seconds']:.2f} s -> {now['seconds']:.2f} s"


def run(rows: Iterable[Row]) -> tuple[dict[str, Any], int]:
    """Run rows and print those of which something untrue is said, and counts; return all, and how many."""
    kept, counts, untrue = {}, Counter(), 0
    with without_blame():
        for row in rows:
            said = row.say()
            kept[row.label] = as_json(said)
            fault = row.fault(said)
            counts[row.table, row.truth, not fault] += 1
            untrue += bool(fault)
            if fault:
                print(f"{fault}\n")
    print(f"{'table':<24} {'truth':<12} {'rows':>5} {'untrue':>6}")
    for table, truth in dict.fromkeys(key[:2] for key in counts):
        true, false = counts[table, truth, True], counts[table, truth, False]
        print(f"{table:<24} {truth:<12} {true + false:>5} {false:>6}")
    seconds = sum(one["seconds"] for one in kept.values())
    print(f"{len(kept)} rows, {untrue} untrue, {seconds:.0f} s of processor time")
    return kept, untrue


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="TABLE|ROW")
    parser.add_argument("--on-change", action="store_true", help="only those that run on each change")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep what is said")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with what was said then")
    parser.add_argument("--excused", action="store_true", help="what each entry of the ledger excuses")
    options = parser.parse_args()
    rows = selected(options.rows, on_change=options.on_change)
    if options.excused:
        for line in what_is_excused(rows):
            print(line, flush=True)
        return 0
    kept, untrue = run(rows)
    if options.save:
        options.save.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    if options.against:
        before = json.loads(options.against.read_text(encoding="utf-8"))
        for name, now in kept.items():
            for line in differences(now, before[name]) if name in before else ("new",):
                print(f"{name}: {line}")
    return int(untrue > 0)


if __name__ == "__main__":
    sys.exit(main())
