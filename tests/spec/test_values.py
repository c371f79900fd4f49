"""Values: what they depend on, the properties of each generator, and what moves them."""

from dataclasses import replace

import numpy as np
import pytest

from gradcheck_cli.errors import CaseFailedError, SpecError
from gradcheck_cli.spec.case import InputSpec, Source
from gradcheck_cli.spec.values.draw_values import draw
from tests.support.flat_results import altered


def test_values_depend_on_what_they_should_and_nothing_else(input_of):
    case, x = input_of("{shape: [4, 5]}")
    same = draw(case, x, 0)
    for other in (
        (case, replace(x, dtype="float32"), 0),
        (altered(case, path="b.yaml", line=9, variant="float16", tags=("a",), samples=9), x, 0),
    ):
        np.testing.assert_array_equal(draw(*other), same)
    np.testing.assert_array_equal(draw(case, replace(x, dtype="complex64"), 0).real, same)
    for other in (
        (case, x, 1),
        (replace(case, seed=1), x, 0),
        (replace(case, op="g"), x, 0),
        (replace(case, name="g"), x, 0),
        (case, replace(x, name="y"), 0),
        (case, replace(x, shape=(5, 4)), 0),
    ):
        assert not np.any(draw(*other).ravel() == same.ravel())


def test_values_stay_the_same_from_release_to_release(input_of):
    # Reports say "reproduce": these numbers change only on purpose, with a note in the changelog.
    case, x = input_of("{shape: [3]}")
    np.testing.assert_allclose(draw(case, x, 0), GOLDEN, rtol=1e-12)


GOLDEN = [-0.17045360330722756, -0.9164765478500171, 1.5579833400969243]


def test_normal(drawn):
    found = drawn("{shape: [20000], normal: {mean: 3, stddev: 2}}")
    # Five standard errors of mean and standard deviation.
    assert abs(found.mean() - 3) < 5 * 2 / np.sqrt(20000)
    assert abs(found.std() - 2) < 5 * 2 / np.sqrt(40000)


def test_uniform(drawn):
    found = drawn("{shape: [20000], uniform: {low: -2, high: 6}}")
    assert -2 <= found.min() < -1.99
    assert 5.99 < found.max() <= 6
    assert abs(found.mean() - 2) < 0.1


def test_uniform_over_the_whole_range_of_floats(drawn):
    found = drawn("{shape: [100], uniform: {low: -1.7e308, high: 1.7e308}, domain: {low: 0}, away_from: [0]}")
    assert np.all(np.isfinite(found))
    assert np.all(found > 0)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint64", "complex64"])
def test_integers(drawn, dtype):
    found = drawn(f"{{shape: [500], integers: {{low: 2, high: 6}}, dtype: {dtype}}}")
    assert set(found.real.astype(int)) == {2, 3, 4, 5}


def test_default_integers_and_booleans(drawn):
    assert set(drawn("{shape: [500], dtype: int32}")) == set(range(10))
    assert 0.4 < drawn("{shape: [2000], dtype: bool}").mean() < 0.6
    assert 0.05 < drawn("{shape: [2000], bool: 0.1}").mean() < 0.15


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("{shape: [99], choice: [-1, 2.5]}", {-1.0, 2.5}),
        ("{shape: [99], choice: [1+2j, 3], dtype: complex64}", {1 + 2j, 3 + 0j}),
        ("{shape: [99], choice: [a, b], dtype: string}", {"a", "b"}),
        ("{shape: [99], choice: [true, false], dtype: bool}", {True, False}),
        ("{shape: [99], choice: [1, 2], dtype: int8}", {1, 2}),
        ("{shape: [99], choice: [1, 2, 3], away_from: [2]}", {1.0, 3.0}),
        ("{shape: [99], choice: [1e308, -1e308], domain: {low: 0}}", {1e308}),
        ("{shape: [99], choice: [.inf, 1, .nan], domain: {low: 0}}", {1.0}),
    ],
)
def test_choice(drawn, written, values):
    assert set(drawn(written).tolist()) == values


