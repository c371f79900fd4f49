"""Points beside the samples, which take sides of branches that these don't: what they show, and what not."""

import re
from pathlib import Path

import pytest

from gradcheck_cli.features.search import exploring, other_points
from gradcheck_cli.features.search.exploring import wrong_pairs
from gradcheck_cli.results import Status
from gradcheck_cli.running.limits import Times
from gradcheck_cli.running.session import check, run_case
from gradcheck_cli.spec.load import load_mapping

NORMAL = {"shape": [4]}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def run(target, x=NORMAL, **changes):
    (case,) = load_mapping(
        {"op": "op", "forward": f"chosen_functions:{target}", "inputs": {"x": x}, **changes}
    )
    return run_case(case)


def test_a_fault_behind_a_condition_is_found():
    result = run("hidden", attrs={"factor": 3.0})
    assert result.status is Status.MISMATCHED
    (pair,) = result.pairs
    assert pair.numbers.worst.analytic == pytest.approx(1.5 * pair.numbers.worst.numeric)
    assert (
        "at a point where gradient and differences disagree; right at the sample points"
        in pair.cause.diagnosis
    )
    assert pair.cause.diagnosis[-1].startswith("the point: x[")
    # What the mismatch shows has been seen.
    assert [branch.unseen for branch in result.seen.branches] == [(), ()]


def test_its_right_twin_passes_and_has_seen_all():
    result = run("hidden")
    assert result.status is Status.PASSED
    assert [branch.unseen for branch in result.seen.branches] == [(), ()]


@pytest.mark.parametrize(
    ("target", "x"),
    [
        ("hidden", {"shape": [4], "uniform": {"low": 0, "high": 3}}),  # a range is never left
        ("hidden", {"shape": [4], "domain": {"high": 3.4}}),
        ("hidden", {"shape": [4], "value": 0.5}),
        ("root", NORMAL),  # no number there
    ],
)
def test_what_shows_nothing_changes_nothing(target, x):
    result = run(target, x, **({"attrs": {"factor": 3.0}} if target == "hidden" else {}))
    assert result.status is Status.PASSED
    assert "true" in {side for branch in result.seen.branches for side in branch.unseen}


def test_what_a_forward_rounds_to_zero_is_no_fault():
    def found(x, name="gelu"):
        spec = {"op": "op", "forward": f"search_functions:{name}", "inputs": {"x": x}}
        return check(load_mapping(spec)[0])

    far, at_samples = found({"shape": [2], "value": [-9.0, -25.0]}), found({"shape": [2]})
    assert [pair.status for pair in far.pairs] == [Status.INCONCLUSIVE]  # the 1 inside hides the slope
    assert at_samples.pairs[0].status is Status.PASSED
    on_a_stair = found({"shape": [2], "value": [-7.100776857726395, -19.13929730708208]})
    assert [pair.status for pair in on_a_stair.pairs] == [Status.INCONCLUSIVE]
    # Far below the slopes at the sample points, an error counts for nothing; beside slopes as small, it does.
    wrong = found({"shape": [2], "value": [-7.100776857726395, -19.13929730708208]}, "turned_gelu")
    assert [pair.status for pair in wrong.pairs] == [Status.MISMATCHED]
    assert wrong_pairs(wrong, at_samples) == {}
    assert wrong_pairs(wrong, wrong).keys() == {"dy/dx"}


def test_an_excuse_hides_no_fault():
    result = run("hidden", attrs={"factor": 3.0}, unreached={"x > 3.5 true": "x is a sine"})
    assert result.status is Status.MISMATCHED


@pytest.mark.parametrize("excused", [False, True])
def test_what_is_wrong_at_one_value_only_says_so(excused):
    result = run("masked_zero", unreached={"x != 0 false": "a mask"} if excused else {})
    if excused:  # as the owner says, and no other value takes that side
        assert result.status is Status.PASSED
        return
    assert result.status is Status.MISMATCHED
    cause = result.pairs[0].cause
    name = re.search(r"only where (x(\[\d\])?) == 0", " ".join(cause.diagnosis))[1]
    assert float(dict(cause.point)[name]) == 0.0  # beside which it was right


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("low", "high", "attrs"),
    [(0, 3, {}), (-3, 0, {"sign": -1.0}), (0, 1, {"sign": -1.0, "start": 1.0})],
)
def test_points_beside_the_end_of_a_range_lie_inside_of_it(low, high, attrs, seed):
    """At two zeros the gradient is NaN; a point beside has no zero, though half of the moves lead out."""
    x = {"shape": [4, 3], "uniform": {"low": low, "high": high}}
    assert run("product_by_logs", x, attrs=attrs, seed=seed).status is Status.PASSED


def test_a_guard_that_few_draws_come_near_is_asked_about():
    result = run("guarded_size", {"shape": [5]}, seed=4)  # about one of four seeds comes near enough
    (pair,) = result.pairs
    assert (result.status, pair.undecided) == (Status.INCONCLUSIVE, "range")
    assert 0 < abs(float(pair.cause.point[0][1])) < 1e-3
    assert "It is right again beside this point" in pair.message


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"value": [0.5, -2.0, 1e-6, 1.0, -0.3]}, Status.MISMATCHED),
        ({"away_from": [0]}, Status.PASSED),
        ({"min_gap": 0.01}, Status.PASSED),
    ],
)
def test_what_a_question_about_near_values_says_works(spec, status):
    assert run("guarded_size", {"shape": [5], **spec}).status is status


def test_a_stated_normal_distribution_is_not_left():
    # For weights that are much larger, or as large and all of one sign, the iteration doesn't converge.
    result = run("fixed_point", {"shape": [3, 3], "normal": [0, 0.25]})
    assert result.status is Status.PASSED


