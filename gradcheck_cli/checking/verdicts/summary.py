"""The findings about a case, and the summary of one pair over its elements and points: a row of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.checks.all_checks import NO_PATH, UNTESTED_NONE, explain_untested
from gradcheck_cli.checking.ops.operation import Float, Operation, Operations, index_of, part_of
from gradcheck_cli.checking.pairs.pair import PairSample, PairVerdicts, ProbeNumbers, Rule, Stopped
from gradcheck_cli.gate import Branch, GradientRun
from gradcheck_cli.numerics import EXPLANATIONS, Reason, Verdict
from gradcheck_cli.numerics.precision import place_of_largest
from gradcheck_cli.numerics.shared_limits import OWN_ORDER
from gradcheck_cli.results import (
    ZERO_SIZE,
    Cause,
    CheckResult,
    Mutant,
    NumericSide,
    PairNumbers,
    PairResult,
    SearchResult,
    Status,
    UndifferentiatedOutput,
    WorstElement,
)
from gradcheck_cli.visible import count


@dataclass
class Findings:
    """The findings about one case."""

    pairs: tuple[PairResult, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    not_differentiated: tuple[UndifferentiatedOutput, ...] = ()  # integer outputs and the like, with dtype
    operations: Operations | None = None  # the ops at the first sample point; None if nothing could be judged
    gradients_seen: Mapping[str, int] = field(default_factory=dict)
    mutants: tuple[Mutant, ...] = ()
    held: tuple[str, ...] = ()  # each stop_gradient that was held, with its place
    stops: frozenset[str] = frozenset()  # keys of the `stop_gradient`s that change a derivative
    judged: Mapping[str, PairVerdicts] = field(
        default_factory=dict
    )  # each pair's elements, by the pair's label
    custom_gradients: tuple[GradientRun, ...] = ()  # those that were made, and the pairs for which they ran
    branches: tuple[Branch, ...] = ()  # of forward and gradient, with the sides that the points took
    search: SearchResult | None = None
    sides_unknown: str = ""  # why no branch was examined, or not all of them
    samples: int = 1  # at how many sample points it was checked
    chosen_points: int = 0  # extra points that were checked because they take sides that the others don't

    @property
    def first(self) -> Operation | None:
        """The op at the first sample point, in the declared dtypes; `None` if nothing could be judged."""
        return None if self.operations is None else self.operations.declared

    @property
    def numeric_dtype(self) -> str:
        """The dtype of the numeric derivative; empty where there is none."""
        return next(
            (pair.judged_by.reference_dtype for pair in self.pairs if pair.judged_by.method != "none"), ""
        )


@dataclass(frozen=True)
class _Errors:
    """One sample's errors: absolute, relative to the larger side, and as a share of the bound."""

    absolute: Float
    relative: Float
    ratio: Float


def _measure_errors(sample: PairSample) -> _Errors:
    difference = np.abs(sample.analytic - sample.numeric)
    # Equal infinities differ by nothing; NaN on either side differs by everything.
    absolute = np.where(sample.analytic == sample.numeric, 0.0, difference)
    absolute = np.where(np.isnan(absolute), np.inf, absolute)
    relative = np.where(absolute == 0, 0.0, absolute / sample.larger)
    bound = sample.allowed + sample.uncertainty
    ratio = np.where(absolute == 0, 0.0, absolute / bound)
    # An undecided element has an infinite uncertainty; it is shown before those that passed.
    undecided = sample.verdict == Verdict.INCONCLUSIVE
    ratio = np.where(undecided, np.maximum(np.nan_to_num(ratio, nan=0.0), 1.0), ratio)
    return _Errors(absolute, np.nan_to_num(relative, nan=np.inf), np.nan_to_num(ratio, nan=np.inf))


_NONE_IS_NOT_ZERO = "the gradient is None (no path), but the numeric derivative isn't zero: None is not zero."
# By verdict code: the element with the highest rank is shown.
RANK = np.zeros(len(Verdict), np.int8)
RANK[[Verdict.KINK, Verdict.INCONCLUSIVE, Verdict.MISMATCH]] = 1, 2, 3


