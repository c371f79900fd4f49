# ruff: noqa: T201 (a script: printing is what it is for)
"""`python -m tests.support.mutants FILE`: which changes of the judging code the rows catch, and by which row.

One number, comparison, sign or condition of `numerics` and `checking` is changed at a time, a number of one
dtype, or an entry of the ledger is left out. A mutant's module is compiled, and its functions take the code,
so that a process tries thousands. Each row runs once, to see which lines it reaches. Then a mutant meets the
rows that reach it, until something untrue is said of one: the row kills it. Rows that killed others come
first, then cheap ones, then the fastest of each table in turn: so few rows kill most.

FILE keeps results as lines of JSON. What is there isn't done again, so a run may be interrupted. `--report`
prints the score, the mutants that no row killed, and the rows that did: name these in their tables.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parents[2]
FOLDERS = ("gradcheck_cli/numerics", "gradcheck_cli/checking")
FACTORS = (4.0, 0.25)
CHEAP = 0.02  # seconds of a row that is tried before others
LONGEST = 20.0  # seconds of a row: a mutant may never end
MOST_MEMORY = 4 * 2**20  # kilobytes, after which the process starts anew: graphs of thousands of cases stay
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
EXPONENTS = {"sentinels", "inner", "middle", "depths"}  # of two: four times as much is 2 more
FACTS = {"unit_roundoff", "smallest_subnormal", "largest", "smallest_kept", "name"}  # what a format is


def mutations(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may be written in an expression's place, each with what it is called."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind in COMPARISONS[type(node.ops[0])]:
            other = ast.Compare(node.left, [kind()], node.comparators)
            yield f"{type(node.ops[0]).__name__} -> {kind.__name__}", other
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if not any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
            kind = OPERATORS[type(node.op)]
            yield f"{type(node.op).__name__} -> {kind.__name__}", ast.BinOp(node.left, kind(), node.right)
    elif isinstance(node, ast.BoolOp):
        is_and = isinstance(node.op, ast.And)
        other = ast.BoolOp(ast.Or() if is_and else ast.And(), node.values)
        yield "and -> or" if is_and else "or -> and", other
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield f"{type(node.op).__name__} left out", copy.copy(node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value:
        is_count = isinstance(node.value, int) and abs(node.value) <= 2  # an axis, a side, a pair
        for factor in () if is_count else FACTORS:
            yield f"x{factor:g}", ast.Constant(multiply(node.value, factor))


def multiply(value: Any, factor: float, *, is_exponent: bool = False) -> Any:
    """Return a number, or each of several, times a factor."""
    if isinstance(value, tuple):
        return tuple(multiply(part, factor, is_exponent=is_exponent) for part in value)
    if isinstance(value, bool | str) or not value:
        return value
    if is_exponent:
        return value + (2 if factor > 1 else -2)
    return max(1, int(value * factor)) if isinstance(value, int) else value * factor


def inside(node: ast.AST, *, is_inside: bool = False) -> Iterator[ast.AST]:
    """Yield the expressions in functions' bodies, but for texts, annotations, indices and signed numbers."""
    for name, part in ast.iter_fields(node):
        for child in part if isinstance(part, list) else [part]:
            is_left_out = isinstance(child, ast.JoinedStr) or name in {
                "annotation",
                "args",
                "decorator_list",
                "returns",
            } - ({"args"} if isinstance(node, ast.Call) else set())
            is_index = isinstance(node, ast.Subscript) and name == "slice"
            is_signed = isinstance(node, ast.UnaryOp) and isinstance(child, ast.Constant)
            if not isinstance(child, ast.AST) or is_left_out or is_index or is_signed:
                continue
            if is_inside and isinstance(child, ast.expr):
                yield child
            yield from inside(child, is_inside=is_inside or isinstance(child, ast.FunctionDef))


class _Swap(ast.NodeTransformer):
    def __init__(self, node: ast.AST, other: ast.AST):
        self._node, self._other = node, other

    def visit(self, node: ast.AST) -> Any:
        return self._other if node is self._node else self.generic_visit(node)


def with_parts(code: CodeType) -> list[CodeType]:
    """Return a code object and those inside of it, in order."""
    parts = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [code, *(inner for part in parts for inner in with_parts(part))]


