"""Kinked ops whose sides can be held: the same function, and a smooth one once they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops import analytic
from gradcheck_cli.results import Status
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.tensorflow_backend.op_types import COMPARISONS, SIDES
from gradcheck_cli.tensorflow_backend.openers import opener_of
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import subgraph_function
from gradcheck_cli.tensorflow_backend.twin.float64_twin import Twin, WideVariables
from gradcheck_cli.tensorflow_backend.twin.widening import PIECES


def by_six(x):
    return tf.reshape(x, (4, 6))


KINKED = {
    "relu": tf.nn.relu,
    "relu6": lambda x: tf.nn.relu6(4 * x),
    "leaky relu": lambda x: tf.nn.leaky_relu(x, 0.3),
    "abs": tf.abs,
    "maximum": lambda x: tf.maximum(x, x[::-1]),
    "minimum": lambda x: tf.minimum(x, 0.25),
    "where": lambda x: tf.where(x > 0, x, 0.25 * x),
    "where, turned round": lambda x: tf.where(x[::-1] <= 0.25, 0.5 * x, x),
    "the chosen one of six": lambda x: tf.gather(by_six(x), tf.argmax(by_six(x), 1), batch_dims=1),
    "the nearest of three": lambda x: x * tf.cast(tf.argmin(tf.abs(x[:, None] - [-1, 0, 2]), 1), x.dtype),
    "max pooling": lambda x: tf.nn.max_pool2d(tf.reshape(x, (1, 4, 6, 1)), 2, 2, "SAME"),
}


def with_sides(function):
    """Return the twin as a function that takes its sides, one that gives these, and itself."""
    narrow = tf.compat.v1.wrap_function(function, [tf.TensorSpec([24], tf.float32)])
    twin = Twin(narrow, WideVariables(), has_sides=True)
    feeds, outputs = twin.tensors(narrow.inputs), twin.tensors(narrow.outputs)
    held = [one for _, one in twin.sides]
    assert held

    def call(function, *arguments):
        return [one.numpy() for one in private_graphs.call_flat(function, list(arguments))]

    plain = subgraph_function(twin, feeds, outputs)
    taking = subgraph_function(twin, [*feeds, *held], outputs)
    giving = subgraph_function(twin, feeds, [side for side, _ in twin.sides])
    return (
        lambda x: call(plain, tf.constant(x))[0],
        lambda x, sides: call(taking, tf.constant(x), *map(tf.constant, sides))[0],
        lambda x: call(giving, tf.constant(x)),
    )


@pytest.mark.parametrize("function", KINKED.values(), ids=KINKED.keys())
def test_with_sides_held_it_goes_on_as_it_is_around_the_point(function):
    rng = np.random.default_rng(3)
    x, move = rng.normal(size=24), rng.normal(size=24)
    plain, held, sides = with_sides(function)
    np.testing.assert_allclose(plain(x), function(tf.constant(x)), rtol=1e-12)
    taken = sides(x)
    slope = (plain(x + 1e-6 * move) - plain(x - 1e-6 * move)) / 2e-6
    far = plain(x + 2 * move)
    assert not np.allclose(far, plain(x) + 2 * slope, rtol=1e-3)  # kinks are crossed
    np.testing.assert_allclose(held(x + 2 * move, taken), plain(x) + 2 * slope, rtol=1e-6, atol=1e-6)
    assert any(np.any(now != then) for now, then in zip(sides(x + 2 * move), taken, strict=True))


def crowded(error=0.0):
    """Return the sum of 14,000 relus of 4,900 numbers, with an error in one element of the gradient."""
    weights = tf.constant(np.random.default_rng(1).normal(size=(70, 200)) / 8)

    @tf.custom_gradient
    def passed(x):
        wrong = tf.scatter_nd([[12, 34]], [error], (70, 70))
        return tf.identity(x), lambda u: u * (1 + tf.cast(wrong, u.dtype))

    return lambda x: tf.reduce_sum(tf.sin(tf.nn.relu(passed(x) @ weights)))


def opened(function, budget=None, **changes):
    spec = {
        "op": function,
        "forward": f"{__name__}:{function}",
        "inputs": {"x": {"shape": [70, 70]}},
        "method": "probe",
        "samples": 1,
    }
    case = load_mapping(spec | changes)[0]
    if budget is not None:
        case = replace(case, judging=replace(case.judging, budget=budget))
    opener = opener_of(case, case.mode)
    return opener.case, opener


def crowded_pair(**build):
    return check_case(*opened("crowded", build=build), [0]).pairs[0]


def test_where_any_step_crosses_kinks_an_error_of_one_percent_is_seen_all_the_same():
    pair = crowded_pair()
    assert pair.status is Status.PASSED
    assert pair.judged_by.miss_probability < 0.02


@pytest.mark.parametrize("error", [0.02, -0.02, 1.0])
def test_a_wrong_element_is_found_among_them(error):
    pair = crowded_pair(error=error)
    assert pair.status is Status.MISMATCHED
    assert pair.numbers.worst.input_index == (12, 34)


OFFSETS = {f"b{index}": {"shape": [70]} for index in range(6)}


def offset(error=0.0):
    """Return a layer of `crowded` with six offsets; the third leads to a relu that is on its kink."""
    crowd = crowded(error)

    def call(x, *offsets):
        moved = sum(tf.reduce_sum(tf.sin(one)) for index, one in enumerate(offsets) if index != 2)
        return crowd(x) + moved + 2 * tf.reduce_sum(tf.nn.relu(offsets[2]) - 3 * tf.nn.relu(-offsets[2]))

    return call


@pytest.mark.parametrize("error", [0.0, 0.02])
def test_an_input_on_a_kink_leaves_the_others_to_be_probed(monkeypatch, error):
    monkeypatch.setattr(analytic, "FEWEST_ELEMENTS", 64)
    inputs = {"x": {"shape": [70, 70]}, **OFFSETS, "b2": {"shape": [70], "value": 0.0}}
    pairs = check_case(*opened("offset", build={"error": error}, inputs=inputs), [0]).pairs
    statuses = {pair.label: pair.status for pair in pairs}
    assert statuses.pop("dy/db2") is Status.INCONCLUSIVE
    assert statuses.pop("dy/dx") is (Status.MISMATCHED if error else Status.PASSED)
    assert set(statuses.values()) == {Status.PASSED}
    assert "leave a kink" in next(pair.message for pair in pairs if pair.label == "dy/db2")


def smooth(x):
    return tf.reduce_sum(tf.sin(x))


def quantised(error=0.0, codes=6):
    """Return what vectors make with the nearest of some codes; if these are many, any step changes a few."""
    rng = np.random.default_rng(4)
    book = tf.Variable(rng.normal(size=(codes, 2)), dtype=tf.float32)
    weights = tf.constant(rng.normal(size=(24500, 2)), tf.float32)

    @tf.custom_gradient
    def passed(x):
        wrong = tf.scatter_nd([[12, 34]], [error], (70, 700))
        return tf.identity(x), lambda u: u * (1 + tf.cast(wrong, u.dtype))

    def call(x):
        vectors = tf.reshape(passed(x), (24500, 2))
        far = tf.reduce_sum(book**2, 1) - 2 * vectors @ tf.transpose(book)
        return tf.reduce_sum(vectors * weights * tf.nn.embedding_lookup(book, tf.argmin(far, 1)))

    return call


@pytest.mark.on_change("-1.0")
@pytest.mark.parametrize("error", [0.0, 0.05, -1.0])
def test_an_alarm_where_choices_change_on_the_way_is_asked_again_with_them_held(error):
    inputs = {"x": {"shape": [70, 700], "dtype": "float32"}}
    build = {"error": error, "codes": 6 if error else 256}  # 256 make stairs of a single element
    (pair,) = check_case(*opened("quantised", build=build, inputs=inputs, seed=0 if error else 2), [0]).pairs
    assert pair.status is (Status.MISMATCHED if error else Status.PASSED), pair.message
    if error:
        assert pair.numbers.worst.input_index == (12, 34)


def indexed():
    """Return values of x at the places of the largest y, which a stop gets, too."""
    return lambda x, y: tf.reduce_sum(
        tf.sin(y) * tf.stop_gradient(tf.gather(x, tf.argmax(y, 1), batch_dims=1)[:, None])
    )


def test_a_stop_behind_an_index_alone_says_nothing_of_the_input_that_chooses():
    inputs = {name: {"shape": [6, 5]} for name in ("x", "y")}
    stopped, free = check_case(*opened("indexed", build={}, inputs=inputs, method="auto"), [0]).pairs
    assert stopped.cause.stops
    assert free.status is Status.PASSED


def test_an_op_that_is_held_on_a_side_has_sides_to_show():
    of_many = {"ArgMax", "ArgMin", "MaxPool"}  # they choose one of many elements: no side has a name
    assert PIECES.keys() - of_many <= SIDES.keys() | COMPARISONS.keys()
