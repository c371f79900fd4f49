"""Check that something was tested: a pair that is zero at every sample point shows nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gradcheck_cli.checking.checks.check import CaseView
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.results import CheckResult, PairResult, Status

UNTESTED = (
    "analytic and numeric derivative are zero everywhere, at every sample: nothing was tested; choose inputs "
    "where the op has a slope, or say 'expect: zero'."
)
UNMOVED = (
    "the output doesn't move at all, at any sample, and the gradient is too small to be told from zero: "
    "nothing was tested; choose inputs where the op has a slope, or say 'expect: zero'."
)

NO_PATH = "no path, and no slope"
NOTHING_CONNECTED = (
    "no output depends on any input: nothing was tested; if that is meant, say 'expect: disconnected' of the "
    "pairs."
)
UNTESTED_NONE = (
    "the gradient is None and the derivative zero at every sample, though the forward leads from this input "
    "to this output: whether None is right elsewhere was not tested; choose inputs where the op has a slope, "
    "or say 'expect: disconnected'."
)
NO_ELEMENTS = (
    "no pair has an element, in this case or another of the op's: shapes alone were checked; add a case with "
    "elements."
)


def explain_untested(samples: Sequence[PairSample]) -> str:
    """Say why a passing pair tested nothing: its output never moved, and not by symmetry. Else empty."""
    if not all(sample.numeric_is_zero for sample in samples):
        return ""
    if any(sample.smallness.is_remainder for sample in samples) and all(
        sample.smallness.is_remainder or sample.analytic_is_zero for sample in samples
    ):
        return ""
    return UNTESTED if all(sample.analytic_is_zero for sample in samples) else UNMOVED


def check_all_zero(view: CaseView) -> list[CheckResult]:
    """Report the pairs for which nothing was tested."""
    message = _describe_untested(view.pairs, is_only_case=view.case.is_only_case)
    return [CheckResult("all_zero", Status.INCONCLUSIVE if message else Status.PASSED, message)]


def _describe_untested(pairs: Sequence[PairResult], *, is_only_case: bool) -> str:
    is_empty = all(pair.status is Status.PASSED and not pair.numbers.elements for pair in pairs)
    if is_only_case and pairs and is_empty:
        return NO_ELEMENTS
    labels = [
        pair.label
        for pair in pairs
        if pair.message in {UNTESTED, UNMOVED, UNTESTED_NONE} and pair.status is Status.INCONCLUSIVE
    ]
    if pairs and all(
        pair.status is Status.PASSED
        and (not pair.connected or pair.note == NO_PATH)
        and not pair.note.startswith("as")
        for pair in pairs
    ):
        return NOTHING_CONNECTED
    return f"{', '.join(labels)}: nothing was tested." if labels else ""
