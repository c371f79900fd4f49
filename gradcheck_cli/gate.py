"""What a run hands to the gate beside its verdicts: what a baseline remembers of a pair, a shard's part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Projection:
    """A number that a baseline remembers, and how far rounding alone may move it on another machine."""

    value: float
    slack: float


@dataclass(frozen=True)
class Tolerance:
    """The rule by which a pair was judged: `atol` replaces the scaled absolute terms where a spec gives it.

    `scaled` is the default's own absolute term, relative to the row; 0 where `atol` replaces it.
    """

    rtol: float
    scaled: float
    atol: float | None = None


@dataclass(frozen=True)
class Fingerprint:
    """What a pair's gradient and its forward are, in a few numbers: projections u'Jv with seeded u and v.

    `analytic` is of the gradient under test, `forward` of the forward's secants; the same number of each.
    """

    analytic: tuple[Projection, ...]
    forward: tuple[Projection, ...]


class Change(str, Enum):
    """How a pair differs from what a baseline remembers of it; the words are a contract."""

    VANISHED = "vanished"
    LOOSENED = "loosened"
    DRIFTED = "drifted"
    GRADIENT = "gradient_changed"
    WEAKENED = "weakened"  # what was checked is now skipped, or expected to be wrong, or None
    BROKE = "broke"  # between two reports: it was right
    MENDED = "mended"  # between two reports: it wasn't right, and is
    BOTH = "both_changed"
    FORWARD = "forward_changed"
    NEW = "new"
    RENAMED = "renamed"

    def __str__(self) -> str:
        """Return the word itself."""
        return self.value


HARMLESS = frozenset(  # to be told, and no failure
    {Change.BOTH, Change.FORWARD, Change.NEW, Change.RENAMED, Change.MENDED}
)


@dataclass(frozen=True, order=True)
class BaselineFinding:
    """One pair that differs from what a baseline remembers; `spec` is where it is, or was."""

    op: str
    case: str
    dtype: str
    mode: str
    pair: str
    change: Change
    message: str = ""
    spec: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether it fails the gate."""
        return self.change not in HARMLESS


@dataclass(frozen=True)
class Shard:
    """Which part of a run this is: number `index` (from 1) of `count`; `plan` lists all (op, case, dtype)."""

    index: int
    count: int
    plan: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Selection:
    """What a run was asked for, so that what isn't in its report can be told from what is gone.

    Attributes:
        paths: the files and folders of specs.
        options: what narrows these down, as on a command line: "--op huber", "--shard 1/4".
        modes: those that were asked for; none: each spec's own.
        left_out: (op, case, dtype) of what these specs hold, and the run has no pairs of.
    """

    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str, str], ...] = ()
