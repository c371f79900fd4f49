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


def test_an_error_that_fades_is_shown_where_it_is_clear():
    (pair,) = run("fading", {"shape": [4], "domain": {"low": -4, "high": 4}}).pairs
    assert pair.status is Status.MISMATCHED
    assert pair.relative_error > 0.01


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


def test_a_guard_that_few_draws_come_near_is_asked_about():
    result = run("guarded_size", {"shape": [5]}, seed=1)  # one of the first 16 seeds comes near enough
    (pair,) = result.pairs
    assert (result.status, pair.undecided) == (Status.INCONCLUSIVE, "range")
    assert 0 < abs(float(pair.cause.point[0][1])) < 1e-3
    assert "It is right again beside this point" in pair.message


def test_a_check_that_fails_at_the_samples_is_told_as_it_was_there():
    (failed,) = [check for check in run("clipped").checks if check.status is Status.MISMATCHED]
    assert failed.name == "linearity"
    assert "right at the sample points" not in failed.message


END = {"shape": [5], "uniform": {"low": 0, "high": 1}}
WRONG, RIGHT = Status.MISMATCHED, Status.PASSED
W = {"value": [[2.0, 0.5], [0.5, 1.0]]}
# Function, its input, further keys, how many seeds, and the verdict with each.
VERDICTS = [
    ("hidden", NORMAL, {}, 1, RIGHT),
    ("hidden", NORMAL, {"attrs": {"factor": 3.0}, "unreached": {"x > 3.5 true": "x is a sine"}}, 1, WRONG),
    # At two zeros the gradient is NaN; a point beside has no zero, though half of the moves lead out.
    ("product_by_logs", {"shape": [4, 3], "uniform": {"low": 0, "high": 3}}, {}, 2, RIGHT),
    (
        "product_by_logs",
        {"shape": [4, 3], "uniform": {"low": -3, "high": 0}},
        {"attrs": {"sign": -1.0}},
        2,
        RIGHT,
    ),
    # What a question about near values says works.
    ("guarded_size", {"value": [0.5, -2.0, 1e-6, 1.0, -0.3]}, {}, 1, WRONG),
    ("guarded_size", {"shape": [5], "away_from": [0]}, {}, 1, RIGHT),
    ("guarded_size", {"shape": [5], "min_gap": 0.01}, {}, 1, RIGHT),
    # A stated distribution is not left: for larger weights, or all of one sign, it doesn't converge.
    ("fixed_point", {"shape": [3, 3], "normal": [0, 0.25]}, {}, 1, RIGHT),
    # At the very end of a range there is no other side, from which a difference could come.
    ("at_zero", END, {}, 2, WRONG),
    ("at_one", END, {}, 2, WRONG),
    ("unguarded_at_zero", END, {}, 2, WRONG),
    ("always_right", END, {}, 2, RIGHT),
    # What a condition is made of is met.
    ("sum_near_three", {"shape": [24]}, {}, 1, "range"),
    ("exp_near_seven", {"shape": [6]}, {}, 1, "range"),
    ("minus_constant", {"shape": [6]}, {}, 1, "range"),
    ("zero_column", {"shape": [3, 4]}, {}, 1, "range"),
    ("above_end", END, {}, 1, "range"),
    # What is said of weights and matrices in the spec counts.
    ("AbsoluteGain", NORMAL, {"build": {}, "variables": {"gain": {"domain": {"low": 0}}}}, 1, RIGHT),
    ("not_transposed", {"shape": [3, 2]}, {"w": {**W, "symmetric": True}}, 1, RIGHT),
]


@pytest.mark.parametrize(("target", "x", "keys", "seeds", "expected"), VERDICTS)
def test_points_beside_the_samples_show_what_is_wrong_and_nothing_else(target, x, keys, seeds, expected):
    inputs = {"inputs": {"x": x, "w": keys["w"]}} if "w" in keys else {}
    keys = {key: value for key, value in keys.items() if key != "w"}
    for seed in range(seeds):
        result = run(target, x, seed=seed, **keys, **inputs)
        assert expected in (result.status, result.pairs[0].undecided) or (
            expected == "range" and result.status is WRONG
        )


@pytest.mark.on_change("0-median-shape0", "2-median-shape0")
@pytest.mark.parametrize(("target", "shape"), [("median", [7]), ("log_determinant", [2, 2])])
@pytest.mark.parametrize("seed", range(3))
def test_kinks_that_disagree_more_hide_no_fault(target, shape, seed):
    assert run(target, {"shape": shape}, seed=seed, samples=1).status is Status.MISMATCHED


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
    slope, by_gain = run("AbsoluteGain", build={}).pairs
    assert (slope.status, slope.undecided, by_gain.status) == (Status.INCONCLUSIVE, "range", RIGHT)
    assert slope.message == (
        "right at the sample points; with the other sign of gain the gradient is off by 200 %. If gain "
        "can be negative, that is a fault. If not, say so: `variables: {gain: {domain: {low: 0}}}`."
    )
    assert slope.cause.point == ()


def test_what_only_a_symmetric_matrix_excuses_is_asked_about():
    by_x, by_w = run("not_transposed", inputs={"x": {"shape": [3, 2]}, "w": W}).pairs
    assert (by_x.status, by_x.undecided, by_w.status) == (Status.INCONCLUSIVE, "range", RIGHT)
    assert by_x.message == (
        "right where w is symmetric, wrong beside. If the matrix always is, say `symmetric: true`. If not, "
        "the gradient is wrong."
    )


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
