"""What counts at a point that the spec didn't ask for: mismatches alone, and none that rounding could be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.results import CheckResult, PairNumbers, PairResult, Status

_NOTHING = 1e-6  # of the error allowed at the sample points: a smaller one is negligible
# Slopes times a tiny point, and its steps, are subnormal: float64's smallest number over two roundings.
_UNDERFLOWS = float(np.finfo(float).tiny / np.finfo(float).eps ** 2)


def failed_checks(at_point: Findings, at_samples: Findings) -> dict[str, CheckResult]:
    """Return the structural checks that fail at a chosen point, and not at the sample points, by name."""
    told = {check.name for check in at_samples.checks if check.status is Status.MISMATCHED}
    failed = [check for check in at_point.checks if check.status is Status.MISMATCHED]
    return {check.name: check for check in failed if check.name not in told}


def wrong_pairs(
    at_point: Findings, at_samples: Findings, *, hides_terms: bool = False
) -> dict[str, PairResult]:
    """Return the pairs that are wrong at a chosen point, by label.

    A pair isn't wrong if its output doesn't move there at all, and its gradient is negligible beside what is
    allowed at the sample points: `1 + erf(x)` is 0 below -5.9, and its right gradient isn't quite zero. Nor
    if all slopes are so small that the output underflows at a tiny point, nor if the forward's values are
    others in float64 there, as where the cubes in a norm underflow: it is judged in less precision then.

    Args:
        hides_terms: whether Python code computes a part of the output: the terms of its sums aren't seen, so
            its rounding may be as large as at the sample points, and so may what it does to a slope.
    """
    numbers = {pair.label: pair.numbers for pair in at_samples.pairs}
    rounding = {pair.label: unit_roundoff(pair) for pair in at_samples.pairs}

    def is_nothing(pair: PairResult) -> bool:
        of_samples, worst = numbers.get(pair.label, PairNumbers()), pair.numbers.worst
        if pair.mismatch != "value" or worst is None:
            return False
        largest = pair.numbers.max_abs_error
        if worst.numeric == 0 and largest <= max(_NOTHING * of_samples.allowed, _UNDERFLOWS):
            return True
        return hides_terms and largest <= min(of_samples.uncertainty, of_samples.allowed)

    return {
        pair.label: pair
        for pair in at_point.pairs
        if pair.status is Status.MISMATCHED
        and unit_roundoff(pair) <= rounding.get(pair.label, np.inf)
        and not is_nothing(pair)
    }


def unit_roundoff(pair: PairResult) -> float:
    """Return the unit roundoff of the dtype that a pair was judged in."""
    return precision_of(pair.numeric.reference_dtype).unit_roundoff


def with_note(wrong: PairResult, pair: PairResult, note: str) -> PairResult:
    """Return the result at another point with a note that says so, and with the pair's own fingerprint."""
    return replace(wrong, fingerprint=pair.fingerprint).explained(*wrong.cause.diagnosis, note)