class Source:
    """A module's text, whose functions may run another code.

    Attributes:
        edits: by mutant: the expression, and what replaces it.
    """

    def __init__(self, path: Path, shown: str):
        text = path.read_text(encoding="utf-8")
        self.path, self.tree = path, ast.parse(text)
        self._lines = text.splitlines()
        self.edits: dict[str, tuple[Any, ast.AST]] = {}
        for node in inside(self.tree):
            for what, other in mutations(node):
                place = f"{shown}:{node.lineno}:{node.col_offset}"  # type: ignore[attr-defined]
                line = self._lines[node.lineno - 1].strip()  # type: ignore[attr-defined]
                self.edits[f"{place} {what} | {line}"] = node, ast.copy_location(other, node)

    def _compile(self) -> list[CodeType]:
        return with_parts(compile(ast.fix_missing_locations(self.tree), str(self.path), "exec"))

    @contextmanager
    def edited(self, label: str) -> Iterator[None]:
        """Let the functions run with one edit."""
        node, other = self.edits[label]
        before = self._compile()
        self.tree = _Swap(node, other).visit(self.tree)
        after = self._compile()
        functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        own = [one for one in functions if one.__code__.co_filename == str(self.path)]
        kept = [(one, one.__code__) for one in own]
        for function, code in kept:
            if code in before:
                function.__code__ = after[before.index(code)]
        try:
            yield
        finally:
            for function, code in kept:
                function.__code__ = code
            self.tree = _Swap(other, node).visit(self.tree)


