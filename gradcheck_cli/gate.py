"""What a run tells CI besides its verdicts: fingerprints, changes since a baseline, shards, its selection."""

from __future__ import annotations

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
    RENAMED = "renamed"

    def __str__(self) -> str:
        return self.value


HARMLESS = frozenset(  # reported, but no failure
    {Change.BOTH, Change.FORWARD, Change.NEW, Change.RENAMED, Change.MENDED}
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
    def is_failure(self) -> bool:
        """Whether it fails the gate."""
        return self.change not in HARMLESS


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
