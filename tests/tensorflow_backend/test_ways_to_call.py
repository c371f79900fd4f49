"""Ways to call that take no function of one's own: attrs first, None among results, a CDF for a sampler."""

from __future__ import annotations

import pytest
import tensorflow as tf

from gradcheck_cli.results import Status

PARAMETERS = {"loc": {"value": [0.2, -1.0]}, "scale": {"value": [1.5, 0.7]}}


def test_attrs_may_come_before_the_tensors(run):
    result = run(forward=tf.einsum, attrs={"equation": "ij,jk->ik"}, inputs={"a": [2, 3], "b": [3, 2]})
    assert (result.status, result.error) == (Status.PASSED, None)


@pytest.mark.parametrize(("mode", "status"), [("graph", Status.PASSED), ("eager", Status.PASSED)])
def test_inputs_and_constants_by_the_names_of_raw_ops(run, mode, status):
    result = run(op_type="Sum", inputs={"input": [2, 3]}, attrs={"axis": [1]}, modes=[mode])
    assert (result.status, result.error) == (status, None)


class Logistic:
    """A distribution by its CDF and density."""

    def __init__(self, loc, scale):
        self.loc, self.scale = loc, scale

    def cdf(self, x):
        return tf.sigmoid((x - self.loc) / self.scale)

    def prob(self, x):
        return self.cdf(x) * (1 - self.cdf(x)) / self.scale


def draw(loc, scale):
    uniform = tf.random.stateless_uniform([2], (1, 2), dtype=loc.dtype)
    return loc + scale * tf.math.log(uniform / (1 - uniform))


def test_a_sampler_is_held_to_its_distribution(run):
    result = run(forward=draw, reference=Logistic, implicit=True, inputs=PARAMETERS)
    assert (result.status, result.error) == (Status.PASSED, None)


def test_a_reference_that_makes_no_distribution_is_told(run):
    result = run(forward=draw, reference=draw, implicit=True, inputs=PARAMETERS)
    assert "must make a distribution with cdf and prob" in result.error.message


def test_a_case_whose_module_is_missing_is_skipped_with_the_reason(run):
    result = run(forward=tf.sin, inputs={"x": [2]}, needs=["no_such_module"])
    assert result.status is Status.SKIPPED
    assert "needs no_such_module, which isn't installed" in str(result)
