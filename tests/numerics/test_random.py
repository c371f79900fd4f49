"""Random compositions of smooth functions: never a wrong verdict, seldom none."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradcheck_cli.numerics import FLOAT32, FLOAT64
from tests.numerics.numerics_random import Tally


@pytest.mark.parametrize(
    ("precision", "error"), [(FLOAT64, 1e-4), (FLOAT32, 1e-2)], ids=["float64", "float32"]
)
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_no_random_composition_gets_a_wrong_verdict(precision, error, seed):
    tally = Tally()
    tally.judge(seed, precision, error)
    assert not tally.counts["right: MISMATCH"], tally.bad
    assert not tally.counts["wrong: PASS"], tally.bad
    assert not tally.counts["wrong: KINK"], tally.bad


@pytest.mark.parametrize(
    ("precision", "seeds"), [(FLOAT64, [940]), (FLOAT32, [1041, 3478, 4446])], ids=["float64", "float32"]
)
def test_a_value_on_stairs_is_as_noisy_for_all_of_its_inputs(precision, seeds):
    """The stairs of one column say that the differences of the others are off, too."""
    tally = Tally()
    for seed in seeds:
        tally.judge(seed, precision, 1e-2)
    assert not tally.counts["right: MISMATCH"], tally.bad


@pytest.mark.parametrize("seed", [2171, 4033], ids=["the last step leaves", "most of it climbs lower stairs"])
def test_what_is_seen_of_coarse_values_is_not_taken_for_all_of_them(seed):
    tally = Tally()
    tally.judge(seed, FLOAT32, 1e-2)
    assert not tally.counts["right: MISMATCH"], tally.bad


@pytest.mark.once  # the compositions of the test above, of which none gets a wrong verdict
@pytest.mark.parametrize(
    ("precision", "error"), [(FLOAT64, 1e-4), (FLOAT32, 1e-2)], ids=["float64", "float32"]
)
def test_few_random_compositions_stay_undecided(precision, error):
    tally = Tally()
    for seed in range(200):
        tally.judge(seed, precision, error)
    assert tally.counts["right: PASS"] >= 190
    assert tally.counts["wrong: MISMATCH"] >= 0.9 * sum(
        n for name, n in tally.counts.items() if "wrong" in name
    )
