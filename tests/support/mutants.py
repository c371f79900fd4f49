# ruff: noqa: T201 (a script: printing is what it is for)
"""`python -m tests.support.mutants FILE`: which changes of the judging code the rows catch, and by which row.

One number, comparison, sign or condition of `numerics` and `checking` is changed at a time, a number of one
dtype, or an entry of the ledger is left out. All these mutants are compiled at once, each behind a switch
(mutant schemata), so that a process tries thousands. Each row runs once, to see which mutants it reaches.
Then a mutant meets the rows that reach it, until something untrue is said of one: the row kills it. Rows that
killed others come first, then cheap ones, then the fastest of each table in turn: so few rows kill most.

FILE keeps results as lines of JSON. What is there isn't done again, so a run may be interrupted.
`--report` prints the score, the rows that are needed, and the mutants that no row killed. `--mark` names
these rows in their tables, so that they run on each change, beside those that do already.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
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
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from itertools import zip_longest
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parents[2]
FOLDERS = ("gradcheck_cli/numerics", "gradcheck_cli/checking")
SWITCH = "__mutant__"  # a name of `builtins`: the number of the mutant that is on; 0 is none
MULTIPLY = "__multiply__"  # likewise: what multiplies a number of a module
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


class Schemata(ast.NodeTransformer):
    """Puts each mutant of a module beside the code as it is, behind a switch."""

    def __init__(self, path: str, source: str, constants: dict[str, str], numbers: dict[str, int]):
        self.path, self._lines = path, source.splitlines()
        self._constants, self._numbers = constants, numbers
        self._is_inside = False

    def _number(self, label: str) -> int:
        return self._numbers.setdefault(label, len(self._numbers) + 1)

    def _switched(self, node: Any, mutated: Any, others: list[tuple[str, Any]]) -> Any:
        """Return an expression that is one of some others where its mutant is on."""
        for what, other in others:
            label = (
                what
                if what.startswith("number ")
                else (
                    f"{self.path}:{node.lineno}:{node.col_offset} {what} | "
                    f"{self._lines[node.lineno - 1].strip()}"
                )
            )
            test = ast.Compare(ast.Name(SWITCH, ast.Load()), [ast.Eq()], [ast.Constant(self._number(label))])
            mutated = ast.IfExp(test, other, mutated)
        return ast.fix_missing_locations(ast.copy_location(mutated, node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        before, self._is_inside = self._is_inside, True
        node.body = [self.visit(part) for part in node.body]
        self._is_inside = before
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        node.value = self.visit(node.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        if not self._is_inside or len(node.ops) > 1:
            return self.generic_visit(node)
        kept = copy.deepcopy(node)
        others = []
        for kind in COMPARISONS[type(node.ops[0])]:
            other = copy.deepcopy(kept)
            other.ops = [kind()]
            others.append((f"{type(kept.ops[0]).__name__} -> {kind.__name__}", other))
        return self._switched(node, self.generic_visit(node), others)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        kind = OPERATORS.get(type(node.op))
        is_text = any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right))
        if not self._is_inside or kind is None or is_text:
            return self.generic_visit(node)
        other = copy.deepcopy(node)
        other.op = kind()
        what = f"{type(node.op).__name__} -> {kind.__name__}"
        return self._switched(node, self.generic_visit(node), [(what, other)])

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if not self._is_inside:
            return self.generic_visit(node)
        other = copy.deepcopy(node)
        other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        what = "and -> or" if isinstance(node.op, ast.And) else "or -> and"
        return self._switched(node, self.generic_visit(node), [(what, other)])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if not self._is_inside or isinstance(node.operand, ast.Constant):
            return node if isinstance(node.operand, ast.Constant) else self.generic_visit(node)
        other = copy.deepcopy(node.operand)
        what = f"{type(node.op).__name__} left out"
        return self._switched(node, self.generic_visit(node), [(what, other)])

    def visit_Constant(self, node: ast.Constant) -> Any:
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        is_count = isinstance(node.value, int) and abs(node.value) <= 2  # an axis, a side, a pair
        if not self._is_inside or not is_number or is_count or not node.value:
            return node
        others = [(f"x{factor:g}", ast.Constant(multiply(node.value, factor))) for factor in FACTORS]
        return self._switched(node, copy.copy(node), others)

    def visit_Name(self, node: ast.Name) -> Any:
        place = self._constants.get(node.id)
        if not self._is_inside or place is None or not isinstance(node.ctx, ast.Load):
            return node
        others = [
            (
                f"number {place} x{factor:g}",
                ast.Call(ast.Name(MULTIPLY, ast.Load()), [copy.copy(node), ast.Constant(factor)], []),
            )
            for factor in FACTORS
        ]
        return self._switched(node, copy.copy(node), others)


def multiply(value: Any, factor: float, *, is_exponent: bool = False) -> Any:
    """Return a number, or each of several, times a factor."""
    if isinstance(value, tuple):
        return tuple(multiply(part, factor, is_exponent=is_exponent) for part in value)
    if isinstance(value, bool | str) or not value:
        return value
    if is_exponent:
        return value + (2 if factor > 1 else -2)
    return max(1, int(value * factor)) if isinstance(value, int) else value * factor


class Hook(MetaPathFinder):
    """Imports the modules that judge with all of their mutants.

    Attributes:
        numbers: of the mutants, by label: place and change.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._trees = {
            ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(
                path.read_text(encoding="utf-8")
            )
            for folder in FOLDERS
            for path in sorted((ROOT / folder).rglob("*.py"))
        }
        self._own = {module: _numbers_of(tree) for module, tree in self._trees.items()}

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Find a module; those of the folders get a loader that changes them."""
        if not name.startswith(tuple(folder.replace("/", ".") for folder in FOLDERS)):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self)
        return spec

    def compile(self, module: str, path: str, source: str) -> Any:
        """Compile a module with its mutants."""
        constants = {name: f"{module}.{name}" for name in self._own.get(module, ())}
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                named = [alias for alias in node.names if alias.name in self._own.get(node.module or "", ())]
                constants |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in named}
        short = str(Path(path).relative_to(ROOT / "gradcheck_cli"))
        tree = Schemata(short, source, constants, self.numbers).visit(tree)
        return compile(ast.fix_missing_locations(tree), path, "exec")


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, hook: Hook) -> None:
        super().__init__(name, path)
        self._hook = hook

    def get_code(self, fullname: str) -> Any:
        """Return the code with its mutants, never from a cache."""
        return self._hook.compile(fullname, self.path, self.get_data(self.path).decode("utf-8"))


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


class Recorder:
    """Stands for the number of the mutant that is on, and notes which are asked for."""

    def __init__(self) -> None:
        self.asked: set[int] = set()

    def __eq__(self, other: object) -> bool:
        self.asked.add(other)  # type: ignore[arg-type]
        return False

    __hash__ = None  # type: ignore[assignment]


class Package:
    """The package with all of its mutants, of which one is on, or none."""

    def __init__(self) -> None:
        self._hook = Hook()
        setattr(builtins, SWITCH, 0)
        setattr(builtins, MULTIPLY, multiply)
        sys.meta_path.insert(0, self._hook)
        from gradcheck_cli.checking.judging import ledger
        from gradcheck_cli.numerics import precision
        from gradcheck_cli.running import session  # noqa: F401 (what else judges is imported)
        from tests.support import excused

        self._ledger, self._precision, self._excused = ledger, precision, excused
        self._entries = {f"entry {entry.rule.name} left out": entry for entry in ledger.ALLOWANCES}
        self._fields = {}
        for its in precision.PRECISIONS:
            for owner in (its, *(getattr(its, part.name) for part in fields(its))):
                for part in fields(owner) if is_dataclass(owner) else ():
                    value = getattr(owner, part.name)
                    if (
                        part.name in FACTS
                        or isinstance(value, bool | str)
                        or is_dataclass(value)
                        or not value
                    ):
                        continue
                    for factor in FACTORS:
                        self._fields[f"number {its.name} {part.name} x{factor:g}"] = (
                            owner,
                            part.name,
                            factor,
                        )

    def labels(self) -> list[str]:
        """Return all mutants."""
        return sorted([*self._hook.numbers, *self._fields, *self._entries])

    @contextmanager
    def on(self, label: str) -> Iterator[None]:
        """Switch a mutant on."""
        if label in self._entries:
            rest = tuple(one for one in self._ledger.ALLOWANCES if one is not self._entries[label])
            with self._excused.replaced(self._ledger, "ALLOWANCES", rest):
                yield
        elif label in self._fields:
            owner, name, factor = self._fields[label]
            before = getattr(owner, name)
            object.__setattr__(owner, name, multiply(before, factor, is_exponent=name in EXPONENTS))
            try:
                yield
            finally:
                object.__setattr__(owner, name, before)
        else:
            setattr(builtins, SWITCH, self._hook.numbers[label])
            try:
                yield
            finally:
                setattr(builtins, SWITCH, 0)

    @contextmanager
    def recorded(self, reached: set[str]) -> Iterator[None]:
        """Note which mutants are reached."""
        recorder, read, acting = Recorder(), set(), set()

        def get(record: Any, name: str) -> Any:
            read.add((id(record), name))
            return object.__getattribute__(record, name)

        setattr(builtins, SWITCH, recorder)
        kinds = (self._precision.Precision, self._precision.LadderSteps, self._precision.PieceSteps)
        for kind in kinds:
            kind.__getattribute__ = get
        try:
            with self._excused.recorded(defaultdict(list), acting):
                yield
        finally:
            setattr(builtins, SWITCH, 0)
            for kind in kinds:
                del kind.__getattribute__
            reached |= {label for label, number in self._hook.numbers.items() if number in recorder.asked}
            reached |= {
                label for label, (owner, name, _) in self._fields.items() if (id(owner), name) in read
            }
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


def record(package: Package, rows: list[Any], results: Results, seconds: float) -> None:
    """Run each row once, and note which mutants it reaches."""
    ends = time.process_time() + seconds
    for row in rows:
        if row.label in results.rows:
            continue
        if time.process_time() > ends:
            return
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
    ends = time.process_time() + options.seconds
    for label in sample:
        if label in results.mutants:
            continue
        if time.process_time() > ends:
            return
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


def mark(labels: list[str]) -> None:
    """Name rows in the `marked(...)` of their tables."""
    for path in sorted((ROOT / "tests" / "rows").glob("*.py")):
        names = [label.removeprefix(f"{path.stem}-") for label in labels if label.startswith(f"{path.stem}-")]
        if names:
            source = path.read_text(encoding="utf-8")
            path.write_text(with_marks(source, names), encoding="utf-8")


def with_marks(source: str, names: list[str]) -> str:
    """Return a table's text in which these rows are marked, too; `ruff format` breaks its lines."""
    (call,) = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.targets[0]) == "ROWS"
    ]
    there = [part.value for part in call.args if isinstance(part, ast.Constant)]
    new = "".join(f", {json.dumps(name, ensure_ascii=False)}" for name in names if name not in there)
    lines = source.encode().splitlines(keepends=True)
    last = call.args[-1]
    end = sum(map(len, lines[: (last.end_lineno or 1) - 1])) + (last.end_col_offset or 0)
    whole = b"".join(lines)
    return (whole[:end] + new.encode() + whole[end:]).decode()


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
    parser.add_argument("--seconds", type=float, default=1e9, help="processor time to look for killers")
    parser.add_argument("--each", type=float, default=20.0, help="of which for one mutant")
    parser.add_argument("--report", action="store_true", help="print what was found")
    parser.add_argument("--mark", action="store_true", help="name the rows that are needed in their tables")
    options = parser.parse_args()
    package, results = Package(), Results(options.file)
    from tests.support.excused import without_blame
    from tests.support.rows import selected

    if options.mark:
        mark(needed(results))
    if options.report or options.mark:
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
        record(package, chosen, results, 1e9)
        kill(package, {row.label: row for row in chosen}, results, sample, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
