"""What has changed between a baseline and a run, and which of it fails the gate."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from gradcheck_cli.gate import BaselineFinding, Change
from gradcheck_cli.results import Status
from gradcheck_cli.running.baseline.locked_pair import GREEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gradcheck_cli.gate import Projection
    from gradcheck_cli.running.baseline.locked_pair import Key, LockedPair

# An error has drifted when it is this much larger than it was, and than all that may move it by itself: the
# numeric value's own uncertainty, and a rounding in another order. The latter is taken as 10^-4 of the
# tolerance: one of 1e-6 then shows a drift beyond 1e-9, which no refactoring of float64 code brings about.
GROWTH = 10.0
_ROUNDING = 1e-4
# A tolerance is computed from the spec's numbers and from data: two that are the same differ by rounding.
_SAME = 1e-6
_ROUNDED = 1.01  # of what the baseline keeps to three digits
# Without a rule to compare, as where a written atol gives way to the scaled one: allowed errors depend on
# which element is the worst, so that only a larger step counts.
_LOOSER = 10.0


def compare(
    old: Mapping[Key, LockedPair],
    new: Mapping[Key, LockedPair],
    *,
    is_expected: Callable[[LockedPair], bool] = lambda _: True,
    breaks: bool = False,
) -> tuple[BaselineFinding, ...]:
    """Compare a run with what is remembered.

    Args:
        old: the baseline.
        new: the run.
        is_expected: whether a pair of the baseline that the run hasn't got should be in it.
        breaks: also report pairs that were right and no longer are, which a run reports by itself, and those
            that weren't and are.

    Returns:
        The findings, sorted by op, case and pair.
    """
    found: list[BaselineFinding] = []
    told: set[Key] = set()  # what concerns a whole case is told of one of its pairs
    renamed = _renamed(old, new, is_expected)
    for key, entry in old.items():
        if key in renamed:
            now = new[renamed[key]]
            was = " · ".join(part for part, other in zip(key, now.key, strict=True) if part != other)
            found.append(
                _finding(now, Change.RENAMED, f"was {was}; the gradient and its forward are the same")
            )
            found += [
                _finding(now, change, message) for change, message in _changes(entry, now, breaks=breaks)
            ]
        elif key in new:
            case = (*key[:-1], "")
            if case not in told and (less := _less(entry, new[key])):
                told.add(case)
                found.append(_finding(new[key], Change.WEAKENED, less))
            changes = _changes(entry, new[key], breaks=breaks)
            found += [_finding(new[key], change, message) for change, message in changes]
        elif is_expected(entry):
            found.append(_finding(entry, Change.VANISHED, f"was checked in {entry.spec}, and no longer is"))
    found += [
        _finding(entry, Change.NEW, "isn't in the baseline yet")
        for key, entry in new.items()
        if key not in old and key not in renamed.values()
    ]
    return tuple(sorted(found))


def _renamed(
    old: Mapping[Key, LockedPair], new: Mapping[Key, LockedPair], is_expected: Callable[[LockedPair], bool]
) -> dict[Key, Key]:
    """Find pairs whose op or case is gone under one name and new under another, by their fingerprints.

    Values that are drawn depend on the op's name, so that this knows pairs again whose inputs are written
    down. Where several fit, none is taken.
    """
    gone = {key: entry for key, entry in old.items() if key not in new and is_expected(entry)}
    fresh = {key: entry for key, entry in new.items() if key not in old}
    fits = {
        key: [other for other, now in fresh.items() if _is_alike(entry, now)] for key, entry in gone.items()
    }
    taken = Counter(other for others in fits.values() for other in others)
    return {key: others[0] for key, others in fits.items() if len(others) == 1 and taken[others[0]] == 1}


def _is_alike(old: LockedPair, new: LockedPair) -> bool:
    prints = (old.fingerprint, new.fingerprint)
    is_known = all(one is not None and one.analytic and one.forward for one in prints)
    is_same_pair = old.key[2:] == new.key[2:] and old.status is new.status
    return is_known and is_same_pair and _moved(old, new) == ("", "")


def is_same(old: LockedPair, new: LockedPair) -> bool:
    """Whether there's nothing that a baseline should remember anew: errors may move within their noise."""
    same_error = new.error <= _drift_limit(old, new) and old.error <= _drift_limit(new, old)
    tolerances = (old.tolerance, new.tolerance)
    return (
        same_error
        and not list(_changes(old, new, breaks=False))
        and not _loosened(new, old)
        and (old.checks_off, old.samples, old.sides) == (new.checks_off, new.samples, new.sides)
        and (old.status, old.connected, old.spec) == (new.status, new.connected, new.spec)
        and all(tolerances) == any(tolerances)
        and (old.fingerprint is None) == (new.fingerprint is None)
    )


