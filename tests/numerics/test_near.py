"""Close to edges, ties and poles, at small scales within large numbers: decided, and decided rightly."""

from collections import Counter

import numpy as np
import pytest

from gradcheck_cli.numerics import FLOAT32, FLOAT64, Problem, Reason, Verdict, judge
from tests.numerics.numerics_near import KNOTS, beside_knots
from tests.rows.stairs import RAMPS

GREEN = (Verdict.PASS, Verdict.KINK)


@pytest.mark.parametrize("precision", [FLOAT64, FLOAT32], ids=lambda p: p.name)
@pytest.mark.parametrize("name", KNOTS)
def test_a_right_gradient_beside_a_knot_is_not_called_wrong(name, precision):
    """The central difference over a knot at distance e settles on a slope that is off by e."""
    counts, wrong_counts = Counter(), Counter()
    for row in beside_knots(name, precision):
        right = row.right()
        found = row.judged(right, precision=precision)
        assert not (found.verdict == Verdict.MISMATCH).any(), (row.name, found)
        counts["open" if (found.verdict == Verdict.INCONCLUSIVE).any() else "right"] += 1
        for error in (1e-2, 1.0) if precision is FLOAT64 else (1.0,):
            wrong = right.copy()
            wrong[0, 0] += error * max(1.0, np.abs(right).max())
            found = row.judged(wrong, precision=precision)
            assert found.verdict[0, 0] not in GREEN, (row.name, error, found)
            wrong_counts[found.verdict[0, 0]] += 1
    # Some are too close to their knot for the rounding of the rest.
    assert counts["open"] <= (0.3 if precision is FLOAT64 else 0.7) * counts.total()
    assert wrong_counts[Verdict.MISMATCH] >= 0.9 * wrong_counts.total()


def run(function, point, analytic, **settings):
    def evaluate(points):
        with np.errstate(all="ignore"):
            return function(points)

    point, analytic = np.atleast_1d(np.asarray(point, float)), np.asarray(analytic, float)
    if analytic.ndim < 2:
        analytic = np.diag(np.atleast_1d(analytic))
    method = settings.pop("method", "auto")
    return judge(Problem(evaluate, point, FLOAT64, FLOAT64, **settings), analytic, method=method)


# Functions that lose digits, saturate, turn or jump: whatever is said of them, it is said at every size.
SCALED = {
    "log(1 + x^2)": (lambda x: np.log(1 + x * x), 1e-3, 2e-3 / (1 + 1e-6)),
    "log(1 + x^2), smaller": (lambda x: np.log(1 + x * x), 1e-5, 2e-5),
    "1 - cos": (lambda x: 1 - np.cos(x), 1e-4, np.sin(1e-4)),
    "(1 + x) - 1": (lambda x: (1 + x) - 1, 1e-7, 1.0),
    "(1 + x) - 1, smaller": (lambda x: (1 + x) - 1, 1e-9, 1.0),
    "exp - 1": (lambda x: np.exp(x) - 1, 1e-9, 1.0),
    "cosh - 1": (lambda x: np.cosh(x) - 1, 1e-6, 1e-6),
    "1 - sigmoid": (lambda x: 1 - 1 / (1 + np.exp(-x)), 25.0, -1.3887943864771144e-11),
    "log(1 + exp)": (lambda x: np.log(1 + np.exp(-x)), 30.0, -9.357622968839299e-14),
    "exp(-x^2)": (lambda x: np.exp(-x * x), 8.0, -16 * np.exp(-64)),
    "tanh": (np.tanh, 1.0, 1 - np.tanh(1) ** 2),
    "sin far out": (np.sin, 1e5, np.cos(1e5)),
    "|x - 1|": (lambda x: np.abs(x - 1), 1.0, 0.5),
    "max(x - 1, 0)": (lambda x: np.maximum(x - 1, 0), 1 + 1e-7, 1.0),
    "floor": (np.floor, 2.3, 0.0),
    "eighths": (lambda x: np.round(x * 8) / 8, 1.27, 0.0),
    "hundredths": (lambda x: np.round(x * 128) / 128, 1.2345, 1.0),
    "clip far out": (lambda x: np.clip(x, -0.5, 0.5), 3.0, 1.0),
}


@pytest.mark.on_change("exp(-x^2)", "tanh", "floor", "hundredths")
@pytest.mark.parametrize("name", SCALED)
def test_a_verdict_does_not_change_with_the_size_of_outputs_or_inputs(name):
    function, point, slope = SCALED[name]
    for factor in (1.0, 2.0, 0.0, 1.0001):
        wanted = slope * factor
        verdicts = [
            run(lambda x, c=c: function(x) * c, point, wanted * c).verdict[0, 0]
            for c in (1.0, 2.0**-40, 2.0**30, 3e-7, 1e12)
        ]
        verdicts += [
            run(lambda x, k=k: function(x / k), point * k, wanted / k).verdict[0, 0]
            for k in (2.0**-30, 2.0**40)
        ]
        assert len(set(verdicts)) == 1, (factor, verdicts)


@pytest.mark.parametrize("name", [name for name in RAMPS if "slope" not in name and name != "squared hinge"])
@pytest.mark.parametrize("point", [[0.97, 0.4, 3.0, -1.5, -0.6], [7.0, 9.5, -8.0, 0.49, 1.03]])
def test_a_forgotten_edge_is_wrong_however_far_it_is(name, point):
    function, slope = RAMPS[name]
    point = np.array(point)
    forgotten = np.eye(point.size)
    found = run(function, point, forgotten).verdict
    outside = ~np.asarray(slope(point), bool)
    within = outside & (abs(point) < 5)
    if name != "hard shrink":  # which jumps there: a single riser, as far as can be told
        assert (np.diag(found)[within] == Verdict.MISMATCH).all()
    assert not np.isin(np.diag(found)[outside], GREEN).any()