def _decide(samples: Sequence[PairSample], *, may_be_zero: bool, leads: bool) -> tuple[Status, str, str]:
    """Return a pair's status, the reason, and the word for what leaves it undecided; see `summarise`."""
    verdicts = [sample.verdict for sample in samples]
    if any((verdict == Verdict.MISMATCH).any() for verdict in verdicts):
        remark = next((sample.remark for sample in samples if sample.remark), "")
        is_connected = any(sample.is_connected for sample in samples)
        return Status.MISMATCHED, remark if is_connected else _NONE_IS_NOT_ZERO, ""
    if any(sample.doubt for sample in samples) or any(
        (verdict == Verdict.INCONCLUSIVE).any() for verdict in verdicts
    ):
        return Status.INCONCLUSIVE, *_explain_undecided(samples)
    message, word = _explain_untested(samples, may_be_zero=may_be_zero, leads=leads)
    return Status.INCONCLUSIVE if message else Status.PASSED, message, word


def _explain_undecided(samples: Sequence[PairSample]) -> tuple[str, str]:
    """Explain what leaves a pair undecided, as a sentence and as a word."""
    stopped = _join_stops(samples)
    doubt = next((sample.doubt for sample in samples if sample.doubt), "")
    if stopped is not None:
        return str(stopped), "stop_gradient"
    if doubt:
        is_of_loop = any((sample.decided_by == Rule.LOOP).any() for sample in samples)
        return doubt, "loop" if is_of_loop else "probe" if samples[0].places is not None else ""
    return _explain_elements(samples)


def _explain_untested(samples: Sequence[PairSample], *, may_be_zero: bool, leads: bool) -> tuple[str, str]:
    """Say why a passing pair tested nothing, in a sentence and in a word; both are empty otherwise."""
    is_connected = any(sample.is_connected for sample in samples)
    can_be_untested = any(sample.elements for sample in samples) and not may_be_zero
    if can_be_untested and is_connected and (message := explain_untested(samples)):
        return message, "all_zero"
    if message := explain_wide_bound(samples):
        return message, "bound"
    # A sample that was judged with stops held has a forward that moves without them.
    if (
        can_be_untested
        and not is_connected
        and leads
        and not any(sample.differencing.is_held for sample in samples)
    ):
        return UNTESTED_NONE, "all_zero"
    return "", ""


def _join_stops(samples: Sequence[PairSample]) -> Stopped | None:
    return Stopped.combine([sample.stopped for sample in samples if sample.stopped is not None])


def summarise(judged: PairVerdicts, *, may_be_zero: bool = False, leads: bool = False) -> PairResult:
    """Turn the verdicts on a pair's elements into its result, before any expectation of the spec is applied.

    Args:
        judged: the pair, at one sample point at least.
        leads: whether the forward leads from the input to the output, as far as that is known.
        may_be_zero: whether an all-zero gradient may pass.
    """
    judged = replace(judged, samples=_lend_power(judged.samples))
    samples = judged.samples
    first, stopped = samples[0], _join_stops(samples)
    probed = [sample.probes for sample in samples if sample.probes is not None]
    chances = [probes.miss_probability for probes in probed if probes.miss_probability is not None]
    status, message, undecided_word = _decide(samples, may_be_zero=may_be_zero, leads=leads)
    numbers = _measure_pair(judged, probed)
    methods = {sample.differencing.method for sample in samples}
    return PairResult(
        label=judged.label,
        mismatch=_describe_kind(samples) if numbers.wrong_elements else "",
        undecided=undecided_word,
        output=judged.output.name,
        input=judged.input_info.name,
        status=status,
        connected=any(sample.is_connected for sample in samples),
        note=_note(samples, numbers.wrong_elements, numbers.kinks, status),
        message=message,
        numbers=numbers,
        judged_by=NumericSide(
            "ladder" if "ladder" in methods else first.differencing.method,
            first.differencing.dtype,
            first.differencing.not_float64,
            evaluations=sum(sample.differencing.evaluations for sample in samples),
            columns=sum(sample.size[1] for sample in samples if sample.differencing.evaluations),
            miss_probability=max(chances) if chances else None,
            miss_size=probed[0].miss_size if chances else None,
        ),
        cause=Cause() if stopped is None else Cause(stops=stopped.places, stop_change=stopped.change),
    )


def _lend_power(samples: Sequence[PairSample]) -> Sequence[PairSample]:
    """Let a point at which probes saw a part only rest on another, at which they saw what was asked for.

    A gate that is nearly closed at the weights' own values hides what is behind it there, and not elsewhere.
    """

    def has_power(sample: PairSample) -> bool:
        probes = sample.probes
        return probes is not None and probes.miss_size is not None and sample.is_right and not probes.is_faint

    if not any(map(has_power, samples)):
        return samples
    return [
        replace(sample, doubt="", probes=replace(sample.probes, miss_probability=None, is_weak=False))
        if sample.probes is not None and sample.probes.is_weak and (sample.probes.miss_probability or 0) < 1
        else sample
        for sample in samples
    ]