def test_a_check_that_fails_at_the_samples_is_told_as_it_was_there():
    (failed,) = [check for check in run("clipped").checks if check.status is Status.MISMATCHED]
    assert failed.name == "linearity"
    assert "right at the sample points" not in failed.message


@pytest.mark.on_change("0-median-shape0", "2-median-shape0")
@pytest.mark.parametrize(("target", "shape"), [("median", [7]), ("log_determinant", [2, 2])])
@pytest.mark.parametrize("seed", range(3))
def test_kinks_that_disagree_more_hide_no_fault(target, shape, seed):
    assert run(target, {"shape": shape}, seed=seed, samples=1).status is Status.MISMATCHED


@pytest.mark.parametrize("name", ["at_zero", "at_one", "unguarded_at_zero", "always_right"])
@pytest.mark.parametrize("seed", range(2))
def test_a_fault_at_the_very_end_of_a_range_is_found(name, seed):
    """There is no other side, from which a difference could come."""
    result = run(name, {"shape": [5], "uniform": {"low": 0, "high": 1}}, seed=seed)
    assert result.status is (Status.PASSED if name == "always_right" else Status.MISMATCHED)


@pytest.mark.parametrize(
    ("name", "shape", "spec"),
    [
        ("sum_near_three", [24], {}),
        ("exp_near_seven", [6], {}),
        ("minus_constant", [6], {}),
        ("zero_column", [3, 4], {}),
        ("above_end", [5], {"uniform": {"low": 0, "high": 1}}),
    ],
)
def test_what_a_condition_is_made_of_is_met(name, shape, spec):
    result = run(name, {"shape": shape, **spec})
    assert result.status is Status.MISMATCHED or result.pairs[0].undecided == "range"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_threshold_far_from_the_samples_is_asked_about(dtype):
    result = run("beyond_ten", {"shape": [4], "dtype": dtype})
    (pair,) = result.pairs
    assert (result.status, pair.undecided) == (Status.INCONCLUSIVE, "range")
    ((what, value),) = pair.cause.point
    assert re.fullmatch(r"x\[\d\]", what)
    assert 10 < abs(float(value)) < 11
    assert pair.message.startswith(f"right at the sample points; at {what} = ")
    assert (
        "If x goes that far, say so (`uniform: {low: -20, high: 20}`): then it is a mismatch." in pair.message
    )


def test_a_judgement_that_takes_too_many_points_says_nothing(monkeypatch):
    assert run("hidden", attrs={"factor": 3.0}).status is Status.MISMATCHED
    monkeypatch.setattr(exploring, "_TIMES", 0)
    monkeypatch.setattr(exploring, "_QUICK", 4)
    result = run("hidden", attrs={"factor": 3.0})
    assert (result.status, result.how.chosen_points) == (Status.PASSED, 1)


def test_what_is_undecided_at_the_samples_may_be_wrong_beside_them():
    told = set()
    for seed in range(16):
        result = run("remainder_of", {"shape": [2]}, build={"sign": 1.0}, seed=seed)
        told |= {line for pair in result.pairs for line in pair.cause.diagnosis if "sample points" in line}
    assert any("undecided at the sample points" in line for line in told)


def test_a_check_that_fails_far_out_alone_asks_about_the_range():
    result = run("takes_larger_far_out")
    assert result.status is Status.INCONCLUSIVE
    (pair,) = result.pairs
    assert (pair.undecided, "the gradient is wrong. If x goes that far" in pair.message) == ("range", True)
    assert Status.MISMATCHED not in {check.status for check in result.checks}


def test_a_weight_of_the_other_sign_is_asked_about():
    result = run("AbsoluteGain", build={})
    slope, by_gain = result.pairs
    assert (slope.status, slope.undecided, by_gain.status) == (Status.INCONCLUSIVE, "range", Status.PASSED)
    assert slope.message == (
        "right at the sample points; with the other sign of gain the gradient is off by 200 %. If gain "
        "can be negative, that is a fault. If not, say so: `variables: {gain: {domain: {low: 0}}}`."
    )
    assert slope.cause.point == ()
    assert run("AbsoluteGain", build={}, variables={"gain": {"domain": {"low": 0}}}).status is Status.PASSED


def test_what_only_a_symmetric_matrix_excuses_is_asked_about():
    w = {"value": [[2.0, 0.5], [0.5, 1.0]]}
    result = run("not_transposed", inputs={"x": {"shape": [3, 2]}, "w": w})
    by_x, by_w = result.pairs
    assert (by_x.status, by_x.undecided, by_w.status) == (Status.INCONCLUSIVE, "range", Status.PASSED)
    assert by_x.message == (
        "right where w is symmetric, wrong beside. If the matrix always is, say `symmetric: true`. If not, "
        "the gradient is wrong."
    )
    stated = run("not_transposed", inputs={"x": {"shape": [3, 2]}, "w": {**w, "symmetric": True}})
    assert stated.status is Status.PASSED


def test_a_forward_that_waits_for_another_program_is_called_at_fewer_points(monkeypatch):
    """It takes no processor time, but somebody waits for it. Of a quick one, 256 points are looked at."""
    monkeypatch.setattr(other_points, "_PYTHON", 1.2)
    monkeypatch.setattr(exploring, "times_of", lambda _: Times())  # no thread waits for a processor
    result = run(
        "sine",
        build={"seconds": 0.012},
        binding="py_func",
        gradient={"numpy": "chosen_functions:sine_grad"},
        outputs={"y": {"shape": [4], "dtype": "float64"}},
    )
    assert result.ran.work.points < 400
