"""What a run has seen of the code under test, as frozen values: hand-written gradients, sides of branches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class GradientRun:
    """A custom gradient that a case made, or ran.

    Attributes:
        function: `module:qualname` of the function that it is of.
        places: `file:line` of that function, then of the functions that it closes over.
        makers: `file:line` of the lines that asked for it, the innermost first: a decorator, or a call.
        pairs: labels of the pairs whose gradient it ran for; empty where it was made, and didn't run.
    """

    function: str
    places: tuple[str, ...]
    makers: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()


class CoverageStatus(str, Enum):
    """What becomes of a gradient that somebody wrote; the words are a contract."""

    COVERED = "covered"  # a pair that passed ran it
    MISSING = "missing"
    EXCUSED = "excused"  # not covered, for a reason that is written in the specs

    def __str__(self) -> str:
        """Return the word itself."""
        return self.value


@dataclass(frozen=True)
class WrittenGradient:
    """A gradient that somebody wrote, or a module of which nobody knows, since it can't be imported.

    Attributes:
        name: `module:qualname` of the function that it is of; of a module its dotted name.
        kind: by what it is made: "custom_gradient", "RegisterGradient", "Defun", ...; or "module".
        file: where, from `site-packages` or the working directory.
        line: 1-based; 0 of a module.
        status: what becomes of it.
        cases: the cases with a pair that passed and ran it, as "op · case", each once.
        reason: of an excused one, why; of a module, why it can't be imported; of a missing one, how far it
            came.
    """

    name: str
    kind: str
    file: str
    line: int
    status: CoverageStatus
    cases: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class GradientCoverage:
    """The gradients of some packages, and which of them passing pairs ran.

    Attributes:
        packages: what was measured.
        gradients: each with what becomes of it.
        fail_under: the least share, in percent, that isn't a failure; `None` for none.
        changed: the revision since which a file must have changed for its gradients to count; empty for any.
    """

    packages: tuple[str, ...]
    gradients: tuple[WrittenGradient, ...]
    fail_under: float | None = None
    changed: str = ""

    def count(self, status: CoverageStatus) -> int:
        """Return how many have a status."""
        return sum(one.status is status for one in self.gradients)

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


def join(parts: Sequence[GradientCoverage]) -> GradientCoverage | None:
    """Return the coverage of a run whose parts these are: what one covers is covered. `None` of none."""
    if not parts:
        return None
    order = (CoverageStatus.COVERED, CoverageStatus.EXCUSED, CoverageStatus.MISSING)
    best: dict[tuple[str, int, str], WrittenGradient] = {}
    for one in (gradient for part in parts for gradient in part.gradients):
        known = best.setdefault((one.file, one.line, one.name), one)
        first, other = sorted((known, one), key=lambda each: order.index(each.status))
        cases = tuple(sorted({*first.cases, *other.cases}))
        best[one.file, one.line, one.name] = replace(first, cases=cases)
    return replace(
        parts[0],
        packages=tuple(dict.fromkeys(name for part in parts for name in part.packages)),
        gradients=tuple(best[key] for key in sorted(best)),
        fail_under=max((part.fail_under for part in parts if part.fail_under is not None), default=None),
    )


@dataclass(frozen=True)
class Branch:
    """A place where the forward or its gradient goes one of several ways, and which of them were taken.

    Attributes:
        text: the condition, as far as the graph tells it: `x > 3.5`.
        place: `file:line` that asked for it.
        part: "forward" or "gradient".
        sides: every way.
        seen: those that some element took at some point.
        excused: those that a spec says its inputs can't take, each with the reason.
    """

    text: str
    place: str
    part: str
    sides: tuple[str, ...]
    seen: tuple[str, ...]
    excused: tuple[tuple[str, str], ...] = ()

    @property
    def unseen(self) -> tuple[str, ...]:
        """The sides that nothing took, and nobody excused."""
        excused = {side for side, _ in self.excused}
        return tuple(side for side in self.sides if side not in self.seen and side not in excused)

    def label(self, side: str) -> str:
        """Return a side's name, as excuses give it and reports show it: `x > 3.5 true (ops.py:14)`."""
        return f"{self.text} {side} ({self.place})"


def with_excuses(branch: Branch, excuses: Sequence[tuple[str, str]]) -> Branch:
    """Return a branch with reasons why sides of it aren't taken.

    Args:
        branch: as it was seen.
        excuses: pairs of a glob over sides, as `Branch.label` names them with or without the place, and a
            reason; of several that match, the last one counts.
    """
    found = {}
    for side in branch.sides:
        names = (branch.label(side), f"{branch.text} {side}")
        for glob, reason in excuses:
            if side not in branch.seen and any(fnmatchcase(name, glob) for name in names):
                found[side] = reason
    return replace(branch, excused=tuple(found.items()))


def side_counts(branches: Iterable[Branch]) -> tuple[int, int]:
    """Return how many sides were seen, and how many there are that nobody excused.

    A branch that several cases have is one: a side counts where one of them took it.
    """
    every: set[tuple[str, ...]] = set()
    seen: set[tuple[str, ...]] = set()
    for branch in branches:
        for side in branch.sides:
            key = (branch.text, branch.place, branch.part, side)
            if side in branch.seen:
                seen.add(key)
            if side in branch.seen or side in branch.unseen:
                every.add(key)
    return len(seen), len(every)
