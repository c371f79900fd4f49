"""What a forward returns, taken apart: names by path, the spec's names, composite tensors, and refusals."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import in_each_mode
from tests.planted.structured_functions import Boxed, State

X = {"x": {"value": [0.5, 1.5, -0.25]}}


class Pair(NamedTuple):
    second: Any
    first: Any


def sine(x):
    return tf.sin(x)


RESULTS = {
    "a tensor": (sine, ["y"]),
    "a tuple": (lambda x: (tf.sin(x), tf.exp(x)), ["y0", "y1"]),
    "a list of one": (lambda x: [tf.sin(x)], ["y"]),
    "a dict, by its sorted keys": (lambda x: {"b": tf.sin(x), "a": tf.exp(x)}, ["y.a", "y.b"]),
    "a dict of one": (lambda x: {"loss": tf.sin(x)}, ["y.loss"]),
    "numbers as keys": (lambda x: {0: tf.sin(x), 1: tf.exp(x)}, ["y[0]", "y[1]"]),
    "keys that no label can hold": (lambda x: {"a/b": tf.sin(x), "a b": tf.exp(x)}, ["y.a_b", "y.a_b_1"]),
    "a dataclass, by its fields": (lambda x: State(tf.sin(x), tf.exp(x)), ["y.hidden", "y.cell"]),
    "a named tuple, by its fields": (lambda x: Pair(tf.sin(x), tf.exp(x)), ["y.second", "y.first"]),
    "an extension type": (lambda x: Boxed(tf.sin(x), tf.exp(x)), ["y.low", "y.high"]),
    "a tuple of structures": (
        lambda x: ({"loss": tf.sin(x)}, [tf.exp(x), State(x * 2, x**2)]),
        ["y0.loss", "y1[0]", "y1[1].hidden", "y1[1].cell"],
    ),
    "a list of one list": (lambda x: [[tf.sin(x), tf.exp(x)]], ["y[0]", "y[1]"]),
    "numbers beside": (lambda x: {"y": tf.sin(x), "count": 3}, ["y.y"]),
}


@pytest.mark.on_change("a tensor")
@pytest.mark.parametrize(("forward", "named"), RESULTS.values(), ids=RESULTS)
def test_outputs_are_named_by_path_in_every_mode(case_of, forward, named):
    for case in in_each_mode([case_of(forward=forward, inputs=X)], ["graph", "eager"]):
        result = run_case(case)
        assert (result.status, result.error) == (Status.PASSED, None)
        assert [pair.output for pair in result.pairs] == named
        assert [pair.label for pair in result.pairs] == [f"d{name}/dx" for name in named]


NAMED = {
    "a tuple": (lambda x: (tf.sin(x), x * 2), ["p", "q"], ["p", "q"]),
    "a dict, by key, in the spec's order": (lambda x: {"a": tf.sin(x), "b": x * 2}, ["b", "a"], ["b", "a"]),
    "a dict as a whole": (lambda x: {"a": tf.sin(x), "b": x * 2}, ["out"], ["out.a", "out.b"]),
    "a dict's structures": (lambda x: {"a": [x * 2], "b": tf.sin(x)}, ["b", "a"], ["b", "a[0]"]),
    "a tuple's structures": (lambda x: ({"k": x * 2}, tf.sin(x)), ["p", "q"], ["p.k", "q"]),
    "every tensor of nested tuples": (lambda x: ((x, x * 2), tf.sin(x)), ["p", "q", "r"], ["p", "q", "r"]),
    "a named tuple by place": (lambda x: Pair(tf.sin(x), x * 2), ["p", "q"], ["p", "q"]),
    "a named tuple by field": (lambda x: Pair(tf.sin(x), x * 2), ["first", "second"], ["first", "second"]),
    "a named tuple, one by field": (lambda x: Pair(tf.sin(x), x * 2), ["second", "q"], ["second", "q"]),
    "a dataclass by place": (lambda x: State(tf.sin(x), x * 2), ["p", "q"], ["p", "q"]),
}


@pytest.mark.on_change("a dataclass by place")
@pytest.mark.parametrize(("forward", "outputs", "named"), NAMED.values(), ids=NAMED)
def test_the_names_of_a_spec(run, forward, outputs, named):
    result = run(forward=forward, outputs=outputs, inputs=X)
    assert (result.status, result.error) == (Status.PASSED, None)
    assert [pair.output for pair in result.pairs] == named


REFUSED = {
    "other keys": (
        lambda x: {"a": tf.sin(x), "b": x},
        ["loss", "accuracy"],
        (
            "the forward returns a dict of a, b, but the spec names loss, accuracy. Name its keys, or "
            "the whole by one name."
        ),
    ),
    "a field in another's place": (
        lambda x: State(tf.sin(x), x),
        ["cell", "hiden"],
        (
            "the forward returns a State of hidden, cell, but the spec names cell, hiden. Name its keys, or "
            "the whole by one name."
        ),
    ),
    "too many names": (
        lambda x: (tf.sin(x), x),
        ["a", "b", "c"],
        "the forward returns 2 outputs, but the spec names 3: a, b, c.",
    ),
    "a structure's dtype": (
        lambda x: {"a": tf.sin(x), "b": x},
        {"y": {"dtype": "float64"}},
        (
            "output y of the forward is a structure of y.a, y.b, which has no dtype and no shape of its own: "
            "leave them out of the spec."
        ),
    ),
    "nothing in a dict": (
        lambda _: {"a": None},
        ["y"],
        "forward: must return tensors, but returned dict; return each output.",
    ),
}


@pytest.mark.parametrize(("forward", "outputs", "message"), REFUSED.values(), ids=REFUSED)
def test_names_that_do_not_fit_are_told(run, forward, outputs, message):
    result = run(forward=forward, outputs=outputs, inputs=X)
    assert (result.error.kind, result.error.message) == ("outputs", message)


def test_a_tensor_array_is_to_be_stacked(run):
    result = run(forward=lambda x: tf.TensorArray(x.dtype, 1).write(0, x), inputs=X)
    assert result.error.kind == "outputs"
    assert result.error.message.endswith("Return ta.stack() or ta.concat().")


# Composite tensors.


def composites(x):
    return {
        "sparse": tf.SparseTensor([[0, 1], [1, 0], [2, 2]], tf.sin(x), [3, 3]),
        "ragged": tf.RaggedTensor.from_row_lengths(tf.exp(x), [2, 0, 1]),
        "rows": tf.RaggedTensor.from_nested_row_lengths(x * 2, [[1, 1], [1, 2]]),
        "slices": tf.IndexedSlices(x**2, tf.constant([4, 4, 0])),
    }


def test_the_values_of_composite_tensors_are_differentiated(case_of):
    for case in in_each_mode([case_of(forward=composites, inputs=X)], ["graph", "dynamic", "eager"]):
        result = run_case(case)
        assert (result.status, result.error) == (Status.PASSED, None)
        assert [pair.output for pair in result.pairs] == [
            "y.ragged.flat_values",
            "y.rows.flat_values",
            "y.slices.values",
            "y.sparse.values",
        ]
        assert [(left.output, left.dtype) for left in result.how.not_differentiated] == [
            ("y.ragged.row_splits", "int64"),
            ("y.rows.nested_row_splits[0]", "int64"),
            ("y.rows.nested_row_splits[1]", "int64"),
            ("y.slices.indices", "int32"),
            ("y.sparse.indices", "int64"),
            ("y.sparse.dense_shape", "int64"),
        ]


# Through other bindings.


def numpy_parts(a, b):
    return {"total": a + b, "product": a * b}


def numpy_parts_grad(op, along_product, along_total):
    a, b = op.inputs
    return b * along_product + along_total, a * along_product + along_total


OUTPUTS = {"product": {"dtype": "float64", "shape": [2]}, "total": {"dtype": "float64", "shape": [2]}}


@pytest.mark.on_change("custom_gradient", "defun")
@pytest.mark.parametrize("binding", ["py_func", "custom_gradient", "defun"])
def test_a_dict_through_a_binding(run, binding):
    result = run(
        forward=numpy_parts,
        gradient=numpy_parts_grad,
        binding=binding,
        outputs=OUTPUTS,
        inputs={"a": {"shape": [2]}, "b": {"shape": [2]}},
    )
    assert (result.status, result.error) == (Status.PASSED, None)
    assert {pair.output for pair in result.pairs} == {"product", "total"}


def test_a_reference_returns_the_same_structure(run):
    def forward(x):
        return {"loss": tf.sin(x), "accuracy": tf.exp(x)}

    same = run(forward=forward, reference=forward, inputs=X)
    assert same.status is Status.PASSED
    # By place, loss would be compared with exp.
    other = run(forward=forward, reference=lambda x: (tf.sin(x), tf.exp(x)), inputs=X)
    assert (other.error.kind, other.error.message) == (
        "outputs",
        (
            "the reference must return what the forward does, y.accuracy, y.loss, but returns y0, y1: return "
            "the same structure, or name the outputs in the spec."
        ),
    )
    named = run(
        forward=forward, reference=lambda x: (tf.sin(x), tf.exp(x)), outputs=["loss", "accuracy"], inputs=X
    )
    assert named.status is Status.PASSED


# Outputs without a gradient.


def test_integers_are_said_to_have_no_gradient(run):
    result = run(
        forward=lambda x: {"values": tf.sort(x), "places": tf.argsort(x), "is_positive": x > 0}, inputs=X
    )
    assert result.status is Status.PASSED
    assert [pair.label for pair in result.pairs] == ["dy.values/dx"]
    assert [(left.output, left.dtype) for left in result.how.not_differentiated] == [
        ("y.is_positive", "bool"),
        ("y.places", "int32"),
    ]


def test_nothing_but_integers_is_an_error(run):
    result = run(forward=lambda x: {"places": tf.argsort(x)}, inputs=X)
    assert result.error.message == (
        "there is nothing to check: no floating-point output, only y.places (int32). Check what comes before "
        "it is cast."
    )


def test_what_is_no_tensor_is_named_by_its_place(run):
    result = run(forward=lambda x: {"a": tf.sin(x), "b": [object()]}, inputs=X)
    assert result.error.message.startswith("forward: must return tensors, but y.b[0] is a object (")