def _finding(entry: LockedPair, change: Change, message: str) -> BaselineFinding:
    return BaselineFinding(*entry.key, change, message, entry.spec)


def _changes(old: LockedPair, new: LockedPair, *, breaks: bool) -> Iterator[tuple[Change, str]]:
    if new.status not in GREEN:
        if new.status is Status.SKIPPED and old.status is not Status.SKIPPED:
            yield Change.WEAKENED, f"was {_words(old)}, and is skipped now"
        elif breaks and old.status in GREEN:
            yield Change.BROKE, f"was {_words(old)}, and is {_words(new)} now"
        return  # the run's own verdict says the rest
    if breaks and old.status not in GREEN:
        yield Change.MENDED, f"was {_words(old)}, and is {_words(new)} now"
    if old.status is Status.PASSED and new.status is Status.EXPECTED_MISMATCH:
        yield Change.WEAKENED, "was right, and the spec expects it to be wrong now"
    elif old.status in GREEN and old.connected and not new.connected:
        yield Change.WEAKENED, "had a gradient, and has None now"
    loosened = _loosened(old, new)
    if loosened:
        yield Change.LOOSENED, loosened
    if old.status in GREEN:
        yield from _moves(old, new)


def _less(old: LockedPair, new: LockedPair) -> str:
    """Say what of a case isn't checked any more; empty where all of it is."""
    parts = [f"check {name} is turned off now" for name in new.checks_off if name not in old.checks_off]
    if new.samples < old.samples:
        parts.append(f"was checked at {old.samples} points, and is at {new.samples} now")
    if old.sides is not None and new.sides is not None:
        (seen, every), (sees, now) = old.sides, new.sides
        # A branch that was taken out of the code is neither seen nor unseen any more.
        if sees < seen and now - sees > every - seen:
            parts.append(f"saw {seen} of {every} sides of branches, and sees {sees} of {now} now")
    return "; ".join(parts)


def _moves(old: LockedPair, new: LockedPair) -> Iterator[tuple[Change, str]]:
    """Yield what is different about a gradient that was right and still is."""
    analytic, forward = _moved(old, new)
    if forward:  # then errors and gradients are those of another function
        what = "the forward and the gradient have changed" if analytic else "the forward has changed"
        told = f" (error {old.error:.1e} -> {new.error:.1e})"
        yield (Change.BOTH if analytic else Change.FORWARD), what + told
        return
    if analytic:
        yield Change.GRADIENT, f"the gradient has changed, its forward hasn't: {analytic}"
    if new.error > _drift_limit(old, new):
        yield (
            Change.DRIFTED,
            f"error {old.error:.1e} -> {new.error:.1e}, still within the tolerance of {new.allowed:.1e}",
        )


def _words(entry: LockedPair) -> str:
    return str(entry.status).replace("_", " ")


def _drift_limit(old: LockedPair, new: LockedPair) -> float:
    return GROWTH * max(old.error, old.noise, new.noise, _ROUNDING * min(old.allowed, new.allowed))


def _loosened(old: LockedPair, new: LockedPair) -> str:
    """Say how a tolerance is wider than it was; empty where it isn't."""
    before, after = old.tolerance, new.tolerance
    if before is None or after is None:
        return ""
    if after.rtol > before.rtol * (1 + _SAME):
        return f"rtol {before.rtol:.1e} -> {after.rtol:.1e}"
    if before.atol is not None and after.atol is not None:
        wider = after.atol > before.atol * (1 + _SAME)
        return f"atol {before.atol:.1e} -> {after.atol:.1e}" if wider else ""
    if after.atol is not None:
        # The scaled tolerance that it replaces was `allowed` where it mattered most.
        wider = after.atol > old.allowed * _ROUNDED
        return f"atol scaled ({old.allowed:.1e} at the worst element) -> {after.atol:.1e}" if wider else ""
    if before.atol is not None:
        wider = new.allowed > _LOOSER * max(old.allowed, before.atol)
        return f"atol {before.atol:.1e} -> scaled ({new.allowed:.1e} at the worst element)" if wider else ""
    wider = after.scaled > before.scaled * (1 + _SAME)
    return f"scaled tolerance {before.scaled:.1e} -> {after.scaled:.1e} of the row" if wider else ""


def _moved(old: LockedPair, new: LockedPair) -> tuple[str, str]:
    """Say how gradient and forward have changed, by their projections; empty where they haven't."""
    if old.fingerprint is None or new.fingerprint is None:
        return "", ""
    return (
        _apart(old.fingerprint.analytic, new.fingerprint.analytic),
        _apart(old.fingerprint.forward, new.fingerprint.forward),
    )


def _apart(before: Sequence[Projection], after: Sequence[Projection]) -> str:
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
    # So that a slack that isn't a number finds them apart.
    return not abs(first.value - second.value) <= first.slack + second.slack
