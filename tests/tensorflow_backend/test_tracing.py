"""What tracing relies on (shared facts about TensorFlow), and what it makes of them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode


def traced(function, *specs):
    return tf.compat.v1.wrap_function(function, [tf.TensorSpec(shape, tf.float64) for shape in specs])


# --- facts ---


def loop(x):
    _, y = tf.while_loop(
        lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y) + x), (0, x), maximum_iterations=5
    )
    return y


def test_building_a_gradient_changes_the_forward():
    # Hence two traces: a while loop gains accumulators for its gradient.
    kept = {}

    def forward(x):
        kept["y"] = loop(x)
        return kept["y"]

    def forward_and_vjp(x):
        y = loop(x)
        return y, tf.compat.v1.gradients([y], [x])[0]

    def loops(function):
        return [op for op in function.graph.get_operations() if "While" in op.type]

    alone, both = traced(forward, [2]), traced(forward_and_vjp, [2])
    assert len(loops(alone)) == 1
    assert len(loops(both)) == 2
    assert len(loops(both)[0].outputs) > len(loops(alone)[0].outputs)


def test_pruning_takes_intermediate_tensors_as_feeds():
    kept = {}

    def forward(x):
        kept["x"], kept["inner"] = x, tf.square(x)
        kept["y"] = kept["inner"] + 1
        return kept["y"]

    whole = traced(forward, [2])
    assert list(whole.prune([kept["inner"]], [kept["y"]])(tf.constant([5.0, 6.0], tf.float64))[0]) == [6, 7]


def test_a_variables_new_value_is_seen_without_another_trace():
    variable = tf.Variable(2.0, dtype=tf.float64)
    function = traced(lambda x: x * variable, [])
    variable.assign(5.0)
    assert float(function(tf.constant(3.0, tf.float64))) == 15.0


def test_gradients_accept_another_dtype_without_a_word():
    @tf.custom_gradient
    def forward(x):
        return x * 2, lambda upstream: tf.cast(2 * upstream, tf.float32)

    seen = []
    traced(lambda x: seen.append(tf.compat.v1.gradients([forward(x)], [x])[0]) or x, [2])
    assert seen[0].dtype == tf.float32


def test_a_gradients_python_runs_once_a_trace():
    calls = []

    @tf.custom_gradient
    def forward(x):
        def grad(upstream):
            calls.append(1)
            return 2 * upstream

        return x * 2, grad

    function = traced(lambda x: tf.compat.v1.gradients([forward(x)], [x])[0], [2])
    for _ in range(3):
        function(tf.constant([1.0, 2.0], tf.float64))
    assert len(calls) == 1


# --- what a run makes of them ---

X = {"inputs": {"x": {"shape": [3]}}}


def autograph_if(x):
    if tf.reduce_sum(x) > 0:  # noqa: SIM108 (AutoGraph is to convert it)
        y = x**2
    else:
        y = -3 * x
    return y


def autograph_while(x):
    y = x
    while tf.reduce_max(tf.abs(y)) < 10:
        y = 2 * y
    return y


def autograph_for(x):
    total = tf.zeros([], x.dtype)
    for value in x:
        total += value**2
    return total


def a_python_list(x):
    parts = []
    for number in range(3):
        parts.append(x[number] ** 2)  # noqa: PERF401 (AutoGraph is to convert it)
    return tf.stack(parts)


@tf.function
def inner(x):
    return tf.exp(-x) * x


def calls_functions(x):
    return inner(x) + inner(2 * x)


def helper(x):
    if x[0] > 0:
        return x * 2
    return x * 3


def calls_a_helper(x):
    return helper(x) ** 2


@pytest.mark.on_change("calls_functions")
@pytest.mark.parametrize(
    "forward",
    [loop, autograph_if, autograph_while, autograph_for, a_python_list, calls_functions, calls_a_helper],
)
def test_control_flow_works_as_under_tf_function(run, forward):
    result = run(forward=forward, inputs={"x": {"value": [0.5, -1.0, 1.3], "shape": [3]}})
    assert result.error is None
    assert result.status is Status.PASSED


def test_both_branches_are_taken_where_the_inputs_say_so(run):
    for sign in (1, -1):
        result = run(forward=autograph_if, inputs={"x": {"value": [sign * 0.5, sign * 1.0], "shape": [2]}})
        assert result.status is Status.PASSED
        assert result.pairs[0].numbers.elements == 4


def gather(table, rows):
    return tf.gather(table, rows)


@pytest.mark.parametrize("rows", [[1, 3, 1], [0, 0, 0], [2, 1, 3]])
def test_indexed_slices_add_up_into_the_inputs_shape(case_of, rows):
    case = case_of(
        forward=gather,
        inputs={"table": {"shape": [4, 2]}, "rows": {"value": rows, "shape": [3], "dtype": "int32"}},
    )
    op = CaseOpener(GraphMode(), CaseState(case)).open(Opening())
    upstream = np.arange(12.0).reshape(2, 3, 2)
    gradient, none = op.vjp(0, upstream)
    assert none is None
    expected = np.zeros((2, 4, 2))
    for place, row in enumerate(rows):
        expected[:, row] += upstream[:, place]
    np.testing.assert_array_equal(gradient, expected)


def test_a_gradient_of_another_dtype_in_a_custom_gradient_is_a_mismatch(run):
    @tf.custom_gradient
    def forward(x):
        return x * 2, lambda upstream: tf.cast(2 * upstream, tf.float32)

    result = run(forward=forward, **X)
    (pair,) = result.pairs
    assert (result.status, pair.status) == (Status.MISMATCHED, Status.MISMATCHED)
    assert "float64" in pair.message
    assert "float32" in pair.message


def test_a_gradient_of_another_shape_in_a_custom_gradient_is_a_mismatch(run):
    @tf.custom_gradient
    def forward(x):
        return x * 2, lambda upstream: 2 * upstream[:2]

    result = run(forward=forward, **X)
    assert result.status is Status.MISMATCHED
    (pair,) = result.pairs
    assert "shape" in pair.message


def test_a_dynamic_gradient_of_another_shape_is_found_as_it_runs(run):
    def gradient(upstream):
        return tf.boolean_mask(2 * upstream, upstream > -(10.0**9))[
            : tf.cast(tf.size(upstream), tf.int32) - 1
        ]

    @tf.custom_gradient
    def forward(x):
        return x * 2, gradient

    result = run(forward=forward, **X)
    (pair,) = result.pairs
    assert pair.status is Status.MISMATCHED
    assert (
        pair.message == "the gradient for x must have shape [3], as its input has, but has [2] when it runs."
    )


@pytest.mark.parametrize("returned", [np.ones(3), 1.0])
def test_something_that_is_no_tensor_in_a_custom_gradient_says_what_happened(run, returned):
    @tf.custom_gradient
    def forward(x):
        return x * 2, lambda _: returned

    result = run(forward=forward, **X)
    if result.status is Status.ERROR:
        assert result.error.kind == "gradient"
        assert "no tensor (an ndarray or a Python number)" in result.error.message
    else:
        # A TensorFlow that converts it: then it's no function of its upstream.
        assert result.status is Status.MISMATCHED


SCALE = tf.Variable(2.0, dtype=tf.float64)


def with_variables(returns):
    @tf.custom_gradient
    def forward(x):
        def grad(upstream, variables=None):
            return returns(upstream)

        return x * SCALE, grad

    return forward


def without_variables(returns):
    return tf.custom_gradient(lambda x: (2 * x, returns))


def of_two(returns):
    return lambda x: tf.custom_gradient(lambda a, b: (a * b, returns))(x, x)


ONE = "must return 1 gradient, one (or None) for each argument, but returned 2."
VARIABLE = "must return (gradients of its arguments, [gradients of its 1 variable]), but returned "


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize(
    ("make", "returns", "said"),
    [
        (without_variables, lambda u: (u, u), ONE),
        (of_two, lambda u: u, "must return 2 gradients, one (or None) for each argument, but returned 1."),
        (with_variables, lambda u: ([u, u], [u]), ONE),
        (with_variables, lambda u: u, VARIABLE + "1 value."),
        (with_variables, lambda u: (u, [u], u), VARIABLE + "3 values."),
        (with_variables, lambda u: (u, []), VARIABLE + "0 gradients of variables."),
        (with_variables, lambda u: (u, u), VARIABLE + "no list of those of variables."),
    ],
)
def test_a_wrong_count_of_gradients_says_both_counts_and_the_line(run, mode, make, returns, said):
    result = run(forward=make(returns), modes=[mode], inputs={"x": {"shape": [2]}})
    assert (result.status, result.error.kind) == (Status.ERROR, "gradient_count")
    message = result.error.message
    assert re.match(r"a custom gradient at \S+test_tracing.py:\d+ ", message), message
    assert said in message
    assert "TensorFlow's own code" not in message


def test_an_op_without_a_gradient_names_itself(run):
    result = run(forward=lambda x: tf.numpy_function(np.tanh, [x], x.dtype), **X)
    # A py_func has no gradient: not an error but None, where the derivative isn't zero.
    assert result.status is Status.MISMATCHED
    assert result.pairs[0].message.endswith("None is not zero.")


def test_a_type_without_a_registered_gradient_says_what_to_do(run):
    result = run(
        forward=lambda x: tf.raw_ops.IgammaGradA(a=x, x=x), inputs={"x": {"value": 0.5, "shape": [2]}}
    )
    assert (result.status, result.error.kind) == (Status.ERROR, "gradient")
    assert "IgammaGradA" in result.error.message
    assert result.error.message.endswith(
        "Register one with tf.RegisterGradient, or give the spec a 'gradient'."
    )


KEPT = []


def keeps_a_tensor(op, upstream):
    KEPT.append(op.inputs[0])
    return 2 * KEPT[0] * upstream


def test_a_tensor_kept_from_an_earlier_trace_is_said_so(run):
    KEPT.clear()
    result = run(forward=tf.square, gradient=keeps_a_tensor, inputs={"x": {"shape": [2]}}, samples=2)
    assert (result.status, result.error.kind) == (Status.ERROR, "gradient")
    assert "of an earlier trace; don't keep tensors between calls" in result.error.message


def test_a_forward_that_keeps_a_tensor_is_said_so(run):
    kept = []

    def forward(x):
        kept.append(x * 1)
        return x * kept[0]

    result = run(forward=forward, **X)
    assert (result.status, result.error.kind) == (Status.ERROR, "forward")
    assert "'mul:0' of an earlier trace; don't keep tensors between calls" in result.error.message


def kept_by(make):
    """Return a function that makes something on its first call, and keeps it."""
    kept = []

    def forward(x):
        if not kept:
            kept.append(make())
        return x * x * (kept[0](x) if callable(kept[0]) else kept[0])

    return forward


WIDTHS = tf.constant([2.0, 3.0], tf.float64)


def make_table():
    keys = tf.constant([0, 1], tf.int64)
    entries = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([0.5, 1.5], tf.float64))
    table = tf.lookup.StaticHashTable(entries, 0.25)
    return lambda x: table.lookup(tf.cast(tf.sign(x), tf.int64))


@pytest.mark.parametrize("mode", ["graph", "dynamic", "eager"])
@pytest.mark.parametrize(
    "make",
    [
        make_table,
        lambda: tf.constant(3.0, tf.float64),
        lambda: tf.sin(2 * tf.range(2.0, 4.0, dtype=tf.float64)),
        lambda: tf.sin(WIDTHS),
        lambda: tf.Variable([2.0, 3.0], dtype=tf.float64),
    ],
    ids=["table", "constant", "computed", "captured", "variable"],
)
def test_what_a_forward_makes_on_its_first_call_is_kept(run, make, mode):
    result = run(forward=kept_by(make), inputs={"x": {"value": [0.7, -1.3]}}, modes=[mode])
    assert result.status is Status.PASSED, result


def test_what_a_gradient_makes_on_its_first_call_is_kept(run):
    kept = []

    @tf.custom_gradient
    def forward(x):
        def pull(upstream):
            if not kept:
                kept.append(tf.constant(2.0, x.dtype))
            return upstream * kept[0] * x

        return x * x, pull

    assert run(forward=forward, **X, samples=2).status is Status.PASSED
    kept[0] = tf.constant(2.5, tf.float64)
    assert run(forward=forward, **X, samples=2).status is Status.MISMATCHED


def test_numbers_that_a_forward_drew_on_its_first_call_are_not_kept(run):
    result = run(forward=kept_by(lambda: tf.random.normal([2], dtype=tf.float64)), **X)
    assert (result.status, result.error.kind) == (Status.ERROR, "forward")


def test_what_a_forward_raises_is_told_with_its_own_frames(run):
    def forward(x):
        raise ValueError(f"no {x.shape.rank}")

    result = run(forward=forward, **X)
    assert (result.error.kind, result.error.message) == ("forward", "the forward raised ValueError: no 1")
    assert result.error.traceback[-1].strip() == 'raise ValueError(f"no {x.shape.rank}")'


def test_what_a_forward_raises_as_it_runs(run):
    def forward(x):
        with tf.control_dependencies(
            [tf.debugging.assert_less(x, tf.constant(-5.0, x.dtype), message="too large")]
        ):
            return x * 1

    result = run(forward=forward, **X)
    assert result.error.kind == "forward"
    assert "too large" in result.error.message


def test_a_numpy_forward_that_raises_has_its_own_frames(run):
    def forward(x):
        raise ValueError(f"no {x.ndim}")

    result = run(
        forward=forward,
        gradient=lambda _, u: u,
        binding="py_func",
        outputs={"y": {"shape": [3], "dtype": "float64"}},
        **X,
    )
    assert (result.error.kind, result.error.message) == ("forward", "the forward raised ValueError: no 1")
    assert result.error.traceback[-1].strip() == 'raise ValueError(f"no {x.ndim}")'


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["y", "z"], "the forward returns 1 output, but the spec names 2: y, z."),
        ({"y": {"dtype": "float32"}}, "output y of the forward must be float32 by the spec, but is float64."),
        ({"y": {"shape": [4]}}, "output y must have shape [4] by the spec, but has [3]."),
        ({"y": {"shape": [3, 1]}}, "output y must have shape [3, 1] by the spec, but has [3]."),
    ],
)
def test_outputs_are_held_to_the_spec(run, outputs, message):
    result = run(forward=tf.tanh, outputs=outputs, **X)
    assert (result.error.kind, result.error.message) == ("outputs", message)


def test_every_output_can_be_asked_for_and_all_at_once(case_of):
    case = case_of(
        forward=lambda a, b: (a + b, a * b),
        inputs={"a": {"value": [2.0, 3.0], "shape": [2]}, "b": {"value": [0.5, 4.0], "shape": [2]}},
    )
    op = CaseOpener(GraphMode(), CaseState(case)).open(Opening())
    assert [info.name for info in op.outputs] == ["y0", "y1"]
    first, second = np.array([[1.0, 2.0]]), np.array([[10.0, 20.0]])
    np.testing.assert_array_equal(op.vjp(0, first)[0], [[1, 2]])
    np.testing.assert_array_equal(op.vjp(1, second)[0], [[5, 80]])
    np.testing.assert_array_equal(op.joint_vjp({0: first, 1: second})[0], [[6, 82]])


@pytest.mark.on_change("<lambda>-joint0")
@pytest.mark.parametrize(
    ("forward", "joint"),
    [
        (lambda a: (tf.sin(a), tf.exp(a)), ()),
        (lambda a: (tf.sin(tf.identity(a)), tf.identity(a)), ()),
        (lambda a: (a[0], tf.sin(a), tf.sin(a[1])), ()),
        (lambda a: (tf.exp(a[0]), tf.unstack(a)[0], tf.unstack(a)[1]), ()),
        (lambda a: (tf.exp(a), *tf.unstack(a)), (1, 2)),
        (lambda a: (tf.sin(a), *two_sums(tf.square(a)), tf.exp(a)), (1, 2)),
        (lambda a: (*two_sums(tf.shape(a)[0]), a), ()),
    ],
)
def test_outputs_are_pulled_back_together_where_they_share_a_gradient(case_of, forward, joint):
    op = CaseOpener(
        GraphMode(), CaseState(case_of(forward=forward, inputs={"a": {"value": [2.0, 3.0]}}))
    ).open(Opening())
    trace = op.traced.vjp_trace
    assert (trace.joint.outputs if trace.joint else ()) == joint
    flows = {
        output: np.full((1, *info.shape), 1.0 + output)
        for output, info in enumerate(op.outputs)
        if info.is_differentiable
    }
    alone = [op.vjp(output, flow)[0] for output, flow in flows.items()]
    np.testing.assert_allclose(op.joint_vjp(flows)[0], sum(alone), rtol=1e-15)


def two_sums(a):
    return a + a, a * a


def test_the_vjp_of_an_op_is_opened_once(case_of):
    opener = CaseOpener(GraphMode(), CaseState(case_of(forward=tf.sin, **X)))
    op = opener.open(Opening())
    assert opener.vjp(op) is opener.vjp(op)
    assert opener.vjp(op).case != opener.case


COUNTED = []


@tf.custom_gradient
def counts_its_traces(x):
    def grad(upstream):
        COUNTED.append(1)
        return upstream * float(len(COUNTED))

    return x * 2, grad


@pytest.mark.parametrize(
    ("forward", "is_same"),
    [
        (tf.sin, True),
        (two_sums, True),
        (lambda x: x * np.array([0.3, 2.0]), True),
        (counts_its_traces, False),
        (loop, False),
    ],
)
def test_a_trace_that_computes_the_same_uses_the_functions_of_the_first(case_of, forward, is_same):
    op = CaseOpener(GraphMode(), CaseState(case_of(forward=forward, inputs={"x": {"shape": [2]}}))).open(
        Opening()
    )
    first, again = op.traced.vjp_trace, op.retraced().traced.vjp_trace
    assert (again is first) is is_same
    upstream = np.array([[1.0, -2.0]])
    for output in first.pullbacks:
        whole = again.pullbacks[output].function.function_def
        assert (whole == first.pullbacks[output].function.function_def) is is_same
        is_right = np.array_equal(op.vjp(output, upstream)[0], op.retraced().vjp(output, upstream)[0])
        assert is_right == (forward is not counts_its_traces)


def test_a_gradient_that_mixes_its_upstreams_is_found(run):
    @tf.custom_gradient
    def forward(x):
        return (x * 2, x * 3), lambda first, second: 2 * first + 3 * second + first * second

    result = run(forward=forward, **X)
    (linearity,) = [check for check in result.checks if check.name == "linearity"]
    assert (result.status, linearity.status) == (Status.MISMATCHED, Status.MISMATCHED)
    assert [pair.status for pair in result.pairs] == [Status.PASSED, Status.PASSED]


@pytest.mark.parametrize("binding", ["py_func", "defun"])
def test_a_gradient_that_reads_what_the_last_call_kept_is_found(run, binding):
    kept = {}

    def forward(x):
        kept["x"] = np.array(x)
        return np.asarray(x) ** 2

    def gradient(op, upstream):
        return 2 * upstream * tf.numpy_function(lambda _: kept["x"], [upstream], tf.float64)

    result = run(
        forward=forward, gradient=gradient, binding=binding, outputs={"y": {"dtype": "float64"}}, **X
    )
    assert [check.name for check in result.checks if check.status is Status.MISMATCHED] == ["retrace"]


def test_points_are_those_of_the_declared_dtype_in_float64_too(case_of):
    case = case_of(forward=tf.tanh, inputs={"x": {"value": [0.1, 0.2], "shape": [2], "dtype": "float32"}})
    opener = CaseOpener(GraphMode(), CaseState(case))
    own = opener.open(Opening())
    wide = opener.in_float64(own)
    np.testing.assert_array_equal(own.point[0], np.array([0.1, 0.2], np.float32).astype(np.float64))
    np.testing.assert_array_equal(own.point[0], wide.point[0])
    assert (own.inputs[0].dtype, wide.inputs[0].dtype) == ("float32", "float64")


def test_samples_differ_and_repeat(case_of):
    case = case_of(forward=tf.tanh, **X)
    points = [CaseOpener(GraphMode(), CaseState(case)).open(Opening(sample)).point[0] for sample in (0, 1, 0)]
    assert not np.array_equal(points[0], points[1])
    np.testing.assert_array_equal(points[0], points[2])


def test_a_case_failed_error_passes_through_unchanged(case_of):
    def forward(_):
        raise CaseFailedError("values", "as it is")

    with pytest.raises(CaseFailedError, match="as it is") as caught:
        CaseOpener(GraphMode(), CaseState(case_of(forward=forward, **X))).open(Opening())
    assert caught.value.kind == "values"
