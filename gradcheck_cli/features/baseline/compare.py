"""Finds what has changed between a baseline and a run, and which changes fail the gate.

A pair that is missing in a run was deleted, not selected, or never requested: `Expected` tells these apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradcheck_cli.gate import BaselineFinding, Change, Fingerprint, Projection, Tolerance, side_counts
from gradcheck_cli.results import FAILING, GREEN, UNDECIDED, CaseResult, PairResult, Report, Status

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


# An error has drifted if it is this many times larger than it was, and than its own random movements: the
# numeric value's uncertainty, and rounding in another order. Rounding is taken as 10^-4 of the tolerance: a
# tolerance of 1e-6 then shows a drift beyond 1e-9, which is more than any refactoring of float64 code causes.
GROWTH = 10.0
_ROUNDING = 1e-4
# A tolerance is computed from the spec's numbers and from data: equal ones may differ by rounding.
_SAME = 1e-6
_ROUNDED = 1.01  # the baseline keeps three digits
# For two rules that can't be compared, because one has an absolute tolerance and the other a scaled one: the
# allowed error depends on which element is the worst, so only a larger change counts.
_LOOSER = 10.0


def compare(
    old: Mapping[Key, LockedPair],
    new: Mapping[Key, LockedPair],
    *,
    is_expected: Callable[[LockedPair], bool] = lambda _: True,
    breaks: bool = False,
) -> tuple[BaselineFinding, ...]:
    """Compare a run with a baseline.

    Args:
        is_expected: whether a pair of the baseline that isn't in the run should be in it.
        breaks: also report pairs that were right and are wrong now, and the reverse. A run reports the former
            by itself.
    """
    findings: list[BaselineFinding] = []
    reported: set[Key] = set()  # a finding about a whole case is reported with the first of its pairs
    renamed = _find_renamed(old, new, is_expected)
    for key, pair in old.items():
        if key in renamed:
            now = new[renamed[key]]
            was = " · ".join(
                old_part for old_part, new_part in zip(key, now.key, strict=True) if old_part != new_part
            )
            findings.append(
                _finding(now, Change.RENAMED, f"was {was}; the gradient and its forward are the same")
            )
            findings += [
                _finding(now, change, message) for change, message in _find_changes(pair, now, breaks=breaks)
            ]
        elif key in new:
            case = (*key[:-1], "")
            if case not in reported and (less := _describe_less(pair, new[key])):
                reported.add(case)
                findings.append(_finding(new[key], Change.WEAKENED, less))
            changes = _find_changes(pair, new[key], breaks=breaks)
            findings += [_finding(new[key], change, message) for change, message in changes]
        elif is_expected(pair):
            findings.append(_finding(pair, Change.VANISHED, f"was checked in {pair.spec}, and no longer is"))
    findings += [
        _finding(pair, Change.NEW, "isn't in the baseline yet")
        for key, pair in new.items()
        if key not in old and key not in renamed.values()
    ]
    return tuple(sorted(findings))


def _find_renamed(
    old: Mapping[Key, LockedPair], new: Mapping[Key, LockedPair], is_expected: Callable[[LockedPair], bool]
) -> dict[Key, Key]:
    """Find pairs whose op or case has been renamed, by their fingerprints.

    Drawn values depend on the op's name, so this recognises only pairs whose inputs are written down. If
    several fit, none is chosen.
    """
    gone = {key: pair for key, pair in old.items() if key not in new and is_expected(pair)}
    fresh = {key: pair for key, pair in new.items() if key not in old}
    fits = {
        key: [new_key for new_key, now in fresh.items() if _is_alike(pair, now)] for key, pair in gone.items()
    }
    claims = Counter(new_key for candidates in fits.values() for new_key in candidates)
    return {
        key: candidates[0]
        for key, candidates in fits.items()
        if len(candidates) == 1 and claims[candidates[0]] == 1
    }


def _is_alike(old: LockedPair, new: LockedPair) -> bool:
    prints = (old.fingerprint, new.fingerprint)
    is_known = all(
        fingerprint is not None and fingerprint.analytic and fingerprint.forward for fingerprint in prints
    )
    is_same_pair = old.key[2:] == new.key[2:] and old.status is new.status
    return is_known and is_same_pair and _describe_moves(old, new) == ("", "")


def is_same(old: LockedPair, new: LockedPair) -> bool:
    """Whether a baseline may stay as it is: errors may move within their noise."""
    same_error = new.error <= _drift_limit(old, new) and old.error <= _drift_limit(new, old)
    tolerances = (old.tolerance, new.tolerance)
    return (
        same_error
        and not list(_find_changes(old, new, breaks=False))
        and not _describe_loosening(new, old)
        and (old.checks_off, old.samples, old.sides) == (new.checks_off, new.samples, new.sides)
        and (old.status, old.connected, old.spec) == (new.status, new.connected, new.spec)
        and all(tolerances) == any(tolerances)
        and (old.fingerprint is None) == (new.fingerprint is None)
    )


def _finding(pair: LockedPair, change: Change, message: str) -> BaselineFinding:
    return BaselineFinding(*pair.key, change, message, pair.spec)


def _find_changes(old: LockedPair, new: LockedPair, *, breaks: bool) -> Iterator[tuple[Change, str]]:
    if new.status not in GREEN:
        was_more = {Status.SKIPPED: old.status is not Status.SKIPPED, Status.IGNORED: old.status in GREEN}
        if was_more.get(new.status):
            yield Change.WEAKENED, f"was {_describe_status(old)}, and is {new.status} now"
        elif breaks and (old.status in GREEN or (old.status in UNDECIDED and new.status in FAILING)):
            yield Change.BROKE, f"was {_describe_status(old)}, and is {_describe_status(new)} now"
        elif breaks and new.status in FAILING and new.error > _drift_limit(old, new):
            yield (
                Change.DRIFTED,
                f"error {old.error:.1e} -> {new.error:.1e}, and {_describe_status(new)} as before",
            )
        return  # the run's own verdict says this
    if breaks and old.status not in GREEN:
        yield Change.MENDED, f"was {_describe_status(old)}, and is {_describe_status(new)} now"
    if old.status is Status.PASSED and new.status is Status.EXPECTED_MISMATCH:
        yield Change.WEAKENED, "was right, and the spec expects it to be wrong now"
    elif old.status in GREEN and old.connected and not new.connected:
        yield Change.WEAKENED, "had a gradient, and has None now"
    loosened = _describe_loosening(old, new)
    if loosened:
        yield Change.LOOSENED, loosened
    if old.status in GREEN:
        yield from _find_moves(old, new)


def _describe_less(old: LockedPair, new: LockedPair) -> str:
    """Say which parts of a case are no longer checked; empty if all are."""
    parts = [f"check {name} is turned off now" for name in new.checks_off if name not in old.checks_off]
    if new.samples < old.samples:
        parts.append(f"was checked at {old.samples} points, and is at {new.samples} now")
    if old.sides is not None and new.sides is not None:
        (old_seen, old_sides), (sees, now) = old.sides, new.sides
        # A branch that was removed from the code counts neither as seen nor as unseen.
        if sees < old_seen and now - sees > old_sides - old_seen:
            parts.append(f"saw {old_seen} of {old_sides} sides of branches, and sees {sees} of {now} now")
    return "; ".join(parts)


def _find_moves(old: LockedPair, new: LockedPair) -> Iterator[tuple[Change, str]]:
    """Yield how a gradient that was right, and still is, has changed."""
    analytic, forward = _describe_moves(old, new)
    if forward:  # errors and gradients then belong to another function
        what = "the forward and the gradient have changed" if analytic else "the forward has changed"
        errors = f" (error {old.error:.1e} -> {new.error:.1e})"
        yield (Change.BOTH if analytic else Change.FORWARD), what + errors
        return
    if analytic:
        yield Change.GRADIENT, f"the gradient has changed, its forward hasn't: {analytic}"
    if new.error > _drift_limit(old, new):
        yield (
            Change.DRIFTED,
            f"error {old.error:.1e} -> {new.error:.1e}, still within the tolerance of {new.allowed:.1e}",
        )


def _describe_status(pair: LockedPair) -> str:
    return str(pair.status).replace("_", " ")


def _drift_limit(old: LockedPair, new: LockedPair) -> float:
    return GROWTH * max(old.error, old.noise, new.noise, _ROUNDING * min(old.allowed, new.allowed))


def _describe_loosening(old: LockedPair, new: LockedPair) -> str:
    """Say how a tolerance is wider than before; empty if it isn't."""
    before, after = old.tolerance, new.tolerance
    if before is None or after is None:
        return ""
    if after.rtol > before.rtol * (1 + _SAME):
        return f"rtol {before.rtol:.1e} -> {after.rtol:.1e}"
    if before.atol is not None and after.atol is not None:
        wider = after.atol > before.atol * (1 + _SAME)
        return f"atol {before.atol:.1e} -> {after.atol:.1e}" if wider else ""
    if after.atol is not None:
        # The scaled tolerance that it replaces was `allowed` at the worst element.
        wider = after.atol > old.allowed * _ROUNDED
        return f"atol scaled ({old.allowed:.1e} at the worst element) -> {after.atol:.1e}" if wider else ""
    if before.atol is not None:
        wider = new.allowed > _LOOSER * max(old.allowed, before.atol)
        return f"atol {before.atol:.1e} -> scaled ({new.allowed:.1e} at the worst element)" if wider else ""
    wider = after.scaled > before.scaled * (1 + _SAME)
    return f"scaled tolerance {before.scaled:.1e} -> {after.scaled:.1e} of the row" if wider else ""


