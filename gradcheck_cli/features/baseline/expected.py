"""Which pairs a run should have had: a missing pair was deleted, not selected, or never requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gradcheck_cli.features.baseline.compare import LockedPair, compare, locked_pairs_of
from gradcheck_cli.gate import BaselineFinding, Change
from gradcheck_cli.results import FAILING, GREEN, UNDECIDED, CaseResult, Report


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
