"""Which tuned numbers and allowances earn their place: what is said of gradients with others in their place.

`python tests/earning_numbers.py FILE [NAME ...]` multiplies each number of `checking` and `numerics` by 4 and
by 1/4, wherever it is used, and switches each entry of the ledger off. It tells for which gradients of
`tests/numerics` and `tests/attacks` something else is said then. With names it tries those whose name ends in
one of them. Each line of FILE is a row or a result, as JSON. What is there already isn't done again, so a run
may be interrupted. `--table` prints the results in FILE as a table instead.

Each row runs once under a tracer, to see which numbers it reaches. A number is
only tried on rows that reach it; of the rows of one kind, the fastest come first. If it changes nothing, more
rows follow. Of the attacks, those take part that `rows_on_main.py` chose to run on each change.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import time
import traceback
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from importlib import import_module
from itertools import zip_longest
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.extend(str(Path(__file__).parent / folder) for folder in ("numerics", "attacks", "benchmarks"))

from attacking import said_of
from core_figures import PACKAGE, numbers
from excused import recorded, replaced
from numerics_rows import Row, list_rows
from rows_on_main import read_rows_on_main

from gradcheck_cli.checking.judging import ledger
from gradcheck_cli.features import blame
from gradcheck_cli.numerics import precision

HERE = Path(__file__).parent
FACTORS = (4.0, 0.25)
# Seconds for each factor: of rows in NumPy, and of attacks. The second ones are taken if nothing changes.
ROUNDS = ((1.0, 2.5), (2.0, 5.0))
ON_MAIN = "tests/attacks/test_attacks.py::test_what_is_said_is_true"
EXPONENTS = {
    "FINE",
    *precision.LadderSteps.__annotations__,
}  # of two: one that is four times as large has 2 more
FACTS = {"unit_roundoff", "smallest_subnormal", "largest", "smallest_kept"}  # of a format: not tuned


@dataclass(frozen=True)
class Number:
    """A number, or an entry of the ledger.

    Attributes:
        places: what has it, a module or an instance, and its name there.
        derived: what is computed from it when modules are imported: (module, text, places), in order.
        lines: (file, line) that use it. Of others, uses are counted as they happen.
    """

    name: str
    value: object = None
    places: tuple = ()
    derived: tuple = ()
    lines: frozenset = frozenset()
    rule: object = None

    def others(self):
        """Yield what to call another value, and what puts it into place."""
        if self.rule is not None:
            rest = tuple(entry for entry in ledger.ALLOWANCES if entry.rule is not self.rule)
            yield "off", partial(replaced, ledger, "ALLOWANCES", rest)
            return
        is_exponent = self.name.rpartition(".")[2] in EXPONENTS
        for factor in FACTORS:
            yield f"x{factor:g}", partial(self.put, multiply(self.value, factor, is_exponent=is_exponent))

    @contextmanager
    def put(self, other):
        """Put another value into place, everywhere."""
        every = [*self.places, *(place for *_, places in self.derived for place in places)]
        before = [vars(owner)[name] for owner, name in every]
        try:
            for owner, name in self.places:
                vars(owner)[name] = other
            for module, text, places in self.derived:
                for owner, name in places:
                    vars(owner)[name] = eval(text, vars(module))  # noqa: S307 (text of the package)
            yield
        finally:
            for (owner, name), value in zip(every, before, strict=True):
                vars(owner)[name] = value


def multiply(value, factor, *, is_exponent=False):
    """Return a number, or each of several, times a factor."""
    if isinstance(value, tuple):
        return tuple(multiply(part, factor, is_exponent=is_exponent) for part in value)
    if isinstance(value, dict):
        return {key: multiply(part, factor) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return np.unique(np.maximum(value * factor, 1)).astype(value.dtype)
    if isinstance(value, bool | str) or not value:
        return value
    if is_exponent:
        return value + int(np.log2(factor))
    return max(1, int(value * factor)) if isinstance(value, int) else value * factor


class Package:
    """The package's syntax trees, by module."""

    def __init__(self):
        self._trees, self._importers = {}, defaultdict(set)
        for path in PACKAGE.rglob("*.py"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            tree = self._trees[module] = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                    self._importers[node.module, alias.name].add((module, alias.asname or alias.name))

    def number(self, label):
        """Return a number, by its path and its name."""
        path, name = label.split(":")
        parts = Path(path).with_suffix("").parts
        own = (".".join((PACKAGE.name, *parts)), name)
        derived = list(self._derived_from(own))
        users = {
            user for place in (own, *(target for _, target, _ in derived)) for user in self._users(place)
        }
        return Number(
            ".".join((*parts, name)),
            vars(import_module(own[0]))[name],
            self._places(own),
            tuple((import_module(module), text, self._places(target)) for module, target, text in derived),
            frozenset(
                (import_module(module).__file__, node.lineno)
                for module, called in users
                for node in _uses(self._trees[module], called)
            ),
        )

    def _users(self, place):
        """Return the modules that have a number, with its name there."""
        users, left = set(), {place}
        while left:
            users |= left
            left = set().union(*(self._importers[user] for user in left)) - users
        return sorted(users)

    def _places(self, place):
        return tuple((import_module(module), name) for module, name in self._users(place))

    def _derived_from(self, place):
        for module, name in self._users(place):
            for node in self._trees[module].body:
                if isinstance(node, ast.Assign) and _uses(node.value, name):
                    target = (module, node.targets[0].id)
                    yield module, target, ast.unparse(node.value)
                    yield from self._derived_from(target)


def _uses(tree, name):
    every = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name)
    return [node for node in every if isinstance(node.ctx, ast.Load)]


