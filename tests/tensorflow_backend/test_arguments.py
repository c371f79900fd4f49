"""What a forward is called with: structures put together, keywords where it takes nothing else."""

from __future__ import annotations

import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import in_each_mode
from tests.planted.structured_functions import Pair, State

TWO = {"shape": [2]}


@pytest.fixture
def seen(run):
    """Return a function that checks a case whose forward notes what it is called with."""

    def check(inputs, **spec):
        noted = []

        def forward(*arguments, **keywords):
            noted.append((arguments, keywords))
            flat = tf.nest.flatten(
                [[tf.nest.flatten(one, expand_composites=True) for one in arguments], keywords]
            )
            return tf.add_n([tf.reduce_sum(one) for one in flat if one.dtype == tf.float64])

        result = run(forward=forward, inputs=inputs, **spec)
        assert (result.status, result.error) == (Status.PASSED, None)
        return noted[0], [pair.label for pair in result.pairs]

    return check


def test_dicts_tuples_and_lists(seen):
    tree = {"tuple": [TWO, [TWO, TWO], {"dict": {"k": TWO}}]}
    ((arguments, keywords), labels) = seen({"tree": tree})
    ((first, inner, keyed),) = arguments
    assert isinstance(arguments[0], tuple)
    assert isinstance(inner, list)
    assert list(keyed) == ["k"]
    assert first.shape == [2]
    assert not keywords
    assert labels == ["dy/dtree[0]", "dy/dtree[1][0]", "dy/dtree[1][1]", "dy/dtree[2].k"]


@pytest.mark.parametrize("made", [State, Pair])
def test_an_object_is_called_with_its_fields(run, made, monkeypatch):
    monkeypatch.setattr(tf, "made_for_a_test", made, raising=False)
    names = [*made.__annotations__]
    spec = {"object": "tensorflow:made_for_a_test", "fields": dict.fromkeys(names, TWO)}

    def forward(value):
        assert isinstance(value, made)
        first, second = (getattr(value, name) for name in names)
        return tf.sin(first) * second

    result = run(forward=forward, inputs={"s": spec})
    assert result.status is Status.PASSED
    assert [pair.label for pair in result.pairs] == [f"dy/ds.{name}" for name in names]


def test_an_object_of_other_fields_says_so(run, monkeypatch):
    monkeypatch.setattr(tf, "made_for_a_test", State, raising=False)
    spec = {"object": "tensorflow:made_for_a_test", "fields": {"hiden": TWO}}
    result = run(forward=lambda s: s.hidden, inputs={"s": spec})
    assert result.error.kind == "inputs"
    assert result.error.message.startswith(
        "inputs.s: tensorflow:made_for_a_test(hiden=...) raised TypeError: "
    )
    assert result.error.message.endswith(". Name the fields that it takes.")


# Keywords.


def by_keyword(x, *, weight, power=2):
    return weight * x**power


def with_defaults(x, scale=2.0, *, weight):
    return scale * weight * x


class Module(tf.Module):
    def __call__(self, x, *, weight):
        return x * weight


FORWARDS = {
    "keyword-only": (by_keyword, {}),
    "beside attrs": (by_keyword, {"power": 3}),
    "after a default": (with_defaults, {}),
    "any keyword": (lambda **tensors: tensors["x"] * tensors["weight"], {}),
    "one by place, any keyword": (lambda x, **tensors: x * tensors["weight"], {}),
    "any keyword beside attrs": (lambda x, scale, **tensors: scale * x * tensors["weight"], {"scale": 3.0}),
    "a tf.function": (tf.function(by_keyword), {}),
    "a module": (Module(), {}),
    "by place": (lambda x, weight: x * weight, {}),
    "any place": (lambda *tensors: tensors[0] * tensors[1], {}),
}


@pytest.mark.on_change("beside attrs", "one by place, any keyword")
@pytest.mark.parametrize(("forward", "attrs"), FORWARDS.values(), ids=FORWARDS)
def test_what_a_forward_takes_by_keyword_alone_is_given_so(case_of, forward, attrs):
    case = case_of(forward=forward, attrs=attrs, inputs={"x": TWO, "weight": TWO})
    for one in in_each_mode([case], ["graph", "eager"]):
        result = run_case(one)
        assert (result.status, result.error) == (Status.PASSED, None)
        assert [pair.label for pair in result.pairs] == ["dy/dx", "dy/dweight"]


def test_a_keyword_that_no_input_gives(run):
    result = run(forward=by_keyword, inputs={"x": TWO})
    assert result.error.kind == "forward"
    assert "missing 1 required keyword-only argument: 'weight'" in result.error.message


def test_a_gradient_has_the_tensors_flat_in_the_spec_s_order(run):
    def gradient(op, upstream):
        w, x, weight = op.inputs
        return upstream * x * weight, upstream * w * weight, upstream * w * x

    inputs = {"p": {"dict": {"w": TWO, "x": TWO}}, "weight": TWO}
    result = run(forward=lambda p, *, weight: p["w"] * p["x"] * weight, gradient=gradient, inputs=inputs)
    assert result.status is Status.PASSED
    wrong = run(
        forward=lambda p, *, weight: p["w"] * p["x"] * weight,
        gradient=lambda op, upstream: gradient(op, upstream)[:2],
        inputs=inputs,
    )
    assert wrong.error.message.startswith(
        "the gradient function must return 3 gradients, one (or None) for each of p.w, p.x, weight, but"
    )


# SparseTensor and RaggedTensor.

SPARSE = {"shape": [3, 4], "sparse": {"indices": [[0, 1], [2, 0]]}}


def test_a_sparse_tensor_knows_its_shape_where_the_trace_does(case_of):
    shapes = {}

    def forward(mode):
        def note(a):
            assert isinstance(a, tf.SparseTensor)
            shapes.setdefault(mode, (a.shape.as_list(), a.values.shape.as_list(), a.indices.shape.as_list()))
            return a.values**2

        return note

    for mode in ("graph", "dynamic", "eager"):
        (case,) = in_each_mode([case_of(forward=forward(mode), inputs={"a": SPARSE})], [mode])
        assert run_case(case).status is Status.PASSED
    assert shapes["graph"] == shapes["eager"] == ([3, 4], [2], [2, 2])
    assert shapes["dynamic"] == ([None, None], [None], [None, 2])


def test_a_gradient_of_a_sparse_argument_is_of_its_three_tensors(run):
    def gradient(op, upstream):
        indices, values, shape = op.inputs
        assert (indices.dtype, shape.dtype) == (tf.int64, tf.int64)
        return None, tf.gather(upstream, indices[:, 0]) * 2 * values, None

    def forward(a):
        return tf.math.unsorted_segment_sum(a.values**2, a.indices[:, 0], 3)

    assert run(forward=forward, gradient=gradient, inputs={"a": SPARSE}).status is Status.PASSED
    wrong = run(forward=forward, gradient=lambda _, upstream: upstream, inputs={"a": SPARSE})
    assert "one (or None) for each of a.indices, a.values, a.dense_shape, but" in wrong.error.message