@pytest.mark.parametrize(
    ("generator", "stddev"),
    [
        ("", 1),
        ("normal: {mean: 1, stddev: 5},", 5),
        ("uniform: {low: -1, high: 2},", 3 / np.sqrt(12)),
        ("dtype: complex64,", 1),
    ],
)
def test_away_from(drawn, generator, stddev):
    found = drawn(f"{{shape: [3000], {generator} away_from: [0, 0.5]}}")
    for point in (0, 0.5):
        assert np.abs(found - point).min() >= 0.1 * stddev


def test_integers_away_from(drawn):
    assert set(drawn("{shape: [500], integers: {low: 0, high: 4}, away_from: [0, 2]}")) == {1.0, 3.0}


@pytest.mark.parametrize("generator", ["", "uniform: {low: -3, high: 3},", "integers: {low: -3, high: 4},"])
def test_domain(drawn, generator):
    found = drawn(f"{{shape: [2000], {generator} domain: {{low: -1, high: 2}}}}")
    assert found.min() > -1
    assert found.max() < 2


def test_structures_stay_in_their_domain_or_fail(drawn):
    assert drawn("{shape: [3], probabilities: true, domain: {low: 0, high: 1}}").min() > 0
    assert set(drawn("{shape: [3], one_hot: true, domain: {low: 0, high: 1}}")) == {0.0, 1.0}
    with pytest.raises(CaseFailedError, match="domain must hold what one_hot draws") as caught:
        drawn("{shape: [3], one_hot: true, domain: {low: 0.5}}")
    assert caught.value.kind == "values"


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("{value: 1.5, shape: [2]}", [1.5, 1.5]),
        ("{value: [[1], [2]], shape: [2, 2]}", [[1, 1], [2, 2]]),
        ("{value: [.inf, -.inf, 1e-6]}", [np.inf, -np.inf, 1e-6]),
        ("{value: [1+2j, 3, ' -1j '], dtype: complex64}", [1 + 2j, 3, -1j]),
        ("{value: [18446744073709551615], dtype: uint64}", [2**64 - 1]),
        ("{value: [-128, 3.0], dtype: int8}", [-128, 3]),
        ("{value: [true, false], dtype: bool}", [True, False]),
        ("{value: []}", []),
    ],
)
def test_given_values(drawn, written, values):
    np.testing.assert_array_equal(drawn(written), values)
    np.testing.assert_array_equal(drawn(written, 1), values)


def test_given_text(drawn):
    found = drawn("{value: [a, 'no'], dtype: string}")
    assert (found.dtype, found.tolist()) == (object, ["a", "no"])


def test_hand_made_inputs_without_room_fail_as_values(input_of):
    case, _ = input_of("{shape: [2]}")
    tensor = InputSpec("x", "float64", (2,), Source("uniform", {"low": 0, "high": 1}), domain=(2, np.inf))
    with pytest.raises(CaseFailedError, match=r"inputs\.x: domain and away_from leave almost none"):
        draw(case, tensor, 0)


@pytest.mark.parametrize(
    "kind",
    [
        "uniform: {low: 0, high: 1}",
        "normal: {}",
        "integers: {low: 0, high: 9}",
        "spd: true",
        "triangular: upper",
        "probabilities: true",
        "one_hot: true",
        "choice: [1, 2]",
        "bool: true",
        "scale: 1",
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "complex64", "int8", "uint64", "bool", "string"])
@pytest.mark.parametrize("rest", ["", ", away_from: [0.5]", ", domain: {low: 0.1}", ", min_gap: 1.0e-3"])
def test_what_validates_can_be_drawn(input_of, kind, dtype, rest):
    try:
        case, tensor = input_of(f"{{shape: [2, 3, 3], {kind}, dtype: {dtype}{rest}}}")
    except SpecError:
        return
    try:
        found = draw(case, tensor, 0)
    except CaseFailedError as error:
        assert "domain must hold" in str(error)  # noqa: PT017 (either outcome is right)
        return
    assert found.shape == (2, 3, 3)