def list_numbers():
    """Return all numbers, those of each format by themselves, and the entries of the ledger."""
    package = Package()
    every = [package.number(label) for label in numbers()]
    every = [number for number in every if not isinstance(number.value, precision.Precision)]
    every += [Number(f"ledger.{entry.rule.name}", rule=entry.rule) for entry in ledger.ALLOWANCES]
    for its in precision.PRECISIONS:
        for owner, name in _records(its, f"numerics.precision.{its.name.upper()}"):
            for part, value in vars(owner).items():
                if part not in FACTS and isinstance(value, int | float | tuple):
                    every.append(Number(f"{name}.{part}", value, ((owner, part),)))
    return every


def _records(owner, name):
    yield owner, name
    for part in fields(owner):
        if is_dataclass(value := getattr(owner, part.name)):
            yield value, f"{name}.{part.name}"


def list_attacks():
    """Yield the attacks that run on each change."""
    left = read_rows_on_main()[ON_MAIN]
    for path in sorted((HERE / "attacks").glob("attacks_*.py")):
        table = path.stem.removeprefix("attacks_")
        for attack in import_module(path.stem).ATTACKS if table != "diagnosis" else ():
            if f"{table}-{attack.name}" not in left:
                yield Row(attack.name, table, attack.truth, partial(said_of, attack))


def said(row):
    """Return what is said of a row, by pair or element, and what else it may change; or how it fails."""
    try:
        return row.say()
    except Exception as error:  # noqa: BLE001 (whatever comes of such a number)
        return {"": f"{type(error).__name__}"}, traceback.format_exc(limit=-1)


class Reached:
    """What a row runs: lines that use numbers, fields of formats, and entries of the ledger that act."""

    def __init__(self, every):
        self._wanted = defaultdict(set)
        for number in every:
            for file, line in number.lines:
                self._wanted[file].add(line)
        self._functions = {}  # whether a function has such a line, by the id of its code; which is kept, too
        self.lines, self.fields, self.rules = set(), set(), set()

    @contextmanager
    def noted(self):
        """Note what is run."""
        self.lines, self.fields, self.rules = set(), set(), set()

        def read(record, name):
            self.fields.add((id(record), name))
            return object.__getattribute__(record, name)

        with ExitStack() as stack:
            for kind in (precision.Precision, precision.LadderSteps, precision.PieceSteps):
                stack.enter_context(replaced(kind, "__getattribute__", read))
            stack.enter_context(recorded(defaultdict(list), self.rules))
            sys.settrace(self._enter)
            try:
                yield
            finally:
                sys.settrace(None)

    def _enter(self, frame, _event, _argument):
        code = frame.f_code
        wanted = self._wanted.get(code.co_filename)
        if wanted is None:
            return None
        if id(code) not in self._functions:
            lines = {line for *_, line in code.co_lines()}
            self._functions[id(code)] = bool(wanted & lines), code
        return self._step if self._functions[id(code)][0] else None

    def _step(self, frame, event, _argument):
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._step

    def includes(self, number):
        """Say whether a number was reached."""
        if number.rule is not None:
            return number.rule in self.rules
        if number.lines:
            return not number.lines.isdisjoint(self.lines)
        return any((id(owner), name) in self.fields for owner, name in number.places)


def measure(row, every, reached):
    """Run a row; return how long it took, what was said, and which numbers it reached."""
    began = time.process_time()
    with reached.noted():
        before = said(row)
    seconds = time.process_time() - began
    return {"seconds": seconds, "said": before, "reached": [n.name for n in every if reached.includes(n)]}


def in_turns(rows, seconds):
    """Return rows, the fastest first, of each kind in turn."""
    kinds = defaultdict(list)
    for row in sorted(rows, key=lambda row: seconds[key_of(row)]):
        kinds[row.group, row.truth].append(row)
    return [row for turn in zip_longest(*kinds.values()) for row in turn if row is not None]


def key_of(row):
    """Return a unique name of a row."""
    return f"{row.group}: {row.name} ({row.truth})"


