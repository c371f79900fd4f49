"""Specs spoilt at random, in bytes and in structure, and what becomes of them; see docs/contributing.md.

    python -m tests.acceptance.mutated_specs --count 10000 --run

Each ends in faults (exit 2) or in a verdict, never in a traceback of ours, never in a hang, and the process
that reads them stays below 100 MB.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gradcheck_cli.errors import SpecError
from gradcheck_cli.running.limits import Limits
from gradcheck_cli.running.local_workers import LocalWorkers
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.spec.load import load_cases
from tests.acceptance.spoilt_files import change, spoil_bytes
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case

FOLDERS = (ROOT / "specs" / "seeds", ROOT / "tests" / "planted")
# Short documents: of a long one, most of what is checked would be what wasn't spoilt.
SHORT = 700  # characters
CORPUS = tuple(
    document.strip() + "\n"
    for folder in FOLDERS
    for file in sorted(folder.glob("*.yaml"))
    for document in file.read_text(encoding="utf-8").split("\n---\n")
    if len(document) < SHORT
)
MEGABYTE = 2**20
LIMIT = 100 * MEGABYTE
BATCH = 500  # specs that are held at a time
PATIENCE = 10  # seconds for one spec to be read: a hundred times what the slowest takes

VALUES = (
    None, True, -1, 0, 2**70, 1e308, float("nan"), float("-inf"), "", "x" * 300, "Größe\u2028\x85", "a:b",
    "os:abort", "sys:exit", "no_such_module:f", "float16", "flaot32", "complex128", "disconnected", "py_func",
    "override", "1e-6", [], {}, [[]], [10**9], [0, 3], [2] * 40, {"low": 1, "high": 0}, {"value": [1, [2]]},
    {"file": "missing.npy"}, {"shape": [3], "dtype": "int32"}, {"dy/dx": {"expect": "zero"}},
)  # fmt: skip
KEYS = "op forward op_type inputs x shape dtype pairs cases name ops defaults zz".split()  # noqa: SIM905 (short)
PIECES = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"---\n", b"...\n", b"&a ", b"*a", b"<<: *a\n",
    b"!!python/object:x ", b"[" * 80, b"{" * 80, b"\t", b"? ", b"| \n", b"'", b'"', b"\r", b"%YAML 9\n",
    b": ", b"- ", b"#", b"9" * 400,
)  # fmt: skip


def mutated(text: str, chance: random.Random) -> bytes:
    """Return a spec's text, spoilt in a few places: as a structure, as bytes, or as both."""
    content = text.encode()
    if chance.random() < 0.6:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
        for _ in range(chance.randint(1, 3)):
            change(documents, chance, VALUES, KEYS)
        content = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=chance.random() < 0.5).encode()
    return spoil_bytes(content, chance, PIECES) if chance.random() < 0.6 else content


def folder_with_code(parent: Path) -> Path:
    """Make a folder that holds the code that the corpus's specs name."""
    for folder in FOLDERS:
        for file in folder.glob("*.py"):
            shutil.copy(file, parent)
    return parent


def read(file: Path) -> tuple[Case, ...] | None:
    """Read a spec: its cases, or `None` where it has faults, which are checked to be well told."""
    try:
        return load_cases([file])
    except SpecError as error:
        for fault in error.faults:
            assert fault.message, fault
            assert "\n" not in str(fault), fault
        return None


def peak() -> int:
    """Return the most memory that this program has had, in bytes.

    Not by getrusage: that still counts what the process was before it became this program.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"reading took longer than {PATIENCE} s")


def main() -> int:
    """Read, and run, as many as asked for; print what became of them; 1 where that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", action="store_true", help="also check the ones that have no faults")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_slow)
    total = Campaign()
    with tempfile.TemporaryDirectory() as name:
        folder = folder_with_code(Path(name))
        last = options.seed + options.count
        for first in range(options.seed, last, BATCH):
            cases = total.read(folder, range(first, min(first + BATCH, last)))
            if options.run and cases:
                total.check(cases, options.jobs)
            sys.stdout.write(f"{total}, peak {peak() / MEGABYTE:.0f} MB\n")
            sys.stdout.flush()
    if peak() > LIMIT:
        total.wrong.append(f"used {peak() / MEGABYTE:.0f} MB")
    sys.stdout.write("\n".join([*total.wrong, f"{len(total.wrong)} wrong"]) + "\n")
    return 1 if total.wrong else 0


@dataclass
class Campaign:
    """What has become of all specs so far, and what shouldn't have."""

    became: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def __str__(self) -> str:
        verdicts = f", verdicts {dict(self.statuses)}" if self.statuses else ""
        return f"{dict(self.became)}, slowest to read {self.slowest:.2f} s{verdicts}"

    def read(self, folder: Path, numbers: range) -> list[Case]:
        """Spoil and read specs, one for each number, and return the cases of those without faults."""
        found: list[Case] = []
        for number in numbers:
            chance = random.Random(number)  # noqa: S311 (no secret)
            file = folder / f"mutated_{number}.yaml"
            file.write_bytes(mutated(chance.choice(CORPUS), chance))
            began = time.perf_counter()
            signal.alarm(PATIENCE)
            try:
                cases = read(file)
            except BaseException as error:  # noqa: BLE001 (whatever comes out is the finding)
                self.wrong.append(f"{number}: {type(error).__name__}: {error}")
                cases = None
            signal.alarm(0)
            self.slowest = max(self.slowest, time.perf_counter() - began)
            self.became["faults" if cases is None else "valid"] += 1
            found += cases or ()
        return found

    def check(self, cases: list[Case], jobs: int) -> None:
        """Check cases in processes of their own: each must get a verdict, none a fault of ours."""
        report = run_in_workers(LocalWorkers(jobs, Limits(20, 2**30)), cases)
        self.statuses.update(str(case.status) for case in report.cases)
        self.wrong += [
            f"{case.spec} {case.case}: {case.error.message}"
            for case in report.cases
            if case.error is not None and case.error.kind == "internal"
        ]
        if len(report.cases) != len(cases):
            self.wrong.append(f"{len(cases) - len(report.cases)} cases have no result")


if __name__ == "__main__":
    sys.exit(main())
