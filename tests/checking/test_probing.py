"""Pairs judged by random probes: verdict, place, power, and the checks on the upstream without a Jacobian."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck_cli.checking.judging import probe_search
from gradcheck_cli.checking.ops import analytic
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Power, StatedTolerance
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


def test_a_missing_term_is_found_off_the_diagonal():
    """y = x - mean(x), whose gradient forgets the mean: 160,000 elements of 1/400."""
    pair = pair_of(Numpy(lambda x: x - x.mean(), lambda u, _: u, {"x": POINT}))
    assert pair.status is Status.MISMATCHED


def test_none_is_not_zero_and_zero_is_not_right():
    assert pair_of(tanh(lambda *_: None)).status is Status.MISMATCHED
    assert pair_of(tanh(lambda u, _: 0 * u)).status is Status.MISMATCHED


def test_a_constant_tests_nothing():
    pair = pair_of(Numpy(lambda x: np.ones(3) + 0 * x[:3], lambda _, x: 0 * x, {"x": POINT}))
    assert pair.status is Status.INCONCLUSIVE
    assert "nothing was tested" in pair.message


def test_nan_in_one_element_is_found():
    def gradient(u, x):
        found = u * slope(x)
        found[5] = np.nan if u[5] else 0.0
        return found

    pair = pair_of(tanh(gradient))
    assert pair.status is Status.MISMATCHED
    assert pair.numbers.worst.input_index == (5,)


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


def test_kinks_everywhere_are_too_weak_and_say_so():
    point = np.where(np.arange(N) % 3 == 0, 0.0, POINT)
    pair = pair_of(Numpy(np.abs, lambda u, x: u * np.sign(x), {"x": point}))
    assert pair.status is Status.INCONCLUSIVE
    assert "at kinks" in pair.message
    assert "--power" in pair.message


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


def test_a_sparse_gradient_of_a_dense_function_is_probed_where_the_whole_is_too_large(monkeypatch):
    monkeypatch.setattr(analytic, "MOST_ELEMENTS", 100 * N)
    forgets = Numpy(lambda x: x - x.mean(), lambda u, _: u, {"x": POINT})
    pair = pair_of(forgets, method="auto")
    assert pair.judged_by.method == "probe"
    assert pair.status is Status.MISMATCHED


NOT_LINEAR = {
    "ignored": lambda u, x: slope(x) + 0 * u,
    "squared": lambda u, x: slope(x) * u * np.abs(u),
    "clipped": lambda u, x: slope(x) * np.clip(u, -2000, 2000),
    "small ones dropped": lambda u, x: slope(x) * np.where(np.abs(u) < 1e-6, 0, u),
    "constant added": lambda u, x: slope(x) * u + 1e-3,
}


@pytest.mark.parametrize("gradient", NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_a_gradient_that_is_not_linear_in_the_upstream_is_found(gradient):
    found = check(tanh(gradient), method="probe")
    failed = {one.name for one in found.checks if one.status is Status.MISMATCHED}
    wrong = {pair.label for pair in found.pairs if pair.status is Status.MISMATCHED}
    assert failed & {"linearity", "zero_upstream"} or wrong


def test_a_right_gradient_passes_every_check_on_its_upstream():
    found = check(tanh(), method="probe")
    assert {one.name for one in found.checks} >= {"linearity", "zero_upstream", "repeat", "retrace"}
    assert all(one.status is Status.PASSED for one in found.checks)


def test_a_gradient_that_draws_differs_when_it_is_repeated():
    generator = np.random.default_rng(0)
    noisy = tanh(lambda u, x: u * slope(x) * (1 + 1e-2 * generator.normal(size=x.shape)))
    found = {one.name: one.status for one in check(noisy, method="probe").checks}
    assert found["repeat"] is Status.MISMATCHED


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


def test_inputs_at_the_end_of_their_domain_are_not_called_checked():
    """A third of the inputs can't move to both sides: whatever their gradient is, probes don't see it."""
    point = np.where(np.arange(N) % 3 == 0, 0.0, np.abs(POINT) + 0.1)
    op = Numpy(lambda x: x + 0.0, lambda u, x: np.where(x == 0, 7 * u, u), {"x": point})
    pair = pair_of(op, domains={"x": (0.0, np.inf)})
    assert pair.status is not Status.PASSED
    assert "at the end of their domain" in pair.message


def test_a_wrong_slope_at_kinks_alone_is_found():
    point = np.where(np.arange(N) % 25 == 0, 0.0, POINT)
    pair = pair_of(
        Numpy(lambda x: np.maximum(x, 0), lambda u, x: np.where(x == 0, 7 * u, u * (x > 0)), {"x": point})
    )
    assert pair.status is Status.MISMATCHED
    right = pair_of(Numpy(lambda x: np.maximum(x, 0), lambda u, x: u * (x > 0), {"x": point}))
    assert right.status is Status.PASSED


def test_outputs_that_are_not_finite_are_not_green():
    def forward(x):
        return np.where(np.arange(N) % 20 == 0, np.nan, np.tanh(x))

    pair = pair_of(
        Numpy(forward, lambda u, x: np.where(np.arange(N) % 20 == 0, 5.0, u * slope(x)), {"x": POINT})
    )
    assert pair.status is Status.INCONCLUSIVE
    assert "aren't finite" in pair.message


@pytest.mark.parametrize("factor", [2.0, -1.0, 0.0])
def test_float32_alone_spoils_one_element(factor):
    def gradient(u, x):
        found = u * (1 - np.tanh(x) ** 2)
        if x.dtype == np.float32:
            found[33] *= factor
        return found

    op = Numpy(np.tanh, gradient, {"x": POINT}, {"x": "float32"})
    pair = pair_of(op)
    assert pair.status is Status.MISMATCHED
    assert pair.numbers.worst.input_index == (33,)


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


def test_what_the_specs_tolerance_allows_is_no_alarm():
    def off(u, x):
        return u * slope(x) * 1.0001

    assert pair_of(tanh(off)).status is Status.MISMATCHED
    lenient = pair_of(tanh(off), tolerance=StatedTolerance(rtol=1e-3))
    assert lenient.status is not Status.MISMATCHED
    assert lenient.numbers.kinks == 0


def test_a_scalar_is_judged_whole_whatever_the_method():
    op = Numpy(np.tanh, lambda u, x: u * slope(x), {"x": np.array(0.5)})
    pair = pair_of(op)
    assert (pair.status, pair.judged_by.method) == (Status.PASSED, "central")


def test_a_sort_of_near_ties_passes_and_counts_their_rows_as_missed():
    """Two elements so close that every step swaps them: nothing can be said of their rows, and it is said."""
    point = np.sort(POINT)
    point[101] = point[100] * (1 + 1e-12)
    pair = pair_of(Numpy(np.sort, lambda u, x: u[np.argsort(np.argsort(x))], {"x": point}))
    assert pair.status is Status.PASSED
    assert pair.judged_by.miss_probability >= 2 / N