def _describe_moves(old: LockedPair, new: LockedPair) -> tuple[str, str]:
    """Say how gradient and forward have changed, by their projections; empty if they haven't."""
    if old.fingerprint is None or new.fingerprint is None:
        return "", ""
    return (
        _describe_difference(old.fingerprint.analytic, new.fingerprint.analytic),
        _describe_difference(old.fingerprint.forward, new.fingerprint.forward),
    )


def _describe_difference(before: Sequence[Projection], after: Sequence[Projection]) -> str:
    if len(before) != len(after):
        return "its projections can't be compared"
    for first, second in zip(before, after, strict=True):
        if _differ(first, second):
            return f"a projection of it was {first.value:.8e}, and is {second.value:.8e}"
    return ""


def _differ(first: Projection, second: Projection) -> bool:
    if not (math.isfinite(first.value) and math.isfinite(second.value)):
        both_nan = math.isnan(first.value) and math.isnan(second.value)
        return not both_nan and first.value != second.value
    # Not `>`: with a slack of NaN they differ.
    return not abs(first.value - second.value) <= first.slack + second.slack


class Expected:
    """Tells whether a pair that isn't in a report should have been in it."""

    def __init__(self, report: Report) -> None:
        """Read what was requested of the run; everything, if the report doesn't say."""
        self._selection = report.selection
        if self._selection is not None:
            self._left_out = set(self._selection.left_out)
            self._folders = [Path(path).resolve() for path in self._selection.paths]
        self._done = {(case.op, case.case, case.dtype) for case in report.cases if case.pairs}

    def __call__(self, entry: LockedPair) -> bool:
        """Whether the pair should have been in the report."""
        if self._selection is None:
            return True
        if self._selection.modes and entry.mode not in self._selection.modes:
            return False
        key = entry.op, entry.case, entry.dtype
        if key in self._done:
            return True  # the case ran, and this pair wasn't in it
        if key in self._left_out:
            return False  # not selected, not done, or not checkable: said elsewhere
        # The case or its spec was deleted from a path that was to be checked.
        file = Path(entry.spec).resolve()
        return any(folder in (file, *file.parents) for folder in self._folders)


