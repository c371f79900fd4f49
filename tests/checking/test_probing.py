"""Pairs judged by random probes: verdict, place, power, and the checks on the upstream without a Jacobian."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.judging import probe_search
from gradcheck_cli.checking.ops import analytic
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Power
from tests.support.numpy_op import Numpy, check

N = 400
POINT = np.random.default_rng(0).normal(size=N)


def slope(x):
    return 1 - np.tanh(x) ** 2


def tanh(gradient=None, points=None, **changes):
    points = points if points is not None else {"x": POINT}
    return Numpy(np.tanh, gradient or (lambda u, x: u * slope(x)), points, **changes)


def pair_of(op, **changes):
    return check(op, **({"method": "probe"} | changes)).pairs[0]


def test_a_right_pair_passes_with_its_miss_probability():
    pair = pair_of(tanh())
    assert pair.status is Status.PASSED
    assert pair.judged_by.method == "probe"
    assert pair.numbers.elements == N * N
    assert 0 < pair.judged_by.miss_probability <= Power().miss
    assert pair.judged_by.miss_size == Power().size
    assert pair.numbers.max_rel_error <= pair.numbers.allowed


@pytest.mark.parametrize("element", [0, 123, N - 1])
@pytest.mark.parametrize("error", [0.01, 1.0, -2.0])
def test_one_wrong_element_is_named(element, error):
    def gradient(u, x):
        found = u * slope(x)
        found[element] *= 1 + error
        return found

    pair = pair_of(tanh(gradient))
    assert pair.status is Status.MISMATCHED
    assert (pair.numbers.worst.output_index, pair.numbers.worst.input_index) == ((element,), (element,))
    assert pair.numbers.worst.analytic == pytest.approx((1 + error) * slope(POINT[element]))
    assert pair.numbers.worst.numeric == pytest.approx(slope(POINT[element]), rel=1e-6)
    assert pair.numbers.wrong_elements == 1
    assert pair.note == f"at least 1 of {N * N} elements"
    assert pair.judged_by.miss_probability is None


# A loss whose slopes span nine orders of magnitude: one probe of all says nothing of the small ones.
SPREAD = np.geomspace(1, 1e-9, 10 * N)


def loss(wrong=None):
    point = np.random.default_rng(1).normal(size=SPREAD.size)

    def gradient(u, x):
        found = u * SPREAD * np.cos(x)
        if wrong is not None:
            found[wrong] *= 1.02
        return found

    return Numpy(lambda x: np.sum(SPREAD * np.sin(x), keepdims=True), gradient, {"x": point})


def test_small_elements_of_a_loss_are_probed_by_themselves(monkeypatch):
    monkeypatch.setattr(analytic, "FEWEST_ELEMENTS", N)
    pair = pair_of(loss())
    assert pair.status is Status.PASSED
    assert pair.judged_by.miss_probability <= Power().miss
    monkeypatch.setattr(probe_search.Search, "_probe_unseen", lambda *_: None)
    pair = pair_of(loss())
    assert pair.status is Status.INCONCLUSIVE


@pytest.mark.parametrize("element", [10, 6 * N, 8 * N])
def test_an_error_in_a_small_element_of_a_loss_is_found(monkeypatch, element):
    monkeypatch.setattr(analytic, "FEWEST_ELEMENTS", N)
    pair = pair_of(loss(element))
    assert pair.status is Status.MISMATCHED
    assert pair.numbers.worst.input_index == (element,)


def test_more_power_than_there_is_is_inconclusive_and_less_passes():
    op = tanh()
    weak = check(op, method="probe", power=Power(1e-14, 0.01)).pairs[0]
    assert weak.status is Status.INCONCLUSIVE
    assert "0.01 is asked for" in weak.message
    assert check(op, method="probe", power=Power(1e-3, 0.05)).pairs[0].status is Status.PASSED


def test_full_only_refuses():
    pair = pair_of(tanh(), full_only=True)
    assert pair.status is Status.INCONCLUSIVE
    assert "400 x 400" in pair.message
    assert pair.judged_by.evaluations == 0


def test_auto_probes_above_the_limit_and_full_never_does(monkeypatch):
    monkeypatch.setattr(analytic, "MOST_ELEMENTS", N)  # a diagonal of 400 elements fits, 400 x 400 don't
    assert pair_of(tanh(), method="auto").judged_by.method == "central"
    coupled = Numpy(np.cumsum, lambda u, _: np.cumsum(u[::-1])[::-1], {"x": POINT})
    assert pair_of(coupled, method="auto").judged_by.method == "probe"
    assert pair_of(coupled, method="full").judged_by.method != "probe"


def test_leads_that_lead_nowhere_are_a_doubt_not_a_pass(monkeypatch):
    def gradient(u, x):
        found = u * slope(x)
        found[77] *= 1.5
        return found

    count = iter(range(200, 400))
    monkeypatch.setattr(probe_search, "bisect_output", lambda *_: next(count))
    pair = pair_of(tanh(gradient))
    assert pair.status is Status.INCONCLUSIVE
    assert "random probes disagree with the gradient" in pair.message


def test_where_there_is_no_time_to_judge_what_float32_spoils_the_pair_is_undecided():
    def gradient(u, x):
        return u * (1 - np.tanh(x) ** 2) * (2 if x.dtype == np.float32 else 1)

    pair = pair_of(Numpy(np.tanh, gradient, {"x": POINT}, {"x": "float32"}), budget=1e-9)
    assert pair.status is Status.INCONCLUSIVE
    assert "no time to judge it" in pair.message


STEEP = 3e6


def steep(spoil=lambda found: found):
    """sin(3e6 x) / 3e6: to round x, or 3e6 x, to float32 turns the cosine by up to a quarter."""

    def gradient(u, x):
        return spoil(u * np.cos(x.dtype.type(STEEP) * x))

    point = 1 + np.abs(POINT) / 3
    return Numpy(lambda x: np.sin(STEEP * x) / STEEP, gradient, {"x": point}, {"x": "float32"})


def test_what_a_rounding_of_the_inputs_explains_is_a_loss_of_digits_and_takes_no_time():
    found = check(steep(), method="probe", budget=1e-9, power=Power(1.0, 1.0))
    assert found.pairs[0].status is Status.PASSED
    assert any("lose more than float32's tolerance" in warning for warning in found.warnings)


@pytest.mark.parametrize("factor", [50.0, np.nan])
def test_what_no_rounding_explains_is_no_loss_of_digits(factor):
    def spoil(found):
        if found.dtype == np.float32:
            found[33] *= factor
        return found

    pair = pair_of(steep(spoil), budget=1e-9, power=Power(1.0, 1.0))
    assert pair.status is Status.INCONCLUSIVE
    assert "element [33] is far from what it is in float64" in pair.message


def test_a_sort_of_near_ties_passes_and_counts_their_rows_as_missed():
    """Two elements so close that every step swaps them: nothing can be said of their rows, and it is said."""
    point = np.sort(POINT)
    point[101] = point[100] * (1 + 1e-12)
    pair = pair_of(Numpy(np.sort, lambda u, x: u[np.argsort(np.argsort(x))], {"x": point}))
    assert pair.status is Status.PASSED
    assert pair.judged_by.miss_probability >= 2 / N
