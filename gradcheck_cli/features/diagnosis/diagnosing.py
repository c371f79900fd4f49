"""Guess which mistake is behind a wrong gradient, or behind several findings of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.checks.all_checks import compare_with_reference
from gradcheck_cli.checking.ops.jacobian import are_equal, hint_on_triangle
from gradcheck_cli.checking.ops.operation import Operations, TensorInfo, name_element
from gradcheck_cli.checking.pairs.pair import PairSample, PointData
from gradcheck_cli.features.diagnosis import hints
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.precision import place_of_largest
from gradcheck_cli.results import CheckResult, PairResult, Status
from gradcheck_cli.spec.case import Case
from gradcheck_cli.visible import count

# Only a Jacobian up to this size is written out and compared in full.
_MOST_WHOLE = 2**18
_REPEAT = "repeat"
_NOISY = (
    "the gradient differs each time it runs (see check repeat): its differences from the "
    "derivative follow from that"
)
_FACTOR = (
    "if the factor k is meant, the reference says so: x = k * x + tf.stop_gradient((1 - k) * x) in its first "
    "line"
)


def diagnose(
    samples: Sequence[PairSample],
    output: TensorInfo,
    input_info: TensorInfo,
    other_pairs: Sequence[Mapping[str, PairSample]],
    scenes: Sequence[PointData],
) -> tuple[str, ...]:
    """Say which mistake a pair's error looks like.

    Returns:
        The likeliest hypothesis that fits; nothing where no known one does.
    """
    wrong_at = next((index for index, sample in enumerate(samples) if _find_wrong(sample).any()), None)
    if wrong_at is None or not samples[wrong_at].is_connected:
        return ()
    if samples[0].elements <= _MOST_WHOLE:
        samples = [each_sample.whole() for each_sample in samples]
    sample = samples[wrong_at]
    wrong, spoilt = _find_wrong(sample), ~np.isfinite(sample.analytic)
    if (spoilt & wrong).any():
        row, column = sample.place(*place_of_largest(spoilt & wrong))
        elements = count(int(np.count_nonzero(spoilt & wrong)), "element")
        place = f"{name_element(row, output)} / {name_element(column, input_info)}"
        return (f"not finite: {elements} of the gradient, the first at {place}",)
    if spoilt.any():  # the forward is undecided there too, as in some matrices of a batch
        usable = ~spoilt & np.isfinite(sample.numeric)
        analytic, numeric = (np.where(usable, values, 0.0) for values in (sample.analytic, sample.numeric))
        triangle = hint_on_triangle(analytic, numeric, input_info) if sample.is_whole else ""
        return tuple(filter(None, [triangle]))
    if sample.differencing.method == "probe":  # a few elements say little about the whole Jacobian
        return ()
    # A sample point at which the function has no value says nothing about the others.
    is_usable = [bool(np.isfinite(each_sample.analytic).all()) for each_sample in samples]
    samples, scenes = list(compress(samples, is_usable)), list(compress(scenes, is_usable))
    other_pairs = list(compress(other_pairs, is_usable))
    description = _hint_on_zeros(samples, output, input_info)
    if not description and all(each_sample.is_whole for each_sample in samples):
        whole_others = [
            {name: pair.whole() for name, pair in pairs.items() if pair.elements <= _MOST_WHOLE}
            for pairs in other_pairs
        ]
        description = (
            hint_on_triangle(sample.analytic, sample.numeric, input_info)
            or _hint_on_conjugate(samples, output, input_info)
            or hints.hint(hints.pair_of(output, input_info, samples, whole_others, scenes))
            or _describe_place(wrong, output, input_info)
        )
    return tuple(filter(None, [description]))


def _hint_on_zeros(samples: Sequence[PairSample], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that the gradient, or the derivative, is zero everywhere."""
    if all(sample.analytic_is_zero for sample in samples):
        return "the gradient is zero everywhere: is the upstream, or a term, dropped?"
    if all(sample.numeric_is_zero for sample in samples):
        return (
            f"{output.name} doesn't move with {input_info.name} at all, but the gradient isn't zero: is it a "
            "surrogate, or that of a sampler's expectation? Name the function whose derivative is meant as "
            "its 'reference'"
        )
    return ""