def _numbers_of(tree: ast.Module) -> set[str]:
    """Return the names of a module's numbers."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            parts = [part for part in ast.walk(node.value) if isinstance(part, ast.expr)]
            known = ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.Name
            numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
            if all(isinstance(part, known) for part in parts) and all(
                isinstance(number, int | float) and not isinstance(number, bool) for number in numbers
            ):
                names |= {node.targets[0].id} & set(re.findall(r"_?[A-Z][A-Z0-9_]+", node.targets[0].id))
    return names


@dataclass(frozen=True)
class Number:
    """A number that is changed where it is kept: of a module, in all that import it, or of a dtype."""

    places: tuple[tuple[Any, str], ...]
    factor: float
    is_exponent: bool = False

    @contextmanager
    def multiplied(self) -> Iterator[None]:
        """Change it for a while."""
        before = [getattr(owner, name) for owner, name in self.places]
        for (owner, name), value in zip(self.places, before, strict=True):
            object.__setattr__(owner, name, multiply(value, self.factor, is_exponent=self.is_exponent))
        try:
            yield
        finally:
            for (owner, name), value in zip(self.places, before, strict=True):
                object.__setattr__(owner, name, value)


class Package:
    """The package, and its mutants, of which one is on, or none."""

    def __init__(self) -> None:
        from gradcheck_cli.checking.judging import ledger
        from gradcheck_cli.numerics import precision
        from gradcheck_cli.running import session  # noqa: F401 (what else judges is imported)
        from tests.support import excused

        self._ledger, self._precision, self._excused = ledger, precision, excused
        paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
        self._sources = [Source(path, str(path.relative_to(ROOT / "gradcheck_cli"))) for path in paths]
        self._by_label = {label: source for source in self._sources for label in source.edits}
        self._entries = {f"entry {entry.rule.name} left out": entry for entry in ledger.ALLOWANCES}
        self._numbers: dict[str, Number] = {}
        self._lines = {
            label: {(str(source.path), source.edits[label][0].lineno)}
            for label, source in self._by_label.items()
        }
        self._find_numbers()
        self._find_fields()

    def _find_numbers(self) -> None:
        """Find the numbers of modules, and on which lines they are used."""
        modules = {
            ".".join(source.path.relative_to(ROOT).with_suffix("").parts): source for source in self._sources
        }
        own = {module: _numbers_of(source.tree) for module, source in modules.items()}
        places, used = defaultdict(list), defaultdict(set)
        for module, source in modules.items():
            names = {name: (module, name) for name in own[module]}
            for node in source.tree.body:
                if isinstance(node, ast.ImportFrom):
                    known = [one for one in node.names if one.name in own.get(node.module or "", ())]
                    names |= {one.asname or one.name: (node.module or "", one.name) for one in known}
            for name, key in names.items():
                places[key].append((sys.modules[module], name))
            for node in inside(source.tree):
                if isinstance(node, ast.Name) and node.id in names:
                    used[names[node.id]].add((str(source.path), node.lineno))
        for (module, name), lines in used.items():
            for factor in FACTORS:
                label = f"number {module}.{name} x{factor:g}"
                self._numbers[label], self._lines[label] = Number(tuple(places[module, name]), factor), lines

    def _find_fields(self) -> None:
        """Find the numbers of dtypes."""
        for its in self._precision.PRECISIONS:
            for owner in (its, *(getattr(its, part.name) for part in fields(its))):
                for part in fields(owner) if is_dataclass(owner) else ():
                    value = getattr(owner, part.name)
                    is_fact = part.name in FACTS or isinstance(value, bool | str) or is_dataclass(value)
                    for factor in () if is_fact or not value else FACTORS:
                        number = Number(((owner, part.name),), factor, part.name in EXPONENTS)
                        self._numbers[f"number {its.name} {part.name} x{factor:g}"] = number

    def labels(self) -> list[str]:
        """Return all mutants."""
        return sorted([*self._by_label, *self._numbers, *self._entries])

    @contextmanager
    def on(self, label: str) -> Iterator[None]:
        """Switch a mutant on."""
        with ExitStack() as stack:
            if label in self._entries:
                rest = tuple(one for one in self._ledger.ALLOWANCES if one is not self._entries[label])
                stack.enter_context(self._excused.replaced(self._ledger, "ALLOWANCES", rest))
            elif label in self._numbers:
                stack.enter_context(self._numbers[label].multiplied())
            else:
                stack.enter_context(self._by_label[label].edited(label))
            yield

    @contextmanager
    def recorded(self, reached: set[str]) -> Iterator[None]:
        """Note which mutants are reached: their lines run, their number is read, their entry acts."""
        ran, read, acting = set(), set(), set()
        paths = {str(source.path) for source in self._sources}

        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_filename not in paths:
                return None
            if event == "line":
                ran.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        def get(record: Any, name: str) -> Any:
            read.add((id(record), name))
            return object.__getattribute__(record, name)

        kinds = (self._precision.Precision, self._precision.LadderSteps, self._precision.PieceSteps)
        for kind in kinds:
            kind.__getattribute__ = get
        sys.settrace(trace)
        try:
            with self._excused.recorded(defaultdict(list), acting):
                yield
        finally:
            sys.settrace(None)
            for kind in kinds:
                del kind.__getattribute__
            reached |= {label for label, lines in self._lines.items() if lines & ran}
            for label, number in self._numbers.items():
                ((owner, name), *_) = number.places
                reached |= {label} if (id(owner), name) in read else set()
            reached |= {label for label, entry in self._entries.items() if entry.rule in acting}


def _stop(*_: object) -> None:
    raise TimeoutError


def fault_of(row: Any) -> str:
    """Return what untrue thing is said of a row; or how the package fails, or that it takes too long."""
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        return str(row.fault(row.say()))
    except Exception as error:  # noqa: BLE001 (whatever comes of a mutant)
        return type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Results:
    """What was found so far, in a file that grows by lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[str, dict[str, Any]] = {}
        self.mutants: dict[str, dict[str, Any]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            self._take(json.loads(line))

    def _take(self, result: dict[str, Any]) -> None:
        (self.rows if "row" in result else self.mutants)[result.get("row") or result["mutant"]] = result

    def add(self, **result: Any) -> None:
        """Keep a result."""
        self._take(result)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def record(package: Package, rows: list[Any], results: Results) -> None:
    """Run each row once, and note which mutants it reaches."""
    for row in rows:
        if row.label in results.rows:
            continue
        reached: set[str] = set()
        began = time.process_time()
        with package.recorded(reached):
            fault = fault_of(row)
        took = time.process_time() - began
        results.add(row=row.label, seconds=round(took, 4), fault=fault[:200], reached=sorted(reached))
        _renew()


def _renew() -> None:
    """Start the process anew if it holds too much."""
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MOST_MEMORY:
        sys.stdout.flush()
        command = [sys.executable, "-m", "tests.support.mutants", *sys.argv[1:]]
        os.execv(sys.executable, command)  # noqa: S606 (the same again)


def kill(package: Package, rows: dict[str, Any], results: Results, sample: list[str], options: Any) -> None:
    """Look for a row that kills each mutant of a sample."""
    reaching = defaultdict(list)
    for name, result in results.rows.items():
        for label in result["reached"] if name in rows and not result["fault"] else ():
            reaching[label].append(name)
    kills = Counter(result["by"] for result in results.mutants.values() if result["by"])
    for label in sample:
        if label in results.mutants:
            continue
        began, tried, by, said = time.process_time(), 0, "", ""
        for name in _in_turns(reaching[label], kills, results):
            if by or time.process_time() > began + options.each:
                break
            tried += 1
            with package.on(label):
                said = fault_of(rows[name])
            by = name if said and not fault_of(rows[name]) else ""  # nothing but the mutant is to blame
        kills[by] += bool(by)
        results.add(
            mutant=label, by=by, tried=tried, reaching=len(reaching[label]), said=said[:120] * bool(by)
        )
        _renew()


def _in_turns(names: list[str], kills: Counter[str], results: Results) -> list[str]:
    """Return rows that have killed others; then cheap ones, then the rest: one of each table in turn."""
    ordered = sorted(names, key=lambda name: (-kills[name], results.rows[name]["seconds"]))
    tables = defaultdict(list)
    for name in ordered:
        if not kills[name]:
            tables[results.rows[name]["seconds"] > CHEAP, name.partition("-")[0]].append(name)
    turns = [name for name in ordered if kills[name]]
    for is_dear in (False, True):
        columns = [rows for (dear, _), rows in tables.items() if dear is is_dear]
        turns += [name for turn in zip_longest(*columns) for name in turn if name is not None]
    return turns


def report(results: Results, labels: list[str]) -> Iterator[str]:
    """Yield the score, the rows that are needed, and the mutants that no row killed."""
    tried = list(results.mutants.values())
    killed = [result for result in tried if result["by"]]
    whole = [result for result in tried if not result["by"] and result["tried"] < result["reaching"]]
    unreached = [result for result in tried if not result["reaching"]]
    yield f"{len(labels):,} mutants, {len(tried)} tried, {len(killed)} killed by {len(needed(results))} rows"
    yield f"{len(whole)} met only some of the rows that reach them; no row that ran reaches {len(unreached)}"
    yield f"{len(results.rows):,} rows ran, {sum(one['seconds'] for one in results.rows.values()):.0f} s"
    for result in tried:
        if not result["by"]:
            yield f"  not killed by {result['tried']} of {result['reaching']}: {result['mutant']}"


def needed(results: Results) -> list[str]:
    """Return the rows that killed a mutant."""
    return sorted({result["by"] for result in results.mutants.values() if result["by"]})


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("rows", nargs="*", metavar="TABLE|ROW", help="only these")
    parser.add_argument("--mutants", type=int, default=0, metavar="N", help="a sample of so many")
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    parser.add_argument(
        "--rows-beside", type=int, default=0, metavar="N", help="so many rows left to main, too"
    )
    parser.add_argument("--on-change", action="store_true", help="only rows that run on each change")
    parser.add_argument("--each", type=float, default=20.0, help="seconds of processor time for one mutant")
    parser.add_argument("--report", action="store_true", help="print what was found")
    options = parser.parse_args()
    package, results = Package(), Results(options.file)
    from tests.support.excused import without_blame
    from tests.support.rows import selected

    if options.report:
        for line in report(results, package.labels()):
            print(line)
        print("\n".join(needed(results)))
        return 0
    every = selected(options.rows)
    draw = random.Random(options.seed)  # noqa: S311 (no secret)
    beside = [row for row in every if not row.on_change]
    chosen = [row for row in every if row.on_change]
    if not options.on_change:
        chosen += draw.sample(beside, min(options.rows_beside or len(beside), len(beside)))
    labels = package.labels()
    sample = draw.sample(labels, min(options.mutants or len(labels), len(labels)))
    with without_blame():
        record(package, chosen, results)
        kill(package, {row.label: row for row in chosen}, results, sample, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
