"""A row of a table: an op, a gradient, what is true of it, and what gradcheck says of it."""

from __future__ import annotations

import fnmatch
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import gradcheck_cli
from gradcheck_cli.numerics import FLOAT32, FLOAT64, Problem, Reason, Verdict, judge

# What may be said of a gradient, by what is true of it. Of what is undecidable a right decision is fair, too.
ALLOWED = {
    "right": {"passed"},
    "wrong": {"mismatched"},
    "not green": {
        "mismatched",
        "inconclusive",
        "error",
        "unexpected_pass",
    },  # wrong, which numbers may not show
    "undecidable": {"passed", "inconclusive"},  # right, which numbers may not show
    "unchecked": {"inconclusive", "error"},  # nothing was tested
    "stated": {"expected_mismatch"},  # wrong, in the way that the spec says
    "refused": {"error"},  # no gradient, or no op: `at` says which kind of error
    # Of functions of arrays:
    "at a kink": {"at a kink"},  # right, as one of the slopes of the sides
    "open": {"inconclusive"},  # nothing can be said
}
_MODULE = "of_a_row"  # where the functions are put, so that a spec can name them
_WORST_FIRST = {
    Verdict.MISMATCH: "mismatched",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.KINK: "at a kink",
    Verdict.PASS: "passed",
}


@dataclass(frozen=True)
class Said:
    """What is said of a row.

    Attributes:
        statuses: of each case; of a function in NumPy, one for all elements.
        parts: the status of each check and pair; of a function in NumPy, of each element.
        rules: which rules decided, and why something is open.
    """

    statuses: frozenset[str]
    parts: Mapping[str, str]
    rules: str
    text: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Row:
    """An op with a gradient.

    Attributes:
        name: unique in its table.
        op: a function of tensors, or the text of a spec's `forward`; or of arrays, (B, n) to (B, m).
        gradient: a function `(op, *upstream)` or its text, where it isn't part of the op; of arrays, (m, n).
        inputs: as in a spec; of a function of arrays, the point, (n,).
        truth: a key of `ALLOWED`.
        why: it is so, where the table's first sentence doesn't say it.
        at: the pair that is wrong, or the kind of error, where one is known; of arrays, `1,0` or `diagonal`.
        keys: what else the spec says, or all of it, with `ops`; of arrays, what else a `Problem` takes.
        functions: other functions that the spec names, as `of_a_row:NAME`.
        folder: where the modules are that the spec names, if in none of the tests.
        on_change: whether it runs on each change, not on main alone.
        table: in which it is; the table of all rows fills it in.
    """

    name: str
    op: Callable[..., Any] | str
    gradient: Any
    inputs: Any
    truth: str
    why: str = ""
    at: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    folder: str = ""
    on_change: bool = False
    table: str = ""

    @property
    def label(self) -> str:
        """Which row it is, among those of all tables."""
        return f"{self.table}-{self.name}" if self.table else self.name

    def spec(self) -> dict[str, Any]:
        """Return the spec, with its functions in a module of their own."""
        if "ops" in self.keys:
            return dict(self.keys)
        module = sys.modules[_MODULE] = ModuleType(_MODULE)
        for name, function in self.functions.items():
            setattr(module, name, function)
        spec = {"op": self.name, "inputs": dict(self.inputs), **self.keys}
        for role, function in (("forward", self.op), ("gradient", self.gradient)):
            if callable(function):
                setattr(module, role, function)
                spec[role] = f"{_MODULE}:{role}"
            elif function:
                spec[role] = function
        return spec

    def report(self) -> Any:
        """Check it in this process."""
        before, sys.path[:0] = Path.cwd(), [self.folder] * bool(self.folder)
        os.chdir(self.folder or before)
        try:
            return gradcheck_cli.check(self.spec())
        finally:
            os.chdir(before)
            del sys.path[: bool(self.folder)]

    def say(self) -> Said:
        """Check it, and return what is said."""
        began = time.process_time()
        said = self._say_in_numpy() if isinstance(self.inputs, np.ndarray) else said_of(self.report())
        return replace(said, seconds=time.process_time() - began)

    def _say_in_numpy(self) -> Said:
        settings = dict(self.keys)
        precision = settings.pop("precision", FLOAT64)
        with np.errstate(all="ignore"):
            judged = judge(Problem(self.op, self.inputs, precision, precision, **settings), self.gradient)
        word = next(word for code, word in _WORST_FIRST.items() if (judged.verdict == code).any())
        parts = {
            _name_of(index): _WORST_FIRST[Verdict(code)] for index, code in np.ndenumerate(judged.verdict)
        }
        rules = " ".join(Reason(code).name for code in judged.reason.flat)
        return Said(frozenset({word}), parts, rules, str(judged))

    def fault(self, said: Said) -> str:
        """Return what is said that isn't true; empty where all is."""
        wanted = ALLOWED[self.truth]
        there = {status for part, status in said.parts.items() if part.endswith(f" {self.at}")}
        if said.statuses <= wanted and (not self.at or (there and there <= wanted)):
            return ""
        found = ", ".join(sorted(said.statuses))
        why = f" ({self.why})" if self.why else ""
        at = f" ({self.at}: {', '.join(sorted(there)) or 'nothing'})" if self.at else ""
        return f"{self.label} is {self.truth}{why}, but {found}{at}:\n{said.text}"