def _find_wrong(sample: PairSample) -> npt.NDArray[np.bool_]:
    return np.asarray(sample.verdict == Verdict.MISMATCH)


def _hint_on_conjugate(samples: Sequence[PairSample], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say that a conjugate is missing, or one too many: the imaginary rows or columns have the other sign."""
    # conj(g) flips the columns, the gradient of conj(u) the rows, and J' u in place of conj(J') u both.
    name, convention = input_info.name, "TensorFlow's convention is conj(df/dx) u"
    if input_info.is_complex:
        said = {
            (False, True): f"the gradient for {name} is conjugated: tf.math.conj is missing, or one too many",
            (True, False): f"the gradient for {name} is that of the conjugated upstream: {convention}",
            (True, True): f"a factor in the gradient for {name} isn't conjugated: {convention}",
        }
    else:
        said = {
            (True, False): f"a factor in the gradient for {name}, or the upstream, is conjugated where it "
            f"shouldn't be, or the other way round: {convention}, of which a real input gets the real part"
        }
    for (flips_rows, flips_columns), description in said.items():
        signs = np.ones(samples[0].analytic.shape)
        signs[output.size :] *= -1 if flips_rows else 1
        signs[:, input_info.size :] *= -1 if flips_columns else 1
        if (signs < 0).any() and all(are_equal(signs * each.analytic, each.numeric) for each in samples):
            return description
    return ""


def _describe_place(wrong: npt.NDArray[np.bool_], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say where the wrong elements are, if they form a recognisable part."""
    rows, columns = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
    if wrong.shape[1] > 1 and columns.size == 1:
        return f"only the gradient's element {name_element(int(columns[0]), input_info)} is wrong"
    if wrong.shape[0] > 1 and rows.size == 1:
        return f"only output {name_element(int(rows[0]), output)} has a wrong gradient"
    on_diagonal = wrong.shape[0] == wrong.shape[1] and not wrong[~np.eye(wrong.shape[0], dtype=bool)].any()
    if wrong.shape[0] > 2 and not on_diagonal and wrong.all():  # noqa: PLR2004 (two elements show little)
        return "every element is wrong"
    return ""


def find_common_cause(
    case: Case, operations: Operations | None, pairs: tuple[PairResult, ...], checks: list[CheckResult]
) -> tuple[tuple[PairResult, ...], list[CheckResult]]:
    """Give mismatched pairs their common cause as diagnosis, where there is one; see `hooks`."""
    noisy = [check for check in checks if check.name == _REPEAT and check.status is Status.MISMATCHED]
    if noisy:  # the other findings follow from it
        checks = noisy + [check for check in checks if check not in noisy]
        pairs = tuple(pair.explained(_NOISY) if pair.status is Status.MISMATCHED else pair for pair in pairs)
        return pairs, checks
    wrong = any(pair.status is Status.MISMATCHED for pair in pairs)
    if case.reference is None or case.reference.equals_forward or operations is None or not wrong:
        return pairs, checks
    pairs = tuple(
        pair.explained(*pair.cause.diagnosis, _FACTOR)
        if any(hints.TIMES in line for line in pair.cause.diagnosis)
        else pair
        for pair in pairs
    )
    comparison = compare_with_reference(case, operations.declared, operations.differenced)
    if comparison.status is not Status.MISMATCHED:
        return pairs, checks
    difference = comparison.message.partition(": ")[2]
    message = f"the reference has other values than the forward: {difference} Is it the right one?"
    pairs = tuple(
        pair.explained(message) if pair.status is Status.MISMATCHED and not pair.cause.diagnosis else pair
        for pair in pairs
    )
    return pairs, checks
