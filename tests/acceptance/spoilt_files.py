"""Reports, lock files, caches and command lines spoilt at random, and what becomes of them.

    python -m tests.acceptance.spoilt_files --reports 5000 --locks 5000 --caches 2000 --commands 2000

Each ends with an exit code of the table, never in a traceback. A report that says that something is wrong
never becomes one that says that all is right, and a spoilt cache is as none.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli.cli.commands import run as run_module
from gradcheck_cli.cli.main import COMMANDS, cli, run_command
from gradcheck_cli.errors import CaseFailedError, UsageError
from gradcheck_cli.features.baseline.lock import compare, entries_of, lock_text, read_lock
from gradcheck_cli.gate import BaselineFinding, Change, Fingerprint, Projection, Shard, Tolerance
from gradcheck_cli.reporting.exchange.json_report import to_json
from gradcheck_cli.results import (
    CaseError,
    CheckResult,
    Figure,
    HeatMap,
    Ladder,
    Policy,
    Printed,
    Report,
    Status,
    UndifferentiatedOutput,
    WorstElement,
)
from gradcheck_cli.running.selection import write_history
from gradcheck_cli.tensorflow_backend import startup
from tests.support.flat_results import make_case, make_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CODES = {0, 1, 2, 3, 5, 130, 141}
SPEC = "{op: square, forward: 'tensorflow:square', inputs: {x: {shape: [2]}}}"
WORDS = ("", "0", "-1", "1/2", "3/2", "9" * 400, "nan", "inf", "x" * 300, "a=b", "json=", "json=/dev/null",
         "json=/nowhere/x", "default", "dy/dx", "graph", "\x1b[0m", "é\udcff", "specs.yaml")  # fmt: skip
MARKS = (b"\n<<<<<<< HEAD\n", b"\n=======\n", b"[" * 5000, b"9" * 400)
ODD_NUMBERS = (0, 1, -1, 2, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e-300, 0.5, "nan", "inf", "-inf", 2**40)
ODD_TEXTS = (
    "", "x" * 300, "f at /proc/self/environ:1", "/dev/stdin:1", "a\0.py:1", "~/x.py:1", f"a.py:{'9' * 5000}",
    "\x1b[31m\n::error::x", "é\udcff", "\u202e\u2028", "$\\frac{1}{2}$", "<svg onload=x>", "漢字",
)  # fmt: skip
ODD = (
    None, True, False, -1, 0, 10**400, -(10**30), 1e308, float("inf"), float("nan"), "", "nan", "passed",
    "mismatched", "x" * 300, "\x1b[31m\n::error::x", "\udcff", [], [[]], {}, {"a": [None]},
)  # fmt: skip


HALF = HeatMap(
    ("y[0]", "y[1]"), ("x[0]",), 1, 1, ((1.0,), (2.0,)), ((1.0,), (1.0,)), ((0.1,), (5.0,)), (".", "x")
)
LADDER = Ladder("y[1] / x[0]", (0.1, 0.01), (1.1, 1.0), (1.2, 1.1), (1.0, 0.9), 2.0, 1.0, 1e-9, 1e-6, 0.01)
FIGURE = Figure(0, (2, 1), HALF, LADDER)


def sample(status: Status = Status.MISMATCHED) -> Report:
    """Return a report in which everything occurs that can, one case of which is wrong."""
    pair = make_pair("dy/dx", "y", "x", status, max_abs_error=0.5, elements=4, wrong_elements=1,
                     miss_probability=0.25, miss_size=1e-3, figure=FIGURE, tolerance=Tolerance(1e-6, 0, 1e-8),
                     worst=WorstElement((0, 1), (1,), 1 + 2j, float("-inf"), 1e-9, "re", "im"),
                     diagnosis=("the gradient is twice the derivative",),
                     fingerprint=Fingerprint((Projection(1.0, 1e-9),), (Projection(2.0, float("inf")),)),
                     )  # fmt: skip
    right = make_pair("dz/dx", "z", "x", Status.PASSED, elements=4)
    cases = (
        make_case("square", "default", "a.yaml:1", "graph", "float64", status, 0.5, "gradcheck run a.yaml",
                   checks=(CheckResult("linearity", Status.PASSED),), pairs=(pair, right), samples=2,
                   output=Printed(("printed",), "o/1.txt"), source="a.py:3", warnings=("precision",),
                   not_differentiated=(UndifferentiatedOutput("i", "int32"),), gradients_seen={"MatMul": 2}),
        make_case("cube", "wide", "b.yaml:4", "eager", "float32", Status.ERROR, 0.1, "gradcheck run b.yaml",
                   error=CaseError("forward", "it raised", ("b.py:1: in f",))),
        make_case("right", "default", "c.yaml:1", "graph", "float64", Status.PASSED, 0.1,
                   "gradcheck run c.yaml", pairs=(right,), samples=1),
    )  # fmt: skip
    finding = BaselineFinding(
        "square", "default", "float64", "graph", "dy/dx", Change.DRIFTED, "m", "a.yaml:1"
    )
    plan = tuple((case.op, case.case, case.dtype) for case in cases)
    return Report("0.1.0", "2.21.0", "3.11.7", 0, cases, 1.5, notices=("n",), baseline=(finding,),
                  shard=Shard(1, 1, plan), policy=Policy(strict=True))  # fmt: skip


def spoil(text: str, chance: random.Random) -> bytes:
    """Return a text spoilt: in its structure if it has one, else in its bytes."""
    if chance.random() < 0.6:
        with contextlib.suppress(ValueError):
            content = json.loads(text)
            for _ in range(chance.randint(1, 3)):
                change(content, chance, ODD)
            return json.dumps(content).encode("utf-8", "surrogatepass")
    return spoil_bytes(text.encode(), chance, MARKS)


def spoil_bytes(text: bytes, chance: random.Random, pieces: Sequence[bytes]) -> bytes:
    """Return bytes spoilt in one to four places, perhaps by these pieces."""
    content = bytearray(text)
    for _ in range(chance.randint(1, 4)):
        place, length = chance.randrange(len(content) + 1), chance.choice((1, 2, 5, 40))
        what = chance.randrange(5)
        if what == 0:
            del content[place : chance.choice((None, place + length))]
        elif what == 1:
            content[place : place + length] = chance.choice(pieces)
        elif what == 2:
            content[place:place] = bytes(chance.randrange(256) for _ in range(length))
        elif what == 3:
            content[place:place] = content[place : place + length] * chance.randint(1, 30)
        else:
            content[place:place] = chance.choice(pieces)
    return bytes(content)


def change(content: Any, chance: random.Random, values: Sequence[object], keys: Sequence[str] = ()) -> None:
    """Change one value at any depth: leave it out, put another in its place, or give it another key."""
    here = content
    while True:
        places = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not places:
            return
        place = chance.choice(places)
        if isinstance(here[place], dict | list) and here[place] and chance.random() < 0.85:
            here = here[place]
            continue
        if chance.random() < 0.25:
            del here[place]
        elif keys and isinstance(here, dict) and chance.random() < 0.3:
            here[chance.choice(keys)] = here.pop(place)
        else:
            here[place] = copy.deepcopy(chance.choice(values))
        return


def _changed_alike(text: str, chance: random.Random) -> str:
    """Return a report with values replaced by odd ones of their types, so that most of them are read."""
    content = json.loads(text)
    places: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting:
        here = waiting.pop()
        for key in here if isinstance(here, dict) else range(len(here)):
            if isinstance(here[key], dict | list):
                waiting.append(here[key])
            elif isinstance(here[key], float | str | int) and not isinstance(here[key], bool):
                places.append((here, key))
    drawn = [(here, key) for here, key in places if isinstance(here, list)]
    for here, key in (*chance.sample(places, 2), *chance.sample(drawn, 2)):
        odd = ODD_TEXTS if isinstance(here[key], str) else ODD_NUMBERS
        here[key] = chance.choice(odd)
    return json.dumps(content)


def call(*arguments: object) -> tuple[int, str]:
    """Run a command line in this process; return its exit code, and all that it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run_command([str(argument) for argument in arguments])
    return code, out.getvalue()


