"""Which tuned numbers and allowances earn their place: what is said of gradients with others in their place.

`python tests/earning_numbers.py FILE` multiplies each number of `checking` and `numerics` by 4 and by 1/4,
wherever it is used, and switches each entry of the ledger off. It notes gradients of `tests/numerics` and
`tests/attacks` for which another verdict is reached then, three at most for each number and factor. The lines
of FILE are rows and results, as JSON. What is there already isn't done again, so a run may be interrupted.
`--table` prints the results in FILE as a table instead.

Each row runs once under `coverage` (which must be installed), to see which numbers it reaches. Then those of
them that haven't changed enough rows yet are all changed at once. Usually the verdicts stay; otherwise halves
of the numbers are tried, and so on. The fastest rows of each kind come first.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import time
import warnings
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from importlib import import_module
from itertools import product, zip_longest
from pathlib import Path

import numpy as np
from coverage import Coverage

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.extend(str(Path(__file__).parent / folder) for folder in ("numerics", "attacks", "benchmarks"))

from attacking import said_of
from core_figures import PACKAGE, numbers
from excused import recorded, replaced, without_blame
from numerics_rows import Row, list_rows

from gradcheck_cli.checking.judging import ledger
from gradcheck_cli.numerics import precision

HERE = Path(__file__).parent
FACTORS = (4.0, 0.25)
ENOUGH = 3  # flips of one number by one factor: more aren't looked for
# Gradients in NumPy that are tried before the attacks, each of which takes as long as ten of them.
FIRST = 600
# These decide how much is done at once, or when a search ends: what a run costs.
COST = (
    "check_case._FOR_WHOLE_JACOBIANS",
    "probe_search._OF_A_LADDER",
    "probe_search._MOST_TESTS",
    "analytic.MOST_ELEMENTS",
    "analytic.FEWEST_ELEMENTS",
    "analytic.WORTH",
    "analytic._BATCH",
    "analytic._PER_COLUMN",
    "analytic._TRIES",
    "rounding._MOST_GROUPS",
    "joint_slopes.LEADS",
    "joint_slopes.COMBINED",
    "joint_slopes.PER_INPUT",
    "joint_slopes.MOST_STEPS",
    "judge._MANY",
    "sampling.CHUNK",
    "probes._TYPICAL_ROWS",
    "series.MAX_ELEMENTS",
    "shared_limits.FLOATS_AT_ONCE",
    "shared_limits.CHEAP",
)
# Exponents of two: that of a number four times as large is 2 more.
EXPONENTS = {"FINE", "OUTER", *precision.LadderSteps.__annotations__}
# What formats are, and how a difference's error falls with its step: not tuned.
FACTS = {"unit_roundoff", "smallest_subnormal", "largest", "smallest_kept", "RATIO", "CENTRAL"}
LONGEST = 30.0  # seconds of a row: with another number, a loop may never end


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

    def changed(self, factor):
        """Return what puts another value into place."""
        if self.rule is not None:
            rest = tuple(entry for entry in ledger.ALLOWANCES if entry.rule is not self.rule)
            return self.put(rest)
        return self.put(multiply(self.value, factor, is_exponent=self.name.rpartition(".")[2] in EXPONENTS))

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
    every = [package.number(label) for label in numbers() if label.partition(":")[2] not in FACTS]
    every = [number for number in every if not isinstance(number.value, precision.Precision)]
    place = ((ledger, "ALLOWANCES"),)
    every += [
        Number(f"ledger.{entry.rule.name}", entry.limit, place, rule=entry.rule)
        for entry in ledger.ALLOWANCES
    ]
    for its in precision.PRECISIONS:
        for owner, name in _records(its, f"numerics.precision.{its.name.upper()}"):
            for part, value in vars(owner).items():
                if (
                    part not in FACTS
                    and isinstance(value, int | float | tuple)
                    and not isinstance(value, bool)
                ):
                    every.append(Number(f"{name}.{part}", value, ((owner, part),)))
    return every


def _records(owner, name):
    yield owner, name
    for part in fields(owner):
        if is_dataclass(value := getattr(owner, part.name)):
            yield value, f"{name}.{part.name}"


def list_attacks():
    """Yield the attacks of all tables."""
    for path in sorted((HERE / "attacks").glob("attacks_*.py")):
        table = path.stem.removeprefix("attacks_")
        for attack in import_module(path.stem).ATTACKS if table != "diagnosis" else ():
            yield Row(attack.name, table, attack.truth, partial(said_of, attack))


def stop(*_):
    """End a row that takes too long."""
    raise TimeoutError


def said(row):
    """Return what is said of a row, by pair or element, and what else it may change; or how it fails."""
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        return row.say()
    except Exception as error:  # noqa: BLE001 (whatever comes of such a number)
        return {"": type(error).__name__}, ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Reached:
    """What a row runs: lines of the package, fields of formats, and entries of the ledger that act."""

    def __init__(self):
        self._measured = Coverage(data_file=None, source=[str(PACKAGE)], config_file=False)
        self.lines, self.fields, self.rules = set(), set(), set()

    @contextmanager
    def noted(self):
        """Note what is run."""
        self.lines, self.fields, self.rules = set(), set(), set()

        def read(record, name):
            self.fields.add((id(record), name))
            return object.__getattribute__(record, name)

        self._measured.erase()
        with ExitStack() as stack:
            for kind in (precision.Precision, precision.LadderSteps, precision.PieceSteps):
                stack.enter_context(replaced(kind, "__getattribute__", read))
            stack.enter_context(recorded(defaultdict(list), self.rules))
            with self._measured.collect():
                yield
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows that run nothing of the package
            data = self._measured.get_data()
        self.lines = {(file, line) for file in data.measured_files() for line in data.lines(file)}

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


def said_with(row, chosen, factor):
    """Return the verdicts of a row with other values of some numbers."""
    try:
        with ExitStack() as stack:
            for number in chosen:
                stack.enter_context(number.changed(factor))
            return said(row)[0]
    except Exception as error:  # noqa: BLE001 (what is derived from a number may not exist)
        return {"": type(error).__name__}


def find_flips(row, before, chosen, factor):
    """Yield those of some numbers that change a verdict of a row by themselves, with the verdicts then.

    All are changed at once, then half of them, and so on: most rows need one run only.
    """
    if not chosen or (now := said_with(row, chosen, factor)) == before:
        return
    if len(chosen) == 1:
        yield chosen[0], now
        return
    middle = len(chosen) // 2
    yield from find_flips(row, before, chosen[:middle], factor)
    yield from find_flips(row, before, chosen[middle:], factor)


def describe(before, now):
    """Say which verdict changed first, and how."""
    if set(now) == {""} != set(before):
        return f"fails: {now['']}"
    what = next(key for key in {**before, **now} if before.get(key) != now.get(key))
    return f"{what}: {before.get(what)} -> {now.get(what)}".removeprefix(": ")


class Results:
    """The lines of a file: what rows say and reach, what flips, and which rows were tried."""

    def __init__(self, file):
        self._file = file
        self.measured, self.flips, self.tried = {}, defaultdict(list), set()
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            self._add(json.loads(line))

    def note(self, **line):
        """Add a line."""
        with self._file.open("a", encoding="utf-8") as out:
            print(json.dumps(line), file=out)
        self._add(line)

    def _add(self, line):
        if "reached" in line:
            self.measured[line["row"]] = line
        elif "flip" in line:
            self.flips[line["number"], line["factor"]].append(line["flip"])
        else:
            self.tried.add((line["tried"], line["factor"]))

    def left(self, every, row, factor):
        """Return the numbers to try on a row."""
        own = set(self.measured[key_of(row)]["reached"])
        return [
            number
            for number in every
            if number.name in own
            and not number.name.endswith(COST)
            and len(self.flips[number.name, factor]) < ENOUGH
            and (number.rule is None or factor < 1)  # an entry is off or not
        ]

    def try_row(self, every, row, factor):
        """Note which numbers change a row's verdicts."""
        key = key_of(row)
        before = self.measured[key]["said"][0]
        for number, now in find_flips(row, before, self.left(every, row, factor), factor):
            if said(row)[0] != before:
                break  # it changes by itself
            self.note(number=number.name, factor=factor, flip=f"{key}: {describe(before, now)}")
        self.note(tried=key, factor=factor)


