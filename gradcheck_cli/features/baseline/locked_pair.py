"""What a lock file or an earlier report says about one pair."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gradcheck_cli.covered import side_counts
from gradcheck_cli.gate import Fingerprint, Tolerance
from gradcheck_cli.results import CaseResult, PairResult, Status

Key = tuple[str, str, str, str, str]  # op, case, dtype, mode, pair


@dataclass(frozen=True)
class LockedPair:
    """One pair."""

    op: str
    case: str
    dtype: str  # the case's dtype; a case may occur with several
    mode: str  # graph, eager, ...
    pair: str  # the pair's label
    spec: str
    status: Status
    connected: bool  # whether its gradient is a tensor
    error: float  # of the worst element, absolute
    noise: float  # the bound on the numeric value's own error there
    allowed: float  # the tolerance there
    tolerance: Tolerance | None = None  # the rule behind `allowed`
    fingerprint: Fingerprint | None = None  # projections of gradient and forward
    checks_off: tuple[str, ...] = ()  # structural checks that the spec turns off
    samples: int = 0  # points at which it is checked
    # how many sides of branches its case has seen, and how many there are; `None` for none
    sides: tuple[int, int] | None = None

    @property
    def key(self) -> Key:
        """What identifies the pair; its file doesn't, so that specs can be moved."""
        return self.op, self.case, self.dtype, self.mode, self.pair


def locked_pairs_of(cases: Iterable[CaseResult]) -> dict[Key, LockedPair]:
    """Return the pairs of a run by their keys."""
    entries = (_entry(case, pair) for case in cases for pair in case.pairs)
    return {entry.key: entry for entry in entries}


def _entry(case: CaseResult, pair: PairResult) -> LockedPair:
    return LockedPair(
        op=case.op,
        case=case.case,
        dtype=case.dtype,
        mode=case.mode,
        pair=pair.label,
        spec=case.spec.rpartition(":")[0] or case.spec,
        status=pair.status,
        connected=pair.connected,
        error=_error(pair),
        noise=pair.numbers.uncertainty,
        allowed=pair.numbers.allowed,
        tolerance=pair.numbers.tolerance,
        fingerprint=pair.fingerprint,
        checks_off=case.how.checks_off,
        samples=case.how.samples,
        sides=side_counts(case.seen.branches) if case.seen.branches else None,
    )


def _error(pair: PairResult) -> float:
    """Return the error of the same element as `noise`; `max_abs_error` may belong to another one."""
    if pair.numbers.worst is None:
        return pair.numbers.max_abs_error
    difference = pair.numbers.worst.analytic - pair.numbers.worst.numeric
    error = 0.0 if pair.numbers.worst.analytic == pair.numbers.worst.numeric else abs(difference)
    return math.inf if math.isnan(error) else error
