"""What a lock file or an earlier report says about one pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradcheck_cli.covered import side_counts
from gradcheck_cli.results import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradcheck_cli.gate import Fingerprint, Tolerance
    from gradcheck_cli.results import CaseResult, PairResult

GREEN = (Status.PASSED, Status.EXPECTED_MISMATCH)

Key = tuple[str, str, str, str, str]  # op, case, dtype, mode, pair


@dataclass(frozen=True)
class LockedPair:
    """One pair.

    Attributes:
        op: the op's name.
        case: the case's name.
        dtype: the case's dtype; a case may occur with several.
        mode: graph, eager, ...
        pair: the pair's label.
        spec: the spec's file.
        status: its verdict.
        connected: whether its gradient is a tensor.
        error: of the worst element, absolute.
        noise: the bound on the numeric value's own error there.
        allowed: the tolerance there.
        tolerance: the rule behind `allowed`.
        fingerprint: projections of gradient and forward.
        checks_off: structural checks that the spec turns off.
        samples: points at which it is checked.
        sides: how many sides of branches its case has seen, and how many there are; `None` for none.
    """

    op: str
    case: str
    dtype: str
    mode: str
    pair: str
    spec: str
    status: Status
    connected: bool
    error: float
    noise: float
    allowed: float
    tolerance: Tolerance | None = None
    fingerprint: Fingerprint | None = None
    checks_off: tuple[str, ...] = ()
    samples: int = 0
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
        noise=pair.uncertainty,
        allowed=pair.allowed,
        tolerance=pair.tolerance,
        fingerprint=pair.fingerprint,
        checks_off=case.checks_off,
        samples=case.samples,
        sides=side_counts(case.branches) if case.branches else None,
    )


def _error(pair: PairResult) -> float:
    """Return the error of the same element as `noise`; `max_abs_error` may belong to another one."""
    if pair.worst is None:
        return pair.max_abs_error
    difference = pair.worst.analytic - pair.worst.numeric
    error = 0.0 if pair.worst.analytic == pair.worst.numeric else abs(difference)
    return math.inf if math.isnan(error) else error