@dataclass
class Campaign:
    """What has become of all files so far, and what shouldn't have."""

    folder: Path
    became: dict[str, Counter[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, number: int, found: tuple[int, str], allowed: set[int]) -> None:
        """Count an exit code, and note what isn't one of those allowed, or a fault of ours."""
        code, text = found
        self.became.setdefault(what, Counter())[code] += 1
        bad = [word for word in ("Traceback", "internal error") if word in text]
        if bad or code not in allowed:
            self.wrong.append(f"{what} {number}: exit {code}: {text.strip()[-300:]}")

    def reports(self, count: int, seed: int = 0) -> None:
        """Merge and compare spoilt reports of a run that found something wrong."""
        text, file, good = to_json(sample()), self.folder / "r.json", self.folder / "good.json"
        good.write_text(text, encoding="utf-8")
        for number in range(seed, seed + count):
            file.write_bytes(spoil(text, random.Random(number)))  # noqa: S311 (no secret)
            merged = call("merge", file, "--cache-dir", self.folder / "cache")
            self.note("report", number, merged, CODES - {0})
            self.note("diff", number, call("diff", good, file), CODES)
            form = ("html", "markdown", "sarif", "junit")[number % 4]
            file.write_text(_changed_alike(text, random.Random(number)), encoding="utf-8")  # noqa: S311
            self.note(form, number, call("merge", file, "--format", form), CODES)

    def locks(self, count: int, seed: int = 0) -> None:
        """Compare with spoilt lock files: each is read, or refused with its place."""
        entries = entries_of(sample(Status.PASSED).cases)
        file = self.folder / "g.lock"
        header, *lines = lock_text(entries, self.folder).splitlines()
        for number in range(seed, seed + count):
            chance = random.Random(number)  # noqa: S311 (no secret)
            spoilt = [line.encode() for line in lines]
            place = chance.randrange(len(spoilt))
            spoilt[place] = spoil(lines[place], chance)
            head = header.encode() if chance.random() < 0.9 else spoil(header, chance)
            file.write_bytes(b"\n".join([head, *spoilt]) + b"\n")
            try:
                compare(read_lock(file), entries)
                found = 0, ""
            except (UsageError, OSError) as error:  # which a command says
                found = 2, str(error)
            except Exception:  # noqa: BLE001 (whatever comes out is the finding)
                found = 3, traceback.format_exc()
            self.note("lock", number, found, CODES)

    def caches(self, count: int, seed: int = 0) -> None:
        """Select by spoilt caches: as if there were none, or by what is left of them."""
        cache = self.folder / "spoilt-cache"
        write_history(cache, sample())
        file = cache / "history.json"
        text = file.read_text(encoding="utf-8")
        spec = self.folder / "specs.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        for number in range(seed, seed + count):
            file.write_bytes(spoil(text, random.Random(number)))  # noqa: S311 (no secret)
            how = (("--last-failed",), ("--shard", "1/2"))[number % 2]
            found = call("run", spec, "--collect-only", "--cache-dir", cache, *how)
            self.note("cache", number, found, {0, 5})

    def commands(self, count: int, seed: int = 0) -> None:
        """Call commands with options and arguments at random; TensorFlow isn't there."""
        spec = self.folder / "specs.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        with _no_tensorflow():
            for number in range(seed, seed + count):
                chance = random.Random(number)  # noqa: S311 (no secret)
                line = _command_line(chance, self.folder)
                self.note("command", number, call(*line), CODES)


def _command_line(chance: random.Random, folder: Path) -> list[str]:
    name = chance.choice([*COMMANDS, "rnu", ""])
    words = [name]
    if name not in COMMANDS:
        return [*words, "--help"] if chance.random() < 0.5 else words
    command = cli.get_command(click.Context(cli), name)
    options = [one for one in command.params if isinstance(one, click.Option)] if command else []
    values = (*WORDS, str(folder))
    for option in chance.sample(options, min(len(options), chance.randint(0, 4))):
        if option.name == "is_watching":
            continue  # goes on until it is ended
        words.append(chance.choice(option.opts))
        if not option.is_flag or chance.random() < 0.05:
            words.append(chance.choice(values))
    words += chance.sample((*values, str(folder / "specs.yaml"), "numpy:square"), chance.randint(0, 2))
    chance.shuffle(words[1:])
    return words


@contextlib.contextmanager
def _no_tensorflow() -> Any:
    """Let whatever would start TensorFlow fail, as where it isn't installed.

    What is replaced is looked up at each call: a command that is imported meanwhile must not keep it.
    """

    def missing(*_: object, **__: object) -> None:
        raise CaseFailedError("import", "TensorFlow can't be imported: there is none.")

    saved: list[tuple[Any, str, Callable[..., Any]]] = []
    for home, attribute in ((startup, "start"), (run_module, "start_workers")):
        saved.append((home, attribute, getattr(home, attribute)))
        setattr(home, attribute, missing)
    try:
        yield
    finally:
        for home, attribute, original in saved:
            setattr(home, attribute, original)


def main() -> int:
    """Spoil as many files as asked for, and print what became of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for what in ("reports", "locks", "caches", "commands"):
        parser.add_argument(f"--{what}", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        campaign = Campaign(Path(name))
        for what in ("reports", "locks", "caches", "commands"):
            getattr(campaign, what)(getattr(options, what), options.seed)
            sys.stdout.write(f"{what}: { {key: dict(count) for key, count in campaign.became.items()} }\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join([*campaign.wrong[:50], f"{len(campaign.wrong)} wrong"]) + "\n")
    return 1 if campaign.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
