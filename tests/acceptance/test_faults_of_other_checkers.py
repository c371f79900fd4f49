"""What the well-known checkers teach by their faults: each a test that the checker named there fails."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

import gradcheck_cli
from gradcheck_cli import results

FOLDER = Path(__file__).parent / "others"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def check(function, inputs, **keys):
    spec = {"op": function, "forward": f"faults_of_others:{function}", "inputs": inputs, **keys}
    return gradcheck_cli.check(spec)


def rival(function, *inputs):
    """Return the largest error by TensorFlow's own checker with the customary step, and the gradient."""
    import tensorflow as tf

    module = sys.modules.get("faults_of_others") or __import__("faults_of_others")
    analytic, numeric = tf.test.compute_gradient(
        getattr(module, function), [tf.constant(value) for value in inputs], delta=1e-3
    )
    return max(np.max(np.abs(a - n)) for a, n in zip(analytic, numeric, strict=True)), analytic


def test_results_cannot_be_unpacked_in_the_wrong_order():
    """PyTorch returned tuples of like booleans, and unpacked them swapped."""
    for kind in (results.PairResult, results.CheckResult, results.CaseResult, results.Report):
        assert dataclasses.is_dataclass(kind)
        assert kind.__dataclass_params__.frozen
        assert not hasattr(kind, "__iter__")


def test_messages_are_filled_in():
    """PyTorch's message lacked its `f` prefix, and showed braces."""
    report = check("no_gradient_for_b", {"a": {"shape": [2]}, "b": {"shape": [2]}})
    assert not set("{}") & set(gradcheck_cli.render_report(report))


def test_nan_never_passes():
    """`if error > tol: fail` lets NaN pass, in PyTorch once, and in ChainRulesTestUtils."""
    report = check("nan_gradient", {"x": {"shape": [3]}})
    assert report.exit_code == 1
    error = abs(float("nan") - 2.0)
    assert not (error > 1e-3)  # the rule that passes it


def test_a_jacobian_of_mostly_zeros_is_found():
    """PyTorch's fast mode, with its non-negative directions, passed one that was "completely busted"."""
    report = check("mostly_zero_gradient", {"x": {"shape": [6]}})
    (pair,) = report.cases[0].pairs
    assert (report.exit_code, pair.numbers.wrong_elements) == (1, 5)


def test_the_step_really_taken_divides():
    """TensorFlow divides by the nominal step: 2.3 % off at x = 1000 in float32, the gradient being right."""
    report = check("doubled_in_float32", {"x": {"value": [1000.0, 3.0], "dtype": "float32"}})
    assert report.exit_code == 0, gradcheck_cli.render_report(report)
    error, analytic = rival("doubled_in_float32", np.array([1000.0, 3.0], np.float32))
    assert error > 2e-2 * np.max(np.abs(analytic[0]))


def test_none_is_not_zero():
    """TensorFlow's checker turns a `None` gradient into zeros: they look right where the slope is zero."""
    inputs = {"a": {"shape": [3]}, "b": {"shape": [3]}}
    (_, pair) = check("no_gradient_for_b", inputs, pairs={"dy/db": {"expect": "zero"}}).cases[0].pairs
    assert not pair.connected
    assert "None" in pair.message


def test_the_tolerance_does_not_grow_with_the_array():
    """JAX multiplies its tolerances by the array's size: 20 at 10,000 float32 elements."""
    report = check("one_percent_off", {"x": {"shape": [30, 20], "dtype": "float32"}}, samples=1)
    (pair,) = report.cases[0].pairs
    assert pair.status is results.Status.MISMATCHED
    assert pair.numbers.allowed < 1e-3
    assert 2e-3 * 600 > 1.01 - 1  # JAX's rule passes it


def test_small_gradients_are_judged_by_their_own_size():
    """Autograd's "absolute or relative" passes any gradient below 1e-6."""
    report = check("tiny_and_doubled", {"x": {"shape": [4]}})
    assert report.exit_code == 1
    assert abs(4e-9 - 2e-9) < 1e-6  # the rule that passes it


def test_autograds_own_test_of_its_checker():
    """Autograd tries its checker on a gradient of 2.001 for 2.0."""
    (pair,) = check("slightly_off_factor", {"x": {"shape": [3]}}).cases[0].pairs
    assert pair.status is results.Status.MISMATCHED
    assert any("1.0005" in line for line in pair.cause.diagnosis)


def test_the_failing_pair_is_named():
    """Warp's message names the loop's last pair."""
    report = check("first_of_three_wrong", {name: {"shape": [2]} for name in "abc"})
    wrong = [pair.label for pair in report.cases[0].pairs if pair.status is results.Status.MISMATCHED]
    assert wrong == ["dy/da"]
    lines = gradcheck_cli.render_report(report).splitlines()
    assert [line.split()[0] for line in lines if "MISMATCH" in line] == ["dy/da"]


def test_a_small_error_is_printed_as_such():
    """PyTensor prints `%f`, so that 1e-8 reads 0.000000."""
    report = check("off_by_1e_8", {"x": {"value": [0.5, 2.0]}})
    assert report.exit_code == 0
    (row,) = [line for line in gradcheck_cli.render_report(report).splitlines() if "dy/dx" in line]
    assert float(row.split()[1]) == pytest.approx(1e-8, rel=0.2)
