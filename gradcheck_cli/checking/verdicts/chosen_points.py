"""What counts at a point that the spec didn't ask for: mismatches alone, and none that rounding could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradcheck_cli.checking.ops.jacobian import packed_point, working_precision
from gradcheck_cli.checking.ops.operation import Float
from gradcheck_cli.checking.ops.space import function_between
from gradcheck_cli.checking.pairs.pair import Rule
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.numerics import FLOAT32, Verdict, precision_of
from gradcheck_cli.numerics.problem import typical_size
from gradcheck_cli.results import CheckResult, PairNumbers, PairResult, Status
from gradcheck_cli.spec.values.points import Written

_NOTHING = 1e-6  # of the error allowed at the sample points: a smaller one is negligible
_MATTERS = 1e-10  # of a pair's largest slope at the sample points: a training step never sees less
# Slopes times a tiny point, and its steps, are subnormal: float64's smallest number over two roundings.
_UNDERFLOWS = float(np.finfo(float).tiny / np.finfo(float).eps ** 2)


def failed_checks(at_point: Findings, at_samples: Findings) -> dict[str, CheckResult]:
    """Return the structural checks that fail at a chosen point, and not at the sample points, by name.

    What linearity says of a pair counts where its gradient matters: below what counts, and at a pole, only
    rounding is left.
    """
    told = {check.name for check in at_samples.checks if check.status is Status.MISMATCHED}
    rounded = []
    for label, judged in at_point.judged.items():
        least, most = _counted(label, at_samples)
        if not least < _largest([np.abs(sample.analytic) for sample in judged.samples]) < most:
            rounded.append(f"{label} ")
    failed = [check for check in at_point.checks if check.status is Status.MISMATCHED]
    return {
        check.name: check
        for check in failed
        if check.name not in told
        and not (check.name == "linearity" and check.message.startswith(tuple(rounded)))
    }


def wrong_pairs(at_point: Findings, at_samples: Findings) -> dict[str, PairResult]:
    """Return the pairs that are wrong at a chosen point, by label.

    A pair isn't wrong if its output doesn't move there at all, and its gradient is negligible beside what is
    allowed at the sample points: `1 + erf(x)` is 0 below -5.9, and its right gradient isn't quite zero. Nor
    if all slopes are too small beside those at the sample points to matter, or if the forward's values are
    others in float64 there, as where the cubes in a norm underflow: it is judged in less precision then.
    """
    numbers = {pair.label: pair.numbers for pair in at_samples.pairs}
    rounding = {pair.label: unit_roundoff(pair) for pair in at_samples.pairs}

    def is_nothing(pair: PairResult) -> bool:
        of_samples, worst = numbers.get(pair.label, PairNumbers()), pair.numbers.worst
        if pair.mismatch != "value" or worst is None:
            return False
        judged = at_point.judged.get(pair.label)
        if judged is not None:
            wrong = [
                np.abs(own.analytic - own.numeric)[own.verdict == Verdict.MISMATCH] for own in judged.samples
            ]
            if 0 < _largest(wrong) <= _counted(pair.label, at_samples)[0]:
                return True
        return worst.numeric == 0 and pair.numbers.max_abs_error <= _NOTHING * of_samples.allowed

    return {
        pair.label: pair
        for pair in at_point.pairs
        if pair.status is Status.MISMATCHED
        and unit_roundoff(pair) <= rounding.get(pair.label, np.inf)
        and not is_nothing(pair)
    }


def are_at_pole(pairs: Mapping[str, PairResult], at_samples: Findings) -> bool:
    """Whether pairs are off by so much that beside it their slopes at the sample points don't count.

    A matrix is singular there but for rounding, say, which decides how large its inverse is, and which.
    """
    return bool(pairs) and all(
        pair.mismatch == "value" and pair.numbers.max_abs_error > _counted(label, at_samples)[1]
        for label, pair in pairs.items()
    )


_ADDS_UP = 0.01  # the part of a change by which a sum of others may be off
_KINKS = (Rule.KINK, Rule.TIE, Rule.JOINED_KINKS)


def have_derivative(pairs: Mapping[str, PairResult], at_point: Findings) -> bool:
    """Whether outputs with a wrong gradient move as far along all elements together as along each of them.

    Where a step of zeros is left out of a mean, each element may have a slope, but any two of them have
    another one together: the function has no derivative, and its gradient can't be wrong. Elements at kinks
    or jumps stay: the judge has seen that they have none.
    """
    generator, ops = np.random.default_rng(0), at_point.operations
    for label, pair in pairs.items():
        judged = at_point.judged.get(label)
        if ops is None or judged is None or pair.mismatch != "value" or judged.samples[0].places is not None:
            return True
        op, sample = ops.differenced, judged.samples[0]
        output, of = (
            [info.name for info in infos].index(own.name)  # its dtype is another in the twin
            for infos, own in ((op.outputs, judged.output), (op.inputs, judged.input_info))
        )
        is_smooth = ~np.isin(np.zeros(()) if sample.rules is None else sample.rules, _KINKS)
        rows = np.flatnonzero((is_smooth & (sample.verdict == Verdict.MISMATCH)).any(axis=1))
        is_smooth = is_smooth & np.isin(sample.verdict, (Verdict.PASS, Verdict.MISMATCH))
        x, step = packed_point(op, of), working_precision(op, op.inputs[of].dtype).first_step
        moves = step * np.maximum(np.abs(x), typical_size(x, None)) * generator.uniform(-1, 1, x.shape)
        moves *= is_smooth[rows].all(axis=0)
        ahead, behind = function_between(op, [of], [output])(np.stack([x + moves, x - moves]))
        terms = 2 * sample.numeric[rows] * moves
        error = np.abs((ahead - behind)[rows] - terms.sum(axis=1))
        if not rows.size or not (error > _ADDS_UP * np.abs(terms).sum(axis=1)).all():
            return True
    return not pairs  # a check that fails concerns none


def _counted(label: str, at_samples: Findings) -> tuple[float, float]:
    """Return the least and the largest size of a slope that counts, by those at the sample points.

    Beside a larger one, the slopes at the sample points wouldn't count themselves.
    """
    judged = at_samples.judged.get(label)
    if judged is None:
        return _UNDERFLOWS, np.inf
    slopes = [np.abs(side) for sample in judged.samples for side in (sample.analytic, sample.numeric)]
    share, largest = least_share(judged.input_info.dtype), _largest(slopes)
    return max(share * largest, _UNDERFLOWS), largest / share or np.inf


def least_share(dtype: str) -> float:
    """Return the part of a typical slope below which none counts, for an input of a dtype.

    In float32, the rounding of the input is such a part: probabilities sum to 1 up to that.
    """
    return max(_MATTERS, min(precision_of(dtype).unit_roundoff, FLOAT32.unit_roundoff))


def _largest(arrays: Sequence[Float]) -> float:
    return max((float(np.max(array, initial=0.0, where=np.isfinite(array))) for array in arrays), default=0.0)


def unit_roundoff(pair: PairResult) -> float:
    """Return the unit roundoff of the dtype that a pair was judged in."""
    return precision_of(pair.judged_by.reference_dtype).unit_roundoff


def with_notes(wrong: PairResult, pair: PairResult, *notes: str, point: Written = ()) -> PairResult:
    """Return the result at another point with lines that say so, and with the pair's own fingerprint."""
    cause = replace(wrong.cause, diagnosis=(*wrong.cause.diagnosis, *notes), point=point)
    return replace(wrong, fingerprint=pair.fingerprint, cause=cause)