def _measure_pair(judged: PairVerdicts, probed: Sequence[ProbeNumbers]) -> PairNumbers:
    """Return the errors of a pair's elements and probes, over all samples, and how many are wrong."""
    samples = judged.samples
    verdicts = [sample.verdict for sample in samples]
    errors = [_measure_errors(sample) for sample in samples]
    probes = max(probed, key=lambda probes: probes.error, default=ProbeNumbers())
    worst, bound, uncertainty = None, probes.bound, 0.0
    if (gravest_element := _find_gravest(samples, errors, 0)) is not None:
        sample, place = samples[gravest_element[1]], gravest_element[2]
        worst = _element(judged, sample, *place)
        bound, uncertainty = float(sample.allowed[place]), float(sample.uncertainty[place])
    error, allowed = _find_shown_error(samples, errors, probes)
    return PairNumbers(
        max(_find_maximum([error.absolute for error in errors], verdicts), probes.error),
        max(_find_maximum([error.relative for error in errors], verdicts), probes.error),
        allowed=bound,
        uncertainty=uncertainty,
        elements=max(sample.elements for sample in samples),
        kinks=sum(int(np.count_nonzero(verdict == Verdict.KINK)) for verdict in verdicts),
        wrong_elements=max(int(np.count_nonzero(verdict == Verdict.MISMATCH)) for verdict in verdicts),
        decided_by=_count_rules(samples),
        worst=worst,
        worst_error=error,
        worst_bound=allowed,
    )


def _count_rules(samples: Sequence[PairSample]) -> dict[str, int]:
    """Count the judged elements of all samples by the rule that decided them, in words."""
    counts = sum((sample.count_rules() for sample in samples), Counter())
    return {rule.words: count for rule, count in sorted(counts.items())}


def _describe_kind(samples: Sequence[PairSample]) -> str:
    """Say how a gradient is wrong: `None`, not finite, or another number."""
    kinds = set()
    for sample in samples:
        wrong = sample.verdict == Verdict.MISMATCH
        if not sample.is_connected:
            kinds |= {"none"} if wrong.any() else set()
            continue
        is_finite = np.isfinite(sample.analytic[wrong])
        kinds |= {"value"} if is_finite.any() else set()
        kinds |= {"nonfinite"} if not is_finite.all() else set()
    return " and ".join(sorted(kinds))


def _find_maximum(values: Sequence[Float], verdicts: Sequence[np.ndarray]) -> float:
    """Return the largest error among elements that could be decided, over all samples."""
    largest = 0.0
    for value, verdict in zip(values, verdicts, strict=True):
        decided = value[verdict != Verdict.INCONCLUSIVE]
        largest = max(largest, float(np.max(decided, initial=0.0)))
    return largest


def _find_gravest(
    samples: Sequence[PairSample], errors: Sequence[_Errors], rank_of_kinks: int
) -> tuple[tuple[int, float], int, tuple[int, int]] | None:
    """Find the element of the highest rank, and among those the one with the largest ratio of error to bound.

    Args:
        rank_of_kinks: 0 to count them among those that pass.

    Returns:
        Its rank and ratio, the index of its sample, and its place there.
    """
    best: tuple[tuple[int, float], int, tuple[int, int]] | None = None
    for sample_index, (sample, error) in enumerate(zip(samples, errors, strict=True)):
        if not sample.verdict.size:
            continue
        rank = np.where(sample.verdict == Verdict.KINK, rank_of_kinks, RANK[sample.verdict])
        gravest = int(rank.max())
        ratio = np.where(rank == gravest, error.ratio, -1.0)
        row, column = place_of_largest(ratio)
        key = (gravest, float(ratio[row, column]))
        if best is None or key > best[0]:
            best = (key, sample_index, (row, column))
    return best


def _element(judged: PairVerdicts, sample: PairSample, row: int, column: int) -> WorstElement:
    (at_row, at_column), output, input_info = sample.place(row, column), judged.output, judged.input_info
    return WorstElement(
        output_index=index_of(at_row, output),
        input_index=index_of(at_column, input_info),
        analytic=float(sample.analytic[row, column]),
        numeric=float(sample.numeric[row, column]),
        uncertainty=float(sample.uncertainty[row, column]),
        output_part=part_of(at_row, output),
        input_part=part_of(at_column, input_info),
    )


