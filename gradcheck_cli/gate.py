"""What a run tells CI besides its verdicts: changes since a baseline, its selection, its coverage.

Coverage is which parts of the code under test it has seen: hand-written gradients, and sides of branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Projection:
    """A number that a baseline records, and how far rounding may move it on another machine."""

    value: float
    slack: float


@dataclass(frozen=True)
class Tolerance:
    """The rule by which a pair was judged.

    `scaled` is the default's absolute term, relative to the row. If a spec gives `atol`, that replaces it and
    `scaled` is 0.
    """

    rtol: float
    scaled: float
    atol: float | None = None


@dataclass(frozen=True)
class Fingerprint:
    """A pair's gradient and its forward in a few numbers: projections u'Jv with seeded u and v.

    `analytic` holds those of the gradient under test, `forward` those of the forward's secants, as many.
    """

    analytic: tuple[Projection, ...]
    forward: tuple[Projection, ...]


class Change(str, Enum):
    """How a pair differs from what a baseline records; the words are a contract."""

    VANISHED = "vanished"
    LOOSENED = "loosened"
    DRIFTED = "drifted"
    GRADIENT = "gradient_changed"
    WEAKENED = "weakened"  # it was checked; now it is skipped, expected to be wrong, or its gradient is None
    BROKE = "broke"  # between two reports: it was right
    MENDED = "mended"  # between two reports: it wasn't right, and now is
    BOTH = "both_changed"
    FORWARD = "forward_changed"
    NEW = "new"
    KNOWN = "known"  # a fault that the baseline holds

    def __str__(self) -> str:
        return self.value

    @property
    def words(self) -> str:
        """Its words in a sentence."""
        return self.value.replace("_", " ")


HARMLESS = frozenset(  # reported, but no failure
    {Change.BOTH, Change.FORWARD, Change.NEW, Change.MENDED, Change.KNOWN}
)


@dataclass(frozen=True, order=True)
class BaselineFinding:
    """One pair that differs from what a baseline records; `spec` is its present or former file."""

    op: str
    case: str
    dtype: str
    mode: str
    pair: str
    change: Change
    message: str = ""
    spec: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What identifies the pair, as `LockedPair.key` does."""
        return self.op, self.case, self.dtype, self.mode, self.pair

    @property
    def is_failure(self) -> bool:
        """Whether it fails the gate."""
        return self.change not in HARMLESS


def tell_apart(ops: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return `file::op` for each op (its name, its file) whose name another file has, too, else nothing."""
    places = set(ops)
    counts = Counter(op for op, _ in places)
    return {(op, file): f"{file}::{op}" if counts[op] > 1 else "" for op, file in places}


@dataclass(frozen=True)
class Shard:
    """A part of a run: part `index` (from 1) of `count`; `plan` lists every (op, case, dtype)."""

    index: int
    count: int
    plan: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Selection:
    """What was requested of a run, to distinguish a pair that wasn't selected from one that is gone."""

    paths: tuple[str, ...]  # the files and folders of specs
    # the options that select among them, as on a command line: "--op huber", "--shard 1/4"
    options: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()  # the requested modes; empty for each spec's own
    # (op, case, dtype) of the cases in these specs without pairs in the run
    left_out: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class GradientRun:
    """A custom gradient that a case made, or ran."""

    function: str  # `module:qualname` of the function that it belongs to
    places: tuple[str, ...]  # `file:line` of that function, then of the functions that it closes over
    # `file:line` of the lines that made it, the innermost first: a decorator, or a call
    makers: tuple[str, ...] = ()
    # labels of the pairs whose gradients ran it; empty where it was made but didn't run
    pairs: tuple[str, ...] = ()


class CoverageStatus(str, Enum):
    """Whether a hand-written gradient is covered; the words are a contract."""

    COVERED = "covered"  # a pair that passed ran it
    MISSING = "missing"
    EXCUSED = "excused"  # not covered, for a reason that the specs give

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class WrittenGradient:
    """A hand-written gradient, or a module that may hold some but can't be imported."""

    name: str  # `module:qualname` of the function that it belongs to; the dotted name of a module
    kind: str  # what makes it: "custom_gradient", "RegisterGradient", "Defun", ...; or "module"
    file: str  # its file, from `site-packages` or the working directory
    line: int  # 1-based; 0 for a module
    status: CoverageStatus  # whether it is covered
    cases: tuple[str, ...] = ()  # the cases with a pair that passed and ran it, as "op · case", each once
    # why it is excused, why the module can't be imported, or how far a missing gradient came
    reason: str = ""


@dataclass(frozen=True)
class GradientCoverage:
    """The gradients of some packages, and which of them passing pairs ran."""

    packages: tuple[str, ...]  # the packages measured
    gradients: tuple[WrittenGradient, ...]  # all of their gradients
    fail_under: float | None = None  # the share, in percent, below which the run fails; `None` for no limit
    changed: str = ""  # a revision: only gradients in files changed since then count; empty for all

    def count(self, status: CoverageStatus) -> int:
        """Return how many have a status."""
        return sum(gradient.status is status for gradient in self.gradients)

    @property
    def percent(self) -> float:
        """The share of those to be covered that are; 100 where there are none."""
        covered = self.count(CoverageStatus.COVERED)
        total = covered + self.count(CoverageStatus.MISSING)
        return 100.0 * covered / total if total else 100.0

    @property
    def falls_short(self) -> bool:
        """Whether less is covered than must be."""
        return self.fail_under is not None and self.percent < self.fail_under


@dataclass(frozen=True)
class Branch:
    """A branch of the forward or of its gradient, and which of its sides were taken."""

    text: str  # the condition, as far as the graph shows it: `x > 3.5`
    place: str  # `file:line` of the code that branches
    part: str  # "forward" or "gradient"
    sides: tuple[str, ...]  # all of its sides
    seen: tuple[str, ...]  # the sides that some element took at some point
    # the sides that the inputs can't take, as a spec says, each with the reason
    excused: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it among branches: condition, place and part."""
        return self.text, self.place, self.part

    @property
    def unseen(self) -> tuple[str, ...]:
        """The sides that were neither taken nor excused."""
        excused = {side for side, _ in self.excused}
        return tuple(side for side in self.sides if side not in self.seen and side not in excused)

    def label(self, side: str) -> str:
        """Return a side's name, as excuses give it and reports show it: `x > 3.5 true (ops.py:14)`."""
        return f"{self.text} {side} ({self.place})"


def side_counts(branches: Iterable[Branch]) -> tuple[int, int]:
    """Return how many sides were seen, and how many there are, excused ones aside.

    A branch that occurs in several cases counts once; its side was seen if it was taken in any of them.
    """
    every: set[tuple[str, ...]] = set()
    seen: set[tuple[str, ...]] = set()
    for branch in branches:
        for side in branch.sides:
            key = (*branch.key, side)
            if side in branch.seen:
                seen.add(key)
            if side in branch.seen or side in branch.unseen:
                every.add(key)
    return len(seen), len(every)