def compare_reports(before: Report, after: Report) -> tuple[tuple[BaselineFinding, ...], int]:
    """Compare two reports, which may be of different selections.

    Returns the changes, sorted, and how many pairs of `before` weren't requested in `after`.
    """
    old, new = locked_pairs_of(before.cases), locked_pairs_of(after.cases)
    is_expected, was_expected = Expected(after), Expected(before)
    lost, were_lost = _explain_unchecked(after), _explain_unchecked(before)
    findings: list[BaselineFinding] = []
    for finding in compare(old, new, is_expected=is_expected, breaks=True):
        key = (finding.op, finding.case, finding.dtype, finding.mode, finding.pair)
        if finding.change is Change.NEW and key[:4] in were_lost:
            message = f"{were_lost[key[:4]]}, and is {new[key].status} now"
            findings.append(replace(finding, change=Change.MENDED, message=message))
        elif not (finding.change is Change.NEW and not was_expected(new[key])) and key[:4] not in lost:
            findings.append(finding)
    gone = {key: entry for key, entry in old.items() if key not in new}
    for key, entry in gone.items():
        if key[:4] in lost and entry.status in GREEN:
            message = f"was {entry.status}, and {lost[key[:4]]} now"
            findings.append(BaselineFinding(*key, Change.BROKE, message, entry.spec))
    findings += _changed_checks(before, after)
    unasked = sum(key[:4] not in lost and not is_expected(entry) for key, entry in gone.items())
    return tuple(sorted(findings)), unasked


def _explain_unchecked(report: Report) -> dict[tuple[str, str, str, str], str]:
    """Return why cases have no pairs that should have been checked, by case."""
    reasons = {}
    for case in report.cases:
        if not case.pairs:
            failing = next((check.message for check in case.checks), "")
            why = failing if case.error is None else f"{case.error.kind}: {case.error.message}"
            reasons[_key(case)] = f"couldn't be checked ({case.status}{why and ', '}{why})"
    return reasons


def _changed_checks(before: Report, after: Report) -> Iterator[BaselineFinding]:
    """Yield the checks that fail now and didn't, or no longer fail."""
    earlier = {_key(case): _failing_checks(case) for case in before.cases if case.pairs}
    for case in after.cases:
        old, new = earlier.get(_key(case)), _failing_checks(case)
        if old is None or not case.pairs:
            continue
        for name in {**old, **new}:
            change = None
            if name not in old:
                change = Change.BROKE, f"didn't fail, and is {new[name]} now"
            elif name not in new:
                change = Change.MENDED, f"was {old[name]}, and no longer is"
            if change is not None:
                spec = case.spec.rpartition(":")[0] or case.spec
                yield BaselineFinding(*_key(case), f"check {name}", *change, spec)


def _key(case: CaseResult) -> tuple[str, str, str, str]:
    return case.op, case.case, case.dtype, case.mode


def _failing_checks(case: CaseResult) -> Mapping[str, str]:
    return {check.name: str(check.status) for check in case.checks if check.status in FAILING | UNDECIDED}