def _name_of(index: tuple[int, ...]) -> str:
    output, taken = index
    return f"element {output},{taken}" + " diagonal" * (output == taken)


def in_precision(function: Callable[[Any], Any], precision: Any = FLOAT64) -> Callable[[Any], Any]:
    """Return a function of arrays that runs in a precision: float32, or float64."""
    dtype = np.float32 if precision is FLOAT32 else np.float64

    def evaluate(points: Any) -> Any:
        with np.errstate(all="ignore"):
            values = function(points.astype(dtype))
        assert values.dtype == dtype, "NumPy promoted: the float32 forward would run in float64"
        return values.astype(np.float64)

    return evaluate


def said_of(report: Any) -> Said:
    """Return what a report says of each case, check and pair; and by which rules, and why."""
    parts, rules = {}, []
    for case in report.cases:
        name = f"{case.case} {case.dtype} {case.mode}"
        parts |= {f"{name} {check.name}": str(check.status) for check in case.checks}
        parts |= {f"{name} {pair.label}": str(pair.status) for pair in case.pairs}
        parts |= {f"{name} {case.error.kind}": "error"} if case.error is not None else {}
        rules += [f"{pair.mismatch} {pair.undecided} {pair.numbers.decided_by}" for pair in case.pairs]
    statuses = frozenset(str(case.status) for case in report.cases)
    return Said(statuses, parts, "; ".join(rules), gradcheck_cli.render_report(report))


def marked(rows: Iterable[Row], *names: str) -> tuple[Row, ...]:
    """Return rows, of which some run on each change; `python -m tests.support.mutants` chooses them.

    Args:
        rows: of a table.
        names: of those that do; `*` stands for anything.

    Raises:
        ValueError: a row that is named isn't there, or two rows have one name.
    """
    rows = tuple(rows)
    known = [row.name for row in rows]
    found = {name: set(fnmatch.filter(known, name.replace("[", "[[]"))) for name in names}
    if missing := [name for name in names if not found[name]]:
        raise ValueError(f"no row is named {sorted(missing)}")
    if len(set(known)) < len(known):
        raise ValueError(f"two rows are named {sorted({name for name in known if known.count(name) > 1})}")
    chosen = set().union(*found.values())
    return tuple(replace(row, on_change=row.on_change or row.name in chosen) for row in rows)


def require(row: Row) -> Said:
    """Check a row and assert that what is said of it is true; return what is said."""
    said = row.say()
    assert not row.fault(said), row.fault(said)
    return said