def _find_shown_error(
    samples: Sequence[PairSample], errors: Sequence[_Errors], probes: ProbeNumbers
) -> tuple[float, float]:
    """Return the error and the bound of the worst element, which the table shows.

    An element at a kink is compared with two slopes, not one. It ranks below right elements and below what
    random probes found.
    """
    gravest_element = _find_gravest(samples, errors, -1)
    if gravest_element is None or (probes.bound and gravest_element[0] <= (0, probes.error / probes.bound)):
        return probes.error if probes.bound else 0.0, probes.bound
    _, index, place = gravest_element
    sample = samples[index]
    return float(errors[index].absolute[place]), float(sample.allowed[place] + sample.uncertainty[place])


def largest_gradient(judged: PairVerdicts) -> dict[str, Any]:
    """Describe a gradient that should be zero: its largest element, and how many elements aren't zero.

    Random probes look at few elements one by one, so there may be nothing to show.
    """
    best: tuple[float, WorstElement] | None = None
    count = 0
    for sample in judged.samples:
        size = np.nan_to_num(np.abs(sample.analytic), nan=np.inf)
        count = max(count, int(np.count_nonzero(size)))
        if not size.any():
            continue
        row, column = place_of_largest(size)
        if best is None or size[row, column] > best[0]:
            best = float(size[row, column]), _element(judged, sample, row, column)
    if best is None:
        return {}
    return {"worst": best[1], "worst_error": best[0], "worst_bound": 0.0, "wrong_elements": count}


def _explain_elements(samples: Sequence[PairSample]) -> tuple[str, str]:
    """Explain the undecided elements by their most frequent reason, as a sentence and as a word."""
    codes = np.concatenate(
        [sample.reason[sample.verdict == Verdict.INCONCLUSIVE].ravel() for sample in samples]
    )
    values, counts = np.unique(codes, return_counts=True)
    reason = Reason(int(values[np.argmax(counts)]))
    measured = [sample.remark for sample in samples if sample.remark and reason is Reason.ROUNDING]
    text = measured[0] if measured else str(EXPLANATIONS[reason])
    return f"{count(len(codes), 'element')}: {text}.", reason.name.lower()


def _note(samples: Sequence[PairSample], wrong: int, kinks: int, status: Status) -> str:
    elements, note = max(sample.elements for sample in samples), ""
    if not elements:
        note = ZERO_SIZE
    elif wrong:
        least = "at least " if samples[0].differencing.method == "probe" else ""
        note = f"{least}{wrong} of {elements} elements"
    elif status is Status.PASSED and kinks:
        note = f"{kinks} at a kink"
    elif status is Status.PASSED and not any(sample.is_connected for sample in samples):
        note = NO_PATH
    elif status is Status.PASSED and any(sample.smallness.is_remainder for sample in samples):
        note = f"{elements} zero to rounding"
    return note


# A slope whose uncertainty is at most half of it isn't lost in rounding. (With a tenth, a gradient of 1.5
# times the slope passed, 1e-13 from 1.)
_SEEN = 0.5
TOO_WIDE = (
    "the bound {bound:.1e} lets through {what}: a gradient of zero, of twice the slope or of its negative "
    "would pass, so that this tests nothing; state a smaller tolerance, or choose inputs where the slope "
    "stands out from what rounding of the output allows."
)


@dataclass(frozen=True)
class _Coverage:
    """Which rows (m,) and columns (n,) of one sample were tested, and which are large enough to need it."""

    any_tested: bool
    rows: npt.NDArray[np.bool_]
    columns: npt.NDArray[np.bool_]
    large_rows: npt.NDArray[np.bool_]
    large_columns: npt.NDArray[np.bool_]
    bound: float