@dataclass
class Trial:
    """What one other value changed."""

    tried: int = 0
    flips: list = field(default_factory=list)  # (row, truth, what, before, after): another verdict
    others: int = 0  # rows of which only a rule, a reason or a count changed
    failed: list = field(default_factory=list)  # (row, error)
    seconds: float = 0.0

    def run(self, rows, before, put, budget):
        """Try rows until the time is used up; return those that are left."""
        began = time.process_time()
        for place, row in enumerate(rows):
            spent = time.process_time() - began
            if spent > budget:
                self.seconds += spent
                return rows[place:]
            self._try(row, before, put)
        self.seconds += time.process_time() - began
        return []

    def _try(self, row, before, put):
        verdicts, rest = before[key_of(row)]
        with put():
            now, rest_now = said(row)
        self.tried += 1
        if now == verdicts and rest_now == rest:
            return
        if said(row) != (verdicts, rest):
            return  # it changes by itself
        if set(now) == {""}:
            self.failed.append((key_of(row), now[""], rest_now.strip().rpartition("\n")[2]))
        elif now == verdicts:
            self.others += 1
        else:
            what = next(key for key in {**verdicts, **now} if verdicts.get(key) != now.get(key))
            self.flips.append((key_of(row), row.truth, what, verdicts.get(what), now.get(what)))


def try_number(number, rows, measured):
    """Return what other values of a number change, as JSON, and the seconds that it took."""
    seconds = {key: row["seconds"] for key, row in measured.items()}
    before = {key: (row["said"][0], row["said"][1]) for key, row in measured.items()}
    reaching = [[row for row in kind if number.name in measured[key_of(row)]["reached"]] for kind in rows]
    left = {label: [in_turns(kind, seconds) for kind in reaching] for label, _ in number.others()}
    trials = {label: Trial() for label in left}
    for budgets in ROUNDS:
        for label, put in number.others():
            left[label] = [
                trials[label].run(kind, before, put, budget)
                for kind, budget in zip(left[label], budgets, strict=True)
            ]
        if any(trial.flips for trial in trials.values()):
            break
    return {
        "number": number.name,
        "value": str(number.value),
        "reached": [len(kind) for kind in reaching],
        "trials": {label: vars(trial) for label, trial in trials.items()},
    }


def main():
    """Measure rows and try numbers, as far as the file doesn't have them."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--table"]
    file, chosen = Path(arguments[0]), tuple(arguments[1:])
    lines = (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )
    measured = {line.pop("row"): line for line in lines if "row" in line}
    results = {line["number"]: line for line in lines if "number" in line}
    if "--table" in sys.argv:
        print("\n".join(table(results.values())))  # noqa: T201 (what it is for)
        return
    every = list_numbers()
    reached = Reached(every)
    rows = [list(list_rows()), list(list_attacks())]
    with file.open("a", encoding="utf-8") as out, replaced(blame, "explain_mismatches", lambda _judged: None):

        def note(result, line):
            print(json.dumps(result), file=out, flush=True)
            print(line, flush=True)  # noqa: T201 (what it is for)

        for row in (row for kind in rows for row in kind):
            if key_of(row) not in measured:
                measured[key_of(row)] = measure(row, every, reached)
                verdicts = Counter(measured[key_of(row)]["said"][0].values())
                note({"row": key_of(row), **measured[key_of(row)]}, f"{key_of(row)}: {dict(verdicts)}")
        measured = json.loads(json.dumps(measured))
        for number in every:
            if number.name not in results and number.name.endswith(chosen or ("",)):
                results[number.name] = try_number(number, rows, measured)
                note(results[number.name], summary(results[number.name]))


def summary(result):
    """Return a line on one result."""
    trials = ", ".join(
        f"{label}: {len(trial['flips'])} of {trial['tried']} flip ({trial['others']} else, "
        f"{len(trial['failed'])} fail)"
        for label, trial in result["trials"].items()
    )
    return f"{result['number']} = {result['value'][:30]}: reached by {result['reached']}; {trials}"


def table(results):
    """Yield the results as a table, an example of a flip each."""
    yield "| number | value | rows that reach it | x4 | x1/4 | such as |"
    yield "|---|---|--:|--:|--:|---|"
    for result in results:
        cells, example = [], ""
        for label, trial in result["trials"].items():
            cells.append(f"{len(trial['flips'])} of {trial['tried']}")
            for row, _, _, before, after in trial["flips"][:1]:
                example = example or f"{label}: {row}: {before} -> {after}"
        cells += [""] * (2 - len(cells))
        number, value, reached = result["number"], result["value"], sum(result["reached"])
        yield f"| `{number}` | {value} | {reached} | {' | '.join(cells)} | {example} |"


if __name__ == "__main__":
    main()