def _knots_and_edges(kind, count):
    """Yield random functions of one kind, with a point, the right slope there, and wrong ones."""
    draw = np.random.default_rng(7)

    def size(least, most, *, signed=False):
        return 10 ** draw.uniform(least, most) * (draw.choice([-1, 1]) if signed else 1)

    for _ in range(count):
        c, s = draw.uniform(0.5, 2), draw.uniform(-3, 3)
        if kind == "small kink on a curve":
            k, x = size(-4, 0), c + size(-9, -3, signed=True)
            slope = 2 * s * x + np.cos(x)
            yield (
                lambda p, k=k, c=c, s=s: s * p * p + np.sin(p) + k * np.maximum(p - c, 0),
                x,
                slope + k * (x > c),
                [slope + 1.5 * k, slope - 0.5 * k],
            )
        elif kind == "knot beside a large offset":
            q, offset, x = size(-2, 3), size(-2, 4), c + size(-10, -3, signed=True)
            slope = np.exp(x / 3) / 3 + 2 * q * max(x - c, 0)
            wrong = [slope * 1.01 + 4 * q * abs(x - c)]
            yield (
                lambda p, q=q, c=c, o=offset: o + np.exp(p / 3) + q * np.maximum(p - c, 0) ** 2,
                x,
                slope,
                wrong,
            )
        elif kind == "knots on both sides":
            a, b, e, d = *draw.uniform(-3, 3, 2), size(-9, -3), size(-9, -3)
            yield (
                lambda p, a=a, b=b, e=e, d=d, s=s: (
                    s * p + a * np.maximum(p - 1 - e, 0) ** 2 + b * np.maximum(1 - d - p, 0) ** 2
                ),
                1.0,
                s,
                [s + 1e-2],
            )
        elif kind == "a jump beside":
            d, h = size(-9, -1, signed=True), size(-3, 2, signed=True)
            slope = 2 * np.cos(2 * c)
            yield (
                lambda p, c=c, d=d, h=h: np.sin(2 * p) + h * (p > c + d),
                c,
                slope,
                [slope + 0.1 * max(abs(slope), 1)],
            )
        else:
            k = size(2, 6)
            yield lambda p, k=k: np.round(p * k) / k * np.cos(p), c, np.cos(c) - c * np.sin(c), []


@pytest.mark.parametrize(
    "kind",
    ["small kink on a curve", "knot beside a large offset", "knots on both sides", "a jump beside", "stairs"],
)
def test_random_knots_kinks_jumps_and_stairs_accuse_nobody_and_hide_nothing(kind):
    for function, point, right, wrong in _knots_and_edges(kind, 60):
        assert run(function, point, right).verdict[0, 0] != Verdict.MISMATCH, (point, right)
        assert all(run(function, point, slope).verdict[0, 0] not in GREEN for slope in wrong), (point, right)


@pytest.mark.parametrize(
    ("kink", "size", "distance"),
    [(1.709, 15.006, 2.014e-11), (1.32146, 39.694, -3.7756e-9), (0.62036, 430.5, 2.58e-12), (1.5, 5, -1e-10)],
)
def test_the_mean_of_both_sides_is_no_slope_where_noise_hides_the_kink(kink, size, distance):
    """Closer to the point, the short steps are all noise, and those that settle lie across the kink."""
    found, point = Counter(), kink + distance
    for share in np.geomspace(1e-7, 1e-4, 30):

        def function(x, share=share):
            return size * (np.exp(x) + share * np.abs(x - kink))

        right = size * (np.exp(point) + share * np.sign(distance))
        assert run(function, point, right).verdict[0, 0] != Verdict.MISMATCH
        found[run(function, point, right - 2.5 * size * share * np.sign(distance)).verdict[0, 0]] += (
            share > 1e-5
        )
    assert found[Verdict.MISMATCH] == found.total()


@pytest.mark.parametrize("beside", [[], [0.5, -0.3]], ids=["alone", "beside others"])
@pytest.mark.parametrize(
    ("function", "derivative"),
    [
        (lambda x: 1 - np.cos(x), np.sin),
        (lambda x: np.log(np.cos(x)), lambda x: -np.tan(x)),
        (lambda x: np.log(1 + x * x), lambda x: 2 * x / (1 + x * x)),
        (lambda x: np.sqrt(1 + x * x) - 1, lambda x: x / np.sqrt(1 + x * x)),
    ],
    ids=["1 - cos", "log cos", "log(1 + x^2)", "sqrt(1 + x^2) - 1"],
)
def test_an_even_function_that_rounds_inside_accuses_nobody_beside_its_middle(function, derivative, beside):
    """Its differences to both sides are equal, far beyond the steps at which each of them moves."""
    for tiny in np.geomspace(1e-12, 1e-8, 9):
        point = np.array([tiny, *beside])
        right = np.diag(derivative(point))
        assert not (run(function, point, right).verdict == Verdict.MISMATCH).any(), tiny
        for i in range(1, point.size):
            assert run(function, point, 1.01 * right).verdict[i, i] == Verdict.MISMATCH


@pytest.mark.parametrize("slope", [1.4e15, 1e9, -3.0])
def test_a_turn_within_roundings_of_the_point_is_a_jump_whatever_rounds_inside(slope):
    """Terms of 1e15 round by more than the function moves; but rounding isn't the same at each step."""

    def turn(points):
        return 0.16 * np.sign(points - 0.25)

    found = run(turn, np.array([0.25]), np.array([[slope]]), rounded_size=lambda: np.array([1e15]))
    assert (found.verdict[0, 0], found.reason[0, 0]) == (Verdict.INCONCLUSIVE, Reason.JUMP)
