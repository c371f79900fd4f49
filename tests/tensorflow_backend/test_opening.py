from __future__ import annotations

import pytest
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode


def test_an_op_without_a_float64_kernel_is_judged_in_its_own_dtype_and_named(run):
    result = run(forward=tf.nn.lrn, inputs={"x": {"shape": [1, 1, 2, 3], "dtype": "float32"}})
    assert (result.status, result.how.numeric_dtype, result.warnings) == (Status.PASSED, "float32", ())
    assert result.pairs[0].judged_by.not_float64 == "there is no float64 form of LRN, LRNGrad"


def test_a_float64_case_that_is_not_judged_in_float64_is_no_plain_pass(run):
    def through(x):
        return tf.cast(tf.nn.lrn(tf.cast(x, tf.float32)), tf.float64)

    result = run(forward=through, inputs={"x": {"shape": [1, 1, 2, 3]}})
    assert result.status is Status.PASSED
    (warning,) = result.warnings
    assert warning == (
        "precision: dy/dx: declared in float64, but judged in float32, where errors up to 0.002 of an "
        "element pass: there is no float64 form of LRN, LRNGrad."
    )


@pytest.mark.parametrize("checks", [{}, {"retrace": False}], ids=["retraced", "not retraced"])
def test_a_forward_that_is_another_function_in_each_trace_is_no_mismatch(run, checks):
    traced = iter(range(1000))

    def forward(x):
        return x * float(next(traced))

    result = run(forward=forward, inputs={"x": {"shape": [3]}}, checks=checks)
    assert result.status is Status.INCONCLUSIVE
    assert any("each time the forward is traced" in check.message for check in result.checks)


def test_what_overflows_in_its_own_dtype_has_none(case_of):
    case = case_of(forward=lambda x: tf.exp(100 + x), inputs={"x": {"shape": [2], "dtype": "float32"}})
    opener = CaseOpener(GraphMode(), CaseState(case))
    own = opener.open(Opening())
    assert opener.in_float64(own) is None
    assert own.facts.not_float64 == "its outputs differ in float64: it overflows, or takes another branch"
