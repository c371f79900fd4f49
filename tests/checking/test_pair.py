from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.checking.pairs.pair import Differencing, PairSample, PairVerdicts, ProbeNumbers
from gradcheck_cli.checking.verdicts.summary import summarise
from gradcheck_cli.numerics import EXPLANATIONS, Reason, Verdict
from gradcheck_cli.results import Status

Y = TensorInfo("y", "float64", (2,))
X = TensorInfo("x", "float64", (3,))
PASS, KINK, MISMATCH, INCONCLUSIVE = Verdict


def sample(analytic, numeric=None, verdict=PASS, **changes):
    analytic = np.asarray(analytic, dtype=np.float64)
    shape = analytic.shape
    fields = {
        "numeric": analytic if numeric is None else np.asarray(numeric, dtype=np.float64),
        "uncertainty": np.full(shape, 1e-9),
        "allowed": np.full(shape, 1e-6),
        "verdict": np.broadcast_to(np.asarray(verdict, np.int8), shape),
        "reason": np.zeros(shape, np.int8),
        "is_connected": True,
        "differencing": Differencing("central", 7, "float64"),
        **changes,
    }
    return PairSample(analytic, **fields)


def row(*samples, output=Y, taken=X, **changes):
    return summarise(PairVerdicts(output, taken, samples), **changes)


ONES = np.ones((2, 3))


def probed(missed, *, weak=False):
    """Return what probes say of a pair that misses a share of all errors of 1 %."""
    numbers = ProbeNumbers(miss_probability=missed, miss_size=0.01, is_weak=weak)
    return sample(ONES, probes=numbers, doubt="too weak" if weak else "")


@pytest.mark.parametrize(
    ("samples", "status", "missed"),
    [
        ([probed(0.6, weak=True), probed(0.05)], Status.PASSED, 0.05),
        ([probed(0.6, weak=True), probed(0.4, weak=True)], Status.INCONCLUSIVE, 0.6),
        ([probed(1.0, weak=True), probed(0.05)], Status.INCONCLUSIVE, 1.0),  # nothing was seen there
    ],
)
def test_probes_with_power_at_one_point_stand_for_those_that_saw_a_part(samples, status, missed):
    pair = row(*samples)
    assert (pair.status, pair.judged_by.miss_probability) == (status, missed)


def with_element(value, place=(1, 2), base=ONES):
    changed = np.array(base, dtype=np.float64)
    changed[place] = value
    return changed


def test_the_worst_element_is_the_one_with_the_largest_ratio_to_its_bound():
    numeric = ONES.copy()
    numeric[0, 0], numeric[1, 1] = 1.5, 1.001  # the smaller error is the further beyond its bound
    allowed = np.full((2, 3), 1e-6)
    allowed[0, 0] = 1.0
    pair = row(sample(ONES, numeric, with_element(MISMATCH, (1, 1), 0 * ONES), allowed=allowed))
    assert (pair.numbers.worst.output_index, pair.numbers.worst.input_index) == ((1,), (1,))
    assert (pair.numbers.worst.analytic, pair.numbers.worst.numeric) == (1.0, 1.001)
    # `allowed` and `uncertainty` are that element's own; the maximum error is any element's.
    assert (pair.numbers.allowed, pair.numbers.uncertainty, pair.numbers.worst.uncertainty) == (
        1e-6,
        1e-9,
        1e-9,
    )
    assert pair.numbers.max_abs_error == 0.5


def test_a_wrong_element_stands_before_an_undecided_one_and_that_before_a_passed_one():
    passed_far = with_element(1.9, (0, 0))
    undecided = sample(
        ONES, with_element(9.0, (0, 1), passed_far), with_element(INCONCLUSIVE, (0, 1), 0 * ONES)
    )
    pair = row(undecided)
    assert (pair.status, pair.numbers.worst.input_index) == (Status.INCONCLUSIVE, (1,))
    both = with_element(MISMATCH, (1, 2), undecided.verdict)
    pair = row(replace(undecided, verdict=both.astype(np.int8)))
    assert (pair.status, pair.numbers.worst.output_index, pair.numbers.worst.input_index) == (
        Status.MISMATCHED,
        (1,),
        (2,),
    )


def test_wrong_elements_are_the_most_of_any_one_sample():
    one = sample(ONES, 2 * ONES, with_element(MISMATCH, base=0 * ONES))
    assert row(one, sample(ONES, 2 * ONES, MISMATCH), one).numbers.wrong_elements == 6


def test_nan_is_the_worst_there_is():
    pair = row(sample(with_element(np.nan), with_element(5.0, (0, 0)), with_element(MISMATCH, base=0 * ONES)))
    assert np.isnan(pair.numbers.worst.analytic)
    assert pair.numbers.max_abs_error == np.inf
    assert pair.numbers.max_rel_error == np.inf


def test_undecided_elements_are_left_out_of_the_maxima():
    pair = row(
        sample(
            ONES,
            with_element(np.nan),
            with_element(INCONCLUSIVE, base=0 * ONES),
            uncertainty=with_element(np.inf, base=1e-9 * ONES),
            reason=with_element(Reason.JUMP, base=0 * ONES).astype(np.int8),
        )
    )
    assert (pair.numbers.max_abs_error, pair.numbers.max_rel_error) == (0.0, 0.0)
    assert pair.message == f"1 element: {EXPLANATIONS[Reason.JUMP]}."


def test_indices_are_those_of_the_tensors_own_shapes():
    output, taken = TensorInfo("y", "float64", (2, 2)), TensorInfo("x", "float64", (3, 1, 2))
    base = np.zeros((4, 6))
    pair = row(
        sample(base, with_element(1.0, (2, 5), base), with_element(MISMATCH, (2, 5), base)),
        output=output,
        taken=taken,
    )
    assert (pair.numbers.worst.output_index, pair.numbers.worst.input_index) == ((1, 0), (2, 0, 1))
