"""`--select` and `--ignore`: which undecided pairs count. What is wrong or wasn't tested always does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradcheck_cli.errors import UsageError
from gradcheck_cli.reporting.codes import CODES, code_of_pair, numbers_may_not_tell
from gradcheck_cli.results import FAILING, GREEN, CaseResult, PairResult, Report, Status, case_status


@dataclass(frozen=True)
class Ignored:
    """The codes, as `GC212`, with which a pair doesn't count."""

    numbers: frozenset[str] = frozenset()

    def mark(self, case: CaseResult) -> CaseResult:
        """Return a case in which undecided pairs with these codes are `ignored`."""
        if not self.numbers or case.status is not Status.INCONCLUSIVE:
            return case
        pairs = tuple(map(self._mark, case.pairs))
        return (
            case
            if pairs == case.pairs
            else replace(case, pairs=pairs, status=case_status(pairs, case.checks))
        )

    def _mark(self, pair: PairResult) -> PairResult:
        code = code_of_pair(pair)
        is_ignored = pair.status is Status.INCONCLUSIVE and code is not None and code.number in self.numbers
        return replace(pair, status=Status.IGNORED) if is_ignored else pair

    def describe_unchecked(self, report: Report) -> tuple[str, ...]:
        """Say that nothing is left of a run, if all that it found is ignored: that isn't right either."""
        summary = report.summary
        if not summary["ignored"] or any(summary[str(status)] for status in GREEN | FAILING):
            return ()
        return ("every pair is undecided and ignored: nothing was tested",)


def read_ignored(selected: Sequence[str], ignored: Sequence[str]) -> Ignored:
    """Read which codes don't count.

    Args:
        selected: codes and beginnings of codes that count; empty for all. Several may be joined by commas.
        ignored: those of them that don't count.

    Raises:
        UsageError: there is no such code, or it can't be ignored.
    """
    may_be = frozenset(code.number for code in CODES if numbers_may_not_tell(code))
    for text in _split(ignored):
        if not may_be & _numbers(text, "--ignore"):
            shown = min(_numbers(text, "--ignore"))
            raise UsageError(
                f"--ignore: '{text}' always counts; only pairs that are undecided by numbers can be ignored. "
                f"`gradcheck explain {shown}` says how a spec excuses it."
            )
    left_out = {number for text in _split(ignored) for number in _numbers(text, "--ignore")}
    chosen = {number for text in _split(selected) for number in _numbers(text, "--select")}
    return Ignored(may_be & (left_out | (may_be - chosen) if selected else left_out))


def _split(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",")]


def _numbers(text: str, option: str) -> frozenset[str]:
    """Return the numbers that begin with a text."""
    fitting = frozenset(code.number for code in CODES if text and code.number.startswith(text.upper()))
    if not fitting:
        raise UsageError(f"{option}: no code begins with '{text}'; `gradcheck explain` lists them.")
    return fitting