def explain_wide_bound(samples: Sequence[PairSample]) -> str:
    """Say which part of a passing pair no bound has tested; empty where all that matters was tested.

    A gradient of zero, of twice the slope or of its negative is wrong by at least the slope itself. An
    element counts as tested if its bound is smaller than that. Not every element can be tested: in a row of a
    softmax, some are far below rounding. But a pair needs at least one tested element, and so does each row
    and each column whose slopes are of the pair's own order of magnitude. Otherwise the whole gradient of
    that output, or for that input, could be anything.

    A row that is zero by nature (the sum of a softmax) leaves only rounding of its value in its gradient and
    its differences; a value far below the output's largest is rounded by itself. It counts as tested: its
    bound is as narrow as rounding.

    Args:
        samples: the pair's verdicts at each sample point.
    """
    samples = [sample for sample in samples if sample.verdict.size and sample.rows is None]
    lost = _find_lost(samples)
    if all(rows.all() for rows in lost):
        return ""
    views = [_measure_coverage(sample, rows) for sample, rows in zip(samples, lost, strict=True)]
    bound = max(view.bound for view in views)
    if not any(view.any_tested for view in views):
        return TOO_WIDE.format(bound=bound, what="slopes as large as this pair's")
    for what, tested, large in (
        ("output", [view.rows for view in views], [view.large_rows for view in views]),
        ("input", [view.columns for view in views], [view.large_columns for view in views]),
    ):
        untested = _any_of(large) & ~_any_of(tested)
        if untested.any():
            index = int(np.flatnonzero(untested)[0])
            count = f"{np.count_nonzero(untested)} of {untested.size}"
            return TOO_WIDE.format(
                bound=bound, what=f"all slopes of {count} {what} elements (number {index})"
            )
    return ""


def _any_of(rows: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    """Return what holds at any sample point; an output's size may differ from one to the next."""
    longest = max(map(len, rows))
    return np.asarray(np.any([np.pad(row, (0, longest - len(row))) for row in rows], axis=0))


def is_zero_but_for_rounding(sample: PairSample) -> bool:
    """Whether there is no slope, or only rounding of each row's own value, on either side."""
    if sample.probes is not None:
        return sample.numeric_is_zero or sample.probes.is_faint
    return sample.numeric_is_zero or all(bool((size <= left).all()) for size, left in _measure_sizes(sample))


def _find_lost(samples: Sequence[PairSample]) -> list[npt.NDArray[np.bool_]]:
    """Find the rows, (m,) per sample, with only rounding of their own values on both sides.

    There are none where any slope is more than rounding of the output's largest value: beside such a slope, a
    wide bound matters.
    """
    is_zero = all(
        sample.numeric_is_zero or all(size.max() <= np.max(left) for size, left in _measure_sizes(sample))
        for sample in samples
    )
    return [
        np.logical_and.reduce(
            [is_zero & (sample.numeric_is_zero | (size <= left)) for size, left in _measure_sizes(sample)]
        )
        for sample in samples
    ]


def _measure_sizes(sample: PairSample) -> list[tuple[Float, Float | float]]:
    """Return each row's largest slope, (m,), and what rounding leaves, of the gradient and of differences."""
    sides = zip((sample.analytic, sample.numeric), sample.smallness.rounding, strict=True)
    return [(np.max(np.abs(side), axis=1), left) for side, left in sides]


def _measure_coverage(sample: PairSample, lost: npt.NDArray[np.bool_]) -> _Coverage:
    # Where the differences are lost in rounding, only the gradient says how large the slope is.
    numeric, analytic = np.abs(sample.numeric), np.abs(sample.analytic)
    slope = np.where(sample.uncertainty <= _SEEN * numeric, numeric, np.fmax(numeric, analytic))
    slope = np.where(lost[:, np.newaxis], 0.0, np.nan_to_num(slope, posinf=0.0))
    # The relative tolerance grows with a gradient of twice the slope; the uncertainty is allowed as well.
    bound = sample.allowed + np.minimum(sample.uncertainty, sample.allowed)
    bound += sample.smallness.rtol * slope
    # The slopes on both sides of a kink differ by more than what is allowed, or it isn't called a kink.
    tested = (slope > bound) | (sample.verdict == Verdict.KINK)
    columns, (_, where) = sample.size[1], sample.each_place()
    by_column, column_is_tested = np.zeros(columns), np.zeros(columns, dtype=bool)
    np.maximum.at(by_column, where.ravel(), slope.ravel())  # of flat arrays it is 20 times as fast
    column_is_tested[where[tested]] = True
    least = OWN_ORDER * float(slope.max())
    return _Coverage(
        any_tested=bool(tested.any()),
        rows=np.asarray(tested.any(axis=1)),
        columns=column_is_tested,
        large_rows=(slope.max(axis=1) >= least) & (least > 0),
        large_columns=(by_column >= least) & (least > 0),
        bound=float(np.max(np.where(tested, 0.0, sample.allowed))),
    )
