"""Functions from a file, or traced before: their ops have no frames, or none of gradcheck's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from gradcheck_cli import check

SPEC = tf.TensorSpec([3], tf.float32)


@tf.custom_gradient
def wrong_far_out(x):
    return x * x, lambda upstream: upstream * tf.where(x > 6.0, 5.0 * x, 2.0 * x)


BODIES = {
    "where": lambda x: tf.where(x > 0.3, x * x, tf.sin(x)),
    "relu": lambda x: 3.0 * tf.nn.relu(x),
    "cond": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * x, lambda: tf.sin(x)),
    "while": lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, tf.nn.relu(a * x) + a), (0, x))[
        1
    ],
    "stop": lambda x: x * tf.stop_gradient(tf.exp(x)),
    "stops": lambda x: x * x + tf.stop_gradient(0.0 * tf.exp(x)) + x * tf.stop_gradient(tf.sin(x)),
    "logsumexp": tf.reduce_logsumexp,
}


def saved(function, folder, **options):
    module = tf.Module()
    module.f = tf.function(function, input_signature=[SPEC])
    tf.saved_model.save(module, folder, options=tf.saved_model.SaveOptions(**options))
    loaded = tf.saved_model.load(folder)
    loaded.f.owner = loaded  # it has the function's variables
    return loaded.f


def graph_def(function, _):
    graph = tf.function(function).get_concrete_function(SPEC).graph
    definition, source, result = graph.as_graph_def(), graph.inputs[0].name, graph.outputs[0].name
    return lambda x: tf.graph_util.import_graph_def(definition, {source: x}, [result])[0]


def frozen(function, _):
    weight = tf.Variable(tf.ones([3]))
    traced = tf.function(lambda x: function(weight * x)).get_concrete_function(SPEC)
    constant = convert_variables_to_constants_v2(traced, lower_control_flow=False)
    definition = constant.graph.as_graph_def()
    wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(definition, name=""), [])
    return wrapped.prune(constant.inputs[0].name, constant.outputs[0].name)


def traced_before(function, _):
    return tf.function(function).get_concrete_function(SPEC)


def result_of(function):
    inputs = {"x": {"shape": [3], "dtype": "float32"}}
    (case,) = check({"op": "imported", "forward": function, "inputs": inputs}).cases
    assert case.error is None, case.error
    return case


@pytest.mark.parametrize("body", ["where", "relu", "cond", "while"])
@pytest.mark.parametrize("kind", [saved, graph_def, frozen, traced_before])
def test_sides_of_branches_are_seen(kind, body, tmp_path):
    case = result_of(kind(BODIES[body], str(tmp_path)))
    assert str(case.status) == "passed"
    if kind is not graph_def or body == "while":  # in a body
        assert case.seen.sides_unknown.startswith("not looked at inside ")
        return
    (branch,) = case.seen.branches
    assert set(branch.seen) == set(branch.sides)
    assert branch.place.startswith("imported op ")


@pytest.mark.parametrize("kind", [saved, graph_def, frozen])
def test_a_guard_of_tensorflow_is_no_branch(kind, tmp_path):
    case = result_of(kind(BODIES["logsumexp"], str(tmp_path)))
    assert (str(case.status), case.seen.branches) == ("passed", ())


@pytest.mark.parametrize("kind", [saved, frozen])
def test_a_stop_in_a_ready_made_function_cant_be_held(kind, tmp_path):
    (pair,) = result_of(kind(BODIES["stop"], str(tmp_path))).pairs
    assert str(pair.status) == "inconclusive"
    assert "a stop_gradient inside PartitionedCall, which is closed" in pair.message


def test_a_gradient_that_is_wrong_farther_out_is_asked_about(tmp_path):
    function = saved(wrong_far_out, str(tmp_path), experimental_custom_gradients=True)
    (pair,) = result_of(function).pairs
    assert (str(pair.status), pair.undecided) == ("inconclusive", "range")
    assert np.isfinite(function(tf.ones(3))).all()