def main():
    """Measure rows and try numbers, as far as the file doesn't have them."""
    results = Results(Path(next(argument for argument in sys.argv[1:] if argument != "--table")))
    every = list_numbers()
    if "--table" in sys.argv:
        print("\n".join(table(every, results)))  # noqa: T201 (what it is for)
        return
    quick, slow = list(list_rows()), list(list_attacks())
    reached = Reached()
    with without_blame():
        for row in (*quick, *slow):
            if key_of(row) not in results.measured:
                results.note(row=key_of(row), **measure(row, every, reached))
        seconds = {key: line["seconds"] for key, line in results.measured.items()}
        quick, slow = in_turns(quick, seconds), in_turns(slow, seconds)
        for row, factor in product((*quick[:FIRST], *slow, *quick[FIRST:]), FACTORS):
            if (key_of(row), factor) not in results.tried:
                results.try_row(every, row, factor)


def table(every, results):
    """Yield the results as a table, an example of a flip each."""
    yield "| number | value | rows that reach it | x4 | x1/4 | such as |"
    yield "|---|---|--:|--:|--:|---|"
    for number in every:
        count = sum(number.name in line["reached"] for line in results.measured.values())
        more, less = (results.flips[number.name, factor] for factor in FACTORS)
        examples = [
            f"{'x4' if example is more else 'x1/4'}: {example[0]}" for example in (more, less) if example
        ]
        cells = (
            f"`{number.name}`",
            str(number.value),
            str(count),
            str(len(more)),
            str(len(less)),
            *examples[:1],
        )
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
